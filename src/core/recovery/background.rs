//! Waits for background work when the model is done.
//!
//! The run waits, and the results of the work are reported in a new turn. A command that never ends
//! by itself would be waited for in vain, so the model is told once what it is: only the model can
//! tell a build from a forgotten server.

use super::event::{Action, Nudge, WorkStatus};
use super::state::{Phase, Run};
use super::step::{StepContext, StepOutcome};
use super::{Moment, RecoveryPlan, SetbackKind, StopReason};

impl Run {
    /// Waits for background work, within bounds.
    pub(super) fn await_work(self, scene: StepContext<'_>) -> StepOutcome {
        if scene.is_late() {
            return self.stop(StopReason::BackgroundPending);
        }
        let wait = scene.limits.background;
        let until = scene.at.after(wait.most);
        let until = scene.limits.deadline.map_or(until, |deadline| until.min(deadline));
        let next = if self.may_ask(scene) { until.min(scene.at.after(wait.quiet)) } else { until };
        self.enter(Phase::Awaiting { until }).doing(Action::AwaitWork { until: next })
    }

    /// Handles news of background work, or the end of the wait.
    pub(super) fn worked(
        self,
        until: Moment,
        work: WorkStatus,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        match work {
            WorkStatus::Over => Self { asked_about_work: false, ..self }.done(scene),
            WorkStatus::Unreported => {
                Self { asked_about_work: false, ..self }.report(Nudge::WorkEnded, scene)
            }
            WorkStatus::StillRunning if scene.at < until && self.may_ask(scene) => {
                Self { asked_about_work: true, ..self }.report(Nudge::StillRunning, scene)
            }
            WorkStatus::StillRunning => self.stop(StopReason::BackgroundPending),
        }
    }

    /// Whether the model can still be asked about the running commands.
    fn may_ask(self, scene: StepContext<'_>) -> bool {
        let heard = self.asked_about_work || self.is_last_reply();
        !heard && self.budgets.reports > 0 && !scene.is_late()
    }

    /// Gives the model a turn to learn the status of background work.
    fn report(self, nudge: Nudge, scene: StepContext<'_>) -> StepOutcome {
        let (run, chosen) = self.choose_plan(SetbackKind::Unreported, scene);
        let outcome = if let RecoveryPlan::Stop(reason) = chosen {
            run.stop(reason)
        } else {
            run.next_turn(scene).saying(nudge)
        };
        outcome.by(chosen)
    }
}
