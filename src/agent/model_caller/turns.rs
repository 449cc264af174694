//! Turns for reserving, where several agents share one budget.

use super::super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::super::waiting_for::WaitingFor;
use super::ModelCaller;

impl ModelCaller {
    /// Waits until no other agent is between estimating and reserving.
    pub(in super::super) async fn take_turn(
        &mut self,
        timer: &mut WaitTimer,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<(), CancelReason> {
        if !self.accounting.holds_turn() {
            let ledger = self.accounting.ledger().clone();
            let turn = self.until(ledger.turn(), timer, monitor).await?;
            self.accounting.hold_turn(turn);
        }
        Ok(())
    }

    /// Waits for other agents' calls.
    pub(in super::super) async fn until<T>(
        &mut self,
        other: impl Future<Output = T>,
        timer: &mut WaitTimer,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<T, CancelReason> {
        let progress = self.progress();
        let heartbeat = |monitor: &RunMonitor<'_>, timer: &WaitTimer| {
            Some(monitor.heartbeat(timer, WaitingFor::Money, progress))
        };
        monitor.wait_for(timer, heartbeat, other).await
    }
}
