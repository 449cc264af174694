//! Sums over a prompt or a session.

use crate::recovery::{Action, Event, Money, Reply, StopReason, Transition};
use crate::transcript::Usage;

/// What replies have brought and cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Replies that entered the history.
    pub turns: u32,
    /// Everything that counts against a budget.
    pub spent: Money,
    /// Part of it that was charged for calls of which nobody knows whether they were billed.
    pub unsettled: Money,
    pub usage: Usage,
    /// In the order in which they were first used. Without what is not settled.
    pub by_model: Vec<ModelSum>,
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
pub struct ModelSum {
    pub model: String,
    pub usage: Usage,
    pub cost: Money,
}

impl Sums {
    pub(super) fn add(&mut self, cost: Money, usage: Usage, model: &str) {
        self.spent += cost;
        self.usage += usage;
        match self.by_model.iter_mut().find(|sum| sum.model == model) {
            Some(sum) => {
                sum.cost += cost;
                sum.usage += usage;
            }
            None => self.by_model.push(ModelSum { model: model.to_owned(), usage, cost }),
        }
    }

    /// Adds what a sub-agent spent. Its turns and tokens are its own.
    pub(super) fn absorb(&mut self, agent: &Self) {
        self.spent += agent.spent;
        self.unsettled += agent.unsettled;
        for ModelSum { model, usage, cost } in &agent.by_model {
            match self.by_model.iter_mut().find(|sum| sum.model == *model) {
                Some(sum) => {
                    sum.cost += *cost;
                    sum.usage += *usage;
                }
                None => self.by_model.push(ModelSum {
                    model: model.clone(),
                    usage: *usage,
                    cost: *cost,
                }),
            }
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

    pub(super) fn forfeit(&mut self, cost: Money) {
        self.spent += cost;
        self.unsettled += cost;
    }
}

/// What a call under way may cost: input and output were weighed before it was made.
pub(super) fn worst_case(before: Money, transition: &Transition) -> Money {
    match (transition.event, transition.action) {
        (Event::Weighed(weight), Action::Ask(ask)) => {
            weight.input + weight.token * u64::from(ask.cap)
        }
        // What a hook says comes before the call, and so does what other runs know.
        (
            Event::Replied(_)
            | Event::Failed(_)
            | Event::Held { .. }
            | Event::Probed(_)
            | Event::Prevented
            | Event::HookStopped,
            _,
        ) => Money::ZERO,
        (
            Event::Begin
            | Event::Weighed(_)
            | Event::ToolsDone(_)
            | Event::Delivered
            | Event::DeliveredEarly
            | Event::Worked(_)
            | Event::Misfit
            | Event::Checked { .. }
            | Event::Consulted(_)
            | Event::Denied
            | Event::Refreshed
            | Event::Woke
            | Event::Interrupted(_)
            | Event::DeadlinePassed
            | Event::Broke,
            _,
        ) => before,
    }
}

/// How the machine wants the prompt to end, if it does.
pub(super) fn closing(action: Action) -> Option<StopReason> {
    if let Action::Finish(reason) = action { Some(reason) } else { None }
}

/// Whether an answer is left without a verdict. Only where it was cut off does it stay so.
pub(super) fn leaves_unjudged(transition: &Transition, before: bool) -> bool {
    use StopReason::{AbortedTools, Deadline};
    let cut_off = matches!(transition.action, Action::Finish(Deadline | AbortedTools(_)));
    let answered = matches!(transition.event, Event::Replied(Reply::Answer { .. }));
    matches!(transition.action, Action::Check | Action::Consult)
        || (cut_off && (before || answered))
}
