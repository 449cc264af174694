//! Folds: old tool results brought down to a few lines that still say what they were.
//!
//! Made without a model, at any time, for nothing. Only results are folded: the model's own
//! words, its calls and its thinking stay as they are, and every call keeps its answer.

use super::dealings::{ToolExchange, tool_exchanges};
use super::excerpt::{beginning, one_line};
use super::measure::ContentSize;
use super::{Block, TokenDensity, Message, Role};

/// The latest rounds of tool calls, which stay whole: the model is working with them.
const ROUNDS_KEPT: usize = 3;
/// Results smaller than this, in tokens, stay: a fold of them would save little. Larger than any
/// fold, so that nothing is folded twice.
const RESULT_MIN: u64 = 800;
/// What a fold shows of either end of a result: lines, and bytes of each.
const LINES_SHOWN: usize = 3;
const LINE_MAX: usize = 160;

/// A result that can be folded, and what it would become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Index of the message, and of the block in it.
    at: (usize, usize),
    id: String,
    brief: String,
    /// Of the content that is there, and of the fold.
    whole: ContentSize,
    folded: ContentSize,
}

/// Everything that can be folded now, oldest first. Empty when all of it has been.
pub fn foldable(messages: &[Message]) -> Vec<Fold> {
    folds(messages).collect()
}

/// Whether anything is staged. Looks no further than it must.
pub fn has_foldable(messages: &[Message]) -> bool {
    folds(messages).next().is_some()
}

fn folds(messages: &[Message]) -> impl Iterator<Item = Fold> {
    let recent = first_recent(messages);
    let old = tool_exchanges(messages).take_while(move |dealing| dealing.at.0 < recent);
    old.filter_map(|dealing| fold(&dealing))
}

/// The tokens that `folds` would free.
pub fn saved_tokens(folds: &[Fold], density: TokenDensity) -> u64 {
    let sum = |size: fn(&Fold) -> ContentSize| {
        folds.iter().map(size).fold(ContentSize::default(), ContentSize::plus).estimate_tokens(density)
    };
    sum(|fold| fold.whole).saturating_sub(sum(|fold| fold.folded))
}

/// Folds what was staged. A fold whose result is no longer where it was is left out.
pub fn apply_folds(messages: &mut [Message], folds: Vec<Fold>) {
    for fold in folds {
        let (message, block) = fold.at;
        let place = messages.get_mut(message).and_then(|message| message.content.get_mut(block));
        match place {
            Some(Block::ToolResult { tool_use_id, content, .. }) if *tool_use_id == fold.id => {
                *content = vec![Block::text(fold.brief)];
            }
            Some(_) | None => {}
        }
    }
}

/// The index of the first message that stays as it is.
fn first_recent(messages: &[Message]) -> usize {
    let calls = |message: &Message| {
        message.role == Role::Assistant
            && message.content.iter().any(|block| matches!(block, Block::ToolUse { .. }))
    };
    let mut rounds = messages.iter().enumerate().rev().filter(|(_, message)| calls(message));
    rounds.nth(ROUNDS_KEPT - 1).map_or(0, |(at, _)| at)
}

fn fold(dealing: &ToolExchange<'_>) -> Option<Fold> {
    let whole = ContentSize::of(dealing.content);
    if whole.estimate_tokens(TokenDensity::USUAL) < RESULT_MIN {
        return None;
    }
    let brief = fold_text(dealing);
    let folded = ContentSize::of([&Block::text(brief.as_str())]);
    Some(Fold { at: dealing.at, id: dealing.id.to_owned(), brief, whole, folded })
}

fn fold_text(dealing: &ToolExchange<'_>) -> String {
    let text = dealing.text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut parts = vec![format!(
        "[Folded to save room: {}: {}{}]",
        dealing.call_label(),
        size_note(dealing, &text),
        outcome_note(dealing, &lines),
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
    parts.push(format!("[{}]", reload_hint(dealing.name)));
    parts.join("\n")
}

/// How much there was.
fn size_note(dealing: &ToolExchange<'_>, text: &str) -> String {
    let others = dealing.content.iter().filter(|block| !matches!(block, Block::Text { .. }));
    let text =
        (!text.is_empty()).then(|| format!("{} bytes, {} lines", text.len(), text.lines().count()));
    let others = match others.count() {
        0 => None,
        1 => Some("1 image or document".to_owned()),
        many => Some(format!("{many} images or documents")),
    };
    text.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

/// How the call ended. Bash begins with its exit code unless that is 0.
fn outcome_note(dealing: &ToolExchange<'_>, lines: &[&str]) -> String {
    let first = lines.first().copied().unwrap_or_default();
    if first.starts_with("Exit code ") {
        format!(", {}", one_line(first, 60).replacen("Exit", "exit", 1))
    } else if dealing.is_error {
        ", failed".to_owned()
    } else if dealing.name == "Bash" {
        ", exit code 0".to_owned()
    } else {
        String::new()
    }
}

/// How to see the whole again.
fn reload_hint(tool: &str) -> &'static str {
    match tool {
        "Read" => "To see it whole, read it again.",
        "Glob" | "Grep" => "To see it whole, search again.",
        "Bash" => "To see it whole, run it again, if running it twice does no harm.",
        _ => "To see it whole, call the tool again, if calling it twice does no harm.",
    }
}
