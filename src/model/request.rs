//! The body of a request.
//!
//! What changes least comes first, and nothing in front of the newest message depends on it, so
//! that the service finds the longest cached prefix: the tools, the system prompt, the messages,
//! and only then what may differ between two attempts.

use serde_json::{Map, Value, json};

use crate::recovery::ReplyMode;
use crate::transcript::{Block, Message, Role, ToolDefinition};

use super::prices::{Thinking, thinking};

/// The smallest thinking budget that the service accepts, in tokens.
const THINKING_BUDGET_MIN: u32 = 1024;

/// What a request says.
#[derive(Clone, Copy, Debug)]
pub struct RequestContent<'a> {
    pub model: &'a str,
    pub system: &'a str,
    pub tools: &'a [ToolDefinition],
    pub messages: &'a [Message],
    /// The thinking budget, in tokens.
    pub thinking: Option<u32>,
    /// Whether fast mode is asked for.
    pub fast: bool,
    /// Who asks, where it is not the run itself: `agent:general-purpose`.
    pub source: Option<&'a str>,
}

/// The beta that fast mode is part of.
pub(super) const FAST_BETA: &str = "fast-mode-2026-02-01";

/// The body of a request for at most `cap` tokens of output.
///
/// # Errors
/// The prompt holds something that JSON cannot say.
pub fn build_body(prompt: &RequestContent<'_>, cap: u32, mode: ReplyMode) -> serde_json::Result<Vec<u8>> {
    let mut body = fields(prompt, cap, mode)?;
    if prompt.fast {
        body.insert("speed".to_owned(), json!("fast"));
    }
    serde_json::to_vec(&body)
}

fn fields(prompt: &RequestContent<'_>, cap: u32, mode: ReplyMode) -> serde_json::Result<Map<String, Value>> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(prompt.model));
    if !prompt.tools.is_empty() {
        let mut tools = serde_json::to_value(prompt.tools)?;
        if let Some(last) = tools.as_array_mut().and_then(|tools| tools.last_mut()) {
            set_cache_breakpoint(last);
        }
        body.insert("tools".to_owned(), tools);
    }
    if !prompt.system.trim().is_empty() {
        let mut system = json!({ "type": "text", "text": prompt.system });
        set_cache_breakpoint(&mut system);
        body.insert("system".to_owned(), json!([system]));
    }
    body.insert("messages".to_owned(), messages(prompt.messages)?);
    body.insert("max_tokens".to_owned(), json!(cap));
    body.insert("stream".to_owned(), json!(mode == ReplyMode::Streaming));
    if let Some(thinking) = prompt.thinking.and_then(|budget| thinking_field(prompt.model, budget, cap)) {
        body.insert("thinking".to_owned(), thinking);
    }
    Ok(body)
}

/// Marks the end of the last message, and the end of the user's message before it: there the
/// previous request ended, so its cache is found again however long this turn's blocks are.
fn messages(messages: &[Message]) -> serde_json::Result<Value> {
    let mut values =
        messages.iter().map(serde_json::to_value).collect::<serde_json::Result<Vec<_>>>()?;
    if let Some((last, earlier)) = messages.split_last() {
        mark_last_block(last, &mut values[earlier.len()]);
        let before = earlier.iter().rposition(|message| message.role == Role::User);
        if let Some(before) = before {
            mark_last_block(&messages[before], &mut values[before]);
        }
    }
    Ok(Value::Array(values))
}

/// Marks the last block that may carry a mark.
fn mark_last_block(message: &Message, value: &mut Value) {
    let may_be_marked = |block: &Block| match block {
        Block::Text { text } => !text.is_empty(),
        Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Image { .. }
        | Block::Document { .. } => true,
        Block::Thinking { .. } | Block::RedactedThinking { .. } | Block::Other(_) => false,
    };
    if let Some(at) = message.content.iter().rposition(may_be_marked) {
        set_cache_breakpoint(&mut value["content"][at]);
    }
}

fn set_cache_breakpoint(value: &mut Value) {
    value["cache_control"] = json!({ "type": "ephemeral" });
}

/// Thinking comes out of the output cap, so a budget that does not fit below it is left out.
fn thinking_field(model: &str, budget: u32, cap: u32) -> Option<Value> {
    match thinking(model) {
        Thinking::Adaptive => (budget > 0).then(|| json!({ "type": "adaptive" })),
        Thinking::Budget => (THINKING_BUDGET_MIN..cap)
            .contains(&budget)
            .then(|| json!({ "type": "enabled", "budget_tokens": budget })),
    }
}
