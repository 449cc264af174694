//! Deletes old sessions, so that the disk of a long-lived machine does not fill up.
//!
//! Deletes only files that are certainly ours, old and unused: another program may share the
//! folder, and its sessions stay, as do files that cannot be classified.

use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::process::LockedFile;

use super::SessionId;
use super::damage::is_rest_name;
use super::entry::{LineChecksum, check_seal};
use super::lease_record::{is_held_elsewhere, lease_path};
use super::moved_session::remove_marks;
use super::raw_lines::without_return;
use super::session_folder::{entries, open_without_links};

/// The most sessions deleted by one run, which limits the damage of a wrong clock or setting.
const REMOVED_MAX: usize = 100;
/// The most entries examined by one run.
const FILES_MAX: usize = 20_000;
/// The time limit of one cleanup.
const TIME_MAX: Duration = Duration::from_secs(2);
/// A time before the first version of outlast (the start of 2025), in seconds since the Unix epoch:
/// a file that seems to be older was written while the clock was wrong, as on machines whose clock
/// starts in 1970 or 2000.
const FIRST_SECONDS: u64 = 1_735_689_600;
/// The longest first line that is examined.
const LINE_MAX: u64 = 1 << 20;

/// Counts of the sessions and outputs that a cleanup deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupReport {
    pub sessions: usize,
    /// Tool outputs stored in files of their own.
    pub outputs: usize,
}

/// Deletes sessions of any working directory last written before `before`, with the outputs stored
/// beside them. Never fails: files that cannot be deleted stay.
///
/// Deletes nothing unless a session was written in the first half of the time since then: after the
/// clock has jumped ahead, all sessions seem old.
pub fn delete_old_sessions(config_dir: &Path, before: SystemTime) -> CleanupReport {
    let (began, mut report) = (Instant::now(), CleanupReport::default());
    let folders = entries(&config_dir.join("projects"));
    if !is_clock_confirmed(&folders, before, began) {
        return report;
    }
    for path in folders.iter().flat_map(|folder| entries(folder)).take(FILES_MAX) {
        if report.sessions >= REMOVED_MAX || began.elapsed() > TIME_MAX {
            break;
        }
        match session_of(&path) {
            Some((_, true)) => {
                if let Some(outputs) = delete_session(&path, before) {
                    report.sessions += 1;
                    report.outputs += outputs;
                }
            }
            Some((id, false)) if !path.with_file_name(format!("{id}.jsonl")).exists() => {
                report.outputs += delete_outputs(&path, Some(before));
            }
            Some((_, false)) | None => {}
        }
    }
    report
}

/// Returns true if a session was written in the first half of the time since `before`.
fn is_clock_confirmed(folders: &[PathBuf], before: SystemTime, began: Instant) -> bool {
    let half = SystemTime::now().duration_since(before).unwrap_or_default() / 2;
    let is_between = |path: &PathBuf| {
        let written = fs::symlink_metadata(path).and_then(|facts| facts.modified());
        written.is_ok_and(|written| (before..before + half).contains(&written))
    };
    let paths = folders.iter().flat_map(|folder| entries(folder));
    let sessions = paths.filter(|path| matches!(session_of(path), Some((_, true))));
    let mut examined = sessions.take(FILES_MAX).take_while(|_| began.elapsed() < TIME_MAX / 2);
    examined.any(|path| is_between(&path))
}

/// Returns the session that an entry of a project folder belongs to, and whether the entry is its
/// journal. Symbolic links are ignored.
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

/// Deletes a session. Returns the number of outputs deleted with it; `None` if it stays.
fn delete_session(path: &Path, before: SystemTime) -> Option<usize> {
    if !is_old(&fs::symlink_metadata(path).ok()?, before) {
        return None;
    }
    let file = LockedFile::from(open_without_links(path).ok()?);
    // Locked until it is deleted, so that no process starts to work on the session meanwhile.
    file.try_lock().ok()?;
    if is_held_elsewhere(path) {
        return None;
    }
    if !is_old(&file.metadata().ok()?, before) || !is_ours(&file) {
        return None;
    }
    delete_files_of(path, Some(before)).ok()
}

/// Deletes a session's file, and the files stored beside it: those that were last written before
/// `before`, or all of them without it. Returns the number of outputs among them. The caller has
/// locked the file.
///
/// # Errors
/// The file could not be deleted.
pub(super) fn delete_files_of(path: &Path, before: Option<SystemTime>) -> io::Result<usize> {
    let outputs = delete_outputs(&path.with_extension(""), before);
    fs::remove_file(path)?;
    remove_marks(path);
    // The lease of a process that was killed.
    let _none = fs::remove_file(lease_path(path));
    Ok(outputs)
}

fn is_old(facts: &Metadata, before: SystemTime) -> bool {
    facts.is_file() && facts.modified().is_ok_and(|then| then < before && is_dated(then))
}

/// Returns true if the clock can have been right when a session was written.
pub(super) fn is_dated(written: SystemTime) -> bool {
    written >= SystemTime::UNIX_EPOCH + Duration::from_secs(FIRST_SECONDS)
}

/// Returns true if the first line has a checksum of outlast. A session started by another program
/// stays, even if outlast wrote to it later.
pub(super) fn is_ours(file: &File) -> bool {
    let mut line = Vec::new();
    let read = BufReader::new(file.take(LINE_MAX)).read_until(b'\n', &mut line);
    let line = without_return(line.strip_suffix(b"\n").unwrap_or(&line));
    read.is_ok() && check_seal(line) == LineChecksum::Intact
}

/// Deletes the stored outputs of a session and the journals of its sub-agents, and its folder if
/// that is empty then.
fn delete_outputs(session: &Path, before: Option<SystemTime>) -> usize {
    let outputs = delete_files(&session.join("tool-results"), is_output_name, before);
    delete_files(&session.join("subagents"), is_agent_name, before);
    delete_files(session, is_rest_name, before);
    // Fails if the folder is not empty.
    let _not_empty = fs::remove_dir(session);
    outputs
}

fn delete_files(folder: &Path, is_ours: fn(&str) -> bool, before: Option<SystemTime>) -> usize {
    if !fs::symlink_metadata(folder).is_ok_and(|facts| facts.is_dir()) {
        return 0;
    }
    let is_selected = |path: &PathBuf| {
        let has_name = path.file_name().and_then(|name| name.to_str()).is_some_and(is_ours);
        let has_age =
            |facts: Metadata| facts.is_file() && before.is_none_or(|before| is_old(&facts, before));
        has_name && fs::symlink_metadata(path).is_ok_and(has_age)
    };
    let selected = entries(folder).into_iter().filter(is_selected);
    let removed = selected.filter(|path| fs::remove_file(path).is_ok()).count();
    // Fails if the folder is not empty.
    let _not_empty = fs::remove_dir(folder);
    removed
}

/// Returns true for the name of a sub-agent's file. Sub-agents are named `a1`, `a2` and so on.
fn is_agent_name(name: &str) -> bool {
    let bare = name.strip_suffix(".meta.json").or_else(|| name.strip_suffix(".jsonl"));
    let number = bare.and_then(|bare| bare.strip_prefix("agent-a"));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true for the name of a stored output: `kind-number-hex`.
fn is_output_name(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let [kind, number, unique] = parts[..] else { return false };
    let consists_of =
        |part: &str, fits: fn(&u8) -> bool| !part.is_empty() && part.as_bytes().iter().all(fits);
    consists_of(kind, u8::is_ascii_lowercase)
        && consists_of(number, u8::is_ascii_digit)
        && consists_of(unique, u8::is_ascii_hexdigit)
}
