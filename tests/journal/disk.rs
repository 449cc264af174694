//! The disk fails: full, read-only, gone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use outlast::journal::{
    Journal, JournalError, JournalHealth, MessageMeta, OnDamage, SessionFolder, SessionId,
};
use outlast::transcript::Block;
use tokio::time::Instant;

use super::session_fixture::{Sandbox, calls, opening, reply, result, says, tell, user};

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

/// The child process of the next test, whose files may not grow past 16 KiB.
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
    assert!(why.contains("full.jsonl") && why.contains("(ulimit -f)"), "{why}");
    let before = fs::read(place.folder().join("full.jsonl")).expect("readable");
    assert_eq!(before.last(), Some(&b'\n'), "the half-written line was taken back");
    journal.outcome(&result("t1", "x"), &serde_json::Value::Null);
    assert_eq!(journal.health(), JournalHealth::Lost(why), "the first reason stays");
    assert_eq!(fs::read(place.folder().join("full.jsonl")).expect("readable"), before);
    let file = place.folder().join("full.jsonl");
    let inode = fs::metadata(&file).expect("there").ino();
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).expect("a limit");
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).expect("allowed");
    // Attempts are not made at once after one that failed.
    let (began, mut tried) = (Instant::now(), 0);
    while journal.health() != JournalHealth::Durable {
        assert!(began.elapsed() < Duration::from_mins(1), "there is room again");
        journal.message(&says("Done."), &MessageMeta::default());
        tried += 1;
    }
    assert_ne!(
        fs::metadata(&file).expect("there").ino(),
        inode,
        "the old file is not synced again"
    );
    assert!(!file.with_extension("jsonl.new").exists());
    journal.message(&user("Thanks."), &MessageMeta::default());
    assert!(fs::read(&file).expect("readable").starts_with(&before));
    // With one thread, the name of the test is on the line before.
    println!("\nlost as it should be, after {turns} turns and {tried} attempts");
}

#[test]
fn a_full_disk_stops_the_journal_but_not_the_run() {
    let sandbox = Sandbox::new();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -S -f 32; exec \"$0\" \"$@\""])
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
    assert_eq!(restored.totals.dropped_records, 0);
    let line = said.lines().find(|line| line.starts_with("lost as")).expect("it is there");
    let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let texts = |wanted: &str| {
        let blocks = restored.conversation.messages.iter().flat_map(|message| &message.content);
        blocks.filter(|block| **block == Block::text(wanted)).count()
    };
    assert_eq!([texts("go"), texts("Done.")], numbers[..], "nothing is lost");
    assert_eq!(texts("Thanks."), 1);
}

#[test]
fn a_journal_that_was_deleted_is_not_written_again() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    fs::remove_file(sandbox.file(&id)).expect("removed");
    tell(&mut journal);
    tell(&mut journal);
    assert!(matches!(journal.health(), JournalHealth::Lost(_)));
    assert!(!sandbox.file(&id).exists());
}
