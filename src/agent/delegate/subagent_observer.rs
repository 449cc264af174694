//! Forwards the events of sub-agents to the observer of the run.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use crate::recovery::{Action, Event, Failure, Phase, Transition};
use crate::transcript::Block;

use super::super::run_deps::RunDeps;
use super::super::run_event::{Heartbeat, Observer, RunEvent};
use super::super::waiting_for::WaitingFor;
use super::task::AgentIdentity;

/// Observes a sub-agent on behalf of the observer of the run.
pub(super) struct SubagentObserver {
    identity: Arc<AgentIdentity>,
    deps: Arc<RunDeps>,
    post: UnboundedSender<RunEvent>,
    /// The epoch of its request, as counted by the
    /// [`ConcurrencyLimiter`](super::concurrency::ConcurrencyLimiter).
    epoch: u32,
}

impl SubagentObserver {
    pub(super) fn new(
        identity: Arc<AgentIdentity>,
        deps: Arc<RunDeps>,
        post: UnboundedSender<RunEvent>,
    ) -> Self {
        Self { identity, deps, post, epoch: 0 }
    }

    fn send(&self, event: RunEvent) {
        // The receiver is gone once the run is over.
        let _ = self.post.send(event);
    }

    /// Lowers the concurrency limit while the service throttles, and raises it once it answers.
    fn adapt_concurrency(&mut self, transition: &Transition) {
        let limiter = self.deps.registry.limiter();
        let change = if let Event::Failed(Failure { class, .. }) = transition.event
            && class.info().is_throttling
        {
            let limits = limiter.throttled(self.epoch);
            limits.map(|(before, now)| format!("{now} instead of {before} ({class})"))
        } else if matches!(transition.event, Event::Replied(_)) {
            limiter.answered().map(|now| format!("{now} again"))
        } else {
            None
        };
        if matches!(transition.action, Action::Ask(_)) {
            self.epoch = limiter.epoch();
        }
        if let Some(change) = change {
            self.send(RunEvent::Note(format!("agents at work at a time: {change}")));
        }
    }
}

impl Observer for SubagentObserver {
    fn observe(&mut self, event: &RunEvent) {
        if let RunEvent::Step { transition, .. } = event {
            self.adapt_concurrency(transition);
        }
        if let RunEvent::Assistant { message, usage, .. } = event {
            let calls = message.content.iter().filter_map(Block::as_call).count();
            let calls = u32::try_from(calls).unwrap_or(u32::MAX);
            let tokens = usage.input() + usage.output_tokens;
            self.deps.registry.count_reply(&self.identity.id, tokens, calls);
        }
        if let Some(doing) = activity_of(event) {
            self.deps.registry.set_activity(&self.identity.id, doing);
        }
        if !is_forwarded(event) {
            return;
        }
        let is_own = !matches!(event, RunEvent::Agent(_) | RunEvent::OfAgent { .. });
        let event = event.clone();
        self.send(if is_own {
            RunEvent::OfAgent { agent: Arc::clone(&self.identity), event: Box::new(event) }
        } else {
            event
        });
    }
}

/// Returns true if an event of a sub-agent is forwarded. Its waits for the model and for tools
/// appear in the heartbeats of its parent.
fn is_forwarded(event: &RunEvent) -> bool {
    !matches!(
        event,
        RunEvent::Init(_)
            | RunEvent::Step { .. }
            | RunEvent::RequestSent
            | RunEvent::Heartbeat(_)
            | RunEvent::AwaitsAgents(_)
            | RunEvent::ToolEnds(_)
            | RunEvent::RequirementEnds { .. }
            | RunEvent::StreamEvent(_)
            | RunEvent::Block { .. }
            | RunEvent::BlocksDropped { .. }
            | RunEvent::RecoveryEnds(_)
            | RunEvent::Task(_)
    )
}

/// Returns the new activity of a sub-agent, if it has changed.
fn activity_of(event: &RunEvent) -> Option<String> {
    if let RunEvent::Step { transition, .. } = event {
        return activity_in(transition.next.phase);
    }
    if let RunEvent::Assistant { message, .. } = event {
        let calls = message.content.iter().filter_map(Block::as_call);
        let calls: Vec<&str> = calls.map(|(_, name, _)| name).collect();
        return (!calls.is_empty()).then(|| format!("running {}", calls.join(", ")));
    }
    // A wait for the journal does not count: no event replaces it once the disk has answered.
    let RunEvent::Heartbeat(Heartbeat { waiting_for, .. }) = event else { return None };
    if let WaitingFor::Money = waiting_for {
        return Some("waiting for other agents' calls to be paid".to_owned());
    }
    let WaitingFor::Agents { running } = waiting_for else { return None };
    // With an empty list it waits for a slot again, which was reported before.
    (!running.is_empty()).then(|| format!("waiting for {}", running.join("; ")))
}

/// Returns the activity of a sub-agent in a phase, if that is a new one.
fn activity_in(phase: Phase) -> Option<String> {
    if let Some((_, why)) = phase.pause() {
        let of = why.of.map_or_else(String::new, |of| format!(" of {of}"));
        return Some(format!("waiting to retry ({}, retry {}{of})", why.class, why.retry));
    }
    let activities = [
        (matches!(phase, Phase::Calling(_)), "asking the model"),
        (phase == Phase::RunningStopHooks, "running hooks"),
        (matches!(phase, Phase::Awaiting { .. }), "waiting for background work"),
        (matches!(phase, Phase::Stopped(_)), "ending"),
    ];
    activities.into_iter().find_map(|(is_new, name)| is_new.then(|| name.to_owned()))
}
