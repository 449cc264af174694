//! The lines of `stream-json`, and of a host's standard input and output in this direction.
//! Amounts of money are US dollars.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use uuid::Uuid;

use crate::transcript::{Block, Usage};
use crate::types::HostRequest;

use super::control::ControlResult;
use super::result::ResultObject;
use super::system::SystemMessage;

/// One line of standard output with `--output-format stream-json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StreamMessage {
    Run(Box<RunMessage>),
    Result(Box<ResultObject>),
    Host(HostMessage),
}

/// A message about the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunMessage {
    #[serde(flatten)]
    pub body: MessageBody,
    /// The sub-agent that the message is about.
    #[serde(flatten)]
    pub agent: Option<AgentOrigin>,
    pub session_id: String,
    /// The id of the message. For messages of the conversation, the id of its line in the transcript.
    pub uuid: String,
}

impl RunMessage {
    pub fn new(body: MessageBody, session_id: &str, id: Uuid) -> Self {
        Self { body, agent: None, session_id: session_id.to_owned(), uuid: id.to_string() }
    }
}

impl From<RunMessage> for StreamMessage {
    fn from(message: RunMessage) -> Self {
        Self::Run(Box::new(message))
    }
}

impl From<ResultObject> for StreamMessage {
    fn from(result: ResultObject) -> Self {
        Self::Result(Box::new(result))
    }
}

impl From<HostMessage> for StreamMessage {
    fn from(message: HostMessage) -> Self {
        Self::Host(message)
    }
}

impl StreamMessage {
    /// Converts the message to JSON.
    pub fn to_value(&self) -> Value {
        // No field has a type that can fail, as a path does that is not UTF-8.
        serde_json::to_value(self).expect("all keys are strings")
    }
}

/// The sub-agent that a message is about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentOrigin {
    pub agent_id: String,
    pub subagent_type: String,
    pub task_description: String,
}

/// The content of a message about the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageBody {
    /// A block of a reply of the model.
    Assistant(Box<AssistantMessage>),
    /// Input of the model: a tool result, a notice, or a prompt that is replayed for a host.
    User(UserMessage),
    /// A raw event of the model's stream, with `--include-partial-messages`.
    StreamEvent(StreamEvent),
    System(SystemMessage),
    /// A host began a new conversation. Further messages have its id.
    ConversationReset {
        new_conversation_id: String,
    },
}

/// A block of a reply of the model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AssistantMessage {
    pub message: ReplyBlock,
    /// The id of the request, from the service. Absent if the reply is still being streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Option<String>>,
    /// The category of the failure of the service that the message reports to a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// An RFC 3339 timestamp in UTC.
    pub timestamp: Option<String>,
    /// The tool call that started the sub-agent.
    pub parent_tool_use_id: Option<String>,
}

/// One block of a reply, as a message of the Messages API.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReplyBlock {
    /// The id of the reply, which its blocks share.
    pub id: Option<String>,
    #[serde(rename = "type")]
    #[schemars(extend("const" = "message"))]
    pub kind: &'static str,
    #[schemars(extend("const" = "assistant"))]
    pub role: &'static str,
    /// The model as the service named it; `<synthetic>` for messages of outlast.
    pub model: Option<String>,
    /// One content block of the Messages API.
    #[schemars(with = "[Map<String, Value>; 1]")]
    pub content: [Block; 1],
    /// The stop reason of the reply, in its last block.
    pub stop_reason: Option<String>,
    pub stop_sequence: Option<String>,
    /// The token counts of the reply so far, as the Messages API has them.
    #[schemars(with = "Value")]
    pub usage: ReplyUsage,
}

/// The token counts of a reply.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ReplyUsage {
    /// Of a whole reply.
    Counted(Usage),
    /// At the start of a reply that is still being streamed, as the service sent them.
    Reported(Value),
    /// Zeros, in messages of outlast.
    Synthetic { input_tokens: u64, output_tokens: u64 },
}

impl ReplyBlock {
    /// Returns the message for a block that is not the last of its reply.
    pub fn new(id: Option<&str>, model: Option<&str>, block: Block, usage: ReplyUsage) -> Self {
        let (id, model) = (id.map(ToOwned::to_owned), model.map(ToOwned::to_owned));
        Self {
            id,
            kind: "message",
            role: "assistant",
            model,
            content: [block],
            stop_reason: None,
            stop_sequence: None,
            usage,
        }
    }
}

/// Input of the model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UserMessage {
    pub message: InputMessage,
    /// The result of the tool as programs read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_result: Option<Value>,
    /// True for messages that are not tool results and not from the user.
    #[serde(rename = "isSynthetic", skip_serializing_if = "is_false")]
    pub is_synthetic: bool,
    /// An RFC 3339 timestamp in UTC. Absent in replayed prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The tool call that started the sub-agent.
    pub parent_tool_use_id: Option<String>,
    /// True for prompts of a host, with `--replay-user-messages`.
    #[serde(rename = "isReplay", skip_serializing_if = "is_false")]
    pub is_replay: bool,
}

/// A message of the Messages API.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum InputMessage {
    Composed {
        /// Always `user`.
        role: &'static str,
        content: Vec<InputBlock>,
    },
    /// The message as the host wrote it.
    Replayed(#[schemars(with = "Map<String, Value>")] Value),
}

/// A content block of the Messages API.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum InputBlock {
    /// A tool result that is nothing but text.
    TextResult {
        /// Always `tool_result`.
        #[serde(rename = "type")]
        kind: &'static str,
        tool_use_id: String,
        content: String,
        #[serde(skip_serializing_if = "is_false")]
        is_error: bool,
    },
    Other(#[schemars(with = "Map<String, Value>")] Block),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A raw event of the model's stream.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamEvent {
    /// An event of the Messages API.
    pub event: Value,
    /// Always null: events of sub-agents are not streamed.
    pub parent_tool_use_id: Option<String>,
}

/// A message to a host that is not about the run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HostMessage {
    /// A request, which the host answers under its id.
    ControlRequest {
        request_id: String,
        #[schemars(with = "Value")]
        request: Box<HostRequest>,
    },
    /// A request is no longer needed.
    ControlCancelRequest { request_id: String },
    /// The reply to a request of the host.
    ControlResponse { response: ControlReply },
    /// Lines of the session's journal, with `--session-mirror`.
    TranscriptMirror {
        #[serde(rename = "filePath")]
        file_path: String,
        entries: Vec<Value>,
    },
}

/// The id of a request of the host, as the host wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RequestId {
    Text(String),
    Number(Number),
}

/// The reply to a request of the host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub enum ControlReply {
    Success {
        request_id: RequestId,
        #[schemars(with = "Value")]
        response: ControlResult,
    },
    Error {
        request_id: RequestId,
        error: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<&'static str>,
    },
}
