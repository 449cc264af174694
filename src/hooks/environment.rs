//! The environment that hooks run in.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::process::Supervisor;
use crate::secrets::{KnownSecrets, Redactor};
use crate::types::{Callback, Effort, HostChannel, PermissionMode};

use super::config::HookHandler;
use super::crash_log::CrashLog;
use super::failure::HookFailure;

/// The parts that all hooks of a run have in common: input fields, environment, supervisor.
#[derive(Clone, Debug)]
pub struct HookEnvironment {
    pub session_id: String,
    /// The session's journal, whether or not it is written.
    pub transcript: PathBuf,
    pub cwd: PathBuf,
    /// Returns the permission mode in force, which a host may change during the run.
    pub permission_mode: Callback<dyn Fn() -> PermissionMode + Send + Sync>,
    /// The effort level of replies, if it is set.
    pub effort: Option<Effort>,
    /// The complete environment of a hook.
    pub environment: Vec<(OsString, OsString)>,
    pub log: CrashLog,
    /// A folder that is closed to commands.
    pub state_folder: PathBuf,
    /// Secrets to mask in the log.
    pub secrets: KnownSecrets,
    /// The shell that runs scripts.
    pub shell: PathBuf,
    /// Starts hooks, and kills their descendants when they end.
    pub supervisor: Supervisor,
    /// The host that drives the run, if there is one: it runs callbacks.
    pub host: Option<Arc<dyn HostChannel>>,
}

impl HookEnvironment {
    /// Logs a failed hook. Errors are ignored: the result reports the failure as well.
    pub(super) fn log_failure(&self, handler: &HookHandler, failure: &HookFailure) {
        let _ = self.log.add(handler, failure, &self.session_id, &self.redactor());
    }

    pub(super) fn redactor(&self) -> Redactor {
        Redactor::new(self.secrets.clone())
    }
}
