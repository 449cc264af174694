//! Startup steps before a run: each has a name, a time limit and progress messages.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::process::file_reads;

use super::output::{PipeSender, one_line};
use super::panics;
use super::signals::SignalState;
use super::timestamps::{format_duration, format_elapsed};
use super::usage::{UsageError, UsageErrorKind};

/// How long a step may take: a file that is read may be a pipe without a writer.
const LONGEST: Duration = Duration::from_secs(20);

/// A step that takes longer than this is reported. In real time even in a rehearsal, whose scaled
/// time makes no disk faster.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// Runs the startup steps.
pub(super) struct StartupSteps<'a> {
    signals: &'a SignalState,
    /// Standard error.
    stderr: &'a PipeSender,
    limit: Duration,
}

impl<'a> StartupSteps<'a> {
    /// `all` is how long the whole run may take.
    pub(super) fn new(
        signals: &'a SignalState,
        stderr: &'a PipeSender,
        all: Option<Duration>,
    ) -> Self {
        let shortest = Duration::from_secs(1);
        let limit = all.map_or(LONGEST, |all| all.clamp(shortest, LONGEST));
        Self { signals, stderr, limit }
    }

    /// Runs a step on its own thread, which is abandoned at the time limit.
    ///
    /// # Errors
    /// Its own, an interrupt, or that it took too long, and over which file.
    pub(super) async fn step<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, UsageError> + Send + 'static,
    ) -> Result<T, UsageError> {
        let began = Instant::now();
        let mut working = tokio::task::spawn_blocking(work);
        let mut beat = began + REPORT_AFTER;
        loop {
            tokio::select! {
                biased;
                interrupt = self.signals.first() => return Err(UsageError::interrupted(interrupt)),
                done = &mut working => return done.unwrap_or_else(|_| Err(broken())),
                () = sleep_until(began + self.limit) => return Err(self.too_long(name)),
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

    fn too_long(&self, name: &str) -> UsageError {
        let limit = format_duration(self.limit);
        UsageError::new(match file_reads::oldest_pending_read() {
            Some(path) => format!(
                "{name} took longer than {limit}: {} could not be read; see whether it is a pipe \
                 without a writer, or on a disk that hangs",
                path.display()
            ),
            None => format!(
                "{name} took longer than {limit}; see whether a file that it needs is a pipe that \
                 no process writes to, or on a disk that hangs"
            ),
        })
    }
}

fn broken() -> UsageError {
    UsageError::of(
        UsageErrorKind::Internal,
        format!("outlast itself broke: {}", panics::last_message()),
    )
}
