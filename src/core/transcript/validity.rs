//! Checks message lists by the API's rules before they are sent.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Block, Message, Role};

/// A broken rule, and the message that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Index of the message, counted from 0.
    pub at: usize,
    pub rule: HistoryRule,
}

/// The rules of a message list, named after their violations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryRule {
    /// The list is empty.
    NoMessage,
    /// The first message is not the user's.
    AssistantOpens,
    /// The last message is not the user's.
    AssistantCloses,
    /// The message before has the same role.
    SameRoleTwice,
    /// A message without a block.
    NoContent,
    /// An assistant message whose last block is thinking.
    EndsInThinking,
    /// A tool call that the next message does not answer.
    Unanswered { id: String },
    /// A tool-use id that was used before.
    RepeatedId { id: String },
    /// A tool result without its call in the message before.
    OrphanResult { id: String },
    /// A second result for one call.
    SecondResult { id: String },
    /// A tool result after something that is not one.
    LateResult { id: String },
    /// A block with a flaw.
    Flawed(BlockFlaw),
}

/// A flaw of one block, independent of other blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockFlaw {
    /// Blank text. The API rejects it in every position.
    BlankText,
    /// A block that is only valid in the other role's messages or outside of tool results.
    Misplaced,
    /// A block without a type, or a known type without a required field.
    Malformed,
    /// A tool call without an id.
    NoId,
    /// A tool call whose id is far too long or has characters that no service sends.
    BadId,
    /// A tool name that is too long or has characters that the API rejects.
    BadName,
    /// A tool call whose input is not an object.
    BadInput,
}

/// Longest tool name that the API accepts.
pub(super) const NAME_MAX: usize = 128;
/// Longest tool-use id that is sent back.
const RETURNABLE_ID_MAX: usize = 16_384;
/// Longest tool-use id that all services accept. Bedrock is the strictest.
pub(super) const ID_MAX: usize = 64;

/// All violations that prevent `messages` from being sent.
pub fn violations(messages: &[Message]) -> Vec<Violation> {
    let mut found = history_violations(messages);
    found.extend(violation_at_end(messages));
    found
}

/// The violation of a list that does not end with the user.
pub(super) fn violation_at_end(messages: &[Message]) -> Option<Violation> {
    match messages.last() {
        None => Some(Violation { at: 0, rule: HistoryRule::NoMessage }),
        Some(last) if last.role == Role::Assistant => {
            Some(Violation { at: messages.len() - 1, rule: HistoryRule::AssistantCloses })
        }
        Some(_user) => None,
    }
}

/// The violations of a history that may end with the assistant: a prompt will follow, or a paused
/// reply must be sent back.
pub fn history_violations(messages: &[Message]) -> Vec<Violation> {
    violations_from(messages, 0)
}

/// The violations in the messages from index `first` on. Those before it are valid.
pub(super) fn violations_from(messages: &[Message], first: usize) -> Vec<Violation> {
    let mut found = Vec::new();
    let (valid, _) = messages.split_at(first);
    let mut ids = HashSet::new();
    let mut before = valid.last();
    for (at, message) in messages.iter().enumerate().skip(first) {
        let mut report = |rule| found.push(Violation { at, rule });
        match before {
            None if message.role == Role::Assistant => report(HistoryRule::AssistantOpens),
            Some(before) if before.role == message.role => report(HistoryRule::SameRoleTwice),
            Some(_) | None => {}
        }
        if message.content.is_empty() {
            report(HistoryRule::NoContent);
        }
        for block in &message.content {
            flaws(message.role, block).into_iter().map(HistoryRule::Flawed).for_each(&mut report);
        }
        match message.role {
            Role::Assistant => {
                let is_new =
                    |id| ids.insert(id) && !valid.iter().flat_map(calls).any(|known| known == id);
                check_calls(message, messages.get(at + 1), is_new, &mut report);
            }
            Role::User => check_results(message, before, &mut report),
        }
        before = Some(message);
    }
    found
}

fn check_calls<'a>(
    message: &'a Message,
    next: Option<&Message>,
    mut is_new: impl FnMut(&'a str) -> bool,
    report: &mut impl FnMut(HistoryRule),
) {
    let answers: HashSet<&str> =
        next.filter(|next| next.role == Role::User).into_iter().flat_map(results).collect();
    for id in calls(message) {
        if !is_new(id) {
            report(HistoryRule::RepeatedId { id: id.to_owned() });
        }
        if !answers.contains(id) {
            report(HistoryRule::Unanswered { id: id.to_owned() });
        }
    }
    if message.content.last().is_some_and(Block::is_thinking) {
        report(HistoryRule::EndsInThinking);
    }
}

fn check_results(
    message: &Message,
    before: Option<&Message>,
    report: &mut impl FnMut(HistoryRule),
) {
    let mut open: HashMap<&str, bool> = before
        .filter(|before| before.role == Role::Assistant)
        .into_iter()
        .flat_map(calls)
        .map(|id| (id, false))
        .collect();
    let mut has_other_blocks = false;
    for block in &message.content {
        let Some(id) = block.answered_call() else {
            has_other_blocks = true;
            continue;
        };
        if has_other_blocks {
            report(HistoryRule::LateResult { id: id.to_owned() });
        }
        match open.get_mut(id) {
            None => report(HistoryRule::OrphanResult { id: id.to_owned() }),
            Some(answered) if *answered => report(HistoryRule::SecondResult { id: id.to_owned() }),
            Some(answered) => *answered = true,
        }
    }
}

/// The flaws of one block in a message of `role`.
pub(super) fn flaws(role: Role, block: &Block) -> Vec<BlockFlaw> {
    let flaw = match (role, block) {
        (_, Block::Text { text }) => text.trim().is_empty().then_some(BlockFlaw::BlankText),
        // Some services do not sign thinking, and want it back.
        (Role::Assistant, Block::Thinking { .. }) => None,
        (Role::Assistant, Block::RedactedThinking { data }) => {
            data.is_empty().then_some(BlockFlaw::Malformed)
        }
        (Role::Assistant, Block::ToolUse { id, name, input, .. }) => {
            return [
                (id.is_empty(), BlockFlaw::NoId),
                (!id.is_empty() && !is_returnable_id(id), BlockFlaw::BadId),
                (!is_name(name), BlockFlaw::BadName),
                (!input.is_object(), BlockFlaw::BadInput),
            ]
            .into_iter()
            .filter_map(|(broken, flaw)| broken.then_some(flaw))
            .collect();
        }
        (Role::User, Block::ToolResult { content, .. }) => {
            return content.iter().filter_map(inner_result_flaw).collect();
        }
        (Role::User, Block::Image { source } | Block::Document { source, .. }) => {
            (!source.is_object()).then_some(BlockFlaw::Malformed)
        }
        (_, Block::Other(value)) => (!is_unknown_block(value)).then_some(BlockFlaw::Malformed),
        (
            Role::User,
            Block::Thinking { .. } | Block::RedactedThinking { .. } | Block::ToolUse { .. },
        )
        | (
            Role::Assistant,
            Block::ToolResult { .. } | Block::Image { .. } | Block::Document { .. },
        ) => Some(BlockFlaw::Misplaced),
    };
    flaw.into_iter().collect()
}

pub(super) fn inner_result_flaw(block: &Block) -> Option<BlockFlaw> {
    let is_result = matches!(block, Block::ToolResult { .. });
    if is_result { Some(BlockFlaw::Misplaced) } else { flaws(Role::User, block).first().copied() }
}

/// True if an unknown block may be valid. A block of a known type is stored as unknown only if a
/// field is missing.
fn is_unknown_block(value: &Value) -> bool {
    const OURS: [&str; 7] =
        ["text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document"];
    value.get("type").and_then(Value::as_str).is_some_and(|kind| !OURS.contains(&kind))
}

/// True if names of tools may contain this letter.
pub fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// True if `id` can be sent back to the service that made it. Some gateways keep state in ids, such
/// as the signature of Gemini's thinking.
pub fn is_returnable_id(id: &str) -> bool {
    (1..=RETURNABLE_ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// True if every service accepts `id` as a tool-use id.
pub fn is_portable_id(id: &str) -> bool {
    (1..=ID_MAX).contains(&id.len()) && id.chars().all(is_name_letter)
}

fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_name_letter)
}

pub(super) fn calls(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(Block::as_call).map(|(id, ..)| id)
}

pub(super) fn results(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(Block::answered_call)
}
