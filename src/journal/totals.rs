//! Totals over a prompt or a session.

use schemars::JsonSchema;
use serde::Serialize;

use crate::recovery::{Action, Event, Money, ReplyDisposition, Spending, Transition};
use crate::transcript::Usage;

use super::entry::SpendRecord;

/// Turns, usage and costs of replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Replies that entered the history.
    pub turns: u32,
    /// The amount that counts against a budget.
    pub spent: Money,
    /// The part of it that is an upper bound: calls that broke off or were interrupted, and tokens
    /// that the API did not count.
    pub upper_bounds: Money,
    pub usage: Usage,
    /// Totals by model, in the order of first use.
    pub by_model: Vec<ModelTotals>,
    /// The models in the order of their turns, each with the first turn of its series.
    pub models: Vec<ModelSpan>,
}

/// A model that answered consecutive turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelSpan {
    pub model: String,
    /// Its first turn of the series, counted from 1.
    pub from_turn: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTotals {
    pub model: String,
    pub usage: Usage,
    /// `None` when no price was known.
    pub cost: Option<Money>,
}

impl SessionTotals {
    /// Adds a recorded cost.
    pub fn add_record(&mut self, spend: &SpendRecord) {
        let SpendRecord { cost, usage, model, is_upper_bound } = spend;
        if *is_upper_bound {
            self.add_upper_bound(*cost, *usage, model);
        } else {
            self.add(*cost, *usage, model);
        }
    }

    /// Adds the usage and the cost of a call.
    pub fn add(&mut self, cost: Option<Money>, usage: Usage, model: &str) {
        self.spent += cost.unwrap_or_default();
        self.usage += usage;
        self.add_of_model(cost, usage, model);
    }

    fn add_of_model(&mut self, cost: Option<Money>, usage: Usage, model: &str) {
        match self.by_model.iter_mut().find(|sum| sum.model == model) {
            Some(sum) => {
                sum.cost = sum.cost.zip(cost).map(|(sum, more)| sum + more);
                sum.usage += usage;
            }
            None => self.by_model.push(ModelTotals { model: model.to_owned(), usage, cost }),
        }
    }

    /// Returns the spending, as far as prices are known.
    pub fn spending(&self) -> Spending {
        let is_partial = self.by_model.iter().any(|model| model.cost.is_none());
        Spending { amount: self.spent, is_partial }
    }

    /// Adds the spending of a sub-agent. Its turns and tokens are not added.
    pub fn add_subagent(&mut self, agent: &Self) {
        self.spent += agent.spent;
        self.upper_bounds += agent.upper_bounds;
        for ModelTotals { model, usage, cost } in &agent.by_model {
            self.add_of_model(*cost, *usage, model);
        }
    }

    /// Counts a reply that entered the history. Its model is not always known.
    pub fn count_turn(&mut self, model: Option<&str>) {
        self.turns = self.turns.saturating_add(1);
        let Some(model) = model else { return };
        if self.models.last().is_none_or(|last| last.model != model) {
            self.models.push(ModelSpan { model: model.to_owned(), from_turn: self.turns });
        }
    }

    /// Adds a cost that is an upper bound.
    pub fn add_upper_bound(&mut self, cost: Option<Money>, usage: Usage, model: &str) {
        self.add(cost, usage, model);
        self.upper_bounds += cost.unwrap_or_default();
    }

    /// Adds the worst-case cost of a call that was in flight when its process died.
    pub fn add_in_flight(&mut self, cost: Money, model: &str) {
        if cost > Money::ZERO {
            self.add_upper_bound(Some(cost), Usage::default(), model);
        }
    }
}

/// The worst-case cost of the call in flight, from the token estimate made before it.
pub fn worst_case(before: Money, transition: &Transition) -> Money {
    match (transition.event, transition.action) {
        (Event::Estimated(estimate), Action::Ask(ask)) => {
            estimate.input + estimate.token * u64::from(ask.cap)
        }
        // Hook decisions and rate-limit notices from other runs come before the call.
        (
            Event::Replied(_)
            | Event::Failed(_)
            | Event::SharedLimitMet { .. }
            | Event::Probed(_)
            | Event::SummaryPrevented
            | Event::HookStopped,
            _,
        ) => Money::ZERO,
        (
            Event::Begin
            | Event::Resumed(_)
            | Event::Estimated(_)
            | Event::ToolsDone(_)
            | Event::Delivered
            | Event::DeliveredEarly
            | Event::BackgroundWaited(_)
            | Event::SchemaMismatch
            | Event::Checked { .. }
            | Event::Consulted(_)
            | Event::Deferred
            | Event::Denied
            | Event::Refreshed
            | Event::WaitEnded
            | Event::Interrupted(_)
            | Event::DeadlinePassed
            | Event::InternalError,
            _,
        ) => before,
    }
}

/// Counts the turns of a journal. A turn has a step of the state machine and usually a message, in
/// either order; it counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TurnCounting {
    #[default]
    No,
    ByMessage,
    ByStep,
}

impl TurnCounting {
    /// Observes the first line of a reply. Returns whether it begins a turn that was not counted.
    pub(super) fn observe_reply(&mut self) -> bool {
        let counts = *self != Self::ByStep;
        *self = if counts { Self::ByMessage } else { Self::No };
        counts
    }

    /// Observes a step, which may keep a reply. Returns whether it is a turn that was not counted.
    pub(super) fn observe_step(&mut self, reply: ReplyDisposition) -> bool {
        // A reply with thinking only is a turn without a message.
        let is_turn = reply == ReplyDisposition::Keep;
        let counts = is_turn && *self != Self::ByMessage;
        *self = if counts { Self::ByStep } else { Self::No };
        counts
    }
}
