//! What a scenario says: a task, what the model answers, where the wire breaks, how it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::rules::ServerRules;

/// A script for one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub name: String,
    /// One line for the list.
    pub summary: String,
    /// What the agent is asked to do.
    pub prompt: String,
    /// Further arguments of the run, as on a command line.
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// How many seconds of the script pass in one second of the world.
    pub time_scale: f64,
    /// What lies in the scratch folder at the start, by relative path.
    pub files: BTreeMap<String, ScratchFile>,
    /// What is played to who asks at the base URL.
    pub main: ServerPart,
    /// What further servers play, by their names.
    pub servers: BTreeMap<String, ServerPart>,
    pub expect: Expectation,
}

impl Scenario {
    /// What the server of that name plays.
    pub fn part(&self, name: &str) -> Option<&ServerPart> {
        if name == MAIN { Some(&self.main) } else { self.servers.get(name) }
    }
}

/// The name of the server at the base URL.
pub const MAIN: &str = "main";

/// What one server plays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerPart {
    pub rules: ServerRules,
    /// Played in order, one for each request.
    pub steps: Vec<ScriptStep>,
    /// The same for requests that come with `x-outlast-source: compact`. Without any, the steps
    /// answer those too.
    pub compactions: Vec<ScriptStep>,
    /// What happens to a request that comes after the last step.
    pub after: AfterLast,
    /// How many requests must have been made, exactly.
    pub requests: Option<usize>,
}

/// A file of the scratch folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScratchFile {
    pub content: String,
    /// Unix permission bits.
    #[serde(default = "plain_file")]
    pub mode: u32,
}

fn plain_file() -> u32 {
    0o644
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum AfterLast {
    /// Nothing more may come: it is answered with a 500 and counts as a violation.
    #[default]
    #[serde(rename = "fail")]
    Fail,
    #[serde(rename = "repeat last")]
    RepeatLast,
    #[serde(rename = "loop")]
    Loop,
}

/// How the run has to end. What is not said is not judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    pub exit: Option<i32>,
    pub terminal_reason: Option<String>,
    /// What a file of the scratch folder must contain, by relative path.
    pub files: BTreeMap<String, String>,
    /// What must not exist in the scratch folder, by relative path.
    pub absent: Vec<String>,
    /// How many requests must have been made of the main server, exactly.
    pub requests: Option<usize>,
    /// How many of them were for a summary, exactly.
    pub compactions: Option<usize>,
    /// How many access tokens must have been granted by the main server, exactly.
    pub refreshes: Option<usize>,
    /// What standard error must contain.
    pub stderr: Vec<String>,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptStep {
    pub when: StepCondition,
    /// How many requests it answers, at least 1.
    pub repeat: u32,
    /// Silence before the first byte, in the script's time.
    pub delay: Duration,
    pub answer: StepAnswer,
    /// Added to the usual headers, or in their place. `${unix+5h}` and `${date+61s}` stand for
    /// moments, in seconds since the epoch and as an HTTP date.
    pub headers: Vec<(String, String)>,
    pub pace: SendPace,
    pub fault: Option<ScriptedFault>,
    /// Closes the connection afterwards while announcing that it stays open.
    pub hangs_up: bool,
}

impl ScriptStep {
    pub fn new(answer: StepAnswer) -> Self {
        Self {
            when: StepCondition::default(),
            repeat: 1,
            delay: Duration::ZERO,
            answer,
            headers: Vec::new(),
            pace: SendPace::default(),
            fault: None,
            hangs_up: false,
        }
    }
}

/// Which requests a step is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StepCondition {
    /// The model asked for; a `*` at the end stands for any rest.
    pub model: Option<String>,
    /// Whether a stream is asked for.
    pub stream: Option<bool>,
    /// What the request's text must contain.
    pub contains: Option<String>,
    /// What its first message must contain: the task itself, of a run or of a sub-agent.
    pub prompt: Option<String>,
    /// What its system prompt must contain.
    pub system: Option<String>,
    /// Its header `x-outlast-source`; a `*` at the end stands for any rest, as in `agent:*`.
    pub source: Option<String>,
    /// Whether fast mode is asked for.
    pub fast: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StepAnswer {
    Reply(ScriptedReply),
    Http(ScriptedHttp),
    /// These bytes instead of a response, then the end of the connection.
    Raw(Vec<u8>),
}

/// A reply of the model. One without any content is an empty reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptedReply {
    pub thinking: Option<String>,
    pub text: Option<String>,
    pub tools: Vec<ScriptedToolCall>,
    /// `tool_use` or `end_turn`, as the content has it, when not said.
    pub stop_reason: Option<String>,
    pub usage: ScriptedUsage,
    pub form: ReplyForm,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedToolCall {
    pub name: String,
    /// `${cwd}` in any of its strings stands for the scratch folder.
    #[serde(default)]
    pub input: Value,
    /// A new one is made when not said.
    pub id: Option<String>,
    /// Cuts the input's JSON after so many bytes, as the output limit does.
    pub cut: Option<usize>,
}

/// Tokens to report. What is not said is estimated from sizes; output never exceeds the cap that
/// was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedUsage {
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub cache_creation_input_tokens: Option<u64>,
    pub cache_read_input_tokens: Option<u64>,
}

/// How a reply is worded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ReplyForm {
    /// A stream if one is asked for, else JSON.
    #[default]
    #[serde(rename = "as asked")]
    AsAsked,
    /// JSON even if a stream is asked for, as some gateways do.
    #[serde(rename = "json")]
    Json,
    /// As llama.cpp's server words a stream: no pings, no `input` where a tool call starts, all
    /// blocks closed at the very end, and the connection closed without a word.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
}

/// An answer without a model's reply in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedHttp {
    pub status: u16,
    pub content_type: String,
    pub body: String,
    /// Announced in place of the body's true length.
    pub content_length: Option<usize>,
}

/// An error in the service's words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedError {
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    /// `error.details.error_code`.
    pub code: Option<String>,
}

/// How fast the body goes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendPace {
    /// Bytes of each write; one event each when not said.
    pub chunk: Option<usize>,
    /// Between writes, in the script's time.
    pub pause: Duration,
}

/// Where an answer breaks, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedFault {
    pub harm: ScriptedFaultKind,
    pub after: FaultPosition,
    /// How long a stall or a series of pings lasts, in the script's time. Then the connection is
    /// closed.
    pub hold: Duration,
}

impl ScriptedFault {
    pub(super) const HOLD: Duration = Duration::from_hours(1);

    pub fn new(harm: ScriptedFaultKind, after: FaultPosition) -> Self {
        Self { harm, after, hold: Self::HOLD }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ScriptedFaultKind {
    /// The connection is reset.
    Reset,
    /// The connection is closed, the answer unfinished.
    Close,
    /// The answer ends as if it were whole.
    End,
    /// Nothing more is said.
    Stall,
    /// Nothing but pings is said; nothing at all to who asked for no stream.
    Pings { every: Duration },
    /// An error event, then the end of the stream. Who asked for no stream gets the error with
    /// its own status.
    Error(ScriptedError),
    /// Bytes that do not belong there; then the answer goes on.
    Insert(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultPosition {
    /// The connection was accepted; nothing has been read. Such a step answers a connection and
    /// not a request.
    Accept,
    /// The request was read.
    Request,
    /// Half of the headers.
    HalfHead,
    /// All headers.
    Headers,
    /// So many events of the stream, or half of what is no stream.
    Events(usize),
    /// So many bytes of the body.
    Bytes(usize),
    /// Half of the last block's last delta, or half of what is no stream.
    Delta,
}
