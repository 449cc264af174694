//! `--require`: the command that must pass before a run is a success.
//!
//! The command comes from the user, so no permission rule applies to it. It runs in the original
//! working directory, even if the model's shell has changed to another one, and otherwise like any
//! command of the model.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::HumanBytes;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::secrets::Redactor;
use crate::text::last_lines;

use super::command::{CommandEnd, EndedCommand};
use super::command_settings::{InvalidCommand, check_command};
use super::settings::Requirement;
use super::shell::ShellSession;

/// The limits of the output of a failed check in the result, in lines and in bytes.
const TAIL_LINES_MAX: usize = 20;
const TAIL_BYTES_MAX: usize = 4000;

const CUT_OFF: &str = "was stopped because the run was to end";

/// The result of one run of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequirementCheck {
    pub command: String,
    pub end: RequirementEnd,
    /// Both streams, interleaved as they arrived, cut in the middle if they are long.
    pub output: String,
    /// The file with the whole output, if it is long.
    pub output_file: Option<PathBuf>,
    pub took: Duration,
}

/// The outcome of one run of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequirementEnd {
    Exited(i32),
    /// Killed by a signal that outlast did not send.
    Killed(i32),
    TimedOut(Duration),
    /// It was stopped because it used this many bytes of memory.
    MemoryExceeded(u64),
    /// The run was cancelled.
    Cancelled,
    /// It could not be started, for this reason.
    NotStarted(String),
    /// The exit status is not available.
    Unknown,
}

impl RequirementCheck {
    /// True if the exit code is 0.
    pub fn passed(&self) -> bool {
        self.end == RequirementEnd::Exited(0)
    }

    /// The exit code as a shell reports it; `None` if outlast stopped the command.
    pub fn exit_code(&self) -> Option<i32> {
        if let RequirementEnd::Killed(signal) = self.end {
            return Some(128 + signal);
        }
        if let RequirementEnd::Exited(code) = self.end { Some(code) } else { None }
    }

    /// Describes the end, as a predicate whose subject is the command.
    pub fn end_phrase(&self) -> String {
        match &self.end {
            RequirementEnd::Exited(0) => "passed".to_string(),
            RequirementEnd::Exited(code) => format!("ended with exit code {code}"),
            RequirementEnd::Killed(signal) => {
                let name = Signal::try_from(*signal).map_or("a signal", Signal::as_str);
                format!("was killed by {name}")
            }
            RequirementEnd::TimedOut(limit) => {
                format!(
                    "did not end within {}, and was cut off",
                    humantime::format_duration(*limit)
                )
            }
            RequirementEnd::MemoryExceeded(taken) => {
                let taken = HumanBytes(*taken);
                format!("was stopped when it took {taken}, more than commandMemory allows")
            }
            RequirementEnd::Cancelled => CUT_OFF.to_string(),
            RequirementEnd::NotStarted(why) => format!("could not be run: {why}"),
            RequirementEnd::Unknown => "ended in a way that the system does not tell".to_string(),
        }
    }

    /// Returns the last lines of the output, for users and programs.
    pub fn tail(&self) -> String {
        last_lines(&self.output, TAIL_LINES_MAX, TAIL_BYTES_MAX)
    }

    /// Formats a failed check and its output for the model.
    pub fn report(&self) -> String {
        let output = self.output.trim_end_matches('\n');
        let output = if output.trim().is_empty() { "(no output)" } else { output };
        format!("The command:\n{}\n\nIt {}. Its output:\n{output}", self.command, self.end_phrase())
    }
}

/// The requirement, and the state of its checks.
#[derive(Debug)]
pub(super) struct RequirementState {
    requirement: Requirement,
    verified: Mutex<RequirementReport>,
}

/// The checks of a run, for its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequirementReport {
    pub command: String,
    /// True if the last check passed. `false` if the command did not run.
    pub passed: bool,
    /// The number of times that the command ran.
    pub attempts: u32,
    /// The exit code of the last check.
    pub exit_code: Option<i32>,
    /// The outcome of the last check, as in [`RequirementCheck::end_phrase`].
    #[serde(skip)]
    pub how: Option<String>,
    /// True if the last check was cut off at its time limit.
    #[serde(skip)]
    pub timed_out: bool,
    /// The end of the output of the last check, if it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

impl RequirementReport {
    /// The state of a command of which only this is known.
    pub fn new(command: String, attempts: u32, passed: bool) -> Self {
        Self { command, passed, attempts, exit_code: passed.then_some(0), ..Self::default() }
    }
}

impl RequirementState {
    /// Creates the state before the first check.
    pub(super) fn new(requirement: Requirement) -> Result<Self, InvalidCommand> {
        check_command(&requirement.command)?;
        let report = RequirementReport::new(requirement.command.clone(), 0, false);
        Ok(Self { requirement, verified: Mutex::new(report) })
    }

    pub(super) async fn check(
        &self,
        shell: &ShellSession,
        cwd: &Path,
        redactor: &Redactor,
        cancel: &CancellationToken,
    ) -> RequirementCheck {
        let Requirement { command, timeout } = &self.requirement;
        // If the caller drops this future, the attempt still counts, without a result.
        self.note(|verified| {
            verified.attempts += 1;
            (verified.passed, verified.exit_code) = (false, None);
            (verified.how, verified.timed_out) = (Some(CUT_OFF.to_string()), false);
            verified.output.clear();
        });
        let began = Instant::now();
        let ended = shell.run_for_user(command, cwd, *timeout, cancel).await;
        let (end, output, output_file) = match ended {
            // The whole output is redacted, before its end is cut out: a key may have several
            // lines, and is recognized by its first.
            Ok((ended, captured)) => {
                (end_of(&ended, *timeout), redactor.redact(&captured.text), captured.file)
            }
            Err(_) if cancel.is_cancelled() => (RequirementEnd::Cancelled, String::new(), None),
            Err(why) => (RequirementEnd::NotStarted(why.to_string()), String::new(), None),
        };
        let took = began.elapsed();
        let check = RequirementCheck { command: command.clone(), end, output, output_file, took };
        self.note(|verified| {
            (verified.passed, verified.exit_code) = (check.passed(), check.exit_code());
            verified.how = Some(check.end_phrase());
            verified.timed_out = matches!(check.end, RequirementEnd::TimedOut(_));
            verified.output = if check.passed() { String::new() } else { check.tail() };
        });
        check
    }

    fn note(&self, change: impl FnOnce(&mut RequirementReport)) {
        change(&mut self.verified.lock());
    }

    pub(super) fn verified(&self) -> RequirementReport {
        self.verified.lock().clone()
    }
}

fn end_of(ended: &EndedCommand, limit: Duration) -> RequirementEnd {
    match (ended.cause, ended.status) {
        (CommandEnd::TimedOut, _) => RequirementEnd::TimedOut(limit),
        (CommandEnd::Cancelled, _) => RequirementEnd::Cancelled,
        (CommandEnd::MemoryExceeded(taken), _) => RequirementEnd::MemoryExceeded(taken),
        (CommandEnd::KilledForMemory, _) => RequirementEnd::Killed(Signal::SIGKILL as i32),
        (CommandEnd::Exited, None) => RequirementEnd::Unknown,
        (CommandEnd::Exited, Some(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => RequirementEnd::Exited(code),
            (None, Some(signal)) => RequirementEnd::Killed(signal),
            (None, None) => RequirementEnd::Unknown,
        },
    }
}
