//! The messages of a conversation, in the format of the Messages API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
}

/// Replaces the signature of thinking in which a secret was redacted: the service would refuse it.
pub const LOST_SIGNATURE: &str = "[redacted]";

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: Vec<Block>,
}

impl Message {
    pub fn user(content: Vec<Block>) -> Self {
        Self { role: Role::User, content }
    }

    pub fn assistant(content: Vec<Block>) -> Self {
        Self { role: Role::Assistant, content }
    }

    /// Appends the message to `messages`, or joins it with the last one if that has the same role.
    pub fn join(self, messages: &mut Vec<Self>) {
        match messages.last_mut() {
            Some(last) if last.role == self.role => last.content.extend(self.content),
            Some(_) | None => messages.push(self),
        }
    }

    /// Splits a message into the parts that have an id of their own in transcripts and streams:
    /// each block of a reply, each leading tool result of a user message, and the rest.
    pub fn parts(&self) -> Vec<&[Block]> {
        let is_result = |block: &&Block| matches!(block, Block::ToolResult { .. });
        let single = match self.role {
            Role::Assistant => self.content.len(),
            Role::User => self.content.iter().take_while(is_result).count(),
        };
        let (single, rest) = self.content.split_at(single);
        single.chunks(1).chain((!rest.is_empty()).then_some(rest)).collect()
    }
}

/// The fields of a block that outlast does not read, unchanged. Some gateways keep state in calls,
/// such as the signature of Gemini's thinking; documents of a host have a title.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Map<String, Value>")]
pub struct OtherFields(Map<String, Value>);

impl From<Map<String, Value>> for OtherFields {
    /// Leaves out blank fields, and cache breakpoints, which each request sets itself.
    fn from(mut fields: Map<String, Value>) -> Self {
        let is_blank = |value: &Value| value.is_null() || value == "";
        fields.retain(|name, value| name != "cache_control" && !is_blank(value));
        Self(fields)
    }
}

impl OtherFields {
    /// The fields of a block in JSON, except those in `excluded`.
    pub fn of(block: &Value, excluded: &[&str]) -> Self {
        let mut fields = block.as_object().cloned().unwrap_or_default();
        fields.retain(|name, _| !excluded.contains(&name.as_str()));
        fields.into()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps the fields that `is_kept` accepts.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&str, &Value) -> bool) {
        self.0.retain(|name, value| is_kept(name, value));
    }

    /// All fields as JSON.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }
}

/// One content block. Unknown kinds are kept unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
        #[serde(flatten)]
        others: OtherFields,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(default)]
        content: Vec<Block>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    Image {
        source: Value,
    },
    Document {
        source: Value,
        #[serde(flatten)]
        others: OtherFields,
    },
    #[serde(untagged)]
    Other(Value),
}

impl Block {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// A tool call without other fields.
    pub fn call(id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        let others = OtherFields::default();
        Self::ToolUse { id: id.into(), name: name.into(), input, others }
    }

    /// A document without other fields.
    pub fn document(source: Value) -> Self {
        Self::Document { source, others: OtherFields::default() }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text { text } = self { Some(text) } else { None }
    }

    /// The id, the name and the input of a tool call.
    pub fn as_call(&self) -> Option<(&str, &str, &Value)> {
        if let Self::ToolUse { id, name, input, others: _ } = self {
            Some((id, name, input))
        } else {
            None
        }
    }

    /// The content of a tool result.
    pub(super) fn as_result(&self) -> Option<&[Self]> {
        if let Self::ToolResult { content, .. } = self { Some(content) } else { None }
    }

    /// The id of the answered call, if the block is a tool result.
    pub fn answered_call(&self) -> Option<&str> {
        if let Self::ToolResult { tool_use_id, .. } = self { Some(tool_use_id) } else { None }
    }

    pub fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::RedactedThinking { .. })
    }

    /// True if the block is thinking that was changed when it was recorded.
    pub fn has_lost_signature(&self) -> bool {
        matches!(self, Self::Thinking { signature, .. } if signature == LOST_SIGNATURE)
    }

    /// True if the block is thinking of a service that does not sign it.
    pub fn is_unsigned_thinking(&self) -> bool {
        matches!(self, Self::Thinking { signature, .. } if signature.is_empty())
    }

    pub fn is_signed_thinking(&self) -> bool {
        self.is_thinking() && !self.is_unsigned_thinking()
    }
}

/// A tool call that the model made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub input: Value,
}

/// A tool definition as sent to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    pub name: String,
    pub description: String,
    pub input_schema: Value,
}

/// Token counts of one reply, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_creation_input_tokens: u64,
    pub cache_read_input_tokens: u64,
    /// Web searches by the service.
    #[serde(skip_serializing_if = "is_zero")]
    pub web_search_requests: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// All input tokens, cached or not.
    pub fn input(&self) -> u64 {
        self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_creation_input_tokens += other.cache_creation_input_tokens;
        self.cache_read_input_tokens += other.cache_read_input_tokens;
        self.web_search_requests += other.web_search_requests;
    }
}
