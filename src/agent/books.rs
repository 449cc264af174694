//! What the run has cost and done so far.

use crate::model::cost;
use crate::recovery::{Money, Reservation};
use crate::transcript::{ToolCall, Usage};

use super::purse::{Purse, Turn, bill};
use super::setup::{Denial, Rung, Tally};

/// The purse, the sums, and what is reserved for the call at hand.
pub(super) struct Books {
    /// Shared with sub-agents, and by them.
    pub(super) purse: Purse,
    pub(super) tally: Tally,
    /// Held from the weighing of a call until its reservation.
    pub(super) turn: Option<Turn>,
    /// Whose they are. `None`: the run's own.
    agent: Option<String>,
    /// `--budget-mode after`: stop once this much is spent, without reserving.
    stop_after: Option<Money>,
    reserved: Option<Reservation>,
}

impl Books {
    pub(super) fn new(
        purse: Purse,
        agent: Option<String>,
        after: Option<Money>,
        tally: Tally,
    ) -> Self {
        Self { purse, tally, turn: None, agent, stop_after: after, reserved: None }
    }

    /// Whether the next call has to wait for its turn to reserve.
    pub(super) fn is_bounded(&self) -> bool {
        self.stop_after.is_none() && self.purse.ledger().ceiling().is_some()
    }

    pub(super) fn stop_after(&self) -> Option<Money> {
        self.stop_after
    }

    /// What the next call may cost at most; `None` when there is no ceiling.
    pub(super) fn left(&self) -> Option<Money> {
        match self.stop_after {
            Some(limit) if self.purse.ledger().spent() >= limit => Some(Money::ZERO),
            Some(_) => None,
            None => self.purse.ledger().left(),
        }
    }

    pub(super) fn ceiling(&self) -> Option<Money> {
        self.stop_after.or(self.purse.ledger().ceiling())
    }

    /// Sets the worst case of a call aside. `false` when it does not fit.
    pub(super) fn reserve(&mut self, worst: Money) -> bool {
        self.reserved = self.purse.reserve(worst);
        self.turn = None;
        self.reserved.is_some()
    }

    /// The call was answered: what it cost is known.
    pub(super) fn settle(&mut self, rung: &Rung, fast: bool, usage: Usage) -> Money {
        let model = &rung.facts;
        let spent = model.prices_at(fast).map_or(Money::ZERO, |prices| cost(&prices, &usage));
        if let Some(reservation) = self.reserved.take() {
            self.purse.settle(reservation, spent);
        }
        self.tally.usage += usage;
        self.tally.recovery.bill(spent, usage.input() + usage.output_tokens);
        bill(&mut self.tally.by_model, rung, usage, spent);
        if let Some(agent) = &self.agent {
            self.purse.bill_agent(agent, rung, usage, spent);
        }
        spent
    }

    /// The service said no before it did any work: the call cost nothing.
    pub(super) fn release(&mut self) {
        if let Some(reservation) = self.reserved.take() {
            self.purse.settle(reservation, Money::ZERO);
        }
    }

    /// Nobody knows whether the call was billed: it stays charged in full. Returns how much.
    pub(super) fn forfeit(&mut self) -> Money {
        let Some(reservation) = self.reserved.take() else { return Money::ZERO };
        let lost = reservation.amount();
        self.purse.forfeit(reservation);
        if let Some(agent) = &self.agent {
            self.purse.charge_agent(agent, lost);
        }
        self.tally.recovery.bill(lost, 0);
        lost
    }

    pub(super) fn count_denial(&mut self, call: &ToolCall, reason: &str) {
        self.tally.tools.denied += 1;
        self.tally.denials.push(Denial {
            tool_name: call.name.clone(),
            tool_use_id: call.id.clone(),
            tool_input: call.input.clone(),
            reason: reason.to_owned(),
        });
    }
}

impl Drop for Books {
    /// Whoever is cut off in the middle of a call does not know whether it was billed.
    fn drop(&mut self) {
        self.forfeit();
    }
}
