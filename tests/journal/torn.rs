//! A journal that was cut or damaged at any byte.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use outlast::journal::{JournalError, MessageMeta, OnDamage, RestoredSession, SessionId};
use outlast::recovery::{Event, StopReason};
use outlast::transcript::{HistoryRule, Message, violations};
use serde_json::Value;

use super::session_fixture::{
    MODEL, Sandbox, call, calls, cents, reply, result, says, steps, usage, user,
};
use crate::support::rotation::rotating_part;

/// A session with a line of every kind, as bytes: short, since it is read once for each of them.
fn recorded(sandbox: &Sandbox) -> Vec<u8> {
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    journal.transition(&steps(&[Event::Begin])[0]);
    journal.spend(Some(cents(2)), &usage(10), MODEL);
    journal.message(&calls(&["a"]), &reply());
    journal.intent(&[(call("a"), false)]);
    journal.outcome(&result("a", "done"), &Value::Null);
    journal.message(&says("Done."), &reply());
    journal.end(StopReason::Completed, None);
    sandbox.bytes(&id)
}

/// Offsets of the ends of complete records: after each line, except within a reply that has
/// several.
fn ends_of_records(bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    let mut at = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        let line: Value = serde_json::from_slice(line).expect("JSON");
        if line["part"].is_null() || line["part"][0] == line["part"][1] {
            ends.push(at);
        }
    }
    ends
}

fn assert_sendable(restored: &RestoredSession, context: &str) {
    for violation in violations(&restored.conversation.messages) {
        let open_ended =
            matches!(violation.rule, HistoryRule::AssistantCloses | HistoryRule::NoMessage);
        assert!(open_ended, "{context}: {violation:?}");
    }
}

/// The session's file, to be damaged in place.
fn writable(sandbox: &Sandbox, id: &SessionId) -> File {
    OpenOptions::new().write(true).open(sandbox.file(id)).expect("the session's file")
}

/// Everything but the bookkeeping of the damage.
fn told(restored: &RestoredSession) -> String {
    let mut undamaged = restored.clone();
    undamaged.totals.dropped_records = 0;
    format!("{undamaged:?}")
}

#[test]
fn a_journal_cut_at_any_byte_loses_no_more_than_its_last_line() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let after = |whole: usize| told(&sandbox.read(&sandbox.with_file(&bytes[..whole])));
    let (mut whole, mut expected) = (bytes.len(), after(bytes.len()));
    let id = sandbox.with_file(&bytes);
    let file = writable(&sandbox, &id);
    let ends = ends_of_records(&bytes);
    let mut cuts = rotating_part(0..=bytes.len(), 4);
    cuts.extend(ends.iter().flat_map(|end| [*end, end.saturating_sub(1)]));
    cuts.sort_unstable();
    for cut in cuts.into_iter().rev() {
        file.set_len(cut as u64).expect("shorter");
        // A line that lacks nothing but its end is as good as whole.
        let complete = ends.contains(&cut) || ends.contains(&(cut + 1));
        if !complete && cut < whole {
            whole = ends.iter().copied().filter(|end| *end <= cut).max().unwrap_or_default();
            expected = after(whole);
        } else if complete {
            expected = after(cut);
            whole = cut;
        }
        let restored = sandbox.read(&id);
        assert_sendable(&restored, &format!("cut at {cut}"));
        assert_eq!(restored.totals.dropped_records, u32::from(!complete), "cut at {cut}");
        assert_eq!(told(&restored), expected, "cut at {cut}");
    }
}

#[test]
fn a_reply_of_several_journal_lines_is_restored_atomically() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("go"), &MessageMeta::default());
    let before = sandbox.bytes(&id).len();
    let blocks = [says("I look.").content, calls(&["a"]).content, calls(&["b"]).content].concat();
    let ids = journal.message(&Message::assistant(blocks.clone()), &reply());
    drop(journal);
    let bytes = sandbox.bytes(&id);
    let lines: Vec<Value> = bytes[before..]
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    let uuids: Vec<&str> = lines.iter().filter_map(|line| line["uuid"].as_str()).collect();
    assert_eq!(uuids, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(lines.len(), blocks.len(), "a line for each block");
    let whole = sandbox.read(&id);
    assert_eq!(whole.conversation.messages[1].content, blocks);
    assert_eq!((whole.totals.session.turns, whole.totals.dropped_records), (1, 0));
    for cut in rotating_part(before..bytes.len() - 1, 4) {
        let id = sandbox.with_file(&bytes[..cut]);
        let restored = sandbox.read(&id);
        assert_eq!(restored.conversation.messages, [user("go")], "cut at {cut}");
        assert_eq!(restored.totals.dropped_records, u32::from(cut > before), "cut at {cut}");
        assert_eq!(restored.totals.session.turns, 0, "cut at {cut}");
    }
    for cut in [before + 1, before + (bytes.len() - before) / 2, bytes.len() - 2] {
        let id = sandbox.with_file(&bytes[..cut]);
        let (mut journal, _) = sandbox.resume(&id);
        journal.message(&says("Done."), &reply());
        drop(journal);
        let again = sandbox.read(&id);
        assert_eq!(again.conversation.messages, [user("go"), says("Done.")], "cut at {cut}");
    }
}

#[test]
fn a_torn_last_line_is_removed_before_the_journal_continues() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(end, _)| end + 1);
    for end in ends.collect::<Vec<_>>() {
        for cut in [end - 1, end, (end + 9).min(bytes.len())] {
            let id = sandbox.with_file(&bytes[..cut]);
            let (mut journal, restored) = sandbox.resume(&id);
            assert_sendable(&restored, &format!("cut at {cut}"));
            journal.message(&user("go on"), &MessageMeta::default());
            drop(journal);
            let again = sandbox.read(&id);
            assert_eq!(again.totals.dropped_records, 0, "cut at {cut}");
            let last = again
                .conversation
                .messages
                .last()
                .and_then(|message| message.content.last().cloned());
            assert_eq!(last, user("go on").content.pop(), "cut at {cut}");
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_line_costs_that_line_and_no_other() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let start =
        bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    let id = sandbox.with_file(&bytes[..start]);
    let without = told(&sandbox.read(&id));
    let id = sandbox.with_file(&bytes);
    let file = writable(&sandbox, &id);
    let bits = (start..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit)));
    for (at, bit) in rotating_part(bits, 7) {
        file.write_all_at(&[bytes[at] ^ 1 << bit], at as u64).expect("written");
        let restored = sandbox.read(&id);
        assert!(restored.totals.dropped_records > 0, "bit {bit} of byte {at}");
        assert_eq!(told(&restored), without, "bit {bit} of byte {at}");
        file.write_all_at(&bytes[at..=at], at as u64).expect("written");
    }
}

#[test]
fn damage_before_the_last_line_is_refused_with_its_place() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let ends: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(end, _)| end).collect();
    let id = sandbox.with_file(&bytes);
    let file = writable(&sandbox, &id);
    // The end of the last line but one is left out: without it, both are one torn line.
    for at in rotating_part(0..ends[ends.len() - 2], 4) {
        file.write_all_at(&[bytes[at] ^ 1 << (at % 8)], at as u64).expect("written");
        let error = outlast::journal::read_session(&sandbox.place, &id, OnDamage::Refuse)
            .expect_err("damaged");
        let JournalError::Damaged { line, .. } = error else { panic!("byte {at}: {error}") };
        assert_eq!(line, 1 + ends.iter().filter(|end| **end < at).count(), "byte {at}");
        file.write_all_at(&bytes[at..=at], at as u64).expect("written");
    }
}

#[test]
fn a_line_that_is_missing_is_damage() {
    let sandbox = Sandbox::new();
    let bytes = recorded(&sandbox);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for missing in 0..lines.len() - 1 {
        let mut left = lines.clone();
        left.remove(missing);
        let id = sandbox.with_file(&left.concat());
        let error = outlast::journal::read_session(&sandbox.place, &id, OnDamage::Refuse)
            .expect_err("a gap");
        let text = error.to_string();
        assert!(text.contains(&format!("line {}: ", missing + 1)), "{text}");
        assert!(text.contains(&format!("record {} follows", missing + 2)), "{text}");
    }
}

#[test]
fn a_power_cut_that_leaves_zeros_is_a_torn_end() {
    let sandbox = Sandbox::new();
    let mut bytes = recorded(&sandbox);
    bytes.extend([0; 4_096]);
    let id = sandbox.with_file(&bytes);
    let (journal, restored) = sandbox.resume(&id);
    drop(journal);
    assert_eq!((restored.totals.dropped_records, restored.conversation.messages.len()), (1, 4));
    assert_eq!(sandbox.read(&id).totals.dropped_records, 0, "the zeros are gone");
}

#[test]
fn a_journal_of_a_later_version_is_left_to_it() {
    let sandbox = Sandbox::new();
    let id = sandbox.with_file(
        b"{\"type\":\"outlast\",\"v\":2,\"kind\":\"open\"}\n{\"type\":\"user\",\"uuid\":\"u\"}\n",
    );
    let error =
        outlast::journal::read_session(&sandbox.place, &id, OnDamage::Refuse).expect_err("newer");
    assert!(matches!(error, JournalError::Newer { line: 1, .. }), "{error}");
}
