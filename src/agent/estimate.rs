//! Estimates requests, in turn where several agents share one budget.

use std::time::Duration;

use tokio::time::timeout;

use crate::recovery::{
    CallPurpose, Event, FailureStage, Fault, FaultKind, Money, Timer, TokenEstimate,
};

use super::ask::summary_content;
use super::waiting_for::WaitingFor;
use super::world::RunWorld;

/// The time limit of a token count.
const COUNT_LIMIT: Duration = Duration::from_secs(20);

/// Returns true if the budget does not even allow the output of a request, whatever its input is.
fn exceeds_budget(estimate: TokenEstimate, floor: u32) -> bool {
    TokenEstimate { input: Money::ZERO, ..estimate }.shortfall(floor).is_some()
}

impl RunWorld<'_> {
    /// Estimates the next request. The service counts the tokens of one that would be refused for
    /// its size or its cost, if it can: the bound of one token per byte is usually far too high.
    ///
    /// # Errors
    /// The event that comes instead: the run was cut off, or the count failed for now and nothing
    /// else shows that the budget allows the request.
    async fn estimate(&mut self, purpose: CallPurpose, fast: bool) -> Result<TokenEstimate, Event> {
        let estimate = self.context_view().estimate_request(purpose, fast);
        // No count helps if no money is left.
        let is_spent = estimate.left == Some(Money::ZERO);
        if is_spent || !estimate.needs_count(self.limits.caps.floor) {
            return Ok(estimate);
        }
        let (endpoint, fixed) = (self.caller.endpoint().clone(), self.caller.fixed());
        let summary =
            (purpose != CallPurpose::Reply).then(|| self.context_view().summary_messages());
        let model = endpoint.facts.name.as_str();
        let content = match &summary {
            Some(messages) => summary_content(model, messages),
            None => fixed.content(model, self.conversation.messages(), self.caller.reasoning()),
        };
        let counting = async {
            let counted = timeout(COUNT_LIMIT, endpoint.client.count_tokens(&content)).await;
            let late = FaultKind::Timeout { timer: Timer::Whole };
            counted
                .unwrap_or_else(|_| Err(Box::new(Fault::new(late, FailureStage::FreshConnection))))
        };
        let progress = self.caller.progress();
        let waiting_for = WaitingFor::Model(endpoint.label.clone());
        let floor = self.limits.caps.floor;
        match self.monitor.wait_as(waiting_for, progress, counting).await? {
            Ok(Some(tokens)) => self.context_view().record_count(purpose, tokens),
            Err(fault)
                if estimate.shortfall(floor).is_some() && !exceeds_budget(estimate, floor) =>
            {
                let fault = self.caller.classified(*fault);
                return Err(Event::Failed(self.caller.keep_fault(fault, self.monitor.clock())));
            }
            Ok(None) | Err(_) => return Ok(estimate),
        }
        Ok(self.context_view().estimate_request(purpose, fast))
    }

    /// Estimates the next request. Where several agents share one budget, most of the amount that
    /// others have reserved for running calls comes back: this waits for it rather than end the run
    /// or ask for a shorter answer.
    ///
    /// # Errors
    /// Those of [`Self::estimate`].
    pub(super) async fn estimate_in_turn(
        &mut self,
        purpose: CallPurpose,
        fast: bool,
    ) -> Result<TokenEstimate, Event> {
        if !self.caller.accounting.is_bounded() {
            return self.estimate(purpose, fast).await;
        }
        let mut timer = self.monitor.begin();
        loop {
            let mut settled = self.caller.accounting.ledger().settlements();
            self.caller.take_turn(&mut timer, &mut self.monitor).await?;
            let estimate = self.estimate(purpose, fast).await?;
            let cap = self.limits.caps.first.min(estimate.ceiling);
            let most = estimate.input + estimate.token * u64::from(cap);
            let fits = estimate.left.is_none_or(|left| most <= left);
            if fits || !self.caller.accounting.ledger().has_reservations() {
                return Ok(estimate);
            }
            self.caller.accounting.release_turn();
            // A closed channel counts as a settlement.
            let _ = self.caller.until(settled.changed(), &mut timer, &mut self.monitor).await?;
        }
    }
}
