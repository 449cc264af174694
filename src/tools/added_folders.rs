//! Folders that a host adds, during a run, to those in which it may work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

/// The added folders, as real paths. Clones share them: the run, its sub-agents and later turns.
#[derive(Clone, Debug, Default)]
pub(super) struct AddedFolders(Arc<RwLock<Vec<PathBuf>>>);

impl AddedFolders {
    pub(super) fn add(&self, folders: Vec<PathBuf>) {
        self.0.write().extend(folders);
    }

    pub(super) fn remove(&self, folders: &[PathBuf]) {
        self.0.write().retain(|folder| !folders.contains(folder));
    }

    /// True if a real path is in one of the folders.
    pub(super) fn contains(&self, real: &Path) -> bool {
        self.0.read().iter().any(|folder| real.starts_with(folder))
    }

    pub(super) fn list(&self) -> Vec<PathBuf> {
        self.0.read().clone()
    }
}
