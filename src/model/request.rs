//! Builds the body of a request.
//!
//! The fields are ordered by their stability, so that the service finds the longest cached prefix:
//! tools, system prompt, messages, and only then fields that may differ between two attempts.

use serde_json::{Map, Value, json};

use crate::recovery::ReplyMode;
use crate::transcript::{Block, Message, Role, ToolDefinition};

use super::reasoning::{EFFORT, Reasoning, THINKING};
use super::web_search::WebSearch;

/// The content of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestContent<'a> {
    pub model: &'a str,
    pub system: &'a str,
    pub tools: &'a [ToolDefinition],
    pub messages: &'a [Message],
    pub reasoning: Reasoning,
    /// The search tool of the service, beside `tools`.
    pub search: Option<&'a WebSearch>,
    /// True if fast mode is requested.
    pub fast: bool,
    /// The purpose of the request, such as `agent:general-purpose`, if it is not the run's own.
    pub source: Option<&'a str>,
}

/// The beta that enables fast mode.
pub(super) const FAST_BETA: &str = "fast-mode-2026-02-01";

/// Builds the body of a request with an output cap of `cap` tokens.
///
/// # Errors
/// The prompt cannot be represented as JSON.
pub fn build_body(
    prompt: &RequestContent<'_>,
    cap: u32,
    mode: ReplyMode,
) -> serde_json::Result<Vec<u8>> {
    let mut body = body_fields(prompt, cap, mode)?;
    mark_cache(&mut body, prompt.messages);
    serde_json::to_vec(&body)
}

/// The fields of the body, in order.
pub(super) fn body_fields(
    prompt: &RequestContent<'_>,
    cap: u32,
    mode: ReplyMode,
) -> serde_json::Result<Map<String, Value>> {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(prompt.model));
    if !prompt.tools.is_empty() || prompt.search.is_some() {
        let tools = prompt.tools.iter().map(serde_json::to_value);
        let mut tools = tools.collect::<serde_json::Result<Vec<Value>>>()?;
        tools.extend(prompt.search.map(|search| search.tool(prompt.model)));
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    if !prompt.system.trim().is_empty() {
        let system = json!({ "type": "text", "text": prompt.system });
        body.insert("system".to_owned(), json!([system]));
    }
    body.insert("messages".to_owned(), serde_json::to_value(prompt.messages)?);
    body.insert("max_tokens".to_owned(), json!(cap));
    body.insert("stream".to_owned(), json!(mode == ReplyMode::Streaming));
    if let Some(thinking) = prompt.reasoning.thinking_field(prompt.model, cap) {
        body.insert(THINKING.to_owned(), thinking);
    }
    if let Some(effort) = prompt.reasoning.effort_for(prompt.model) {
        body.insert(EFFORT.to_owned(), json!({ "effort": effort }));
    }
    if prompt.fast {
        body.insert("speed".to_owned(), json!("fast"));
    }
    Ok(body)
}

/// Sets the cache breakpoints of a body with these messages: after the tools, after the system
/// prompt, at the end of the last message and of the user message before it. There the previous
/// request ended, so its cache entry is found however long this turn is.
pub(super) fn mark_cache(body: &mut Map<String, Value>, messages: &[Message]) {
    for field in ["tools", "system"] {
        let list = body.get_mut(field).and_then(Value::as_array_mut);
        if let Some(last) = list.and_then(|list| list.last_mut()) {
            set_cache_breakpoint(last);
        }
    }
    let Some(values) = body.get_mut("messages") else { return };
    if let Some((last, earlier)) = messages.split_last() {
        mark_last_block(last, &mut values[earlier.len()]);
        let before = earlier.iter().rposition(|message| message.role == Role::User);
        if let Some(before) = before {
            mark_last_block(&messages[before], &mut values[before]);
        }
    }
}

/// Sets a cache breakpoint on the last block that may carry one.
fn mark_last_block(message: &Message, value: &mut Value) {
    let may_be_marked = |block: &Block| {
        let is_excluded = block.is_thinking() || matches!(block, Block::Other(_));
        !is_excluded && block.as_text() != Some("")
    };
    if let Some(at) = message.content.iter().rposition(may_be_marked) {
        set_cache_breakpoint(&mut value["content"][at]);
    }
}

fn set_cache_breakpoint(value: &mut Value) {
    value["cache_control"] = json!({ "type": "ephemeral" });
}
