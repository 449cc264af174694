//! Checks that every tool call has exactly one result, in the next message.

use std::collections::BTreeSet;

use serde_json::Value;

use super::walk::list;

/// Checks calls and results across messages.
pub(super) fn check_pairing(messages: &[Value], faults: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages.{index}");
        answers(message, &open, &place, faults);
        open = ids(message, "tool_use", "id").collect();
        for id in &open {
            if !known.insert(*id) {
                faults.push(format!("{place}: `tool_use` ids must be unique: {id}"));
            }
        }
    }
    if !open.is_empty() {
        faults.push(unanswered(&format!("messages.{}", messages.len() - 1), &open));
    }
}

/// Checks the results in `message` for the calls of the previous message.
fn answers(message: &Value, open: &[&str], place: &str, faults: &mut Vec<String>) {
    let mut answered = BTreeSet::new();
    for id in ids(message, "tool_result", "tool_use_id") {
        if !open.contains(&id) {
            faults.push(format!(
                "{place}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each \
                 `tool_result` block must have a corresponding `tool_use` block in the previous \
                 message"
            ));
        } else if !answered.insert(id) {
            faults.push(format!("{place}: each `tool_use` must have a single result: {id}"));
        }
    }
    let missing: Vec<_> = open.iter().copied().filter(|id| !answered.contains(id)).collect();
    if !missing.is_empty() {
        faults.push(unanswered(place, &missing));
    }
    let blocks = list(&message["content"]);
    let is_result = |block: &Value| block["type"] == "tool_result";
    let first_other = blocks.iter().position(|block| !is_result(block)).unwrap_or(blocks.len());
    if blocks[first_other..].iter().any(is_result) {
        faults.push(format!("{place}: `tool_result` blocks must come before any other content"));
    }
}

fn unanswered(place: &str, ids: &[&str]) -> String {
    format!(
        "{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {}",
        ids.join(", ")
    )
}

fn ids<'a>(message: &'a Value, kind: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let of_kind = list(&message["content"]).iter().filter(move |block| block["type"] == kind);
    of_kind.map(move |block| block[key].as_str().unwrap_or_default())
}
