//! The files in which runs tell each other about rate limits: where they are, and how one is
//! changed by one run at a time.
//!
//! Nothing here is needed. Whatever is wrong, a run does without what others know.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use super::super::headers::wall_clock;
use super::pace::SharedPace;

/// The version of what is written.
const VERSION: u32 = 1;
/// How often somebody else's lock is looked at.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// No file of ours is longer, in bytes.
const FILE_SIZE_MAX: u64 = 16 * 1024;
/// By how much the wall clock may differ from what it was, in milliseconds, beside what has passed.
const CLOCK_DRIFT_MAX: u64 = 5_000;
/// A file that nobody has written to for so long is removed.
const FILE_AGE_MAX: Duration = Duration::from_hours(24);
/// Files are looked through for old ones up to this many.
const CLEANUP_FILES_MAX: usize = 200;

/// Why nothing is known of other runs.
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
    #[error("the file is not a plain file of this user")]
    NotRegularFile,
    #[error("the system does not say how long it has been running")]
    Clock,
    #[error("the file system does not answer")]
    Unresponsive,
}

/// What a file holds.
#[derive(Debug, Serialize, Deserialize)]
struct StateRecord {
    v: u32,
    /// Which start of the system its times are measured from.
    boot: String,
    /// When that was by the wall clock, in milliseconds since the Unix epoch. It only changes when
    /// somebody sets that clock, and then what servers said in its terms is void.
    began: u64,
    pace: SharedPace,
}

/// One state file, for whoever wants to see what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    pub path: PathBuf,
    /// What it holds; `None` when it is void or cannot be read.
    pub pace: Option<SharedPace>,
    /// How long nobody may ask any more, by what it says.
    pub blocked_for: Duration,
}

/// The folders in which the files may be: `outlast/limits` in the folder for what lives as long as
/// a login, and else the user's own among the temporary files.
pub fn folders(runtime: Option<&Path>, temporary: &Path) -> Vec<PathBuf> {
    let own = temporary.join(format!("outlast-{}", geteuid()));
    let runtime = runtime.filter(|path| path.is_absolute()).map(|path| path.join("outlast"));
    runtime.into_iter().chain([own]).map(|folder| folder.join("limits")).collect()
}

/// The files in the first of `folders` that has any.
pub fn state_files(folders: &[PathBuf]) -> Vec<StateFile> {
    let Some(instant) = HostInstant::now() else { return Vec::new() };
    let read = |path: PathBuf| {
        let text = fs::read(&path).unwrap_or_default();
        let pace = instant.parse_record(&text);
        let until = pace.as_ref().map_or(0, |pace| pace.blocked_until);
        let blocked_for = Duration::from_millis(until.saturating_sub(instant.now));
        StateFile { path, pace, blocked_for }
    };
    let found = folders.iter().filter(|folder| check_ownership(folder).is_ok()).map(|folder| {
        let mut files = list_state_files(folder);
        files.sort();
        files.into_iter().map(read).collect::<Vec<_>>()
    });
    found.into_iter().find(|files| !files.is_empty()).unwrap_or_default()
}

/// Makes the first of `folders` ready that can be used, and clears it of what is old.
///
/// # Errors
/// Why the first one cannot be used, if none can.
pub(super) fn prepare_folder(folders: &[PathBuf]) -> Result<PathBuf, StateFileProblem> {
    let mut first = None;
    for folder in folders {
        match create_folder(folder) {
            Ok(()) => {
                remove_old_files(folder);
                return Ok(folder.clone());
            }
            Err(trouble) => drop(first.get_or_insert(trouble)),
        }
    }
    Err(first.unwrap_or(StateFileProblem::Clock))
}

fn create_folder(folder: &Path) -> Result<(), StateFileProblem> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| StateFileProblem::Folder(folder.to_owned(), error))?;
    check_ownership(folder)
}

/// Nobody else may have a hand in it: neither own it, nor be able to put something in its place.
fn check_ownership(folder: &Path) -> Result<(), StateFileProblem> {
    for (folder, others) in [(Some(folder), 0o077), (folder.parent(), 0o022)] {
        let Some(folder) = folder else { continue };
        let facts = fs::symlink_metadata(folder)
            .map_err(|error| StateFileProblem::Folder(folder.to_owned(), error))?;
        let own = facts.is_dir() && facts.uid() == geteuid().as_raw();
        if !own || facts.mode() & others != 0 {
            return Err(StateFileProblem::NotPrivate(folder.to_owned()));
        }
    }
    Ok(())
}

fn list_state_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(CLEANUP_FILES_MAX);
    let path = |entry: io::Result<fs::DirEntry>| Some(entry.ok()?.path());
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    entries.filter_map(path).filter(is_ours).collect()
}

/// Removes files that no run has used for long. A run that has one open meanwhile loses what it
/// writes there, and no more.
fn remove_old_files(folder: &Path) {
    for path in list_state_files(folder) {
        let age = fs::symlink_metadata(&path).and_then(|facts| facts.modified());
        let age = age.ok().and_then(|then| wall_clock().duration_since(then).ok());
        if age.is_some_and(|age| age > FILE_AGE_MAX) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Lets `act` see and change what is known, while nobody else does. A lock of somebody else is
/// waited for no longer than `patience`.
///
/// # Errors
/// Nothing was changed, or nobody will know of it.
pub(super) fn update<T>(
    path: &Path,
    patience: Duration,
    act: impl FnOnce(u64, &mut SharedPace) -> T,
) -> Result<T, StateFileProblem> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // A link would lead elsewhere, and a pipe would make us wait.
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() || facts.uid() != geteuid().as_raw() || facts.len() > FILE_SIZE_MAX {
        return Err(StateFileProblem::NotRegularFile);
    }
    lock(&file, patience)?;
    // After the lock: whoever held it may have written what would lie ahead of an earlier look.
    let instant = HostInstant::now().ok_or(StateFileProblem::Clock)?;
    let mut text = Vec::new();
    (&file).take(FILE_SIZE_MAX).read_to_end(&mut text)?;
    let mut pace = instant.parse_record(&text).unwrap_or_default();
    let outcome = act(instant.now, &mut pace);
    let HostInstant { boot, began, .. } = instant;
    let text = serde_json::to_vec(&StateRecord { v: VERSION, boot, began, pace });
    let text = text.map_err(io::Error::from)?;
    // In place: a file put in its place would have a lock of its own. One that is half written
    // when its writer is killed is void, which is no worse than none.
    file.rewind()?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)?;
    Ok(outcome)
}

/// Whoever is killed loses the lock; whoever was stopped keeps it, and is not waited for.
fn lock(file: &File, patience: Duration) -> Result<(), StateFileProblem> {
    let until = tokio::time::Instant::now() + patience;
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

/// A point in time that all processes of this host agree on.
struct HostInstant {
    boot: String,
    began: u64,
    /// Milliseconds since the system was started, sleep included.
    now: u64,
}

impl HostInstant {
    fn now() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        let now = millis(Duration::try_from_secs_f64(seconds).ok()?);
        let began = millis(wall_clock().duration_since(UNIX_EPOCH).ok()?).saturating_sub(now);
        Some(Self { boot, began, now })
    }

    /// What a file says, if it can be believed: it is of this start of the system, no clock has
    /// been set since, and it makes sense.
    fn parse_record(&self, text: &[u8]) -> Option<SharedPace> {
        let record: StateRecord = serde_json::from_slice(text).ok()?;
        let holds = record.v == VERSION
            && record.boot == self.boot
            && record.began.abs_diff(self.began) <= CLOCK_DRIFT_MAX
            && record.pace.is_sound(self.now);
        holds.then_some(record.pace)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
