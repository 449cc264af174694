//! One process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How often somebody else's lock is looked at.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// A lock that was taken. It ends when it is dropped, and with the process, however that ends:
/// so there is no stale lock, and nobody has to judge whether one is.
///
/// The file stays. Were it removed, one process could lock the old file and another the new one.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub(super) enum LockError {
    /// Somebody else holds it: the id of a process, if it says so.
    Held(Option<u32>),
    Unusable(io::Error),
}

impl FileLock {
    /// Takes the lock, and waits for it no longer than `patience`.
    pub(super) async fn take(path: &Path, patience: Duration) -> Result<Self, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Unusable)?;
        let end = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(LockError::Unusable(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(LockError::Held(read_owner(&mut file)));
                }
                Err(TryLockError::WouldBlock) => sleep(LOCK_POLL_INTERVAL).await,
            }
        }
        // For those who wait in vain. The lock holds without it.
        let _ = write_owner(&mut file);
        Ok(Self { _file: file })
    }
}

fn write_owner(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn read_owner(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
