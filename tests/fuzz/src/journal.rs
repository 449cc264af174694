//! Any bytes as a journal, and any records with good seals: read or refused, and what is read can
//! be sent and written on.

use std::fs;
use std::path::PathBuf;

use super::{folder, work};
use outlast::journal::{
    CarryOver, JournalError, LockedSession, MessageMeta, OnDamage, ProcessOpening, RestoredSession,
    SessionFolder, SessionId, read_session,
};
use outlast::transcript::{Block, HistoryRule, Message, violations};

const ID: &str = "5e551011-0000-4000-8000-00000000f022";

fn place() -> (SessionFolder, SessionId, PathBuf) {
    let place = SessionFolder::new(&folder().join("config"), &work());
    fs::create_dir_all(place.folder()).expect("a folder can be made");
    let file = place.folder().join(format!("{ID}.jsonl"));
    (place, SessionId::parse(ID).expect("a name"), file)
}

/// Numbers and seals every line that is an object, so that what is in it gets looked at.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 0);
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(inner) = line.strip_prefix(b"{").and_then(|line| line.strip_suffix(b"}")) else {
            out.extend_from_slice(line);
            out.push(b'\n');
            continue;
        };
        seq += 1;
        let mut body = format!("{{\"seq\":{seq}").into_bytes();
        if !inner.is_empty() {
            body.push(b',');
        }
        body.extend_from_slice(inner);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&body), b"}");
        out.extend_from_slice(&body);
        out.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
    }
    out
}

fn check(restored: &RestoredSession) {
    for violation in violations(&restored.conversation.messages) {
        let open_ended =
            matches!(violation.rule, HistoryRule::AssistantCloses | HistoryRule::NoMessage);
        assert!(open_ended, "{violation:?}");
    }
}

fn opening() -> ProcessOpening {
    ProcessOpening {
        version: "0.1.0".to_owned(),
        model: "m".to_owned(),
        permission_mode: "default".to_owned(),
        carry: CarryOver::On,
        ..ProcessOpening::default()
    }
}

pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let (place, id, file) = &place();
    let bytes = if mode & 1 == 0 { rest.to_vec() } else { sealed(rest) };
    fs::write(file, &bytes).expect("there is room");
    let restored = match read_session(place, id, OnDamage::Refuse) {
        Ok(restored) => restored,
        Err(JournalError::Damaged { .. } | JournalError::Newer { .. }) => return,
        Err(other) => panic!("{other}"),
    };
    check(&restored);
    if mode & 2 == 0 {
        return;
    }
    let (mut journal, resumed) = LockedSession::lock_and_read(place, id, OnDamage::Refuse)
        .expect("readable")
        .open(place, &opening());
    check(&resumed);
    journal.message(&Message::user(vec![Block::text("go on")]), &MessageMeta::default());
    drop(journal);
    let again = read_session(place, id, OnDamage::Refuse).expect("what was written on can be read");
    check(&again);
    assert_eq!(again.totals.dropped_records, 0, "the torn end is gone");
}
