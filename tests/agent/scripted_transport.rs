//! A model service by script, without sockets: for runs on paused time.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast::agent::{self, InterruptSender, RunOutcome, Setup};
use outlast::model::{
    Counts, ModelReply, RateLimits, Renewal, RequestContent, StreamProgress, Transport,
    TransportFuture,
};
use outlast::recovery::{
    EndpointStatus, FailureStage, Fault, FaultKind, ModelCall, OptionalField, RetryAfter,
    RetryAfterSource,
};
use outlast::transcript::{Block, Usage, violations};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::run_fixture::{EventRecord, ObservedEvent, setup};
use crate::support::scratch::scratch_folder;

/// The outcome of one attempt.
pub(super) struct ScriptedAttempt {
    /// Delay before its first byte.
    delay: Duration,
    progress: Vec<StreamProgress>,
    result: Result<ModelReply, Box<Fault>>,
}

impl ScriptedAttempt {
    fn of(result: Result<ModelReply, Box<Fault>>) -> Self {
        Self { delay: Duration::ZERO, progress: Vec::new(), result }
    }

    /// A reply of one text.
    pub(super) fn reply(text: &str) -> Self {
        Self::of(Ok(reply(vec![Block::text(text)], "end_turn")))
    }

    /// A reply of one tool call.
    pub(super) fn tool(id: &str, name: &str, input: Value) -> Self {
        Self::of(Ok(reply(vec![tool_use(id, name, input)], "tool_use")))
    }

    /// An error status.
    pub(super) fn status(status: u16, label: &str) -> Self {
        let kind = FaultKind::Refused {
            status,
            label: label.to_owned(),
            code: String::new(),
            message: "refused".to_owned(),
        };
        Self::of(Err(Box::new(Fault::new(kind, FailureStage::Status))))
    }

    /// A stream that dies after these blocks.
    pub(super) fn torn(blocks: Vec<Block>) -> Self {
        let kind = FaultKind::TornStream { detail: "the connection was reset".to_owned() };
        let fault = Fault::new(kind, FailureStage::Block);
        let progress = blocks.into_iter().enumerate();
        let progress = progress.map(|(index, block)| StreamProgress::Block { index, block });
        Self { progress: progress.collect(), ..Self::of(Err(Box::new(fault))) }
    }

    /// Reports this progress just before its result.
    pub(super) fn with_progress(self, progress: Vec<StreamProgress>) -> Self {
        Self { progress, ..self }
    }

    pub(super) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// With a `retry-after` header.
    pub(super) fn retry_after(mut self, wait: Duration) -> Self {
        if let Err(fault) = &mut self.result {
            fault.retry_after = Some(RetryAfter { wait, source: RetryAfterSource::RetryAfter });
        }
        self
    }
}

pub(super) fn tool_use(id: &str, name: &str, input: Value) -> Block {
    Block::call(id, name, input)
}

fn reply(content: Vec<Block>, stop_reason: &str) -> ModelReply {
    ModelReply {
        id: "msg_1".to_owned(),
        model: "claude-sonnet-5-5".to_owned(),
        content,
        cut_tool_call: false,
        malformed: Vec::new(),
        has_end: true,
        stop_reason: stop_reason.to_owned(),
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
        counts: Counts::Possible,
        request_id: None,
        first_token: None,
    }
}

/// Answers attempt after attempt by its script, and asserts that every request is valid.
pub(super) struct ScriptedTransport {
    attempts: Mutex<VecDeque<ScriptedAttempt>>,
    /// Time of each attempt.
    made: Mutex<Vec<Instant>>,
    /// The outcome of each renewal of a credential.
    renewal: Renewal,
}

impl Transport for ScriptedTransport {
    fn attempt<'a>(
        &'a self,
        content: &'a RequestContent<'a>,
        _call: &'a ModelCall,
        progress: &'a mut (dyn FnMut(StreamProgress) + Send),
    ) -> TransportFuture<'a, Result<ModelReply, Box<Fault>>> {
        assert_eq!(violations(content.messages), [], "a request is valid");
        self.made.lock().expect("no panic while writing").push(Instant::now());
        let next = self.attempts.lock().expect("no panic while writing").pop_front();
        Box::pin(async move {
            let next = next.expect("no more requests than the script has");
            progress(StreamProgress::Sending);
            tokio::time::sleep(next.delay).await;
            next.progress.into_iter().for_each(progress);
            next.result
        })
    }

    fn count_tokens<'a>(
        &'a self,
        _content: &'a RequestContent<'a>,
    ) -> TransportFuture<'a, Result<Option<u64>, Box<Fault>>> {
        Box::pin(ready(Ok(None)))
    }

    fn refresh(&self) -> TransportFuture<'_, Renewal> {
        Box::pin(ready(self.renewal.clone()))
    }

    fn finish_renewal(&self, _limit: Duration) -> TransportFuture<'_, ()> {
        Box::pin(ready(()))
    }

    fn endpoint_status(&self) -> EndpointStatus {
        EndpointStatus::Proven
    }

    fn host(&self) -> String {
        "localhost".to_owned()
    }

    fn accepts_field(&self, _model: &str, _field: OptionalField) -> bool {
        true
    }

    fn drop_field(&self, _model: &str, _field: OptionalField) {}

    fn rate_limits(&self) -> Option<RateLimits> {
        None
    }

    fn limit_of(&self, model: &str) -> String {
        model.to_owned()
    }
}

/// A run over a script, on paused time. Its tools must not start processes: these take real time.
pub(super) struct ScriptedRun {
    pub(super) setup: Setup,
    transport: Arc<ScriptedTransport>,
    folder: TempDir,
}

impl ScriptedRun {
    pub(super) fn of(attempts: impl IntoIterator<Item = ScriptedAttempt>) -> Self {
        Self::renewing(Renewal::Unchanged, attempts)
    }

    pub(super) fn renewing(
        renewal: Renewal,
        attempts: impl IntoIterator<Item = ScriptedAttempt>,
    ) -> Self {
        let folder = scratch_folder();
        let transport = Arc::new(ScriptedTransport {
            attempts: Mutex::new(attempts.into_iter().collect()),
            made: Mutex::default(),
            renewal,
        });
        let mut setup = setup(&folder, Arc::clone(&transport) as Arc<dyn Transport>);
        setup.limits.heartbeat = Duration::from_mins(1);
        Self { setup, transport, folder }
    }

    pub(super) fn start(self) -> StartedRun {
        let Self { setup, transport, folder } = self;
        let (record, began) = (EventRecord::new(), Instant::now());
        let (interrupter, interrupts) = watch::channel(None);
        let mut observer = record.clone();
        let run = tokio::spawn(async move {
            let outcome = Box::pin(agent::run(setup, &mut observer, interrupts)).await;
            (outcome, began.elapsed())
        });
        StartedRun { run, record, interrupter, transport, began, _folder: folder }
    }

    pub(super) async fn run(self) -> EndedRun {
        self.start().end().await
    }
}

/// A run under way.
pub(super) struct StartedRun {
    run: JoinHandle<(RunOutcome, Duration)>,
    pub(super) record: EventRecord,
    pub(super) interrupter: InterruptSender,
    transport: Arc<ScriptedTransport>,
    began: Instant,
    _folder: TempDir,
}

impl StartedRun {
    pub(super) async fn end(self) -> EndedRun {
        let (outcome, took) = self.run.await.expect("a run never panics");
        let made = self.transport.made.lock().expect("no panic while writing");
        let made = made.iter().map(|at| at.duration_since(self.began)).collect();
        EndedRun { outcome, took, made, events: self.record.all() }
    }
}

/// A run that ended.
pub(super) struct EndedRun {
    pub(super) outcome: RunOutcome,
    /// Duration of the run by its own clock.
    pub(super) took: Duration,
    /// Time of each attempt since the start of the run.
    pub(super) made: Vec<Duration>,
    pub(super) events: Vec<ObservedEvent>,
}

impl EndedRun {
    pub(super) fn count(&self, wanted: impl Fn(&ObservedEvent) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    /// The number of heartbeats with these words.
    pub(super) fn heartbeats(&self, words: &str) -> usize {
        self.count(|event| matches!(event, ObservedEvent::Heartbeat(what) if what == words))
    }
}
