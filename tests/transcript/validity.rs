//! Validation of message lists before they are sent.

use outlast_core::transcript::{
    Block, BlockFlaw, History, HistoryRule, Message, Violation, history_violations, violations,
};
use proptest::prelude::*;
use serde_json::json;

use super::arbitrary::{any_messages, valid_messages};

fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

fn says(text: &str) -> Message {
    Message::assistant(vec![Block::text(text)])
}

fn call(id: &str) -> Block {
    Block::call(id, "Bash", json!({}))
}

fn result(id: &str) -> Block {
    let content = vec![Block::text("done")];
    Block::ToolResult { tool_use_id: id.to_owned(), content, is_error: false }
}

fn broken(messages: &[Message]) -> Vec<(usize, HistoryRule)> {
    violations(messages).into_iter().map(|Violation { at, rule }| (at, rule)).collect()
}

/// A list, and every rule that it breaks.
type Case = (Vec<Message>, Vec<(usize, HistoryRule)>);

fn id(id: &str) -> String {
    id.to_owned()
}

#[test]
fn every_violated_order_rule_is_reported_with_its_position() {
    use HistoryRule::*;
    let calls = |ids: &[&str]| Message::assistant(ids.iter().map(|id| call(id)).collect());
    let results = |ids: &[&str]| Message::user(ids.iter().map(|id| result(id)).collect());
    let late = Message::user(vec![Block::text("and"), result("a")]);
    let cases: Vec<Case> = vec![
        (vec![], vec![(0, NoMessage)]),
        (vec![user("hi")], vec![]),
        (vec![says("hi"), user("hi")], vec![(0, AssistantOpens)]),
        (vec![user("hi"), says("hi")], vec![(1, AssistantCloses)]),
        (vec![user("hi"), user("there")], vec![(1, SameRoleTwice)]),
        (vec![Message::user(vec![])], vec![(0, NoContent)]),
        (vec![user("x"), calls(&["a"]), user("y")], vec![(1, Unanswered { id: id("a") })]),
        (vec![user("x"), calls(&["a", "b"]), results(&["b", "a"])], vec![]),
        (
            vec![user("x"), calls(&["a"]), results(&["a", "z"])],
            vec![(2, OrphanResult { id: id("z") })],
        ),
        (
            vec![user("x"), calls(&["a"]), results(&["a", "a"])],
            vec![(2, SecondResult { id: id("a") })],
        ),
        (vec![user("x"), calls(&["a"]), late], vec![(2, LateResult { id: id("a") })]),
        (
            vec![user("x"), calls(&["a"]), results(&["a"]), calls(&["a"]), results(&["a"])],
            vec![(3, RepeatedId { id: id("a") })],
        ),
        (
            vec![user("x"), calls(&["a"]), results(&["a"]), says("y"), results(&["a"])],
            vec![(4, OrphanResult { id: id("a") })],
        ),
    ];
    for (messages, expected) in cases {
        assert_eq!(broken(&messages), expected, "{messages:#?}");
    }
}

#[test]
fn every_invalid_block_is_reported_with_its_flaw() {
    let thinking = |signature: &str| Block::Thinking {
        thinking: "hm".to_owned(),
        signature: signature.to_owned(),
    };
    let wrapped =
        |block| Block::ToolResult { tool_use_id: id("a"), content: vec![block], is_error: false };
    let tool = |id: &str, name: &str, input| Block::call(id, name, input);
    let assistants = [
        (Block::text(" \n"), BlockFlaw::BlankText),
        (Block::RedactedThinking { data: String::new() }, BlockFlaw::Malformed),
        (Block::Image { source: json!({}) }, BlockFlaw::Misplaced),
        (result("a"), BlockFlaw::Misplaced),
        (Block::Other(json!({ "type": "tool_use", "id": 7 })), BlockFlaw::Malformed),
        (tool("a", "no such.tool", json!({})), BlockFlaw::BadName),
        (tool("a", &"x".repeat(129), json!({})), BlockFlaw::BadName),
        (tool("a", "Bash", json!([1])), BlockFlaw::BadInput),
        (tool("", "Bash", json!({})), BlockFlaw::NoId),
    ];
    for (block, flaw) in assistants {
        let messages = [user("x"), Message::assistant(vec![block, call("c"), Block::text("y")])];
        let found = broken(&messages);
        assert!(found.contains(&(1, HistoryRule::Flawed(flaw))), "{flaw:?}: {found:?}");
    }
    let users = [
        (call("a"), BlockFlaw::Misplaced),
        (thinking("c2ln"), BlockFlaw::Misplaced),
        (Block::Image { source: json!(null) }, BlockFlaw::Malformed),
        (wrapped(Block::text("")), BlockFlaw::BlankText),
        (wrapped(result("b")), BlockFlaw::Misplaced),
    ];
    for (block, flaw) in users {
        let messages = [user("x"), Message::assistant(vec![call("a")]), Message::user(vec![block])];
        let found = broken(&messages);
        assert!(found.contains(&(2, HistoryRule::Flawed(flaw))), "{flaw:?}: {found:?}");
    }
}

#[test]
fn an_assistant_message_may_not_end_with_thinking() {
    let thinking = Block::Thinking { thinking: "hm".to_owned(), signature: "c2ln".to_owned() };
    let messages = [user("x"), Message::assistant(vec![Block::text("y"), thinking]), user("z")];
    assert_eq!(broken(&messages), [(1, HistoryRule::EndsInThinking)]);
}

#[test]
fn unknown_block_types_are_accepted() {
    let theirs = Block::Other(json!({ "type": "server_tool_use", "id": "s", "input": {} }));
    let messages = [user("x"), Message::assistant(vec![theirs]), user("y")];
    assert_eq!(broken(&messages), []);
}

proptest! {
    #[test]
    fn a_history_is_sendable_exactly_if_a_check_of_all_its_messages_finds_nothing(
        valid in valid_messages(),
        any in any_messages(),
    ) {
        let mut history = History::new(Vec::new(), 0);
        let is_checked_alike = |history: &mut History| {
            let sendable = [false, true].map(|is_paused| history.is_sendable(is_paused));
            let checks = [violations(history.messages()), history_violations(history.messages())];
            sendable == checks.map(|found| found.is_empty())
        };
        // Repeated messages repeat their ids.
        for message in valid.iter().chain(&any).chain(&valid) {
            history.push(message.clone());
            prop_assert!(is_checked_alike(&mut history), "{:?}", history.messages());
        }
        let mut edited = History::new(valid, 0);
        prop_assert!(is_checked_alike(&mut edited));
        // The first message is the assistant's then.
        edited.edit(|messages| messages.remove(0));
        prop_assert!(is_checked_alike(&mut edited), "{:?}", edited.messages());
    }

    #[test]
    fn a_valid_conversation_violates_no_history_rule(messages in valid_messages()) {
        prop_assert_eq!(violations(&messages), []);
    }
}
