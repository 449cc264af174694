//! Sums over a prompt or a session.

use crate::recovery::{Action, Event, Money, ReplyKind, StopReason, Transition};
use crate::transcript::Usage;

/// What replies have brought and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Replies that entered the history.
    pub turns: u32,
    /// Everything that counts against a budget.
    pub spent: Money,
    /// Part of it that is an upper bound: of calls that broke off or were cut off, and of tokens that
    /// a service did not count.
    pub upper_bounds: Money,
    pub usage: Usage,
    /// In the order in which they were first used.
    pub by_model: Vec<ModelTotals>,
    /// Which model answered from which turn on.
    pub models: Vec<ModelSpan>,
}

/// A model that answered turn after turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpan {
    pub model: String,
    /// Its first turn in a row, counted from 1.
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
    pub(super) fn add(&mut self, cost: Option<Money>, usage: Usage, model: &str) {
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

    /// Adds what a sub-agent spent. Its turns and tokens are its own.
    pub(super) fn add_subagent(&mut self, agent: &Self) {
        self.spent += agent.spent;
        self.upper_bounds += agent.upper_bounds;
        for ModelTotals { model, usage, cost } in &agent.by_model {
            self.add_of_model(*cost, *usage, model);
        }
    }

    /// A reply entered the history. Whose it was is not always known.
    pub(super) fn count_turn(&mut self, model: Option<&str>) {
        self.turns = self.turns.saturating_add(1);
        let Some(model) = model else { return };
        if self.models.last().is_none_or(|last| last.model != model) {
            self.models.push(ModelSpan { model: model.to_owned(), from_turn: self.turns });
        }
    }

    /// Adds a cost that is an upper bound.
    pub(super) fn add_upper_bound(&mut self, cost: Option<Money>, usage: Usage, model: &str) {
        self.add(cost, usage, model);
        self.upper_bounds += cost.unwrap_or_default();
    }

    /// Adds the worst case of a call that was under way when its process died.
    pub(super) fn add_in_flight(&mut self, cost: Money, model: &str) {
        if cost > Money::ZERO {
            self.add_upper_bound(Some(cost), Usage::default(), model);
        }
    }
}

/// What a call under way may cost: input and output were weighed before it was made.
pub(super) fn worst_case(before: Money, transition: &Transition) -> Money {
    match (transition.event, transition.action) {
        (Event::Estimated(weight), Action::Ask(ask)) => {
            weight.input + weight.token * u64::from(ask.cap)
        }
        // What a hook says comes before the call, and so does what other runs know.
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
            | Event::Estimated(_)
            | Event::ToolsDone(_)
            | Event::Delivered
            | Event::DeliveredEarly
            | Event::BackgroundWaited(_)
            | Event::SchemaMismatch
            | Event::Checked { .. }
            | Event::Consulted(_)
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

/// How the machine wants the prompt to end, if it does.
pub(super) fn finish_reason(action: Action) -> Option<StopReason> {
    if let Action::Finish(reason) = action { Some(reason) } else { None }
}

/// Whether an answer is left without a verdict. Only where it was cut off does it stay so.
pub(super) fn is_check_pending(transition: &Transition, before: bool) -> bool {
    use StopReason::{AbortedTools, Deadline};
    let cut_off = matches!(transition.action, Action::Finish(Deadline | AbortedTools(_)));
    let answered = matches!(transition.event, Event::Replied(ReplyKind::Answer { .. }));
    matches!(transition.action, Action::RunRequirement | Action::RunStopHooks)
        || (cut_off && (before || answered))
}
