//! Model calls: sends one request and returns either a reply or a fault.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::hooks::HookEvent;
use crate::model::{
    EndWords, ModelReply, Reasoning, RequestContent, SerializedParts, StopKind, StreamProgress,
    classify_reply,
};
use crate::recovery::{
    CallPurpose, Event, FailureStage, Fault, FaultKind, Incomplete, ModelCall, Moment, ReplyKind,
    SUMMARISE,
};
use crate::transcript::Message;

use super::emitted_blocks::EmittedBlocks;
use super::housekeeping::Housekeeping;
use super::model_caller::ModelCaller;
use super::run_event::{Heartbeat, RunEvent};
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::tool_runner::ToolRunner;
use super::waiting_for::WaitingFor;
use super::world::{InternalError, RunWorld};

/// The warning that citations were left out.
const UNEVEN_CITATIONS: &str = "no citations are asked for: a request has them for all documents or \
                                for none, and the conversation has a document without";

/// The outcome of an attempt.
enum AttemptOutcome {
    Answered(Box<ModelReply>),
    Failed(Box<Fault>),
    Cut(CancelReason),
}

/// The next progress of an attempt, or its end.
enum AttemptStep {
    Progress(StreamProgress),
    Ended(Result<ModelReply, Box<Fault>>),
}

impl From<Result<ModelReply, Box<Fault>>> for AttemptOutcome {
    fn from(result: Result<ModelReply, Box<Fault>>) -> Self {
        match result {
            Ok(answer) => Self::Answered(Box::new(answer)),
            Err(fault) => Self::Failed(fault),
        }
    }
}

impl RunWorld<'_> {
    /// Sends one request.
    ///
    /// # Errors
    /// The event that comes instead: the run was cut off, or a hook prevents the request.
    pub(super) async fn ask(&mut self, call: ModelCall) -> Result<Event, Event> {
        if let Some(until) = self.caller.shared_limit_until(&call, &mut self.monitor).await? {
            return Ok(Event::SharedLimitMet { until });
        }
        self.context_view().leave_out_refused_images();
        if self.conversation.level_citations() {
            self.monitor.emit(&RunEvent::Warning(UNEVEN_CITATIONS.to_owned()));
        }
        let repairs = self.conversation.repair_history(&mut self.journal, &mut self.monitor);
        self.caller.accounting.record_repairs(repairs);
        let worst_case = self.context_view().worst_case(&call);
        if !self.caller.accounting.reserve(worst_case) {
            return Ok(self.internal_error(InternalError::BudgetChanged));
        }
        if let CallPurpose::Summary(trigger) = call.purpose
            && let Err(event) = self.before_compaction(trigger).await
        {
            self.caller.settle_broken(&mut self.journal, &mut self.monitor);
            return Err(event);
        }
        let began = self.monitor.now();
        let outcome = self.attempt(call).await;
        self.caller.accounting.record_request_time(began.until(self.monitor.now()));
        match outcome {
            AttemptOutcome::Answered(answer) => Ok(self.handle_answer(*answer, &call).await),
            AttemptOutcome::Failed(fault) => Ok(self.handle_fault(*fault, &call).await),
            AttemptOutcome::Cut(cut) => {
                self.drop_reply();
                self.caller.settle_broken(&mut self.journal, &mut self.monitor);
                Err(cut.into())
            }
        }
    }

    /// Sends a request until its reply is complete, it fails, or the run is cut off.
    async fn attempt(&mut self, call: ModelCall) -> AttemptOutcome {
        let endpoint = self.caller.endpoint_at(call.model_index).clone();
        let is_reply = call.purpose == CallPurpose::Reply;
        let summary = (!is_reply).then(|| self.context_view().summary_messages());
        let reasoning = self.caller.reasoning_for(&endpoint, &self.conversation);
        let (progress, fixed) = (self.caller.progress(), self.caller.fixed());
        let (messages, serialized, emitted) = self.conversation.streaming();
        let model = endpoint.facts.name.as_str();
        // Not every model of the chain has fast mode.
        let fast = call.fast && endpoint.facts.fast.is_some();
        let content = if let Some(messages) = &summary {
            RequestContent { fast, ..summary_content(model, messages) }
        } else {
            let content = fixed.content(model, &messages, reasoning);
            RequestContent {
                search: fixed.search.as_ref(),
                fast,
                source: self.context.source.as_deref(),
                serialized: SerializedParts { messages: serialized, ..content.serialized },
                ..content
            }
        };
        let (sender, mut steps) = mpsc::unbounded_channel();
        // The receiver is gone once the call was cut; the step is not needed then.
        let mut send = move |step| drop(sender.send(step));
        let attempt = endpoint.client.attempt(&content, &call, &mut send);
        tokio::pin!(attempt);
        // A summary is not part of the conversation, so it is not streamed to the observer.
        let streams = self.caller.streams_events() && is_reply;
        let mut receiver = ProgressReceiver {
            stream: streams.then_some((emitted, &*messages)),
            caller: &mut self.caller,
            tools: &mut self.tools,
            starts_tools: is_reply && !self.hooks.listen_to(HookEvent::PreToolUse),
            housekeeping: &self.context.deps.housekeeping,
            monitor: &mut self.monitor,
            is_sent: false,
            last_byte: None,
            is_discarded: false,
        };
        let mut timer = receiver.monitor.begin();
        let outcome = loop {
            let (is_sent, last_byte) = (receiver.is_sent, receiver.last_byte);
            let heartbeat = |monitor: &RunMonitor<'_>, timer: &WaitTimer| {
                let since_last_byte = last_byte.map(|then| then.until(monitor.now()));
                let waiting_for = if is_sent {
                    WaitingFor::Model(endpoint.label.clone())
                } else {
                    WaitingFor::Credentials
                };
                let heartbeat = monitor.heartbeat(timer, waiting_for, progress);
                Some(Heartbeat { since_last_byte, ..heartbeat })
            };
            let next = next_step(&mut steps, attempt.as_mut());
            match receiver.monitor.wait_for(&mut timer, heartbeat, next).await {
                Ok(AttemptStep::Progress(progress)) => receiver.receive(progress),
                Ok(AttemptStep::Ended(result)) => break result.into(),
                // A complete answer is kept even if the deadline was noticed first.
                Err(cut @ CancelReason::Deadline) => {
                    let ended = attempt.as_mut().now_or_never();
                    break ended.map_or(AttemptOutcome::Cut(cut), AttemptOutcome::from);
                }
                Err(cut) => break AttemptOutcome::Cut(cut),
            }
        };
        receiver.is_discarded = !matches!(outcome, AttemptOutcome::Answered(_));
        // A reply that arrives at once may overtake its own progress events.
        while let Ok(progress) = steps.try_recv() {
            receiver.receive(progress);
        }
        outcome
    }

    async fn handle_answer(&mut self, mut answer: ModelReply, call: &ModelCall) -> Event {
        self.caller.record_reply(&mut answer, &mut self.journal, &mut self.monitor);
        if StopKind::classify(&answer.stop_reason) == StopKind::ContextLimit {
            let message = "the context window was full before the reply ended".to_owned();
            let kind = FaultKind::Refused {
                status: 200,
                label: "exceed_context_size_error".to_owned(),
                code: String::new(),
                message,
            };
            return self.handle_fault(Fault::new(kind, FailureStage::Block), call).await;
        }
        let end_words = if self.limits.strict_stop_reasons {
            EndWords::OfMessagesApi
        } else {
            EndWords::OfAnyApi
        };
        let reply = classify_reply(&answer, end_words);
        let reply = match call.purpose {
            CallPurpose::Reply => {
                self.conversation.remove_omitted(&mut self.journal);
                self.check_final_reply(&mut answer, reply)
            }
            CallPurpose::Summary(_) => self.check_summary(&answer, reply),
        };
        if let ReplyKind::Incomplete(why) = reply {
            let fault = self.caller.classified(incomplete_reply_fault(&answer, why));
            self.caller.keep_fault(fault, self.monitor.clock());
        }
        if matches!(call.purpose, CallPurpose::Summary(_)) {
            let toolbox = Arc::clone(self.tools.toolbox());
            self.context_view().hold_summary(answer, &toolbox).await;
            return Event::Replied(reply);
        }
        for (from, to) in self.conversation.rename_repeated_calls(&mut answer) {
            self.tools.early.rename(&from, &to);
        }
        self.conversation.hold_reply(answer);
        self.tools.check_background_work(Event::Replied(reply))
    }

    async fn handle_fault(&mut self, fault: Fault, call: &ModelCall) -> Event {
        self.drop_reply();
        self.caller.settle_broken(&mut self.journal, &mut self.monitor);
        let mut fault = self.caller.classified(fault);
        if fault.fault.is_filtered_output() {
            // The filter stopped the reply, though the service reported it as a refusal.
            self.caller.keep_fault(fault, self.monitor.clock());
            return Event::Replied(ReplyKind::Incomplete(Incomplete::Filtered));
        }
        let mut view = self.context_view();
        fault.failure.contradicted = view.contradicts(&fault, call);
        if !fault.failure.contradicted {
            view.learn_from_overflow(&fault, call);
        }
        view.learn_output_limit(&fault, call);
        fault.failure.mitigations = view.mitigations(&fault, call);
        let failure = self.caller.keep_fault(fault, self.monitor.clock());
        self.caller.share_rate_limit(failure, &mut self.monitor).await;
        Event::Failed(failure)
    }

    pub(super) fn internal_error(&mut self, error: InternalError) -> Event {
        self.broken = Some(error);
        Event::InternalError
    }
}

/// Waits for the next progress or the end of an attempt. Cancel-safe.
async fn next_step(
    steps: &mut mpsc::UnboundedReceiver<StreamProgress>,
    attempt: Pin<&mut impl Future<Output = Result<ModelReply, Box<Fault>>>>,
) -> AttemptStep {
    tokio::select! {
        biased;
        Some(progress) = steps.recv() => AttemptStep::Progress(progress),
        result = attempt => AttemptStep::Ended(result),
    }
}

/// Returns the content of a request for a summary.
pub(super) fn summary_content<'a>(model: &'a str, messages: &'a [Message]) -> RequestContent<'a> {
    RequestContent {
        model,
        system: SUMMARISE.system,
        messages,
        reasoning: Reasoning::LEAST,
        ..RequestContent::default()
    }
}

/// Builds the fault that a run reports when it ends because of an incomplete reply.
fn incomplete_reply_fault(answer: &ModelReply, why: Incomplete) -> Fault {
    let reason: String = answer.stop_reason.chars().take(LONGEST_REASON).collect();
    let meaning = match why {
        Incomplete::MissingCall => "but no tool call came",
        Incomplete::CallInText => "with a tool call as plain text, which was not run",
        Incomplete::Filtered => "so a content filter stopped it",
        Incomplete::BrokenOff => "so it broke off",
        Incomplete::UnknownReason => "which is not the end of a reply in the Messages API",
    };
    let detail = format!("the reply ended with the stop reason `{reason}`, {meaning}");
    let mut fault = Fault::new(FaultKind::InvalidContent { detail }, FailureStage::Block);
    fault.request_id.clone_from(&answer.request_id);
    fault
}

/// The maximum length of a stop reason in a message, in characters.
const LONGEST_REASON: usize = 60;

/// Receives the progress of an attempt: counts it, starts early work, and reports it.
struct ProgressReceiver<'a, 'm> {
    caller: &'a mut ModelCaller,
    tools: &'a mut ToolRunner,
    /// False if hooks have to run before each tool, or for a summary, whose calls are not run.
    starts_tools: bool,
    housekeeping: &'a Housekeeping,
    monitor: &'a mut RunMonitor<'m>,
    /// The blocks that were reported and the history, if the reply is streamed to the observer.
    stream: Option<(&'a mut EmittedBlocks, &'a [Message])>,
    is_sent: bool,
    last_byte: Option<Moment>,
    /// True if the reply is not used, so that no more work is started.
    is_discarded: bool,
}

impl ProgressReceiver<'_, '_> {
    fn receive(&mut self, progress: StreamProgress) {
        if matches!(progress, StreamProgress::Sending) {
            self.is_sent = true;
            self.monitor.emit(&RunEvent::RequestSent);
            return;
        }
        self.last_byte = Some(self.monitor.now());
        self.caller.record_progress(&progress);
        match progress {
            StreamProgress::Accepted(_) if !self.is_discarded => {
                // Not before: nothing should delay the first request.
                self.housekeeping.begin();
            }
            // Emitted before the event that ends the block.
            StreamProgress::Block { block, .. } => {
                if self.starts_tools && !self.is_discarded {
                    self.tools.start_early(&block);
                }
                let emitted = self.stream.as_mut();
                if let Some((block, id)) = emitted.and_then(|(known, all)| known.add(&block, all)) {
                    self.monitor.emit(&RunEvent::Block { block, id });
                }
            }
            StreamProgress::Event(event) => {
                if begins_tool_call(&event) && !self.is_discarded {
                    self.tools.start_supervisor();
                }
                if self.stream.is_some() {
                    self.monitor.emit(&RunEvent::StreamEvent(event));
                }
            }
            StreamProgress::Accepted(_)
            | StreamProgress::Sending
            | StreamProgress::Received(_)
            | StreamProgress::Bytes(_) => {}
        }
    }
}

/// Returns true if a tool call begins with this event of a stream: its input takes longer to arrive
/// than the supervisor of commands takes to start.
fn begins_tool_call(event: &Value) -> bool {
    event["type"] == "content_block_start" && event["content_block"]["type"] == "tool_use"
}
