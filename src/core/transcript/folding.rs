//! Folds old tool results: replaces each by a short note, without a model.
//!
//! Folding is possible at any time and costs nothing. Only results are folded: the model's text,
//! calls and thinking are kept, and every call keeps its result.

use super::excerpt::{beginning, excerpt_line};
use super::measure::ContentSize;
use super::notes::noted_exit_code;
use super::tool_exchanges::{ToolExchange, tool_exchanges};
use super::validity::calls;
use super::{Block, Message, Role, TokenDensity};

/// Number of the latest rounds of tool calls that stay unfolded: the model is still using them.
const ROUNDS_KEPT: usize = 3;
/// Minimum size of a folded result, in tokens. Larger than any fold, so that no result is folded
/// twice.
const RESULT_MIN: u64 = 800;
/// The part of each end of a result that a fold shows: lines, and bytes per line.
const LINES_SHOWN: usize = 3;
const LINE_MAX: usize = 160;

/// A result that can be folded, with its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Index of the message, and of the block in it.
    at: (usize, usize),
    id: String,
    brief: String,
}

/// All results that can be folded now, oldest first.
pub fn foldable(messages: &[Message]) -> Vec<Fold> {
    folds(messages).collect()
}

/// True if any result can be folded. Stops at the first one.
pub fn has_foldable(messages: &[Message]) -> bool {
    folds(messages).next().is_some()
}

fn folds(messages: &[Message]) -> impl Iterator<Item = Fold> {
    let recent = first_recent(messages);
    let old = tool_exchanges(messages).take_while(move |exchange| exchange.at.0 < recent);
    old.filter_map(|exchange| fold(&exchange))
}

/// Applies the folds. A fold whose result has moved is skipped.
pub fn apply_folds(messages: &mut [Message], folds: Vec<Fold>) {
    for fold in folds {
        let (message, block) = fold.at;
        let block = messages.get_mut(message).and_then(|message| message.content.get_mut(block));
        if let Some(Block::ToolResult { tool_use_id, content, .. }) = block
            && *tool_use_id == fold.id
        {
            *content = vec![Block::text(fold.brief)];
        }
    }
}

/// The index of the first message that is not folded.
fn first_recent(messages: &[Message]) -> usize {
    let has_calls =
        |message: &Message| message.role == Role::Assistant && calls(message).next().is_some();
    let mut rounds = messages.iter().enumerate().rev().filter(|(_, message)| has_calls(message));
    rounds.nth(ROUNDS_KEPT - 1).map_or(0, |(at, _)| at)
}

fn fold(exchange: &ToolExchange<'_>) -> Option<Fold> {
    if ContentSize::of(exchange.content).estimate_tokens(TokenDensity::USUAL) < RESULT_MIN {
        return None;
    }
    let brief = fold_text(exchange);
    Some(Fold { at: exchange.at, id: exchange.id.to_owned(), brief })
}

fn fold_text(exchange: &ToolExchange<'_>) -> String {
    let text = exchange.text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut parts = vec![format!(
        "[Folded to save room: {}: {}{}]",
        exchange.call_label(),
        size_note(exchange, &text),
        outcome_note(exchange, &lines),
    )];
    let show = |line: &&str| beginning(line, LINE_MAX).to_owned();
    if lines.len() <= 2 * LINES_SHOWN {
        parts.extend(lines.iter().map(show));
    } else {
        let last = lines.len() - LINES_SHOWN;
        parts.extend(lines[..LINES_SHOWN].iter().map(show));
        parts.push("[...]".to_owned());
        parts.extend(lines[last..].iter().map(show));
    }
    parts.push(format!("[{}]", reload_hint(exchange.name)));
    parts.join("\n")
}

/// The original size, in words.
fn size_note(exchange: &ToolExchange<'_>, text: &str) -> String {
    let others = exchange.content.iter().filter(|block| !matches!(block, Block::Text { .. }));
    let text =
        (!text.is_empty()).then(|| format!("{} bytes, {} lines", text.len(), text.lines().count()));
    let others = match others.count() {
        0 => None,
        1 => Some("1 image or document".to_owned()),
        many => Some(format!("{many} images or documents")),
    };
    text.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

/// The outcome of the call. Bash output begins with the exit code unless that is 0.
fn outcome_note(exchange: &ToolExchange<'_>, lines: &[&str]) -> String {
    let first = lines.first().copied().unwrap_or_default();
    if let Some(code) = noted_exit_code(first) {
        format!(", exit code {}", excerpt_line(code, 50))
    } else if exchange.is_error {
        ", failed".to_owned()
    } else if exchange.name == "Bash" {
        ", exit code 0".to_owned()
    } else {
        String::new()
    }
}

/// The advice to the model on how to get the complete result again.
fn reload_hint(tool: &str) -> &'static str {
    match tool {
        "Read" => "To see it whole, read it again.",
        "Glob" | "Grep" => "To see it whole, search again.",
        "Bash" => "To see it whole, run it again, if running it twice does no harm.",
        _ => "To see it whole, call the tool again, if calling it twice does no harm.",
    }
}
