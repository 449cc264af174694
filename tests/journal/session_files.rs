//! Paths of session files, and their permissions.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use outlast::journal::{
    Journal, JournalError, ListScope, LockedSession, MessageMeta, OnDamage, SessionFolder,
    SessionId, SessionState, SessionSummary, latest, list_sessions, locate_session, remove_session,
    summarize_session, survey_sessions,
};
use serde_json::json;

use super::session_fixture::{Sandbox, opening, result, tell, user};

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn journal_files_are_readable_only_by_their_owner() {
    let sandbox = Sandbox::new();
    let (id, _journal) = sandbox.create();
    assert_eq!(mode(&sandbox.file(&id)), 0o600);
    for folder in sandbox.place.folder().ancestors().take(3) {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
}

/// Lists, `--continue` and the contract agree on the folder of a session, wherever its journal is.
#[test]
fn a_session_that_moved_belongs_to_its_new_folder() {
    let sandbox = Sandbox::new();
    let (stays, mut journal) = sandbox.create();
    tell(&mut journal);
    drop(journal);
    let (moves, mut journal) = sandbox.create();
    tell(&mut journal);
    drop(journal);
    let place = |name: &str| {
        let cwd = sandbox.root.path().join(name);
        fs::create_dir_all(&cwd).expect("a folder");
        SessionFolder::new(&sandbox.root.path().join("config"), &cwd)
    };
    let sessions = |place: &SessionFolder| {
        let listed = list_sessions(place, ListScope::Project);
        let listed: Vec<SessionId> = listed.into_iter().map(|file| file.id).collect();
        (latest(place).expect("readable"), listed)
    };
    let only = |id: &SessionId| (Some(id.clone()), vec![id.clone()]);
    let (old, new, third) = (place("work"), place("new"), place("third"));
    let go_on = |place: &SessionFolder| {
        let held = LockedSession::lock_and_read(place, &moves, OnDamage::Refuse).expect("free");
        drop(held.open(place, &opening()));
    };
    go_on(&new);
    assert_eq!((sessions(&new), sessions(&old)), (only(&moves), only(&stays)));
    go_on(&third);
    assert_eq!((sessions(&third), sessions(&new)), (only(&moves), (None, vec![])));
    go_on(&old);
    let (newest, listed) = sessions(&old);
    assert_eq!((newest, listed.len(), sessions(&third)), (Some(moves.clone()), 2, (None, vec![])));
    go_on(&new);
    let file = locate_session(&new, &moves).expect("found");
    remove_session(&file).expect("deleted");
    let left: Vec<_> = fs::read_dir(new.folder()).expect("there").collect();
    assert_eq!((left.len(), sessions(&new), sessions(&old)), (0, (None, vec![]), only(&stays)));
}

#[test]
fn continue_selects_the_newest_session_of_the_folder() {
    let sandbox = Sandbox::new();
    assert_eq!(latest(&sandbox.place).expect("readable"), None);
    let age = |id: &SessionId, seconds| {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        let file = File::options().append(true).open(sandbox.file(id)).expect("there");
        file.set_times(FileTimes::new().set_modified(time)).expect("set");
    };
    let told = || {
        let (id, mut journal) = sandbox.create();
        tell(&mut journal);
        id
    };
    let (newer, older) = (told(), told());
    age(&newer, 50);
    age(&older, 100);
    let (silent, journal) = sandbox.create();
    drop(journal);
    fs::write(sandbox.place.folder().join("notes.txt"), "\"type\":\"user\"").expect("written");
    let elsewhere = SessionFolder::new(&sandbox.root.path().join("config"), sandbox.root.path());
    let mut other =
        Journal::create(&elsewhere, &SessionId::generate(), &opening()).expect("created");
    other.message(&user("elsewhere"), &MessageMeta::default());
    assert_eq!(latest(&sandbox.place).expect("readable"), Some(newer), "{silent} said nothing");
    age(&older, 10);
    assert_eq!(latest(&sandbox.place).expect("readable"), Some(older.clone()));
}

#[test]
fn a_survey_lists_unfinished_sessions_with_the_last_written_first() {
    let sandbox = Sandbox::new();
    let unfinished = |age| {
        let (id, mut journal) = sandbox.create();
        journal.message(&user("Fix it."), &MessageMeta::default());
        drop(journal);
        let file = File::options().append(true).open(sandbox.file(&id)).expect("there");
        let time = SystemTime::now() - Duration::from_secs(age);
        file.set_times(FileTimes::new().set_modified(time)).expect("set");
        id
    };
    let [second, first, third] = [100, 50, 200].map(unfinished);
    let (ended, mut journal) = sandbox.create();
    tell(&mut journal);
    drop(journal);
    let store = survey_sessions(&sandbox.root.path().join("config"));
    let found: Vec<SessionId> = store.unfinished.into_iter().map(|open| open.id).collect();
    assert_eq!(found, [first, second, third], "{ended} has ended");
    assert_eq!(store.sessions, 4);
}

#[test]
fn a_session_from_the_future_is_not_the_newest() {
    let sandbox = Sandbox::new();
    let told = |time| {
        let (id, mut journal) = sandbox.create();
        tell(&mut journal);
        let file = File::options().append(true).open(sandbox.file(&id)).expect("there");
        file.set_times(FileTimes::new().set_modified(time)).expect("set");
        id
    };
    let now = SystemTime::now();
    let misdated = told(now + Duration::from_hours(24));
    assert_eq!(latest(&sandbox.place).expect("readable").as_ref(), Some(&misdated));
    let oldest = told(now - Duration::from_hours(24));
    // Another machine's clock may be a little ahead.
    let newest = told(now + Duration::from_mins(1));
    assert_eq!(latest(&sandbox.place).expect("readable").as_ref(), Some(&newest));
    let listed = list_sessions(&sandbox.place, ListScope::All).into_iter().map(|file| file.id);
    assert_eq!(listed.collect::<Vec<_>>(), [newest, oldest, misdated]);
}

#[test]
fn a_session_is_found_from_any_folder_and_through_any_link() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    let messages = tell(&mut journal);
    let config = sandbox.root.path().join("config");
    let elsewhere = SessionFolder::new(&config, sandbox.root.path());
    assert_eq!(
        outlast::journal::read_session(&elsewhere, &id, OnDamage::Refuse)
            .expect("found")
            .conversation
            .messages,
        messages
    );
    let link = sandbox.root.path().join("link");
    symlink(sandbox.place.cwd(), &link).expect("linked");
    assert_eq!(latest(&SessionFolder::new(&config, &link)).expect("readable"), Some(id));
}

#[test]
fn an_unknown_session_is_an_error_that_says_where_it_was_looked_for() {
    let sandbox = Sandbox::new();
    let id = SessionId::parse("absent").expect("a name");
    let error =
        outlast::journal::read_session(&sandbox.place, &id, OnDamage::Refuse).expect_err("unknown");
    assert!(matches!(error, JournalError::Unknown { .. }));
    let text = error.to_string();
    assert!(text.contains("absent") && text.contains("config/projects"), "{text}");
}

#[test]
fn an_id_that_is_taken_is_not_used_again() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    drop(journal);
    let before = sandbox.bytes(&id);
    let error = Journal::create(&sandbox.place, &id, &opening()).expect_err("taken");
    assert!(matches!(error, JournalError::Exists { .. }), "{error}");
    assert_eq!(sandbox.bytes(&id), before);
}

#[test]
fn a_long_folder_name_written_by_another_program_is_found() {
    let sandbox = Sandbox::new();
    let cwd = sandbox.root.path().join("a/".repeat(120));
    fs::create_dir_all(&cwd).expect("made");
    let config = sandbox.root.path().join("config");
    let place = SessionFolder::new(&config, &cwd);
    let id = SessionId::generate();
    let mut journal = Journal::create(&place, &id, &opening()).expect("created");
    tell(&mut journal);
    let ours = place.folder();
    let name = ours.file_name().and_then(|name| name.to_str()).expect("a name");
    fs::rename(&ours, ours.with_file_name(format!("{}-theirs", &name[..200]))).expect("renamed");
    assert_eq!(latest(&place).expect("readable"), Some(id));
}

#[test]
fn data_of_tools_that_looks_like_lines_does_not_change_a_summary() {
    let sandbox = Sandbox::new();
    let (id, mut journal) = sandbox.create();
    tell(&mut journal);
    for line in [
        json!({ "type": "assistant", "message": {} }),
        json!({ "type": "custom-title", "customTitle": "x" }),
        json!({ "type": "outlast", "v": 2, "kind": "end" }),
    ] {
        journal.outcome(&result("t3", "three"), &line);
    }
    drop(journal);
    let file = locate_session(&sandbox.place, &id).expect("it is there");
    let SessionSummary { turns, title, damaged_lines, state, .. } =
        summarize_session(&file).expect("readable");
    assert_eq!((turns, title, damaged_lines), (2, None, 0));
    assert_eq!(state, SessionState::Unfinished, "results follow the recorded end");
}

/// Directories whose names differ only in other characters than ASCII letters and digits.
#[test]
fn sessions_of_directories_that_share_a_folder_are_told_apart() {
    let root = tempfile::TempDir::new().expect("a folder");
    let pairs: [[&[u8]; 2]; 3] = [
        [b"x/y", b"x-y"],
        ["\u{9879}\u{76ee}".as_bytes(), "\u{6d4b}\u{8bd5}".as_bytes()],
        [b"caf\xe9", b"caf\xe8"],
    ];
    for names in pairs {
        let places = names.map(|name| {
            let cwd = root.path().join(OsStr::from_bytes(name));
            fs::create_dir_all(&cwd).expect("made");
            SessionFolder::new(&root.path().join("config"), &cwd)
        });
        assert_eq!(places[0].folder(), places[1].folder(), "they share it");
        let ids = places.each_ref().map(|place| {
            assert_eq!(latest(place).expect("readable"), None, "not the other's");
            let id = SessionId::generate();
            tell(&mut Journal::create(place, &id, &opening()).expect("created"));
            id
        });
        for (place, id) in std::iter::zip(&places, &ids) {
            assert_eq!(latest(place).expect("readable").as_ref(), Some(id));
            let listed = list_sessions(place, ListScope::Project);
            let listed: Vec<&SessionId> = listed.iter().map(|file| &file.id).collect();
            assert_eq!(listed, [id]);
            for id in &ids {
                assert!(locate_session(place, id).is_ok(), "an id is found from anywhere");
            }
        }
    }
}
