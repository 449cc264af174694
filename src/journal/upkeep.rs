//! Takes old sessions away, so that a machine that runs for years does not fill up.
//!
//! Only what is surely ours, surely old and surely not in use: the folder may be another
//! program's as well, and its sessions are its own business. Whatever cannot be judged stays.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::SessionId;
use super::damage::is_rest_name;
use super::entry::{LineChecksum, check_seal};
use super::place::entries;

/// So many sessions are removed by one run at most: a clock that is wrong, or a setting that was
/// meant otherwise, does not take all there is.
const REMOVED_MAX: usize = 100;
/// So many files are looked at by one run at most.
const FILES_MAX: usize = 20_000;
/// How long one run looks and removes.
const TIME_MAX: Duration = Duration::from_secs(2);
/// A first line longer than this is not looked at.
const LINE_MAX: u64 = 1 << 20;

/// What was done about old sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupReport {
    pub sessions: usize,
    /// Outputs that were kept in files of their own.
    pub outputs: usize,
}

/// Removes sessions of any working directory that nobody has written to since `before`, with the
/// outputs that were kept beside them. Never fails: what cannot be removed is left.
pub fn delete_old_sessions(config_dir: &Path, before: SystemTime) -> CleanupReport {
    let (began, mut looked, mut cleared) = (Instant::now(), 0, CleanupReport::default());
    for folder in entries(&config_dir.join("projects")) {
        for path in entries(&folder) {
            looked += 1;
            let enough = cleared.sessions >= REMOVED_MAX || looked > FILES_MAX;
            if enough || began.elapsed() > TIME_MAX {
                return cleared;
            }
            let Some((id, is_file)) = session_of(&path) else { continue };
            if is_file {
                cleared.add(delete_session(&path, &folder.join(id.as_str()), before));
            } else if !folder.join(format!("{id}.jsonl")).exists() {
                cleared.outputs += delete_outputs(&path, before);
            }
        }
    }
    cleared
}

impl CleanupReport {
    fn add(&mut self, more: Option<usize>) {
        if let Some(outputs) = more {
            self.sessions += 1;
            self.outputs += outputs;
        }
    }
}

/// The session that an entry of a project's folder belongs to, and whether it is its journal. A
/// link is nothing of ours.
fn session_of(path: &Path) -> Option<(SessionId, bool)> {
    let (name, facts) = (path.file_name()?.to_str()?, fs::symlink_metadata(path).ok()?);
    let id = match name.strip_suffix(".jsonl") {
        Some(id) if facts.is_file() => id,
        None if facts.is_dir() => name,
        Some(_) | None => return None,
    };
    uuid::Uuid::try_parse(id).ok()?;
    Some((SessionId::parse(id)?, facts.is_file()))
}

/// Removes a session. Says how many outputs went with it; `None` when it stays.
fn delete_session(path: &Path, beside: &Path, before: SystemTime) -> Option<usize> {
    if !is_old(&fs::symlink_metadata(path).ok()?, before) {
        return None;
    }
    let no_links = nix::libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(no_links).open(path).ok()?;
    // Whoever works on it holds the lock, and whoever wants to must wait until it is gone.
    file.try_lock().ok()?;
    if !is_old(&file.metadata().ok()?, before) || !is_ours(&file) {
        return None;
    }
    let outputs = delete_outputs(beside, before);
    fs::remove_file(path).ok()?;
    Some(outputs)
}

fn is_old(facts: &Metadata, before: SystemTime) -> bool {
    facts.is_file() && facts.modified().is_ok_and(|then| then < before)
}

/// Our journals begin with a line that we sealed. One that another program began stays, even if
/// we wrote to it later.
fn is_ours(file: &File) -> bool {
    let mut line = Vec::new();
    let read = BufReader::new(file.take(LINE_MAX)).read_until(b'\n', &mut line);
    read.is_ok() && check_seal(line.strip_suffix(b"\n").unwrap_or(&line)) == LineChecksum::Intact
}

/// Removes the long outputs of a session and the journals of its sub-agents, and its folder when
/// nothing else is in there.
fn delete_outputs(session: &Path, before: SystemTime) -> usize {
    let outputs = delete_files(&session.join("tool-results"), is_output_name, before);
    delete_files(&session.join("subagents"), is_agent_name, before);
    delete_files(session, is_rest_name, before);
    // It goes only when it is empty.
    let _another_programs = fs::remove_dir(session);
    outputs
}

fn delete_files(folder: &Path, is_ours: fn(&str) -> bool, before: SystemTime) -> usize {
    if !fs::symlink_metadata(folder).is_ok_and(|facts| facts.is_dir()) {
        return 0;
    }
    let is_old_one = |path: &Path| {
        let named = path.file_name().and_then(|name| name.to_str()).is_some_and(is_ours);
        named && fs::symlink_metadata(path).is_ok_and(|facts| is_old(&facts, before))
    };
    let old = entries(folder).into_iter().filter(|path| is_old_one(path));
    let removed = old.filter(|path| fs::remove_file(path).is_ok()).count();
    // It goes only when it is empty.
    let _another_programs = fs::remove_dir(folder);
    removed
}

/// Sub-agents of ours are called `a1`, `a2` and so on.
fn is_agent_name(name: &str) -> bool {
    let bare = name.strip_suffix(".meta.json").or_else(|| name.strip_suffix(".jsonl"));
    let number = bare.and_then(|bare| bare.strip_prefix("agent-a"));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|one| one.is_ascii_digit()))
}

/// Outputs are called `kind-number-hex`.
fn is_output_name(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let [kind, number, unique] = parts[..] else { return false };
    let all =
        |part: &str, fits: fn(&u8) -> bool| !part.is_empty() && part.as_bytes().iter().all(fits);
    all(kind, u8::is_ascii_lowercase)
        && all(number, u8::is_ascii_digit)
        && all(unique, u8::is_ascii_hexdigit)
}
