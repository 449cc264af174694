//! The run loop: performs the machine's actions and feeds it the resulting events.

use crate::recovery::{Action, Event, InvalidEvent, Limits, Moment, Run, StopReason, Transition};

/// Everything a run needs from outside itself.
pub trait World {
    fn now(&self) -> Moment;

    /// Passes a transition to the journal and reports it to the observer. Called before its action
    /// is performed.
    fn record(&mut self, transition: &Transition);

    /// Performs an action and returns the resulting event. An effect waits until the transition is
    /// durable. Never fails: a failure is an event, too.
    fn perform(&mut self, action: Action) -> impl Future<Output = Event>;
}

/// Drives a run from `event` to its end.
///
/// # Errors
/// An [`InvalidEvent`] when the world reports an event that the run was not waiting for.
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
        if let Some(reason) = transition.action.end() {
            return Ok(reason);
        }
        event = world.perform(transition.action).await;
    }
}
