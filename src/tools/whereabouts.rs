//! Which folder a command ended in, as its shell says it.
//!
//! The shell writes it to a file of the scratch folder, and there the command may change what it
//! likes: it may put a link to a secret, a pipe or a device in that file's place. outlast is not
//! fenced as the command is, so it never opens that name again. It reads the very file that it
//! made before the command began.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::capture::OutputFolder;
use super::places::{PATH_BYTES_MAX, resolve};

/// How long looking at the folder may take. Longer only if its disk hangs.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a shell is to say it.
#[derive(Debug)]
pub(super) struct FinalCwd {
    path: PathBuf,
    file: File,
}

/// What it said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CwdReport {
    /// Nothing, as a command that replaced its shell.
    Nothing,
    /// This folder, which is there. Real.
    Folder(PathBuf),
    /// What is no folder, or cannot be looked at.
    Invalid,
}

impl FinalCwd {
    /// Belongs before the command: what is in the scratch folder later may be anything.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) async fn create(scratch: &OutputFolder) -> io::Result<Self> {
        let (path, file) = scratch.create("cwd").await?;
        Ok(Self { path, file })
    }

    /// What has a shell say it at its end.
    pub(super) fn trap(&self) -> String {
        let path = self.path.display().to_string().replace('\'', "'\\''");
        let saving = format!("{{ pwd -P >| '{path}'; }} 2> /dev/null").replace('\'', "'\\''");
        format!("trap '{saving}' EXIT\n")
    }

    /// Reads it, when the command is over.
    pub(super) async fn read(self) -> CwdReport {
        let Self { path, file } = self;
        let looking = async {
            let _ = tokio::fs::remove_file(&path).await;
            let mut said = Vec::new();
            // A path and the end of its line, and one byte more to tell what is too long.
            let most = PATH_BYTES_MAX as u64 + 2;
            if file.take(most).read_to_end(&mut said).await.is_err() {
                return CwdReport::Invalid;
            }
            tokio::task::spawn_blocking(move || parse_folder(said)).await.unwrap_or(CwdReport::Invalid)
        };
        tokio::time::timeout(CHECK_TIMEOUT, looking).await.unwrap_or(CwdReport::Invalid)
    }
}

/// Takes it for what it should be, or for nothing. Looks at the file system.
fn parse_folder(mut said: Vec<u8>) -> CwdReport {
    if said.is_empty() {
        return CwdReport::Nothing;
    }
    said.pop_if(|last| *last == b'\n');
    let folder = PathBuf::from(OsString::from_vec(said));
    if folder.as_os_str().len() > PATH_BYTES_MAX || !folder.is_absolute() || !folder.is_dir() {
        return CwdReport::Invalid;
    }
    CwdReport::Folder(resolve(&folder))
}
