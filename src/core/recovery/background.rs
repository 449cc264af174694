//! Waits for background work when the model is done.
//!
//! The run waits, and the results of the work are reported in a new turn. The wait for a command
//! that never ends would be useless, so the model gets the list of running commands once: only the
//! model can distinguish a build from a server that was left running.

use super::event::{Action, Nudge, WorkStatus};
use super::state::{Phase, Run};
use super::step::{StepContext, StepOutcome};
use super::{Moment, RecoveryCause, StopReason};

impl Run {
    /// Waits for background work, within bounds.
    pub(super) fn await_work(self, context: StepContext<'_>) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::BackgroundPending);
        }
        let wait = context.limits.background;
        let until = context.at.after(wait.most);
        let until = context.limits.deadline.map_or(until, |deadline| until.min(deadline));
        let next = if self.may_ask() { until.min(context.at.after(wait.quiet)) } else { until };
        self.enter(Phase::Awaiting { until }).doing(Action::AwaitWork { until: next })
    }

    /// Handles a change of background work, or the end of the wait.
    pub(super) fn on_background_work(
        self,
        until: Moment,
        work: WorkStatus,
        context: StepContext<'_>,
    ) -> StepOutcome {
        match work {
            WorkStatus::Over => Self { asked_about_work: false, ..self }.done(context),
            WorkStatus::Unreported => {
                Self { asked_about_work: false, ..self }.report(Nudge::WorkEnded, context)
            }
            WorkStatus::StillRunning if context.at < until && self.may_ask() => {
                Self { asked_about_work: true, ..self }.report(Nudge::StillRunning, context)
            }
            WorkStatus::StillRunning => self.stop(StopReason::BackgroundPending),
        }
    }

    /// True if the model can still be asked about the running commands, while the wait for them
    /// lasts. The wait ends with the deadline at the latest.
    fn may_ask(self) -> bool {
        let is_settled = self.asked_about_work || self.is_last_reply();
        !is_settled && self.budgets.reports > 0
    }

    /// Gives the model a turn to learn the status of background work.
    fn report(self, nudge: Nudge, context: StepContext<'_>) -> StepOutcome {
        self.recover(RecoveryCause::Unreported, context, |run| run.next_turn(context).saying(nudge))
    }
}
