//! Sessions that another program wrote.

use std::fs;

use outlast::journal::{MessageMeta, latest};
use outlast::transcript::{Block, Message, OUTCOME_UNKNOWN, violations};
use serde_json::{Value, json};

use super::session_fixture::{MODEL, Sandbox, result, says, tell, user};

fn lines(lines: &[Value]) -> Vec<u8> {
    let text: Vec<String> = lines.iter().chain([&Value::Null]).map(Value::to_string).collect();
    text.join("\n").trim_end_matches("null").as_bytes().to_vec()
}

fn line(kind: &str, uuid: &str, parent: Option<&str>, content: &Value) -> Value {
    json!({
        "parentUuid": parent, "type": kind, "uuid": uuid, "cwd": "/theirs", "sessionId": "s",
        "message": { "role": kind, "content": content, "model": "m" },
    })
}

fn tool(id: &str) -> Value {
    json!([{ "type": "tool_use", "id": id, "name": "Bash", "input": {} }])
}

fn answer(id: &str, content: &Value) -> Value {
    json!([{ "type": "tool_result", "tool_use_id": id, "content": content }])
}

fn call(id: &str) -> Block {
    Block::call(id, "Bash", json!({}))
}

#[test]
fn foreign_journal_lines_become_a_valid_history() {
    let sandbox = Sandbox::new();
    let mut aside = line("assistant", "side", Some("a1"), &json!("elsewhere"));
    aside["isSidechain"] = json!(true);
    let bytes = lines(&[
        json!({ "type": "summary", "summary": "nothing to us" }),
        line("user", "u1", None, &json!("do it")),
        json!({ "type": "system", "uuid": "s1", "parentUuid": "u1", "content": "note" }),
        line("assistant", "a1", Some("s1"), &tool("x")),
        line("assistant", "a2", Some("a1"), &tool("y")),
        line("user", "r1", Some("a1"), &answer("x", &json!("one"))),
        line("user", "r2", Some("a2"), &answer("y", &json!([{ "type": "text", "text": "two" }]))),
        line("assistant", "a3", Some("r2"), &json!([{ "type": "text", "text": "ok" }])),
        aside,
        json!({ "type": "last-prompt", "lastPrompt": "do it" }),
    ]);
    let id = sandbox.with_file(&bytes);
    let restored = sandbox.read(&id);
    let expected = [
        user("do it"),
        Message::assistant(vec![call("x"), call("y")]),
        Message::user(vec![result("x", "one"), result("y", "two")]),
        says("ok"),
    ];
    assert_eq!(restored.conversation.messages, expected);
    assert_eq!(restored.conversation.repairs, []);
    assert_eq!((restored.work.run, restored.totals.session.turns), (None, 0));
    assert_eq!(restored.contract.cwd.as_deref(), Some(std::path::Path::new("/theirs")));
    assert_eq!(latest(&sandbox.place).expect("readable"), None, "it is of another folder");
    let ours = String::from_utf8(bytes).expect("text");
    let ours = ours.replace("/theirs", sandbox.place.cwd().to_str().expect("text"));
    let id = sandbox.with_file(ours.as_bytes());
    assert_eq!(
        latest(&sandbox.place).expect("readable"),
        Some(id),
        "though the first line has none"
    );
}

#[test]
fn an_open_call_in_a_foreign_session_may_have_run() {
    let sandbox = Sandbox::new();
    let id = sandbox.with_file(&lines(&[
        line("user", "u1", None, &json!("do it")),
        line("assistant", "a1", Some("u1"), &tool("x")),
    ]));
    let restored = sandbox.read(&id);
    assert_eq!(restored.totals.unknown_outcomes, 1);
    let Block::ToolResult { content, .. } = &restored.conversation.messages[2].content[0] else {
        panic!()
    };
    assert_eq!(content[..], [Block::text(OUTCOME_UNKNOWN)]);
}

#[test]
fn a_continued_foreign_session_is_readable_by_both_programs() {
    let sandbox = Sandbox::new();
    let mut bytes = lines(&[
        line("user", "u1", None, &json!("do it")),
        line("assistant", "a1", Some("u1"), &json!("done")),
    ]);
    bytes.pop();
    let id = sandbox.with_file(&bytes);
    let (mut journal, restored) = sandbox.resume(&id);
    assert_eq!(restored.totals.dropped_records, 0, "only the line's end is missing");
    journal.message(&user("more"), &MessageMeta::default());
    journal.message(&says("yes"), &MessageMeta { model: Some(MODEL), ..MessageMeta::default() });
    drop(journal);
    let text = fs::read_to_string(sandbox.file(&id)).expect("text");
    assert!(text.as_bytes().starts_with(&bytes), "what they wrote stays");
    let parent = text
        .lines()
        .find(|line| line.contains("more"))
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["parentUuid"].clone());
    assert_eq!(parent, Some(json!("a1")));
    let again = sandbox.read(&id);
    assert_eq!(
        again.conversation.messages,
        [user("do it"), says("done"), user("more"), says("yes")]
    );
    let (mut journal, _) = sandbox.resume(&id);
    journal.message(&user("still"), &MessageMeta::default());
    assert_eq!(violations(&sandbox.read(&id).conversation.messages), []);
}

#[test]
fn a_foreign_copy_of_our_session_belongs_to_the_other_program() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let messages = tell(&mut journal);
    let text = String::from_utf8(sandbox.bytes(&id)).expect("text");
    let copied = text.lines().filter_map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        line["forkedFrom"] = json!({ "sessionId": id.as_str() });
        (line["type"] != "outlast").then_some(line)
    });
    let copy = sandbox.with_file(&lines(&copied.collect::<Vec<_>>()));
    assert_eq!(sandbox.read(&copy).conversation.messages, messages);
}

#[test]
fn circular_parent_links_in_a_journal_end() {
    let sandbox = Sandbox::new();
    let id = sandbox.with_file(&lines(&[
        line("user", "u1", Some("a1"), &json!("round")),
        line("assistant", "a1", Some("u1"), &json!("and round")),
    ]));
    assert_eq!(sandbox.read(&id).conversation.messages, [user("round"), says("and round")]);
}

/// Earlier versions wrote a prompt that a host had sent again with the id of the first copy.
#[test]
fn a_line_that_descends_from_itself_does_not_cut_off_the_conversation() {
    let before = [
        line("user", "u1", None, &json!("one")),
        line("assistant", "a1", Some("u1"), &json!("first")),
        line("user", "u2", Some("a1"), &json!("two")),
    ];
    let answered = line("assistant", "a2", Some("u2"), &json!("second"));
    let after = [
        line("assistant", "a3", Some("u2"), &json!("again")),
        line("user", "u3", Some("a3"), &json!("three")),
    ];
    let copies = [(None, "u2"), (Some(answered), "a2")];
    for (between, parent) in copies {
        let copy = line("user", "u2", Some(parent), &json!("two"));
        let all: Vec<Value> =
            before.iter().cloned().chain(between).chain([copy]).chain(after.clone()).collect();
        let sandbox = Sandbox::new();
        let restored = sandbox.read(&sandbox.with_file(&lines(&all)));
        let expected = [user("one"), says("first"), user("two"), says("again"), user("three")];
        assert_eq!(restored.conversation.messages, expected, "{parent}");
    }
}

#[test]
fn a_prompt_whose_id_the_session_has_gets_another_one() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let given = [uuid::Uuid::from_u128(7)];
    let meta = || MessageMeta { ids: &given, ..MessageMeta::default() };
    assert_eq!(journal.message(&user("one"), &meta()), given);
    journal.message(&says("first"), &MessageMeta::default());
    drop(journal);
    let (mut journal, restored) = sandbox.resume(&id);
    assert_eq!(restored.conversation.user_message_ids.last, [given[0].to_string()]);
    assert_ne!(journal.message(&user("two"), &meta()), given);
    drop(journal);
    assert_eq!(sandbox.read(&id).conversation.messages, [user("one"), says("first"), user("two")]);
}
