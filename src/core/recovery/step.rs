//! One step of the state machine: its context, its outcome and its record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::{Action, Event, HistoryEdit, Nudge, ReplyDisposition, Trim};
use super::state::{Phase, Run};
use super::{Budgets, Limits, Moment, RecoveryCause, RecoveryPlan, StopReason};

/// Upper bound of the failure count: the back-off has long reached its cap.
pub(super) const FAILURES_MAX: u8 = 30;

/// The shortest wait. A wait until a moment in the past would be an endless loop.
pub(super) const WAIT_MIN: Duration = Duration::from_millis(1);

/// The time of a step, and the limits that apply to it.
#[derive(Clone, Copy)]
pub(super) struct StepContext<'a> {
    pub(super) at: Moment,
    pub(super) limits: &'a Limits,
}

impl StepContext<'_> {
    /// True if the deadline has passed.
    pub(super) fn is_late(self) -> bool {
        self.limits.deadline.is_some_and(|deadline| self.at >= deadline)
    }
}

/// The outcome of a step before it is wrapped into a [`Transition`].
pub(super) struct StepOutcome {
    pub(super) run: Run,
    /// The plan of the step, if there is one, with the cause for which it was chosen.
    pub(super) recovery: Option<(RecoveryCause, RecoveryPlan)>,
    pub(super) edit: HistoryEdit,
    pub(super) action: Action,
}

impl StepOutcome {
    /// Sets the treatment of the last reply.
    pub(super) fn with(self, reply: ReplyDisposition) -> Self {
        Self { edit: HistoryEdit { reply, ..self.edit }, ..self }
    }

    /// Adds the removal of content to the edit of the conversation.
    pub(super) fn trimming(self, trim: Trim) -> Self {
        Self { edit: HistoryEdit { trim: Some(trim), ..self.edit }, ..self }
    }

    /// Adds a message for the model, for its next request.
    pub(super) fn saying(self, nudge: Nudge) -> Self {
        let asks = matches!(self.action, Action::Estimate { .. } | Action::Wait { .. });
        let say = asks.then_some(nudge);
        Self { edit: HistoryEdit { say, ..self.edit }, ..self }
    }

    /// Restores `budgets` if the run ends instead of taking the turn that was paid for: it may be
    /// resumed with higher limits.
    pub(super) fn refunding(mut self, budgets: Budgets) -> Self {
        if matches!(self.action, Action::Finish(_)) {
            self.run.budgets = budgets;
        }
        self
    }

    /// Adds a further notice for the model, before its turn.
    pub(super) fn noticing(self, notice: Option<Nudge>) -> Self {
        let notice = notice.filter(|_| matches!(self.action, Action::Estimate { .. }));
        Self { edit: HistoryEdit { notice, ..self.edit }, ..self }
    }

    /// Records the plan of this step and its cause. If the run ends instead, for lack of time or
    /// turns, the plan is recorded as a stop.
    pub(super) fn by(self, cause: RecoveryCause, plan: RecoveryPlan) -> Self {
        let end = self.action.end().map(RecoveryPlan::Stop);
        Self { recovery: Some((cause, end.unwrap_or(plan))), ..self }
    }
}

/// The record of one step. The journal stores it and the reporter shows it; neither needs anything
/// else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    pub at: Moment,
    pub event: Event,
    /// The cause of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RecoveryCause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<RecoveryPlan>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub edit: HistoryEdit,
    pub next: Run,
    pub action: Action,
}

impl Transition {
    /// True if a failed summary switches automatic compaction off.
    pub fn disables_compaction(&self) -> bool {
        self.plan == Some(RecoveryPlan::SkipCompaction) && self.next.budgets.failed_compactions == 0
    }

    /// True if the run ends, or is to be accepted, with an answer from before this event, because
    /// the work after it failed.
    pub fn keeps_answer(&self) -> bool {
        let is_accepted = matches!(
            self.next.phase,
            Phase::RunningStopHooks
                | Phase::RunningRequirement
                | Phase::Stopped(StopReason::Completed)
        );
        is_accepted && !self.event.brings_answer()
    }
}

/// An event that the current phase of the run does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} does not fit phase {phase:?}")]
pub struct InvalidEvent {
    pub phase: Phase,
    pub event: Event,
}
