//! Gateways that lose or break the arguments of tool calls when they stream: they answer the same
//! request correctly without streaming.

use crate::model::ModelReply;
use crate::recovery::Limits;
use crate::transcript::{Block, ToolDefinition};

/// Consecutive streamed replies without a usable call before replies are not streamed.
const LOST_MAX: u8 = 2;

/// Tracks whether the last streams lost the arguments of tool calls.
#[derive(Debug, Default)]
pub(super) struct StreamedArguments {
    /// Consecutive streamed replies in which no call had its arguments.
    lost: u8,
    /// Further replies that are not streamed.
    whole_replies: u8,
}

impl StreamedArguments {
    /// Records a reply with tool calls. Returns true if replies are not streamed from now on.
    pub(super) fn record(
        &mut self,
        reply: &ModelReply,
        tools: &[ToolDefinition],
        limits: &Limits,
    ) -> bool {
        let is_streamed = reply.first_token.is_some();
        if !is_streamed {
            self.whole_replies = self.whole_replies.saturating_sub(1);
            return false;
        }
        let mut calls = reply.content.iter().filter_map(Block::as_call);
        let is_lost = calls.all(|(id, name, input)| {
            let is_empty = input.as_object().is_some_and(serde_json::Map::is_empty);
            reply.malformed.iter().any(|call| call.id == id)
                || (is_empty && requires_arguments(tools, name))
        });
        self.lost = if is_lost { self.lost.saturating_add(1) } else { 0 };
        if self.lost < LOST_MAX {
            return false;
        }
        // Once replies are streamed again, a single such stream is enough.
        self.lost = LOST_MAX - 1;
        self.whole_replies = limits.whole_turns.saturating_add(1);
        true
    }

    /// Returns true if replies are not streamed for now.
    pub(super) fn are_lost(&self) -> bool {
        self.whole_replies > 0
    }
}

fn requires_arguments(tools: &[ToolDefinition], name: &str) -> bool {
    let tool = tools.iter().find(|tool| tool.name == name);
    let required = tool.and_then(|tool| tool.input_schema["required"].as_array());
    required.is_some_and(|required| !required.is_empty())
}
