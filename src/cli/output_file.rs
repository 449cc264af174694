//! Files that the user names for output. Their folder is opened before the first command runs, and
//! they are written relative to it: commands of the model may be able to write to it too.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::geteuid;
use uuid::Uuid;

use crate::config::file::is_missing;
use crate::process::HeldFolder;

/// Names of standard output. Opened as files, they would be links to a device, a pipe or a file
/// that other programs also write.
pub(super) const STANDARD_OUTPUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// The mode of an output file, from which the umask is taken.
const MODE_BEFORE_UMASK: u32 = 0o666;

/// Durability of the result file when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultRetention {
    /// Synced to the disk.
    Synced,
    /// Written without waiting for the disk, which may hang.
    AtOnce,
}

/// The permissions of a new output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// As the umask permits.
    Umask,
    /// Its owner only, as with a journal.
    Owner,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Self::Umask => MODE_BEFORE_UMASK,
            Self::Owner => 0o600,
        }
    }
}

/// Reason that a file cannot be used for output, with advice.
#[derive(Debug, thiserror::Error)]
pub enum OutputFileError {
    #[error("is a folder; name a file")]
    Folder,
    #[error("standard output has the result already; name a file")]
    StandardOutput,
    #[error("is a device or a pipe; name a regular file")]
    Special,
    #[error("is a symbolic link, which is not followed; name the file itself")]
    Link,
    #[error("has a second name (a hard link); remove it, or name another")]
    HardLink,
    #[error("belongs to another user; remove it, or name another")]
    Foreign,
    #[error("the folder does not exist; make it")]
    NoFolder,
    #[error("the folder cannot be written to: {0}; name another")]
    FolderClosed(io::Error),
    #[error("it cannot be written: {0}; name another")]
    Unusable(io::Error),
}

/// A file that the user named for output, in a folder that is held open.
#[derive(Clone, Debug)]
pub struct OutputFile {
    path: PathBuf,
    name: OsString,
    folder: Arc<HeldFolder>,
}

impl OutputFile {
    /// Opens the folder of a file, without creating the file.
    ///
    /// # Errors
    /// There is no such folder, or the existing file must not be replaced.
    pub fn open(path: &Path) -> Result<Self, OutputFileError> {
        let name = path.file_name().ok_or(OutputFileError::Folder)?.to_owned();
        // The path of `-` may be in the folder of `-C`.
        if name == "-" || STANDARD_OUTPUT.iter().any(|name| path == Path::new(name)) {
            return Err(OutputFileError::StandardOutput);
        }
        let folder = HeldFolder::open(folder_of(path)).map_err(|error| {
            if is_missing(&error) {
                OutputFileError::NoFolder
            } else {
                OutputFileError::FolderClosed(error)
            }
        })?;
        let file = Self { path: path.to_owned(), name, folder: Arc::new(folder) };
        if let Some(found) = file.folder.find(&file.name).map_err(OutputFileError::Unusable)? {
            file.check(&found)?;
        }
        file.folder.check_writable().map_err(OutputFileError::FolderClosed)?;
        Ok(file)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if both are the same file of one folder.
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |file: &Self| file.folder.metadata().map(|facts| (facts.st_dev, facts.st_ino));
        let is_same = matches!((place(self), place(other)), (Ok(one), Ok(two)) if one == two);
        self.name == other.name && is_same
    }

    /// Checks an existing file of this name. In a folder like `/tmp` any user can put a file there,
    /// and a file of another user keeps its owner's access.
    fn check(&self, found: &FileStat) -> Result<(), OutputFileError> {
        match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => {}
            SFlag::S_IFLNK => return Err(OutputFileError::Link),
            SFlag::S_IFDIR => return Err(OutputFileError::Folder),
            _ => return Err(OutputFileError::Special),
        }
        let folder = self.folder.metadata().map_err(OutputFileError::Unusable)?;
        let mode = Mode::from_bits_truncate(folder.st_mode);
        let is_shared = mode.contains(Mode::S_ISVTX | Mode::S_IWOTH);
        let user = geteuid();
        // Root often works for the owner of the folder, as in containers.
        let for_owner = user.is_root() && !is_shared && found.st_uid == folder.st_uid;
        if found.st_uid == user.as_raw() || for_owner {
            return Ok(());
        }
        Err(OutputFileError::Foreign)
    }

    /// Opens the file in its place, or creates it.
    ///
    /// # Errors
    /// It is not a regular file of the user, or it has a second name: it may be a hard link to a
    /// file of another user.
    pub fn append(&self) -> Result<File, OutputFileError> {
        self.check_open(self.folder.append(&self.name, MODE_BEFORE_UMASK))
    }

    /// Opens the file in its place, without its content, or creates it.
    ///
    /// # Errors
    /// As [`Self::append`]; or its content cannot be removed.
    fn empty(&self) -> Result<File, OutputFileError> {
        let file = self.check_open(self.folder.open_in_place(&self.name, MODE_BEFORE_UMASK))?;
        let facts = fstat(&file).map_err(|errno| OutputFileError::Unusable(errno.into()))?;
        if facts.st_size != 0 {
            file.set_len(0).map_err(OutputFileError::Unusable)?;
        }
        Ok(file)
    }

    /// Checks a file that was opened in its place.
    fn check_open(&self, opened: io::Result<File>) -> Result<File, OutputFileError> {
        let file = opened.map_err(|error| {
            let is_link = error.raw_os_error() == Some(Errno::ELOOP as i32);
            if is_link { OutputFileError::Link } else { OutputFileError::Unusable(error) }
        })?;
        let facts = fstat(&file).map_err(|errno| OutputFileError::Unusable(errno.into()))?;
        self.check(&facts)?;
        if facts.st_nlink > 1 {
            return Err(OutputFileError::HardLink);
        }
        Ok(file)
    }

    /// Removes an older file, so that it is not mistaken for that of this run. If the file is a
    /// mount point, as in containers, its content is removed.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> Result<(), OutputFileError> {
        match self.folder.remove(&self.name) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => self.empty().map(drop),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(OutputFileError::Unusable(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes the file atomically: to a temporary file next to it, then renamed.
    ///
    /// # Errors
    /// The step that failed. An older file is then unchanged.
    pub fn write(&self, line: &str, how: ResultRetention) -> anyhow::Result<()> {
        self.stage(line, how)?.publish(how)
    }

    /// Writes a line to a temporary file next to the file. The mode of the file follows the umask.
    ///
    /// # Errors
    /// The step that failed.
    pub fn stage(&self, line: &str, how: ResultRetention) -> anyhow::Result<StagedFile> {
        let mut staged = self.begin(Readers::Umask)?;
        let line = format!("{line}\n");
        staged.write_all(line.as_bytes()).context("the write failed")?;
        staged.sync(how)?;
        Ok(staged)
    }

    /// Creates an empty temporary file next to the file.
    ///
    /// # Errors
    /// The file could not be created.
    pub fn begin(&self, readers: Readers) -> anyhow::Result<StagedFile> {
        let name = OsString::from(format!(".outlast-{}", Uuid::new_v4().simple()));
        let file = self.folder.create_new(&name, readers.mode()).map_err(|error| {
            let removed = self.folder.metadata().is_ok_and(|folder| folder.st_nlink == 0);
            let what = if removed { "its folder was removed" } else { "no file can be made there" };
            anyhow::Error::new(error).context(what)
        })?;
        let beside = TemporaryName { folder: Arc::clone(&self.folder), name };
        Ok(StagedFile { file, beside, place: self.clone() })
    }
}

/// Returns the folder in a path to a file.
fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or_else(|| Path::new("."))
}

fn sync(file: &File, how: ResultRetention) -> anyhow::Result<()> {
    let synced = match how {
        ResultRetention::Synced => file.sync_all(),
        ResultRetention::AtOnce => Ok(()),
    };
    synced.context("the write failed")
}

/// A temporary file next to the place of an output file, which is removed unless it is published.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    beside: TemporaryName,
    place: OutputFile,
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl StagedFile {
    /// Syncs the content, if that is required.
    ///
    /// # Errors
    /// It could not be synced.
    pub fn sync(&self, how: ResultRetention) -> anyhow::Result<()> {
        sync(&self.file, how)
    }

    /// Moves the file to its place. If files cannot be moved there, writes its content there.
    ///
    /// # Errors
    /// It could not be moved, the folder could not be synced, or the user's path now leads to
    /// another folder.
    pub fn publish(self, how: ResultRetention) -> anyhow::Result<()> {
        let Self { mut file, beside, place } = self;
        match beside.rename(&place.name) {
            Err(error) if is_fixed_place(&error) => {
                let mut to = place.empty()?;
                let copied = file.rewind().and_then(|()| io::copy(&mut file, &mut to));
                copied.context("the write failed")?;
                sync(&to, how)?;
            }
            renamed => renamed.context("it could not be moved there")?,
        }
        if how == ResultRetention::Synced {
            place.folder.sync().context("its folder could not be synced")?;
        }
        // Only the folder is checked: a reader may remove the file as soon as it is published.
        let opened = place.folder.metadata()?;
        let found = fs::metadata(folder_of(&place.path));
        let is_same =
            found.is_ok_and(|found| (found.dev(), found.ino()) == (opened.st_dev, opened.st_ino));
        anyhow::ensure!(is_same, "its folder was moved or replaced during the run");
        Ok(())
    }
}

/// Returns true if a file could not be renamed because its new name is a mount point, or because
/// the file system cannot rename files (object stores).
fn is_fixed_place(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EBUSY | Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EXDEV))
}

/// The name of a temporary file, which is removed when dropped.
#[derive(Debug)]
struct TemporaryName {
    folder: Arc<HeldFolder>,
    name: OsString,
}

impl TemporaryName {
    fn rename(mut self, to: &OsStr) -> io::Result<()> {
        self.folder.rename(&self.name, to)?;
        self.name.clear();
        Ok(())
    }
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // It may have been removed with its folder.
            let _ = self.folder.remove(&self.name);
        }
    }
}
