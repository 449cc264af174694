//! A read-only survey of all stored sessions.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::process::LockedFile;
use crate::process::file_reads::open_regular;

use super::lease_record::is_held_elsewhere;
use super::lock::lock;
use super::reader::is_ended;
use super::session_folder::entries;
use super::summary::SessionFile;

/// The limits of files and of time for a survey.
const FILES_MAX: usize = 20_000;
const TIME_MAX: Duration = Duration::from_secs(5);

/// Number of bytes that are read from the end of a file: the last records are small.
const TAIL: u64 = 256 * 1024;

/// The result of a survey.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStore {
    pub folder: PathBuf,
    pub sessions: usize,
    /// The size of the journals, without the outputs beside them.
    pub bytes: u64,
    /// Sessions whose last process is gone and did not record its end, the last written first.
    pub unfinished: Vec<SessionFile>,
    /// True if the limits cut the survey short.
    pub partial: bool,
}

/// Surveys all sessions of all working directories. Never fails: unreadable files are not counted.
pub fn survey_sessions(config_dir: &Path) -> SessionStore {
    let mut store = SessionStore { folder: config_dir.join("projects"), ..SessionStore::default() };
    let began = Instant::now();
    let paths = entries(&store.folder).into_iter().flat_map(|folder| entries(&folder));
    for (examined, path) in paths.enumerate() {
        if examined >= FILES_MAX || began.elapsed() > TIME_MAX {
            store.partial = true;
            break;
        }
        store.add(path);
    }
    store.unfinished.sort_by_key(|open| std::cmp::Reverse(open.written));
    store
}

impl SessionStore {
    fn add(&mut self, path: PathBuf) {
        let Some((file, bytes)) = SessionFile::at(path) else { return };
        self.sessions += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if is_unfinished(&file.path) {
            self.unfinished.push(file);
        }
    }
}

/// Returns true if outlast wrote the session, it has no recorded end, and it is not locked.
fn is_unfinished(path: &Path) -> bool {
    let Ok(mut file) = open_regular(path).map(LockedFile::from) else { return false };
    let ended = read_tail(&mut file).ok().and_then(|tail| is_ended(&tail));
    ended == Some(false) && !is_held_elsewhere(path) && lock(&file).is_ok()
}

/// Reads the end of a file.
pub(super) fn read_tail(file: &mut File) -> io::Result<Vec<u8>> {
    let start = file.metadata()?.len().saturating_sub(TAIL);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(TAIL).read_to_end(&mut tail)?;
    Ok(tail)
}
