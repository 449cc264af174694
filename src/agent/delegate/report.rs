//! What is told of a sub-agent to whoever started it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::recovery::{ErrorClass, StopReason};
use crate::tools::Outcome;
use crate::transcript::Block;

use super::super::conversation;
use super::child::Report;
use super::tree::AgentTask;

/// How much of its last words stands in the report of a failure, in characters.
const LAST_WORDS: usize = 4_000;

/// The words of one that is done.
pub(super) fn answer(report: &Report) -> String {
    if report.text.trim().is_empty() {
        "(the agent ended without a word)".to_owned()
    } else {
        report.text.clone()
    }
}

/// What one that is not done came to.
pub(super) fn failure(task: &AgentTask, report: &Report) -> String {
    let mark = &task.mark;
    let class = class_of(report.reason).map_or_else(String::new, |class| format!(", {class}"));
    let mut text = format!(
        "The agent {} ({}) did not finish. Stop reason: {}{class}.",
        mark.id,
        mark.kind,
        report.reason.name()
    );
    // A string takes all that is written to it.
    if let Some(error) = &task.error {
        let _ = write!(text, " What went wrong: {error}.");
    }
    if let Some(before) = &task.retries {
        let _ = write!(text, " It was the second try, after {before} had failed.");
    }
    let _ =
        write!(text, "\nTurns: {}. Cost: {}. Session: {}.", task.turns, task.cost, task.session);
    let done = &report.finished;
    if done.is_empty() {
        text.push_str(
            "\nIt had finished nothing: no tool of it ran to its end without an error. What a tool did \
             before it failed or was cut off may have had its effect.",
        );
    } else {
        text.push_str("\nWhat it had finished, each tool that ran without an error:");
        for line in done {
            let _ = write!(text, "\n- {line}");
        }
    }
    let words = report.text.trim();
    if words.is_empty() {
        text.push_str("\nIt had said nothing yet.");
    } else {
        let shown: String = words.chars().take(LAST_WORDS).collect();
        let rest = if shown.len() < words.len() { " [...]" } else { "" };
        let _ = write!(text, "\nIts last words:\n{shown}{rest}");
    }
    text
}

pub(super) fn class_of(reason: StopReason) -> Option<ErrorClass> {
    if let StopReason::ModelError(class) = reason { Some(class) } else { None }
}

/// What programs see.
pub(super) fn detail(task: &AgentTask, text: &str) -> Value {
    json!({
        "status": task.status.name(),
        "agentId": task.mark.id,
        "agentType": task.mark.kind,
        "reason": task.reason.map(StopReason::name),
        "prompt": task.prompt,
        "content": [{ "type": "text", "text": text }],
        "session": task.session,
        "totalDurationMs": u64::try_from(task.took.as_millis()).unwrap_or(u64::MAX),
        "totalTokens": task.tokens,
        "totalToolUseCount": task.tool_calls,
        "totalTurns": task.turns,
        "totalCostUsd": task.cost.as_dollars(),
    })
}

/// The text of an outcome.
pub(super) fn text_of(outcome: &Outcome) -> String {
    let blocks: Vec<Block> = outcome.content.clone();
    let text = conversation::text_of(&blocks);
    let bare = text.trim_start_matches("<tool_use_error>");
    bare.trim_end_matches("</tool_use_error>").to_owned()
}
