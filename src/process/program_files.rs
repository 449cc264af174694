//! Files of programs: their state when the run began, and detection of changes.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::file_reads::hash_regular;

/// Extensions of files that count as programs wherever a command names them. Other files count if
/// they are executable.
const SCRIPTS: [&str; 15] = [
    "sh", "bash", "zsh", "fish", "py", "js", "mjs", "cjs", "ts", "mts", "rb", "pl", "php", "lua",
    "jar",
];

/// The reason that a program is not run, or that its decision does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramChange {
    #[error("{} was changed after the run began, so it does not count", .0.display())]
    Changed(PathBuf),
    #[error("{} was removed after the run began", .0.display())]
    Removed(PathBuf),
    #[error("{} could not be read when the run began, so it does not count", .0.display())]
    Unread(PathBuf),
    #[error("{} cannot be compared with its state when the run began: {why}", .path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} was not there when the run began, so it is not run", .0.display())]
    Appeared(PathBuf),
}

/// The state, when the run began, of a path that a job names and commands can write to.
#[derive(Clone, Debug)]
pub(super) enum KnownEntry {
    Program {
        /// The file that the path led to.
        real: PathBuf,
        length: u64,
        /// `None` if the file could not be read.
        sha256: Option<Vec<u8>>,
    },
    /// A file that is not run, and may change.
    Data,
    Folder,
}

/// The programs of a running job, with the marks that show whether one was replaced meanwhile.
#[derive(Debug, Default)]
pub(super) struct UsedFiles(pub(super) Vec<(PathBuf, FileMark)>);

/// The metadata of a file that changes when its content is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileMark {
    device: u64,
    number: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl KnownEntry {
    /// Reads the state of a path. `None` if nothing exists there.
    pub(super) fn read(path: &Path, is_program: bool) -> Option<Self> {
        let real = fs::canonicalize(path).ok()?;
        let facts = fs::metadata(&real).ok()?;
        if facts.is_dir() {
            return Some(Self::Folder);
        }
        if !is_program {
            return Some(Self::Data);
        }
        let sha256 = hash_regular(&real).ok();
        Some(Self::Program { real, length: facts.len(), sha256 })
    }
}

/// Compares a program with its state when the run began. Returns the mark that shows a later
/// replacement.
pub(super) fn compare(
    path: &Path,
    was: &Path,
    length: u64,
    sha256: Option<&[u8]>,
) -> Result<FileMark, ProgramChange> {
    let real = fs::canonicalize(path).map_err(|error| ProgramChange::unreadable(path, &error))?;
    let changed = || ProgramChange::Changed(path.to_owned());
    let mark = FileMark::of(&real).ok_or_else(changed)?;
    if real != was || mark.length != length {
        return Err(changed());
    }
    let sha256 = sha256.ok_or_else(|| ProgramChange::Unread(path.to_owned()))?;
    let now = hash_regular(&real).map_err(|error| ProgramChange::unreadable(path, &error))?;
    if now == sha256 { Ok(mark) } else { Err(changed()) }
}

impl ProgramChange {
    fn unreadable(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        if error.kind() == io::ErrorKind::NotFound {
            Self::Removed(path)
        } else {
            Self::Unreadable { path, why: error.to_string() }
        }
    }
}

impl UsedFiles {
    /// Checks that the files are still those that were compared. This detects a program that was
    /// swapped only for the moment of its start.
    ///
    /// # Errors
    /// A file was changed, replaced or removed.
    pub(super) fn check(&self) -> Result<(), ProgramChange> {
        let changed = self.0.iter().find(|(path, mark)| {
            let real = fs::canonicalize(path).ok();
            real.and_then(|real| FileMark::of(&real)) != Some(*mark)
        });
        changed.map_or(Ok(()), |(path, _)| Err(ProgramChange::Changed(path.clone())))
    }
}

impl FileMark {
    fn of(path: &Path) -> Option<Self> {
        let facts = fs::symlink_metadata(path).ok().filter(Metadata::is_file)?;
        Some(Self {
            device: facts.dev(),
            number: facts.ino(),
            length: facts.len(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
        })
    }
}

/// Returns true if a file is executable, or a script by its extension.
pub(super) fn is_runnable(path: &Path) -> bool {
    let Ok(facts) = fs::metadata(path) else { return false };
    let extension = path.extension().and_then(OsStr::to_str);
    let is_script = extension.is_some_and(|extension| SCRIPTS.contains(&extension));
    facts.is_file() && (is_script || facts.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_not_called_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [program, gone, circle] =
            ["program", "gone", "circle"].map(|name| folder.path().join(name));
        fs::write(&program, "x").expect("a file");
        std::os::unix::fs::symlink(&circle, &circle).expect("a link");
        let program = fs::canonicalize(&program).expect("a path");
        let sha256 = hash_regular(&program).expect("a file");
        for (path, known, error) in [
            (&program, Some(&sha256[..]), None),
            (&program, Some(&[0; 32][..]), Some("was changed after the run began")),
            (&program, None, Some("could not be read when the run began")),
            (&gone, None, Some("was removed after the run began")),
            (&circle, None, Some("cannot be compared with its state when the run began: ")),
        ] {
            let compared = compare(path, path, 1, known).map_err(|why| why.to_string()).err();
            let is_as_expected = match (&compared, error) {
                (Some(why), Some(error)) => why.contains(error),
                (why, error) => why.is_none() && error.is_none(),
            };
            assert!(is_as_expected, "{compared:?}, expected {error:?}");
        }
    }
}
