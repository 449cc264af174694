//! One call to the model: a reply or a fault, never both, never neither.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::hooks::HookEvent;
use crate::model::limits::SharedLimits;
use crate::model::{ModelReply, StreamProgress, RequestContent, Renewal, StopKind, reply_of};
use crate::recovery::{
    ModelCall, ErrorClass, Event, Failure, Fault, FaultKind, Incomplete, Moment, Money, CallPurpose, FailureStage,
    ReplyKind, SUMMARISE, classify,
};
use crate::transcript::{
    Block, History, Message, Usage, faults_of_a_history, lacks_thinking, repair, violations,
};

use super::books::CallCost;
use super::conversation::knows_call;
use super::observer::{RunNotice, WaitingFor};
use super::session::Session;
use super::setup::ModelEndpoint;
use super::sharing::accepted;
use super::told::ToldBlocks;
use super::watch::{CancelReason, WaitTimer, RunMonitor};

/// How a call ended.
enum AttemptOutcome {
    Answered(Box<ModelReply>),
    Failed(Box<Fault>),
    Cut(CancelReason),
}

/// What comes next of a call.
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
        match self.held(&ask).await {
            Ok(None) => {}
            Ok(Some(until)) => return Event::Held { until },
            Err(cut) => return cut.into(),
        }
        self.mend();
        let worst_case = self.worst_case(&ask);
        if !self.books.reserve(worst_case) {
            return self.broke("the budget changed between weighing a call and making it");
        }
        if let CallPurpose::Summary(occasion) = ask.purpose
            && let Err(event) = self.before_compaction(occasion).await
        {
            self.books.settle_broken();
            return event;
        }
        let began = self.watch.clock.now();
        let end = self.call(ask).await;
        self.guard();
        self.books.tally.api_duration += began.until(self.watch.clock.now());
        match end {
            AttemptOutcome::Answered(answer) => self.heard(*answer, &ask).await,
            AttemptOutcome::Failed(fault) => self.failed(*fault, &ask).await,
            AttemptOutcome::Cut(cut) => {
                self.early.discard();
                self.forget_told();
                self.settle_broken();
                cut.into()
            }
        }
    }

    /// Nothing invalid is ever sent. A violation is our own bug: it is mended, counted and said.
    fn mend(&mut self) {
        let messages = self.history.messages();
        let faults = if self.paused { faults_of_a_history(messages) } else { violations(messages) };
        if faults.is_empty() {
            return;
        }
        let repairs = self.history.edit(|messages| {
            let (mended, repairs) = repair(std::mem::take(messages));
            *messages = mended;
            repairs
        });
        self.journal.repairs(&repairs);
        self.books.tally.repairs += u32::try_from(repairs.len()).unwrap_or(u32::MAX);
        let changes: Vec<String> = repairs.iter().map(ToString::to_string).collect();
        let changes = changes.join("; ");
        let warning = format!("repaired the conversation before sending it: {changes}");
        self.watch.tell(&RunNotice::Warning(&warning));
    }

    /// The thinking budget for the next reply.
    pub(super) fn thinking_for(&self, rung: &ModelEndpoint) -> Option<u32> {
        let bare = self.thinking_stripped
            && rung.facts.misses_thinking()
            && lacks_thinking(self.history.messages());
        self.thinking.filter(|_| !bare)
    }

    async fn call(&mut self, ask: ModelCall) -> AttemptOutcome {
        let figures = self.figures();
        let rung = self.rung_at(ask.rung).clone();
        let summary = (ask.purpose != CallPurpose::Reply).then(|| self.summary_messages());
        let (thinking, model) = (self.thinking_for(&rung), rung.facts.name.as_str());
        // Not every model of the chain has fast mode.
        let fast = ask.fast && rung.facts.fast.is_some();
        let prompt = if let Some(messages) = &summary {
            summary_prompt(model, messages, fast)
        } else {
            let (system, tools) = (self.system.as_str(), self.definitions.as_slice());
            let (messages, source) = (self.history.messages(), self.kin.source.as_deref());
            RequestContent { model, system, tools, messages, thinking, fast, source }
        };
        let (sender, mut progress) = mpsc::unbounded_channel();
        // Nobody listens once the call was cut, and nothing is lost by that.
        let mut send = move |step| drop(sender.send(step));
        let call = rung.client.ask(&prompt, &ask, &mut send);
        tokio::pin!(call);
        let mut vigil = self.watch.begin();
        let mut last_byte: Option<Moment> = None;
        // Nothing runs before its hooks were asked.
        let guarded = self.counsellors.listen_to(HookEvent::PreToolUse);
        // What a summary is made of is no part of the conversation.
        let streams = self.stream_events && ask.purpose == CallPurpose::Reply;
        let end = loop {
            let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
                let silence = last_byte.map(|then| then.until(watch.clock.now()));
                watch.beat(vigil, WaitingFor::Model(&rung.label), figures, silence);
            };
            let next = next_of(&mut progress, call.as_mut());
            match self.watch.wait_for(&mut vigil, show, next).await {
                Ok(AfterAttempt::Step(step)) => {
                    last_byte = Some(self.watch.clock.now());
                    if let (StreamProgress::Block { block, .. }, false) = (&step, guarded) {
                        self.early.consider(block, &self.toolbox);
                    }
                    if let StreamProgress::Received(received) = step {
                        self.books.receive(received);
                    }
                    if streams {
                        show_block(&step, &mut self.told, &self.history, &mut self.watch);
                    }
                    pass_on(step, streams, &mut self.watch, &mut self.shared);
                }
                Ok(AfterAttempt::Over(result)) => break result.into(),
                Err(cut @ (CancelReason::Interrupt(_) | CancelReason::Denial)) => break AttemptOutcome::Cut(cut),
                // An answer that is there is not thrown away for being seen a moment late.
                Err(cut @ CancelReason::Deadline) => {
                    break tokio::select! {
                        biased;
                        result = &mut call => result.into(),
                        () = std::future::ready(()) => AttemptOutcome::Cut(cut),
                    };
                }
            }
        };
        // A reply that comes at once may be here before what was told on its way.
        while let Ok(step) = progress.try_recv() {
            if let StreamProgress::Received(received) = step {
                self.books.receive(received);
            }
            if streams {
                show_block(&step, &mut self.told, &self.history, &mut self.watch);
            }
            pass_on(step, streams, &mut self.watch, &mut self.shared);
        }
        end
    }

    async fn heard(&mut self, mut answer: ModelReply, ask: &ModelCall) -> Event {
        // What failed before was overcome: it explains nothing that comes now.
        self.fault = None;
        let label = self.rung().label.clone();
        self.settle_call(&label, &mut answer);
        let first_token = answer.first_token.map(|real| self.watch.clock.scaled(real));
        self.books.tally.first_token = self.books.tally.first_token.or(first_token);
        if StopKind::of(&answer.stop_reason) == StopKind::ContextLimit {
            let message = "the context window was full before the reply ended".to_owned();
            let kind = FaultKind::Refused {
                status: 200,
                label: "exceed_context_size_error".to_owned(),
                code: String::new(),
                message,
            };
            return self.failed(Fault::new(kind, FailureStage::Block), ask).await;
        }
        let reply = reply_of(&answer);
        if let ReplyKind::Incomplete(why) = reply {
            self.blame(incomplete(&answer, why));
        }
        if matches!(ask.purpose, CallPurpose::Summary(_)) {
            self.hold_summary(answer).await;
            return Event::Replied(reply);
        }
        self.rename_repeated_calls(&mut answer);
        self.pending = Some(answer);
        self.mind_work(Event::Replied(reply))
    }

    /// Some servers number their calls anew in each reply. The service wants an id but once.
    fn rename_repeated_calls(&mut self, answer: &mut ModelReply) {
        for block in &mut answer.content {
            let Block::ToolUse { id, .. } = block else { continue };
            if knows_call(self.history.messages(), id) {
                let fresh = self.told.new_name(id);
                self.early.rename(id, &fresh);
                for call in answer.malformed.iter_mut().filter(|call| call.id == *id) {
                    call.id.clone_from(&fresh);
                }
                *id = fresh;
            }
        }
    }

    async fn failed(&mut self, fault: Fault, ask: &ModelCall) -> Event {
        self.early.discard();
        self.forget_told();
        self.settle_broken();
        let contradicted = self.contradicts(&fault, ask);
        if !contradicted {
            self.learn_window(&fault, ask.purpose);
        }
        let (remedies, standing) = (self.remedies(&fault, ask), self.rung().client.standing());
        let failure = Failure { remedies, standing, contradicted, ..classify(&fault) };
        self.blame(fault);
        self.warn_others(failure).await;
        Event::Failed(failure)
    }

    /// Keeps what the run reports should it end of this, with when the service wants it back: that
    /// counts from now, however long the end takes.
    pub(super) fn blame(&mut self, fault: Fault) {
        let now = self.watch.clock.unix_seconds();
        let wish = classify(&fault).wish;
        self.retry_at = wish.map(|wish| now.saturating_add(wish.wait.as_secs()));
        self.fault = Some(fault);
    }

    /// Charges what the reply cost, on paper too. Nothing further learns of impossible counts.
    pub(super) fn settle_call(&mut self, label: &str, answer: &mut ModelReply) {
        let cost = self.books.settle(answer);
        if let CallCost::Whole(settled) = cost {
            answer.usage = settled.usage;
        }
        self.note_cost(label, cost);
    }

    /// Charges what a call received that brought no answer, on paper too.
    fn settle_broken(&mut self) {
        let cost = self.books.settle_broken();
        let label = self.rung().label.clone();
        self.note_cost(&label, cost);
    }

    fn note_cost(&mut self, label: &str, cost: CallCost) {
        match cost {
            CallCost::Nothing => {}
            CallCost::Whole(settled) => {
                self.journal.spend(settled.counted, &settled.usage, label);
                if settled.uncounted > Money::ZERO {
                    self.journal.forfeit(Some(settled.uncounted), &Usage::default(), label);
                }
            }
            CallCost::Broken(settled) => {
                self.journal.forfeit(settled.total(), &settled.usage, label);
            }
        }
        for remark in self.books.remarks(&cost, label) {
            self.watch.tell(&RunNotice::Warning(&remark));
        }
    }

    pub(super) async fn refresh(&mut self) -> Event {
        let mut vigil = self.watch.begin();
        let figures = self.figures();
        let client = Arc::clone(&self.rung().client);
        let refreshing = client.refresh();
        let show = |watch: &mut RunMonitor<'_>, vigil: &WaitTimer| {
            watch.beat(vigil, WaitingFor::Model("credentials"), figures, None);
        };
        let renewal = match self.watch.wait_for(&mut vigil, show, refreshing).await {
            Ok(renewal) => renewal,
            Err(cut) => return cut.into(),
        };
        self.guard();
        // The rejection that led here stays what the run reports, unless there is more to say.
        let rejection = self.fault.as_ref().map(classify);
        let rejection = rejection.unwrap_or(Failure::of(ErrorClass::AuthError));
        let (class, body) = (rejection.class, rejection.body);
        let standing = client.standing();
        match renewal {
            Renewal::Another | Renewal::Confirmed => Event::Refreshed,
            Renewal::Same => Event::Failed(Failure { body, standing, ..Failure::of(class) }),
            Renewal::Failed(fault) => {
                let failure = classify(&fault);
                self.blame(*fault);
                // Why no other credential could be had says nothing against the verdict.
                let final_too = failure.class == ErrorClass::InvalidApiKey;
                let class = if final_too { class } else { failure.class };
                Event::Failed(Failure { class, standing, ..failure })
            }
        }
    }

    pub(super) fn broke(&mut self, what: &str) -> Event {
        self.broken = Some(what.to_owned());
        Event::Broke
    }
}

/// Waits for what comes next of a call. Nothing is lost if it is not waited for to the end.
async fn next_of(
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

/// Why a reply is not complete, for the log of a run that ends of it.
fn incomplete(answer: &ModelReply, why: Incomplete) -> Fault {
    let reason: String = answer.stop_reason.chars().take(LONGEST_REASON).collect();
    let meaning = match why {
        Incomplete::MissingCall => "but no tool call came",
        Incomplete::Filtered => "so a content filter stopped it",
        Incomplete::BrokenOff => "so it broke off",
        Incomplete::UnknownReason => "which is not the end of a reply in the Messages API",
    };
    let detail = format!("the reply ended with the stop reason `{reason}`, {meaning}");
    let mut fault = Fault::new(FaultKind::Nonsense { detail }, FailureStage::Block);
    fault.request_id.clone_from(&answer.request_id);
    fault
}

/// How much of a stop reason is shown.
const LONGEST_REASON: usize = 60;

/// Tells of a block that is complete, before the event that says so.
fn show_block(step: &StreamProgress, told: &mut ToldBlocks, history: &History, watch: &mut RunMonitor<'_>) {
    let StreamProgress::Block { block, .. } = step else { return };
    if let Some((block, id)) = told.add(block, history.messages()) {
        watch.tell(&RunNotice::Block { block, id });
    }
}

/// Tells of what happens on the way to a reply: those who watch, and the runs beside this one.
fn pass_on(
    step: StreamProgress,
    streams: bool,
    watch: &mut RunMonitor<'_>,
    shared: &mut Option<SharedLimits>,
) {
    match step {
        StreamProgress::Event(event) if streams => watch.tell(&RunNotice::StreamEvent(&event)),
        StreamProgress::Accepted(limits) => accepted(shared, limits.as_ref()),
        StreamProgress::Block { .. }
        | StreamProgress::Bytes(_)
        | StreamProgress::Event(_)
        | StreamProgress::Received(_) => {}
    }
}
