//! Repairs any message list so that the API accepts it, with minimal changes.

use std::collections::{HashMap, HashSet};
use std::{fmt, mem};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::validity::{
    BlockFlaw, ID_MAX, NAME_MAX, calls, flaws, history_violations, inner_result_flaw,
    is_name_letter, is_portable_id, is_returnable_id, results, violations,
};
use super::{Block, Message, Role};

/// The result of a call that was running when its run was interrupted.
pub const OUTCOME_UNKNOWN: &str = "outcome unknown: the run was cut off while this ran; \
                                   check before doing it again";

/// Replaces a missing first user message.
const OPENING: &str = "(The beginning of this conversation is missing.)";
/// Replaces a missing last user message.
const CLOSING: &str = "Continue.";

/// One repair, and the message of the original list that it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRepair {
    /// Index of the message, counted from 0.
    pub at: usize,
    pub step: RepairStep,
}

/// One change to a message list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairStep {
    /// A block was dropped.
    Dropped(BlockFlaw),
    /// A message without content was dropped.
    DroppedMessage,
    /// The message became part of the one before, which has the same role.
    Joined,
    /// Thinking at the end of a message was dropped.
    TrimmedThinking,
    /// A call and its result were given another id.
    Renamed { from: String, to: String },
    /// A call was given a name that the API accepts.
    FixedName { from: String, to: String },
    /// A call's input was made an object.
    FixedInput { id: String },
    /// A call without a result was given one.
    Answered { id: String },
    /// A result without a call, or a second one, was dropped.
    DroppedResult { id: String },
    /// Results were moved to the front of their message.
    MovedResults,
    /// A user message was added at the beginning.
    AddedOpening,
    /// A user message was added at the end.
    AddedClosing,
}

impl fmt::Display for HistoryRepair {
    /// Describes the repair and its message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match &self.step {
            RepairStep::Dropped(_) => write!(f, "dropped an invalid block of message {at}"),
            RepairStep::DroppedMessage => write!(f, "dropped message {at}, which was empty"),
            RepairStep::Joined => write!(f, "joined message {at} with the one before it"),
            RepairStep::TrimmedThinking => write!(f, "dropped thinking at the end of message {at}"),
            RepairStep::Renamed { from, to } => {
                write!(f, "gave the call {from:?} of message {at} the id {to:?}")
            }
            RepairStep::FixedName { from, to } => {
                write!(f, "gave the call of {from:?} in message {at} the name {to:?}")
            }
            RepairStep::FixedInput { id } => {
                write!(f, "made the input of the call {id:?} of message {at} an object")
            }
            RepairStep::Answered { id } => {
                write!(f, "added a result for the call {id:?} of message {at}")
            }
            RepairStep::DroppedResult { id } => {
                write!(f, "dropped a result in message {at} that no call {id:?} waits for")
            }
            RepairStep::MovedResults => write!(f, "moved the results of message {at} to its front"),
            RepairStep::AddedOpening => f.write_str("added a first message of the user"),
            RepairStep::AddedClosing => f.write_str("added a last message of the user"),
        }
    }
}

/// Repairs `messages` for sending: [`violations`] finds nothing in the result. A valid list is
/// returned unchanged, and so is a repaired one.
pub fn repair(messages: Vec<Message>) -> (Vec<Message>, Vec<HistoryRepair>) {
    if violations(&messages).is_empty() {
        return (messages, Vec::new());
    }
    let last = messages.len().saturating_sub(1);
    let (mut messages, mut repairs) = repair_history(messages, |_id| OUTCOME_UNKNOWN.to_owned());
    if messages.last().is_none_or(|message| message.role == Role::Assistant) {
        messages.push(Message::user(vec![Block::text(CLOSING)]));
        repairs.push(HistoryRepair { at: last, step: RepairStep::AddedClosing });
    }
    (messages, repairs)
}

/// Repairs `messages` as a history that a prompt may follow: like [`repair`], but the list may be
/// empty or end with the assistant. `unanswered_text` returns the result text for an unanswered
/// call with the given id.
pub fn repair_history(
    messages: Vec<Message>,
    unanswered_text: impl Fn(&str) -> String,
) -> (Vec<Message>, Vec<HistoryRepair>) {
    if history_violations(&messages).is_empty() {
        return (messages, Vec::new());
    }
    let taken = messages.iter().flat_map(calls).map(str::to_owned).collect();
    let mut walk = RepairWalk { unanswered_text, taken, used: HashSet::new(), repairs: Vec::new() };
    let cleaned = walk.repair_blocks(messages);
    let joined = walk.join_same_roles(cleaned);
    let trimmed = walk.trim_thinking(joined);
    let joined = walk.join_same_roles(trimmed);
    let paired = walk.pair_calls(joined);
    (paired, walk.repairs)
}

/// Answers the unanswered calls of the last assistant message, each with an error result whose text
/// `unanswered_text` returns. Returns the ids of those calls, in order.
pub fn answer_calls(
    messages: &mut Vec<Message>,
    unanswered_text: impl Fn(&str) -> String,
) -> Vec<String> {
    let Some(reply) = messages.iter().rposition(|message| message.role == Role::Assistant) else {
        return Vec::new();
    };
    let answered: HashSet<&str> = messages.get(reply + 1).into_iter().flat_map(results).collect();
    let open: Vec<String> =
        calls(&messages[reply]).filter(|id| !answered.contains(id)).map(str::to_owned).collect();
    if open.is_empty() {
        return open;
    }
    let added = open.iter().map(|id| synthetic_result(id, unanswered_text(id)));
    if let Some(answers) = messages.get_mut(reply + 1) {
        let end_of_results = results(answers).count();
        answers.content.splice(end_of_results..end_of_results, added.collect::<Vec<_>>());
    } else {
        messages.push(Message::user(added.collect()));
    }
    open
}

/// Removes all thinking, and messages that become empty: thinking may only be sent to the model
/// that signed it.
pub fn strip_thinking(messages: &mut Vec<Message>) {
    strip(messages, Block::is_thinking);
}

/// Like [`strip_thinking`], but keeps thinking without a signature, which any model may get.
pub fn strip_signed_thinking(messages: &mut Vec<Message>) {
    strip(messages, Block::is_signed_thinking);
}

/// Removes thinking that lacks or has lost its signature, if other thinking has one: a service that
/// signs thinking does not accept it without a signature.
pub fn strip_thinking_that_lacks_signature(messages: &mut Vec<Message>) {
    if messages.iter().flat_map(|message| &message.content).any(Block::is_signed_thinking) {
        strip(messages, |block| block.is_unsigned_thinking() || block.has_lost_signature());
    }
}

/// Removes some blocks, and messages that become empty.
fn strip(messages: &mut Vec<Message>, is_removed: impl Fn(&Block) -> bool) {
    for message in messages.iter_mut() {
        message.content.retain(|block| !is_removed(block));
    }
    let mut kept: Vec<Message> = Vec::with_capacity(messages.len());
    for message in mem::take(messages).into_iter().filter(|message| !message.content.is_empty()) {
        message.join(&mut kept);
    }
    *messages = kept;
}

/// The text of the last assistant message that has any.
pub fn last_text(messages: &[Message]) -> Option<String> {
    messages.iter().rev().filter(|message| message.role == Role::Assistant).find_map(|message| {
        let texts: Vec<&str> = message.content.iter().filter_map(Block::as_text).collect();
        (!texts.is_empty()).then(|| texts.concat())
    })
}

fn synthetic_result(id: &str, text: String) -> Block {
    Block::ToolResult {
        tool_use_id: id.to_owned(),
        content: vec![Block::text(text)],
        is_error: true,
    }
}

/// A message with its index in the original list.
type PlacedMessage = (usize, Message);

struct RepairWalk<F> {
    unanswered_text: F,
    /// Ids that a new id must not collide with.
    taken: HashSet<String>,
    /// Ids in use by calls of the repaired list.
    used: HashSet<String>,
    repairs: Vec<HistoryRepair>,
}

impl<F: Fn(&str) -> String> RepairWalk<F> {
    fn record(&mut self, at: usize, step: RepairStep) {
        self.repairs.push(HistoryRepair { at, step });
    }

    /// Drops or repairs each block separately.
    fn repair_blocks(&mut self, messages: Vec<Message>) -> Vec<PlacedMessage> {
        let mut kept = Vec::with_capacity(messages.len());
        for (at, Message { role, content }) in messages.into_iter().enumerate() {
            let content: Vec<Block> = content
                .into_iter()
                .filter_map(|block| self.repair_block(at, role, block))
                .collect();
            if content.is_empty() {
                self.record(at, RepairStep::DroppedMessage);
            } else {
                kept.push((at, Message { role, content }));
            }
        }
        kept
    }

    fn repair_block(&mut self, at: usize, role: Role, mut block: Block) -> Option<Block> {
        for flaw in flaws(role, &block) {
            match (flaw, &mut block) {
                // Ids are assigned when calls and results are paired.
                (BlockFlaw::NoId | BlockFlaw::BadId, _) => {}
                (BlockFlaw::BadName, Block::ToolUse { name, .. }) => {
                    let from = mem::replace(name, sanitize_name(name, NAME_MAX));
                    let to = name.clone();
                    self.record(at, RepairStep::FixedName { from, to });
                }
                (BlockFlaw::BadInput, Block::ToolUse { id, input, .. }) => {
                    let was = input.take();
                    *input = if was.is_null() { json!({}) } else { json!({ "input": was }) };
                    self.record(at, RepairStep::FixedInput { id: id.clone() });
                }
                (_, Block::ToolResult { content, .. }) if role == Role::User => {
                    content.retain(|inner| inner_result_flaw(inner).is_none());
                    self.record(at, RepairStep::Dropped(flaw));
                }
                (_, _) => {
                    self.record(at, RepairStep::Dropped(flaw));
                    return None;
                }
            }
        }
        Some(block)
    }

    fn join_same_roles(&mut self, messages: Vec<PlacedMessage>) -> Vec<PlacedMessage> {
        let mut kept: Vec<PlacedMessage> = Vec::with_capacity(messages.len());
        for (at, message) in messages {
            match kept.last_mut() {
                Some((_, last)) if last.role == message.role => {
                    last.content.extend(message.content);
                    self.record(at, RepairStep::Joined);
                }
                Some(_) | None => kept.push((at, message)),
            }
        }
        kept
    }

    fn trim_thinking(&mut self, messages: Vec<PlacedMessage>) -> Vec<PlacedMessage> {
        let mut kept = Vec::with_capacity(messages.len());
        for (at, mut message) in messages {
            let end = message.content.iter().rposition(|block| !block.is_thinking());
            let end = end.map_or(0, |last| last + 1);
            if end < message.content.len() {
                message.content.truncate(end);
                self.record(at, RepairStep::TrimmedThinking);
            }
            if !message.content.is_empty() {
                kept.push((at, message));
            }
        }
        kept
    }

    /// Gives every call a unique id and exactly one result. Requires alternating roles.
    fn pair_calls(&mut self, messages: Vec<PlacedMessage>) -> Vec<Message> {
        let mut kept: Vec<Message> = Vec::with_capacity(messages.len() + 1);
        let mut open: Vec<OpenCall> = Vec::new();
        for (at, mut message) in messages {
            match message.role {
                Role::Assistant => {
                    open.extend(self.name_calls(at, &mut message));
                    match kept.last_mut() {
                        // The user message between the two held only orphaned results and was
                        // dropped, so the first one has no open calls.
                        Some(last) if last.role == Role::Assistant => {
                            last.content.extend(message.content);
                            self.record(at, RepairStep::Joined);
                            continue;
                        }
                        Some(_user) => {}
                        None => {
                            kept.push(Message::user(vec![Block::text(OPENING)]));
                            self.record(at, RepairStep::AddedOpening);
                        }
                    }
                    kept.push(message);
                }
                Role::User => {
                    let content = self.match_results(at, message.content, mem::take(&mut open));
                    if content.is_empty() {
                        self.record(at, RepairStep::DroppedMessage);
                    } else {
                        kept.push(Message::user(content));
                    }
                }
            }
        }
        if !open.is_empty() {
            let end = kept.len();
            kept.push(Message::user(self.match_results(end, Vec::new(), open)));
        }
        kept
    }

    fn name_calls(&mut self, at: usize, message: &mut Message) -> Vec<OpenCall> {
        let mut open = Vec::new();
        for block in &mut message.content {
            let Block::ToolUse { id, .. } = block else { continue };
            let was = id.clone();
            if !is_returnable_id(id) || self.used.contains(id) {
                *id = fresh_id(&mut self.taken, &was);
                self.record(at, RepairStep::Renamed { from: was.clone(), to: id.clone() });
            }
            self.used.insert(id.clone());
            open.push(OpenCall { was, id: id.clone(), answered: false });
        }
        open
    }

    /// Puts the results of `open` first, one for each call, and drops all other results.
    fn match_results(
        &mut self,
        at: usize,
        content: Vec<Block>,
        mut open: Vec<OpenCall>,
    ) -> Vec<Block> {
        let (mut answers, mut others) = (Vec::new(), Vec::new());
        let mut moved = false;
        for mut block in content {
            let Block::ToolResult { tool_use_id, .. } = &mut block else {
                others.push(block);
                continue;
            };
            let call = open.iter_mut().find(|call| !call.answered && call.was == *tool_use_id);
            let Some(call) = call else {
                self.record(at, RepairStep::DroppedResult { id: mem::take(tool_use_id) });
                continue;
            };
            tool_use_id.clone_from(&call.id);
            call.answered = true;
            moved |= !others.is_empty();
            answers.push(block);
        }
        if moved {
            self.record(at, RepairStep::MovedResults);
        }
        for call in open.into_iter().filter(|call| !call.answered) {
            answers.push(synthetic_result(&call.id, (self.unanswered_text)(&call.was)));
            self.record(at, RepairStep::Answered { id: call.id });
        }
        answers.append(&mut others);
        answers
    }
}

/// A new unused id derived from `like`.
fn fresh_id(taken: &mut HashSet<String>, like: &str) -> String {
    let stem = if like.is_empty() { "call".to_owned() } else { sanitize_name(like, STEM_MAX) };
    let mut names = (2..taken.len() + 3).map(|n| format!("{stem}_{n}"));
    let free = names.find(|id| !taken.contains(id));
    let id = free.expect("there is one name more than there are taken ones");
    taken.insert(id.clone());
    id
}

/// True if a call has an id or fields that not every service accepts.
pub(super) fn has_unportable_calls(messages: &[Message]) -> bool {
    let has_others =
        |block: &Block| matches!(block, Block::ToolUse { others, .. } if !others.is_empty());
    messages.iter().flat_map(calls).any(|id| !is_portable_id(id))
        || messages.iter().flat_map(|message| &message.content).any(has_others)
}

/// Prepares calls for another service, or for one that refuses them: removes the further fields,
/// which only the service that made the call reads, and replaces ids that not every service
/// accepts, in calls and in results.
pub fn make_calls_portable(messages: &mut [Message]) {
    if !has_unportable_calls(messages) {
        return;
    }
    let mut taken = messages.iter().flat_map(calls).map(str::to_owned).collect();
    let mut renamed: HashMap<String, String> = HashMap::new();
    for block in messages.iter_mut().flat_map(|message| &mut message.content) {
        if let Block::ToolUse { id, others, .. } = block {
            others.clear();
            if !is_portable_id(id) {
                let new = fresh_id(&mut taken, id);
                renamed.insert(mem::replace(id, new.clone()), new);
            }
        } else if let Block::ToolResult { tool_use_id, .. } = block
            && let Some(new) = renamed.get(tool_use_id)
        {
            tool_use_id.clone_from(new);
        }
    }
}

/// A call without a result yet.
struct OpenCall {
    /// The original id, which its result refers to.
    was: String,
    id: String,
    answered: bool,
}

/// Maximum length of the part of the old id that a new id keeps; a number follows.
const STEM_MAX: usize = ID_MAX - 16;

fn sanitize_name(name: &str, max_length: usize) -> String {
    let letters = name.chars().map(|letter| if is_name_letter(letter) { letter } else { '_' });
    let name: String = letters.take(max_length).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}
