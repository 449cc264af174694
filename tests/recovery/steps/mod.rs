//! One recovery path per test, as a sequence of events.

mod acceptance;
mod background;
mod calls;
mod capacity;
mod chain;
mod context;
mod fast;
mod left_off;
mod limits;
mod media;
mod probing;
mod replies;
mod sharing;
mod switches;

use outlast_core::recovery::{Action, Pause, Phase, RecoveryPlan};

use super::{Story, TOOL_CALLS, TOOLS_DONE};

impl Story {
    /// The model calls tools, and they are done.
    #[track_caller]
    fn takes_a_turn(self) -> Self {
        self.then(TOOL_CALLS).then(TOOLS_DONE)
    }

    /// Number of steps with this plan.
    fn times(&self, plan: RecoveryPlan) -> usize {
        self.plans().into_iter().filter(|&told| told == plan).count()
    }

    /// The reason of the current pause.
    #[track_caller]
    fn pause(&self) -> Pause {
        let Phase::Pausing { why, .. } = self.run.phase else { panic!("{:?}", self.run.phase) };
        why
    }

    /// Length of the whole pause, in milliseconds.
    #[track_caller]
    fn pause_millis(&self) -> u64 {
        let Phase::Pausing { until, .. } = self.run.phase else { panic!("{:?}", self.run.phase) };
        until.as_millis() - self.now.as_millis()
    }

    /// Whether the last decision was to call again without any pause.
    #[track_caller]
    fn retried_without_pause(&self) -> bool {
        match self.last() {
            Action::Ask(_) => matches!(self.decision().action, Action::Estimate { .. }),
            Action::Refresh | Action::RunTools | Action::RunStopHooks | Action::RunRequirement => {
                true
            }
            Action::Estimate { .. }
            | Action::AwaitWork { .. }
            | Action::Wait { .. }
            | Action::Probe { .. }
            | Action::Finish(_) => false,
        }
    }
}
