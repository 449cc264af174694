//! Turns for reserving, where several agents share one budget.

use crate::recovery::{CallPurpose, Event};

use super::run_event::WaitingFor;
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::session::Session;

impl Session<'_> {
    /// Estimates the next request. Where several agents share one budget, most of what others have
    /// reserved for running calls comes back: this waits for it rather than end the run or ask for
    /// a shorter answer.
    pub(super) async fn estimate_in_turn(&mut self, purpose: CallPurpose, fast: bool) -> Event {
        if !self.accounting.is_bounded() {
            return Event::Estimated(self.estimate_request(purpose, fast));
        }
        let mut vigil = self.watch.begin();
        loop {
            let mut settled = self.accounting.ledger.settlements();
            if let Err(cut) = self.take_turn(&mut vigil).await {
                return cut.into();
            }
            let weight = self.estimate_request(purpose, fast);
            let cap = self.limits.caps.first.min(weight.ceiling);
            let most = weight.input + weight.token * u64::from(cap);
            let fits = weight.left.is_none_or(|left| most <= left);
            if fits || !self.accounting.ledger.has_reservations() {
                return Event::Estimated(weight);
            }
            self.accounting.turn = None;
            if let Err(cut) = self.until(settled.changed(), &mut vigil).await {
                return cut.into();
            }
        }
    }

    async fn take_turn(&mut self, vigil: &mut WaitTimer) -> Result<(), CancelReason> {
        if self.accounting.turn.is_none() {
            let purse = self.accounting.ledger.clone();
            self.accounting.turn = Some(self.until(purse.turn(), vigil).await?);
        }
        Ok(())
    }

    /// Waits for other agents' calls.
    async fn until<T>(
        &mut self,
        other: impl Future<Output = T>,
        vigil: &mut WaitTimer,
    ) -> Result<T, CancelReason> {
        let figures = self.progress();
        let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
            watch.emit_heartbeat(vigil, WaitingFor::Money, figures, None);
        };
        self.watch.wait_for(vigil, show, other).await
    }
}
