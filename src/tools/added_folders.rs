//! Folders that a host adds, during a run, to those in which it may work.

use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;
use parking_lot::RwLock;

/// The added folders. Clones share them: the run, its sub-agents and later turns.
#[derive(Clone, Debug, Default)]
pub(super) struct AddedFolders(Arc<RwLock<Vec<AddedFolder>>>);

/// An added folder, as it was when it was added.
#[derive(Debug)]
pub(super) struct AddedFolder {
    /// A real path.
    path: PathBuf,
    /// While it is open, no other folder gets its inode number.
    opened: File,
}

impl AddedFolders {
    /// Adds folders. One that was added before is replaced.
    pub(super) fn add(&self, folders: Vec<AddedFolder>) {
        let mut all = self.0.write();
        for folder in folders {
            all.retain(|known| known.path != folder.path);
            all.push(folder);
        }
    }

    pub(super) fn remove(&self, folders: &[PathBuf]) {
        self.0.write().retain(|folder| !folders.contains(&folder.path));
    }

    /// True if a folder with this path was added.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.read().iter().any(|folder| folder.path == path)
    }

    /// True if a real path is in one of the folders.
    pub(super) fn contains(&self, real: &Path) -> bool {
        self.0.read().iter().any(|folder| real.starts_with(&folder.path))
    }

    /// The paths of those folders that still exist. A command may have replaced the others, or a
    /// folder above them, by a link to a folder that was not added.
    pub(super) fn existing(&self) -> Vec<PathBuf> {
        let all = self.0.read();
        all.iter().filter(|folder| folder.exists()).map(|folder| folder.path.clone()).collect()
    }
}

impl AddedFolder {
    /// Opens the folder at a real path. `None` if there is none.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        Some(Self { path: path.to_owned(), opened }).filter(Self::exists)
    }

    /// True if the folder is still at its path, and no link is in the path.
    fn exists(&self) -> bool {
        let identity = |facts: Metadata| (facts.dev(), facts.ino());
        let found = fs::symlink_metadata(&self.path).map(identity);
        let is_same = self
            .opened
            .metadata()
            .map(identity)
            .is_ok_and(|own| found.is_ok_and(|found| found == own));
        is_same && fs::canonicalize(&self.path).is_ok_and(|real| real == self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> Vec<AddedFolder> {
        vec![AddedFolder::open(path).expect("a folder")]
    }

    #[test]
    fn a_folder_that_was_replaced_does_not_count_until_it_is_added_again() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (above, home, moved) = (top.join("above"), top.join("home"), top.join("moved"));
        let folder = above.join("folder");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(home.join("folder")).unwrap();
        let added = AddedFolders::default();
        added.add(open(&folder));
        assert_eq!(added.existing(), [folder.as_path()]);

        fs::rename(&folder, &moved).unwrap();
        assert!(added.existing().is_empty());
        for target in [&home, &moved] {
            symlink(target, &folder).unwrap();
            assert!(added.existing().is_empty());
            assert!(AddedFolder::open(&folder).is_none(), "it is a link");
            fs::remove_file(&folder).unwrap();
        }
        fs::create_dir(&folder).unwrap();
        assert!(added.existing().is_empty(), "it is another folder");
        added.add(open(&folder));
        assert_eq!(added.existing(), [folder.as_path()]);

        fs::rename(&above, moved.join("above")).unwrap();
        symlink(&home, &above).unwrap();
        assert!(added.existing().is_empty());
        assert!(AddedFolder::open(&folder).is_none(), "a link is above it");
        assert!(added.has(&folder), "it can be removed");
    }

    #[test]
    fn a_folder_that_is_added_twice_is_removed_at_once() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let added = AddedFolders::default();
        added.add([open(&top), open(&top)].into_iter().flatten().collect());
        added.add(open(&top));
        assert_eq!(added.existing(), [top.as_path()]);
        added.remove(std::slice::from_ref(&top));
        assert!(!added.contains(&top.join("file")) && added.existing().is_empty());
    }
}
