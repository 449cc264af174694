//! What comes before a run: each step has a name, a bound and a sign of life.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::process::file_reads;

use super::output::{PipeSender, one_line};
use super::panics;
use super::run::interrupted;
use super::signals::SignalState;
use super::usage::{UsageError, UsageErrorKind};
use super::wall::{passed, span};

/// How long a step may take: a file that is read may be a pipe without a writer.
const LONGEST: Duration = Duration::from_secs(20);

/// After this time without a word, the step that takes so long is named. A rehearsal makes no
/// disk faster, so it is the world's time.
const QUIET: Duration = Duration::from_secs(10);

/// How steps are taken.
pub(super) struct StartupSteps<'a> {
    signals: &'a SignalState,
    /// Standard error.
    voice: &'a PipeSender,
    limit: Duration,
}

impl<'a> StartupSteps<'a> {
    /// `all` is how long the whole run may take.
    pub(super) fn new(
        signals: &'a SignalState,
        voice: &'a PipeSender,
        all: Option<Duration>,
    ) -> Self {
        let shortest = Duration::from_secs(1);
        let limit = all.map_or(LONGEST, |all| all.clamp(shortest, LONGEST));
        Self { signals, voice, limit }
    }

    /// Takes a step on a thread of its own, which is left behind when patience ends.
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
        let mut beat = began + QUIET;
        loop {
            tokio::select! {
                biased;
                interrupt = self.signals.first() => return Err(interrupted(interrupt)),
                done = &mut working => return done.unwrap_or_else(|_| Err(broken())),
                () = sleep_until(began + self.limit) => return Err(self.too_long(name)),
                () = sleep_until(beat) => {
                    self.still_at(name, began);
                    beat += QUIET;
                }
            }
        }
    }

    fn still_at(&self, name: &str, began: Instant) {
        let file = file_reads::oldest_pending_read()
            .map_or_else(String::new, |path| format!(" (reading {})", path.display()));
        let line = format!(
            "still {name}{file}, {} so far, {} left",
            passed(began.elapsed()),
            span(self.limit.saturating_sub(began.elapsed()))
        );
        self.voice.offer(&format!("outlast: {}", one_line(&line)));
    }

    fn too_long(&self, name: &str) -> UsageError {
        let limit = span(self.limit);
        UsageError::new(match file_reads::oldest_pending_read() {
            Some(path) => format!(
                "{name} took longer than {limit}: {} could not be read; see whether it is a pipe \
                 without a writer, or on a disk that hangs",
                path.display()
            ),
            None => format!(
                "{name} took longer than {limit}; see whether a file that it needs is a pipe that \
                 nobody writes to, or on a disk that hangs"
            ),
        })
    }
}

fn broken() -> UsageError {
    UsageError::of(UsageErrorKind::Internal, format!("outlast itself broke: {}", panics::last()))
}
