//! The disk fails: full, read-only, gone.

use std::fs;
use std::path::Path;
use std::process::Command;

use outlast::journal::{
    Journal, JournalError, JournalHealth, MessageMeta, OnDamage, SessionFolder, SessionId,
};

use super::session_fixture::{Sandbox, calls, opening, reply, result, tell, user};

const FOLDER: &str = "OUTLAST_TEST_FULL_DISK";

#[test]
fn an_uncreatable_journal_folder_is_a_recoverable_error() {
    let sandbox = Sandbox::new();
    let config = sandbox.root.path().join("config");
    fs::write(&config, "a file").expect("written");
    let error =
        Journal::create(&sandbox.place, &SessionId::generate(), &opening()).expect_err("no folder");
    assert!(matches!(error, JournalError::Unwritable { .. }), "{error}");
    assert!(error.to_string().contains("Not a directory"), "{error}");
    assert!(error.hint().contains("--no-session-persistence"));
}

#[test]
fn a_disabled_journal_accepts_records_and_stores_nothing() {
    for (mut journal, health) in [
        (Journal::disabled(), JournalHealth::Off),
        (Journal::unwritable("no home"), JournalHealth::Lost("no home".to_owned())),
    ] {
        tell(&mut journal);
        assert_eq!(journal.health(), health);
    }
}

/// What the next test runs in a process of its own, whose files may not grow past 16 KiB.
#[test]
fn child_on_a_full_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let place = SessionFolder::new(&Path::new(&folder).join("config"), Path::new(&folder));
    let id = SessionId::parse("full").expect("a name");
    let mut journal = Journal::create(&place, &id, &opening()).expect("there is room at first");
    let mut turns = 0;
    while journal.health() == JournalHealth::Durable {
        turns += 1;
        assert!(turns < 1_000, "the disk never filled up");
        journal.message(&user("go"), &MessageMeta::default());
        journal.message(&calls(&[&format!("t{turns}")]), &reply());
    }
    let JournalHealth::Lost(why) = journal.health() else { panic!("it is lost") };
    assert!(why.contains("full.jsonl") && why.contains("File too large"), "{why}");
    let before = fs::read(place.folder().join("full.jsonl")).expect("readable");
    assert_eq!(before.last(), Some(&b'\n'), "the half-written line was taken back");
    journal.outcome(&result("t1", "x"), &serde_json::Value::Null);
    assert_eq!(journal.health(), JournalHealth::Lost(why), "the first reason stays");
    assert_eq!(fs::read(place.folder().join("full.jsonl")).expect("readable"), before);
    println!("lost as it should be");
}

#[test]
fn a_full_disk_stops_the_journal_but_not_the_run() {
    let sandbox = Sandbox::new();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("this test"))
        .args(["journal::disk::child_on_a_full_disk", "--exact", "--nocapture"])
        .env(FOLDER, sandbox.root.path())
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("lost as it should be"), "{said}");
    let id = SessionId::parse("full").expect("a name");
    let place = SessionFolder::new(&sandbox.root.path().join("config"), sandbox.root.path());
    let restored = outlast::journal::read_session(&place, &id, OnDamage::Refuse)
        .expect("what was written is whole");
    assert_eq!(restored.dropped_records, 0);
    assert!(restored.messages.len() > 4);
}
