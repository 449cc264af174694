//! Takes out of a conversation what the service refuses to read, and no more than that.
//!
//! The decision comes first and changes nothing, so that it can be asked for beforehand. Every
//! cure takes away what it cures for good: the same complaint cannot be cured for ever.

use std::collections::HashMap;
use std::mem;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::media::{is_replacement_text, strip_one};
use super::validity::{calls, is_thinking, violations};
use super::{Block, Message, Role, BlockPath, repair, strip_thinking};

/// What the service finds wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectedBlock {
    /// An image or a document.
    Media,
    /// Thinking that the model did not sign.
    Thinking,
    /// Tool calls and results that do not belong together.
    Pairs,
    /// The block at the spot, for any other reason.
    Block,
}

/// What was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "healed")]
pub enum RepairOutcome {
    /// Images and documents were replaced by a note.
    MediaRemoved { blocks: usize },
    /// All thinking was taken out.
    ThinkingStripped,
    /// Broken rules of ours were mended.
    Repaired { mends: usize },
    /// Calls and their results became plain text.
    PairsUntied { calls: usize },
    /// A block was replaced by a note.
    BlockReplaced,
    /// A tool call's input was emptied.
    InputEmptied,
}

/// What every note begins with, so that no note is ever replaced by another. What stands in the
/// place of media is said in `media.rs`.
const NOTE: &str = "[Taken out by outlast: ";
const BLOCK_NOTE: &str = "[Taken out by outlast: content that the service could not take. What \
    is needed of it must be found out again.]";
/// The most of a call's input that is kept in words, in bytes.
const INPUT_WORDS: usize = 1_000;

/// Whether [`heal`] would change anything.
pub fn can_repair_rejected(messages: &[Message], spot: Option<BlockPath>, complaint: RejectedBlock) -> bool {
    choose_repair(messages, spot, complaint).is_some()
}

/// Takes out what the service complains about. A valid list stays valid. Returns what was done;
/// `None` if there is nothing to be done, and then nothing was changed.
pub fn repair_rejected(
    messages: &mut Vec<Message>,
    spot: Option<BlockPath>,
    complaint: RejectedBlock,
) -> Option<RepairOutcome> {
    Some(match choose_repair(messages, spot, complaint)? {
        BlockRepair::Repair => {
            let (repaired, repairs) = repair(mem::take(messages));
            *messages = repaired;
            RepairOutcome::Repaired { mends: repairs.len() }
        }
        BlockRepair::Strip => {
            strip_thinking(messages);
            RepairOutcome::ThinkingStripped
        }
        BlockRepair::Untie(at) => RepairOutcome::PairsUntied { calls: calls_to_text(messages, at) },
        BlockRepair::Empty { message, block } => {
            if let Block::ToolUse { input, .. } = &mut messages[message].content[block] {
                *input = json!({});
            }
            RepairOutcome::InputEmptied
        }
        BlockRepair::Remove(spots) => {
            let blocks = spots.len();
            for spot in spots {
                replace(messages, spot);
            }
            RepairOutcome::MediaRemoved { blocks }
        }
        BlockRepair::Replace(spots) => {
            for spot in spots {
                replace(messages, spot);
            }
            RepairOutcome::BlockReplaced
        }
    })
}

/// Whether the model is in the middle of its tool calls and no reply since the last words of the
/// user holds any thinking. Models that think by budget want to see it there: when it was taken
/// out, they must not be asked to think until the calls are over.
pub fn lacks_thinking(messages: &[Message]) -> bool {
    let answers = |block: &Block| matches!(block, Block::ToolResult { .. });
    let is_prompt =
        |message: &Message| message.role == Role::User && !message.content.iter().any(answers);
    let begins = messages.iter().rposition(is_prompt).map_or(0, |at| at + 1);
    let replies = messages[begins..].iter().filter(|message| message.role == Role::Assistant);
    let calls = replies.clone().next_back().is_some_and(|reply| calls(reply).next().is_some());
    calls && !replies.into_iter().any(|reply| reply.content.iter().any(is_thinking))
}

/// A change that is known to change something. Every spot in it exists.
enum BlockRepair {
    Repair,
    Strip,
    /// The calls of the message with this index, and their results.
    Untie(usize),
    /// The input of a call.
    Empty {
        message: usize,
        block: usize,
    },
    Remove(Vec<BlockPath>),
    Replace(Vec<BlockPath>),
}

fn choose_repair(messages: &[Message], spot: Option<BlockPath>, complaint: RejectedBlock) -> Option<BlockRepair> {
    match complaint {
        RejectedBlock::Media => repair_of_media(messages, spot).map(BlockRepair::Remove),
        RejectedBlock::Thinking => has_thinking(messages).then_some(BlockRepair::Strip),
        // What our own rules find is the likeliest cause, wherever the service saw it.
        RejectedBlock::Pairs | RejectedBlock::Block if !violations(messages).is_empty() => {
            Some(BlockRepair::Repair)
        }
        RejectedBlock::Pairs => repair_of_pairs(messages, spot?),
        RejectedBlock::Block => repair_of_block(messages, spot?),
    }
}

fn has_thinking(messages: &[Message]) -> bool {
    messages.iter().flat_map(|message| &message.content).any(is_thinking)
}

/// The media at the spot; where there are none, or no spot, those that were never sent before,
/// and at last all. A service whose count differs from ours is still right about the media.
fn repair_of_media(messages: &[Message], spot: Option<BlockPath>) -> Option<Vec<BlockPath>> {
    if let Some(spot) = spot
        && let Some(message) = messages.get(spot.message)
    {
        let block = spot.block.and_then(|at| message.content.get(at));
        if block.is_some_and(|block| is_our_note(block, spot.inner)) {
            return None;
        }
        let here = media_in(spot.message, message);
        let exact: Vec<BlockPath> = here.iter().filter(|one| spot.contains(one)).copied().collect();
        let wider = |one: &&BlockPath| spot.block.is_some_and(|block| one.block == Some(block));
        let around: Vec<BlockPath> = here.iter().filter(wider).copied().collect();
        let found = [exact, around, here].into_iter().find(|found| !found.is_empty());
        if found.is_some() {
            return found;
        }
    }
    let sent = messages.iter().rposition(|message| message.role == Role::Assistant).unwrap_or(0);
    let all: Vec<BlockPath> =
        messages.iter().enumerate().flat_map(|(at, message)| media_in(at, message)).collect();
    let new: Vec<BlockPath> = all.iter().filter(|spot| spot.message >= sent).copied().collect();
    [new, all].into_iter().find(|found| !found.is_empty())
}

impl BlockPath {
    /// Whether `other` lies here, exactly as far as this spot is known.
    fn contains(self, other: &Self) -> bool {
        self.message == other.message
            && self.block.is_none_or(|block| other.block == Some(block))
            && self.inner.is_none_or(|inner| other.inner == Some(inner))
    }
}

fn media_in(message: usize, holder: &Message) -> Vec<BlockPath> {
    let mut found = Vec::new();
    for (at, block) in holder.content.iter().enumerate() {
        let here = BlockPath { message, block: Some(at), inner: None };
        if is_media(block) {
            found.push(here);
        }
        let Block::ToolResult { content, .. } = block else { continue };
        let media = content.iter().enumerate().filter(|(_, block)| is_media(block));
        found.extend(media.map(|(inner, _)| BlockPath { inner: Some(inner), ..here }));
    }
    found
}

fn is_media(block: &Block) -> bool {
    matches!(block, Block::Image { .. } | Block::Document { .. })
}

/// Whether what stands there is a note of ours.
fn is_our_note(block: &Block, inner: Option<usize>) -> bool {
    match block {
        Block::Text { text } => text.starts_with(NOTE) || is_replacement_text(text),
        Block::ToolResult { content, .. } => match inner {
            Some(inner) => content.get(inner).is_some_and(|block| is_our_note(block, None)),
            None => content.len() == 1 && is_our_note(&content[0], None),
        },
        Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolUse { .. }
        | Block::Image { .. }
        | Block::Document { .. }
        | Block::Other(_) => false,
    }
}

/// The service sees no pairs where our rules see them: then it gets words instead.
fn repair_of_pairs(messages: &[Message], spot: BlockPath) -> Option<BlockRepair> {
    let message = messages.get(spot.message)?;
    let foreign = spot.block.and_then(|at| message.content.get(at));
    if matches!(foreign, Some(Block::Other(_))) {
        return repair_of_block(messages, spot);
    }
    let asked = match message.role {
        Role::Assistant => spot.message,
        Role::User => spot.message.checked_sub(1)?,
    };
    calls(&messages[asked]).next().map(|_| BlockRepair::Untie(asked))
}

/// What can be done about one block, whatever is wrong with it.
fn repair_of_block(messages: &[Message], spot: BlockPath) -> Option<BlockRepair> {
    let message = messages.get(spot.message)?;
    let at = match spot.block {
        Some(at) => at,
        // A message that is one block leaves no doubt.
        None => (message.content.len() == 1).then_some(0)?,
    };
    let block = message.content.get(at)?;
    let parts = if let Block::ToolResult { content, .. } = block { content.len() } else { 0 };
    let inner = spot.inner.filter(|inner| *inner < parts);
    let here = BlockPath { message: spot.message, block: Some(at), inner };
    if is_our_note(block, inner) {
        return None;
    }
    match block {
        // What the user said is the task: without it there is nothing to go on with.
        Block::Text { .. } if message.role == Role::User => None,
        Block::Text { .. } => Some(BlockRepair::Replace(vec![here])),
        Block::Thinking { .. } | Block::RedactedThinking { .. } => Some(BlockRepair::Strip),
        Block::ToolUse { input, .. } => {
            let empty = input.as_object().is_some_and(serde_json::Map::is_empty);
            (!empty).then_some(BlockRepair::Empty { message: spot.message, block: at })
        }
        Block::ToolResult { .. } => Some(BlockRepair::Replace(vec![here])),
        Block::Image { .. } | Block::Document { .. } => Some(BlockRepair::Remove(vec![here])),
        Block::Other(value) => Some(BlockRepair::Replace(related_blocks(spot.message, message, at, value))),
    }
}

/// A foreign block, and those that belong to it: a call that the service made itself, its result.
fn related_blocks(message: usize, holder: &Message, at: usize, value: &Value) -> Vec<BlockPath> {
    let id = |value: &Value| {
        let id = value.get("tool_use_id").or_else(|| value.get("id"));
        id.and_then(Value::as_str).map(str::to_owned)
    };
    let wanted = id(value);
    let belongs = |(other, block): &(usize, &Block)| {
        let Block::Other(theirs) = block else { return false };
        *other == at || (wanted.is_some() && id(theirs) == wanted)
    };
    let blocks = holder.content.iter().enumerate().filter(belongs);
    blocks.map(|(block, _)| BlockPath { message, block: Some(block), inner: None }).collect()
}

/// Puts a note where a block was. A tool result stays one, so that its call stays answered.
fn replace(messages: &mut [Message], spot: BlockPath) {
    if strip_one(messages, spot) {
        return;
    }
    let block = spot.block.and_then(|at| messages.get_mut(spot.message)?.content.get_mut(at));
    let Some(block) = block else { return };
    let note = Block::text(BLOCK_NOTE);
    if let Block::ToolResult { content, .. } = block {
        match spot.inner.and_then(|inner| content.get_mut(inner)) {
            Some(inner) => *inner = note,
            None => *content = vec![note],
        }
    } else {
        *block = note;
    }
}

/// Makes text of the calls of a message and of their results. Returns how many calls there were.
fn calls_to_text(messages: &mut [Message], asked: usize) -> usize {
    let mut names = HashMap::new();
    for block in &mut messages[asked].content {
        let Block::ToolUse { id, name, input } = block else { continue };
        let mut words = input.to_string();
        words.truncate(words.floor_char_boundary(INPUT_WORDS));
        let text = Block::text(format!("(I called the tool {name} with {words}.)"));
        names.insert(mem::take(id), mem::take(name));
        *block = text;
    }
    if let Some(answers) = messages.get_mut(asked + 1) {
        let blocks = mem::take(&mut answers.content);
        answers.content = blocks.into_iter().flat_map(|block| result_to_text(block, &names)).collect();
    }
    names.len()
}

/// A result of one of the calls with these names, in words; anything else as it is.
fn result_to_text(block: Block, names: &HashMap<String, String>) -> Vec<Block> {
    let Block::ToolResult { tool_use_id, content, is_error } = block else { return vec![block] };
    let Some(name) = names.get(&tool_use_id) else {
        return vec![Block::ToolResult { tool_use_id, content, is_error }];
    };
    let outcome = if is_error { "failed" } else { "answered" };
    let opening = Block::text(format!("(The tool {name} {outcome}:)"));
    std::iter::once(opening).chain(content).collect()
}
