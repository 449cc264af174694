//! `--output-format stream-json`: one message a line, during the run. With `json` and
//! `--verbose` the same messages are the elements of one array.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::{Timestamp, Unit};
use serde_json::Value;
use uuid::Uuid;

use crate::agent::{AgentIdentity, Heartbeat, Init, Observer, RunEvent, RunOutcome, WaitingFor};
use crate::cli::args::StreamArgs;
use crate::cli::version::{COMMIT, REFERENCE_VERSION, SCHEMA_VERSION, VERSION};
use crate::config::repository::IgnoredSetting;
use crate::hooks::{HookEvent, HookProgress};
use crate::messages::{
    AgentOrigin, ApiRetry, AssistantMessage, CompactionSizes, HeartbeatMessage, HookLabel,
    HookResponse, InformationalMessage, InitMessage, InputBlock, InputMessage, MessageBody,
    RecoveryMessage, ReplyBlock, ReplyUsage, ResultObject, RunMessage, StreamEvent, StreamMessage,
    SystemMessage, UserMessage, WaitSubject,
};
use crate::recovery::{Failure, Fault, Money, Pause, RecoveryPlan, Timer};
use crate::text::{bullets, millis};
use crate::transcript::{Block, Message};

use super::PipeSender;
use super::agents;
use super::capabilities::Capabilities;
use super::deltas::BlockDeltas;
use super::result::record;

/// Converts run events to messages.
pub struct StreamJson {
    out: PipeSender,
    session_id: String,
    /// Redacts the raw stream events, if partial messages were requested.
    deltas: Option<BlockDeltas>,
    options: StreamOptions,
    /// True if the init message was sent. All other messages are held back until then.
    begun: bool,
    held_back: Vec<RunMessage>,
    /// The sub-agent that the current messages are about.
    within: Option<Arc<AgentIdentity>>,
    stream: ReplyStream,
    /// Cost of the session before the cost that the run counts.
    cost_before: Money,
    interim: InterimResults,
}

/// Options of a stream of messages.
#[derive(Default)]
pub struct StreamOptions {
    /// The ignored settings of the repository, for the init message.
    pub ignored: Vec<IgnoredSetting>,
    /// Commands, skills and agents, for the init message.
    pub offers: Capabilities,
    pub stream: StreamArgs,
    /// Builds an additional result when a turn waits for sub-agents; when the turn continues, an
    /// init message follows. `None`: the only result is that of the run.
    pub interim_result: Option<ResultBuilder>,
    /// Maximum length of a message, in bytes. `None`: unlimited.
    pub longest: Option<usize>,
}

/// Builds the result object of an outcome.
pub type ResultBuilder = Box<dyn Fn(&RunOutcome) -> ResultObject + Send>;

/// Results of turns whose sub-agents continue in the background, for hosts.
#[derive(Default)]
struct InterimResults {
    init: Option<Box<Init>>,
    /// True if a result was the last message of the turn.
    is_last: bool,
    /// The answer in the last of these results.
    delivered: String,
}

/// The streamed reply in progress, if raw events are reported.
#[derive(Default)]
struct ReplyStream {
    /// The message of its first event.
    start: Value,
    /// A complete block, until the event that ends it.
    block: Option<(Block, Uuid)>,
    /// The blocks that were sent.
    emitted: HashSet<Uuid>,
}

impl StreamJson {
    /// The line limit of the Python SDK.
    pub const LONGEST: usize = 1_000_000;

    pub fn new(out: PipeSender, session_id: &str, options: StreamOptions) -> Self {
        Self {
            out,
            session_id: session_id.to_owned(),
            deltas: options.stream.partial_messages.then(BlockDeltas::default),
            options,
            begun: false,
            held_back: Vec::new(),
            within: None,
            stream: ReplyStream::default(),
            cost_before: Money::ZERO,
            interim: InterimResults::default(),
        }
    }

    fn emit(&mut self, body: MessageBody, id: Uuid) {
        let agent = self.within.as_deref().map(|agent| AgentOrigin {
            agent_id: agent.id.clone(),
            subagent_type: agent.kind.clone(),
            task_description: agent.description.clone(),
        });
        let message = RunMessage { agent, ..RunMessage::new(body, &self.session_id, id) };
        if self.begun {
            self.send(message);
        } else {
            self.held_back.push(message);
        }
    }

    fn send(&self, message: impl Into<StreamMessage>) {
        self.out.send_message(message, self.options.longest);
    }

    fn system(&mut self, message: SystemMessage) {
        self.emit(MessageBody::System(message), Uuid::new_v4());
    }

    fn systems(&mut self, messages: Vec<SystemMessage>) {
        for message in messages {
            self.system(message);
        }
    }

    fn init(&mut self, init: &Init) {
        self.session_id.clone_from(&init.session_id);
        self.cost_before = init.cost_before;
        self.begun = true;
        if self.options.interim_result.is_some() {
            self.interim.init = Some(Box::new(init.clone()));
        }
        let commands = [&self.options.offers.commands[..], &init.server_prompts[..]].concat();
        self.system(SystemMessage::Init(Box::new(InitMessage {
            cwd: init.cwd.clone(),
            tools: init.tools.clone(),
            mcp_servers: init.servers.clone(),
            mcp_server_errors: self.options.offers.server_errors(),
            model: init.model.clone(),
            permission_mode: init.permission_mode.clone(),
            slash_commands: commands,
            api_key_source: init.api_key_source.clone(),
            claude_code_version: REFERENCE_VERSION,
            outlast_version: VERSION,
            outlast_commit: COMMIT,
            schema_version: SCHEMA_VERSION,
            ignored_settings: self.options.ignored.clone(),
            output_style: self.options.offers.output_style.clone(),
            agents: init.agents.clone(),
            skills: self.options.offers.skills.clone(),
            plugins: self.options.offers.plugins.clone(),
            sandbox: init.sandbox.clone(),
            dropped_env: init.dropped_variables.clone(),
            memory_files: init.memory_files.clone(),
        })));
        for message in std::mem::take(&mut self.held_back) {
            self.send(RunMessage { session_id: self.session_id.clone(), ..message });
        }
    }

    /// Returns the part of the answer that follows the text of an earlier result of the turn, which
    /// the host already has. Returns the whole answer if nothing follows that text.
    pub fn undelivered(&self, answer: &str) -> String {
        let delivered = self.interim.delivered.trim_end();
        let added = answer.strip_prefix(delivered).and_then(|rest| rest.strip_prefix("\n\n"));
        added.filter(|_| !delivered.is_empty()).unwrap_or(answer).to_owned()
    }

    fn interim_result(&mut self, outcome: &RunOutcome) {
        let Some(build) = &self.options.interim_result else { return };
        self.send(build(outcome));
        self.interim.is_last = true;
        self.interim.delivered.clone_from(&outcome.text);
    }

    /// Begins the next part of a turn that already has a result.
    fn begin_again(&mut self) {
        if std::mem::take(&mut self.interim.is_last)
            && let Some(init) = self.interim.init.take()
        {
            self.init(&init);
        }
    }

    fn compacted(&mut self, before: u64, after: u64) {
        let compact_metadata =
            CompactionSizes { trigger: "auto", pre_tokens: before, post_tokens: after };
        self.system(SystemMessage::CompactBoundary { compact_metadata });
    }

    fn inform(&mut self, text: &str, level: &'static str, hook_event: Option<HookEvent>) {
        let (content, hook_event) = (text.to_owned(), hook_event.map(HookEvent::name));
        let message = InformationalMessage { content, level, hook_event };
        self.system(SystemMessage::Informational(message));
    }

    /// Returns the tool call that started the sub-agent of the current messages.
    fn parent(&self) -> Option<String> {
        self.within.as_ref().map(|agent| agent.call.clone())
    }

    /// Returns the message with a block of a reply that is still being streamed.
    fn block(&self, message: ReplyBlock) -> AssistantMessage {
        let (timestamp, parent_tool_use_id) = (timestamp(), self.parent());
        AssistantMessage { message, request_id: None, error: None, timestamp, parent_tool_use_id }
    }

    /// Emits a block of a reply, with the id of its part in the transcript.
    fn reply(&mut self, message: AssistantMessage, id: Uuid) {
        self.emit(MessageBody::Assistant(Box::new(message)), id);
    }

    /// Emits input of the model, with the id of its part in the transcript.
    fn input(&mut self, content: Vec<InputBlock>, tool_use_result: Option<Value>, id: Uuid) {
        let is_synthetic = tool_use_result.is_none();
        self.emit(
            MessageBody::User(UserMessage {
                message: InputMessage::Composed { role: "user", content },
                tool_use_result,
                is_synthetic,
                timestamp: timestamp(),
                parent_tool_use_id: self.parent(),
                is_replay: false,
            }),
            id,
        );
    }

    /// Emits a raw stream event, after the block that it completes.
    fn stream_event(&mut self, event: &Value) {
        let Some(deltas) = &mut self.deltas else { return };
        if event["type"] == "message_start" {
            self.stream.start = event["message"].clone();
        }
        let events = deltas.masked(event, &self.out);
        let last = events.len().saturating_sub(1);
        for (index, event) in events.into_iter().enumerate() {
            if index == last {
                self.streamed_block();
            }
            let event = StreamEvent { event, parent_tool_use_id: self.parent() };
            self.emit(MessageBody::StreamEvent(event), Uuid::new_v4());
        }
    }

    fn streamed_block(&mut self) {
        let Some((block, id)) = self.stream.block.take() else { return };
        let start = &self.stream.start;
        let (reply, model) = (start["id"].as_str(), start["model"].as_str());
        let usage = ReplyUsage::Reported(start["usage"].clone());
        let message = ReplyBlock::new(reply, model, block, usage);
        self.stream.emitted.insert(id);
        self.reply(self.block(message), id);
    }

    fn blocks_dropped(&mut self, ids: &[Uuid]) {
        self.stream.block = None;
        let emitted: Vec<String> = ids
            .iter()
            .filter(|id| self.stream.emitted.remove(id))
            .map(ToString::to_string)
            .collect();
        if !emitted.is_empty() {
            self.system(SystemMessage::ReplyDropped { uuids: emitted });
        }
    }

    /// Emits a message for each block of a reply. The last message has the stop reason.
    fn assistant(&mut self, reply: &RunEvent) {
        let RunEvent::Assistant { message, ids, id, model, stop_reason, usage, request_id, .. } =
            reply
        else {
            return;
        };
        if self.within.is_none() {
            self.streamed_block();
        }
        let last = message.content.len().saturating_sub(1);
        for (index, block) in message.content.iter().enumerate() {
            let uuid = id_at(ids, index);
            if self.stream.emitted.remove(&uuid) {
                continue;
            }
            // Of a sub-agent, tool calls are reported. Its text goes to the agent that started it.
            let emitted =
                self.options.stream.subagent_text || matches!(block, Block::ToolUse { .. });
            if self.within.is_some() && !emitted {
                continue;
            }
            let stop_reason = stop_reason.clone().filter(|_| index == last);
            let usage = ReplyUsage::Counted(*usage);
            let message = ReplyBlock::new(Some(id), Some(model), block.clone(), usage);
            let message = self.block(ReplyBlock { stop_reason, ..message });
            let request_id = Some(request_id.clone());
            self.reply(AssistantMessage { request_id, ..message }, uuid);
        }
    }

    /// Emits a message for each tool result, with its details for programs, and for other parts.
    fn user(&mut self, message: &Message, details: &[Value], ids: &[Uuid]) {
        for (index, part) in message.parts().into_iter().enumerate() {
            let id = id_at(ids, index);
            if let [block @ Block::ToolResult { .. }] = part {
                let details = details.get(index).cloned().unwrap_or_default();
                self.input(vec![plain_result(block)], Some(details), id);
            } else if self.within.is_none() {
                let content = part.iter().cloned().map(InputBlock::Other).collect();
                self.input(content, None, id);
            }
        }
    }

    fn api_retry(&mut self, pause: Pause, delay_ms: u64, fault: Option<&Fault>) {
        self.system(SystemMessage::ApiRetry(ApiRetry {
            attempt: pause.retry,
            max_retries: pause.of,
            retry_delay_ms: delay_ms,
            error_status: fault.and_then(Fault::status),
            error: pause.class.info().category,
            error_class: pause.class.name(),
            request_id: fault.and_then(|fault| fault.request_id.clone()),
            timer: fault.and_then(Fault::timer).map(Timer::name),
        }));
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) {
        let spent = heartbeat.spent.total();
        self.system(SystemMessage::Heartbeat(HeartbeatMessage {
            waiting_for: wait_subject(&heartbeat.waiting_for),
            elapsed_ms: millis(heartbeat.elapsed),
            ends_in_ms: heartbeat.ends_in.map(millis),
            since_last_byte_ms: heartbeat.since_last_byte.map(millis),
            turn: heartbeat.turn,
            waited_ms: millis(heartbeat.waited_in_all),
            total_cost_usd: spent.map(|spent| (self.cost_before + spent).as_dollars()),
        }));
    }

    /// Emits the start or the end of a hook.
    fn hook(&mut self, progress: &HookProgress) {
        if !self.options.stream.hook_events && progress.event != HookEvent::SessionStart {
            return;
        }
        let (hook_id, hook_name) = (progress.id.clone(), progress.name.clone());
        let hook = HookLabel { hook_id, hook_name, hook_event: progress.event.name() };
        self.system(match &progress.finished {
            None => SystemMessage::HookStarted(hook),
            Some(over) => SystemMessage::HookResponse(HookResponse {
                hook,
                output: over.stdout.clone(),
                stdout: over.stdout.clone(),
                stderr: over.stderr.clone(),
                exit_code: over.exit_code,
                outcome: over.outcome.into_str(),
            }),
        });
    }

    /// Emits a recovery that is not a wait; waits are emitted by `api_retry`.
    fn recovery(&mut self, plan: RecoveryPlan, failure: Option<Failure>, fault: Option<&Fault>) {
        if !plan.info().is_reported_elsewhere {
            let is_about_fast_mode = plan == RecoveryPlan::DisableFastMode;
            let reason = || fault.and_then(|fault| fault.overage_disabled.clone());
            self.system(SystemMessage::Recovery(RecoveryMessage {
                strategy: plan.name(),
                error_class: failure.map(|failure| failure.class.name()),
                reason: is_about_fast_mode.then(reason),
            }));
        }
    }

    /// Ends the stream with the events that are held back and the result.
    pub fn finish(mut self, result: &ResultObject) {
        self.send_held();
        self.out.send_last(result.to_value(), self.options.longest);
    }

    /// Ends a turn of a host; its other messages continue. `failure` is a message about a failure
    /// of the API.
    pub fn finish_turn(mut self, failure: Option<AssistantMessage>, result: ResultObject) {
        if let Some(failure) = failure {
            let message = AssistantMessage { timestamp: timestamp(), ..failure };
            self.reply(message, Uuid::new_v4());
        }
        self.send_held();
        self.out.send_message(result, self.options.longest);
    }

    fn send_held(&mut self) {
        for message in std::mem::take(&mut self.held_back) {
            self.send(message);
        }
    }
}

/// Returns the current time for a message of the conversation.
fn timestamp() -> Option<String> {
    let now = Timestamp::now().round(Unit::Millisecond);
    now.ok().map(|now| now.to_string())
}

fn wait_subject(waiting_for: &WaitingFor) -> WaitSubject {
    match waiting_for {
        WaitingFor::Retry(pause) if pause.is_for_shared_limit() => WaitSubject::SharedLimit,
        WaitingFor::Retry(pause) => WaitSubject::Retry {
            error_class: pause.class.name(),
            attempt: pause.retry,
            max_retries: pause.of,
        },
        WaitingFor::Credentials => WaitSubject::Model { model: "credentials".to_owned() },
        WaitingFor::Model(model) => WaitSubject::Model { model: model.clone() },
        WaitingFor::Tool { name, id } => {
            WaitSubject::Tool { tool_name: name.clone(), tool_use_id: id.clone() }
        }
        WaitingFor::Permission { tool, id } => {
            WaitSubject::Permission { tool_name: tool.clone(), tool_use_id: id.clone() }
        }
        WaitingFor::Elicitation { server } => WaitSubject::Elicitation { server: server.clone() },
        WaitingFor::Hook { event } => WaitSubject::Hook { event: event.name() },
        WaitingFor::Work { running } => WaitSubject::Background { running: bullets(running) },
        WaitingFor::Agents { running } => WaitSubject::Agents { running: bullets(running) },
        WaitingFor::Servers { names } => WaitSubject::Mcp { servers: names.join(", ") },
        WaitingFor::Journal { path } => WaitSubject::Journal { path: path.clone() },
        WaitingFor::Money => WaitSubject::Budget,
    }
}

/// Returns the id of a part of a message, or a new one.
fn id_at(ids: &[Uuid], index: usize) -> Uuid {
    ids.get(index).copied().unwrap_or_else(Uuid::new_v4)
}

/// Returns a tool result whose content is a string if it is only text, as clients expect.
fn plain_result(block: &Block) -> InputBlock {
    let other = || InputBlock::Other(block.clone());
    let Block::ToolResult { tool_use_id, content, is_error } = block else { return other() };
    let texts: Option<Vec<&str>> = content.iter().map(Block::as_text).collect();
    texts.map_or_else(other, |texts| InputBlock::TextResult {
        kind: "tool_result",
        tool_use_id: tool_use_id.clone(),
        content: texts.join("\n"),
        is_error: *is_error,
    })
}

impl Observer for StreamJson {
    fn observe(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Init(init) => self.init(init),
            RunEvent::Step { transition, fault } => {
                if let Some(plan) = transition.plan {
                    self.recovery(plan, transition.event.failure(), fault.as_deref());
                }
            }
            RunEvent::WaitBegins { pause, until, now, .. } if pause.is_for_shared_limit() => {
                let delay_ms = millis(now.until(*until));
                self.system(SystemMessage::SharedLimitWait { delay_ms });
            }
            RunEvent::WaitBegins { pause, until, now, fault, .. } => {
                self.api_retry(*pause, millis(now.until(*until)), fault.as_deref());
            }
            RunEvent::RequestSent
            | RunEvent::WaitEnds { .. }
            | RunEvent::ToolEnds(_)
            | RunEvent::RequirementEnds { .. } => {}
            RunEvent::Heartbeat(heartbeat) => self.heartbeat(heartbeat),
            RunEvent::AwaitsAgents(outcome) => self.interim_result(outcome),
            RunEvent::StreamEvent(event) => self.stream_event(event),
            RunEvent::Block { block, id } if self.deltas.is_some() => {
                self.streamed_block();
                self.stream.block = Some((Block::clone(block), *id));
            }
            RunEvent::Block { .. } => {}
            RunEvent::BlocksDropped { ids } => self.blocks_dropped(ids),
            RunEvent::Assistant { .. } => self.assistant(event),
            RunEvent::User { message, details, ids } => {
                if self.within.is_none() {
                    self.begin_again();
                }
                self.user(message, details, ids);
            }
            RunEvent::ModelSwitched { from, to } => {
                let (from_model, to_model) = (from.clone(), to.clone());
                self.system(SystemMessage::ModelFallback { from_model, to_model });
            }
            RunEvent::Compacted { before, after } => self.compacted(*before, *after),
            RunEvent::RecoveryEnds(ended) => {
                self.system(SystemMessage::RecoveryEnd(record(ended)));
            }
            RunEvent::Task(task) => self.systems(agents::command_messages(task)),
            RunEvent::Agent(task) => self.systems(agents::agent_messages(task)),
            RunEvent::OfAgent { agent, event } => {
                let before = self.within.replace(Arc::clone(agent));
                self.observe(event);
                self.within = before;
            }
            RunEvent::Denied(denial) => {
                self.system(SystemMessage::PermissionDenied {
                    tool_name: denial.tool_name.clone(),
                    tool_use_id: denial.tool_use_id.clone(),
                    message: denial.reason.clone(),
                });
            }
            RunEvent::Hook(progress) => self.hook(progress),
            RunEvent::HookSays { event, text } => self.inform(text, "info", Some(*event)),
            RunEvent::Note(text) => self.inform(text, "info", None),
            RunEvent::Warning(text) => self.inform(text, "warning", None),
        }
    }
}
