//! Tracks the files that the model has read, so that no unread or changed file is overwritten.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::outcome::ToolError;

#[derive(Debug, Default)]
pub(super) struct FilesRead {
    files: Mutex<HashMap<PathBuf, FileStamp>>,
}

/// The state of a file when it was read. Its mode and link count may change without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl FilesRead {
    pub(super) fn note(&self, real: &Path, metadata: &Metadata) {
        let mut files = self.files.lock();
        files.insert(real.to_path_buf(), FileStamp::of(metadata));
    }

    /// Requires another Read: what the model knows of the file no longer applies.
    pub(super) fn forget(&self, real: &Path) {
        self.files.lock().remove(real);
    }

    /// Checks that the model has read the current content of the file.
    ///
    /// # Errors
    /// The file was not read, or has changed since; the error says what the model must do first.
    pub(super) fn check(&self, real: &Path, metadata: &Metadata) -> Result<(), ToolError> {
        let files = self.files.lock();
        match files.get(real) {
            None => Err("the file has not been read yet: Read it first".into()),
            Some(stamp) if *stamp != FileStamp::of(metadata) => {
                Err("the file has changed since it was read: Read it again".into())
            }
            Some(_) => Ok(()),
        }
    }
}
