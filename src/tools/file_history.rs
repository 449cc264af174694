//! Keeps the contents of files before the file tools change them, so that a host can restore them.
//!
//! The folder of a session holds `index.jsonl`, a line for the beginning of each prompt and one for
//! its first change of each file, and the former contents in numbered files.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::file_names;
use super::paths::{OPEN_FOLDER_FLAGS, open_real, path_of_open, resolve};
use super::replace_file::replace_atomically;
use crate::process::create_private_folder;

/// The largest file whose lines are counted, in bytes.
const COUNTED_BYTES_MAX: u64 = 10 << 20;

/// The bits of a mode that are kept.
const PERMISSIONS: u32 = 0o777;

/// The files that one prompt changes. Clones share them: the run and its sub-agents.
#[derive(Clone, Debug)]
pub struct FileHistory {
    folder: PathBuf,
    prompt: String,
    /// The files of this prompt whose former content is kept.
    kept: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// A line of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum IndexLine {
    Change(FileChange),
    Begin { prompt: String },
}

/// The first change of a file by a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileChange {
    prompt: String,
    path: PathBuf,
    /// The name of the file with the former content. `None`: there was no file.
    content: Option<String>,
    /// The mode of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<u32>,
}

/// The files that were restored, or would be in a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoredFiles {
    pub files: Vec<PathBuf>,
    /// The number of added lines; like `deletions`, without the common lines at both ends.
    pub insertions: usize,
    pub deletions: usize,
    /// Files that could not be restored, each with the reason.
    pub failures: Vec<String>,
}

/// The reason that files were not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("no files are kept for the user message {0:?}")]
    UnknownPrompt(String),
    #[error("{} is not inside of the work folders any more; nothing was changed", .0.display())]
    Outside(PathBuf),
    #[error("cannot read the kept files: {0}")]
    Unreadable(io::Error),
    #[error("cannot restore {}: {cause}; nothing was changed", path.display())]
    Unrestorable { path: PathBuf, cause: io::Error },
}

/// The mode of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreMode {
    /// The changes are only reported.
    DryRun,
    Restore,
}

impl FileHistory {
    /// Creates the history of the prompt with this id, kept in this folder.
    pub fn new(folder: PathBuf, prompt: String) -> Self {
        Self { folder, prompt, kept: Arc::default() }
    }

    /// Records that the prompt begins, after others that were added to it. Blocks.
    pub fn begin(&self, added: &[String]) -> io::Result<()> {
        let prompts = added.iter().chain([&self.prompt]);
        prompts.cloned().try_for_each(|prompt| self.append(&IndexLine::Begin { prompt }))
    }

    fn append(&self, line: &IndexLine) -> io::Result<()> {
        create_private_folder(&self.folder)?;
        let line = serde_json::to_string(line)?;
        let mut index = private().read(true).append(true).create(true).open(index(&self.folder))?;
        // The last line is incomplete if the disk was full or the process was killed.
        let gap = if ends_within_line(&index)? { "\n" } else { "" };
        index.write_all(format!("{gap}{line}\n").as_bytes())
    }

    /// Keeps the content of a file before its first change by this prompt. Blocks.
    pub(super) fn keep(&self, real: &Path) -> io::Result<()> {
        let mut kept = self.kept.lock();
        if kept.contains(real) {
            return Ok(());
        }
        create_private_folder(&self.folder)?;
        let (content, mode) = match open_real(real, OFlag::O_RDONLY) {
            Ok(mut file) => {
                let name = uuid::Uuid::new_v4().to_string();
                let mut copy = private().create_new(true).open(self.folder.join(&name))?;
                io::copy(&mut file, &mut copy)?;
                (Some(name), Some(file.metadata()?.mode() & PERMISSIONS))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
            Err(error) => return Err(error),
        };
        let path = PathBuf::from(file_names::shown(real));
        let change = FileChange { prompt: self.prompt.clone(), path, content, mode };
        self.append(&IndexLine::Change(change))?;
        kept.insert(real.to_owned());
        Ok(())
    }

    /// Restores every file that was changed since a prompt. `folders` are the histories of
    /// consecutive sessions, in order, and `roots` the folders in which files may be restored.
    /// Blocks.
    ///
    /// # Errors
    /// The prompt is not known, or a file cannot be restored; nothing was changed.
    pub fn restore(
        folders: &[PathBuf],
        prompt: &str,
        roots: &[PathBuf],
        mode: RestoreMode,
    ) -> Result<RestoredFiles, RestoreError> {
        let mut lines = Vec::new();
        for folder in folders {
            let index = read_index(folder).map_err(RestoreError::Unreadable)?;
            lines.extend(index.into_iter().map(|line| (folder, line)));
        }
        let found = |is_meant: &dyn Fn(&str) -> bool| {
            lines.iter().position(|(_, line)| is_meant(line.prompt()))
        };
        // Programs write a UUID in upper case, too.
        let first =
            found(&|id| id == prompt).or_else(|| found(&|id| id.eq_ignore_ascii_case(prompt)));
        let first = first.ok_or_else(|| RestoreError::UnknownPrompt(prompt.to_owned()))?;
        let mut seen = BTreeSet::new();
        let wanted: Vec<(&PathBuf, &FileChange)> = lines[first..]
            .iter()
            .filter_map(|(folder, line)| Some((*folder, line.change()?)))
            .filter(|(_, change)| seen.insert(&change.path))
            .collect();
        let roots: Vec<PathBuf> = roots.iter().map(|root| resolve(root)).collect();
        let is_inside = |path: &PathBuf| {
            resolve(path) == *path && roots.iter().any(|root| path.starts_with(root))
        };
        if let Some((_, change)) = wanted.iter().find(|(_, change)| !is_inside(&change.path)) {
            return Err(RestoreError::Outside(change.path.clone()));
        }
        let mut planned = RestoredFiles::default();
        for (folder, change) in &wanted {
            let failed = |cause| RestoreError::Unrestorable { path: change.path.clone(), cause };
            restore_one(folder, change, RestoreMode::DryRun, &mut planned).map_err(failed)?;
        }
        if mode == RestoreMode::DryRun {
            return Ok(planned);
        }
        let mut restored = RestoredFiles::default();
        for (folder, change) in wanted {
            if let Err(cause) = restore_one(folder, change, mode, &mut restored) {
                restored.failures.push(format!("{}: {cause}", change.path.display()));
            }
        }
        Ok(restored)
    }
}

impl IndexLine {
    fn prompt(&self) -> &str {
        match self {
            Self::Change(FileChange { prompt, .. }) | Self::Begin { prompt } => prompt,
        }
    }

    fn change(&self) -> Option<&FileChange> {
        match self {
            Self::Change(change) => Some(change),
            Self::Begin { .. } => None,
        }
    }
}

fn index(folder: &Path) -> PathBuf {
    folder.join("index.jsonl")
}

/// Options to open files that only their owner can access.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn ends_within_line(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

/// Reads the index, oldest lines first. Incomplete lines are left out: a file is changed only after
/// its line was written as a whole.
fn read_index(folder: &Path) -> io::Result<Vec<IndexLine>> {
    match fs::read(index(folder)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).lines().filter_map(read_line).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read_line(line: &str) -> Option<IndexLine> {
    Some(match serde_json::from_str(line).ok()? {
        IndexLine::Change(change) => {
            IndexLine::Change(FileChange { path: file_names::find(&change.path), ..change })
        }
        begin @ IndexLine::Begin { .. } => begin,
    })
}

fn restore_one(
    folder: &Path,
    change: &FileChange,
    mode: RestoreMode,
    restored: &mut RestoredFiles,
) -> io::Result<()> {
    let path = &change.path;
    let wanted = change.content.as_ref().map(|name| fs::read(folder.join(name))).transpose()?;
    let current = match open_real(path, OFlag::O_RDONLY) {
        Ok(file) => Some(read_all(file)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if wanted == current {
        return Ok(());
    }
    let (added, removed) = count_lines(current.as_deref(), wanted.as_deref());
    if mode == RestoreMode::Restore {
        match &wanted {
            Some(content) => {
                let existing = fs::symlink_metadata(path).ok();
                let never = CancellationToken::new();
                replace_atomically(path, content, existing.as_ref(), &never)?;
                if let Some(mode) = change.mode.filter(|_| existing.is_none()) {
                    // File systems with one mode for all files refuse it; the content is there.
                    let _ = set_mode(path, mode);
                }
            }
            None => remove(path)?,
        }
    }
    restored.files.push(path.clone());
    restored.insertions += added;
    restored.deletions += removed;
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    open_real(path, OFlag::O_RDONLY)?.set_permissions(Permissions::from_mode(mode & PERMISSIONS))
}

fn read_all(mut file: File) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file any more"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a file from the folder that its path means now, even if a link replaces the folder
/// meanwhile.
fn remove(path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no parent folder"))?;
    let held = open_real(folder, OPEN_FOLDER_FLAGS)?;
    fs::remove_file(path_of_open(&held, folder).join(path.file_name().unwrap_or_default()))
}

/// Counts the lines that a change adds and removes, without the common lines at both ends.
fn count_lines(from: Option<&[u8]>, to: Option<&[u8]>) -> (usize, usize) {
    let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
    let is_large = |bytes: &[u8]| u64::try_from(bytes.len()).is_ok_and(|it| it > COUNTED_BYTES_MAX);
    if is_large(from) || is_large(to) {
        return (0, 0);
    }
    let lines = |bytes| <[u8]>::split_inclusive(bytes, |byte| *byte == b'\n').collect::<Vec<_>>();
    let (from, to) = (lines(from), lines(to));
    let head = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let (from, to) = (&from[head..], &to[head..]);
    let tail = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
    (to.len() - tail, from.len() - tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_after_a_torn_one_is_read() {
        let scratch = tempfile::tempdir().expect("a folder");
        let history = FileHistory::new(scratch.path().to_owned(), "b".to_owned());
        history.begin(&["a".to_owned()]).expect("it can be written");
        // The end is within a character.
        let torn = [&b"{\"prompt\":\"c\",\"path\":\"/x"[..], &"é".as_bytes()[..1]].concat();
        let mut file = OpenOptions::new().append(true).open(index(scratch.path())).expect("a file");
        file.write_all(&torn).expect("it can be written");
        history.begin(&[]).expect("it can be written");
        let lines = read_index(scratch.path()).expect("it can be read");
        let prompts: Vec<&str> = lines.iter().map(IndexLine::prompt).collect();
        assert_eq!(prompts, ["a", "b", "b"]);
    }
}
