//! The environment of the process: its variables, folder, signals and the sinks of its output.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use tokio::time::Instant;

use super::exit_watchdog::ExitWatchdog;
use super::host_turn::HostTurn;
use super::output::TerminalFilter;
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
    /// True if nothing is written to standard error.
    pub is_result_alone: bool,
    /// The host's part, if the run is a turn of one.
    pub host: Option<HostTurn>,
}

impl ProcessContext {
    /// Makes `cwd` the working folder, which the variable `PWD` names from then on: after `-C` it would
    /// name another folder, and a service has none. It tells which words are no secrets, too.
    pub(super) fn set_folder(&mut self, cwd: PathBuf) {
        let pwd = self.variables.get(OsStr::new("PWD"));
        // The name that a shell has for it, through links, stays.
        if pwd.is_none_or(|pwd| fs::canonicalize(pwd).ok().as_ref() != Some(&cwd)) {
            self.variables.insert("PWD".into(), cwd.clone().into());
        }
        self.cwd = cwd;
    }

    /// Returns the sink of messages for people.
    pub(super) fn messages(&self) -> Box<dyn Write + Send> {
        if self.is_result_alone {
            Box::new(io::sink())
        } else {
            Box::new(TerminalFilter::messages(io::stderr()))
        }
    }
}
