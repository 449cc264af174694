//! Takes a session up again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::recovery::Money;
use crate::transcript::Usage;

use super::agents::traces;
use super::entry::Opening;
use super::error::Holder;
use super::log::Beginning;
use super::reader::{self, Contents, Why};
use super::restore::{Loose, restore};
use super::writer::Writer;
use super::{Journal, JournalError, Place, Restored, SessionId};

/// How often a lock is tried, and how long after each other. A holder that was killed while it
/// started a program has left the lock to that one for a moment, and whoever looks for sessions
/// that were left has it for no longer.
const TRIES: u32 = 20;
const GLANCE: Duration = Duration::from_millis(10);

/// A session that was read and is locked, but not yet written to.
#[derive(Debug)]
pub struct Held {
    restored: Restored,
    loose: Loose,
    file: File,
    path: PathBuf,
    /// What the file holds, as far as writing on needs it.
    end: End,
    /// Why the file cannot be written to, if it cannot.
    unwritable: Option<io::Error>,
}

#[derive(Debug)]
struct End {
    /// How many bytes stay.
    whole: u64,
    seq: u64,
    unended: bool,
}

/// Reads a session of any working directory without taking it, for a fork or a report. What
/// another process appends meanwhile may be missed.
///
/// # Errors
/// When the session is unknown, unreadable, damaged or newer than this program.
pub fn read(place: &Place, id: &SessionId) -> Result<Restored, JournalError> {
    let path = place.find(id)?;
    let unreadable = |cause| JournalError::Unreadable { path: path.clone(), cause };
    let bytes = std::fs::read(&path).map_err(unreadable)?;
    Ok(restore(id.clone(), understand(&path, &bytes)?, &traces(&path)).0)
}

impl Held {
    /// Locks and reads a session of any working directory.
    ///
    /// # Errors
    /// As for [`read`], and [`JournalError::Locked`] when another process has it.
    pub fn take(place: &Place, id: &SessionId) -> Result<Self, JournalError> {
        let path = place.find(id)?;
        let unreadable = |cause| JournalError::Unreadable { path: path.clone(), cause };
        let (mut file, unwritable) = open(&path).map_err(unreadable)?;
        match lock(&file) {
            Err(TryLockError::WouldBlock) => return Err(locked(id, &path)),
            // Where there are no locks, the writer still notices who takes the session over.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let contents = understand(&path, &bytes)?;
        let end = End { whole: contents.whole, seq: contents.seq, unended: contents.unended };
        let (restored, loose) = restore(id.clone(), contents, &traces(&path));
        Ok(Self { restored, loose, file, path, end, unwritable })
    }

    pub fn restored(&self) -> &Restored {
        &self.restored
    }

    /// Writes on. The torn end is cut away, and answers to cut-off calls are put on record. When
    /// the file cannot be written, the journal says so and the run may still go on.
    pub fn open(self, place: &Place, opening: &Opening) -> (Journal, Restored) {
        let Self { restored, loose, file, path, end, unwritable } = self;
        let cut = match unwritable {
            Some(cause) => Err(cause),
            None => file.set_len(end.whole),
        };
        let writer = Writer::over(file, end.whole);
        let mut journal = Journal::over(writer, place, &restored.id, opening)
            .following(path, end.seq, loose.leaf);
        if let Err(cause) = cut {
            journal.lose(&cause);
            return (journal, restored);
        }
        if end.unended {
            journal.end_line();
        }
        if restored.in_flight > Money::ZERO {
            let (cost, model) = (restored.in_flight, restored.in_flight_model.as_str());
            journal.forfeit(Some(cost), &Usage::default(), model);
        }
        let dropped = restored.dropped_records;
        journal.open(opening, Beginning { epoch: loose.epoch + 1, dropped, forked_from: None });
        for answer in &loose.answers {
            journal.outcome(answer, &Value::Null);
        }
        journal.repairs(&restored.repairs);
        (journal, restored)
    }
}

/// Opens for writing, or, where that is not allowed, for reading.
fn open(path: &Path) -> io::Result<(File, Option<io::Error>)> {
    match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => Ok((file, None)),
        Err(cause) => Ok((File::open(path)?, Some(cause))),
    }
}

fn understand(path: &Path, bytes: &[u8]) -> Result<Contents, JournalError> {
    reader::read(bytes).map_err(|refusal| {
        let (path, line) = (path.to_owned(), refusal.line);
        match refusal.why {
            Why::Damaged(what) => JournalError::Damaged { path, line, what },
            Why::Newer(what) => JournalError::Newer { path, line, what },
        }
    })
}

/// Says who has the session, as far as its file tells.
pub(super) fn locked(id: &SessionId, path: &Path) -> JournalError {
    let bytes = std::fs::read(path).unwrap_or_default();
    let holder = reader::last_open(&bytes).map(|open| Holder {
        pid: open.pid,
        host: open.host,
        since: open.since,
    });
    JournalError::Locked { id: id.clone(), holder }
}

/// Locks a session's file for its one writer.
///
/// # Errors
/// As for [`File::try_lock`], after a moment's patience.
pub(super) fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(GLANCE),
            end => return end,
        }
    }
    file.try_lock()
}
