//! The environment of the process: its variables, folder, signals and the sinks of its output.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::exit_watchdog::ExitWatchdog;
use super::host_turn::HostTurn;
use super::output::{PipeDrain, PipeSender, TerminalFilter, one_line, pipe};
use super::signals::SignalState;
use super::usage::UsageError;
use crate::config::environment::Variables;
use crate::secrets::{KnownSecrets, Redactor};

/// Environment of the process: its variables, folder, signals and exit watchdog.
pub(super) struct ProcessContext {
    /// Start of the time of a run.
    pub began: Instant,
    pub variables: Variables,
    pub cwd: PathBuf,
    pub signals: SignalState,
    /// Writes the result if the run hangs.
    pub exit_watchdog: ExitWatchdog,
    /// True if nothing is written to standard error.
    pub is_result_alone: bool,
    /// The host's part, if the run is a turn of a host.
    pub host: Option<HostTurn>,
}

impl ProcessContext {
    /// Makes `cwd` the working folder, and sets the variable `PWD`, which names another folder
    /// after `-C` and is not set in services. Words in `PWD` do not count as secrets.
    pub(super) fn set_folder(&mut self, cwd: PathBuf) {
        let pwd = self.variables.get(OsStr::new("PWD"));
        // A name of the same folder through links is kept.
        if pwd.is_none_or(|pwd| fs::canonicalize(pwd).ok().as_ref() != Some(&cwd)) {
            self.variables.insert("PWD".into(), cwd.clone().into());
        }
        self.cwd = cwd;
    }

    /// Returns the sink of messages for people.
    fn messages(&self) -> Box<dyn Write + Send> {
        if self.is_result_alone {
            Box::new(io::sink())
        } else {
            Box::new(TerminalFilter::messages(io::stderr()))
        }
    }
}

/// State that all writers of output share.
#[derive(Clone)]
pub(super) struct SharedOutput {
    /// Filled when the settings are resolved.
    pub secrets: KnownSecrets,
    pub redactor: Arc<Redactor>,
    /// Standard error.
    pub stderr: PipeSender,
}

impl SharedOutput {
    /// Time limit of the wait for a slow reader of standard error.
    pub(super) const STDERR_LIMIT: Duration = Duration::from_secs(1);

    /// Opens standard error. The second value waits until everything is written.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub(super) fn open(context: &ProcessContext) -> Result<(Self, PipeDrain), UsageError> {
        let secrets = KnownSecrets::default();
        let redactor = Arc::new(Redactor::new(secrets.clone()));
        let (stderr, drain) = pipe(context.messages(), Arc::clone(&redactor), || {})
            .map_err(|error| UsageError::no_thread(&error))?;
        Ok((Self { secrets, redactor, stderr }, drain))
    }

    pub(super) fn warn(&self, text: &str) {
        self.stderr.send(&format!("outlast: warning: {}", one_line(text)));
    }
}
