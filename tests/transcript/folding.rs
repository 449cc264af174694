//! Folding: old tool results become a short note, and nothing else changes.

use outlast_core::transcript::folding::{apply_folds, foldable, has_foldable};
use outlast_core::transcript::{Block, Message, Role, TokenDensity, violations};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::long_messages;

/// One call a round, with its result.
fn rounds(dealings: Vec<(&str, Value, Vec<Block>, bool)>) -> Vec<Message> {
    let mut messages = vec![Message::user(vec![Block::text("do it")])];
    for (index, (name, input, content, is_error)) in dealings.into_iter().enumerate() {
        let id = format!("t{index}");
        let call = Block::call(id.clone(), name.to_owned(), input);
        messages.push(Message::assistant(vec![call]));
        let result = Block::ToolResult { tool_use_id: id, content, is_error };
        messages.push(Message::user(vec![result]));
    }
    messages
}

fn long(name: &str) -> Vec<Block> {
    let middle = "nothing of note\n".repeat(300);
    vec![Block::text(format!("{name} begins\n{middle}{name} ends"))]
}

/// A result that the last three rounds leave in the old part.
fn folded(name: &str, input: Value, content: Vec<Block>, is_error: bool) -> String {
    let filler = || ("Bash", json!({ "command": "true" }), vec![Block::text("ok")], false);
    let mut messages = rounds(vec![(name, input, content, is_error), filler(), filler(), filler()]);
    let folds = foldable(&messages);
    assert_eq!(folds.len(), 1, "{folds:?}");
    apply_folds(&mut messages, folds);
    let Block::ToolResult { content, is_error: still, .. } = &messages[2].content[0] else {
        panic!("{messages:?}")
    };
    assert_eq!(*still, is_error);
    let [Block::Text { text }] = &content[..] else { panic!("{content:?}") };
    text.clone()
}

#[test]
fn a_folded_result_names_the_call_its_outcome_and_how_to_repeat_it() {
    let middle = "compiling\n".repeat(400);
    let failure = format!("Exit code 101\nerror[E0308]\n{middle}could not compile `x`\n");
    let bytes = failure.len();
    let command = json!({ "command": "cargo test", "description": "runs the tests" });
    let text = folded("Bash", command, vec![Block::text(failure)], true);
    let first = format!(
        "[Folded to save room: Bash `cargo test`: {bytes} bytes, 403 lines, exit code 101]\n\
         Exit code 101\nerror[E0308]\ncompiling\n[...]\n"
    );
    assert!(text.starts_with(&first), "{text}");
    assert!(text.contains("\ncould not compile `x`\n[To see it whole, run it again,"), "{text}");

    let text = folded("Bash", json!({ "command": "make\nall" }), long("make"), false);
    assert!(text.contains("Bash `make all`") && text.contains(", exit code 0]"), "{text}");
    let text = folded("Read", json!({ "file_path": "/w/a.rs" }), long("a.rs"), false);
    assert!(text.contains("Read `/w/a.rs`") && text.contains("a.rs ends"), "{text}");
    assert!(text.contains("read it again") && !text.contains("exit code"), "{text}");
    let text = folded("Grep", json!({ "path": "/w", "pattern": "fn" }), long("grep"), true);
    assert!(text.contains("Grep `fn`") && text.contains(", failed]"), "{text}");
    assert!(text.contains("search again"), "{text}");
}

#[test]
fn an_image_result_is_folded_too() {
    let image = Block::Image { source: json!({ "type": "base64", "data": "A".repeat(90_000) }) };
    let text = folded("Read", json!({ "file_path": "/w/a.png" }), vec![image], false);
    assert!(text.starts_with("[Folded to save room: Read `/w/a.png`: 1 image or document]"));
}

#[test]
fn the_latest_three_rounds_and_small_results_are_not_folded() {
    let big = |name: &'static str| ("Read", json!({ "file_path": name }), long(name), false);
    let small = ("Read", json!({ "file_path": "s" }), vec![Block::text("x".repeat(2_000))], false);
    let mut messages = rounds(vec![big("a"), small, big("b"), big("c"), big("d"), big("e")]);
    messages.push(Message::assistant(vec![Block::text("no call, so no round of tools")]));
    messages.push(Message::user(vec![Block::text("go on")]));
    let folds = foldable(&messages);
    assert_eq!(folds.len(), 2, "a and b: {folds:?}");
    let before = messages.clone();
    apply_folds(&mut messages, folds);
    for (at, (was, is)) in before.iter().zip(&messages).enumerate() {
        assert_eq!(was != is, at == 2 || at == 6, "message {at}");
    }
}

#[test]
fn folds_planned_for_another_conversation_are_not_applied() {
    let big = |name: &'static str| ("Read", json!({ "file_path": name }), long(name), false);
    let messages = rounds(vec![big("a"), big("b"), big("c"), big("d")]);
    let folds = foldable(&messages);
    let mut other = messages[2..].to_vec();
    let before = other.clone();
    apply_folds(&mut other, folds);
    assert_eq!(other, before);
}

/// Everything but the contents of results.
fn skeleton(messages: &[Message]) -> Vec<Message> {
    let mut messages = messages.to_vec();
    for block in messages.iter_mut().flat_map(|message| &mut message.content) {
        if let Block::ToolResult { content, .. } = block {
            content.clear();
        }
    }
    messages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn folding_frees_the_reported_tokens_and_changes_only_results(messages in long_messages()) {
        let folds = foldable(&messages);
        prop_assert_eq!(has_foldable(&messages), !folds.is_empty());
        let mut after = messages.clone();
        apply_folds(&mut after, folds.clone());
        prop_assert_eq!(violations(&after), []);
        prop_assert_eq!(skeleton(&after), skeleton(&messages));
        let freed = TokenDensity::USUAL.of(&messages) - TokenDensity::USUAL.of(&after);
        prop_assert!(freed + 1 >= 100 * folds.len() as u64, "{} tokens", freed);
        prop_assert_eq!(foldable(&after), [], "nothing is folded twice");
        let recent = after.iter().rposition(|message| message.role == Role::Assistant);
        if let Some(recent) = recent {
            prop_assert_eq!(&after[recent..], &messages[recent..]);
        }
    }
}
