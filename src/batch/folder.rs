//! The folder of a batch: the plan, and the result, heartbeat, log and attempts of each task.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use uuid::Uuid;

use super::plan::{BatchPlan, PlanError};
use crate::process::{
    FileLock, LockError, LockHolder, LockedFile, TrustedOwners, create_private_folder, sync_folder,
};

const PLAN: &str = "plan.json";
const PLAN_MODE: u32 = 0o600;

/// The reason why a file of a batch cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BatchFolderError {
    #[error("there is no batch in {}: {cause}", path.display())]
    NoPlan { path: PathBuf, cause: io::Error },
    #[error("{} {cause}", path.display())]
    BadPlan { path: PathBuf, cause: PlanError },
    #[error("{} cannot be written: {cause}", path.display())]
    Unwritable { path: PathBuf, cause: io::Error },
    /// The owner of the file or folder is not trusted, because they could have written any plan or
    /// result.
    #[error("the batch in {} is not used: {cause}", path.display())]
    Foreign { path: PathBuf, cause: io::Error },
}

/// The folder of a batch.
#[derive(Clone, Debug)]
pub struct BatchFolder {
    path: PathBuf,
}

impl BatchFolder {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn plan_path(&self) -> PathBuf {
        self.path.join(PLAN)
    }

    /// Reads the plan.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read_plan(&self) -> Result<BatchPlan, BatchFolderError> {
        BatchPlan::load(&self.plan_path())
    }

    /// Writes the plan so that only the user can read it, because prompts may be confidential.
    ///
    /// # Errors
    /// It could not be written. An older plan is then still intact.
    pub fn write_plan(&self, plan: &BatchPlan) -> Result<(), BatchFolderError> {
        self.create()?;
        replace_file(self.plan_path(), || Ok(serde_json::to_string(plan)?))
    }

    /// Locks the batch for the process that starts its tasks, or returns its holder.
    ///
    /// # Errors
    /// The lock file cannot be created, or the folder belongs to another user.
    pub async fn lock(&self) -> Result<Result<FileLock, LockHolder>, BatchFolderError> {
        self.create()?;
        lock(self.path.join("lock"), Duration::ZERO).await
    }

    /// Creates the folder, then checks its owner, because another user may have created it in the
    /// meantime.
    ///
    /// # Errors
    /// The folder could not be created, or belongs to another user.
    pub fn create(&self) -> Result<(), BatchFolderError> {
        let unwritable = |cause| BatchFolderError::Unwritable { path: self.path.clone(), cause };
        create_private_folder(&self.path).map_err(unwritable)?;
        check_owner(&self.path)
    }

    /// Returns the folder of a task. It need not exist.
    pub fn task(&self, index: usize) -> TaskFolder {
        TaskFolder { path: self.path.join("tasks").join(index.to_string()) }
    }

    /// Returns the folder of files that are rendered for engines.
    pub fn engine(&self) -> PathBuf {
        self.path.join("engine")
    }
}

impl BatchPlan {
    /// Reads the plan in a file.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn load(path: &Path) -> Result<Self, BatchFolderError> {
        let none = |cause| BatchFolderError::NoPlan { path: path.to_owned(), cause };
        if let Some(folder) = path.parent() {
            check_owner(folder)?;
        }
        // O_NONBLOCK: opening a pipe does not block. The check is on the open file, so another user
        // cannot replace the file between the check and the read.
        let flags = nix::libc::O_NONBLOCK;
        let mut file =
            OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(none)?;
        let metadata = file.metadata().map_err(none)?;
        check_trusted("the plan", &metadata, path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(none)?;
        Self::parse(&text)
            .map_err(|cause| BatchFolderError::BadPlan { path: path.to_owned(), cause })
    }
}

/// Acquires a lock, waiting no longer than `limit`, or returns its holder.
async fn lock(
    path: PathBuf,
    limit: Duration,
) -> Result<Result<FileLock, LockHolder>, BatchFolderError> {
    match FileLock::take(&path, limit).await {
        Ok(lock) => Ok(Ok(lock)),
        Err(LockError::Held(holder)) => Ok(Err(holder)),
        Err(LockError::Unusable(cause)) => Err(BatchFolderError::Unwritable { path, cause }),
    }
}

/// Replaces a file of a batch, which only the user can read. After a crash it has its old content
/// or the new one.
pub(super) fn replace_file(
    path: PathBuf,
    content: impl FnOnce() -> io::Result<String>,
) -> Result<(), BatchFolderError> {
    let replace = || -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
        // The library's messages name the temporary file.
        let mut file = NamedTempFile::new_in(folder).map_err(|error| error.kind())?;
        file.as_file_mut().write_all(content()?.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        sync_folder(&File::open(folder)?)
    };
    replace().map_err(|cause| BatchFolderError::Unwritable { path, cause })
}

/// Removes a file, if it exists.
pub(super) fn remove_if_exists(path: PathBuf) -> Result<(), BatchFolderError> {
    match fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(BatchFolderError::Unwritable { path, cause })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Checks the owner of the folder of a batch, if it exists.
fn check_owner(folder: &Path) -> Result<(), BatchFolderError> {
    match fs::metadata(folder) {
        Ok(metadata) => check_trusted("the folder", &metadata, folder),
        Err(_) => Ok(()),
    }
}

fn check_trusted(what: &str, metadata: &Metadata, path: &Path) -> Result<(), BatchFolderError> {
    let checked = TrustedOwners::new(Path::new("."), false).check(what, metadata);
    checked.map_err(|cause| BatchFolderError::Foreign { path: path.to_owned(), cause })
}

/// One line of the file of attempts: the start or the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Time in RFC 3339.
    pub at: String,
    pub pid: u32,
    /// The exit code at the end of the attempt. `None`: its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

/// The folder of one task.
#[derive(Clone, Debug)]
pub struct TaskFolder {
    path: PathBuf,
}

impl TaskFolder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    pub fn heartbeat(&self) -> PathBuf {
        self.path.join("heartbeat")
    }

    /// Returns the log of its workers' standard error.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Returns the working directory of a task that names none, or of its repository's checkout.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    pub(super) fn attempts(&self) -> PathBuf {
        self.path.join("attempts.jsonl")
    }

    fn lock_path(&self) -> PathBuf {
        self.path.join("lock")
    }

    fn session_path(&self) -> PathBuf {
        self.path.join("session")
    }

    /// Creates the folder.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(&self) -> Result<(), BatchFolderError> {
        create_private_folder(&self.path).map_err(|cause| self.unwritable(cause))
    }

    fn unwritable(&self, cause: io::Error) -> BatchFolderError {
        BatchFolderError::Unwritable { path: self.path.clone(), cause }
    }

    /// Opens the log to append to it.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub fn open_log(&self) -> Result<File, BatchFolderError> {
        let log = OpenOptions::new().create(true).append(true).mode(PLAN_MODE).open(self.log());
        log.map_err(|cause| self.unwritable(cause))
    }

    /// Locks the task for one worker, waiting no longer than `limit`, or returns the holder.
    ///
    /// # Errors
    /// The lock file cannot be created.
    pub async fn lock(
        &self,
        limit: Duration,
    ) -> Result<Result<FileLock, LockHolder>, BatchFolderError> {
        lock(self.lock_path(), limit).await
    }

    /// True if a worker on this host is working on the task.
    pub fn is_locked(&self) -> bool {
        let Ok(file) = File::open(self.lock_path()).map(LockedFile::from) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Appends to the file of attempts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record(&self, attempt: &AttemptRecord) -> Result<(), BatchFolderError> {
        let append = || -> io::Result<()> {
            let line = serde_json::to_string(attempt)?;
            let mut options = OpenOptions::new();
            let mut file = options.create(true).read(true).append(true).open(self.attempts())?;
            let mut last = *b"\n";
            if let Some(end) = file.metadata()?.len().checked_sub(1) {
                file.read_exact_at(&mut last, end)?;
            }
            // A line that a killed worker left incomplete would make this one unreadable, too.
            let gap = if last == *b"\n" { "" } else { "\n" };
            file.write_all(format!("{gap}{line}\n").as_bytes())
        };
        append().map_err(|cause| self.unwritable(cause))
    }

    /// Returns the number of attempts that workers began.
    pub fn attempts_begun(&self) -> usize {
        let text = fs::read_to_string(self.attempts()).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        records.filter(|record: &AttemptRecord| record.exit_code.is_none()).count()
    }

    /// Returns the session of the task: the planned one, or that of [`Self::begin_session`].
    pub fn session_id(&self, planned: Uuid) -> Uuid {
        let own = fs::read_to_string(self.session_path()).ok();
        own.and_then(|id| id.trim().parse().ok()).unwrap_or(planned)
    }

    /// Assigns a new session to the task, so that it runs again. A worker in a finished session
    /// would only print the old result.
    ///
    /// # Errors
    /// The file of the session id cannot be written.
    pub fn begin_session(&self) -> Result<(), BatchFolderError> {
        replace_file(self.session_path(), || Ok(format!("{}\n", Uuid::new_v4())))
    }

    /// Removes the result, so that the task is run again.
    ///
    /// # Errors
    /// It cannot be removed. A missing result is not an error.
    pub fn remove_result(&self) -> Result<(), BatchFolderError> {
        remove_if_exists(self.result())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_not_the_temporary_one() {
        let error = replace_file("/proc/plan.json".into(), || Ok(String::new())).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("/proc/plan.json cannot be written: "), "{text}");
        assert!(!text.contains("tmp"), "{text}");
    }
}
