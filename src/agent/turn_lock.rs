//! Turns for reserving, where several agents share one budget.

use crate::recovery::{CallPurpose, Event};

use super::model_caller::ModelCaller;
use super::run_event::WaitingFor;
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::world::RunWorld;

impl ModelCaller {
    pub(super) async fn take_turn(
        &mut self,
        timer: &mut WaitTimer,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<(), CancelReason> {
        if self.accounting.turn.is_none() {
            let ledger = self.accounting.ledger.clone();
            self.accounting.turn = Some(self.until(ledger.turn(), timer, monitor).await?);
        }
        Ok(())
    }

    /// Waits for other agents' calls.
    pub(super) async fn until<T>(
        &mut self,
        other: impl Future<Output = T>,
        timer: &mut WaitTimer,
        monitor: &mut RunMonitor<'_>,
    ) -> Result<T, CancelReason> {
        let progress = self.progress();
        let show = |monitor: &mut RunMonitor<'_>, timer: &WaitTimer| {
            monitor.emit_heartbeat(timer, WaitingFor::Money, progress, None);
        };
        monitor.wait_for(timer, show, other).await
    }
}

impl RunWorld<'_> {
    /// Estimates the next request. Where several agents share one budget, most of what others have
    /// reserved for running calls comes back: this waits for it rather than end the run or ask for
    /// a shorter answer.
    pub(super) async fn estimate_in_turn(&mut self, purpose: CallPurpose, fast: bool) -> Event {
        if !self.caller.accounting.is_bounded() {
            return Event::Estimated(self.context_view().estimate_request(purpose, fast));
        }
        let mut timer = self.monitor.begin();
        loop {
            let mut settled = self.caller.accounting.ledger.settlements();
            if let Err(cut) = self.caller.take_turn(&mut timer, &mut self.monitor).await {
                return cut.into();
            }
            let weight = self.context_view().estimate_request(purpose, fast);
            let cap = self.limits.caps.first.min(weight.ceiling);
            let most = weight.input + weight.token * u64::from(cap);
            let fits = weight.left.is_none_or(|left| most <= left);
            if fits || !self.caller.accounting.ledger.has_reservations() {
                return Event::Estimated(weight);
            }
            self.caller.accounting.turn = None;
            if let Err(cut) =
                self.caller.until(settled.changed(), &mut timer, &mut self.monitor).await
            {
                return cut.into();
            }
        }
    }
}
