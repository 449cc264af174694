//! Determines the folder in which a command ended.
//!
//! The shell writes its folder to a file in the scratch folder. The command can replace that file
//! by a link to a secret, by a pipe or by a device, and outlast is not sandboxed as the command is.
//! So it never opens the name again, and reads only the file that it created before the command
//! began.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::capture::OutputFolder;
use super::paths::{PATH_BYTES_MAX, resolve};

/// The maximum time to check the folder. Only a hanging disk takes longer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The file to which a shell writes its final folder.
#[derive(Debug)]
pub(super) struct FinalCwd {
    path: PathBuf,
    file: tokio::fs::File,
}

/// The content of that file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CwdReport {
    /// Empty, as for a command that replaced its shell.
    Nothing,
    /// An existing folder, with links resolved.
    Folder(PathBuf),
    /// Not a folder, or not accessible.
    Invalid,
}

impl FinalCwd {
    /// Creates the file. Call it before the command starts: later the scratch folder may contain
    /// anything.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) async fn create(scratch: &OutputFolder) -> io::Result<Self> {
        let (path, file) = scratch.create("cwd").await?;
        Ok(Self { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The shell code that writes the folder on exit.
    pub(super) fn trap(&self) -> String {
        let path = self.path.display().to_string().replace('\'', "'\\''");
        let saving = format!("{{ pwd -P >| '{path}'; }} 2> /dev/null").replace('\'', "'\\''");
        format!("trap '{saving}' EXIT\n")
    }

    /// Reads the file after the command has ended.
    pub(super) async fn read(self) -> CwdReport {
        let Self { path, file } = self;
        let looking = async {
            let file = file.into_std().await;
            tokio::task::spawn_blocking(move || {
                let _ = fs::remove_file(&path);
                read_folder(&file)
            })
            .await
            .unwrap_or(CwdReport::Invalid)
        };
        tokio::time::timeout(CHECK_TIMEOUT, looking).await.unwrap_or(CwdReport::Invalid)
    }
}

/// Reads the file, and checks its content.
fn read_folder(file: &File) -> CwdReport {
    let mut bytes = Vec::with_capacity(256);
    // A path and its line end, and one more byte to detect a longer content.
    let most = PATH_BYTES_MAX as u64 + 2;
    match file.take(most).read_to_end(&mut bytes) {
        Ok(_) => parse_folder(bytes),
        Err(_) => CwdReport::Invalid,
    }
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
