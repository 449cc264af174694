//! The position of a prompt, which decides the first action of a process that resumes it.

use serde::{Deserialize, Serialize};

use super::event::{Action, CutKind, Event, Incomplete, Nudge, ReplyKind};
use super::event::{ReplyDisposition, StopHookDecision};
use super::state::Run;
use super::step::{StepContext, StepOutcome, Transition};
use super::{Limits, StopReason};

/// New demands on the answer in this process, which no earlier process has checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewDemands {
    /// Another command of `--require`.
    pub requirement: bool,
    /// Another schema of `--json-schema`.
    pub schema: bool,
}

impl NewDemands {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The position of a prompt after its recorded steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use = "the methods of a position return a changed position"]
pub enum LeftOff {
    /// The model is to reply: to the prompt, to the results of tools, or to a nudge.
    #[default]
    ReplyDue,
    /// The output limit cut the last reply, and no request to continue follows it.
    Cut(CutKind),
    /// The last reply does not count, and no notice for the model follows it.
    Incomplete(Incomplete),
    /// The service paused the last reply.
    Paused,
    /// The model is to complete its last reply, as the last message requests.
    Continuing,
    /// The model has answered, and nothing has accepted the answer yet.
    Answered,
    /// Like `Answered`, with the required structured output.
    Delivered,
    /// The Stop hooks accept the answer, and the command of `--require` has not passed yet.
    Consented,
    /// The run is complete.
    Finished(StopReason),
}

impl LeftOff {
    /// The position of the prompt after a further step.
    pub fn after(self, step: &Transition) -> Self {
        if let Action::Finish(reason @ (StopReason::Completed | StopReason::Refusal)) = step.action
        {
            return Self::Finished(reason);
        }
        if let Some(nudge) = step.edit.say {
            return Self::after_nudge(nudge);
        }
        let event = step.event;
        if let Event::Replied(reply) = event
            && step.edit.reply == ReplyDisposition::Keep
        {
            Self::after_reply(reply)
        } else if matches!(event, Event::Begin | Event::ToolsDone(_) | Event::SchemaMismatch) {
            Self::ReplyDue
        } else if event.delivers_output() {
            Self::Delivered
        } else if event == Event::Consulted(StopHookDecision::Pass) {
            Self::Consented
        } else {
            self
        }
    }

    fn after_nudge(nudge: Nudge) -> Self {
        if matches!(nudge, Nudge::Continue(_) | Nudge::ContinueLast | Nudge::Complete(_)) {
            Self::Continuing
        } else {
            Self::ReplyDue
        }
    }

    fn after_reply(reply: ReplyKind) -> Self {
        match reply {
            ReplyKind::Answer { .. } | ReplyKind::Early { .. } | ReplyKind::LeftOpen { .. } => {
                Self::Answered
            }
            ReplyKind::CutShort(cut) => Self::Cut(cut),
            ReplyKind::Incomplete(why) => Self::Incomplete(why),
            ReplyKind::Paused => Self::Paused,
            ReplyKind::ToolCalls { .. } | ReplyKind::Refusal | ReplyKind::Empty => Self::ReplyDue,
        }
    }

    /// The position of the prompt after a message to the model outside of a step. An answer is
    /// superseded by the reply to that message; an incomplete reply still has to be continued.
    pub fn after_message(self) -> Self {
        if matches!(self, Self::Answered | Self::Delivered | Self::Consented) {
            Self::ReplyDue
        } else {
            self
        }
    }

    /// The position of the prompt in a process with new demands: an answer that earlier processes
    /// accepted is checked again.
    pub fn with_demands(self, new: NewDemands) -> Self {
        let is_complete = self == Self::Finished(StopReason::Completed);
        if new.schema && (is_complete || matches!(self, Self::Delivered | Self::Consented)) {
            Self::Answered
        } else if new.requirement && is_complete {
            Self::Consented
        } else {
            self
        }
    }

    /// True if the model has answered, and no message asks it to go on.
    pub(super) fn is_answered(self) -> bool {
        self.after_message() != self || self.end().is_some()
    }

    /// The stop reason, if nothing is left to do.
    pub fn end(self) -> Option<StopReason> {
        if let Self::Finished(reason) = self { Some(reason) } else { None }
    }
}

impl Run {
    /// The run in a process with new demands: their tries are full again.
    pub fn with_demands(mut self, new: NewDemands, limits: &Limits) -> Self {
        if new.schema {
            self.has_output = false;
            self.budgets.schema_tries = limits.budgets.schema_tries;
        }
        if new.requirement {
            self.budgets.requirement_tries = limits.budgets.requirement_tries;
        }
        self
    }

    /// Resumes a prompt at the position where an earlier process left it.
    pub(super) fn on_resumed(self, left: LeftOff, context: StepContext<'_>) -> StepOutcome {
        match left {
            LeftOff::ReplyDue => self.next_turn(context),
            LeftOff::Cut(cut) => self.continue_reply(cut, context),
            LeftOff::Incomplete(why) => self.request_completion(why, context),
            LeftOff::Paused | LeftOff::Continuing => self.request_reply(context),
            LeftOff::Answered if context.limits.structured && !self.has_output => {
                self.next_turn(context).saying(Nudge::UseStructuredOutput)
            }
            LeftOff::Answered => self.done(context),
            LeftOff::Delivered => self.with_output().done(context),
            LeftOff::Consented => self.conclude(context),
            LeftOff::Finished(reason) => self.stop(reason),
        }
    }
}
