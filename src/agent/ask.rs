//! Model calls: sends one request and returns either a reply or a fault.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::hooks::HookEvent;
use crate::model::{
    EndWords, ModelReply, Reasoning, RequestContent, StopKind, StreamProgress, classify_reply,
};
use crate::recovery::{
    CallPurpose, Event, Failure, FailureStage, Fault, FaultKind, Incomplete, ModelCall, Moment,
    ReplyKind, SUMMARISE,
};
use crate::transcript::Message;

use super::emitted_blocks::EmittedBlocks;
use super::hook_runner::HookRunner;
use super::housekeeping::Housekeeping;
use super::model_caller::{ClassifiedFault, FixedContent};
use super::run_event::{RunEvent, WaitingFor};
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::tool_runner::ToolRunner;
use super::world::RunWorld;

/// The warning that citations were left out.
const UNEVEN_CITATIONS: &str = "no citations are asked for: a request has them for all documents or \
                                for none, and the conversation has a document without";

/// The outcome of a call.
enum AttemptOutcome {
    Answered(Box<ModelReply>),
    Failed(Box<Fault>),
    Cut(CancelReason),
}

/// The next progress of a call, or its end.
enum AfterAttempt {
    Step(StreamProgress),
    Over(Result<ModelReply, Box<Fault>>),
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
    pub(super) async fn ask(&mut self, ask: ModelCall) -> Event {
        let endpoint = self.caller.endpoint_at(ask.model_index);
        let ask = self.streamed_arguments.adapt(ask, &self.limits, endpoint);
        match self.caller.shared_limit_until(&ask, &mut self.monitor).await {
            Ok(None) => {}
            Ok(Some(until)) => return Event::SharedLimitMet { until },
            Err(cut) => return cut.into(),
        }
        self.context_view().leave_out_refused_images();
        if self.conversation.level_citations() {
            self.monitor.emit(&RunEvent::Warning(UNEVEN_CITATIONS.to_owned()));
        }
        let repairs = self.conversation.repair_history(&mut self.journal, &mut self.monitor);
        self.caller.accounting.record_repairs(repairs);
        let worst_case = self.context_view().worst_case(&ask);
        if !self.caller.accounting.reserve(worst_case) {
            return self.internal_error("the budget changed between weighing a call and making it");
        }
        if let CallPurpose::Summary(trigger) = ask.purpose
            && let Err(event) = self.before_compaction(trigger).await
        {
            self.caller.settle_broken(&mut self.journal, &mut self.monitor);
            return event;
        }
        let began = self.monitor.now();
        let end = self.call(ask).await;
        self.caller.accounting.record_request_time(began.until(self.monitor.now()));
        match end {
            AttemptOutcome::Answered(answer) => self.handle_answer(*answer, &ask).await,
            AttemptOutcome::Failed(fault) => self.handle_fault(*fault, &ask).await,
            AttemptOutcome::Cut(cut) => {
                self.drop_reply();
                self.caller.settle_broken(&mut self.journal, &mut self.monitor);
                cut.into()
            }
        }
    }

    async fn call(&mut self, ask: ModelCall) -> AttemptOutcome {
        let progress = self.caller.progress();
        let endpoint = self.caller.endpoint_at(ask.model_index).clone();
        let summary =
            (ask.purpose != CallPurpose::Reply).then(|| self.context_view().summary_messages());
        let reasoning = self.caller.reasoning_for(&endpoint, &self.conversation);
        let (messages, emitted) = self.conversation.streaming();
        let fixed = self.caller.fixed();
        let model = endpoint.facts.name.as_str();
        // Not every model of the chain has fast mode.
        let fast = ask.fast && endpoint.facts.fast.is_some();
        let prompt = if let Some(messages) = &summary {
            summary_prompt(model, messages, fast)
        } else {
            let FixedContent { system, tools, search } = &*fixed;
            let (search, source) = (search.as_ref(), self.context.source.as_deref());
            let messages = &messages;
            RequestContent { model, system, tools, messages, reasoning, search, fast, source }
        };
        let (sender, mut steps) = mpsc::unbounded_channel();
        // The receiver is gone once the call was cut; the step is not needed then.
        let mut send = move |step| drop(sender.send(step));
        let call = endpoint.client.attempt(&prompt, &ask, &mut send);
        tokio::pin!(call);
        let mut timer = self.monitor.begin();
        let (mut is_sent, mut last_byte): (bool, Option<Moment>) = (false, None);
        // A summary is not part of the conversation, so it is not streamed to the observer.
        let streams = self.caller.streams_events() && ask.purpose == CallPurpose::Reply;
        let end = loop {
            let show = |monitor: &mut RunMonitor<'_>, timer: &WaitTimer| {
                let silence = last_byte.map(|then| then.until(monitor.now()));
                let waiting_for = if is_sent {
                    WaitingFor::Model(endpoint.label.clone())
                } else {
                    WaitingFor::Credentials
                };
                monitor.emit_heartbeat(timer, waiting_for, progress, silence);
            };
            let next = next_step(&mut steps, call.as_mut());
            match self.monitor.wait_for(&mut timer, show, next).await {
                Ok(AfterAttempt::Step(StreamProgress::Sending)) => is_sent = true,
                Ok(AfterAttempt::Step(step)) => {
                    last_byte = Some(self.monitor.now());
                    let housekeeping = &self.context.deps.housekeeping;
                    start_early_work(&step, &mut self.tools, &self.hooks, housekeeping);
                    self.caller.record_progress(&step);
                    if streams {
                        forward_progress(step, emitted, &messages, &mut self.monitor);
                    }
                }
                Ok(AfterAttempt::Over(result)) => break result.into(),
                Err(cut @ (CancelReason::Interrupt(_) | CancelReason::Denial)) => {
                    break AttemptOutcome::Cut(cut);
                }
                // A complete answer is kept even if the deadline was noticed first.
                Err(cut @ CancelReason::Deadline) => {
                    break tokio::select! {
                        biased;
                        result = &mut call => result.into(),
                        () = std::future::ready(()) => AttemptOutcome::Cut(cut),
                    };
                }
            }
        };
        // A reply that arrives at once may overtake its own progress events.
        while let Ok(step) = steps.try_recv() {
            self.caller.record_progress(&step);
            if streams {
                forward_progress(step, emitted, &messages, &mut self.monitor);
            }
        }
        end
    }

    async fn handle_answer(&mut self, mut answer: ModelReply, ask: &ModelCall) -> Event {
        self.caller.record_reply(&mut answer, &mut self.journal, &mut self.monitor);
        if StopKind::classify(&answer.stop_reason) == StopKind::ContextLimit {
            let message = "the context window was full before the reply ended".to_owned();
            let kind = FaultKind::Refused {
                status: 200,
                label: "exceed_context_size_error".to_owned(),
                code: String::new(),
                message,
            };
            return self.handle_fault(Fault::new(kind, FailureStage::Block), ask).await;
        }
        let end_words = if self.limits.strict_stop_reasons {
            EndWords::OfMessagesApi
        } else {
            EndWords::OfAnyApi
        };
        let reply = classify_reply(&answer, end_words);
        if ask.purpose == CallPurpose::Reply {
            self.conversation.remove_omitted(&mut self.journal);
        }
        let reply = match ask.purpose {
            CallPurpose::Reply => self.check_final_reply(&answer, reply),
            CallPurpose::Summary(_) => self.check_summary(&answer, reply),
        };
        if let ReplyKind::Incomplete(why) = reply {
            let fault = ClassifiedFault::new(incomplete_reply_fault(&answer, why));
            self.caller.keep_fault(fault, self.monitor.clock());
        }
        if matches!(ask.purpose, CallPurpose::Summary(_)) {
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

    async fn handle_fault(&mut self, fault: Fault, ask: &ModelCall) -> Event {
        self.drop_reply();
        self.caller.settle_broken(&mut self.journal, &mut self.monitor);
        let fault = ClassifiedFault::new(fault);
        if fault.fault.is_filtered_output() {
            // It is of the reply, although it came as a refusal.
            self.caller.keep_fault(fault, self.monitor.clock());
            return Event::Replied(ReplyKind::Incomplete(Incomplete::Filtered));
        }
        let mut view = self.context_view();
        let contradicted = view.contradicts(&fault, ask);
        if !contradicted {
            view.learn_from_overflow(&fault, ask);
        }
        view.learn_output_limit(&fault.fault, ask);
        let mitigations = view.mitigations(&fault.fault, ask);
        let endpoint_status = self.caller.endpoint().client.endpoint_status();
        let failure = Failure { mitigations, endpoint_status, contradicted, ..fault.failure };
        self.caller.keep_fault(fault, self.monitor.clock());
        self.caller.share_rate_limit(failure, &mut self.monitor).await;
        Event::Failed(failure)
    }

    pub(super) fn internal_error(&mut self, what: &str) -> Event {
        self.broken = Some(what.to_owned());
        Event::InternalError
    }
}

/// Waits for the next progress event or the end of a call. Cancel-safe.
async fn next_step(
    steps: &mut mpsc::UnboundedReceiver<StreamProgress>,
    call: Pin<&mut impl Future<Output = Result<ModelReply, Box<Fault>>>>,
) -> AfterAttempt {
    tokio::select! {
        biased;
        Some(step) = steps.recv() => AfterAttempt::Step(step),
        result = call => AfterAttempt::Over(result),
    }
}

pub(super) fn summary_prompt<'a>(
    model: &'a str,
    messages: &'a [Message],
    fast: bool,
) -> RequestContent<'a> {
    RequestContent {
        model,
        system: SUMMARISE.system,
        tools: &[],
        messages,
        reasoning: Reasoning::LEAST,
        search: None,
        fast,
        source: None,
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

/// Starts work while a reply arrives: read-only calls, the preparation for commands, and the
/// housekeeping.
fn start_early_work(
    step: &StreamProgress,
    tools: &mut ToolRunner,
    hooks: &HookRunner,
    housekeeping: &Housekeeping,
) {
    if matches!(step, StreamProgress::Accepted(_)) {
        // Not before: nothing should delay the first request.
        tools.start_supervisor();
        housekeeping.begin();
    } else if let StreamProgress::Block { block, .. } = step
        && !hooks.listen_to(HookEvent::PreToolUse)
    {
        // No tool starts before its PreToolUse hooks have run.
        tools.start_early(block);
    }
}

/// Forwards the progress of a reply: a completed block before the event that ends it.
fn forward_progress(
    step: StreamProgress,
    emitted: &mut EmittedBlocks,
    messages: &[Message],
    monitor: &mut RunMonitor<'_>,
) {
    match step {
        StreamProgress::Block { block, .. } => {
            if let Some((block, id)) = emitted.add(&block, messages) {
                monitor.emit(&RunEvent::Block { block, id });
            }
        }
        StreamProgress::Event(event) => monitor.emit(&RunEvent::StreamEvent(event)),
        StreamProgress::Sending
        | StreamProgress::Received(_)
        | StreamProgress::Accepted(_)
        | StreamProgress::Bytes(_) => {}
    }
}
