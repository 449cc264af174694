//! Shutdown of running work when the run is cut off.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::run_event::WaitingFor;
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::world::RunWorld;

/// Time for a cancelled tool to end: two seconds of grace before it is killed, and a moment to
/// notice.
pub(super) const CANCEL_GRACE: Duration = Duration::from_millis(2_500);

/// The same after the deadline or a denial: the whole run has two seconds to end.
pub(super) const LATE_CANCEL_GRACE: Duration = Duration::from_millis(1_200);

/// How long cancelled work may take to end.
pub(super) fn cancel_grace(cut: CancelReason) -> Duration {
    match cut {
        CancelReason::Interrupt(_) => CANCEL_GRACE,
        CancelReason::Deadline | CancelReason::Denial => LATE_CANCEL_GRACE,
    }
}

impl RunWorld<'_> {
    /// Waits for work that ends by itself once it is cancelled, which it is when the run is cut
    /// off. Work that takes too long is ended by dropping it.
    pub(super) async fn run_cancellable<T>(
        &mut self,
        waiting_for: WaitingFor,
        cancel: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> Result<T, CancelReason> {
        tokio::pin!(work);
        let mut vigil = self.monitor.begin();
        let figures = self.caller.turn_progress();
        let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
            watch.emit_heartbeat(vigil, waiting_for.clone(), figures, None);
        };
        let cut = match self.monitor.wait_for(&mut vigil, show, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(cut) => cut,
        };
        cancel.cancel();
        self.start_shutdown(cut);
        let _ = tokio::time::timeout(cancel_grace(cut), work).await;
        Err(cut)
    }
}
