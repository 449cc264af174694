//! The settings of the sandbox.

use std::path::PathBuf;

use super::network::Egress;
use super::path_grants::TerminalAccess;
use crate::process::RootCapabilities;
use crate::types::SandboxMode;

/// The user's settings for the sandbox. Paths are absolute, relative to the home folder (`~/`), or
/// relative to the working directory.
#[derive(Clone, Debug, Default)]
pub struct SandboxSettings {
    pub mode: SandboxMode,
    /// True if commands have no network.
    pub no_network: bool,
    /// The network of commands that may reach listed hosts only. `None`: there are no lists.
    pub egress: Option<Egress>,
    /// The terminals that commands may use.
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
    /// The folder with outlast's own logins, which are in reach of commands without a sandbox.
    pub(super) fn own_logins(&self) -> Vec<String> {
        let folder = self.config_dir.iter();
        let there = folder.filter(|folder| self.makes_config_dir || folder.exists());
        there.map(|folder| folder.display().to_string()).collect()
    }
}
