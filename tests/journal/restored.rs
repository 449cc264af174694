//! A restored session equals the recorded one.

use std::fs;

use outlast::journal::{
    BackgroundChanges, BackgroundWork, CarryOver, Journal, JournalHealth, LockedSession,
    MessageMeta, ModelSpan, ModelTotals, OnDamage, PastBackground, ProcessOpening, RestoredSession,
    SessionId, SessionTotals,
};
use outlast::recovery::{Event, Limits, Money, StopReason};
use outlast::secrets::KnownSecrets;
use outlast::transcript::{Block, Message, OUTCOME_UNKNOWN, Usage, violations};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::session_fixture::{
    MODEL, Sandbox, TOOL_CALLS, call, calls, cents, opening, reply, result, says, steps, tell,
    usage, user, weighed,
};
use crate::transcript::arbitrary::valid_messages;

#[test]
fn a_finished_run_comes_back_as_it_was() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let messages = tell(&mut journal);
    assert_eq!(journal.health(), JournalHealth::Durable);
    drop(journal);
    let restored = sandbox.read(&id);
    assert_eq!(restored.conversation.messages, messages);
    assert_eq!(restored.conversation.repairs, []);
    assert_eq!(
        restored.work.run,
        steps(&[Event::Begin, weighed(), TOOL_CALLS]).pop().map(|s| s.next)
    );
    assert_eq!(restored.work.ended, Some(StopReason::Completed));
    let sum = Usage { input_tokens: 200, output_tokens: 14, ..Usage::default() };
    let by_model = vec![ModelTotals { model: MODEL.to_owned(), usage: sum, cost: Some(cents(5)) }];
    let models = vec![ModelSpan { model: MODEL.to_owned(), from_turn: 1 }];
    let sums = SessionTotals {
        turns: 2,
        spent: cents(5),
        usage: sum,
        by_model,
        models,
        ..SessionTotals::default()
    };
    assert_eq!((&restored.totals.prompt, &restored.totals.session), (&sums, &sums));
    assert_eq!(restored.totals.in_flight, Money::ZERO);
    assert_eq!((restored.totals.dropped_records, restored.totals.unknown_outcomes), (0, 0));
    assert_eq!(restored.contract.cwd.as_deref(), Some(sandbox.place.cwd()));
    let opened = restored.contract.opened.expect("outlast wrote it");
    assert_eq!((opened.model.as_str(), opened.permission_mode.as_str()), (MODEL, "acceptEdits"));
    assert_eq!(opened.limits, Limits::default());
}

#[test]
fn each_line_is_what_the_public_readers_expect() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    let text = String::from_utf8(sandbox.bytes(&id)).expect("text");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
    let mut parent = Value::Null;
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["seq"], index + 1);
        assert!(line["crc"].as_str().is_some_and(|crc| crc.len() == 8), "{line}");
        let time = line["timestamp"].as_str().expect("a time");
        assert!(time.ends_with('Z') && time.len() == "2026-01-01T00:00:00.000Z".len(), "{time}");
        if line["type"] == "outlast" {
            assert_eq!(line["v"], 1);
            continue;
        }
        assert_eq!(line["parentUuid"], parent);
        assert_eq!(line["sessionId"], id.as_str());
        assert_eq!(line["isSidechain"], false);
        assert_eq!(line["message"]["role"], line["type"]);
        assert_eq!(line["cwd"].as_str(), sandbox.place.cwd().to_str());
        parent = line["uuid"].clone();
    }
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["kind"].as_str().or(line["type"].as_str()).expect("a kind"))
        .collect();
    // The first reply has four blocks, each on a line of its own.
    let expected = "open user transition transition spend assistant assistant assistant assistant \
                    transition intent user user spend assistant end";
    assert_eq!(kinds.join(" "), expected);
    assert!(text.contains(r#""type":"user","message":{"role":"user""#), "{text}");
    assert_eq!(lines[11]["toolUseResult"], json!({ "stdout": "two" }));
    assert_eq!(lines[14]["message"]["usage"]["output_tokens"], 10);
}

#[test]
fn an_interrupted_tool_call_gets_a_result_with_the_known_facts() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    journal.message(&calls(&["done", "begun", "changed", "waiting"]), &reply());
    let changed = call("changed");
    let input = changed.input.clone();
    journal.intent(&[(call("done"), false), (call("begun"), false), (changed, true)]);
    journal.outcome(&result("done", "kept"), &Value::Null);
    drop(journal);
    let error = |id: &str, text: &str| Block::ToolResult {
        tool_use_id: id.to_owned(),
        content: vec![Block::text(text)],
        is_error: true,
    };
    let expected = [
        result("done", "kept"),
        error("begun", OUTCOME_UNKNOWN),
        error("changed", &format!("{OUTCOME_UNKNOWN}. It ran with a changed input: {input}")),
        error("waiting", "not started: the run was cut off before this ran"),
    ];
    let (journal, restored) = sandbox.resume(&id);
    assert_eq!(restored.conversation.messages[2].content, expected);
    assert_eq!(violations(&restored.conversation.messages), []);
    assert_eq!(restored.totals.unknown_outcomes, 2);
    assert_eq!(restored.work.ended, None);
    drop(journal);
    let again = sandbox.read(&id);
    assert_eq!(
        again.conversation.messages, restored.conversation.messages,
        "the answers are on record"
    );
    assert_eq!(again.totals.unknown_outcomes, 0, "and are told once");
}

#[test]
fn a_call_to_the_model_that_was_cut_off_stays_charged() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    journal.spend(Some(cents(4)), &usage(1), MODEL);
    for step in steps(&[Event::Begin, weighed()]) {
        journal.transition(&step);
    }
    drop(journal);
    let worst = Money::from_pico_dollars(10_000_000_000 + 8_192 * 100_000_000);
    let (journal, restored) = sandbox.resume(&id);
    assert_eq!(
        (restored.totals.in_flight, restored.totals.prompt.spent),
        (worst, worst + cents(4))
    );
    drop(journal);
    let again = sandbox.read(&id);
    assert_eq!(
        (again.totals.in_flight, again.totals.prompt.spent),
        (Money::ZERO, worst + cents(4))
    );
}

#[test]
fn sums_go_on_until_a_prompt_ends_or_a_fresh_one_begins() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("one"), &MessageMeta::default());
    journal.spend(Some(cents(1)), &usage(1), MODEL);
    drop(journal);
    let (mut journal, restored) = sandbox.resume(&id);
    assert_eq!((restored.work.ended, restored.totals.prompt.spent), (None, cents(1)));
    journal.spend(Some(cents(1)), &usage(1), "other");
    journal.message(&says("done"), &reply());
    journal.end(StopReason::MaxTurns, None);
    assert_eq!(sandbox.read(&id).totals.prompt.spent, cents(2), "the process after goes on");
    assert_eq!(sandbox.read(&id).work.ended, Some(StopReason::MaxTurns));
    journal.message(&user("two"), &MessageMeta::default());
    journal.spend(Some(cents(7)), &usage(1), MODEL);
    let restored = sandbox.read(&id);
    assert_eq!((restored.totals.prompt.spent, restored.totals.session.spent), (cents(7), cents(9)));
    assert_eq!((restored.totals.prompt.turns, restored.totals.session.turns), (0, 1));
    assert_eq!(restored.totals.session.by_model.len(), 2);
    drop(journal);
    let fresh = ProcessOpening { carry: CarryOver::Fresh, ..opening() };
    let (journal, _) = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse)
        .expect("free")
        .open(&sandbox.place, &fresh);
    drop(journal);
    assert_eq!(sandbox.read(&id).totals.prompt, SessionTotals::default());
}

#[test]
fn thinking_of_a_model_that_no_longer_answers_is_left_out() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    journal.message(&calls(&["a"]), &MessageMeta { model: Some("first"), ..reply() });
    journal.message(&Message::user(vec![result("a", "k")]), &MessageMeta::default());
    journal.message(&calls(&["b"]), &MessageMeta { model: Some("second"), ..reply() });
    journal.message(&Message::user(vec![result("b", "k")]), &MessageMeta::default());
    let messages = sandbox.read(&id).conversation.messages;
    assert_eq!(messages[1].content, calls(&["a"]).content[1..]);
    assert_eq!(messages[3], calls(&["b"]));
}

#[test]
fn a_fork_copies_the_messages_and_leaves_its_source_unchanged() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let messages = tell(&mut journal);
    let before = sandbox.bytes(&id);
    let forked = SessionId::generate();
    let source = sandbox.read(&id);
    let mut fork = Journal::fork(&sandbox.place, &forked, &opening(), (&id, &source))
        .expect("a fork of a session in use");
    fork.message(&user("and now?"), &MessageMeta::default());
    drop(fork);
    assert_eq!(sandbox.bytes(&id), before);
    let restored = sandbox.read(&forked);
    assert_eq!(restored.conversation.messages[..4], messages);
    assert_eq!(restored.conversation.messages[4], user("and now?"));
    assert_eq!(restored.totals.session.spent, Money::ZERO);
    assert_eq!(restored.work.ended, None);
    // Readers of transcripts look for prompts that are a text.
    let bytes = sandbox.bytes(&forked);
    let first = bytes.split(|byte| *byte == b'\n').next().expect("a line");
    let first: Value = serde_json::from_slice(first).expect("JSON");
    assert_eq!(first["message"]["content"].as_str(), messages[0].content[0].as_text(), "{first}");
}

#[test]
fn a_fork_has_prompts_as_texts_without_what_was_added_to_them() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    journal.message(&user("This is your last reply."), &MessageMeta::default());
    drop(journal);
    let (forked, source) = (SessionId::generate(), sandbox.read(&id));
    assert_eq!(source.conversation.messages.len(), 1, "they are one message");
    drop(Journal::fork(&sandbox.place, &forked, &opening(), (&id, &source)).expect("a fork"));
    assert_eq!(sandbox.read(&forked).conversation.messages, source.conversation.messages);
    let bytes = sandbox.bytes(&forked);
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_slice::<Value>(line).expect("JSON"));
    let contents: Vec<Value> = lines
        .filter(|line| line["type"] == "user")
        .map(|line| line["message"]["content"].clone())
        .collect();
    let added = json!([{ "type": "text", "text": "This is your last reply." }]);
    assert_eq!(contents, [json!("go"), added]);
}

#[test]
fn a_fork_keeps_the_image_of_a_prompt_in_its_message() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
    let content =
        json!([{ "type": "text", "text": "Look." }, { "type": "image", "source": source }]);
    let prompt = Message::user(serde_json::from_value(content.clone()).expect("blocks"));
    journal.message(&prompt, &MessageMeta::default());
    drop(journal);
    let forked = SessionId::generate();
    drop(
        Journal::fork(&sandbox.place, &forked, &opening(), (&id, &sandbox.read(&id)))
            .expect("a fork"),
    );
    let copied = &sandbox.read(&forked).conversation.messages[0];
    assert!(copied.content.starts_with(&prompt.content), "{copied:?}");
    let bytes = sandbox.bytes(&forked);
    let first = bytes.split(|byte| *byte == b'\n').next().expect("a line");
    let first: Value = serde_json::from_slice(first).expect("JSON");
    assert_eq!(first["message"]["content"], content, "{first}");
}

#[test]
fn background_work_is_lost_until_the_model_was_told_of_its_end() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    let command = |id: &str| {
        let (id, command) = (id.to_owned(), "make".to_owned());
        BackgroundWork::Command { id, command }
    };
    let agent = BackgroundWork::Agent { id: "a1".to_owned(), description: "a part".to_owned() };
    let started = vec![command("bash_1"), agent.clone(), command("bash_2")];
    journal.background(BackgroundChanges { commands: 2, started, ..Default::default() });
    let reported =
        |id: &str| BackgroundChanges { reported: vec![id.to_owned()], ..Default::default() };
    journal.background(reported("bash_1"));
    drop(journal);
    let (mut journal, restored) = sandbox.resume(&id);
    let lost = vec![agent.clone(), command("bash_2")];
    assert_eq!(restored.work.background, PastBackground { commands: 2, lost, folder: None });
    // A fork goes on with the same ids, and its source with the same losses.
    let fork = |restored: &RestoredSession| {
        let forked = SessionId::generate();
        drop(Journal::fork(&sandbox.place, &forked, &opening(), (&id, restored)).expect("a fork"));
        sandbox.read(&forked).work.background
    };
    assert_eq!(fork(&restored), restored.work.background);
    journal.background(reported("bash_2"));
    drop(journal);
    let lost = vec![agent.clone()];
    assert_eq!(
        sandbox.read(&id).work.background,
        PastBackground { commands: 2, lost, folder: None }
    );

    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    let started = vec![agent.clone()];
    journal.background(BackgroundChanges { started, ..Default::default() });
    drop(journal);
    let lost = vec![agent];
    assert_eq!(fork(&sandbox.read(&id)), PastBackground { commands: 0, lost, folder: None });
}

#[test]
fn the_last_folder_of_commands_is_kept_also_by_a_fork() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    let moved =
        |folder: &str| BackgroundChanges { folder: Some(folder.into()), ..Default::default() };
    journal.background(moved("/work/a"));
    journal.background(moved("/work/b"));
    journal.background(BackgroundChanges::default());
    drop(journal);
    let restored = sandbox.read(&id);
    assert_eq!(restored.work.background.folder, Some("/work/b".into()));
    let forked = SessionId::generate();
    drop(Journal::fork(&sandbox.place, &forked, &opening(), (&id, &restored)).expect("a fork"));
    assert_eq!(sandbox.read(&forked).work.background, restored.work.background);
}

#[test]
fn secrets_never_reach_the_disk() {
    let sandbox = Sandbox::new();
    let secrets = ["sk-ant-api03-\"quoted\\key\"", "plain-token-1234"];
    let id = SessionId::generate();
    let known = KnownSecrets::new(secrets.iter().chain(&["none"]));
    let opening = ProcessOpening { secrets: known, ..opening() };
    let mut journal = Journal::create(&sandbox.place, &id, &opening).expect("created");
    let nested = json!({ "log": json!({ "key": secrets[0] }).to_string() }).to_string();
    journal
        .message(&user(&format!("use {} or none {nested}", secrets[1])), &MessageMeta::default());
    let input = json!({ secrets[1]: { "type": secrets[0] } });
    let name = "Bash".to_owned();
    let reply_with_key = Message::assistant(vec![Block::call("t", name, input)]);
    journal.message(&reply_with_key, &reply());
    journal.outcome(&result("t", secrets[0]), &json!({ "stdout": secrets[1] }));
    assert_eq!(journal.health(), JournalHealth::Durable);
    let text = fs::read_to_string(sandbox.file(&id)).expect("text");
    for secret in ["quoted", "plain-token-1234"] {
        assert!(!text.contains(secret), "{text}");
    }
    let restored = sandbox.read(&id);
    assert_eq!(restored.conversation.messages.len(), 3);
    assert_eq!(restored.conversation.messages[2], Message::user(vec![result("t", "[redacted]")]));
    assert!(text.contains("or none"), "too short to be a secret");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_conversation_comes_back_byte_for_byte(messages in valid_messages()) {
        let sandbox = Sandbox::new();
        let (id, mut journal) = sandbox.create();
        for message in &messages {
            journal.message(message, &reply());
        }
        let restored = sandbox.read(&id);
        let json = |messages: &[Message]| serde_json::to_string(messages).expect("JSON");
        prop_assert_eq!(json(&restored.conversation.messages), json(&messages));
        prop_assert_eq!(restored.conversation.repairs, []);
    }
}
