//! What lies in the folder of all sessions, looked at and not touched.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::SessionId;
use super::place::entries;
use super::reader::is_ended;

/// So many files are looked at, at most, and for so long.
const FILES_MAX: usize = 20_000;
const TIME_MAX: Duration = Duration::from_secs(5);

/// So much of a file's end is read: the last records are small.
const TAIL: u64 = 256 * 1024;

/// What the folder holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStore {
    pub folder: PathBuf,
    pub sessions: usize,
    /// Of the journals, outputs kept beside them not counted.
    pub bytes: u64,
    /// The last one written to first.
    pub unfinished: Vec<UnfinishedSession>,
    /// Whether there was more than could be looked at.
    pub partial: bool,
}

/// A session whose last process said nothing of its end, and is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedSession {
    pub id: SessionId,
    pub path: PathBuf,
    pub written: SystemTime,
}

/// Looks at every session of every working directory. Never fails: what cannot be read is not
/// counted.
pub fn survey_sessions(config_dir: &Path) -> SessionStore {
    let mut store = SessionStore { folder: config_dir.join("projects"), ..SessionStore::default() };
    let (began, mut looked) = (Instant::now(), 0);
    for folder in entries(&store.folder) {
        for path in entries(&folder) {
            looked += 1;
            if looked > FILES_MAX || began.elapsed() > TIME_MAX {
                store.partial = true;
                store.unfinished.sort_by_key(|open| std::cmp::Reverse(open.written));
                return store;
            }
            store.add(path);
        }
    }
    store.unfinished.sort_by_key(|open| std::cmp::Reverse(open.written));
    store
}

impl SessionStore {
    fn add(&mut self, path: PathBuf) {
        let Some((id, bytes, written)) = session_file(&path) else { return };
        self.sessions += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if is_unfinished(&path) {
            self.unfinished.push(UnfinishedSession { id, path, written });
        }
    }
}

fn session_file(path: &Path) -> Option<(SessionId, u64, SystemTime)> {
    let id = SessionId::parse(path.file_name()?.to_str()?.strip_suffix(".jsonl")?)?;
    let facts = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((id, facts.len(), facts.modified().ok()?))
}

/// Whether it is ours, says nothing of its end, and nobody works on it.
fn is_unfinished(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let length = file.metadata().map_or(0, |facts| facts.len());
    let start = length.saturating_sub(TAIL);
    let mut tail = Vec::new();
    let read = file
        .seek(SeekFrom::Start(start))
        .and_then(|_| (&mut file).take(TAIL).read_to_end(&mut tail));
    // The lock is given back with the file.
    read.is_ok() && is_ended(&tail) == Some(false) && file.try_lock().is_ok()
}
