//! Files with the content of sessions, for `--output`.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::super::usage::UsageError;

/// A file that is written in one step, so that a reader never sees half of it. Like a journal, only
/// its owner may read it.
pub(in crate::cli) struct PrivateFile {
    temporary: NamedTempFile,
    path: PathBuf,
}

impl PrivateFile {
    /// Creates the temporary file next to its final place.
    ///
    /// # Errors
    /// Its folder is not writable.
    pub(in crate::cli) fn create(path: &Path) -> Result<Self, UsageError> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let temporary = NamedTempFile::new_in(folder).map_err(|error| cannot(path, &error))?;
        Ok(Self { temporary, path: path.to_owned() })
    }

    pub(super) fn temporary(&mut self) -> &mut NamedTempFile {
        &mut self.temporary
    }

    pub(super) fn not_written(&self, error: &io::Error) -> UsageError {
        cannot(&self.path, error)
    }

    /// Moves what was written to its place.
    ///
    /// # Errors
    /// It could not be moved.
    pub(super) fn move_to_place(self) -> Result<(), UsageError> {
        let Self { temporary, path } = self;
        temporary.persist(&path).map_err(|error| cannot(&path, &error.error))?;
        Ok(())
    }

    /// Writes a text and moves it to its place.
    ///
    /// # Errors
    /// It could not be written or moved.
    pub(in crate::cli) fn publish(mut self, text: &str) -> Result<(), UsageError> {
        if let Err(error) = self.temporary.write_all(text.as_bytes()) {
            return Err(self.not_written(&error));
        }
        self.move_to_place()
    }
}

fn cannot(path: &Path, error: &io::Error) -> UsageError {
    UsageError::new(format!(
        "cannot write {}: {error}; name a file in a folder that is writable",
        path.display()
    ))
}
