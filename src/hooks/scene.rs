//! What hooks are run with.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::process::Supervisor;
use crate::secrets::{KnownSecrets, Redactor};

use super::answer::HookFailure;
use super::config::HookHandler;
use super::crash::CrashLog;

/// What all hooks of a run are told, and what they are run with.
#[derive(Clone, Debug)]
pub struct HookEnvironment {
    pub session_id: String,
    /// The session's journal, whether or not it is kept.
    pub transcript: PathBuf,
    pub cwd: PathBuf,
    pub permission_mode: String,
    /// All variables of a hook.
    pub environment: Vec<(OsString, OsString)>,
    pub log: CrashLog,
    /// What must not stand in it.
    pub secrets: KnownSecrets,
    /// Runs scripts.
    pub shell: PathBuf,
    /// Starts hooks, and sees to it that nothing of them is left.
    pub supervisor: Supervisor,
}

impl HookEnvironment {
    /// Writes down that a hook failed. Without a log the result still tells of it.
    pub(super) fn log_failure(&self, handler: &HookHandler, mishap: &HookFailure) {
        let _ = self.log.add(handler, mishap, &self.session_id, &self.mask());
    }

    /// Hides what must not be printed or stored.
    pub(super) fn mask(&self) -> Redactor {
        Redactor::new(self.secrets.clone())
    }
}
