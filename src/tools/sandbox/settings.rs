//! The settings of the sandbox.

use std::path::PathBuf;

use super::context::{SandboxContext, SandboxError};
use super::denied_paths::RuleDenial;
use super::network::Egress;
use super::path_grants::TerminalAccess;
use crate::process::RootCapabilities;
use crate::types::SandboxMode;

/// The user's settings for the sandbox. Paths are absolute, relative to the home folder (`~/`), or
/// relative to the working directory.
#[derive(Clone, Debug, Default)]
pub struct SandboxSettings {
    pub mode: SandboxMode,
    pub no_network: bool,
    /// The network of commands that may reach listed hosts only. `None`: there are no lists.
    pub egress: Option<Egress>,
    pub terminals: TerminalAccess,
    /// The capabilities of commands of root.
    pub capabilities: RootCapabilities,
    pub allow_write: Vec<String>,
    pub deny_write: Vec<String>,
    pub allow_read: Vec<String>,
    pub deny_read: Vec<String>,
    /// The folder with outlast's settings, logins and sessions, which commands may not access.
    pub config_dir: Option<PathBuf>,
    /// True if the run creates that folder if it does not exist.
    pub makes_config_dir: bool,
}

impl SandboxSettings {
    /// The folder with outlast's own logins, which commands without a sandbox can read.
    pub(super) fn own_logins(&self) -> Vec<String> {
        let folder = self.config_dir.iter();
        let existing = folder.filter(|folder| self.makes_config_dir || folder.exists());
        existing.map(|folder| folder.display().to_string()).collect()
    }
}

/// The paths that settings and enforced permission rules list.
pub(super) struct ListedPaths {
    pub(super) allow_write: Vec<PathBuf>,
    pub(super) deny_write: Vec<PathBuf>,
    pub(super) allow_read: Vec<PathBuf>,
    pub(super) deny_read: Vec<PathBuf>,
}

impl ListedPaths {
    pub(super) fn resolve(
        settings: &SandboxSettings,
        context: &SandboxContext<'_>,
        enforced: &[&RuleDenial],
    ) -> Result<Self, SandboxError> {
        let resolve = |paths: &[String]| -> Result<Vec<PathBuf>, SandboxError> {
            paths.iter().map(|path| context.resolve_setting_path(path)).collect()
        };
        let mut listed = Self {
            allow_write: resolve(&settings.allow_write)?,
            deny_write: resolve(&settings.deny_write)?,
            allow_read: resolve(&settings.allow_read)?,
            deny_read: resolve(&settings.deny_read)?,
        };
        for rule in enforced {
            let denied =
                if rule.changes_only { &mut listed.deny_write } else { &mut listed.deny_read };
            denied.push(context.real(&rule.place));
        }
        Ok(listed)
    }
}
