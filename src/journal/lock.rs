//! The lock on a session's file, which has one writer.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::error::LockHolder;
use super::{JournalError, SessionId, reader};

/// How often to try a lock, and the pause in between. A killed holder may have left the lock to a
/// child for a moment, and a search for unfinished sessions takes it briefly.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Builds the error that names the process that has the session, if its file tells.
pub(super) fn locked_error(id: &SessionId, path: &Path) -> JournalError {
    let bytes = std::fs::read(path).unwrap_or_default();
    let holder = reader::last_open_record(&bytes).map(|open| LockHolder {
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
/// As for [`File::try_lock`], after several attempts.
pub(super) fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_ATTEMPTS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_PAUSE),
            end => return end,
        }
    }
    file.try_lock()
}

/// Whether a process holds the lock of a session's file. The question itself takes a shared lock for
/// a moment, so that several processes may ask at once.
pub(super) fn is_held(file: &File) -> bool {
    for _ in 1..LOCK_ATTEMPTS {
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_PAUSE),
            Err(TryLockError::Error(_)) => return false,
            Ok(()) => {
                // A lock that stays until the file is closed is as harmless, only longer.
                let _still_held = file.unlock();
                return false;
            }
        }
    }
    true
}
