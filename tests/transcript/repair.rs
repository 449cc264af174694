//! Repair of message lists: any list becomes valid, and a valid one is unchanged.

use outlast_core::transcript::{
    Block, HistoryRepair, HistoryRule, Message, OUTCOME_UNKNOWN, RepairStep, Role, answer_calls,
    last_text, repair, repair_history, strip_thinking, violations,
};
use proptest::prelude::*;
use serde_json::json;

use super::arbitrary::{any_messages, valid_messages};
use crate::support::rotation::property_cases;

fn call(id: &str) -> Block {
    Block::call(id, "Bash", json!({}))
}

fn answer(id: &str, text: &str, is_error: bool) -> Block {
    Block::ToolResult { tool_use_id: id.to_owned(), content: vec![Block::text(text)], is_error }
}

fn ask() -> Message {
    Message::user(vec![Block::text("do it")])
}

fn text_of(block: &Block) -> Option<&str> {
    if let Block::Text { text } = block { Some(text) } else { None }
}

fn texts(messages: &[Message]) -> Vec<&str> {
    let blocks = messages.iter().flat_map(|message| &message.content);
    blocks.filter_map(text_of).filter(|text| !text.trim().is_empty()).collect()
}

fn calls(messages: &[Message]) -> usize {
    let replies = messages.iter().filter(|message| message.role == Role::Assistant);
    let blocks = replies.flat_map(|message| &message.content);
    blocks.filter(|block| matches!(block, Block::ToolUse { .. })).count()
}

proptest! {
    #![proptest_config(property_cases(500))]

    #[test]
    fn repair_turns_any_message_list_into_a_valid_one(messages in any_messages()) {
        let (repaired, repairs) = repair(messages.clone());
        prop_assert_eq!(violations(&repaired), []);
        prop_assert_eq!(repairs.is_empty(), violations(&messages).is_empty());
        let (again, none) = repair(repaired.clone());
        prop_assert_eq!(&again, &repaired);
        prop_assert_eq!(none, []);
        prop_assert_eq!(calls(&repaired), calls(&messages), "no call is lost");
        let added = ["(The beginning of this conversation is missing.)", "Continue."];
        let mut left = texts(&repaired);
        left.retain(|text| !added.contains(text));
        prop_assert_eq!(left, texts(&messages), "no word is lost");
    }

    #[test]
    fn repair_accepts_an_empty_history_and_a_final_assistant_message(messages in any_messages()) {
        let (repaired, _) = repair_history(messages, |id| format!("lost {id}"));
        for violation in violations(&repaired) {
            let open_ended = matches!(violation.rule, HistoryRule::AssistantCloses | HistoryRule::NoMessage);
            prop_assert!(open_ended, "{:?}", violation);
        }
    }

    #[test]
    fn repair_leaves_a_valid_list_unchanged(messages in valid_messages()) {
        prop_assert_eq!(repair(messages.clone()), (messages, vec![]));
    }

    #[test]
    fn removing_thinking_keeps_a_valid_list_valid(messages in valid_messages()) {
        let mut stripped = messages.clone();
        strip_thinking(&mut stripped);
        prop_assert_eq!(violations(&stripped), []);
        prop_assert_eq!(texts(&stripped), texts(&messages));
        prop_assert_eq!(calls(&stripped), calls(&messages));
    }
}

#[test]
fn an_interrupted_tool_call_gets_a_result_of_unknown_outcome() {
    let (messages, repairs) = repair(vec![ask(), Message::assistant(vec![call("a")])]);
    assert_eq!(messages[2], Message::user(vec![answer("a", OUTCOME_UNKNOWN, true)]));
    assert_eq!(
        repairs,
        [HistoryRepair { at: 2, step: RepairStep::Answered { id: "a".to_owned() } }]
    );
}

#[test]
fn two_calls_with_the_same_id_keep_their_own_results() {
    let reply = |text: &str| Message::user(vec![answer("x", text, false)]);
    let asks = || Message::assistant(vec![call("x")]);
    let (messages, repairs) = repair(vec![ask(), asks(), reply("one"), asks(), reply("two")]);
    assert_eq!(messages[2].content, [answer("x", "one", false)]);
    assert_eq!(messages[3].content, [call("x_2")]);
    assert_eq!(messages[4].content, [answer("x_2", "two", false)]);
    assert_eq!(repairs.len(), 1, "{repairs:?}");
}

#[test]
fn two_calls_with_the_same_id_in_one_reply_get_distinct_ids() {
    let (messages, _) = repair(vec![
        ask(),
        Message::assistant(vec![call("x"), call("x")]),
        Message::user(vec![answer("x", "one", false), answer("x", "two", false)]),
    ]);
    assert_eq!(messages[1].content, [call("x"), call("x_2")]);
    assert_eq!(messages[2].content, [answer("x", "one", false), answer("x_2", "two", false)]);
}

#[test]
fn a_tool_input_that_is_not_an_object_is_wrapped() {
    let odd = Block::call("a", "a b", json!("ls"));
    let (messages, _) = repair(vec![
        ask(),
        Message::assistant(vec![odd]),
        Message::user(vec![answer("a", "k", false)]),
    ]);
    let fixed = Block::call("a", "a_b", json!({"input": "ls"}));
    assert_eq!(messages[1].content, [fixed]);
}

#[test]
fn only_unanswered_calls_of_the_last_reply_get_results() {
    let mut messages = vec![
        ask(),
        Message::assistant(vec![call("a"), call("b"), call("c")]),
        Message::user(vec![answer("b", "done", false), Block::text("note")]),
    ];
    let answered = answer_calls(&mut messages, |id| format!("no {id}"));
    assert_eq!(answered, ["a", "c"]);
    let expected = [
        answer("b", "done", false),
        answer("a", "no a", true),
        answer("c", "no c", true),
        Block::text("note"),
    ];
    assert_eq!(messages[2].content, expected);
    assert_eq!(violations(&messages), []);
    assert_eq!(answer_calls(&mut messages, |_| unreachable!("all are answered")), [""; 0]);
}

#[test]
fn the_last_text_skips_replies_without_text() {
    let messages = [
        ask(),
        Message::assistant(vec![Block::text("half "), call("a"), Block::text("done")]),
        Message::user(vec![answer("a", "k", false)]),
        Message::assistant(vec![call("b")]),
    ];
    assert_eq!(last_text(&messages).as_deref(), Some("half done"));
    assert_eq!(last_text(&messages[..1]), None);
}

#[test]
fn every_history_repair_is_described() {
    let id = || "toolu_1".to_owned();
    let steps = [
        RepairStep::DroppedMessage,
        RepairStep::Joined,
        RepairStep::TrimmedThinking,
        RepairStep::Renamed { from: id(), to: id() },
        RepairStep::FixedName { from: id(), to: id() },
        RepairStep::FixedInput { id: id() },
        RepairStep::Answered { id: id() },
        RepairStep::DroppedResult { id: id() },
        RepairStep::MovedResults,
        RepairStep::AddedOpening,
        RepairStep::AddedClosing,
    ];
    for step in steps {
        let debug = format!("{step:?}");
        let told = HistoryRepair { at: 7, step }.to_string();
        let name = debug.split(' ').next().expect("a name");
        assert!(!told.contains(name) && !told.contains(['{', '}']), "{told}");
        assert!(told.starts_with(char::is_lowercase) && told.contains(' '), "{told}");
    }
}
