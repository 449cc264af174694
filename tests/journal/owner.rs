//! One session has one writer.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Barrier;
use std::thread;

use outlast::journal::{
    Journal, JournalError, JournalHealth, LockedSession, MessageMeta, OnDamage, SessionId,
};

use super::session_fixture::{Sandbox, opening, reply, says, tell, user};

#[test]
fn a_session_in_use_is_refused_and_says_by_whom() {
    let sandbox = Sandbox::new();
    let (id, journal) = sandbox.create();
    let error =
        LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse).expect_err("in use");
    let JournalError::Locked { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert_eq!(holder.pid, std::process::id());
    assert!(error.to_string().contains(&format!("by process {} on ", holder.pid)), "{error}");
    assert!(error.to_string().contains(&holder.since), "{error}");
    drop(journal);
    let held =
        LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse).expect("free again");
    assert!(
        LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse).is_err(),
        "reading it for a resume is using it"
    );
    drop(held);
}

/// Holds the lock as a scan for abandoned sessions does, or a program that its writer was about
/// to start when it was killed.
#[test]
fn a_briefly_locked_session_is_opened_after_the_lock_is_released() {
    let sandbox = Sandbox::new();
    let (id, journal) = sandbox.create();
    drop(journal);
    let other = fs::File::open(sandbox.file(&id)).expect("a file");
    other.lock().expect("the lock is free");
    let opened = || {
        let files = fs::read_dir("/proc/self/fd").expect("Linux").flatten();
        let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.filter(|target| *target == sandbox.file(&id)).count()
    };
    thread::scope(|scope| {
        let taking = scope.spawn(|| {
            LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse).map(drop)
        });
        while opened() < 2 && !taking.is_finished() {
            thread::yield_now();
        }
        // A program that another test starts just now has a copy of the descriptor.
        other.unlock().expect("it is held");
        taking.join().expect("no panic").expect("it is free again");
    });
}

#[test]
fn of_two_that_start_at_once_one_gets_the_session() {
    let sandbox = Sandbox::new();
    for round in 0..30 {
        let id = SessionId::generate();
        let (start, end) = (Barrier::new(2), Barrier::new(2));
        let compete = || {
            start.wait();
            let journal = match Journal::create(&sandbox.place, &id, &opening()) {
                Err(JournalError::Exists { .. }) => {
                    LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse)
                        .map(|held| held.open(&sandbox.place, &opening()).0)
                }
                other => other,
            };
            end.wait();
            journal.map(|_| ()).map_err(|error| matches!(error, JournalError::Locked { .. }))
        };
        let outcomes = thread::scope(|scope| {
            let other = scope.spawn(compete);
            [compete(), other.join().expect("no panic")]
        });
        let winners = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let locked = outcomes.iter().filter(|outcome| **outcome == Err(true)).count();
        assert_eq!((winners, locked), (1, 1), "round {round}: {outcomes:?}");
    }
}

#[test]
fn many_runs_share_a_folder_without_meeting() {
    let sandbox = Sandbox::new();
    let start = Barrier::new(16);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                start.wait();
                let (id, mut journal) = sandbox.create();
                let mut messages = tell(&mut journal);
                for turn in 0..20 {
                    for message in [user(&format!("{id} {turn}")), says("yes")] {
                        journal.message(&message, &reply());
                        messages.push(message);
                    }
                }
                assert_eq!(journal.health(), JournalHealth::Durable);
                assert_eq!(sandbox.read(&id).conversation.messages, messages);
            });
        }
    });
    let files = fs::read_dir(sandbox.place.folder()).expect("a folder").count();
    assert_eq!(files, 16, "a file for each, and nothing else");
}

#[test]
fn a_writer_that_was_replaced_behind_its_back_stops_writing() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("one"), &MessageMeta::default());
    let mut other = OpenOptions::new().append(true).open(sandbox.file(&id)).expect("a file");
    other.write_all(b"{\"type\":\"outlast\",\"kind\":\"open\"}\n").expect("written");
    journal.message(&user("two"), &MessageMeta::default());
    let JournalHealth::TakenOver(why) = journal.health() else { panic!("it went on") };
    assert!(why.contains("took the session over"), "{why}");
    assert!(!String::from_utf8_lossy(&sandbox.bytes(&id)).contains("two"));
}

#[test]
fn a_title_that_another_program_adds_does_no_harm() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    journal.message(&user("one"), &MessageMeta::default());
    let mut other = OpenOptions::new().append(true).open(sandbox.file(&id)).expect("a file");
    other.write_all(b"{\"type\":\"custom-title\",\"customTitle\":\"x\"}\n").expect("written");
    journal.message(&says("two"), &reply());
    assert_eq!(journal.health(), JournalHealth::Durable);
    assert_eq!(sandbox.read(&id).conversation.messages, [user("one"), says("two")]);
}

#[test]
fn a_file_that_was_deleted_is_not_taken_for_a_journal() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    fs::remove_file(sandbox.file(&id)).expect("deleted");
    journal.message(&user("one"), &MessageMeta::default());
    assert!(matches!(journal.health(), JournalHealth::Lost(why) if why.contains("deleted")));
}
