//! Matches tool results to tool calls, and looks at the end of a conversation.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::recovery::{Incomplete, LeftOff};
use crate::transcript::{Block, Message, OUTCOME_UNKNOWN, Role};

use super::parsed_line::MessageEntry;

/// The sort key of a block: results come first, in the order of their calls.
pub(super) fn sort_key(block: &Block, order: &[String]) -> usize {
    let id = block.answered_call();
    let position = id.and_then(|id| order.iter().position(|call| call == id));
    position.unwrap_or(if id.is_some() { order.len() } else { order.len() + 1 })
}

/// The answers to `open` calls in the last message.
pub(super) fn answers_of(messages: &[Message], open: &[String]) -> Vec<Block> {
    let last = messages.last().filter(|last| last.role == Role::User);
    let blocks = last.into_iter().flat_map(|last| &last.content);
    let is_answer =
        |block: &&Block| block.answered_call().is_some_and(|id| open.iter().any(|open| open == id));
    blocks.filter(is_answer).cloned().collect()
}

/// Adds results on side branches to the messages that answer their calls. Each message comes with
/// its number of lines: the blocks of a single line keep their order.
pub(super) fn merge_branch_results(
    messages: Vec<(Message, usize)>,
    mut on_branches: HashMap<String, Block>,
) -> Vec<Message> {
    let mut joined: Vec<Message> = Vec::with_capacity(messages.len());
    for (mut message, mut lines) in messages {
        let before = joined.last().filter(|before| before.role == Role::Assistant);
        let order: Vec<String> = before.into_iter().flat_map(call_ids).map(str::to_owned).collect();
        for id in order.iter().filter(|_| message.role == Role::User) {
            message.content.extend(on_branches.remove(id.as_str()));
            lines += 1;
        }
        if lines > 1 && message.role == Role::User {
            message.content.sort_by_key(|block| sort_key(block, &order));
        }
        joined.push(message);
    }
    joined
}

/// Returns true if the last message has calls.
pub(super) fn ends_with_calls(messages: &[Message]) -> bool {
    messages.last().is_some_and(|last| call_ids(last).next().is_some())
}

/// The ids of the calls in a message.
pub(super) fn call_ids(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(Block::as_call).map(|(id, ..)| id)
}

/// Results that are not on the chain, by call id.
pub(super) fn results_off_chain(
    all: &[&MessageEntry],
    chain: &[&MessageEntry],
) -> HashMap<String, Block> {
    let on_chain: HashSet<&str> = chain
        .iter()
        .flat_map(|entry| &entry.message.content)
        .filter_map(Block::answered_call)
        .collect();
    let blocks = all.iter().flat_map(|entry| &entry.message.content);
    let results = blocks.filter_map(|block| Some((block.answered_call()?, block)));
    let off_chain = results.filter(|(id, _)| !on_chain.contains(id));
    off_chain.map(|(id, block)| (id.to_owned(), block.clone())).collect()
}

/// The answer to a call that was never started.
const NOT_STARTED: &str = "not started: the run was cut off before this ran";

/// The answer to an interrupted call. `intent` is the record of its start, with its input if that
/// was changed.
pub(super) fn interrupted_answer(intent: Option<&Option<Value>>, unknown: bool) -> String {
    match intent.map(Option::as_ref) {
        Some(Some(input)) => format!("{OUTCOME_UNKNOWN}. It ran with a changed input: {input}"),
        Some(None) => OUTCOME_UNKNOWN.to_owned(),
        None if unknown => OUTCOME_UNKNOWN.to_owned(),
        None => NOT_STARTED.to_owned(),
    }
}

/// Returns the position of the prompt after these messages. The records of outlast decide; without
/// them, only a message that the model has not answered can be continued.
pub(super) fn left_off(messages: &[Message], recorded: Option<LeftOff>) -> Option<LeftOff> {
    let is_unanswered = messages.last()?.role == Role::User;
    match recorded {
        None => is_unanswered.then_some(LeftOff::ReplyDue),
        // The reply is recorded, the decision about it is not.
        Some(LeftOff::ReplyDue) if !is_unanswered => {
            Some(LeftOff::Incomplete(Incomplete::UnknownReason))
        }
        recorded @ Some(_) => recorded,
    }
}
