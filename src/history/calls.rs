//! The requests of a session to the model, and how each of them ended.

use std::time::Duration;

use jiff::Timestamp;

use crate::recovery::{
    Action, Event, ModelCall, Moment, RecoveryPlan, ReplyDisposition, Transition,
};
use crate::transcript::{Message, Usage, compaction};

/// A request to the model for a reply or for a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    pub call: ModelCall,
    /// When it was sent.
    pub at: Option<Timestamp>,
    /// The number of the prompt that it belongs to, from 1.
    pub prompt: u32,
    /// `None`: the process ended first.
    pub end: Option<CallEnd>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEnd {
    pub event: Event,
    /// What was done about it.
    pub plan: Option<RecoveryPlan>,
    /// What became of the reply.
    pub reply: ReplyDisposition,
    /// How long it took on the run's own clock.
    pub took: Duration,
    /// The number of the turn that the reply became.
    pub turn: Option<u32>,
    /// What the service reported. `None`: nothing, or the request broke off.
    pub usage: Option<Usage>,
    /// The summary that replaced a part of the conversation.
    pub summary: Option<String>,
    /// The context window that a refusal named, in tokens.
    pub window: Option<u64>,
}

/// What the builder knows about the end of a request beside the step.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallContext {
    pub(super) at: Option<Timestamp>,
    pub(super) prompt: u32,
    /// The number of the last turn.
    pub(super) turns: u32,
    pub(super) usage: Option<Usage>,
}

/// Collects the requests of a session, a step at a time.
#[derive(Debug, Default)]
pub(super) struct CallLog {
    calls: Vec<CallRecord>,
    /// When the request was sent that is under way, on the run's own clock.
    sent: Option<Moment>,
    summary: Option<String>,
    window: Option<u64>,
}

impl CallLog {
    /// Remembers the first message of a conversation that was replaced.
    pub(super) fn rewritten(&mut self, messages: &[Message]) {
        self.summary = messages.first().and_then(compaction::summary_of);
    }

    /// Remembers the context window that a refusal named.
    pub(super) fn window(&mut self, tokens: u64) {
        self.window = Some(tokens);
    }

    /// The process ended: no request is under way.
    pub(super) fn interrupt(&mut self) {
        self.sent = None;
    }

    pub(super) fn step(&mut self, step: &Transition, context: CallContext) {
        let (summary, window) = (self.summary.take(), self.window.take());
        if let Some(sent) = self.sent.take()
            && let Some(record) = self.calls.last_mut()
        {
            let reply = step.edit.reply;
            let is_whole = matches!(step.event, Event::Replied(_));
            record.end = Some(CallEnd {
                event: step.event,
                plan: step.plan,
                reply,
                took: sent.until(step.at),
                turn: (reply == ReplyDisposition::Keep).then_some(context.turns),
                usage: context.usage.filter(|_| is_whole),
                summary: summary.filter(|_| reply == ReplyDisposition::Summary),
                window,
            });
        }
        if let Action::Ask(call) = step.action {
            let CallContext { at, prompt, .. } = context;
            self.calls.push(CallRecord { call, at, prompt, end: None });
            self.sent = Some(step.at);
        }
    }

    pub(super) fn finish(self) -> Vec<CallRecord> {
        self.calls
    }
}
