//! Model calls: sends one request and returns either a reply or a fault.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::hooks::HookEvent;
use crate::model::limits::SharedLimits;
use crate::model::{ModelReply, Renewal, RequestContent, StopKind, StreamProgress, classify_reply};
use crate::recovery::{
    CallPurpose, ErrorClass, Event, Failure, FailureStage, Fault, FaultKind, Incomplete, ModelCall,
    Moment, Money, ReplyKind, SUMMARISE, classify,
};
use crate::transcript::{
    Block, History, Message, Usage, history_violations, lacks_thinking, repair, violations,
};

use super::accounting::CallCost;
use super::conversation::knows_call;
use super::emitted_blocks::ToldBlocks;
use super::run_event::{RunEvent, WaitingFor};
use super::run_monitor::{CancelReason, RunMonitor, WaitTimer};
use super::session::Session;
use super::setup::ModelEndpoint;
use super::sharing::accepted;

/// How a call ended.
enum AttemptOutcome {
    Answered(Box<ModelReply>),
    Failed(Box<Fault>),
    Cut(CancelReason),
}

/// What happens next during a call.
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

impl Session<'_> {
    pub(super) async fn ask(&mut self, ask: ModelCall) -> Event {
        match self.shared_limit_until(&ask).await {
            Ok(None) => {}
            Ok(Some(until)) => return Event::SharedLimitMet { until },
            Err(cut) => return cut.into(),
        }
        self.repair_history();
        let worst_case = self.worst_case(&ask);
        if !self.accounting.reserve(worst_case) {
            return self.internal_error("the budget changed between weighing a call and making it");
        }
        if let CallPurpose::Summary(occasion) = ask.purpose
            && let Err(event) = self.before_compaction(occasion).await
        {
            self.accounting.settle_broken();
            return event;
        }
        let began = self.watch.clock.now();
        let end = self.call(ask).await;
        self.redact_new_secrets();
        self.accounting.tally.api_duration += began.until(self.watch.clock.now());
        match end {
            AttemptOutcome::Answered(answer) => self.handle_answer(*answer, &ask).await,
            AttemptOutcome::Failed(fault) => self.handle_fault(*fault, &ask).await,
            AttemptOutcome::Cut(cut) => {
                self.early.discard();
                self.drop_emitted_blocks();
                self.settle_broken();
                cut.into()
            }
        }
    }

    /// Repairs the history before a request. A violation of the message rules is a bug of outlast:
    /// it is repaired, counted and reported.
    fn repair_history(&mut self) {
        let messages = self.history.messages();
        let faults = if self.paused { history_violations(messages) } else { violations(messages) };
        if faults.is_empty() {
            return;
        }
        let repairs = self.history.edit(|messages| {
            let (mended, repairs) = repair(std::mem::take(messages));
            *messages = mended;
            repairs
        });
        self.journal.repairs(&repairs);
        self.accounting.tally.repairs += u32::try_from(repairs.len()).unwrap_or(u32::MAX);
        let changes: Vec<String> = repairs.iter().map(ToString::to_string).collect();
        let changes = changes.join("; ");
        let warning = format!("repaired the conversation before sending it: {changes}");
        self.watch.emit(RunEvent::Warning(warning));
    }

    /// The thinking budget for the next reply.
    pub(super) fn thinking_for(&self, rung: &ModelEndpoint) -> Option<u32> {
        let bare = self.thinking_stripped
            && rung.facts.requires_prior_thinking()
            && lacks_thinking(self.history.messages());
        self.thinking.filter(|_| !bare)
    }

    async fn call(&mut self, ask: ModelCall) -> AttemptOutcome {
        let figures = self.progress();
        let rung = self.endpoint_at(ask.rung).clone();
        let summary = (ask.purpose != CallPurpose::Reply).then(|| self.summary_messages());
        let (thinking, model) = (self.thinking_for(&rung), rung.facts.name.as_str());
        // Not every model of the chain has fast mode.
        let fast = ask.fast && rung.facts.fast.is_some();
        let prompt = if let Some(messages) = &summary {
            summary_prompt(model, messages, fast)
        } else {
            let (system, tools) = (self.system.as_str(), self.definitions.as_slice());
            let (messages, source) =
                (self.history.messages(), self.agent_context.source.as_deref());
            RequestContent { model, system, tools, messages, thinking, fast, source }
        };
        let (sender, mut progress) = mpsc::unbounded_channel();
        // The receiver is gone once the call was cut; the step is not needed then.
        let mut send = move |step| drop(sender.send(step));
        let call = rung.client.attempt(&prompt, &ask, &mut send);
        tokio::pin!(call);
        let mut vigil = self.watch.begin();
        let mut last_byte: Option<Moment> = None;
        // No tool starts before its PreToolUse hooks have run.
        let guarded = self.hook_state.listen_to(HookEvent::PreToolUse);
        // A summary is not part of the conversation, so it is not streamed to the observer.
        let streams = self.stream_events && ask.purpose == CallPurpose::Reply;
        let end = loop {
            let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
                let silence = last_byte.map(|then| then.until(watch.clock.now()));
                watch.emit_heartbeat(
                    vigil,
                    WaitingFor::Model(rung.label.clone()),
                    figures,
                    silence,
                );
            };
            let next = next_step(&mut progress, call.as_mut());
            match self.watch.wait_for(&mut vigil, show, next).await {
                Ok(AfterAttempt::Step(step)) => {
                    last_byte = Some(self.watch.clock.now());
                    if let (StreamProgress::Block { block, .. }, false) = (&step, guarded) {
                        self.early.consider(block, &self.toolbox);
                    }
                    if let StreamProgress::Received(received) = step {
                        self.accounting.receive(received);
                    }
                    if streams {
                        emit_block(&step, &mut self.emitted_blocks, &self.history, &mut self.watch);
                    }
                    forward_progress(step, streams, &mut self.watch, &mut self.shared);
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
        while let Ok(step) = progress.try_recv() {
            if let StreamProgress::Received(received) = step {
                self.accounting.receive(received);
            }
            if streams {
                emit_block(&step, &mut self.emitted_blocks, &self.history, &mut self.watch);
            }
            forward_progress(step, streams, &mut self.watch, &mut self.shared);
        }
        end
    }

    async fn handle_answer(&mut self, mut answer: ModelReply, ask: &ModelCall) -> Event {
        // Earlier failures are overcome and must not explain a later end.
        self.fault = None;
        let label = self.endpoint().label.clone();
        self.settle_call(&label, &mut answer);
        let first_token = answer.first_token.map(|real| self.watch.clock.scaled(real));
        self.accounting.tally.first_token = self.accounting.tally.first_token.or(first_token);
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
        let reply = classify_reply(&answer);
        if let ReplyKind::Incomplete(why) = reply {
            self.keep_fault(incomplete_reply_fault(&answer, why));
        }
        if matches!(ask.purpose, CallPurpose::Summary(_)) {
            self.hold_summary(answer).await;
            return Event::Replied(reply);
        }
        self.rename_repeated_calls(&mut answer);
        self.pending = Some(answer);
        self.check_background_work(Event::Replied(reply))
    }

    /// Renames tool calls whose id was used before. Some servers restart their numbering with each
    /// reply, but the API requires unique ids.
    fn rename_repeated_calls(&mut self, answer: &mut ModelReply) {
        for block in &mut answer.content {
            let Block::ToolUse { id, .. } = block else { continue };
            if knows_call(self.history.messages(), id) {
                let fresh = self.emitted_blocks.new_name(id);
                self.early.rename(id, &fresh);
                for call in answer.malformed.iter_mut().filter(|call| call.id == *id) {
                    call.id.clone_from(&fresh);
                }
                *id = fresh;
            }
        }
    }

    async fn handle_fault(&mut self, fault: Fault, ask: &ModelCall) -> Event {
        self.early.discard();
        self.drop_emitted_blocks();
        self.settle_broken();
        let contradicted = self.is_implausible_overflow(&fault, ask);
        if !contradicted {
            self.learn_window(&fault, ask.purpose);
        }
        let (remedies, standing) =
            (self.mitigations(&fault, ask), self.endpoint().client.standing());
        let failure = Failure { mitigations: remedies, standing, contradicted, ..classify(&fault) };
        self.keep_fault(fault);
        self.share_rate_limit(failure).await;
        Event::Failed(failure)
    }

    /// Records the fault that the run reports if it ends because of it, and when the service
    /// accepts requests again. That time counts from now, however long the end takes.
    pub(super) fn keep_fault(&mut self, fault: Fault) {
        let now = self.watch.clock.unix_seconds();
        let wish = classify(&fault).retry_after;
        self.retry_at = wish.map(|wish| now.saturating_add(wish.wait.as_secs()));
        self.fault = Some(fault);
    }

    /// Charges what the reply cost, in the journal too. Impossible token counts are cut first, so
    /// that nothing else uses them.
    pub(super) fn settle_call(&mut self, label: &str, answer: &mut ModelReply) {
        let cost = self.accounting.settle(answer);
        if let CallCost::Whole(settled) = cost {
            answer.usage = settled.usage;
        }
        self.note_cost(label, cost);
    }

    /// Charges what a call without an answer received, in the journal too.
    fn settle_broken(&mut self) {
        let cost = self.accounting.settle_broken();
        let label = self.endpoint().label.clone();
        self.note_cost(&label, cost);
    }

    fn note_cost(&mut self, label: &str, cost: CallCost) {
        match cost {
            CallCost::Nothing => {}
            CallCost::Whole(settled) => {
                self.journal.spend(settled.counted, &settled.usage, label);
                if settled.uncounted > Money::ZERO {
                    self.journal.spend_upper_bound(
                        Some(settled.uncounted),
                        &Usage::default(),
                        label,
                    );
                }
            }
            CallCost::Broken(settled) => {
                self.journal.spend_upper_bound(settled.total(), &settled.usage, label);
            }
        }
        for remark in self.accounting.remarks(&cost, label) {
            self.watch.emit(RunEvent::Warning(remark));
        }
    }

    pub(super) async fn refresh(&mut self) -> Event {
        let mut vigil = self.watch.begin();
        let figures = self.progress();
        let client = Arc::clone(&self.endpoint().client);
        let refreshing = client.refresh();
        let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
            watch.emit_heartbeat(vigil, WaitingFor::Model("credentials".to_owned()), figures, None);
        };
        let renewal = match self.watch.wait_for(&mut vigil, show, refreshing).await {
            Ok(renewal) => renewal,
            Err(cut) => return cut.into(),
        };
        self.redact_new_secrets();
        // The run keeps reporting the rejection that led here, unless the new fault says more.
        let rejection = self.fault.as_ref().map(classify);
        let rejection = rejection.unwrap_or(Failure::of(ErrorClass::AuthError));
        let (class, body) = (rejection.class, rejection.body);
        let standing = client.standing();
        match renewal {
            Renewal::Replaced | Renewal::Confirmed => Event::Refreshed,
            Renewal::Unchanged => Event::Failed(Failure { body, standing, ..Failure::of(class) }),
            Renewal::Failed(fault) => {
                let failure = classify(&fault);
                self.keep_fault(*fault);
                // A failed credential fetch does not contradict the rejection.
                let final_too = failure.class == ErrorClass::InvalidApiKey;
                let class = if final_too { class } else { failure.class };
                Event::Failed(Failure { class, standing, ..failure })
            }
        }
    }

    pub(super) fn internal_error(&mut self, what: &str) -> Event {
        self.broken = Some(what.to_owned());
        Event::InternalError
    }
}

/// Waits for the next progress event or the end of a call. Cancel-safe.
async fn next_step(
    progress: &mut mpsc::UnboundedReceiver<StreamProgress>,
    call: Pin<&mut impl Future<Output = Result<ModelReply, Box<Fault>>>>,
) -> AfterAttempt {
    tokio::select! {
        biased;
        Some(step) = progress.recv() => AfterAttempt::Step(step),
        result = call => AfterAttempt::Over(result),
    }
}

fn summary_prompt<'a>(model: &'a str, messages: &'a [Message], fast: bool) -> RequestContent<'a> {
    RequestContent {
        model,
        system: SUMMARISE.system,
        tools: &[],
        messages,
        thinking: None,
        fast,
        source: None,
    }
}

/// Builds the fault that a run reports when it ends because of an incomplete reply.
fn incomplete_reply_fault(answer: &ModelReply, why: Incomplete) -> Fault {
    let reason: String = answer.stop_reason.chars().take(LONGEST_REASON).collect();
    let meaning = match why {
        Incomplete::MissingCall => "but no tool call came",
        Incomplete::Filtered => "so a content filter stopped it",
        Incomplete::BrokenOff => "so it broke off",
        Incomplete::UnknownReason => "which is not the end of a reply in the Messages API",
    };
    let detail = format!("the reply ended with the stop reason `{reason}`, {meaning}");
    let mut fault = Fault::new(FaultKind::InvalidContent { detail }, FailureStage::Block);
    fault.request_id.clone_from(&answer.request_id);
    fault
}

/// How much of a stop reason is shown.
const LONGEST_REASON: usize = 60;

/// Emits a completed block before the stream event that ends it.
fn emit_block(
    step: &StreamProgress,
    told: &mut ToldBlocks,
    history: &History,
    watch: &mut RunMonitor<'_>,
) {
    let StreamProgress::Block { block, .. } = step else { return };
    if let Some((block, id)) = told.add(block, history.messages()) {
        watch.emit(RunEvent::Block { block, id });
    }
}

/// Forwards the progress of a reply to the observer and to other runs on this host.
fn forward_progress(
    step: StreamProgress,
    streams: bool,
    watch: &mut RunMonitor<'_>,
    shared: &mut Option<SharedLimits>,
) {
    match step {
        StreamProgress::Event(event) if streams => watch.emit(RunEvent::StreamEvent(event)),
        StreamProgress::Accepted(limits) => accepted(shared, limits.as_ref()),
        StreamProgress::Block { .. }
        | StreamProgress::Bytes(_)
        | StreamProgress::Event(_)
        | StreamProgress::Received(_) => {}
    }
}
