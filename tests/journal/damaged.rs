//! A journal that is damaged before its end: refused by itself, and on request taken up again from
//! the last intact record before the damage.

use std::fs;

use outlast::journal::{
    CarryOver, Contract, FirstPrompt, Journal, JournalError, JournalHealth, LockedSession,
    MessageMeta, OnDamage, ProcessOpening, RestoredSession, SessionId,
};
use outlast::recovery::{Event, Money, StopReason};
use outlast::transcript::{Block, HistoryRule, OUTCOME_UNKNOWN, Role, violations};
use serde_json::{Value, json};

use super::session_fixture::{
    MODEL, Sandbox, call, calls, cents, opening, reply, result, says, steps, usage, user,
};

const LOST: &str = "record of this session was damaged";

fn starting() -> ProcessOpening {
    let terms = json!({ "require": "make check" }).as_object().expect("an object").clone();
    ProcessOpening {
        title: None,
        contract: Some(Contract { version: 1, terms, ..Contract::default() }),
        prompt: Some(FirstPrompt::of("go")),
        ..opening()
    }
}

/// Two rounds of work with a command in each. The last line is whole.
fn recorded(sandbox: &Sandbox) -> Vec<u8> {
    let id = SessionId::generate();
    let mut journal = Journal::create(&sandbox.place, &id, &starting()).expect("created");
    journal.message(&user("go"), &MessageMeta::default());
    for id in ["a", "b"] {
        journal.transition(&steps(&[Event::Begin])[0]);
        journal.spend(Some(cents(2)), &usage(10), MODEL);
        journal.message(&calls(&[id]), &reply());
        journal.intent(&[(call(id), false)]);
        journal.outcome(&result(id, "done"), &Value::Null);
    }
    journal.message(&says("Done."), &reply());
    journal.end(StopReason::Completed, None);
    sandbox.bytes(&id)
}

/// The lines of a journal, without their ends.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let text = bytes.strip_suffix(b"\n").expect("it ends with a line");
    text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect()
}

/// Every way in which the line of this index can be damaged so that it shows.
fn damages(lines: &[Vec<u8>], index: usize) -> [(&'static str, Vec<u8>); 3] {
    let (mut flipped, mut missing, mut rubbish) = (lines.to_vec(), lines.to_vec(), lines.to_vec());
    let middle = flipped[index].len() / 2;
    flipped[index][middle] ^= 1;
    missing.remove(index);
    rubbish[index] = b"\0\xff{".to_vec();
    [("a bit", joined(&flipped)), ("a line", joined(&missing)), ("rubbish", joined(&rubbish))]
}

fn texts(restored: &RestoredSession) -> Vec<&str> {
    let mut texts = Vec::new();
    for block in restored.conversation.messages.iter().flat_map(|message| &message.content) {
        if let Block::Text { text } = block {
            texts.push(text.as_str());
        }
    }
    texts
}

fn answers(restored: &RestoredSession, id: &str) -> Vec<String> {
    let mut answers = Vec::new();
    for block in restored.conversation.messages.iter().flat_map(|message| &message.content) {
        if let Block::ToolResult { tool_use_id, content, .. } = block
            && tool_use_id == id
        {
            answers.push(format!("{content:?}"));
        }
    }
    answers
}

/// Asserts the invariants of a session that is resumed in spite of damage.
fn assert_goes_on(restored: &RestoredSession, before: &RestoredSession, context: &str) {
    for violation in violations(&restored.conversation.messages) {
        let open_ended =
            matches!(violation.rule, HistoryRule::AssistantCloses | HistoryRule::NoMessage);
        assert!(open_ended, "{context}: {violation:?}");
    }
    let said = texts(restored);
    assert_eq!(said.iter().filter(|text| text.contains(LOST)).count(), 1, "{context}: {said:?}");
    let last = restored.conversation.messages.last().expect("the note at least");
    assert_eq!(last.role, Role::User, "{context}: the model is told before it goes on");
    // Nothing that was intact is lost, and nothing after it is believed.
    let kept = texts(before);
    assert!(said.starts_with(&kept), "{context}: {kept:?} {said:?}");
    assert!(!said.contains(&"Done."), "{context}");
    for id in ["a", "b"] {
        let (now, then) = (answers(restored, id), answers(before, id));
        let unknown = now.iter().all(|answer| answer.contains(OUTCOME_UNKNOWN));
        let known = then.iter().any(|answer| answer.contains("done"));
        assert!(if known { now == then } else { unknown }, "{context}: {id}: {now:?}");
    }
}

#[test]
fn damage_at_any_record_is_refused_unless_resumed_to_last_intact() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let whole = lines(&bytes);
    // What only the last line lacks is a torn end, which needs no request.
    for index in 0..whole.len() - 1 {
        for (how, damaged) in damages(&whole, index) {
            let context = format!("{how} in line {}", index + 1);
            let id = sandbox.with_file(&damaged);
            let error = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse)
                .expect_err("damaged");
            let hint = error.hint();
            assert!(hint.contains(&format!("--resume {id} --to-last-intact")), "{hint}");
            let JournalError::Damaged { line, .. } = error else { panic!("{context}: {error}") };
            assert_eq!(line, index + 1, "{context}");
            assert_eq!(sandbox.bytes(&id), damaged, "{context}: refused and left as it was");

            let before = sandbox.read(&sandbox.with_file(&joined(&whole[..index])));
            let held = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::UseIntactPart)
                .expect("it goes on");
            assert_eq!(sandbox.bytes(&id), damaged, "{context}: nothing changes before it opens");
            let (mut journal, restored) = held.open(&sandbox.place, &starting());
            assert_goes_on(&restored, &before, &context);
            let damage = restored.contract.damage.as_ref().expect("it says so");
            let left_out = lines(&damaged).len() - index;
            assert_eq!(damage.line, index + 1, "{context}");
            assert_eq!(usize::try_from(damage.dropped_records).ok(), Some(left_out), "{context}");
            let kept_in = damage.kept_in.as_ref().expect("the rest is kept");
            let rest = fs::read(kept_in).expect("readable");
            assert_eq!([joined(&whole[..index]), rest].concat(), damaged, "{context}: all of it");

            journal.message(&user("go on"), &MessageMeta::default());
            drop(journal);
            let again = sandbox.read(&id);
            assert_eq!(
                (again.totals.dropped_records, &again.contract.damage),
                (0, &None),
                "{context}"
            );
            assert_goes_on(&again, &before, &context);
            // The records of lines 2 and 3 say how it was started. Others do not touch them.
            let prompt = (index != 2).then(|| FirstPrompt::of("go"));
            assert_eq!(restored.contract.terms.prompt, prompt, "{context}");
            let given = Some(FirstPrompt::of("go"));
            assert_eq!(
                again.contract.terms.prompt, given,
                "{context}: of this process, if of no other"
            );
            let kept = again.contract.terms.contract.expect("the contract is written again");
            let given = starting().contract.expect("there is one");
            assert_eq!(kept.original.terms, given.terms, "{context}");
            assert_eq!(kept.latest, kept.original, "{context}");
        }
    }
}

/// Money that was spent after the damage is spent all the same, as far as the file can be read.
#[test]
fn spending_after_the_damage_counts() {
    let sandbox = Sandbox::new();
    let whole = lines(&recorded(&sandbox));
    let is_spend = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(r#""kind":"spend""#);
    for index in 0..whole.len() - 1 {
        let [(_, damaged), ..] = damages(&whole, index);
        let id = sandbox.with_file(&damaged);
        let held = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::UseIntactPart)
            .expect("it goes on");
        let (journal, restored) = held.open(&sandbox.place, &starting());
        drop(journal);
        let lost = if is_spend(&whole[index]) { cents(2) } else { Money::ZERO };
        assert_eq!(restored.totals.session.spent, cents(4).minus(lost), "line {}", index + 1);
        let again = sandbox.read(&id).totals.session.spent;
        assert_eq!(again, restored.totals.session.spent, "line {}", index + 1);
    }
}

/// The money of a later prompt, of which nothing else is left, does not begin a prompt.
#[test]
fn an_answer_before_the_damage_stays_the_answer() {
    let sandbox = Sandbox::new();
    let first = recorded(&sandbox);
    let index = lines(&first).len();
    let id = sandbox.with_file(&first);
    let fresh = ProcessOpening { carry: CarryOver::Fresh, ..starting() };
    let held = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse).expect("free");
    let (mut journal, _) = held.open(&sandbox.place, &fresh);
    journal.message(&user("more"), &MessageMeta::default());
    journal.transition(&steps(&[Event::Begin])[0]);
    journal.spend(Some(cents(2)), &usage(10), MODEL);
    drop(journal);
    let [(_, damaged), ..] = damages(&lines(&sandbox.bytes(&id)), index);
    let id = sandbox.with_file(&damaged);
    let held = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::UseIntactPart);
    let (journal, restored) = held.expect("it goes on").open(&sandbox.place, &starting());
    drop(journal);
    for restored in [restored, sandbox.read(&id)] {
        assert_eq!(restored.conversation.recorded.answer(), "Let me see.\nDone.");
        assert_eq!(restored.totals.session.spent, cents(6));
    }
}

/// The model is told which calls were made, as far as the file can be read.
#[test]
fn calls_after_the_damage_are_named() {
    let sandbox = Sandbox::new();
    let whole = lines(&recorded(&sandbox));
    let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
    let first = whole.iter().position(|line| text(line).contains(r#""tool_use_id":"a""#));
    let [(_, damaged), ..] = damages(&whole, first.expect("the first outcome"));
    let id = sandbox.with_file(&damaged);
    let restored = outlast::journal::read_session(&sandbox.place, &id, OnDamage::UseIntactPart);
    let restored = restored.expect("it goes on");
    assert_eq!(sandbox.bytes(&id), damaged, "a reader changes nothing");
    assert_eq!(restored.contract.damage.as_ref().and_then(|it| it.kept_in.clone()), None);
    let said = texts(&restored).join("\n");
    assert!(said.contains("- Bash `") && said.contains(": outcome unknown"), "{said}");
    let [told] = &answers(&restored, "a")[..] else { panic!("one answer") };
    assert!(told.contains(OUTCOME_UNKNOWN), "its outcome was damaged: {told}");
}

/// A second damage does not overwrite what was kept of the first.
#[test]
fn each_damaged_tail_is_saved_in_its_own_file() {
    let sandbox = Sandbox::new();
    let whole = lines(&recorded(&sandbox));
    let [(_, damaged), ..] = damages(&whole, 3);
    let id = sandbox.with_file(&damaged);
    let mut kept = Vec::new();
    for _ in 0..2 {
        fs::write(sandbox.file(&id), &damaged).expect("written");
        let held = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::UseIntactPart)
            .expect("it goes on");
        let (_journal, restored) = held.open(&sandbox.place, &starting());
        kept.push(restored.contract.damage.and_then(|damage| damage.kept_in).expect("it is kept"));
    }
    assert_ne!(kept[0], kept[1]);
    assert_eq!(fs::read(&kept[0]).expect("readable"), fs::read(&kept[1]).expect("readable"));
}

/// If the damaged part cannot be saved, nothing is written, and the prompt continues all the same.
#[test]
fn a_prompt_continues_with_its_state_in_a_file_that_cannot_be_written() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    journal.message(&calls(&["a"]), &reply());
    journal.outcome(&result("a", "done"), &Value::Null);
    journal.end(StopReason::MaxTurns, None);
    let ended = lines(&sandbox.bytes(&id)).len();
    journal.message(&user("more"), &MessageMeta::default());
    journal.message(&says("Well."), &reply());
    drop(journal);
    let [(_, damaged), ..] = damages(&lines(&sandbox.bytes(&id)), ended);
    let continued = |id: &SessionId| {
        let held = LockedSession::lock_and_read(&sandbox.place, id, OnDamage::UseIntactPart);
        let (mut journal, _) = held.expect("it goes on").open(&sandbox.place, &opening());
        journal.message(&user("go on"), &MessageMeta::default());
        journal
    };
    let (intact, blocked) = (sandbox.with_file(&damaged), sandbox.with_file(&damaged));
    // A file in place of the folder for the damaged part.
    fs::write(sandbox.file(&blocked).with_extension(""), "").expect("written");
    let (written, lost) = (continued(&intact), continued(&blocked));
    assert_eq!(written.health(), JournalHealth::Durable);
    assert!(matches!(lost.health(), JournalHealth::Lost(_)));
    assert_eq!(sandbox.bytes(&blocked), damaged);
    assert_eq!(lost.recorded(), written.recorded());
    assert_eq!(lost.recorded().tools().calls, 1);
}

/// A change that a killed process cannot cause is damage, also at the end of the file or in all of
/// it.
#[test]
fn more_than_a_torn_end_is_damage() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let half = bytes.len() / 2;
    let zeros = |count: usize| vec![0; count];
    let (start, end) = bytes.split_at(half);
    let broken =
        |text: &[u8]| String::from_utf8_lossy(text).replace("\"seq\"", "\"sEq\"").into_bytes();
    let pretty = |text: &[u8]| String::from_utf8_lossy(text).replace('{', "{\n").into_bytes();
    let rows: [(&str, Vec<u8>); 7] = [
        ("all zeros", zeros(bytes.len())),
        ("all zeros, with lines", b"\0\n\0\n".to_vec()),
        ("a page of zeros and more", [start, &zeros(4_097)].concat()),
        ("half of the lines", [start, &broken(end)].concat()),
        ("all lines", broken(&bytes)),
        ("pretty-printed", pretty(&bytes)),
        ("compressed", b"\x1f\x8b\x08\0\0\0\0\0\x02\xff\x0a".to_vec()),
    ];
    for (name, bytes) in rows {
        let id = sandbox.with_file(&bytes);
        let refused = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse);
        assert!(matches!(refused, Err(JournalError::Damaged { .. })), "{name}: {refused:?}");
        assert_eq!(sandbox.bytes(&id), bytes, "{name}");
        let held = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::UseIntactPart);
        let (_, restored) = held.expect(name).open(&sandbox.place, &opening());
        let kept = restored.contract.damage.expect(name).kept_in.expect(name);
        assert!(bytes.ends_with(&fs::read(kept).expect(name)), "{name}");
    }
    // A torn first line, and a file that was never written to, begin anew.
    for bytes in [&bytes[..40], b""] {
        assert!(sandbox.read(&sandbox.with_file(bytes)).conversation.messages.is_empty());
    }
}

#[test]
fn line_ends_of_windows_are_no_damage() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let plain = sandbox.read(&sandbox.with_file(&bytes));
    let text = String::from_utf8(bytes).expect("JSON").replace('\n', "\r\n");
    let id = sandbox.with_file(text.as_bytes());
    assert_eq!(sandbox.read(&id).conversation.messages, plain.conversation.messages);
    let (mut journal, _) = sandbox.resume(&id);
    journal.message(&user("go on"), &MessageMeta::default());
    drop(journal);
    assert_eq!(sandbox.read(&id).conversation.messages.last(), Some(&user("go on")));
}
