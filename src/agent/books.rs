//! What the run has cost and done so far.

use serde_json::Value;

use crate::model::cost;
use crate::recovery::{Ledger, Money, Reservation};
use crate::transcript::Usage;

use super::setup::{Denial, ModelTally, Rung, Tally};

/// The ledger, the sums, and what is reserved for the call at hand.
pub(super) struct Books {
    pub(super) ledger: Ledger,
    pub(super) tally: Tally,
    /// `--budget-mode after`: stop once this much is spent, without reserving.
    stop_after: Option<Money>,
    reserved: Option<Reservation>,
}

impl Books {
    pub(super) fn new(ledger: Ledger, stop_after: Option<Money>, tally: Tally) -> Self {
        Self { ledger, tally, stop_after, reserved: None }
    }

    /// What the next call may cost at most; `None` when there is no ceiling.
    pub(super) fn left(&self) -> Option<Money> {
        match self.stop_after {
            Some(limit) if self.ledger.spent() >= limit => Some(Money::ZERO),
            Some(_) => None,
            None => self.ledger.left(),
        }
    }

    pub(super) fn ceiling(&self) -> Option<Money> {
        self.stop_after.or(self.ledger.ceiling())
    }

    /// Sets the worst case of a call aside. `false` when it does not fit.
    pub(super) fn reserve(&mut self, worst: Money) -> bool {
        self.reserved = self.ledger.reserve(worst);
        self.reserved.is_some()
    }

    /// The call was answered: what it cost is known.
    pub(super) fn settle(&mut self, rung: &Rung, fast: bool, usage: Usage) -> Money {
        let model = &rung.facts;
        let spent = model.prices_at(fast).map_or(Money::ZERO, |prices| cost(&prices, &usage));
        if let Some(reservation) = self.reserved.take() {
            self.ledger.settle(reservation, spent);
        }
        self.tally.usage += usage;
        self.tally.recovery.bill(spent, usage.input() + usage.output_tokens);
        let by_model = &mut self.tally.by_model;
        let line = by_model.iter().position(|line| line.model == rung.label).unwrap_or_else(|| {
            by_model.push(ModelTally {
                model: rung.label.clone(),
                usage: Usage::default(),
                cost: Money::ZERO,
                context_window: model.context_window,
                max_output: model.max_output,
            });
            by_model.len() - 1
        });
        by_model[line].usage += usage;
        by_model[line].cost += spent;
        spent
    }

    /// The service said no before it did any work: the call cost nothing.
    pub(super) fn release(&mut self) {
        if let Some(reservation) = self.reserved.take() {
            self.ledger.settle(reservation, Money::ZERO);
        }
    }

    /// Nobody knows whether the call was billed: it stays charged in full. Returns how much.
    pub(super) fn forfeit(&mut self) -> Money {
        let before = self.ledger.spent();
        if let Some(reservation) = self.reserved.take() {
            self.ledger.forfeit(reservation);
        }
        let lost = self.ledger.spent().minus(before);
        self.tally.recovery.bill(lost, 0);
        lost
    }

    pub(super) fn count_denial(&mut self, tool_name: &str, tool_use_id: &str, input: &Value) {
        self.tally.tools.denied += 1;
        self.tally.denials.push(Denial {
            tool_name: tool_name.to_owned(),
            tool_use_id: tool_use_id.to_owned(),
            tool_input: input.clone(),
        });
    }
}
