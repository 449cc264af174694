//! The loop. There is one, and it is this long.

use crate::recovery::{Action, InvalidEvent, Event, Limits, Moment, Run, StopReason, Transition};

/// Everything a run needs from outside itself.
pub trait World {
    fn now(&self) -> Moment;

    /// Makes a transition durable and tells whoever watches. Called before its action is
    /// performed.
    fn record(&mut self, transition: &Transition);

    /// Performs an action and says what came of it. Never fails: failure is an event like any
    /// other.
    fn perform(&mut self, action: Action) -> impl Future<Output = Event>;
}

/// Drives a run from `event` to its end.
///
/// # Errors
/// A [`Breach`] when the world reports what the run was not waiting for.
pub async fn drive(
    mut run: Run,
    mut event: Event,
    limits: &Limits,
    world: &mut impl World,
) -> Result<StopReason, InvalidEvent> {
    loop {
        let transition = run.step(world.now(), event, limits)?;
        world.record(&transition);
        run = transition.next;
        event = match transition.action {
            Action::Finish(reason) => return Ok(reason),
            action @ (Action::Estimate { .. }
            | Action::Ask(_)
            | Action::Refresh
            | Action::RunTools
            | Action::RunStopHooks
            | Action::RunRequirement
            | Action::AwaitWork { .. }
            | Action::Wait { .. }
            | Action::Probe { .. }) => world.perform(action).await,
        };
    }
}
