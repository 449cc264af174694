//! An exclusive file lock between processes.

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// First pause between attempts at a lock held by another process. It doubles with each of them.
const FIRST_POLL_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_POLL_PAUSE: Duration = Duration::from_millis(200);

/// A file that is unlocked when it is dropped. Closing it is not enough: a child process has the
/// descriptor, and with it the lock, until its program starts.
#[derive(Debug)]
pub struct LockedFile(File);

impl From<File> for LockedFile {
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Without locks, no lock has to be released.
        let _unlocked = self.0.unlock();
    }
}

/// An acquired lock. It is released when dropped or when the process ends, however it ends, so
/// stale locks cannot exist.
///
/// The file is never removed: otherwise one process could lock the old file, and another process a
/// new one.
#[derive(Debug)]
pub struct FileLock {
    _file: LockedFile,
}

/// The reason why a lock could not be acquired.
#[derive(Debug)]
pub enum LockError {
    Held(LockHolder),
    Unusable(io::Error),
}

/// The process that holds a lock, with its id if the file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHolder(Option<u32>);

impl Display for LockHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(out, "process {id}"),
            None => out.write_str("another process"),
        }
    }
}

impl FileLock {
    /// Acquires the lock, and waits for it no longer than `limit`.
    pub async fn take(path: &Path, limit: Duration) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Unusable)?;
        let mut file = LockedFile::from(file);
        let end = Instant::now() + limit;
        let mut pause = FIRST_POLL_PAUSE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(LockError::Unusable(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(LockError::Held(LockHolder(read_owner(&mut file))));
                }
                Err(TryLockError::WouldBlock) => {
                    sleep_until(end.min(Instant::now() + pause)).await;
                    pause = LONGEST_POLL_PAUSE.min(pause * 2);
                }
            }
        }
        // The process id is only for error messages. The lock holds without it.
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[tokio::test]
    async fn a_dropped_lock_is_released_though_a_child_process_has_its_descriptor() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let lock = FileLock::take(&path, Duration::ZERO).await.expect("nothing else has it");
        let FileLock { _file: held } = &lock;
        let of_the_child = held.try_clone().expect("the same open file");
        let other = File::open(format!("/proc/self/fd/{}", of_the_child.as_raw_fd()));
        let other = other.expect("opened");
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(lock);
        other.try_lock().expect("it was released");
        drop(of_the_child);
    }
}
