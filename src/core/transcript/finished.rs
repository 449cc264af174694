//! Lists the tool calls that succeeded, and those with an unknown outcome because they were
//! interrupted.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::{Block, Message, ToolCall};
use crate::text::{shortened, words_joined};

/// Maximum number of calls that are listed; the latest ones are.
const LISTED: usize = 30;

/// Maximum length of a call's input that is shown, in characters.
const SHOWN: usize = 120;

/// The calls that succeeded, one line each; only the latest if there are many.
pub fn succeeded_calls(messages: &[Message]) -> Vec<String> {
    let mut calls = HashMap::new();
    let mut lines = Vec::new();
    for block in messages.iter().flat_map(|message| &message.content) {
        if let Some((id, name, input)) = block.as_call() {
            calls.insert(id, format!("{name}: {}", main_argument(input)));
        } else if let Block::ToolResult { tool_use_id, is_error: false, .. } = block {
            lines.extend(calls.remove(tool_use_id.as_str()));
        }
    }
    let more = lines.len().saturating_sub(LISTED);
    let mut shown: Vec<String> = lines.split_off(more);
    if more > 0 {
        shown.insert(0, format!("({more} before those)"));
    }
    shown
}

/// The name of a tool and the most informative part of its input, in one short line.
pub fn summarize_call(name: &str, input: &Value) -> String {
    if input.as_object().is_none_or(serde_json::Map::is_empty) {
        return name.to_owned();
    }
    format!("{name}: {}", main_argument(input))
}

/// Describes a call with an unknown outcome, as the beginning of a sentence.
pub fn describe_unknown_outcome(call: &ToolCall) -> String {
    format!("{} `{}`", call.name, main_argument(&call.input))
}

/// The calls with an id in `begun` that have no result, in call order.
pub fn unanswered_calls(messages: &[Message], begun: &BTreeSet<String>) -> Vec<String> {
    let mut open: Vec<ToolCall> = Vec::new();
    for block in messages.iter().flat_map(|message| &message.content) {
        if let Some((id, name, input)) = block.as_call().filter(|(id, ..)| begun.contains(*id)) {
            let (id, name, input) = (id.to_owned(), name.to_owned(), input.clone());
            open.push(ToolCall { id, name, input });
        } else if let Some(id) = block.answered_call() {
            open.retain(|call| call.id != id);
        }
    }
    open.iter().map(describe_unknown_outcome).collect()
}

/// The most informative part of an input, in one short line.
fn main_argument(input: &Value) -> String {
    let fields = ["file_path", "command", "pattern", "description", "url"];
    let argument = fields.iter().find_map(|field| input[*field].as_str());
    let argument = argument.map_or_else(|| words_joined(&input.to_string()), words_joined);
    shortened(&argument, SHOWN, " ...")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finished_lists_only_calls_with_a_successful_result() {
        let call = |id: &str, command: &str| Block::call(id, "Bash", json!({ "command": command }));
        let result = |id: &str, is_error: bool| Block::ToolResult {
            tool_use_id: id.to_owned(),
            content: Vec::new(),
            is_error,
        };
        let messages = [
            Message::assistant(vec![call("1", "make\n  all"), call("2", "rm x"), call("3", "ls")]),
            Message::user(vec![result("1", false), result("2", true)]),
        ];
        assert_eq!(succeeded_calls(&messages), ["Bash: make all"]);
        let begun = BTreeSet::from(["2".to_owned(), "3".to_owned(), "4".to_owned()]);
        assert_eq!(unanswered_calls(&messages, &begun), ["Bash `ls`"]);
        assert!(unanswered_calls(&messages, &BTreeSet::new()).is_empty(), "it never began");
    }
}
