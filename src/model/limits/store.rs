//! Stores the shared rate-limit state in files, with one writer at a time.
//!
//! These files are optional. On any problem the run continues without shared state.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::pacing::SharedRateLimit;
use crate::process::{LockedFile, boot_id, create_private_folder, since_boot};
use crate::text::millis;

use super::super::headers::wall_clock;

/// Format version of the file.
const VERSION: u32 = 2;
/// Polling interval for a lock held by another process.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum size of a state file, in bytes.
const FILE_SIZE_MAX: u64 = 16 * 1024;
/// Tolerated drift of the wall clock against the uptime, in milliseconds.
const CLOCK_DRIFT_MAX: u64 = 5_000;
/// A file that was not written for this long is removed.
const FILE_AGE_MAX: Duration = Duration::from_hours(24);
/// Maximum number of files that are checked for removal.
const CLEANUP_FILES_MAX: usize = 2_000;
/// The time between two searches for old files on a host.
const CLEANUP_INTERVAL: Duration = Duration::from_hours(1);
/// The extension of an empty file beside the folder. Its time is that of the last search for old
/// files.
const CLEANUP_STAMP: &str = "cleaned";

/// The reason why the rate-limit state cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum StateFileProblem {
    #[error("the folder {path} cannot be used: {why}", path = .0.display(), why = .1)]
    Folder(PathBuf, io::Error),
    #[error("the folder {path} is not this user's alone", path = .0.display())]
    NotPrivate(PathBuf),
    #[error("another process holds the lock")]
    Busy,
    #[error("the file cannot be used: {0}")]
    File(#[from] io::Error),
    #[error("the file is not a regular file owned by this user")]
    NotRegularFile,
    #[error("cannot read the boot id and the uptime of the system")]
    Clock,
    #[error("the file system does not respond")]
    Unresponsive,
}

/// The content of a state file.
#[derive(Debug, Serialize, Deserialize)]
struct StateRecord {
    v: u32,
    /// Boot id of the system that the times belong to.
    boot: String,
    /// Wall-clock time of the boot, in milliseconds since the Unix epoch. It changes only when the
    /// clock is set, which invalidates times that a server named.
    began: u64,
    rate_limit: SharedRateLimit,
}

/// The candidate folders: `outlast/limits` in the runtime folder (`XDG_RUNTIME_DIR`), then a folder
/// of this user in the temporary folder.
pub fn folders(runtime: Option<&Path>, temporary: &Path) -> Vec<PathBuf> {
    let own = temporary.join(format!("outlast-{}", geteuid()));
    let runtime = runtime.filter(|path| path.is_absolute() && is_private(path));
    let runtime = runtime.map(|path| path.join("outlast"));
    runtime.into_iter().chain([own]).map(|folder| folder.join("limits")).collect()
}

/// True if a runtime folder belongs to the user and other users cannot write to it: they could
/// replace its content.
fn is_private(runtime: &Path) -> bool {
    fs::metadata(runtime).is_ok_and(|metadata| is_own_folder(&metadata, 0o022))
}

/// True for a folder of this user that gives none of the permission bits `others`.
fn is_own_folder(metadata: &fs::Metadata, others: u32) -> bool {
    metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & others == 0
}

/// Creates the first usable folder of `folders`. Once an hour, removes old files from it.
///
/// # Errors
/// The reason why the first folder cannot be used, if none can.
pub(super) fn prepare_folder(folders: &[PathBuf]) -> Result<PathBuf, StateFileProblem> {
    let mut first = None;
    for folder in folders {
        match create_folder(folder) {
            Ok(()) => {
                if is_cleanup_due(folder) {
                    remove_old_files(folder);
                }
                return Ok(folder.clone());
            }
            Err(problem) => drop(first.get_or_insert(problem)),
        }
    }
    Err(first.unwrap_or(StateFileProblem::Clock))
}

/// Creates a folder and its parent. Nothing is created in a folder of another user.
fn create_folder(folder: &Path) -> Result<(), StateFileProblem> {
    for (folder, others) in with_parent(folder) {
        if check_private(folder, others).is_ok() {
            continue;
        }
        create_private_folder(folder)
            .map_err(|error| StateFileProblem::Folder(folder.to_owned(), error))?;
        check_private(folder, others)?;
    }
    Ok(())
}

/// The parent and the folder, each with the permission bits that others must not have.
fn with_parent(folder: &Path) -> impl Iterator<Item = (&Path, u32)> {
    folder.parent().map(|parent| (parent, 0o022)).into_iter().chain([(folder, 0o077)])
}

fn check_private(folder: &Path, others: u32) -> Result<(), StateFileProblem> {
    let metadata = fs::symlink_metadata(folder)
        .map_err(|error| StateFileProblem::Folder(folder.to_owned(), error))?;
    let is_private = is_own_folder(&metadata, others);
    if is_private { Ok(()) } else { Err(StateFileProblem::NotPrivate(folder.to_owned())) }
}

fn list_state_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(CLEANUP_FILES_MAX);
    let path = |entry: io::Result<fs::DirEntry>| Some(entry.ok()?.path());
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    entries.filter_map(path).filter(is_ours).collect()
}

/// Returns true if the last search for old files was long ago, and records that a search begins
/// now.
fn is_cleanup_due(folder: &Path) -> bool {
    let stamp = folder.with_extension(CLEANUP_STAMP);
    let is_recent = age(&stamp).is_some_and(|age| age < CLEANUP_INTERVAL);
    if !is_recent {
        // Without a stamp, the next run searches again.
        let _ = open(&stamp).and_then(|stamp| stamp.set_modified(wall_clock()));
    }
    !is_recent
}

/// Opens a file, and creates it if it does not exist. A symbolic link would lead elsewhere, and a
/// FIFO would block.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)
}

/// The time since a file was written. `None` if it is unknown, or in the future.
fn age(path: &Path) -> Option<Duration> {
    let written = fs::symlink_metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    wall_clock().duration_since(written).ok()
}

/// Removes files that no run has used for a long time. A run that has one open loses only its
/// latest write.
fn remove_old_files(folder: &Path) {
    for path in list_state_files(folder) {
        if age(&path).is_some_and(|age| age > FILE_AGE_MAX) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Lets `act` read and change the state under an exclusive lock. Waits for a lock of another
/// process no longer than `timeout`.
///
/// # Errors
/// Nothing was changed, or the change was not stored.
pub(super) fn update<T>(
    path: &Path,
    timeout: Duration,
    act: impl FnOnce(u64, &mut SharedRateLimit) -> T,
) -> Result<T, StateFileProblem> {
    let file = LockedFile::from(open(path)?);
    let locked = lock(&file, timeout);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != geteuid().as_raw() || metadata.len() > FILE_SIZE_MAX
    {
        return Err(StateFileProblem::NotRegularFile);
    }
    // Checked second: the lock of a file that is not this user's may be held for ever.
    locked?;
    // Taken after the lock, since the previous holder may have written later times than an earlier
    // reading.
    let instant = HostInstant::now().ok_or(StateFileProblem::Clock)?;
    let length = usize::try_from(metadata.len()).map_err(io::Error::other)?;
    let mut text = vec![0; length];
    file.read_exact_at(&mut text, 0)?;
    let mut rate_limit = instant.parse_record(&text).unwrap_or_default();
    let outcome = act(instant.now, &mut rate_limit);
    let HostInstant { boot, began, .. } = instant;
    let text = serde_json::to_vec(&StateRecord { v: VERSION, boot, began, rate_limit });
    let text = text.map_err(io::Error::from)?;
    // Written in place: a renamed file would have its own lock. If the writer is killed, the file
    // is invalid, which has the same effect as a missing file.
    file.write_all_at(&text, 0)?;
    if text.len() < length {
        file.set_len(text.len() as u64)?;
    }
    Ok(outcome)
}

/// Takes the lock. A killed process loses its lock; a stopped one keeps it, hence the timeout.
fn lock(file: &File, timeout: Duration) -> Result<(), StateFileProblem> {
    let until = tokio::time::Instant::now() + timeout;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error.into()),
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() >= until => {
                return Err(StateFileProblem::Busy);
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL_INTERVAL),
        }
    }
}

/// A point in time that is the same for all processes of this host.
struct HostInstant {
    boot: String,
    began: u64,
    /// Milliseconds since boot, including time spent asleep.
    now: u64,
}

impl HostInstant {
    fn now() -> Option<Self> {
        let boot = boot_id()?.to_owned();
        let now = millis(since_boot()?);
        let began = millis(wall_clock().duration_since(UNIX_EPOCH).ok()?).saturating_sub(now);
        Some(Self { boot, began, now })
    }

    /// Parses a state file, if it can be trusted: same boot, no clock change since, plausible
    /// times.
    fn parse_record(&self, text: &[u8]) -> Option<SharedRateLimit> {
        let record: StateRecord = serde_json::from_slice(text).ok()?;
        let holds = record.v == VERSION
            && record.boot == self.boot
            && record.began.abs_diff(self.began) <= CLOCK_DRIFT_MAX
            && record.rate_limit.is_sound(self.now);
        holds.then_some(record.rate_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_file_that_cannot_be_used_is_not_named_as_busy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.json");
        let holder = open(&path).expect("a file");
        holder.lock().expect("it is free");
        let problem = || update(&path, Duration::ZERO, |_, _| ()).expect_err("it is locked");
        assert!(matches!(problem(), StateFileProblem::Busy));
        holder.set_len(FILE_SIZE_MAX + 1).expect("a length");
        assert!(matches!(problem(), StateFileProblem::NotRegularFile));
    }

    #[test]
    fn old_state_files_are_removed_at_most_once_an_hour() {
        let shared = tempfile::tempdir().expect("a folder");
        let folder = shared.path().join("outlast/limits");
        let prepare = || prepare_folder(std::slice::from_ref(&folder)).expect("it is usable");
        prepare();
        let set_age = |path: &Path, age: Duration| {
            let file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
            file.set_modified(wall_clock() - age).expect("a time");
        };
        let [old, new] = ["old.json", "new.json"].map(|name| folder.join(name));
        set_age(&old, FILE_AGE_MAX + Duration::from_mins(1));
        set_age(&new, Duration::from_mins(1));
        prepare();
        assert!(old.exists(), "the last search was just now");
        let stamp = folder.with_extension(CLEANUP_STAMP);
        set_age(&stamp, CLEANUP_INTERVAL);
        prepare();
        assert!(!old.exists() && new.exists());
        assert!(age(&stamp).is_some_and(|age| age < CLEANUP_INTERVAL));
    }
}
