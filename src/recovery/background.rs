//! When the model is done and background work is not (SPEC 16).
//!
//! The run waits, and what comes of the work is told in a new turn. A command that never ends by
//! itself would be waited for in vain, so the model is told once what holds the run up: whether
//! that is a build or a forgotten server, nobody else knows.

use super::event::{Action, Nudge, WorkStatus};
use super::machine::{StepOutcome, StepContext};
use super::state::{Phase, Run};
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

    /// The wait has brought something, or is over.
    pub(super) fn worked(self, until: Moment, work: WorkStatus, scene: StepContext<'_>) -> StepOutcome {
        match work {
            WorkStatus::Over => Self { asked_about_work: false, ..self }.done(scene),
            WorkStatus::Unreported => Self { asked_about_work: false, ..self }.report(Nudge::WorkEnded, scene),
            WorkStatus::StillRunning if scene.at < until && self.may_ask(scene) => {
                Self { asked_about_work: true, ..self }.report(Nudge::StillRunning, scene)
            }
            WorkStatus::StillRunning => self.stop(StopReason::BackgroundPending),
        }
    }

    /// Whether the model can still be told what holds the run up.
    fn may_ask(self, scene: StepContext<'_>) -> bool {
        let heard = self.asked_about_work || self.is_last_reply();
        !heard && self.budgets.reports > 0 && !scene.is_late()
    }

    /// Gives the model a turn to hear how background work stands.
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
