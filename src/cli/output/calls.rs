//! Lines about tool calls and acceptance checks.

use crate::agent::EndedCall;
use crate::config::format_took;
use crate::tools::RequirementCheck;
use crate::transcript::{Block, Message, summarize_call};

use super::PipeSender;

/// How many of the last lines of a call's output verbose output shows.
const TAIL_LINES: usize = 5;

/// A tool call, and how lines name it.
#[derive(Clone, Debug)]
pub(super) struct NamedCall {
    pub(super) id: String,
    pub(super) tool: String,
    /// The tool and what it works on, in short.
    pub(super) short: String,
}

/// The calls of the latest reply, so that lines can name what runs.
#[derive(Clone, Debug, Default)]
pub(super) struct CallNames(Vec<NamedCall>);

impl CallNames {
    /// Remembers the calls of a reply, and forgets those of the one before.
    pub(super) fn replace(&mut self, message: &Message, out: &PipeSender) {
        self.0 = calls(message, out).collect();
    }

    /// The call in short, or else the name of the tool: a tool that is asked about a call works
    /// under the id of that call.
    pub(super) fn of<'a>(&'a self, id: &str, tool: &'a str) -> &'a str {
        let call = self.0.iter().find(|call| call.id == id && call.tool == tool);
        call.map_or(tool, |call| &call.short)
    }
}

/// The tool calls of a reply.
pub(super) fn calls(message: &Message, out: &PipeSender) -> impl Iterator<Item = NamedCall> {
    message.content.iter().filter_map(|block| match block {
        Block::ToolUse { id, name, input } => {
            let short = summarize_call(name, &out.redact_input(input));
            Some(NamedCall { id: id.clone(), tool: name.clone(), short })
        }
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolResult { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => None,
    })
}

/// The line for a call that has ended.
pub(super) fn ended(names: &CallNames, call: &EndedCall) -> String {
    let name = names.of(&call.id, &call.name);
    let took = format_took(call.took);
    let how = match (call.is_error, call.exit_code) {
        (_, Some(code @ 1..)) => format!("exit {code}"),
        (false, _) => "ok".to_owned(),
        (true, _) => format!("failed: {}", first_line(&call.tail)),
    };
    format!("{name} → {how}, {took}")
}

/// The last lines of a call's output.
pub(super) fn tail(text: &str) -> impl Iterator<Item = &str> {
    let text = without_tags(text);
    let lines = text.lines().count();
    text.lines().skip(lines.saturating_sub(TAIL_LINES))
}

fn first_line(text: &str) -> &str {
    without_tags(text).lines().next().unwrap_or("no output")
}

fn without_tags(text: &str) -> &str {
    let text = text.trim().trim_start_matches("<tool_use_error>");
    text.trim_end_matches("</tool_use_error>").trim()
}

/// The line for a check of the command of `--require`.
pub(super) fn check(check: &RequirementCheck, (attempt, of): (u32, u32)) -> String {
    let command = &check.command;
    let how = match check.exit_code() {
        Some(0) => return format!("`{command}` passed, try {attempt} of {of}"),
        Some(code) => format!("failed (exit {code})"),
        None => check.end_phrase(),
    };
    let next = if attempt < of { "sent back to the model" } else { "no try is left" };
    format!("`{command}` {how}, {next}, try {attempt} of {of}")
}
