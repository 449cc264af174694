//! The lock on a session's file, which has one writer.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::process::file_reads::open_regular;

use super::error::LockHolder;
use super::raw_lines::buffered;
use super::{JournalError, SessionId, reader};

/// Number of attempts to acquire a lock, and the pause between them. A killed holder may have left
/// the lock to a child for a moment, and a search for unfinished sessions takes it briefly.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// The state of the kernel's lock on the session's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileLock {
    Held,
    Unsupported,
}

/// Locks the file of the session `id` for its only writer.
///
/// # Errors
/// [`JournalError::Locked`] if another process holds the lock.
pub(super) fn lock_session(
    file: &File,
    id: &SessionId,
    path: &Path,
) -> Result<FileLock, JournalError> {
    match lock(file) {
        Ok(()) => Ok(FileLock::Held),
        Err(TryLockError::WouldBlock) => Err(locked_error(id, path)),
        Err(TryLockError::Error(_)) => Ok(FileLock::Unsupported),
    }
}

/// Builds the error that names the process that holds the session, if the session's file records
/// one.
fn locked_error(id: &SessionId, path: &Path) -> JournalError {
    let open = open_regular(path).ok().and_then(|file| reader::last_open_record(buffered(file)));
    let holder = open.map(|open| LockHolder {
        pid: open.pid,
        host: open.host,
        since: open.since,
        lease_left: None,
    });
    JournalError::Locked { id: id.clone(), holder }
}

/// Locks a session's file for its only writer.
///
/// # Errors
/// Those of [`File::try_lock`], after several attempts.
pub(super) fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_PAUSE),
            end => return end,
        }
    }
    file.try_lock()
}

/// Returns true if a process holds the lock of a session's file. The check itself takes a shared
/// lock for a moment, so that several processes can check at once.
pub(super) fn is_held(file: &File) -> bool {
    for _ in 1..LOCK_ATTEMPTS {
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_PAUSE),
            Err(TryLockError::Error(_)) => return false,
            Ok(()) => {
                // If this fails, the lock ends when the file is closed.
                let _still_held = file.unlock();
                return false;
            }
        }
    }
    true
}
