//! What the run has cost and done so far.

use crate::model::{Answer, cost};
use crate::recovery::{Ask, Money, Reservation};
use crate::transcript::{Block, ToolCall, Usage, fewest_tokens};

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
    reserved: Option<(Reservation, Worst)>,
    uncounted_told: bool,
}

/// The most that a call can cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worst {
    pub(super) input: Money,
    /// Each token of its output, of which there are no more than `cap`.
    pub(super) token: Money,
    pub(super) cap: u32,
}

/// What a reply cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// As the service counted it.
    pub(super) counted: Money,
    /// The most that the part can have cost which it did not count.
    pub(super) uncounted: Money,
}

impl Worst {
    pub(super) fn sum(self) -> Money {
        self.input + self.token * u64::from(self.cap)
    }

    /// Some gateways count nothing. Were that taken for nothing spent, no budget would ever end
    /// a run. No token has less than a byte.
    fn uncounted(self, usage: &Usage, content: &[Block]) -> Money {
        let input = if usage.input() == 0 { self.input } else { Money::ZERO };
        let bytes = || serde_json::to_vec(content).map_or(u64::MAX, |json| json.len() as u64);
        let counts = usage.output_tokens >= fewest_tokens(content).max(1);
        let tokens = if counts || content.is_empty() { 0 } else { bytes() };
        input + self.token * tokens.min(u64::from(self.cap))
    }
}

impl Books {
    pub(super) fn new(
        purse: Purse,
        agent: Option<String>,
        after: Option<Money>,
        tally: Tally,
    ) -> Self {
        Self {
            purse,
            tally,
            turn: None,
            agent,
            stop_after: after,
            reserved: None,
            uncounted_told: false,
        }
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
    pub(super) fn reserve(&mut self, worst: Worst) -> bool {
        self.reserved = self.purse.reserve(worst.sum()).map(|reserved| (reserved, worst));
        self.turn = None;
        self.reserved.is_some()
    }

    /// The call was answered: what it cost is known, as far as the service counted it.
    pub(super) fn settle(&mut self, rung: &Rung, ask: &Ask, answer: &Answer) -> Cost {
        let (model, usage) = (&rung.facts, answer.usage);
        let prices = model.prices_at(ask.fast);
        let counted = prices.map_or(Money::ZERO, |prices| cost(&prices, &usage));
        let mut uncounted = Money::ZERO;
        if let Some((reservation, worst)) = self.reserved.take() {
            uncounted = worst.uncounted(&usage, &answer.content);
            self.purse.settle(reservation, counted, uncounted);
        }
        self.tally.usage += usage;
        let tokens = usage.input() + usage.output_tokens;
        self.tally.recovery.bill(counted + uncounted, tokens);
        bill(&mut self.tally.by_model, rung, usage, counted);
        if let Some(agent) = &self.agent {
            self.purse.bill_agent(agent, rung, usage, counted);
            self.purse.charge_agent(agent, uncounted);
        }
        Cost { counted, uncounted }
    }

    /// Whether to say that a service does not count: once.
    pub(super) fn minds_uncounted(&mut self, cost: Cost) -> bool {
        cost.uncounted > Money::ZERO && !std::mem::replace(&mut self.uncounted_told, true)
    }

    /// The service said no before it did any work: the call cost nothing.
    pub(super) fn release(&mut self) {
        if let Some((reservation, _)) = self.reserved.take() {
            self.purse.settle(reservation, Money::ZERO, Money::ZERO);
        }
    }

    /// Nobody knows whether the call was billed: it stays charged in full. Returns how much.
    pub(super) fn forfeit(&mut self) -> Money {
        let Some((reservation, _)) = self.reserved.take() else { return Money::ZERO };
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
