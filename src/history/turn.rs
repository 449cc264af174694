//! A turn of a session's history: a reply of the model, and the tools that it ran.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::recovery::Money;
use crate::transcript::{Block, Usage};

/// A reply of the model that entered the conversation, with its tool calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnRecord {
    /// Counted from 1 within the session.
    pub number: u32,
    /// The model that answered, by the API's name. Empty for a reply with thinking only.
    pub model: String,
    pub stop_reason: Option<String>,
    /// The content except the tool calls.
    pub content: Vec<Block>,
    pub tools: Vec<ToolRun>,
    pub usage: Usage,
    /// `None` when no price is known.
    pub cost: Option<Money>,
    /// From the last request to the whole reply. `None` if the journal does not say.
    pub took: Option<Duration>,
}

impl TurnRecord {
    /// The texts for the user, without thinking.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        texts_of(&self.content)
    }
}

/// A tool call: what was asked for, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRun {
    pub id: String,
    pub name: String,
    /// The input that it ran with.
    pub input: Value,
    /// Whether a hook or a permission callback changed the input.
    pub is_changed: bool,
    /// When it was about to run. `None`: it did not run, or it only read.
    pub started: Option<Timestamp>,
    /// When its result was recorded.
    pub ended: Option<Timestamp>,
    pub state: ToolRunState,
    /// The result as the model got it.
    pub output: Vec<Block>,
    /// The structured result, for programs.
    pub detail: Option<Value>,
}

/// What came of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolRunState {
    Succeeded,
    Failed,
    /// It was denied, invalid or cancelled before it began.
    NotRun,
    /// It was started, and its outcome is not recorded: its process ended first.
    Unknown,
    /// It has neither begun nor a result.
    Pending,
}

impl ToolRun {
    /// From its start to its recorded result.
    pub fn took(&self) -> Option<Duration> {
        if self.state == ToolRunState::Unknown {
            return None;
        }
        elapsed(self.started?, self.ended?)
    }

    /// The exit code of a command.
    pub fn exit_code(&self) -> Option<i64> {
        self.detail.as_ref()?.get("exit_code")?.as_i64()
    }

    /// Whether a command was ended because its time was over.
    pub fn is_timed_out(&self) -> bool {
        let timed_out = self.detail.as_ref().and_then(|detail| detail.get("timed_out"));
        timed_out.and_then(Value::as_bool).unwrap_or_default()
    }

    /// The text of the result.
    pub fn output_text(&self) -> String {
        texts_of(&self.output).collect::<Vec<_>>().join("\n")
    }
}

pub(super) fn texts_of(blocks: &[Block]) -> impl Iterator<Item = &str> {
    blocks.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => None,
    })
}

/// The time between two lines; `None` if a clock was set back in between.
pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok()
}
