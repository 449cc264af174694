//! Queries on messages and blocks.

use crate::transcript::{Block, Message, Role, ToolCall};

/// Returns the text of some blocks, joined.
pub(super) fn text_of(blocks: &[Block]) -> String {
    blocks.iter().filter_map(Block::as_text).collect::<Vec<_>>().join("\n")
}

/// Returns the tool calls of the last message that have no result yet.
pub(super) fn open_calls(messages: &[Message]) -> Vec<ToolCall> {
    let last = messages.last().filter(|message| message.role == Role::Assistant);
    last.into_iter().flat_map(|message| &message.content).filter_map(tool_call).collect()
}

/// Returns true if a call with this id was made before.
pub(super) fn knows_call(messages: &[Message], id: &str) -> bool {
    let blocks = messages.iter().flat_map(|message| &message.content);
    blocks.into_iter().any(|block| matches!(block, Block::ToolUse { id: known, .. } if known == id))
}

fn tool_call(block: &Block) -> Option<ToolCall> {
    let Block::ToolUse { id, name, input, .. } = block else { return None };
    Some(ToolCall { id: id.clone(), name: name.clone(), input: input.clone() })
}

/// Returns a synthetic result for a tool call that has none of its own.
pub(super) fn synthetic(tool_use_id: String, text: &str) -> Block {
    Block::ToolResult { tool_use_id, content: vec![Block::text(text)], is_error: true }
}

/// Returns true if a block justifies a message in the history. Thinking does not: the service
/// refuses a message that has nothing else.
pub(super) fn is_substantial(block: &Block) -> bool {
    !block.is_thinking() && block.as_text().is_none_or(|text| !text.trim().is_empty())
}

pub(super) fn is_error(result: &Block) -> bool {
    matches!(result, Block::ToolResult { is_error: true, .. })
}

/// Joins a text and a list in one block, so that compaction recognises it by its beginning.
pub(super) fn join_list(text: &str, list: &str) -> String {
    format!("{text}\n\n{list}")
}
