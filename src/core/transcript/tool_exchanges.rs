//! Pairs tool calls with their results.

use serde_json::Value;

use super::excerpt::excerpt_line;
use super::{Block, Message};

/// Longest argument that a label shows, in bytes.
const ARGUMENT_MAX: usize = 200;

/// The arguments that identify a call, most specific first.
const IDENTIFYING_ARGUMENTS: [&str; 9] = [
    "file_path",
    "notebook_path",
    "command",
    "pattern",
    "url",
    "query",
    "path",
    "description",
    "prompt",
];

/// A tool call and its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolExchange<'a> {
    /// Index of the message that holds the result, and of the result in it.
    pub(super) at: (usize, usize),
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) input: &'a Value,
    pub(super) content: &'a [Block],
    pub(super) is_error: bool,
}

impl ToolExchange<'_> {
    /// The tool and its main argument, on one line.
    pub(super) fn call_label(&self) -> String {
        label(self.name, self.input)
    }

    /// All text of the result.
    pub(super) fn text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(Block::as_text).collect();
        texts.join("\n")
    }
}

/// Every result in the order of the conversation, with the call in the message before.
pub(super) fn tool_exchanges(messages: &[Message]) -> impl Iterator<Item = ToolExchange<'_>> {
    messages.windows(2).enumerate().flat_map(|(before, pair)| {
        let [reply, results] = pair else { unreachable!("windows of two") };
        results.content.iter().enumerate().filter_map(move |(index, block)| {
            let Block::ToolResult { tool_use_id, content, is_error } = block else { return None };
            let mut calls = reply.content.iter().filter_map(Block::as_call);
            let (_, name, input) = calls.find(|(id, ..)| id == tool_use_id)?;
            let at = (before + 1, index);
            Some(ToolExchange { at, id: tool_use_id, name, input, content, is_error: *is_error })
        })
    })
}

/// Formats a call on one line: the tool, and its most specific argument.
pub(super) fn label(name: &str, input: &Value) -> String {
    let best = IDENTIFYING_ARGUMENTS.iter().find_map(|argument| input.get(argument)?.as_str());
    let any = || input.as_object()?.values().find_map(Value::as_str);
    match best.or_else(any).map(|argument| excerpt_line(argument, ARGUMENT_MAX)) {
        Some(argument) if !argument.is_empty() => format!("{name} `{argument}`"),
        Some(_) | None => name.to_owned(),
    }
}

/// A text placeholder for a block that is not text.
pub(super) fn placeholder(block: &Block) -> Option<String> {
    let (noun, source) = match block {
        Block::Image { source } => ("image", source),
        Block::Document { source, .. } => ("document", source),
        Block::Other(value) => {
            let kind = value.get("type").and_then(Value::as_str).unwrap_or("block");
            return Some(format!("[{}: not shown]", excerpt_line(kind, 60)));
        }
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse { .. }
        | Block::ToolResult { .. } => return None,
    };
    let detail = source.get("media_type").and_then(Value::as_str);
    let detail = detail.or_else(|| source.get("url")?.as_str());
    let detail = detail.map(|detail| format!(", {}", excerpt_line(detail, 200)));
    Some(format!("[{noun}{}: not shown]", detail.unwrap_or_default()))
}
