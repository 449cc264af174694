//! Determines the folder in which a command ended.
//!
//! The shell writes its folder to a file in the scratch folder. The command can replace that file
//! by a link to a secret, by a pipe or by a device, and outlast is not sandboxed as the command is.
//! So it never opens the name again, and reads only the file that it created before the command
//! began. The next command gets the same file, if the name still leads to it: on some file systems,
//! a new file takes a sixth of the time of a short command.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::capture::OutputFolder;
use super::paths::{PATH_BYTES_MAX, resolve};

/// The maximum time to check the folder. Only a hanging disk takes longer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The file to which a shell writes its final folder. Removed when this is dropped.
#[derive(Debug)]
pub(super) struct FinalCwd {
    path: PathBuf,
    file: File,
}

/// The content of that file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CwdReport {
    /// Nothing is written, as for a command that replaced its shell.
    Nothing,
    /// An existing folder, with links resolved.
    Folder(PathBuf),
    /// Not a folder, or not accessible.
    Invalid,
}

impl FinalCwd {
    /// Creates the file. Call it before the command starts: later the scratch folder may contain
    /// anything.
    pub(super) async fn create(scratch: &OutputFolder) -> io::Result<Self> {
        let (path, file) = scratch.create("cwd").await?;
        Ok(Self { path, file: file.into_std().await })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The shell code that writes the folder on exit.
    pub(super) fn trap(&self) -> String {
        let path = self.path.display().to_string().replace('\'', "'\\''");
        let saving = format!("{{ pwd -P 1<> '{path}'; }} 2> /dev/null").replace('\'', "'\\''");
        // On one line with the command, whose lines bash counts in errors.
        format!("trap '{saving}' EXIT; ")
    }

    /// Reads the file after the command has ended. Also returns the file, if another command can
    /// use it.
    pub(super) async fn read(self) -> (CwdReport, Option<Self>) {
        let reading = tokio::task::spawn_blocking(move || {
            let (report, length) = read_folder(&self.file);
            // Otherwise a shell that could not be killed may still write there.
            let is_over = matches!(report, CwdReport::Folder(_));
            let can_stay = is_over && self.is_in_place() && self.clear(length).is_ok();
            (report, can_stay.then_some(self))
        });
        let read = tokio::time::timeout(CHECK_TIMEOUT, reading).await;
        read.ok().and_then(Result::ok).unwrap_or((CwdReport::Invalid, None))
    }

    /// Overwrites the first bytes of the file with NUL for the next command. It is not truncated:
    /// ext4 writes a file to the disk when it is closed after that.
    fn clear(&self, length: usize) -> io::Result<()> {
        self.file.write_all_at(&vec![0; length], 0)
    }

    /// True if the name still leads to the file, and no other name does. A background command may
    /// have put a link there: check this before each command, which may have more rights.
    pub(super) fn is_in_place(&self) -> bool {
        let facts =
            self.file.metadata().and_then(|own| Ok((own, fs::symlink_metadata(&self.path)?)));
        facts.is_ok_and(|(own, named)| {
            (own.dev(), own.ino()) == (named.dev(), named.ino()) && own.nlink() == 1
        })
    }
}

impl Drop for FinalCwd {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads the file up to the first NUL, and checks its content. Also returns the number of bytes.
fn read_folder(file: &File) -> (CwdReport, usize) {
    // A path and its line end, and one more byte to detect a longer content.
    let mut bytes = vec![0; PATH_BYTES_MAX + 2];
    let Ok(length) = file.read_at(&mut bytes, 0) else { return (CwdReport::Invalid, 0) };
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(length));
    (parse_folder(bytes), length)
}

/// Parses the content and checks that the folder exists. Accesses the file system.
fn parse_folder(mut bytes: Vec<u8>) -> CwdReport {
    if bytes.is_empty() {
        return CwdReport::Nothing;
    }
    bytes.pop_if(|last| *last == b'\n');
    let folder = PathBuf::from(OsString::from_vec(bytes));
    if folder.as_os_str().len() > PATH_BYTES_MAX || !folder.is_absolute() || !folder.is_dir() {
        return CwdReport::Invalid;
    }
    CwdReport::Folder(resolve(&folder))
}
