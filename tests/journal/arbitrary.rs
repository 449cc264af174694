//! Generated journals: any bytes, and records with any content and valid checksums.

use outlast::journal::{JournalError, LockedSession, MessageMeta, OnDamage, RestoredSession};
use outlast::transcript::{HistoryRule, violations};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::session_fixture::{Sandbox, opening, tell, user};
use crate::support::rotation::property_cases;

/// A finished session without its checksums and numbers, line by line.
fn lines() -> Vec<String> {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    drop(journal);
    let text = String::from_utf8(sandbox.bytes(&id)).expect("text");
    let bare = |line: &str| {
        let end = line.rfind(",\"crc\":\"").expect("a seal");
        let (start, rest) = line.split_once("\"seq\":").expect("a number");
        let rest = &rest[..end - (line.len() - rest.len())];
        let after = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{start}{}", after.strip_prefix(',').unwrap_or(after)).trim_end_matches(',').into()
    };
    text.lines().map(bare).collect()
}

/// Adds number and checksum to lines that are an object without its last brace.
pub(super) fn add_checksums(lines: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let body = format!("{line},\"seq\":{}", index + 1);
        let crc = crc32c::crc32c_append(crc32c::crc32c(body.as_bytes()), b"}");
        bytes.extend_from_slice(format!("{body},\"crc\":\"{crc:08x}\"}}\n").as_bytes());
    }
    bytes
}

/// A change to a record before its checksum is computed.
#[derive(Clone, Debug)]
enum Change {
    Leave {
        line: Index,
    },
    Double {
        line: Index,
    },
    Swap {
        line: Index,
        other: Index,
    },
    /// Some text within a line becomes another that stands elsewhere in the file, or is odd.
    Say {
        line: Index,
        at: Index,
        what: &'static str,
        length: usize,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    let what = select(vec![
        "",
        "0",
        "-1",
        "null",
        "true",
        "\"\"",
        "{}",
        "[]",
        "user",
        "assistant",
        "tool_use",
        "tool_result",
        "t1",
        "t2",
        "18446744073709551616",
        "1e999",
        "\\u0000",
        "isSidechain",
        "é",
    ]);
    prop_oneof![
        2 => index().prop_map(|line| Change::Leave { line }),
        2 => index().prop_map(|line| Change::Double { line }),
        2 => (index(), index()).prop_map(|(line, other)| Change::Swap { line, other }),
        6 => (index(), index(), what, 0..9_usize)
            .prop_map(|(line, at, what, length)| Change::Say { line, at, what, length }),
    ]
}

fn apply(lines: &mut Vec<String>, change: &Change) {
    if lines.is_empty() {
        return;
    }
    match change {
        Change::Leave { line } => drop(lines.remove(line.index(lines.len()))),
        Change::Double { line } => lines.push(lines[line.index(lines.len())].clone()),
        Change::Swap { line, other } => {
            let (line, other) = (line.index(lines.len()), other.index(lines.len()));
            lines.swap(line, other);
        }
        Change::Say { line, at, what, length } => {
            let at_line = line.index(lines.len());
            let letters: Vec<char> = lines[at_line].chars().collect();
            let at = at.index(letters.len() + 1);
            let end = (at + length).min(letters.len());
            let (start, rest) = (&letters[..at], &letters[end..]);
            lines[at_line] =
                start.iter().chain(&what.chars().collect::<Vec<_>>()).chain(rest).collect();
        }
    }
}

fn assert_sendable(restored: &RestoredSession) {
    for violation in violations(&restored.conversation.messages) {
        let open_ended =
            matches!(violation.rule, HistoryRule::AssistantCloses | HistoryRule::NoMessage);
        assert!(open_ended, "{violation:?}");
    }
}

/// Read or refused with its place; what is read can be sent, and written on.
fn assert_read_or_refused(bytes: &[u8]) {
    let sandbox = Sandbox::new();
    let id = sandbox.with_file(bytes);
    match outlast::journal::read_session(&sandbox.place, &id, OnDamage::Refuse) {
        Err(JournalError::Damaged { line, .. } | JournalError::Newer { line, .. }) => {
            assert!(line > 0 && line <= bytes.split(|byte| *byte == b'\n').count());
            assert!(
                LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse).is_err(),
                "refused, and taken"
            );
        }
        Err(other) => panic!("{other}"),
        Ok(restored) => {
            assert_sendable(&restored);
            let taken = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse)
                .expect("it was read");
            let (mut journal, restored) = taken.open(&sandbox.place, &opening());
            assert_sendable(&restored);
            journal.message(&user("go on"), &MessageMeta::default());
            drop(journal);
            let again = sandbox.read(&id);
            assert_sendable(&again);
            assert_eq!(again.totals.dropped_records, 0, "the torn end is gone");
        }
    }
}

#[test]
fn bare_lines_are_sealed_as_the_journal_seals_them() {
    let sandbox = Sandbox::new();
    let id = sandbox.with_file(&add_checksums(&lines()));
    let restored = sandbox.read(&id);
    assert_eq!((restored.conversation.messages.len(), restored.totals.dropped_records), (4, 0));
}

proptest! {
    #![proptest_config(property_cases(80))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        assert_read_or_refused(&bytes);
    }

    #[test]
    fn records_that_say_anything_are_read_or_refused(
        changes in prop::collection::vec(change(), 1..6), cut in prop::option::of(any::<Index>()),
    ) {
        let mut lines = lines();
        for change in &changes {
            apply(&mut lines, change);
        }
        let mut bytes = add_checksums(&lines);
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        assert_read_or_refused(&bytes);
    }
}
