//! The requests of a session to the model, with the end of each.

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
    /// Time at which it was sent.
    pub at: Option<Timestamp>,
    /// Number of its prompt in the session, counted from 1.
    pub prompt: u32,
    /// `None`: the process ended before the request did.
    pub end: Option<CallEnd>,
}

/// The end of a request: the event, the recovery plan and the use of the reply.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEnd {
    pub event: Event,
    /// The recovery plan. `None`: the event needed none.
    pub plan: Option<RecoveryPlan>,
    /// The decision whether the reply entered the conversation, became a summary or was dropped.
    pub reply: ReplyDisposition,
    /// Duration of the request on the run's own clock.
    pub took: Duration,
    /// Number of the turn that the reply became, if it became one.
    pub turn: Option<u32>,
    /// Usage that was recorded with its cost, if any was.
    pub usage: Option<Usage>,
    /// The summary that replaced a part of the conversation.
    pub summary: Option<String>,
    /// Context window that the service named in its refusal, in tokens.
    pub window: Option<u64>,
}

/// Facts about the history at the end of a request that the transition does not contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallContext {
    pub(super) at: Option<Timestamp>,
    pub(super) prompt: u32,
    /// The number of the last turn.
    pub(super) turns: u32,
    pub(super) usage: Option<Usage>,
}

/// Collects the requests of a session, one transition at a time.
#[derive(Debug, Default)]
pub(super) struct CallLog {
    calls: Vec<CallRecord>,
    /// Start of the request in progress, on the run's own clock. `None`: there is none.
    sent: Option<Moment>,
    summary: Option<String>,
    window: Option<u64>,
}

impl CallLog {
    /// Stores the summary at the beginning of the new conversation, if there is one.
    pub(super) fn rewritten(&mut self, messages: &[Message]) {
        self.summary = messages.first().and_then(compaction::summary_of);
    }

    /// Stores the context window that the service named in its refusal.
    pub(super) fn window(&mut self, tokens: u64) {
        self.window = Some(tokens);
    }

    /// Leaves the request in progress without an end, because the process ended.
    pub(super) fn interrupt(&mut self) {
        self.sent = None;
    }

    pub(super) fn step(&mut self, step: &Transition, context: CallContext) {
        let (summary, window) = (self.summary.take(), self.window.take());
        if let Some(sent) = self.sent.take()
            && let Some(record) = self.calls.last_mut()
        {
            let reply = step.edit.reply;
            record.end = Some(CallEnd {
                event: step.event,
                plan: step.plan,
                reply,
                took: sent.until(step.at),
                turn: (reply == ReplyDisposition::Keep).then_some(context.turns),
                usage: context.usage,
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
