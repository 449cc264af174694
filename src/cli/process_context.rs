//! The environment of the process: its variables, folder and signals.

use std::path::PathBuf;

use tokio::time::Instant;

use super::exit_watchdog::ExitWatchdog;
use super::host_turn::HostTurn;
use super::signals::SignalState;
use crate::config::environment::Variables;

/// Environment of the process: its variables, folder, signals and exit watchdog.
pub(super) struct ProcessContext {
    /// Time from which the time of a run counts.
    pub began: Instant,
    pub variables: Variables,
    pub cwd: PathBuf,
    pub signals: SignalState,
    /// Writes the result if the run hangs.
    pub exit_watchdog: ExitWatchdog,
    /// The host's part, if the run is a turn of one.
    pub host: Option<HostTurn>,
}

impl ProcessContext {
    /// Makes `cwd` the working folder, which the variable `PWD` names from then on: after `-C` it would
    /// name another folder, and a service has none. It tells which words are no secrets, too.
    pub(super) fn set_folder(&mut self, cwd: PathBuf) {
        self.variables.insert("PWD".into(), cwd.clone().into());
        self.cwd = cwd;
    }
}
