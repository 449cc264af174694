//! A line of a journal after it was parsed: its entry, its numbers, and what else readers need.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::transcript::{Message, Role, Usage};

use super::entry::JournalRecord;

/// The members of a tool's structured result that are read. The others are for hosts, and repeat
/// the whole output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ToolDetail {
    pub exit_code: Value,
    pub timed_out: Value,
    /// `update` for a file that was there before.
    #[serde(rename = "type")]
    pub kind: Value,
    #[serde(rename = "filePath")]
    pub file_path: Value,
    #[serde(rename = "structuredPatch")]
    pub structured_patch: Value,
    pub replacements: Value,
    /// The accepted structured output, which may be `null`.
    #[serde(deserialize_with = "some_value")]
    pub(super) structured_output: Option<Value>,
}

fn some_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The content of one line.
#[derive(Debug)]
pub enum JournalEntry {
    Message(Box<MessageEntry>),
    /// A line of another program that messages may refer to as their parent.
    Link {
        uuid: String,
        parent: Option<String>,
    },
    Record(Box<JournalRecord>),
    /// A transition that this version cannot parse, and does not need.
    UnreadTransition,
    /// The name of the session, as the user gave it.
    Title(String),
    /// A line without relevance.
    Other,
}

/// A line with a message.
#[derive(Debug)]
pub struct MessageEntry {
    pub uuid: String,
    pub parent: Option<String>,
    pub message: Message,
    pub model: Option<String>,
    pub stop_reason: Option<String>,
    /// The token counts of a reply, if outlast wrote the line.
    pub usage: Option<Usage>,
    pub cwd: Option<String>,
    /// True if it belongs to a side conversation, so that the main conversation cannot end here.
    pub is_sidechain: bool,
    /// True if outlast wrote the line.
    pub ours: bool,
    /// The number of the line and of all lines of its reply, if the reply has several.
    pub part: Option<(usize, usize)>,
    /// The structured output whose acceptance it records.
    pub(super) structured: Option<Value>,
}

impl MessageEntry {
    /// Returns true for a message of the user without results of tools.
    pub(super) fn is_prompt(&self) -> bool {
        let Message { role, content } = &self.message;
        *role == Role::User && !content.iter().any(|block| block.answered_call().is_some())
    }

    /// Returns true if it continues the reply of the line before.
    pub fn continues_reply(&self) -> bool {
        self.part.is_some_and(|(number, _)| number > 1)
    }
}

/// A parsed line.
#[derive(Debug)]
pub(super) struct ParsedLine {
    pub(super) entry: JournalEntry,
    /// The number of the line, if outlast wrote it.
    pub(super) seq: Option<u64>,
    /// The number of the line and of all lines of its step, if the step has several.
    pub(super) step: Option<(usize, usize)>,
    pub(super) facts: LineFacts,
}

impl ParsedLine {
    /// The number of the line and of all lines that are valid only together.
    pub(super) fn group(&self) -> Option<(usize, usize)> {
        let part = if let JournalEntry::Message(entry) = &self.entry { entry.part } else { None };
        self.step.or(part)
    }
}

/// The members of a line that are not in its entry.
#[derive(Debug, Default)]
pub(super) struct LineFacts {
    pub(super) timestamp: Option<String>,
    /// The token counts of a reply.
    pub(super) usage: Option<Usage>,
    pub(super) detail: Option<ToolDetail>,
}

impl LineFacts {
    pub(super) fn of(value: &Value) -> Self {
        // A struct can be deserialized from a list, too.
        let detail = value.get("toolUseResult").filter(|detail| detail.is_object());
        Self {
            timestamp: value.get("timestamp").and_then(Value::as_str).map(str::to_owned),
            usage: value.pointer("/message/usage").and_then(|it| Usage::deserialize(it).ok()),
            detail: detail.and_then(|detail| ToolDetail::deserialize(detail).ok()),
        }
    }
}
