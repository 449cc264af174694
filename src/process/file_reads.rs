//! File reads that may block: a file may be a pipe whose writer is another program, or lie on a
//! disk that hangs. Only [`unblocked`] has a timeout, but the caller can look up the path being
//! read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Uid;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::running_time::timeout_while_running;
use super::trusted_owners::TrustedOwners;

/// The size of the pieces in which a file is hashed, in bytes.
const HASH_CHUNK: usize = 64 << 10;

/// The time limit of [`unblocked`].
const UNBLOCKED_MAX: Duration = Duration::from_secs(10);

/// The files that are being read now, the oldest first.
static PENDING_READS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Returns the file whose read has been pending for longest.
pub fn oldest_pending_read() -> Option<PathBuf> {
    PENDING_READS.lock().first().cloned()
}

/// One file being read.
struct PendingRead<'a>(&'a Path);

impl<'a> PendingRead<'a> {
    fn register(path: &'a Path) -> Self {
        PENDING_READS.lock().push(path.to_owned());
        Self(path)
    }
}

impl Drop for PendingRead<'_> {
    fn drop(&mut self) {
        let mut all = PENDING_READS.lock();
        if let Some(at) = all.iter().position(|path| path == self.0) {
            all.remove(at);
        }
    }
}

/// Resolves all links of a path, like [`fs::canonicalize`], but faster for a path that does not
/// exist: that function looks at every folder on the way.
///
/// # Errors
/// Those of [`fs::canonicalize`].
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    fs::metadata(path)?;
    fs::canonicalize(path)
}

/// Returns the reason why a user cannot access a path: the file, or a folder on the way to it,
/// belongs to another user. `None`: the reason is not known.
pub fn closed_part(path: &Path, us: Uid) -> Option<String> {
    // If a folder may not be searched, only the folder itself is found.
    let (part, facts) = path.ancestors().find_map(|part| Some((part, fs::metadata(part).ok()?)))?;
    let (owner, us) = (facts.uid(), us.as_raw());
    let is_closed = owner != us && facts.permissions().mode() & 0o005 == 0;
    let above = part.parent().and_then(|parent| fs::metadata(parent).ok());
    let is_in_ours = above.is_some_and(|folder| folder.uid() == us);
    let part = part.display();
    let fix = if is_in_ours {
        format!("give it back with chown -R {us} {part}")
    } else {
        // The part may be the home folder of that user.
        format!("set HOME or OUTLAST_CONFIG_DIR to a folder of uid {us}")
    };
    is_closed.then(|| format!("{part} belongs to uid {owner}, and outlast runs as uid {us}; {fix}"))
}

/// Reads a file or a pipe of at most `most` bytes.
///
/// # Errors
/// It cannot be opened or read. Or it is larger: kind [`Other`](io::ErrorKind::Other), with a text
/// that can follow "because".
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let _note = PendingRead::register(path);
    read_at_most(File::open(path)?, most)
}

/// Like [`read_bounded`], for a file that a flag names: the name `-` is standard input. It is read
/// through its descriptor, so that nothing is left of a regular file for the prompt.
///
/// # Errors
/// Those of [`read_bounded`].
pub fn read_named(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if path.file_name().is_none_or(|name| name != "-") {
        return read_bounded(path, most);
    }
    let _note = PendingRead::register(path);
    read_at_most(io::stdin().as_fd().try_clone_to_owned()?.into(), most)
}

/// A file that was opened: the content of a regular file, or a pipe, whose writer may take long.
#[derive(Debug)]
pub enum OpenedInput {
    Content(Vec<u8>),
    Pipe(File),
}

/// Like [`read_bounded`], but does not read a pipe, or wait until it has a writer.
///
/// # Errors
/// Those of [`read_bounded`]; also if it is a folder.
pub fn open_bounded(path: &Path, most: u64) -> io::Result<OpenedInput> {
    let _note = PendingRead::register(path);
    let file = open_non_blocking(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    if !kind.is_file() {
        return Ok(OpenedInput::Pipe(file));
    }
    read_at_most(file, most).map(OpenedInput::Content)
}

/// Like [`read_bounded`], as [`unblocked`] work.
///
/// # Errors
/// Those of both.
pub async fn read_unblocked(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    unblocked(move || read_bounded(&path, most)).await?
}

/// Runs work that reads files on a thread for blocking work. The thread is abandoned at a time
/// limit.
///
/// # Errors
/// It took too long, or panicked.
pub async fn unblocked<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    unblocked_within(UNBLOCKED_MAX, work).await
}

async fn unblocked_within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let late = || io::Error::other(format!("it was not read within {} s", limit.as_secs_f32()));
    let done = timeout_while_running(limit, tokio::task::spawn_blocking(work)).await;
    done.ok_or_else(late)?.map_err(io::Error::other)
}

/// Reads a regular file of at most `most` bytes, without blocking on a pipe or device.
///
/// # Errors
/// Those of [`read_bounded`]; also if it is not a regular file.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let _note = PendingRead::register(path);
    read_at_most(open_regular(path)?, most)
}

/// Computes the SHA-256 of a regular file.
///
/// # Errors
/// It cannot be read, or is not a regular file.
pub(super) fn hash_regular(path: &Path) -> io::Result<Vec<u8>> {
    let _note = PendingRead::register(path);
    let (mut file, mut hash) = (open_regular(path)?, Sha256::new());
    let mut chunk = vec![0; HASH_CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hash.finalize().to_vec()),
            count => hash.update(&chunk[..count]),
        }
    }
}

/// Reads a regular file of at most `most` bytes that, as well as its folder, belongs to one of
/// these users. `path` is real, without links.
///
/// # Errors
/// Those of [`read_regular`]; also if another user owns it.
pub fn read_owned(path: &Path, most: u64, owners: &TrustedOwners) -> io::Result<Vec<u8>> {
    let _note = PendingRead::register(path);
    let file = open_regular(path)?;
    owners.check("it", &file.metadata()?)?;
    owners.check("its folder", &path.parent().unwrap_or(path).metadata()?)?;
    read_at_most(file, most)
}

/// Opens a regular file for reading, without blocking on a pipe or device.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for a writer, and opening a device may have any effect.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // The file may have been replaced by a pipe or device since that check.
    open_non_blocking(path)
}

fn open_non_blocking(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn read_at_most(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {} kB", most.div_ceil(1024))));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_a_path_that_is_of_another_user_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("folder/none/file");
        let us = nix::unistd::geteuid();
        let other = Uid::from_raw(us.as_raw() + 1);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let closed = closed_part(&file, other).unwrap();
        let shown = folder.path().display();
        let wanted = format!("{shown} belongs to uid {us}, and outlast runs as uid {other}");
        assert!(closed.starts_with(&wanted), "{closed}");
        assert!(
            closed.ends_with(&format!("set HOME or OUTLAST_CONFIG_DIR to a folder of uid {other}"))
        );
        assert_eq!(closed_part(&file, us), None);
        if us.is_root() {
            // Another user's folder in one of ours, as after a run with sudo.
            let theirs = folder.path().join("folder");
            fs::create_dir(&theirs).unwrap();
            fs::set_permissions(&theirs, fs::Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(folder.path(), Some(other.as_raw()), None).unwrap();
            let closed = closed_part(&file, other).unwrap();
            let fix = format!("give it back with chown -R {other} {}", theirs.display());
            assert!(closed.ends_with(&fix), "{closed}");
            fs::remove_dir(&theirs).unwrap();
            std::os::unix::fs::chown(folder.path(), Some(us.as_raw()), None).unwrap();
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(closed_part(&file, other), None);
    }

    #[tokio::test]
    async fn a_read_that_does_not_end_is_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let pipe = path.clone();
        let limit = Duration::from_millis(10);
        let read = unblocked_within(limit, move || read_bounded(&pipe, 1)).await;
        assert_eq!(read.expect_err("no writer").to_string(), "it was not read within 0.01 s");
        // The runtime waits for the thread.
        OpenOptions::new().write(true).open(&path).unwrap();
    }

    #[test]
    fn a_pipe_without_a_writer_is_opened_and_a_folder_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(open_bounded(&path, 1), Ok(OpenedInput::Pipe(_))));
        let error = open_bounded(folder.path(), 1).expect_err("a folder");
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        fs::write(folder.path().join("file"), "x").unwrap();
        let opened = open_bounded(&folder.path().join("file"), 1);
        assert!(matches!(opened, Ok(OpenedInput::Content(bytes)) if bytes == b"x"));
    }

    #[test]
    fn a_file_of_exactly_the_limit_is_read_and_a_longer_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "text").unwrap();
        for (limit, fits) in [(3, false), (4, true)] {
            for read in [read_bounded(&path, limit), read_regular(&path, limit)] {
                assert_eq!(read.is_ok_and(|bytes| bytes == b"text"), fits, "{limit}");
            }
        }
    }
}
