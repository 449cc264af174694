//! Removes content that the service rejects, and nothing else.
//!
//! The repair is chosen first, without changing anything, so that recovery can check beforehand
//! whether there is one. Every repair removes its cause permanently, so the same rejection cannot
//! repeat for ever.

use std::collections::HashMap;
use std::mem;

use serde_json::{Value, json};

use super::excerpt::beginning;
use super::media::strip_one;
use super::notes::{block_note, is_removal_note};
use super::repair::has_unportable_calls;
use super::validity::{calls, results, violations};
use super::{
    Block, BlockPath, Message, RejectedContent, Role, make_calls_portable, repair, strip_thinking,
};

/// A repair that is known to change something. Every position in it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockRepair {
    /// All violations of our own rules are repaired.
    Repair,
    /// All thinking is removed.
    Strip,
    /// Calls are given ids that every service accepts, and lose their further fields.
    Rename,
    /// The further fields of a document are removed, such as its title.
    Reduce { message: usize, block: usize },
    /// The calls of the message with this index, and their results, are converted to plain text.
    Untie(usize),
    /// The input of a call is emptied.
    Empty { message: usize, block: usize },
    /// Blocks are replaced by notes.
    Replace(Vec<BlockPath>),
}

/// Maximum length of a call's input that is kept as text, in bytes.
const INPUT_MAX: usize = 1_000;

/// True if [`repair_rejected`] would change anything.
pub fn can_repair_rejected(
    messages: &[Message],
    spot: Option<BlockPath>,
    complaint: RejectedContent,
) -> bool {
    choose_repair(messages, spot, complaint).is_some()
}

/// Removes the rejected content. A valid list stays valid. Returns the repair, or `None` if none is
/// possible; then nothing was changed.
pub fn repair_rejected(
    messages: &mut Vec<Message>,
    spot: Option<BlockPath>,
    complaint: RejectedContent,
) -> Option<BlockRepair> {
    let repaired = choose_repair(messages, spot, complaint)?;
    match &repaired {
        BlockRepair::Repair => *messages = repair(mem::take(messages)).0,
        BlockRepair::Strip => strip_thinking(messages),
        BlockRepair::Rename => make_calls_portable(messages),
        BlockRepair::Untie(at) => calls_to_text(messages, *at),
        BlockRepair::Empty { message, block } => {
            if let Block::ToolUse { input, .. } = &mut messages[*message].content[*block] {
                *input = json!({});
            }
        }
        BlockRepair::Reduce { message, block } => {
            if let Block::Document { others, .. } = &mut messages[*message].content[*block] {
                others.clear();
            }
        }
        BlockRepair::Replace(spots) => spots.iter().for_each(|spot| replace(messages, *spot)),
    }
    Some(repaired)
}

/// True if the model is in the middle of tool calls, and no reply since the last user text contains
/// thinking. Models with a thinking budget require it there: once it was removed, thinking must
/// stay off until the calls are over.
pub fn lacks_thinking(messages: &[Message]) -> bool {
    let is_prompt =
        |message: &Message| message.role == Role::User && results(message).next().is_none();
    let begin = messages.iter().rposition(is_prompt).map_or(0, |at| at + 1);
    let replies = messages[begin..].iter().filter(|message| message.role == Role::Assistant);
    let has_calls = replies.clone().next_back().is_some_and(|reply| calls(reply).next().is_some());
    has_calls && !replies.into_iter().any(|reply| reply.content.iter().any(Block::is_thinking))
}

fn choose_repair(
    messages: &[Message],
    spot: Option<BlockPath>,
    complaint: RejectedContent,
) -> Option<BlockRepair> {
    match complaint {
        RejectedContent::Media => repair_of_media(messages, spot).map(BlockRepair::Replace),
        RejectedContent::Thinking => has_thinking(messages).then_some(BlockRepair::Strip),
        // Our own validity rules find the likeliest cause, wherever the service reported it.
        RejectedContent::Pairs | RejectedContent::Block if !violations(messages).is_empty() => {
            Some(BlockRepair::Repair)
        }
        RejectedContent::Pairs if has_unportable_calls(messages) => Some(BlockRepair::Rename),
        RejectedContent::Pairs => repair_of_pairs(messages, spot?),
        RejectedContent::Block if is_at_call(messages, spot?) && has_unportable_calls(messages) => {
            Some(BlockRepair::Rename)
        }
        RejectedContent::Block => repair_of_block(messages, spot?),
    }
}

/// True if a tool call or its result is at the reported position.
fn is_at_call(messages: &[Message], spot: BlockPath) -> bool {
    let block = messages.get(spot.message).and_then(|message| message.content.get(spot.block?));
    matches!(block, Some(Block::ToolUse { .. } | Block::ToolResult { .. }))
}

fn has_thinking(messages: &[Message]) -> bool {
    messages.iter().flat_map(|message| &message.content).any(Block::is_thinking)
}

/// The media at the reported position; without a position or media there, the media that were not
/// sent before, and finally all. Even if the reported position is wrong, the service is right about
/// the kind of content.
fn repair_of_media(messages: &[Message], spot: Option<BlockPath>) -> Option<Vec<BlockPath>> {
    if let Some(spot) = spot
        && let Some(message) = messages.get(spot.message)
    {
        let block = spot.block.and_then(|at| message.content.get(at));
        if block.is_some_and(|block| is_our_note(block, spot.inner)) {
            return None;
        }
        let here = media_in(spot.message, message);
        let exact: Vec<_> = here.iter().filter(|path| spot.contains(path)).copied().collect();
        let is_in_block = |path: &&BlockPath| spot.block.is_some() && path.block == spot.block;
        let same_block: Vec<_> = here.iter().filter(is_in_block).copied().collect();
        let found = [exact, same_block, here].into_iter().find(|found| !found.is_empty());
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

fn media_in(index: usize, message: &Message) -> Vec<BlockPath> {
    let mut found = Vec::new();
    for (at, block) in message.content.iter().enumerate() {
        let here = BlockPath { message: index, block: Some(at), inner: None };
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

/// True if the block is the note of an earlier removal.
fn is_our_note(block: &Block, inner: Option<usize>) -> bool {
    if let Block::ToolResult { content, .. } = block {
        match inner {
            Some(inner) => content.get(inner).is_some_and(|block| is_our_note(block, None)),
            None => content.len() == 1 && is_our_note(&content[0], None),
        }
    } else {
        block.as_text().is_some_and(is_removal_note)
    }
}

/// Plans the repair of calls that the service finds mismatched but our rules accept: they are
/// converted to text.
fn repair_of_pairs(messages: &[Message], spot: BlockPath) -> Option<BlockRepair> {
    let message = messages.get(spot.message)?;
    let foreign = spot.block.and_then(|at| message.content.get(at));
    if matches!(foreign, Some(Block::Other(_))) {
        return repair_of_block(messages, spot);
    }
    let reply = match message.role {
        Role::Assistant => spot.message,
        Role::User => spot.message.checked_sub(1)?,
    };
    let is_whole = spot.block.is_none();
    is_whole
        .then(|| open_server_calls(reply, &messages[reply]))
        .flatten()
        .or_else(|| calls(&messages[reply]).next().map(|_| BlockRepair::Untie(reply)))
}

/// Plans the removal of calls of the service's own tools, such as a search, that have no result in
/// their message: the turn was paused in them, and then left.
fn open_server_calls(index: usize, message: &Message) -> Option<BlockRepair> {
    let others = message.content.iter().enumerate().filter_map(|(at, block)| {
        if let Block::Other(value) = block { Some((at, value)) } else { None }
    });
    let is_open = |call: &Value| {
        let answers = |(_, other): (usize, &Value)| other.get("tool_use_id") == call.get("id");
        let kind = call.get("type").and_then(Value::as_str).unwrap_or_default();
        kind.ends_with("_tool_use") && !others.clone().any(answers)
    };
    let open = others.clone().filter(|(_, call)| is_open(call));
    let open: Vec<BlockPath> =
        open.map(|(at, _)| BlockPath { message: index, block: Some(at), inner: None }).collect();
    (!open.is_empty()).then_some(BlockRepair::Replace(open))
}

/// Plans the repair of one block, whatever its fault.
fn repair_of_block(messages: &[Message], spot: BlockPath) -> Option<BlockRepair> {
    let message = messages.get(spot.message)?;
    let at = match spot.block {
        Some(at) => at,
        // In a message of one block the position is unambiguous.
        None if message.content.len() == 1 => 0,
        None => return open_server_calls(spot.message, message),
    };
    let block = message.content.get(at)?;
    let parts = if let Block::ToolResult { content, .. } = block { content.len() } else { 0 };
    let inner = spot.inner.filter(|inner| *inner < parts);
    let here = BlockPath { message: spot.message, block: Some(at), inner };
    if is_our_note(block, inner) {
        return None;
    }
    match block {
        // The user's text is the task and is never removed.
        Block::Text { .. } if message.role == Role::User => None,
        Block::Thinking { .. } | Block::RedactedThinking { .. } => Some(BlockRepair::Strip),
        Block::ToolUse { input, .. } => {
            let empty = input.as_object().is_some_and(serde_json::Map::is_empty);
            (!empty).then_some(BlockRepair::Empty { message: spot.message, block: at })
        }
        Block::Document { others, .. } if !others.is_empty() => {
            Some(BlockRepair::Reduce { message: spot.message, block: at })
        }
        Block::Text { .. }
        | Block::ToolResult { .. }
        | Block::Image { .. }
        | Block::Document { .. } => Some(BlockRepair::Replace(vec![here])),
        Block::Other(value) => {
            Some(BlockRepair::Replace(related_blocks(spot.message, message, at, value)))
        }
    }
}

/// The positions of the unknown block at `at` and of those that belong to it: a server-side call
/// and its result.
fn related_blocks(index: usize, message: &Message, at: usize, value: &Value) -> Vec<BlockPath> {
    let id = |value: &Value| {
        let id = value.get("tool_use_id").or_else(|| value.get("id"));
        id.and_then(Value::as_str).map(str::to_owned)
    };
    let wanted = id(value);
    let belongs = |(position, block): &(usize, &Block)| {
        let Block::Other(other) = block else { return false };
        *position == at || (wanted.is_some() && id(other) == wanted)
    };
    let blocks = message.content.iter().enumerate().filter(belongs).map(|(block, _)| Some(block));
    blocks.map(|block| BlockPath { message: index, block, inner: None }).collect()
}

/// Replaces a block by a note. A tool result stays one, so that its call stays answered.
fn replace(messages: &mut [Message], spot: BlockPath) {
    if strip_one(messages, spot) {
        return;
    }
    let block = spot.block.and_then(|at| messages.get_mut(spot.message)?.content.get_mut(at));
    let Some(block) = block else { return };
    let note = block_note();
    if let Block::ToolResult { content, .. } = block {
        match spot.inner.and_then(|inner| content.get_mut(inner)) {
            Some(inner) => *inner = note,
            None => *content = vec![note],
        }
    } else {
        *block = note;
    }
}

/// Converts the calls of a message and their results to text.
fn calls_to_text(messages: &mut [Message], reply: usize) {
    let mut names = HashMap::new();
    for block in &mut messages[reply].content {
        let Block::ToolUse { id, name, input, .. } = block else { continue };
        let input = input.to_string();
        let text = format!("(I called the tool {name} with {}.)", beginning(&input, INPUT_MAX));
        names.insert(mem::take(id), mem::take(name));
        *block = Block::text(text);
    }
    if let Some(answers) = messages.get_mut(reply + 1) {
        let blocks = mem::take(&mut answers.content).into_iter();
        answers.content = blocks.flat_map(|block| result_to_text(block, &names)).collect();
    }
}

/// Converts a result of one of the named calls to text; other blocks are kept.
fn result_to_text(block: Block, names: &HashMap<String, String>) -> Vec<Block> {
    let Block::ToolResult { tool_use_id, content, is_error } = block else { return vec![block] };
    let Some(name) = names.get(&tool_use_id) else {
        return vec![Block::ToolResult { tool_use_id, content, is_error }];
    };
    let outcome = if is_error { "failed" } else { "answered" };
    let opening = Block::text(format!("(The tool {name} {outcome}:)"));
    std::iter::once(opening).chain(content).collect()
}
