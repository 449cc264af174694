//! Remembers which files the model has seen, and as what, so that nothing unseen is overwritten.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

#[derive(Debug, Default)]
pub(super) struct FilesRead {
    files: Mutex<HashMap<PathBuf, FileStamp>>,
}

/// What a file looked like. Its mode and links may change without harm.
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
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(real.to_path_buf(), FileStamp::of(metadata));
    }

    /// Whether the model knows what the file holds now.
    ///
    /// # Errors
    /// What to do first, for the model.
    pub(super) fn check(&self, real: &Path, metadata: &Metadata) -> Result<(), &'static str> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match files.get(real) {
            None => Err("the file has not been read yet: Read it first"),
            Some(stamp) if *stamp != FileStamp::of(metadata) => {
                Err("the file has changed since it was read: Read it again")
            }
            Some(_) => Ok(()),
        }
    }
}
