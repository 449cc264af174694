//! Cleanup of old sessions: only those of outlast that are expired and not in use.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use outlast::journal::{
    CleanupReport, LockedSession, MessageMeta, OnDamage, SessionId, delete_old_sessions,
    locate_session, remove_session,
};

use super::session_fixture::{Sandbox, opening, tell, user};

const DAY: Duration = Duration::from_hours(24);

fn ago(days: u32) -> SystemTime {
    SystemTime::now() - DAY * days
}

fn age(path: &Path, then: SystemTime) {
    File::open(path).expect("it is there").set_modified(then).expect("it is ours");
}

/// A session of ours that was last written to so long ago.
fn session(sandbox: &Sandbox, then: SystemTime) -> SessionId {
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    drop(journal);
    age(&sandbox.file(&id), then);
    id
}

fn clear(sandbox: &Sandbox) -> CleanupReport {
    delete_old_sessions(&sandbox.root.path().join("config"), ago(30))
}

#[test]
fn cleanup_removes_only_expired_sessions() {
    let sandbox = Sandbox::new();
    let old = session(&sandbox, ago(31));
    let young = session(&sandbox, ago(29));
    // Where the clock was wrong once, or is now.
    let ahead = session(&sandbox, SystemTime::now() + DAY * 400);
    assert_eq!(clear(&sandbox), CleanupReport { sessions: 1, outputs: 0 });
    assert!(!sandbox.file(&old).exists());
    assert!(sandbox.file(&young).exists() && sandbox.file(&ahead).exists());
    assert_eq!(clear(&sandbox), CleanupReport::default());
}

/// After a jump forward all sessions seem old, and one that was written in 1970 always does.
#[test]
fn a_wrong_clock_deletes_no_session() {
    let sandbox = Sandbox::new();
    let jumped = [session(&sandbox, ago(400)), session(&sandbox, ago(420))];
    let new = session(&sandbox, ago(0));
    assert_eq!(clear(&sandbox), CleanupReport::default(), "{new} has the wrong time, too");
    let undated = session(&sandbox, SystemTime::UNIX_EPOCH + DAY);
    session(&sandbox, ago(20));
    assert_eq!(clear(&sandbox).sessions, 2, "others were written in between");
    assert!(jumped.iter().all(|id| !sandbox.file(id).exists()));
    assert!(sandbox.file(&undated).exists() && sandbox.file(&new).exists());
}

#[test]
fn a_session_in_use_stays_however_long_it_was_silent() {
    let sandbox = Sandbox::new();
    session(&sandbox, ago(20));
    let id = session(&sandbox, ago(90));
    let held = LockedSession::lock_and_read(&sandbox.place, &id, OnDamage::Refuse).expect("free");
    assert_eq!(clear(&sandbox), CleanupReport::default());
    let (mut journal, _) = held.open(&sandbox.place, &opening());
    journal.message(&user("still here"), &MessageMeta::default());
    drop(journal);
    assert_eq!(clear(&sandbox), CleanupReport::default(), "it was just written to");
}

#[test]
fn cleanup_keeps_files_of_other_programs() {
    let sandbox = Sandbox::new();
    session(&sandbox, ago(20));
    let theirs = sandbox.with_file(b"{\"type\":\"user\",\"uuid\":\"u\",\"message\":{}}\n");
    // We went on with this one, and it is still theirs.
    let shared = sandbox.with_file(
        b"{\"type\":\"user\",\"uuid\":\"u\",\"message\":{\"role\":\"user\",\"content\":\"x\"}}\n",
    );
    drop(sandbox.resume(&shared));
    let named = sandbox.place.folder().join("notes.jsonl");
    let ours = session(&sandbox, ago(31));
    fs::copy(sandbox.file(&ours), &named).expect("copied");
    let linked = SessionId::generate();
    symlink(&named, sandbox.file(&linked)).expect("made");
    for path in [&sandbox.file(&theirs), &sandbox.file(&shared), &named] {
        age(path, ago(90));
    }
    assert_eq!(clear(&sandbox).sessions, 1);
    for path in [&sandbox.file(&theirs), &sandbox.file(&shared), &named, &sandbox.file(&linked)] {
        assert!(path.exists(), "{}", path.display());
    }
}

#[test]
fn cleanup_removes_saved_outputs_only_with_their_session() {
    let sandbox = Sandbox::new();
    session(&sandbox, ago(20));
    let id = session(&sandbox, ago(31));
    let orphan = SessionId::generate();
    let beside = |id: &SessionId| sandbox.place.folder().join(id.as_str());
    let names = ["output-0-12ab34cd", "cwd-12-00000000", "toolu_1.txt", "output-1-0f0f0f0f"];
    for id in [&id, &orphan] {
        let folder = beside(id).join("tool-results");
        fs::create_dir_all(&folder).expect("a folder");
        for name in names {
            fs::write(folder.join(name), "x").expect("written");
            age(&folder.join(name), ago(31));
        }
        age(&folder.join(names[3]), ago(1));
    }
    assert_eq!(clear(&sandbox), CleanupReport { sessions: 1, outputs: 4 });
    for id in [&id, &orphan] {
        let folder = beside(id).join("tool-results");
        assert!(!folder.join(names[0]).exists() && !folder.join(names[1]).exists());
        assert!(folder.join(names[2]).exists(), "it is not one of ours");
        assert!(folder.join(names[3]).exists(), "it is young");
        fs::remove_file(folder.join(names[2])).expect("it is there");
        age(&folder.join(names[3]), ago(31));
    }
    assert_eq!(clear(&sandbox), CleanupReport { sessions: 0, outputs: 2 });
    assert!(!beside(&id).exists() && !beside(&orphan).exists(), "empty folders go too");
}

/// Their times are wrong if the clock was.
#[test]
fn a_session_that_the_user_removes_goes_with_its_outputs_of_any_time() {
    let sandbox = Sandbox::new();
    let id = session(&sandbox, ago(1));
    let beside = sandbox.place.folder().join(id.as_str());
    fs::create_dir_all(beside.join("tool-results")).expect("a folder");
    let times = [SystemTime::UNIX_EPOCH + DAY, SystemTime::now() + DAY * 1_000];
    for (name, time) in ["output-0-12ab34cd", "output-1-0f0f0f0f"].into_iter().zip(times) {
        let output = beside.join("tool-results").join(name);
        fs::write(&output, "x").expect("written");
        age(&output, time);
    }
    remove_session(&locate_session(&sandbox.place, &id).expect("found")).expect("removed");
    assert!(!sandbox.file(&id).exists() && !beside.exists());
}

#[test]
fn cleanup_removes_at_most_a_hundred_sessions_per_run() {
    let sandbox = Sandbox::new();
    session(&sandbox, ago(20));
    let first = sandbox.bytes(&session(&sandbox, ago(31)));
    for _ in 0..120 {
        let id = sandbox.with_file(&first);
        age(&sandbox.file(&id), ago(40));
    }
    assert_eq!(clear(&sandbox).sessions, 100);
    assert_eq!(clear(&sandbox).sessions, 21);
}

#[test]
fn cleanup_of_an_empty_folder_does_nothing() {
    assert_eq!(
        delete_old_sessions(Path::new("/nonexistent/outlast"), ago(30)),
        CleanupReport::default()
    );
    assert_eq!(
        delete_old_sessions(Path::new("/dev/null/.outlast"), ago(30)),
        CleanupReport::default()
    );
}
