//! The types of a scenario: a task, the model's answers, injected faults, and the expected end.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rules::ServerRules;
use super::scripted_values::exit_code;

/// A scenario: the script for one run.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the methods of a scenario return a changed scenario"]
pub struct Scenario {
    /// The name, for messages.
    pub name: String,
    /// One line for the list.
    pub summary: String,
    /// The prompt of the run.
    pub prompt: String,
    /// Further arguments of the run, as on a command line.
    pub args: Vec<String>,
    /// Variables of the run and its commands.
    pub env: BTreeMap<String, String>,
    /// The number of seconds of the script that pass in one real second.
    pub time_scale: f64,
    /// The initial files of the scratch folder, by relative path.
    pub files: BTreeMap<String, ScratchFile>,
    /// The script of the server at the base URL.
    pub main: ServerPart,
    /// The scripts of further servers, by name.
    pub servers: BTreeMap<String, ServerPart>,
    /// The end that the run must have.
    pub expect: Expectation,
}

/// The name of the server at the base URL.
pub const MAIN: &str = "main";

/// The script of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerPart {
    /// The rules that requests must follow.
    pub rules: ServerRules,
    /// Played in order, one step for each request.
    pub steps: Vec<ScriptStep>,
    /// Steps for requests with `x-outlast-source: compact`. If empty, `steps` answer those too.
    pub compactions: Vec<ScriptStep>,
    /// True if the number of summaries depends on the sizes of tool results: not every step of
    /// `compactions` must be played, and the last one is repeated.
    pub compactions_vary: bool,
    /// The handling of requests after the last step.
    pub after: AfterLast,
    /// The exact number of requests that must be made.
    pub requests: Option<usize>,
}

/// A file of the scratch folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScratchFile {
    /// The text of the file.
    pub content: String,
    /// Its permission bits, as in `0o755`. 0o644 by default.
    #[serde(default = "plain_file")]
    pub mode: u32,
}

fn plain_file() -> u32 {
    0o644
}

/// The handling of requests after the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AfterLast {
    /// They get a 500, and the rehearsal fails. The default.
    #[default]
    #[serde(rename = "fail")]
    Fail,
    /// The last step answers them.
    #[serde(rename = "repeat last")]
    RepeatLast,
    /// The steps start again.
    #[serde(rename = "loop")]
    Loop,
}

/// The expected end of the run. Keys that are not given are not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    /// The exit code.
    #[serde(deserialize_with = "exit_code")]
    #[schemars(range(min = 0, max = 255))]
    pub exit: Option<i32>,
    /// The `terminal_reason` of the result.
    pub terminal_reason: Option<String>,
    /// Text that a file of the scratch folder contains, by relative path.
    pub files: BTreeMap<String, String>,
    /// Paths that do not exist in the scratch folder.
    pub absent: Vec<String>,
    /// The number of requests to the main server.
    pub requests: Option<usize>,
    /// The number of these requests that ask for a summary.
    pub compactions: Option<usize>,
    /// The number of access tokens that the main server grants.
    pub refreshes: Option<usize>,
    /// Texts that standard error contains. Only tests that read it check this.
    pub stderr: Vec<String>,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptStep {
    /// The requests that it answers.
    pub when: StepCondition,
    /// The number of requests that it answers, at least 1.
    pub repeat: u32,
    /// Delay before the first byte, in the script's time.
    pub delay: Duration,
    /// The answer, without its fault.
    pub answer: StepAnswer,
    /// Added to the default headers, replacing those of the same name. `${unix+5h}` and
    /// `${date+61s}` are replaced by times, in seconds since the epoch and as an HTTP date.
    pub headers: Vec<(String, String)>,
    /// The pace of the body.
    pub timing: ChunkTiming,
    /// The fault that breaks the answer.
    pub fault: Option<ScriptedFault>,
    /// Closes the connection afterwards although the headers announce keep-alive.
    pub closes_early: bool,
}

impl ScriptStep {
    /// A step that answers one request of any kind, at once and without a fault.
    pub fn new(answer: StepAnswer) -> Self {
        Self {
            when: StepCondition::default(),
            repeat: 1,
            delay: Duration::ZERO,
            answer,
            headers: Vec::new(),
            timing: ChunkTiming::default(),
            fault: None,
            closes_early: false,
        }
    }
}

/// The condition of a step. A request must match all keys that are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StepCondition {
    /// The requested model. A `*` at the end matches any suffix.
    pub model: Option<String>,
    /// Whether a stream is requested.
    pub stream: Option<bool>,
    /// Text that the request must contain.
    pub contains: Option<String>,
    /// Text that its first message must contain: the task of a run or a sub-agent.
    pub prompt: Option<String>,
    /// Text that its system prompt must contain.
    pub system: Option<String>,
    /// The source of the request: `main`, `compact`, a sub-agent as in `agent:general-purpose`, or
    /// `agent:*` for all sub-agents.
    pub source: Option<String>,
    /// Whether fast mode is requested.
    pub fast: Option<bool>,
}

/// The answer of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepAnswer {
    /// A reply of the model.
    Reply(ScriptedReply),
    /// Another HTTP response.
    Http(ScriptedHttp),
    /// These bytes instead of a response; then the connection is closed.
    Raw(Vec<u8>),
}

/// A model reply. Without content it is an empty reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptedReply {
    /// The text of its thinking block.
    pub thinking: Option<String>,
    /// The text of its text block.
    pub text: Option<String>,
    /// Its tool calls, after the text.
    pub tools: Vec<ScriptedToolCall>,
    /// Defaults to `tool_use` or `end_turn`, depending on the content.
    pub stop_reason: Option<String>,
    /// The token counts that it reports.
    pub usage: ScriptedUsage,
    /// The format in which it is sent.
    pub form: ReplyForm,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedToolCall {
    /// The name of the tool.
    pub name: String,
    /// `${cwd}` in its strings is replaced by the scratch folder.
    pub input: Value,
    /// Generated by default.
    pub id: Option<String>,
    /// Truncates the input's JSON after this many bytes, as the output limit does.
    pub cut: Option<usize>,
}

/// The token counts that a reply reports. Those that are not given are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedUsage {
    /// Input tokens that were not in the cache.
    pub input_tokens: Option<u64>,
    /// Output tokens. The reported count never exceeds `max_tokens` of the request.
    pub output_tokens: Option<u64>,
    /// Input tokens that were written to the cache.
    pub cache_creation_input_tokens: Option<u64>,
    /// Input tokens that were read from the cache.
    pub cache_read_input_tokens: Option<u64>,
}

/// The format of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ReplyForm {
    /// A stream if it is requested, else JSON. The default.
    #[default]
    #[serde(rename = "as asked")]
    AsAsked,
    /// JSON even if a stream is requested, as some gateways do.
    #[serde(rename = "json")]
    Json,
    /// A stream as llama.cpp sends it: no pings, no `input` where a tool call starts, all blocks
    /// closed at the very end, and no event before the connection is closed.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
}

/// An HTTP response without a model reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedHttp {
    /// The status code.
    pub status: u16,
    /// The header `content-type`.
    pub content_type: String,
    /// The body, in which `${request_id}` is replaced.
    pub body: String,
    /// Announced instead of the body's actual length.
    pub content_length: Option<usize>,
}

/// An error in the service's format.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedError {
    /// Its type, as in `overloaded_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its message.
    pub message: String,
    /// Its code, in `details.error_code`.
    pub code: Option<String>,
}

impl ScriptedError {
    /// An error without a code.
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), message: message.into(), code: None }
    }
}

/// The pace at which the body is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTiming {
    /// Bytes per write; by default one event per write.
    pub chunk: Option<usize>,
    /// The pause between writes, in the script's time.
    pub pause: Duration,
}

/// An injected fault: its kind and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedFault {
    /// The kind of the fault.
    pub kind: ScriptedFaultKind,
    /// The position of the fault.
    pub after: FaultPosition,
    /// The duration of a stall or a series of pings, in the script's time. Then the connection is
    /// closed.
    pub hold: Duration,
}

impl ScriptedFault {
    pub(super) const HOLD: Duration = Duration::from_hours(1);

    /// A fault that holds the connection for an hour, if its kind holds it.
    pub fn new(kind: ScriptedFaultKind, after: FaultPosition) -> Self {
        Self { kind, after, hold: Self::HOLD }
    }
}

/// The kind of an injected fault.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptedFaultKind {
    /// The connection is reset.
    Reset,
    /// The connection is closed before the answer is complete.
    Close,
    /// The answer ends early as if it were complete.
    End,
    /// Nothing more is sent.
    Stall,
    /// Only pings are sent; without a stream, nothing.
    Pings {
        /// The time between two pings, in the script's time.
        every: Duration,
    },
    /// An error event, then the end of the stream. Without a stream, the error with its own status.
    Error(ScriptedError),
    /// Extra bytes are inserted; then the answer continues.
    Insert(Vec<u8>),
}

/// The position of an injected fault in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultPosition {
    /// After the connection is accepted, before anything is read. This step answers a connection,
    /// not a request.
    Accept,
    /// After the request is read.
    Request,
    /// After half of the headers.
    HalfHead,
    /// After all headers.
    Headers,
    /// After this number of events of a stream, or half of another body.
    Events(usize),
    /// After this number of bytes of the body.
    Bytes(usize),
    /// After half of the last block's last delta, or half of another body.
    Delta,
}
