//! Startup steps before a run: each has a name, a time limit and progress messages.

use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::process::{file_reads, last_panic};
use crate::recovery::Interrupt;

use super::output::{PipeSender, one_line};
use super::signals::SignalState;
use super::timestamps::{format_duration, format_elapsed};
use super::usage::{UsageError, UsageErrorKind};

/// Time limit of a step: a file that is read may be a pipe without a writer.
const LONGEST: Duration = Duration::from_secs(20);

/// Time limit for reading the metadata of the file that a step reads.
const METADATA_MAX: Duration = Duration::from_millis(500);

/// The time after which a step is reported. It is real time even in a rehearsal, since scaled time
/// does not make disks faster.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// Runs the startup steps.
pub(super) struct StartupSteps<'a> {
    signals: &'a SignalState,
    /// Standard error.
    stderr: &'a PipeSender,
    limit: Duration,
    /// True if `limit` is the time limit of the whole run.
    is_deadline: bool,
}

impl<'a> StartupSteps<'a> {
    /// Creates the steps of a run whose time limit is `all`.
    pub(super) fn new(
        signals: &'a SignalState,
        stderr: &'a PipeSender,
        all: Option<Duration>,
    ) -> Self {
        let shortest = Duration::from_secs(1);
        let limit = all.map_or(LONGEST, |all| all.clamp(shortest, LONGEST));
        Self { signals, stderr, limit, is_deadline: limit < LONGEST }
    }

    /// Runs a step on its own thread, which is abandoned at the time limit. An interrupt of a host
    /// does not end the step, so that the session exists and records its prompt.
    ///
    /// # Errors
    /// An error of the step, an interrupt, or the time limit, with the file that was being read.
    pub(super) async fn step<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, UsageError> + Send + 'static,
    ) -> Result<T, UsageError> {
        Box::pin(self.step_until(self.signals.first_of_process(), name, work)).await
    }

    /// Like [`Self::step`], for the removal of older results: an interrupt ends the next step. It
    /// leads to a result, which a removal that goes on would remove.
    ///
    /// # Errors
    /// An error of the step, or the time limit.
    pub(super) async fn uninterrupted_step<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, UsageError> + Send + 'static,
    ) -> Result<T, UsageError> {
        Box::pin(self.step_until(std::future::pending(), name, work)).await
    }

    async fn step_until<T: Send + 'static>(
        &self,
        interrupt: impl Future<Output = Interrupt>,
        name: &str,
        work: impl FnOnce() -> Result<T, UsageError> + Send + 'static,
    ) -> Result<T, UsageError> {
        let mut interrupt = pin!(interrupt);
        let began = Instant::now();
        let mut working = tokio::task::spawn_blocking(work);
        let mut beat = began + REPORT_AFTER;
        loop {
            tokio::select! {
                biased;
                interrupt = &mut interrupt => {
                    return Err(UsageError::interrupted(interrupt));
                }
                done = &mut working => return done.unwrap_or_else(|_panic| {
                    let what = format!("outlast has a defect: {}", last_panic());
                    Err(UsageError::of(UsageErrorKind::Internal, what))
                }),
                () = sleep_until(began + self.limit) => {
                    return Err(too_long(name, self.limit, self.is_deadline).await);
                }
                () = sleep_until(beat) => {
                    self.report_slow_step(name, began);
                    beat += REPORT_AFTER;
                }
            }
        }
    }

    fn report_slow_step(&self, name: &str, began: Instant) {
        let file = file_reads::oldest_pending_read()
            .map_or_else(String::new, |path| format!(" (reading {})", path.display()));
        let line = format!(
            "still {name}{file}, {} so far, {} left",
            format_elapsed(began.elapsed()),
            format_duration(self.limit.saturating_sub(began.elapsed()))
        );
        self.stderr.offer(&format!("outlast: {}", one_line(&line)));
    }
}

/// The error of a step that took too long. A pipe without a writer is a mistake of the user. Any
/// other cause is temporary: the machine or a disk is slow, and the step may succeed later.
async fn too_long(name: &str, limit: Duration, is_deadline: bool) -> UsageError {
    let slow = if is_deadline { UsageErrorKind::Late } else { UsageErrorKind::Temporary };
    let (kind, cause) = match file_reads::oldest_pending_read() {
        Some(path) if is_pipe(path.clone()).await => (
            UsageErrorKind::Usage,
            format!("{} could not be read: it is a pipe without a writer", path.display()),
        ),
        Some(path) => {
            (slow, format!("{} was being read; see whether its disk hangs", path.display()))
        }
        None => (slow, "the machine or a disk is too slow; try again later".to_owned()),
    };
    let limit = format_duration(limit);
    UsageError::of(kind, format!("{name} took longer than {limit}: {cause}"))
}

/// Returns true if a path is known to lead to a pipe. The metadata of a hanging disk is unknown.
async fn is_pipe(path: PathBuf) -> bool {
    let facts = tokio::task::spawn_blocking(move || std::fs::metadata(path));
    let facts = tokio::time::timeout(METADATA_MAX, facts).await;
    facts.is_ok_and(|facts| matches!(facts, Ok(Ok(facts)) if facts.file_type().is_fifo()))
}

#[cfg(test)]
mod tests {
    use crate::types::exit_code;

    use super::*;

    #[tokio::test]
    async fn a_slow_start_is_not_a_mistake_of_the_user() {
        for (is_deadline, code) in [(false, exit_code::TEMPORARY), (true, exit_code::DEADLINE)] {
            let error = too_long("opening the session", LONGEST, is_deadline).await;
            assert_eq!(error.verdict().exit_code(), code, "{error}");
            assert!(error.to_string().starts_with("opening the session took longer than"));
        }
    }
}
