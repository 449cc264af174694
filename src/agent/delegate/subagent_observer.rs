//! Forwards the events of sub-agents to the observer of the run.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use crate::recovery::{Action, Event, Failure, Phase, Transition};
use crate::transcript::Block;

use super::super::run_deps::RunDeps;
use super::super::run_event::{Heartbeat, Observer, RunEvent, WaitingFor};
use super::task::AgentIdentity;

/// Observes a sub-agent on behalf of the observer of the run.
pub(super) struct SubagentObserver {
    mark: Arc<AgentIdentity>,
    deps: Arc<RunDeps>,
    post: UnboundedSender<RunEvent>,
    /// The era of its request, as counted by the
    /// [`ConcurrencyLimiter`](super::concurrency::ConcurrencyLimiter).
    epoch: u32,
}

impl SubagentObserver {
    pub(super) fn new(
        mark: Arc<AgentIdentity>,
        deps: Arc<RunDeps>,
        post: UnboundedSender<RunEvent>,
    ) -> Self {
        Self { mark, deps, post, epoch: 0 }
    }

    fn send(&self, event: RunEvent) {
        // The receiver is gone once the run is over.
        let _ = self.post.send(event);
    }

    /// Lowers the concurrency limit while the service throttles, and raises it once it answers.
    fn adapt_concurrency(&mut self, transition: &Transition) {
        let places = self.deps.registry.places();
        let change = match transition.event {
            Event::Failed(Failure { class, .. }) if class.info().is_throttling => {
                let limits = places.throttled(self.epoch);
                limits.map(|(before, now)| format!("{now} instead of {before} ({class})"))
            }
            Event::Replied(_) => places.answered().map(|now| format!("{now} again")),
            Event::Failed(_)
            | Event::Begin
            | Event::Resumed(_)
            | Event::Estimated(_)
            | Event::ToolsDone(_)
            | Event::Delivered
            | Event::DeliveredEarly
            | Event::BackgroundWaited(_)
            | Event::SchemaMismatch
            | Event::Checked { .. }
            | Event::Consulted(_)
            | Event::HookStopped
            | Event::Deferred
            | Event::SummaryPrevented
            | Event::Denied
            | Event::Refreshed
            | Event::SharedLimitMet { .. }
            | Event::WaitEnded
            | Event::Probed(_)
            | Event::Interrupted(_)
            | Event::DeadlinePassed
            | Event::InternalError => None,
        };
        if matches!(transition.action, Action::Ask(_)) {
            self.epoch = places.epoch();
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
            let calls = message.content.iter().filter(|it| matches!(it, Block::ToolUse { .. }));
            let calls = u32::try_from(calls.count()).unwrap_or(u32::MAX);
            self.deps.registry.count_reply(
                &self.mark.id,
                usage.input() + usage.output_tokens,
                calls,
            );
        }
        if let Some(doing) = activity_of(event) {
            self.deps.registry.set_activity(&self.mark.id, doing);
        }
        if !is_forwarded(event) {
            return;
        }
        // An event about another sub-agent is not this one's.
        let is_own = !matches!(event, RunEvent::Agent(_) | RunEvent::OfAgent { .. });
        let event = event.clone();
        self.send(if is_own {
            RunEvent::OfAgent { agent: Arc::clone(&self.mark), event: Box::new(event) }
        } else {
            event
        });
    }
}

/// Returns true if an event of a sub-agent is forwarded. Its waits for the model and for tools
/// appear in the heartbeats of its parent.
fn is_forwarded(event: &RunEvent) -> bool {
    match event {
        RunEvent::Assistant { .. }
        | RunEvent::User { .. }
        | RunEvent::WaitBegins { .. }
        | RunEvent::WaitEnds { .. }
        | RunEvent::ModelSwitched { .. }
        | RunEvent::Compacted { .. }
        | RunEvent::Denied { .. }
        | RunEvent::HookSays { .. }
        | RunEvent::Hook(_)
        | RunEvent::Note(_)
        | RunEvent::Warning(_)
        | RunEvent::Agent(_)
        | RunEvent::OfAgent { .. } => true,
        RunEvent::Init(_)
        | RunEvent::Step { .. }
        | RunEvent::Heartbeat(_)
        | RunEvent::AwaitsAgents(_)
        | RunEvent::ToolEnds(_)
        | RunEvent::RequirementEnds { .. }
        | RunEvent::StreamEvent(_)
        | RunEvent::Block { .. }
        | RunEvent::BlocksDropped { .. }
        | RunEvent::RecoveryEnds(_)
        | RunEvent::Task(_) => false,
    }
}

/// Returns the new activity of a sub-agent, if it has changed.
fn activity_of(event: &RunEvent) -> Option<String> {
    Some(match event {
        RunEvent::Step { transition, .. } => match transition.next.phase {
            Phase::Calling(_) => "asking the model".to_owned(),
            Phase::Pausing { why, .. } | Phase::Probing { why, .. } => {
                let of = why.of.map_or_else(String::new, |of| format!(" of {of}"));
                format!("waiting to retry ({}, retry {}{of})", why.class, why.retry)
            }
            Phase::RunningStopHooks => "running hooks".to_owned(),
            Phase::Awaiting { .. } => "waiting for background work".to_owned(),
            Phase::Ready | Phase::Estimating(_) | Phase::Working | Phase::RunningRequirement => {
                return None;
            }
            Phase::Stopped(_) => "ending".to_owned(),
        },
        RunEvent::Assistant { message, .. } => {
            let calls = message.content.iter().filter_map(|block| {
                if let Block::ToolUse { name, .. } = block { Some(name.as_str()) } else { None }
            });
            let calls: Vec<&str> = calls.collect();
            if calls.is_empty() {
                return None;
            }
            format!("running {}", calls.join(", "))
        }
        RunEvent::Heartbeat(Heartbeat { waiting_for, .. }) => match waiting_for {
            WaitingFor::Money => "waiting for other agents' calls to be paid".to_owned(),
            // It waits for a permit again, which was reported before.
            WaitingFor::Agents { running } if running.is_empty() => return None,
            WaitingFor::Agents { running } => {
                format!("waiting for {}", running.trim_start_matches("- ").replace("\n- ", "; "))
            }
            WaitingFor::Retry(_)
            | WaitingFor::Model(_)
            | WaitingFor::Tool { .. }
            | WaitingFor::Permission { .. }
            | WaitingFor::Elicitation { .. }
            | WaitingFor::Hook { .. }
            | WaitingFor::Servers { .. }
            | WaitingFor::Work { .. } => return None,
        },
        RunEvent::Init(_)
        | RunEvent::WaitBegins { .. }
        | RunEvent::WaitEnds { .. }
        | RunEvent::AwaitsAgents(_)
        | RunEvent::ToolEnds(_)
        | RunEvent::RequirementEnds { .. }
        | RunEvent::StreamEvent(_)
        | RunEvent::Block { .. }
        | RunEvent::BlocksDropped { .. }
        | RunEvent::User { .. }
        | RunEvent::ModelSwitched { .. }
        | RunEvent::Compacted { .. }
        | RunEvent::RecoveryEnds(_)
        | RunEvent::Task(_)
        | RunEvent::Agent(_)
        | RunEvent::OfAgent { .. }
        | RunEvent::Denied { .. }
        | RunEvent::Hook(_)
        | RunEvent::HookSays { .. }
        | RunEvent::Note(_)
        | RunEvent::Warning(_) => return None,
    })
}
