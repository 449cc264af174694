//! `--output-format stream-json`: one message a line, during the run. With `json` and
//! `--verbose` the same messages are the elements of one array.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::{Timestamp, Unit};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::agent::{AgentIdentity, Heartbeat, Init, Observer, RunEvent, RunOutcome, WaitingFor};
use crate::cli::version::{COMMIT, REFERENCE_VERSION, SCHEMA_VERSION, VERSION};
use crate::config::repository::IgnoredSetting;
use crate::hooks::{HookEvent, HookProgress};
use crate::recovery::{Failure, Fault, Money, Pause, RecoveryPlan};
use crate::transcript::{Block, Message, Usage};

use super::super::timestamps::millis;
use super::PipeSender;
use super::agents;
use super::capabilities::Capabilities;
use super::deltas::BlockDeltas;
use super::result::{ignored, record};
use super::servers::server;

/// Converts run events to messages.
pub struct StreamJson {
    out: PipeSender,
    session_id: String,
    /// Redacts the raw stream events, if partial messages were requested.
    deltas: Option<BlockDeltas>,
    /// The ignored settings of the repository.
    ignored: Vec<IgnoredSetting>,
    offers: Capabilities,
    /// True if all hooks are reported, not only `SessionStart` hooks.
    reports_hooks: bool,
    /// True if text and thinking of sub-agents are reported, not only their tool calls.
    reports_subagent_text: bool,
    /// True if the init message was sent. It comes first, so all other messages wait for it.
    begun: bool,
    held: Vec<Value>,
    /// The sub-agent that the current messages are about.
    within: Option<Arc<AgentIdentity>>,
    /// Maximum length of a message, in bytes. `None`: unlimited.
    longest: Option<usize>,
    stream: ReplyStream,
    /// Cost of the session before the cost that the run counts.
    cost_before: Money,
    interim: InterimResults,
}

/// Builds the result object of an outcome.
pub type ResultBuilder = Box<dyn Fn(&RunOutcome) -> Value + Send>;

/// Results of turns whose sub-agents continue in the background, for hosts.
#[derive(Default)]
struct InterimResults {
    /// `None`: the only result is that of the run.
    build: Option<ResultBuilder>,
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
    /// A complete block, until the event that ends it comes.
    block: Option<(Value, Uuid)>,
    /// The blocks that were sent.
    emitted: HashSet<Uuid>,
}

impl StreamJson {
    /// The line limit of the Python SDK.
    pub const LONGEST: usize = 1_000_000;

    pub fn new(out: PipeSender, session_id: &str, partial_messages: bool) -> Self {
        let (session_id, deltas) =
            (session_id.to_owned(), partial_messages.then(BlockDeltas::default));
        let (ignored, held, offers) = (Vec::new(), Vec::new(), Capabilities::default());
        let (reports_hooks, reports_subagent_text, begun, within) = (false, false, false, None);
        Self {
            out,
            session_id,
            deltas,
            ignored,
            offers,
            reports_hooks,
            reports_subagent_text,
            begun,
            held,
            within,
            longest: Some(Self::LONGEST),
            stream: ReplyStream::default(),
            cost_before: Money::ZERO,
            interim: InterimResults::default(),
        }
    }

    /// Removes the length limit, for messages that are not lines.
    #[must_use]
    pub fn without_length_limit(self) -> Self {
        Self { longest: None, ..self }
    }

    /// Reports every hook, if asked for.
    #[must_use]
    pub fn with_hook_events(self, tells_hooks: bool) -> Self {
        Self { reports_hooks: tells_hooks, ..self }
    }

    /// Reports text and thinking of sub-agents, if asked for.
    #[must_use]
    pub fn with_subagent_text(self, tells_agents: bool) -> Self {
        Self { reports_subagent_text: tells_agents, ..self }
    }

    /// Emits an additional result when a turn waits for sub-agents, and an init message when it
    /// continues.
    #[must_use]
    pub fn with_interim_results(mut self, build: Option<ResultBuilder>) -> Self {
        self.interim.build = build;
        self
    }

    /// Adds the ignored settings of the repository to the init message.
    #[must_use]
    pub fn with_ignored_settings(self, ignored: &[IgnoredSetting]) -> Self {
        Self { ignored: ignored.to_vec(), ..self }
    }

    /// Adds commands, skills and agents to the init message.
    #[must_use]
    pub fn with_capabilities(self, offers: Capabilities) -> Self {
        Self { offers, ..self }
    }

    fn emit(&mut self, mut frame: Map<String, Value>, id: Uuid) {
        if let Some(agent) = &self.within {
            frame.insert("agent_id".to_owned(), json!(agent.id));
            frame.insert("subagent_type".to_owned(), json!(agent.kind));
            frame.insert("task_description".to_owned(), json!(agent.description));
        }
        frame.insert("session_id".to_owned(), json!(self.session_id));
        frame.insert("uuid".to_owned(), json!(id.to_string()));
        if self.begun {
            self.send(Value::Object(frame));
        } else {
            self.held.push(Value::Object(frame));
        }
    }

    fn send(&self, frame: Value) {
        self.out.send_json(frame, self.longest);
    }

    fn system(&mut self, subtype: &str, fields: Value) {
        let mut frame = Map::new();
        frame.insert("type".to_owned(), json!("system"));
        frame.insert("subtype".to_owned(), json!(subtype));
        if let Value::Object(fields) = fields {
            frame.extend(fields);
        }
        self.emit(frame, Uuid::new_v4());
    }

    fn systems(&mut self, frames: Vec<(&str, Value)>) {
        for (subtype, fields) in frames {
            self.system(subtype, fields);
        }
    }

    fn init(&mut self, init: &Init) {
        self.session_id.clone_from(&init.session_id);
        self.cost_before = init.cost_before;
        self.begun = true;
        if self.interim.build.is_some() {
            self.interim.init = Some(Box::new(init.clone()));
        }
        let commands = [&self.offers.commands[..], &init.server_prompts[..]].concat();
        self.system(
            "init",
            json!({
                "cwd": init.cwd,
                "tools": init.tools,
                "mcp_servers": init.servers.iter().map(server).collect::<Vec<_>>(),
                "mcp_server_errors": self.offers.server_errors(),
                "model": init.model,
                "permissionMode": init.permission_mode,
                "slash_commands": commands,
                "apiKeySource": init.api_key_source,
                "claude_code_version": REFERENCE_VERSION,
                "outlast_version": VERSION,
                "outlast_commit": COMMIT,
                "schema_version": SCHEMA_VERSION,
                "ignored_settings": ignored(&self.ignored),
                "output_style": self.offers.output_style,
                "agents": init.agents,
                "skills": self.offers.skills,
                "plugins": self.offers.plugins,
                "sandbox": init.sandbox,
                "dropped_env": init.dropped_variables,
                "memory_files": init.memory_files,
            }),
        );
        for mut frame in std::mem::take(&mut self.held) {
            frame["session_id"] = json!(self.session_id);
            self.send(frame);
        }
    }

    /// The part of the answer that follows the text of an earlier result of the turn: a host has that
    /// result. The whole answer if nothing follows it.
    pub fn undelivered(&self, answer: &str) -> String {
        let delivered = self.interim.delivered.trim_end();
        let added = answer.strip_prefix(delivered).and_then(|rest| rest.strip_prefix("\n\n"));
        added.filter(|_| !delivered.is_empty()).unwrap_or(answer).to_owned()
    }

    fn interim_result(&mut self, outcome: &RunOutcome) {
        let Some(build) = &self.interim.build else { return };
        self.send(build(outcome));
        self.interim.is_last = true;
        self.interim.delivered.clone_from(&outcome.text);
    }

    /// Begins the next part of a turn that had a result already.
    fn begin_again(&mut self) {
        if std::mem::take(&mut self.interim.is_last)
            && let Some(init) = self.interim.init.take()
        {
            self.init(&init);
        }
    }

    fn compacted(&mut self, before: u64, after: u64) {
        let sizes = json!({ "trigger": "auto", "pre_tokens": before, "post_tokens": after });
        self.system("compact_boundary", json!({ "compact_metadata": sizes }));
    }

    fn inform(&mut self, text: &str, level: &str) {
        self.system("informational", json!({ "content": text, "level": level }));
    }

    /// Emits a message of the conversation, with the id of its part in the transcript.
    fn emit_message(&mut self, kind: &str, id: Uuid, mut fields: Value) {
        let now = Timestamp::now().round(Unit::Millisecond);
        fields["timestamp"] = json!(now.ok().map(|now| now.to_string()));
        self.message(kind, id, fields);
    }

    fn message(&mut self, kind: &str, id: Uuid, fields: Value) {
        let mut frame = Map::new();
        frame.insert("type".to_owned(), json!(kind));
        if let Value::Object(fields) = fields {
            frame.extend(fields);
        }
        let parent = self.within.as_ref().map(|agent| agent.call.as_str());
        frame.insert("parent_tool_use_id".to_owned(), json!(parent));
        self.emit(frame, id);
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
            self.message("stream_event", Uuid::new_v4(), json!({ "event": event }));
        }
    }

    fn streamed_block(&mut self) {
        let Some((block, id)) = self.stream.block.take() else { return };
        let start = &self.stream.start;
        let message = json!({
            "id": start["id"],
            "type": "message",
            "role": "assistant",
            "model": start["model"],
            "content": [block],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": start["usage"],
        });
        self.stream.emitted.insert(id);
        self.emit_message("assistant", id, json!({ "message": message }));
    }

    fn blocks_dropped(&mut self, ids: &[Uuid]) {
        self.stream.block = None;
        let emitted: Vec<String> = ids
            .iter()
            .filter(|id| self.stream.emitted.remove(id))
            .map(ToString::to_string)
            .collect();
        if !emitted.is_empty() {
            self.system("reply_dropped", json!({ "uuids": emitted }));
        }
    }

    /// One message for each block; the last one carries the stop reason.
    fn assistant(&mut self, reply: &ReplyInProgress<'_>, ids: &[Uuid]) {
        if self.within.is_none() {
            self.streamed_block();
        }
        let last = reply.message.content.len().saturating_sub(1);
        for (index, block) in reply.message.content.iter().enumerate() {
            let id = id_at(ids, index);
            if self.stream.emitted.remove(&id) {
                continue;
            }
            // Tool calls of a sub-agent are reported; its text goes to the agent that started it.
            let emitted = self.reports_subagent_text || matches!(block, Block::ToolUse { .. });
            if self.within.is_some() && !emitted {
                continue;
            }
            self.emit_message(
                "assistant",
                id,
                json!({
                    "message": {
                        "id": reply.id,
                        "type": "message",
                        "role": "assistant",
                        "model": reply.model,
                        "content": [block],
                        "stop_reason": reply.stop_reason.filter(|_| index == last),
                        "stop_sequence": null,
                        "usage": reply.usage,
                    },
                    "request_id": reply.request_id,
                }),
            );
        }
    }

    /// Emits a message for each tool result, with its details for programs, and one for the rest.
    fn user(&mut self, message: &Message, details: &[Value], ids: &[Uuid]) {
        for (index, part) in message.parts().into_iter().enumerate() {
            let id = id_at(ids, index);
            if let [Block::ToolResult { .. }] = part {
                let content: Vec<Value> = part.iter().map(plain_result).collect();
                self.emit_message(
                    "user",
                    id,
                    json!({
                        "message": { "role": "user", "content": content },
                        "tool_use_result": details.get(index),
                    }),
                );
            } else if self.within.is_none() {
                self.emit_message(
                    "user",
                    id,
                    json!({
                        "message": { "role": "user", "content": part },
                        "isSynthetic": true,
                    }),
                );
            }
        }
    }

    fn api_retry(&mut self, pause: Pause, delay_ms: u64, fault: Option<&Fault>) {
        let mut fields = json!({
            "attempt": pause.retry,
            "max_retries": pause.of,
            "retry_delay_ms": delay_ms,
            "error_status": fault.and_then(Fault::status),
            "error": pause.class.info().category,
            "error_class": pause.class.name(),
            "request_id": fault.and_then(|fault| fault.request_id.as_deref()),
        });
        if let Some(timer) = fault.and_then(Fault::timer) {
            fields["timer"] = json!(timer.name());
        }
        self.system("api_retry", fields);
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) {
        let waiting_for = match &heartbeat.waiting_for {
            WaitingFor::Retry(pause) if pause.is_for_shared_limit() => {
                json!({ "kind": "shared_limit" })
            }
            WaitingFor::Retry(pause) => json!({
                "kind": "retry",
                "error_class": pause.class.name(),
                "attempt": pause.retry,
                "max_retries": pause.of,
            }),
            WaitingFor::Model(model) => json!({ "kind": "model", "model": model }),
            WaitingFor::Tool { name, id } => {
                json!({ "kind": "tool", "tool_name": name, "tool_use_id": id })
            }
            WaitingFor::Permission { tool, id } => {
                json!({ "kind": "permission", "tool_name": tool, "tool_use_id": id })
            }
            WaitingFor::Elicitation { server } => {
                json!({ "kind": "elicitation", "server": server })
            }
            WaitingFor::Hook { event } => json!({ "kind": "hook", "event": event.name() }),
            WaitingFor::Work { running } => json!({ "kind": "background", "running": running }),
            WaitingFor::Agents { running } => json!({ "kind": "agents", "running": running }),
            WaitingFor::Servers { names } => json!({ "kind": "mcp", "servers": names }),
            WaitingFor::Money => json!({ "kind": "budget" }),
        };
        self.system(
            "heartbeat",
            json!({
                "waiting_for": waiting_for,
                "elapsed_ms": millis(heartbeat.elapsed),
                "ends_in_ms": heartbeat.ends_in.map(millis),
                "since_last_byte_ms": heartbeat.since_last_byte.map(millis),
                "turn": heartbeat.turn,
                "waited_ms": millis(heartbeat.waited_in_all),
                "total_cost_usd": heartbeat.spent.total().map(|spent| (self.cost_before + spent).as_dollars()),
            }),
        );
    }

    /// Emits the start or the end of a hook.
    fn hook(&mut self, progress: &HookProgress) {
        if !self.reports_hooks && progress.event != HookEvent::SessionStart {
            return;
        }
        let mut fields = json!({
            "hook_id": progress.id,
            "hook_name": progress.name,
            "hook_event": progress.event.name(),
        });
        let Some(over) = &progress.finished else { return self.system("hook_started", fields) };
        fields["output"] = json!(over.stdout);
        fields["stdout"] = json!(over.stdout);
        fields["stderr"] = json!(over.stderr);
        fields["exit_code"] = json!(over.exit_code);
        fields["outcome"] = json!(over.outcome.name());
        self.system("hook_response", fields);
    }

    /// Emits a recovery that is not a wait; waits are emitted by `api_retry`.
    fn recovery(&mut self, plan: RecoveryPlan, failure: Option<Failure>, fault: Option<&Fault>) {
        if !plan.is_reported_elsewhere() {
            let mut fields = json!({
                "strategy": plan.name(),
                "error_class": failure.map(|failure| failure.class.name()),
            });
            if plan == RecoveryPlan::DisableFastMode {
                fields["reason"] = json!(fault.and_then(|fault| fault.overage_disabled.as_deref()));
            }
            self.system("recovery", fields);
        }
    }

    /// Ends the stream: sends the held messages, then the result, and nothing after it.
    pub fn finish(mut self, result: Value) {
        self.send_held();
        self.out.send_last(result, self.longest);
    }

    /// Ends a turn of a host, whose stream continues. `failure` are the fields of an assistant
    /// message about a failure of the API.
    pub fn finish_turn(mut self, failure: Option<Value>, result: Value) {
        if let Some(failure) = failure {
            self.emit_message("assistant", Uuid::new_v4(), failure);
        }
        self.send_held();
        self.out.send_json(result, self.longest);
    }

    fn send_held(&mut self) {
        for frame in std::mem::take(&mut self.held) {
            self.send(frame);
        }
    }
}

/// The id of a part of a message.
fn id_at(ids: &[Uuid], index: usize) -> Uuid {
    ids.get(index).copied().unwrap_or_else(Uuid::new_v4)
}

/// A tool result whose content is a string if it is nothing but text, as clients read it.
fn plain_result(block: &Block) -> Value {
    let mut value = json!(block);
    let Block::ToolResult { content, .. } = block else { return value };
    let texts: Option<Vec<&str>> = content
        .iter()
        .map(|block| if let Block::Text { text } = block { Some(text.as_str()) } else { None })
        .collect();
    if let Some(texts) = texts {
        value["content"] = json!(texts.join("\n"));
    }
    value
}

struct ReplyInProgress<'a> {
    message: &'a Message,
    id: &'a str,
    model: &'a str,
    stop_reason: Option<&'a str>,
    usage: Usage,
    request_id: Option<&'a str>,
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
                let delay = millis(now.until(*until));
                self.system("shared_limit_wait", json!({ "delay_ms": delay }));
            }
            RunEvent::WaitBegins { pause, until, now, fault, .. } => {
                self.api_retry(*pause, millis(now.until(*until)), fault.as_deref());
            }
            RunEvent::WaitEnds { .. }
            | RunEvent::ToolEnds(_)
            | RunEvent::RequirementEnds { .. } => {}
            RunEvent::Heartbeat(heartbeat) => self.heartbeat(heartbeat),
            RunEvent::AwaitsAgents(outcome) => self.interim_result(outcome),
            RunEvent::StreamEvent(event) => self.stream_event(event),
            RunEvent::Block { block, id } if self.deltas.is_some() => {
                self.streamed_block();
                self.stream.block = Some((json!(block), *id));
            }
            RunEvent::Block { .. } => {}
            RunEvent::BlocksDropped { ids } => self.blocks_dropped(ids),
            RunEvent::Assistant {
                message, ids, id, model, stop_reason, usage, request_id, ..
            } => {
                let reply = ReplyInProgress {
                    message,
                    id,
                    model,
                    stop_reason: stop_reason.as_deref(),
                    usage: *usage,
                    request_id: request_id.as_deref(),
                };
                self.assistant(&reply, ids);
            }
            RunEvent::User { message, details, ids } => {
                if self.within.is_none() {
                    self.begin_again();
                }
                self.user(message, details, ids);
            }
            RunEvent::ModelSwitched { from, to } => {
                self.system("model_fallback", json!({ "from_model": from, "to_model": to }));
            }
            RunEvent::Compacted { before, after } => self.compacted(*before, *after),
            RunEvent::RecoveryEnds(ended) => self.system("recovery_end", record(ended)),
            RunEvent::Task(task) => self.systems(agents::work_frames(task)),
            RunEvent::Agent(task) => self.systems(agents::frames(task)),
            RunEvent::OfAgent { agent, event } => {
                let before = self.within.replace(Arc::clone(agent));
                self.observe(event);
                self.within = before;
            }
            RunEvent::Denied { tool, id, reason } => self.system(
                "permission_denied",
                json!({ "tool_name": tool, "tool_use_id": id, "message": reason }),
            ),
            RunEvent::Hook(progress) => self.hook(progress),
            RunEvent::HookSays { event, text } => self.system(
                "informational",
                json!({ "content": text, "level": "info", "hook_event": event.name() }),
            ),
            RunEvent::Note(text) => self.inform(text, "info"),
            RunEvent::Warning(text) => self.inform(text, "warning"),
        }
    }
}
