//! Conversations that were changed on the way: summed up, cut or healed.

use std::fs;

use outlast::journal::{Journal, JournalError, MessageMeta, OnDamage, SessionId};
use outlast::recovery::StopReason;
use outlast::secrets::KnownSecrets;
use outlast::transcript::{Block, Message, OUTCOME_UNKNOWN, violations};
use serde_json::{Value, json};

use super::session_fixture::{Sandbox, call, calls, opening, reply, result, says, tell, user};

const SUMMARY: &str = "What came before, in short: 1. keep \u{1F914} and \"quotes\".\n";

/// A conversation as a compaction leaves it: a root, then the latest round.
fn compacted() -> Vec<Message> {
    let round = Message::assistant(vec![Block::call("t9", "Bash", json!({ "command": "true" }))]);
    let root = Message::user(vec![Block::text("Fix it."), Block::text(SUMMARY)]);
    vec![root, round, Message::user(vec![result("t9", "ok")])]
}

/// A session of a few rounds that was then compacted.
fn compact(journal: &mut Journal) -> Vec<Message> {
    tell(journal);
    let messages = compacted();
    journal.rewrite(&messages);
    messages
}

/// The conversation, as it would be sent.
fn sent(messages: &[Message]) -> String {
    serde_json::to_string(messages).expect("JSON")
}

#[test]
fn a_rewritten_conversation_is_restored_as_rewritten() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let messages = compact(&mut journal);
    let restored = sandbox.read(&id);
    assert_eq!(sent(&restored.conversation.messages), sent(&messages));
    assert_eq!(restored.conversation.repairs, []);
    // What the earlier rounds cost and counted is not forgotten with them.
    assert_eq!(restored.totals.session.turns, 2);
    drop(journal);
    let (journal, again) = sandbox.resume(&id);
    drop(journal);
    assert_eq!(again.conversation.messages, messages);
    assert_eq!(again.conversation.last_usage, None, "it counted the earlier rounds");
}

#[test]
fn messages_after_a_rewrite_follow_it() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let mut messages = compact(&mut journal);
    journal.message(&user("Be quick."), &MessageMeta::default());
    journal.message(&calls(&["t3"]), &reply());
    journal.intent(&[(call("t3"), false)]);
    journal.outcome(&result("t3", "three"), &Value::Null);
    journal.message(&says("Fixed now."), &reply());
    // Words after results are part of the same message.
    messages[2].content.push(Block::text("Be quick."));
    messages.push(calls(&["t3"]));
    messages.push(Message::user(vec![result("t3", "three")]));
    messages.push(says("Fixed now."));
    let restored = sandbox.read(&id);
    assert_eq!(restored.conversation.messages, messages);
    assert_eq!(restored.conversation.repairs, []);
    assert_eq!(restored.conversation.last_usage, reply().usage);
}

/// The last of several changes holds, and what came between them is in it or gone.
#[test]
fn the_last_rewrite_wins() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    compact(&mut journal);
    journal.message(&says("A reply that the next summary swallows."), &reply());
    journal.message(&user("More."), &MessageMeta::default());
    let last = vec![user("Fix it. In short: done, and more was wanted.")];
    journal.rewrite(&last);
    journal.message(&says("Here is more."), &reply());
    let messages = sandbox.read(&id).conversation.messages;
    assert_eq!(messages, [last, vec![says("Here is more.")]].concat());
}

/// A call that the change left open, or that was made after it, is answered as any other.
#[test]
fn interrupted_calls_after_a_rewrite_get_a_result() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    compact(&mut journal);
    journal.message(&calls(&["begun", "waiting"]), &reply());
    journal.intent(&[(call("begun"), false)]);
    drop(journal);
    let (journal, restored) = sandbox.resume(&id);
    assert_eq!(violations(&restored.conversation.messages), []);
    assert_eq!(restored.totals.unknown_outcomes, 1);
    let answers = sent(&restored.conversation.messages[4..]);
    assert!(answers.contains(OUTCOME_UNKNOWN) && answers.contains("not started"), "{answers}");
    assert_eq!(sent(&restored.conversation.messages[..3]), sent(&compacted()));
    drop(journal);
    let again = sandbox.read(&id);
    assert_eq!(
        (again.conversation.messages, again.totals.unknown_outcomes),
        (restored.conversation.messages, 0),
        "told once"
    );
}

/// A kill in the middle of writing the change leaves the conversation as it was before, whole.
#[test]
fn a_torn_rewrite_record_is_ignored() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let before = tell(&mut journal);
    let whole = sandbox.bytes(&id).len();
    journal.rewrite(&compacted());
    let bytes = sandbox.bytes(&id);
    for cut in [whole + 1, usize::midpoint(whole, bytes.len()), bytes.len() - 2] {
        let torn = sandbox.with_file(&bytes[..cut]);
        let (mut journal, restored) = sandbox.resume(&torn);
        assert_eq!(restored.totals.dropped_records, 1, "cut at {cut}");
        assert_eq!(restored.conversation.messages, before, "cut at {cut}");
        journal.message(&user("Go on."), &MessageMeta::default());
        drop(journal);
        let again = sandbox.read(&torn);
        assert_eq!(
            (again.conversation.messages.len(), again.totals.dropped_records),
            (5, 0),
            "cut at {cut}"
        );
    }
    // It lacks only its end, so it is there.
    let unended = sandbox.with_file(&bytes[..bytes.len() - 1]);
    assert_eq!(sandbox.read(&unended).conversation.messages, compacted());
}

#[test]
fn a_damaged_rewrite_record_is_refused_and_not_skipped() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    compact(&mut journal);
    journal.message(&says("Done."), &reply());
    let text = String::from_utf8(sandbox.bytes(&id)).expect("text");
    let damaged =
        sandbox.with_file(text.replace("What came before", "What came BEFORE").as_bytes());
    let error = outlast::journal::read_session(&sandbox.place, &damaged, OnDamage::Refuse)
        .expect_err("damaged");
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
}

/// Another program went on from a message before the change: its branch never saw it.
#[test]
fn a_branch_from_before_a_rewrite_keeps_the_original_messages() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let told = compact(&mut journal);
    journal.message(&says("On the old branch."), &reply());
    drop(journal);
    let text = String::from_utf8(sandbox.bytes(&id)).expect("text");
    let uuids: Vec<String> = text
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<Value>(line).ok()?["uuid"].as_str().map(str::to_owned)
        })
        .collect();
    let branch = json!({
        "parentUuid": uuids[0], "type": "assistant", "uuid": "theirs", "cwd": "/", "sessionId": "s",
        "message": { "role": "assistant", "content": "On another one.", "model": "m" },
    });
    let branched = sandbox.with_file(format!("{text}{branch}\n").as_bytes());
    let messages = sandbox.read(&branched).conversation.messages;
    assert_eq!(messages, [user("Fix it."), says("On another one.")]);
    // And one from after it has the new ones.
    let last = uuids.last().expect("messages").as_str();
    let branch = text.clone() + &branch.to_string().replace(&uuids[0], last) + "\n";
    let messages = sandbox.read(&sandbox.with_file(branch.as_bytes())).conversation.messages;
    assert_eq!(messages[..3], told);
}

#[test]
fn a_fork_starts_with_the_summary_instead_of_the_summarised_messages() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let messages = compact(&mut journal);
    let forked = SessionId::generate();
    let source = sandbox.read(&id);
    let mut fork =
        Journal::fork(&sandbox.place, &forked, &opening(), (&id, &source)).expect("a fork");
    fork.message(&says("From here on."), &reply());
    fork.rewrite(&[user("The fork in short.")]);
    drop(fork);
    let text = fs::read_to_string(sandbox.file(&forked)).expect("text");
    assert!(text.contains("in short: 1.") && !text.contains("Let me see."), "{text}");
    assert_eq!(sandbox.read(&forked).conversation.messages, [user("The fork in short.")]);
    assert_eq!(sandbox.read(&id).conversation.messages, messages, "its source is as it was");
}

/// A session that a version without changes wrote, and went on under this one.
#[test]
fn journal_lines_of_versions_without_rewrites_are_still_read() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let before = tell(&mut journal);
    let old = sandbox.bytes(&id);
    assert!(!String::from_utf8_lossy(&old).contains("rewrite"));
    drop(journal);
    let (mut journal, restored) = sandbox.resume(&id);
    assert_eq!(restored.conversation.messages, before);
    journal.message(&user("And now?"), &MessageMeta::default());
    journal.rewrite(&compacted());
    drop(journal);
    assert_eq!(sandbox.read(&id).conversation.messages, compacted());
    assert!(sandbox.bytes(&id).starts_with(&old), "what was written stays");
}

/// A change with members that only a later version writes is understood; one without its
/// messages is not, and silence about that would bring back what was taken out.
#[test]
fn a_rewrite_record_of_a_later_version_is_read_or_refused_but_never_ignored() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    journal.rewrite(&compacted());
    drop(journal);
    let bytes = sandbox.bytes(&id);
    let resealed = |change: &dyn Fn(&mut Value)| {
        let text = String::from_utf8(bytes.clone()).expect("text");
        let (before, line) = text.trim_end().rsplit_once('\n').expect("lines");
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        line.as_object_mut().expect("an object").remove("crc");
        change(&mut line);
        let mut json = line.to_string();
        let crc = crc32c::crc32c(json.as_bytes());
        json.pop();
        sandbox.with_file(format!("{before}\n{json},\"crc\":\"{crc:08x}\"}}\n").as_bytes())
    };
    let later = resealed(&|line| line["why"] = json!("summary"));
    assert_eq!(sandbox.read(&later).conversation.messages, compacted());
    let unreadable = resealed(&|line| {
        let object = line.as_object_mut().expect("an object");
        let messages = object.remove("messages").expect("there");
        object.insert("packed".to_owned(), json!(messages.to_string()));
    });
    let error = outlast::journal::read_session(&sandbox.place, &unreadable, OnDamage::Refuse)
        .expect_err("not understood");
    assert!(matches!(error, JournalError::Newer { .. }), "{error}");
}

/// Thinking that is left in a change stays byte for byte while its model answers, and goes with
/// the model.
#[test]
fn thinking_in_a_rewrite_belongs_to_the_model_that_signed_it() {
    for (model, kept) in [(super::session_fixture::MODEL, true), ("another", false)] {
        let sandbox = Sandbox::new();
        let (id, mut journal) = sandbox.create();
        journal.message(&user("go"), &MessageMeta::default());
        journal.message(&calls(&["a"]), &reply());
        journal.outcome(&result("a", "k"), &Value::Null);
        let before = [user("go"), calls(&["a"]), Message::user(vec![result("a", "k")])];
        journal.rewrite(&before);
        journal.message(&says("Done."), &MessageMeta { model: Some(model), ..reply() });
        let messages = sandbox.read(&id).conversation.messages;
        let expected =
            if kept { calls(&["a"]).content } else { calls(&["a"]).content[1..].to_vec() };
        assert_eq!(messages[1].content, expected, "{model}");
        assert_eq!(violations(&messages[..3]), [], "{model}");
    }
}

#[test]
fn a_rewrite_after_the_run_end_starts_a_new_prompt() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    assert_eq!(sandbox.read(&id).work.ended, Some(StopReason::Completed));
    journal.rewrite(&compacted());
    assert_eq!(sandbox.read(&id).work.ended, None);
}

#[test]
fn a_secret_in_a_rewrite_never_reaches_the_disk() {
    let sandbox = Sandbox::new();
    let id = SessionId::generate();
    let secret = "sk-ant-api03-0123456789";
    let secrets = KnownSecrets::new([secret]);
    let opening = outlast::journal::ProcessOpening { secrets, ..opening() };
    let mut journal = Journal::create(&sandbox.place, &id, &opening).expect("created");
    journal.rewrite(&[user(&format!("The key is {secret}."))]);
    let text = fs::read_to_string(sandbox.file(&id)).expect("text");
    assert!(!text.contains(secret), "{text}");
    assert_eq!(sandbox.read(&id).conversation.messages, [user("The key is [redacted].")]);
}
