//! Waits for the journal: an effect follows the records that must not be missing after it.

use std::time::Duration;

use tokio::time::Instant;

use crate::journal::JournalHealth;
use crate::recovery::Interrupt;

use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::waiting_for::WaitingFor;
use super::world::RunWorld;

/// Time limit of a wait for the disk. A disk that takes longer does not answer: the run goes on,
/// and the journal counts as lost until it does.
pub(super) const ANSWER_MAX: Duration = Duration::from_mins(1);

/// Time after an interrupt at which a run no longer waits for the disk: the run has three seconds
/// to end, and the process four.
const INTERRUPTED_ANSWER_MAX: Duration = Duration::from_millis(2_500);

/// Time after the deadline or a denial at which a run no longer waits for the disk: the whole run
/// has two seconds to end.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(1);

/// The least time for the disk after a cut, where earlier steps of the end, such as a cancelled
/// tool, have used up the rest: enough for a slow sync of a healthy disk, and little enough for a
/// run whose tool took all of its time to end in time all the same.
const ANSWER_MIN: Duration = Duration::from_millis(400);

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
            // The sync that failed may be one that nothing waited for.
            self.monitor.report_journal_health(self.journal.health());
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

    /// Waits like [`Self::await_journal`] before an effect, which must not happen once another
    /// process has taken the session over.
    ///
    /// # Errors
    /// The run was cut off meanwhile, or the session taken over.
    pub(super) async fn await_journal_for_effect(&mut self) -> Result<(), CancelReason> {
        self.await_journal().await?;
        self.check_ownership()
    }

    /// Checks that no other process is known to have taken the session over.
    ///
    /// # Errors
    /// The interrupt that this is for the run.
    pub(super) fn check_ownership(&self) -> Result<(), CancelReason> {
        if matches!(self.journal.health(), JournalHealth::TakenOver(_)) {
            return Err(CancelReason::Interrupt(Interrupt::SessionTakenOver));
        }
        Ok(())
    }

    /// Waits like [`Self::await_journal`] at the end of a run, for a short time if it was cut off.
    pub(super) async fn settle_journal(&mut self) {
        if self.await_journal().await.is_err() {
            self.journal.flush(self.late_limit(ANSWER_MAX)).await;
            self.monitor.report_journal_health(self.journal.health());
        }
    }

    /// Closes the journal, after which another run may continue the session.
    pub(super) async fn close_journal(&mut self) {
        self.journal.close(self.late_limit(CLOSE_MAX)).await;
    }

    /// Returns the time that is left for the disk: `whole`, or after a cut what is left of the time
    /// that this kind of cut leaves, counted from the cut, but at least [`ANSWER_MIN`].
    fn late_limit(&self, whole: Duration) -> Duration {
        let Some((since, cut)) = self.monitor.cut() else { return whole };
        let most = match cut {
            CancelReason::Interrupt(_) => INTERRUPTED_ANSWER_MAX,
            CancelReason::Deadline | CancelReason::Denial => LATE_ANSWER_MAX,
        };
        (since + most.min(whole)).saturating_duration_since(Instant::now()).max(ANSWER_MIN)
    }
}
