//! Forwards the events of sub-agents to the observer of the run.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::hooks::HookProgress;
use crate::recovery::{Action, Event, Failure, Fault, Moment, Money, Pause, Phase, Transition};
use crate::transcript::{Block, Message, Usage};

use super::super::observer::{Heartbeat, Observer, RunNotice, WaitingFor};
use super::registry::AgentRegistry;
use super::task::{AgentIdentity, AgentTask};

/// An event of a sub-agent, or about one.
#[derive(Debug)]
pub(in super::super) struct SubagentEvent {
    /// The sub-agent that reported it. `None`: it is about a sub-agent, and reported by none.
    by: Option<Arc<AgentIdentity>>,
    what: SubagentEventKind,
}

/// An owned notice, kept until it can be reported.
#[derive(Debug)]
enum SubagentEventKind {
    Task(Box<AgentTask>),
    Assistant {
        message: Message,
        ids: Vec<Uuid>,
        id: String,
        model: String,
        stop_reason: Option<String>,
        usage: Usage,
        request_id: Option<String>,
    },
    User {
        message: Message,
        details: Vec<Value>,
        ids: Vec<Uuid>,
    },
    Wait {
        pause: Pause,
        until: Moment,
        now: Moment,
        fault: Option<Box<Fault>>,
        spent: Money,
    },
    WaitEnds {
        pause: Pause,
        waited: Duration,
    },
    ModelSwitched {
        from: String,
        to: String,
    },
    Compacted {
        before: u64,
        after: u64,
    },
    Denied {
        tool: String,
        id: String,
        reason: String,
    },
    HookSays {
        event: String,
        text: String,
    },
    Hook(Box<HookProgress>),
    Remark(String),
    Warning(String),
    Nested(Box<SubagentEvent>),
}

impl SubagentEvent {
    pub(super) fn of(task: &AgentTask) -> Self {
        Self { by: None, what: SubagentEventKind::Task(Box::new(task.clone())) }
    }

    /// Reports it as a notice.
    pub(in super::super) fn emit(&self, hear: &mut dyn FnMut(&RunNotice<'_>)) {
        let by = self.by.as_deref();
        self.what.emit(&mut |notice| match by {
            Some(agent) => hear(&RunNotice::OfAgent { agent, notice }),
            None => hear(notice),
        });
    }
}

impl SubagentEventKind {
    fn emit(&self, hear: &mut dyn FnMut(&RunNotice<'_>)) {
        match self {
            Self::Task(task) => hear(&RunNotice::Agent(task)),
            Self::Assistant { message, ids, id, model, stop_reason, usage, request_id } => {
                hear(&RunNotice::Assistant {
                    message,
                    ids,
                    id,
                    model,
                    stop_reason: stop_reason.as_deref(),
                    usage: *usage,
                    request_id: request_id.as_deref(),
                });
            }
            Self::User { message, details, ids } => {
                hear(&RunNotice::User { message, details, ids });
            }
            Self::Wait { pause, until, now, fault, spent } => hear(&RunNotice::WaitBegins {
                pause: *pause,
                until: *until,
                now: *now,
                fault: fault.as_deref(),
                spent: *spent,
            }),
            Self::WaitEnds { pause, waited } => {
                hear(&RunNotice::WaitEnds { pause: *pause, waited: *waited });
            }
            Self::ModelSwitched { from, to } => hear(&RunNotice::ModelSwitched { from, to }),
            Self::Compacted { before, after } => {
                hear(&RunNotice::Compacted { before: *before, after: *after });
            }
            Self::Denied { tool, id, reason } => hear(&RunNotice::Denied { tool, id, reason }),
            Self::HookSays { event, text } => hear(&RunNotice::HookSays { event, text }),
            Self::Hook(news) => hear(&RunNotice::Hook(news)),
            Self::Remark(text) => hear(&RunNotice::Remark(text)),
            Self::Warning(text) => hear(&RunNotice::Warning(text)),
            Self::Nested(said) => said.emit(hear),
        }
    }

    /// Selects the notices of a sub-agent that are forwarded. Its waits for the model and for tools
    /// appear in the heartbeats of its parent.
    fn of(notice: &RunNotice<'_>) -> Option<Self> {
        Some(match *notice {
            RunNotice::Assistant { message, ids, id, model, stop_reason, usage, request_id } => {
                Self::Assistant {
                    message: message.clone(),
                    ids: ids.to_vec(),
                    id: id.to_owned(),
                    model: model.to_owned(),
                    stop_reason: stop_reason.map(str::to_owned),
                    usage,
                    request_id: request_id.map(str::to_owned),
                }
            }
            RunNotice::User { message, details, ids } => Self::User {
                message: message.clone(),
                details: details.to_vec(),
                ids: ids.to_vec(),
            },
            RunNotice::WaitBegins { pause, until, now, fault, spent } => {
                Self::Wait { pause, until, now, fault: fault.cloned().map(Box::new), spent }
            }
            RunNotice::WaitEnds { pause, waited } => Self::WaitEnds { pause, waited },
            RunNotice::ModelSwitched { from, to } => {
                Self::ModelSwitched { from: from.to_owned(), to: to.to_owned() }
            }
            RunNotice::Compacted { before, after } => Self::Compacted { before, after },
            RunNotice::Denied { tool, id, reason } => {
                Self::Denied { tool: tool.to_owned(), id: id.to_owned(), reason: reason.to_owned() }
            }
            RunNotice::HookSays { event, text } => {
                Self::HookSays { event: event.to_owned(), text: text.to_owned() }
            }
            RunNotice::Hook(news) => Self::Hook(Box::new(news.clone())),
            RunNotice::Remark(text) => Self::Remark(text.to_owned()),
            RunNotice::Warning(text) => Self::Warning(text.to_owned()),
            RunNotice::Agent(task) => Self::Task(Box::new(task.clone())),
            RunNotice::OfAgent { agent, notice } => {
                let by = Some(Arc::new(agent.clone()));
                Self::Nested(Box::new(SubagentEvent { by, what: Self::of(notice)? }))
            }
            RunNotice::Init(_)
            | RunNotice::Step { .. }
            | RunNotice::Heartbeat(_)
            | RunNotice::StreamEvent(_)
            | RunNotice::Block { .. }
            | RunNotice::BlocksDropped { .. }
            | RunNotice::RecoveryEnds(_)
            | RunNotice::Task(_) => return None,
        })
    }
}

/// Observes a sub-agent on behalf of the observer of the run.
pub(super) struct SubagentObserver {
    mark: Arc<AgentIdentity>,
    tree: Arc<AgentRegistry>,
    post: UnboundedSender<SubagentEvent>,
    /// The era of its request, as [`ConcurrencyLimiter`](super::concurrency::ConcurrencyLimiter) count.
    era: u32,
}

impl SubagentObserver {
    pub(super) fn new(
        mark: Arc<AgentIdentity>,
        tree: Arc<AgentRegistry>,
        post: UnboundedSender<SubagentEvent>,
    ) -> Self {
        Self { mark, tree, post, era: 0 }
    }

    /// Lowers the concurrency limit while the service throttles, and raises it once it answers.
    fn adapt_concurrency(&mut self, transition: &Transition) {
        let places = self.tree.places();
        let told = match transition.event {
            Event::Failed(Failure { class, .. }) if class.info().is_throttling => {
                let limits = places.throttled(self.era);
                limits.map(|(before, now)| format!("{now} instead of {before} ({class})"))
            }
            Event::Replied(_) => places.answered().map(|now| format!("{now} again")),
            Event::Failed(_)
            | Event::Begin
            | Event::Estimated(_)
            | Event::ToolsDone(_)
            | Event::Delivered
            | Event::DeliveredEarly
            | Event::BackgroundWaited(_)
            | Event::SchemaMismatch
            | Event::Checked { .. }
            | Event::Consulted(_)
            | Event::HookStopped
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
            self.era = places.era();
        }
        if let Some(told) = told {
            let what = SubagentEventKind::Remark(format!("agents at work at a time: {told}"));
            // The receiver is gone once the run is over.
            let _ = self.post.send(SubagentEvent { by: None, what });
        }
    }
}

impl Observer for SubagentObserver {
    fn observe(&mut self, notice: &RunNotice<'_>) {
        if let RunNotice::Step { transition, .. } = notice {
            self.adapt_concurrency(transition);
        }
        if let RunNotice::Assistant { message, usage, .. } = notice {
            let calls = message.content.iter().filter(|it| matches!(it, Block::ToolUse { .. }));
            let calls = u32::try_from(calls.count()).unwrap_or(u32::MAX);
            self.tree.count_reply(&self.mark.id, usage.input() + usage.output_tokens, calls);
        }
        if let Some(doing) = activity_of(notice) {
            self.tree.set_activity(&self.mark.id, doing);
        }
        // Events about another sub-agent are reported by none.
        let about = matches!(notice, RunNotice::Agent(_) | RunNotice::OfAgent { .. });
        let by = (!about).then(|| Arc::clone(&self.mark));
        if let Some(what) = SubagentEventKind::of(notice) {
            // The receiver is gone once the run is over.
            let _ = self.post.send(SubagentEvent { by, what });
        }
    }
}

/// The new activity of a sub-agent, if it has changed.
fn activity_of(notice: &RunNotice<'_>) -> Option<String> {
    Some(match notice {
        RunNotice::Step { transition, .. } => match transition.next.phase {
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
        RunNotice::Assistant { message, .. } => {
            let calls = message.content.iter().filter_map(|block| {
                if let Block::ToolUse { name, .. } = block { Some(name.as_str()) } else { None }
            });
            let calls: Vec<&str> = calls.collect();
            if calls.is_empty() {
                return None;
            }
            format!("running {}", calls.join(", "))
        }
        RunNotice::Heartbeat(Heartbeat { waiting_for, .. }) => match waiting_for {
            WaitingFor::Money => "waiting for other agents' calls to be paid".to_owned(),
            // It waits for a permit again, which was reported before.
            WaitingFor::Agents { running: "" } => return None,
            WaitingFor::Agents { running } => {
                format!("waiting for {}", running.trim_start_matches("- ").replace("\n- ", "; "))
            }
            WaitingFor::Retry(_)
            | WaitingFor::Model(_)
            | WaitingFor::Tool { .. }
            | WaitingFor::Hook { .. }
            | WaitingFor::Servers { .. }
            | WaitingFor::Work { .. } => return None,
        },
        RunNotice::Init(_)
        | RunNotice::WaitBegins { .. }
        | RunNotice::WaitEnds { .. }
        | RunNotice::StreamEvent(_)
        | RunNotice::Block { .. }
        | RunNotice::BlocksDropped { .. }
        | RunNotice::User { .. }
        | RunNotice::ModelSwitched { .. }
        | RunNotice::Compacted { .. }
        | RunNotice::RecoveryEnds(_)
        | RunNotice::Task(_)
        | RunNotice::Agent(_)
        | RunNotice::OfAgent { .. }
        | RunNotice::Denied { .. }
        | RunNotice::Hook(_)
        | RunNotice::HookSays { .. }
        | RunNotice::Remark(_)
        | RunNotice::Warning(_) => return None,
    })
}
