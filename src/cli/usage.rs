//! Usage errors: errors that stop a run before it begins.

use std::ffi::OsString;
use std::{fmt, io};

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::config::ConfigError;
use crate::process::limit_to_raise;
use crate::recovery::{ErrorClass, Interrupt, StopReason};

use super::exit::ExitStatus;
use crate::text::words_joined;
use crate::types::exit_code;

/// An error that stops a run before it begins: one line with what, where and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError {
    message: String,
    /// Further mistakes, a line each.
    others: Vec<String>,
    pub(super) cause: UsageErrorKind,
}

/// Kind of an error, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageErrorKind {
    /// The command line, the settings or the input.
    Usage,
    Credentials,
    Interrupted(Interrupt),
    /// The time limit passed before the run could begin.
    Late,
    /// The session does not exist, or cannot be resumed in this folder.
    NotResumable,
    /// Another process works on the session: try later.
    Busy,
    /// Something failed that may work later.
    Temporary,
    /// An MCP server that the run requires is not available.
    McpUnavailable,
    /// A rehearsal did not go as its scenario expects.
    RehearsalFailed,
    /// Standard output could not be written, after the work was done.
    Unwritable,
    /// A bug of outlast.
    Internal,
}

impl From<anyhow::Error> for UsageError {
    /// Converts a mistake in the input: the places that were added as context, and the cause.
    fn from(error: anyhow::Error) -> Self {
        Self::new(format!("{error:#}"))
    }
}

impl UsageError {
    /// A mistake in the input. `message` is put into one line, whatever it contains.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of(UsageErrorKind::Usage, message)
    }

    /// The error for a missing credential.
    pub fn credentials(message: impl Into<String>) -> Self {
        Self::of(UsageErrorKind::Credentials, message)
    }

    pub(super) fn of(cause: UsageErrorKind, message: impl Into<String>) -> Self {
        Self { message: words_joined(&message.into()), others: Vec::new(), cause }
    }

    /// Puts the name of the place that the mistake is in before the message.
    pub(super) fn with_place(self, place: &str) -> Self {
        Self { message: words_joined(&format!("{place}: {}", self.message)), ..self }
    }

    /// Adds that a shell leaves the `~` of a path in these words of the command line as it is, if
    /// the mistake is about that path.
    #[must_use]
    pub(super) fn with_kept_tilde(self, words: impl Iterator<Item = OsString>) -> Self {
        let path_of = |word: OsString| {
            let word = word.into_string().ok()?;
            let value = word.split_once('=').map_or(&*word, |(_flag, value)| value);
            value.starts_with("~/").then(|| value.to_owned())
        };
        let mut paths = words.filter_map(path_of);
        let Some(path) = paths.find(|path| self.message.contains(path)) else { return self };
        let (message, below) = (self.message, &path[1..]);
        let why = "a shell leaves a ~ in quotes and after --flag= as it is";
        Self { message: format!("{message}; {why}: write $HOME{below}"), ..self }
    }

    /// The system has no room for another thread: a limit of processes counts threads too.
    pub(super) fn no_thread(error: &io::Error) -> Self {
        Self::no_resources("no thread could be started", error)
    }

    /// The system refuses what every run needs.
    pub(super) fn no_resources(what: &str, error: &io::Error) -> Self {
        let has_memory_limit =
            || getrlimit(Resource::RLIMIT_AS).is_ok_and(|(limit, _)| limit != RLIM_INFINITY);
        if let Some(advice) = limit_to_raise(error) {
            return Self::of(UsageErrorKind::Temporary, format!("{what}: {error}; {advice}"));
        }
        let (cause, advice) = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM | Errno::EACCES | Errno::ENOSYS) => (
                UsageErrorKind::Internal,
                "the container forbids that system call: use a newer container runtime, or another \
                 seccomp profile",
            ),
            Some(Errno::EAGAIN | Errno::ENOMEM) if has_memory_limit() => (
                UsageErrorKind::Temporary,
                "raise the limit of memory (ulimit -v) or of processes (ulimit -u)",
            ),
            Some(Errno::EAGAIN | Errno::ENOMEM) => (
                UsageErrorKind::Temporary,
                "try again when fewer processes run, or raise the limit (ulimit -u, TasksMax= of a \
                 service, the pids limit of a container)",
            ),
            _ => (UsageErrorKind::Internal, "outlast doctor checks this machine"),
        };
        Self::of(cause, format!("{what}: {error}; {advice}"))
    }

    /// Standard output could not be written.
    pub(super) fn unwritable(error: &io::Error) -> Self {
        let what = format!("standard output cannot be written: {error}");
        Self::of(UsageErrorKind::Unwritable, what)
    }

    /// A signal that came before the run began.
    pub(super) fn interrupted(interrupt: Interrupt) -> Self {
        let what = format!("{} before the run began", interrupt.cause());
        Self::of(UsageErrorKind::Interrupted(interrupt), what)
    }

    /// All mistakes in the input as one error; `None` if there are none.
    pub(super) fn all(mistakes: &[String]) -> Option<Self> {
        let (first, others) = mistakes.split_first()?;
        let others = others.iter().map(|line| words_joined(line)).collect();
        Some(Self { others, ..Self::new(first) })
    }

    /// Each mistake by itself, the first one first.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        [&self.message].into_iter().chain(&self.others).map(String::as_str)
    }

    /// Returns the exit status of the process.
    pub fn verdict(&self) -> ExitStatus {
        ExitStatus::failure(match self.cause {
            UsageErrorKind::Usage | UsageErrorKind::NotResumable => exit_code::USAGE,
            UsageErrorKind::Credentials => exit_code::CREDENTIALS,
            UsageErrorKind::Busy | UsageErrorKind::Temporary => exit_code::TEMPORARY,
            UsageErrorKind::Interrupted(interrupt) => interrupt.exit_code(),
            UsageErrorKind::Late => exit_code::DEADLINE,
            UsageErrorKind::McpUnavailable
            | UsageErrorKind::RehearsalFailed
            | UsageErrorKind::Unwritable
            | UsageErrorKind::Internal => exit_code::FAILED,
        })
    }

    /// Returns the `terminal_reason` of the result, if one of a run's reasons fits.
    pub(super) fn reason(&self) -> Option<&'static str> {
        if let UsageErrorKind::McpUnavailable = self.cause {
            Some("mcp_unavailable")
        } else if let UsageErrorKind::RehearsalFailed = self.cause {
            Some(StopReason::RehearsalFailed.name())
        } else {
            matches!(self.cause, UsageErrorKind::Late).then_some(StopReason::Deadline.name())
        }
    }

    /// The error class in the result object, if the error has one.
    pub(super) fn class(&self) -> Option<ErrorClass> {
        let is_about_credential = matches!(self.cause, UsageErrorKind::Credentials);
        is_about_credential.then_some(ErrorClass::InvalidApiKey)
    }
}

impl From<ConfigError> for UsageError {
    fn from(error: ConfigError) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.others.len() {
            0 => Ok(()),
            more => write!(f, " (and {more} more: outlast doctor lists them)"),
        }
    }
}

impl std::error::Error for UsageError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_resources_is_temporary() {
        for (errno, code, advice) in [
            (Errno::EMFILE, exit_code::TEMPORARY, "ulimit -n"),
            (Errno::ENFILE, exit_code::TEMPORARY, "sysctl fs.file-max"),
            (Errno::EAGAIN, exit_code::TEMPORARY, "ulimit -u"),
            (Errno::ENOMEM, exit_code::TEMPORARY, "ulimit -u"),
            (Errno::EPERM, exit_code::FAILED, "seccomp"),
            (Errno::EINVAL, exit_code::FAILED, "outlast doctor"),
        ] {
            let error = UsageError::no_thread(&errno.into());
            assert_eq!(error.verdict().exit_code(), code, "{errno}");
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
