//! Appends lines to a file until the first failure, and after it only to a new file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use memchr::memmem;

use crate::process::LockedFile;

use super::lease::{AppendError, LeaseFence, SessionLease};
use super::lock::lock;
use super::session_folder::sync_folders;

/// The bytes that identify the record with which a process takes a session over.
const TAKE_OVER: &[u8] = br#""kind":"open""#;
/// The maximum number of bytes added by another process that are searched for a takeover.
const FOREIGN_BYTES_MAX: u64 = 1 << 20;
/// The most memory that is kept for lines to come once all lines are synced, in bytes.
const UNSYNCED_CAPACITY_MAX: usize = 1 << 20;
/// The maximum size of the lines that are kept in memory while the disk fails, in bytes.
pub(super) const UNSYNCED_BYTES_MAX: usize = 64 << 20;

/// The time by which a line must be on disk, in ascending order of urgency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sync {
    /// Synced together with the next line that is.
    #[default]
    Later,
    /// Synced by the journal's thread after a moment, and no later than the next line that is
    /// synced `Now`.
    Soon,
    /// Synced before the append is finished.
    Now,
}

/// Writes the file of a journal. The file must not be used after a failed write or sync: the kernel
/// drops the pages that it could not write, so a second sync would falsely succeed.
#[derive(Debug)]
pub(super) struct JournalWriter {
    file: LockedFile,
    /// The expected length of the file, if no other process has written to it.
    len: u64,
    /// The synced length of the file, in bytes.
    synced: u64,
    /// The lines after the synced ones, including those that could not be written.
    unsynced: Vec<u8>,
    /// Held as long as the file is written.
    lease: Option<SessionLease>,
    fence: Option<Arc<LeaseFence>>,
}

impl JournalWriter {
    /// Creates a new file. Fails if it exists.
    pub(super) fn create(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)
    }

    /// Continues at the end of `file`, which is `len` bytes long.
    pub(super) fn new(file: impl Into<LockedFile>, len: u64) -> Self {
        Self { file: file.into(), len, synced: len, unsynced: Vec::new(), lease: None, fence: None }
    }

    /// Writes only as long as this lease is held.
    pub(super) fn with_lease(mut self, lease: Option<SessionLease>) -> Self {
        self.fence = lease.as_ref().map(|lease| Arc::clone(lease.fence()));
        self.lease = lease;
        self
    }

    /// Writes only as long as another journal of this process holds the lease of the session.
    pub(super) fn with_fence(self, fence: Option<Arc<LeaseFence>>) -> Self {
        Self { fence, ..self }
    }

    pub(super) fn fence(&self) -> Option<&Arc<LeaseFence>> {
        self.fence.as_ref()
    }

    /// The epoch of the lease.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.lease.as_ref().map(SessionLease::epoch)
    }

    /// Appends lines, all or none.
    pub(super) fn append(&mut self, lines: &[u8], sync: Sync) -> Result<(), AppendError> {
        self.unsynced.extend_from_slice(lines);
        if let Some(fence) = &self.fence {
            fence.check()?;
        }
        self.check_takeover()?;
        if let Err(cause) = self.file.write_all(lines) {
            // The next reader would drop a partial line; removing it keeps the file valid for other
            // programs. This may fail.
            let _partial_line_stays = self.file.set_len(self.len);
            return Err(cause.into());
        }
        self.len += u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if sync == Sync::Now {
            self.file.sync_data()?;
            self.mark_synced();
        }
        Ok(())
    }

    fn mark_synced(&mut self) {
        self.synced = self.len;
        self.unsynced.clear();
        self.unsynced.shrink_to(UNSYNCED_CAPACITY_MAX);
    }

    /// Keeps lines in memory while the file cannot be written. Returns false if there are too many.
    pub(super) fn keep(&mut self, lines: &[u8]) -> bool {
        let has_room = self.unsynced.len() + lines.len() <= UNSYNCED_BYTES_MAX;
        if has_room {
            self.unsynced.extend_from_slice(lines);
        }
        has_room
    }

    /// Writes everything to a new file in place of the one that failed, and syncs it.
    ///
    /// # Errors
    /// The new file cannot be written, and the old one is kept; or another process has taken the
    /// session over.
    pub(super) fn replace_file(&mut self, path: &Path) -> Result<(), AppendError> {
        if let Some(fence) = &self.fence {
            fence.check()?;
        }
        self.check_takeover()?;
        self.file = replace_file(path, &mut self.file, self.synced, &self.unsynced)?.into();
        self.len = self.file.metadata()?.len();
        self.mark_synced();
        Ok(())
    }

    /// Fails if another process has taken the session over, which is possible where locks do not
    /// work. Other additions, such as a title, are harmless.
    fn check_takeover(&mut self) -> Result<(), AppendError> {
        let facts = self.file.metadata()?;
        if !facts.is_file() || (facts.len() == self.len && facts.nlink() > 0) {
            return Ok(());
        }
        if facts.nlink() == 0 {
            return Err(io::Error::other("the file was deleted").into());
        }
        if facts.len() < self.len {
            return Err(io::Error::other("another program shortened the file").into());
        }
        let mut added = Vec::new();
        // The last check may have seen the beginning of the record only.
        let overlap = TAKE_OVER.len() as u64 - 1;
        self.file.seek(SeekFrom::Start(self.len.saturating_sub(overlap)))?;
        Read::by_ref(&mut *self.file).take(FOREIGN_BYTES_MAX).read_to_end(&mut added)?;
        if memmem::find(&added, TAKE_OVER).is_some() {
            let why = "another process took the session over".to_owned();
            return Err(AppendError::TakenOver(why));
        }
        self.len = facts.len();
        Ok(())
    }
}

/// Replaces a session's file by a copy of its first `length` bytes, followed by `lines`. Later
/// writes of another process go to the old file, which no longer has a name.
///
/// # Errors
/// The new file cannot be written. The old one is kept.
pub(super) fn replace_file(
    path: &Path,
    old: &mut File,
    length: u64,
    lines: &[u8],
) -> io::Result<File> {
    let staged = path.with_extension("jsonl.new");
    let copied = stage_copy(&staged, old, length, lines).and_then(|file| {
        fs::rename(&staged, path)?;
        path.parent().map_or(Ok(()), sync_folders)?;
        Ok(file)
    });
    copied.inspect_err(|_| {
        // The disk may be full, and the copy takes space.
        let _none = fs::remove_file(&staged);
    })
}

fn stage_copy(staged: &Path, old: &mut File, length: u64, lines: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(staged)?;
    file.set_len(0)?;
    // Without file locks, the lease alone prevents concurrent writers.
    let _unlocked = lock(&file);
    old.seek(SeekFrom::Start(0))?;
    io::copy(&mut old.take(length), &mut file)?;
    file.write_all(lines)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> JournalWriter {
        JournalWriter::new(OpenOptions::new().append(true).open(name).expect("a device"), 0)
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let error = device("/dev/full").append(b"x\n", Sync::Later).expect_err("it is full");
        let AppendError::Io(cause) = error else { panic!("{error:?}") };
        assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_sync_that_fails_is_an_error() {
        assert!(device("/dev/null").append(b"x\n", Sync::Later).is_ok());
        assert!(device("/dev/null").append(b"x\n", Sync::Now).is_err(), "it cannot be synced");
    }

    #[test]
    fn lines_whose_sync_fails_go_to_a_new_file() {
        let mut writer = device("/dev/null");
        assert!(writer.append(b"x\n", Sync::Soon).is_ok(), "it is not synced here");
        assert!(writer.append(b"y\n", Sync::Now).is_err(), "it cannot be synced");
        assert_eq!(writer.unsynced, b"x\ny\n");
    }
}
