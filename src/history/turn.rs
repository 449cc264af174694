//! A turn of a session's history: a reply of the model, and its tool calls.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::journal::ToolDetail;
use crate::recovery::Money;
use crate::transcript::{Block, Usage};

/// A reply of the model that entered the conversation, with its tool calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnRecord {
    /// Number within the session, counted from 1.
    pub number: u32,
    /// API name of the model that answered. Empty for a reply with thinking only.
    pub model: String,
    pub stop_reason: Option<String>,
    /// The content except the tool calls.
    pub content: Vec<Block>,
    pub tools: Vec<ToolRun>,
    pub usage: Usage,
    /// `None` when no price is known.
    pub cost: Option<Money>,
    /// Time from the last request to the complete reply. `None` if one of the times is missing.
    pub took: Option<Duration>,
}

impl TurnRecord {
    /// Returns the text blocks, which are for the user. Thinking is left out.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        texts_of(&self.content)
    }
}

/// A tool call with its input, times and result.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRun {
    pub id: String,
    pub name: String,
    /// The input that it ran with, including changes by a hook or a permission callback.
    pub input: Value,
    /// True if a hook or a permission callback changed the input.
    pub is_changed: bool,
    /// Time of the record just before it ran. `None`: it did not run, or the record is missing.
    pub started: Option<Timestamp>,
    /// Time at which its result was recorded.
    pub ended: Option<Timestamp>,
    pub state: ToolRunState,
    /// The result as sent to the model.
    pub output: Vec<Block>,
    /// The structured result, for programs.
    pub detail: Option<ToolDetail>,
}

/// The outcome of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolRunState {
    Succeeded,
    Failed,
    /// It was denied, invalid or cancelled before it began.
    NotRun,
    /// It was started by the process that works on the session, and has no result yet.
    Running,
    /// It was started, but the process ended before its outcome was recorded.
    Unknown,
    /// It has not begun, and has no result.
    Pending,
}

impl ToolRun {
    /// A call that was not started yet.
    pub(super) fn new(id: String, name: String, input: Value) -> Self {
        Self {
            id,
            name,
            input,
            is_changed: false,
            started: None,
            ended: None,
            state: ToolRunState::Pending,
            output: Vec::new(),
            detail: None,
        }
    }

    /// Returns the time from its start to its recorded result, if both are known.
    pub fn took(&self) -> Option<Duration> {
        if self.state == ToolRunState::Unknown {
            return None;
        }
        elapsed(self.started?, self.ended?)
    }

    /// Returns the exit code of a command. `None`: it has none, or the call is not a command.
    pub fn exit_code(&self) -> Option<i64> {
        self.detail.as_ref()?.exit_code.as_i64()
    }

    /// True if a command was ended at its time limit.
    pub fn is_timed_out(&self) -> bool {
        self.detail.as_ref().is_some_and(|detail| detail.timed_out == true)
    }

    /// Returns the text of the result, without images and documents.
    pub fn output_text(&self) -> String {
        texts_of(&self.output).collect::<Vec<_>>().join("\n")
    }
}

pub(super) fn texts_of(blocks: &[Block]) -> impl Iterator<Item = &str> {
    blocks.iter().filter_map(Block::as_text)
}

/// Returns the time between two lines. `None` if the clock was set back in between.
pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok()
}
