//! Tracks the files that the model has read, so that no unread or changed file is overwritten, and
//! the formats of those that it has changed.

use std::collections::{BTreeSet, HashMap};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;

use super::outcome::ToolError;
use super::text_file::{FileStyle, FormerStyle};
use crate::types::{FileStamp, ReadFile};

/// The files whose contents are in a conversation. Clones share them: the turns of a host.
#[derive(Clone, Debug, Default)]
pub struct FilesRead {
    files: Arc<Mutex<HashMap<PathBuf, FileStamp>>>,
    /// The files that were added or removed since the changes were last taken.
    changed: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// The formats of files as they were written last.
    styles: Arc<Mutex<HashMap<PathBuf, (FileStamp, FileStyle)>>>,
}

fn stamp(metadata: &Metadata) -> FileStamp {
    let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified = modified.and_then(|since| u64::try_from(since.as_nanos()).ok());
    FileStamp { bytes: metadata.len(), modified }
}

impl FilesRead {
    pub(super) fn note(&self, real: &Path, metadata: &Metadata) {
        self.files.lock().insert(real.to_path_buf(), stamp(metadata));
        self.changed.lock().insert(real.to_path_buf());
    }

    /// Forgets that the model has read a file, so that it must Read it again.
    pub(super) fn forget(&self, real: &Path) {
        self.files.lock().remove(real);
        self.changed.lock().insert(real.to_path_buf());
    }

    /// Takes the changes since the last call. Files whose names are not UTF-8 are left out.
    pub(super) fn take_changes(&self) -> Vec<ReadFile> {
        let changed = std::mem::take(&mut *self.changed.lock());
        let files = self.files.lock();
        let read_file = |real: &PathBuf| {
            Some(ReadFile { path: real.to_str()?.to_owned(), stamp: files.get(real).copied() })
        };
        changed.iter().filter_map(read_file).collect()
    }

    /// Adds the files that an earlier process has recorded, except those that are known.
    pub(super) fn restore(&self, recorded: Vec<ReadFile>) {
        let mut files = self.files.lock();
        for ReadFile { path, stamp } in recorded {
            if let Some(stamp) = stamp {
                files.entry(PathBuf::from(path)).or_insert(stamp);
            }
        }
    }

    /// Remembers the format of a file that was written. `None`: it was created.
    pub(super) fn note_style(&self, real: &Path, metadata: &Metadata, style: Option<FileStyle>) {
        let mut styles = self.styles.lock();
        match style {
            Some(style) => {
                styles.insert(real.to_path_buf(), (stamp(metadata), style));
            }
            None => drop(styles.remove(real)),
        }
    }

    /// The format of a file as it was written last.
    pub(super) fn former_style(&self, real: &Path, metadata: &Metadata) -> FormerStyle {
        match self.styles.lock().get(real) {
            None => FormerStyle::Unknown,
            Some((known, style)) if *known == stamp(metadata) => FormerStyle::Unchanged(*style),
            Some((_, style)) => FormerStyle::Changed(*style),
        }
    }

    /// Checks that the model has read the current content of the file.
    pub(super) fn check(&self, real: &Path, metadata: &Metadata) -> Result<(), ToolError> {
        let files = self.files.lock();
        match files.get(real) {
            None => Err("the file has not been read yet: Read it first".into()),
            Some(known) if *known != stamp(metadata) => {
                Err("the file has changed since it was read: Read it again".into())
            }
            Some(_) => Ok(()),
        }
    }
}
