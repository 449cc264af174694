//! Waits for the journal: an effect follows the records that must not be missing after it.

use std::time::Duration;

use tokio::time::Instant;

use super::run_event::WaitingFor;
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::world::RunWorld;

/// Time limit of a wait for the disk. A disk that takes longer does not answer: the run goes on,
/// and the journal counts as lost until it does.
pub(super) const ANSWER_MAX: Duration = Duration::from_mins(1);

/// Time after which a run that was cut off no longer waits for the disk: the whole run has two
/// seconds to end.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(1);

/// The least time for the disk after a cut, for steps of the end that come later.
const ANSWER_MIN: Duration = Duration::from_millis(100);

/// A wait for the disk is not reported before it has taken this time.
const SILENT_MAX: Duration = Duration::from_secs(1);

/// Time limit for closing the file at the end of a run.
const CLOSE_MAX: Duration = Duration::from_secs(2);

impl RunWorld<'_> {
    /// Waits until the journal has stored everything so far, and reports its health.
    ///
    /// # Errors
    /// The run was cut off meanwhile.
    pub(super) async fn await_journal(&mut self) -> Result<(), CancelReason> {
        if self.journal.is_flushed() {
            return Ok(());
        }
        let path = self.journal.path().to_owned();
        let progress = self.caller.turn_progress();
        let mut timer = self.monitor.begin_short(SILENT_MAX);
        let heartbeat = |monitor: &RunMonitor<'_>, timer: &WaitTimer| {
            let waiting_for = WaitingFor::Journal { path: path.display().to_string() };
            Some(monitor.heartbeat(timer, waiting_for, progress))
        };
        let stored = self.journal.flush(ANSWER_MAX);
        let waited = self.monitor.wait_for(&mut timer, heartbeat, stored).await;
        self.monitor.report_journal_health(self.journal.health());
        waited
    }

    /// Waits like [`Self::await_journal`] at the end of a run, for a short time if it was cut off.
    pub(super) async fn settle_journal(&mut self) {
        if self.await_journal().await.is_err() {
            self.journal.flush(self.late_limit(LATE_ANSWER_MAX)).await;
            self.monitor.report_journal_health(self.journal.health());
        }
    }

    /// Closes the journal, after which another run may continue the session.
    pub(super) async fn close_journal(&mut self) {
        self.journal.close(self.late_limit(CLOSE_MAX)).await;
    }

    /// Returns the time that is left for the disk: `whole`, counted from the time at which the run
    /// was cut off, if it was.
    fn late_limit(&self, whole: Duration) -> Duration {
        let Some((since, _)) = self.monitor.cut() else { return whole };
        (since + whole.min(LATE_ANSWER_MAX))
            .saturating_duration_since(Instant::now())
            .max(ANSWER_MIN)
    }
}
