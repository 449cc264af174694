//! A folder that is held open: files in it are accessed by name, and links are not followed.
//!
//! Commands of the model can write to the folders that outlast writes to. A path that is resolved
//! again would follow a link that a command put in its place.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};

/// A folder whose descriptor is held open.
#[derive(Debug)]
pub struct HeldFolder(OwnedFd);

impl HeldFolder {
    /// Opens a folder. Links in the path to it are resolved, once.
    ///
    /// # Errors
    /// It does not exist, or is not accessible.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(openat(AT_FDCWD, path, flags, Mode::empty())?))
    }

    /// Checks whether files can be created in it.
    ///
    /// # Errors
    /// They cannot: the error of the access check.
    pub fn check_writable(&self) -> io::Result<()> {
        Ok(faccessat(&self.0, ".", AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
    }

    /// The metadata of the folder.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn metadata(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.0)?)
    }

    /// The metadata of a file, or of a link itself. `None` if there is none.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn find(&self, name: &OsStr) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Creates a file that does not exist yet, to read and write. The umask reduces `mode`.
    ///
    /// # Errors
    /// It exists, even as a link; or the system call fails.
    pub fn create_new(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.open_file(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL, mode)
    }

    /// Opens a file to append to it, or creates it. A pipe is not waited for.
    ///
    /// # Errors
    /// It is a link; or the system call fails.
    pub fn append(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NONBLOCK;
        self.open_file(name, flags, mode)
    }

    /// Opens a file to write to it from its start, or creates it. A pipe is not waited for.
    ///
    /// # Errors
    /// It is a link; or the system call fails.
    pub fn open_in_place(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.open_file(name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NONBLOCK, mode)
    }

    fn open_file(&self, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(mode as nix::libc::mode_t);
        Ok(openat(&self.0, name, flags, mode)?.into())
    }

    /// Renames a file within the folder. Replaces an existing file or link with the new name.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file, or a link itself.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Syncs the names in the folder to the disk.
    ///
    /// # Errors
    /// Those of [`sync_folder`], or the folder cannot be opened.
    pub fn sync(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        sync_folder(&File::from(openat(&self.0, ".", flags, Mode::empty())?))
    }
}

/// Creates a folder with its parents. Only the user may access the new folders.
///
/// # Errors
/// The error of the system call.
pub fn create_private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Syncs the names in a folder to the disk: without that, a new file may be missing after a power
/// cut. File systems that cannot sync folders, such as shared folders of virtual machines, are
/// accepted.
///
/// # Errors
/// The error of the system call.
pub fn sync_folder(folder: &File) -> io::Result<()> {
    accept_unsupported(folder.sync_all())
}

fn accept_unsupported(synced: io::Result<()>) -> io::Result<()> {
    let is_unsupported = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
    };
    synced.or_else(|error| if is_unsupported(&error) { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_file_system_cannot_sync_it_is_accepted() {
        for (errno, is_accepted) in [
            (Errno::EINVAL, true),
            (Errno::ENOSYS, true),
            (Errno::EOPNOTSUPP, true),
            (Errno::EIO, false),
            (Errno::ENOSPC, false),
        ] {
            assert_eq!(accept_unsupported(Err(errno.into())).is_ok(), is_accepted, "{errno}");
        }
    }
}
