//! Opens the Unix socket that a path of a command refers to, and checks that the command may
//! connect to it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::unistd::geteuid;

use super::job_egress::UnixSocketTerms;

/// The reason why a Unix socket cannot be connected to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnixPathError {
    /// It does not exist, or is not a socket.
    Missing(Errno),
    /// It belongs to another program; its real path.
    NotOfTheRun(PathBuf),
}

/// Opens the socket that a path refers to in a thread, without connecting to it. Checks the opened
/// file itself, so that it cannot be replaced between check and connection.
///
/// # Errors
/// It is missing, or may not be connected to.
pub(super) fn open_socket(
    thread: u32,
    path: &[u8],
    terms: &UnixSocketTerms,
) -> Result<OwnedFd, UnixPathError> {
    let missing = UnixPathError::Missing;
    let from = if path.starts_with(b"/") { "root" } else { "cwd" };
    let base = open_path(AT_FDCWD, Path::new(&format!("/proc/{thread}/{from}")), false);
    let base = base.map_err(|_| missing(Errno::EPERM))?;
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    let relative = if slashes == path.len() { path } else { &path[slashes..] };
    // In this process, `/proc/self` is that of outlast, so magic links are not followed.
    let opened = open_path(&base, Path::new(OsStr::from_bytes(relative)), true).map_err(missing)?;
    let file = File::from(opened.try_clone().map_err(|_| missing(Errno::EMFILE))?);
    let found = file.metadata().map_err(|_| missing(Errno::EPERM))?;
    if !found.file_type().is_socket() {
        return Err(missing(Errno::ECONNREFUSED));
    }
    let is_same = |listed: &PathBuf| {
        fs::metadata(listed).is_ok_and(|it| (it.dev(), it.ino()) == (found.dev(), found.ino()))
    };
    if terms.allows_all || terms.listed.iter().any(is_same) {
        return Ok(opened);
    }
    let real = fs::read_link(path_of(&opened)).map_err(|_| missing(Errno::EPERM))?;
    let is_writable = terms.writable.iter().any(|folder| real.starts_with(folder));
    let is_young = found.created().is_ok_and(|born| born >= terms.since);
    let is_own = found.uid() == geteuid().as_raw();
    if is_writable && is_young && is_own {
        Ok(opened)
    } else {
        Err(UnixPathError::NotOfTheRun(real))
    }
}

/// The path under which this process can connect to an opened socket.
pub(super) fn path_of(opened: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

fn open_path(base: impl std::os::fd::AsFd, path: &Path, is_strict: bool) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
    let how = if is_strict { how.resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS) } else { how };
    openat2(base, path, how)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn terms(writable: &Path, since: SystemTime) -> UnixSocketTerms {
        let writable = vec![writable.to_path_buf()];
        UnixSocketTerms { allows_all: false, listed: Vec::new(), writable, since }
    }

    fn open(path: &Path, terms: &UnixSocketTerms) -> Result<(), UnixPathError> {
        open_socket(std::process::id(), path.as_os_str().as_bytes(), terms).map(drop)
    }

    #[test]
    fn only_young_sockets_in_writable_folders_are_open() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("it exists");
        let (path, link) = (root.join("socket"), root.join("link"));
        let _listener = UnixListener::bind(&path).expect("a new socket");
        std::os::unix::fs::symlink(&path, &link).expect("a new link");
        std::fs::hard_link(&path, root.join("same")).expect("a new name");
        let (past, future) = (SystemTime::UNIX_EPOCH, SystemTime::now() + Duration::from_hours(1));
        let refused = || Err(UnixPathError::NotOfTheRun(path.clone()));
        assert_eq!(open(&path, &terms(&root, past)), Ok(()));
        assert_eq!(open(&link, &terms(&root, past)), Ok(()));
        assert_eq!(open(&path, &terms(&root, future)), refused());
        assert_eq!(open(&link, &terms(&root, future)), refused());
        assert!(open(&root.join("same"), &terms(&root, future)).is_err());
        assert_eq!(open(&path, &terms(&root.join("other"), past)), refused());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(20_002), None).expect("root may");
            assert_eq!(open(&path, &terms(&root, past)), refused());
        }
        let listed = UnixSocketTerms { listed: vec![link.clone()], ..terms(&root, future) };
        assert_eq!(open(&path, &listed), Ok(()));
        let all = UnixSocketTerms { allows_all: true, ..terms(&root, future) };
        assert_eq!(open(&path, &all), Ok(()));
    }

    #[test]
    fn other_files_and_links_of_processes_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("it exists");
        let terms = terms(&root, SystemTime::UNIX_EPOCH);
        std::fs::write(root.join("file"), "").expect("a file");
        let missing = |errno| Err(UnixPathError::Missing(errno));
        assert_eq!(open(&root.join("file"), &terms), missing(Errno::ECONNREFUSED));
        assert_eq!(open(&root.join("none"), &terms), missing(Errno::ENOENT));
        let path = root.join("socket");
        let _listener = UnixListener::bind(&path).expect("a new socket");
        let through = Path::new("/proc/self/root").join(path.strip_prefix("/").expect("absolute"));
        assert_eq!(open(&through, &terms), missing(Errno::ELOOP));
    }
}
