//! Tracks the files that the model has read, so that no unread or changed file is overwritten, and
//! the formats of those that it has changed.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::outcome::ToolError;
use super::text_file::{FileStyle, FormerStyle};

/// The files whose contents are in a conversation. Clones share them: the turns of a host.
#[derive(Clone, Debug, Default)]
pub struct FilesRead {
    files: Arc<Mutex<HashMap<PathBuf, FileStamp>>>,
    /// The formats of files as they were written last.
    styles: Arc<Mutex<HashMap<PathBuf, (FileStamp, FileStyle)>>>,
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

    /// Remembers the format of a file that was written. `None`: it was created.
    pub(super) fn note_style(&self, real: &Path, metadata: &Metadata, style: Option<FileStyle>) {
        let mut styles = self.styles.lock();
        match style {
            Some(style) => {
                styles.insert(real.to_path_buf(), (FileStamp::of(metadata), style));
            }
            None => drop(styles.remove(real)),
        }
    }

    /// The format of a file as it was written last.
    pub(super) fn former_style(&self, real: &Path, metadata: &Metadata) -> FormerStyle {
        match self.styles.lock().get(real) {
            None => FormerStyle::Unknown,
            Some((stamp, style)) if *stamp == FileStamp::of(metadata) => {
                FormerStyle::Unchanged(*style)
            }
            Some((_, style)) => FormerStyle::Changed(*style),
        }
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
