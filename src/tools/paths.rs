//! Resolves paths, and safely opens files whose path may change meanwhile.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

use super::added_folders::AddedFolders;
use super::file_names;
use crate::text::in_home;

/// The folders that the run may work in.
#[derive(Debug)]
pub(super) struct WorkFolders {
    /// The first is the working directory. All are real paths.
    roots: Vec<PathBuf>,
    /// The folders that a host adds during the run.
    added: AddedFolders,
    /// The folder for long outputs, and folders with instructions for the model. Reading there needs
    /// no permission.
    readable: Vec<PathBuf>,
    pub(super) home: Option<PathBuf>,
}

/// A path in a call: as written, and with symbolic links resolved.
#[derive(Clone, Debug)]
pub(super) struct ResolvedPath {
    /// Absolute, without `.` and `..`, symbolic links as written.
    pub(super) written: PathBuf,
    /// Without symbolic links. The end of it may not exist yet.
    pub(super) real: PathBuf,
    pub(super) scope: PathScope,
}

/// A host may add folders, which changes the scope of a path and not the path.
impl PartialEq for ResolvedPath {
    fn eq(&self, other: &Self) -> bool {
        (&self.written, &self.real) == (&other.written, &other.real)
    }
}

impl Eq for ResolvedPath {}

impl ResolvedPath {
    /// The path with the links of its folder resolved. The last name stays, even if it is a link.
    pub(super) fn entry(&self) -> PathBuf {
        let place = self.written.parent().zip(self.written.file_name());
        place.map_or_else(|| self.written.clone(), |(folder, name)| resolve(folder).join(name))
    }

    /// Formats the path as text, from which the tools find the file again.
    pub(super) fn shown(&self) -> String {
        file_names::shown(&self.written)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathScope {
    /// In a folder that the run may work in.
    Inside,
    /// In the session's folder for long outputs, or in another read-only folder.
    Scratch,
    Outside,
}

/// The kernel's limit on symbolic links in a path.
const LINKS_MAX: u32 = 40;

/// The longest path, in bytes, that the system can open.
pub(super) const PATH_BYTES_MAX: usize = 4_096;

impl WorkFolders {
    pub(super) fn new<'a>(
        roots: &[PathBuf],
        readable: impl Iterator<Item = &'a PathBuf>,
        added: &AddedFolders,
        home: Option<PathBuf>,
    ) -> Self {
        let roots = roots.iter().map(|root| resolve(root)).collect();
        let readable = readable.map(|folder| resolve(folder)).collect();
        Self { roots, added: added.clone(), readable, home }
    }

    /// The working directory, and the further folders with which the run began. Real paths.
    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    pub(super) fn cwd(&self) -> &Path {
        self.roots.first().map_or(Path::new("/"), PathBuf::as_path)
    }

    /// Splits a pattern that begins with a working folder into that and the rest, if the name of
    /// the folder has letters that are special in a pattern.
    pub(super) fn split_off_root(&self, pattern: &str) -> Option<(String, String)> {
        let roots = self.all_roots();
        let roots = roots.iter().filter_map(|root| root.to_str());
        let mut special = roots.filter(|root| root.contains(['*', '?', '[', '{', '\\']));
        special.find_map(|root| {
            let home = self.home.as_ref().and_then(|home| Path::new(root).strip_prefix(home).ok());
            let short = home.and_then(Path::to_str).map(|below| format!("~/{below}"));
            let rest = [Some(root), short.as_deref()].into_iter().flatten();
            let rest = rest.filter_map(|root| pattern.strip_prefix(root));
            let mut rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
            Some((root.to_owned(), rest.next()?.trim_start_matches('/').to_owned()))
        })
    }

    /// Resolves `path` against `base`, also if its name only looks like that of the file.
    pub(super) fn resolve(&self, path: &str, base: &Path) -> ResolvedPath {
        // Rules judge the name as written, too.
        self.resolve_by(path, base, |path| resolve(&file_names::find_alike(path)))
    }

    /// Resolves `path` against `base`, and its links by `find_real`. The name is taken literally,
    /// as programs do.
    pub(super) fn resolve_by(
        &self,
        path: &str,
        base: &Path,
        find_real: impl Fn(&Path) -> PathBuf,
    ) -> ResolvedPath {
        let joined = file_names::find(&base.join(self.expand(path)));
        let real = find_real(&joined);
        let scope = if self.contains(&real) {
            PathScope::Inside
        } else if self.readable.iter().any(|folder| real.starts_with(folder)) {
            PathScope::Scratch
        } else {
            PathScope::Outside
        };
        ResolvedPath { written: normalize_lexically(&joined), real, scope }
    }

    /// Makes a path absolute, resolved against `base`: `~`, `.` and `..` are removed and links are
    /// kept as written. The result is the file that the tool itself would open.
    pub(super) fn absolute(&self, path: &str, base: &Path) -> PathBuf {
        let mut made = PathBuf::from("/");
        for part in components(&file_names::find(&base.join(self.expand(path)))) {
            if part != ".." {
                made.push(part);
                continue;
            }
            // Behind a link, `..` is the parent of the link's target and not of the link.
            if fs::symlink_metadata(&made).is_ok_and(|facts| facts.is_symlink()) {
                made = resolve(&made);
            }
            made.pop();
        }
        made
    }

    pub(super) fn contains(&self, real: &Path) -> bool {
        self.roots.iter().any(|root| real.starts_with(root)) || self.added.contains(real)
    }

    /// Every folder in which reading needs no permission.
    pub(super) fn readable_folders(&self) -> Vec<PathBuf> {
        [self.all_roots(), self.readable.clone()].concat()
    }

    fn all_roots(&self) -> Vec<PathBuf> {
        self.roots.iter().cloned().chain(self.added.existing()).collect()
    }

    fn expand(&self, path: &str) -> PathBuf {
        in_home(path, self.home.as_deref()).unwrap_or_else(|| PathBuf::from(path))
    }
}

/// The flags to open a folder only as a reference for later lookups.
pub(super) const OPEN_FOLDER_FLAGS: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);

/// Resolves every link of an absolute path, even if its end does not exist: a dangling link
/// resolves to its target.
pub(super) fn resolve(path: &Path) -> PathBuf {
    resolve_links(path, |_| true)
}

/// Like [`resolve`], for those links only that are to be followed.
pub(super) fn resolve_links(path: &Path, follows: impl Fn(&Path) -> bool) -> PathBuf {
    let mut ahead = components(path);
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(&part);
        if real.as_os_str().len() > PATH_BYTES_MAX {
            continue;
        }
        match fs::read_link(&real) {
            Ok(target) if links < LINKS_MAX && follows(&real) => {
                links += 1;
                real.pop();
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                let mut target = components(&target);
                target.append(&mut ahead);
                ahead = target;
            }
            Ok(_) | Err(_) => {}
        }
    }
    real
}

/// A set of real folders, for checks whether a real path is in one of them.
#[derive(Debug)]
pub(super) struct FolderSet {
    /// Each with a slash at its end, sorted, and none below another one: of these, only the last
    /// one that is not after a path can be above it.
    tops: Vec<Vec<u8>>,
}

impl FolderSet {
    /// True if a path is one of the folders, or below it.
    pub(super) fn contains(&self, path: &Path) -> bool {
        let path = with_slash(path);
        let after = self.tops.partition_point(|top| *top <= path);
        after.checked_sub(1).is_some_and(|last| path.starts_with(&self.tops[last]))
    }
}

impl<'a> FromIterator<&'a Path> for FolderSet {
    fn from_iter<T: IntoIterator<Item = &'a Path>>(folders: T) -> Self {
        let mut tops: Vec<Vec<u8>> = folders.into_iter().map(with_slash).collect();
        tops.sort_unstable();
        // Paths below a folder follow it directly.
        tops.dedup_by(|folder, above| folder.starts_with(above));
        Self { tops }
    }
}

/// A set of absolute paths without `.` and `..`, for lookups of a path and of what is below it.
#[derive(Clone, Debug, Default)]
pub(super) struct PathSet {
    /// Sorted by bytes, which is several times faster than by components.
    paths: Vec<PathBuf>,
}

impl PathSet {
    pub(super) fn as_slice(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(super) fn into_vec(self) -> Vec<PathBuf> {
        self.paths
    }

    fn get(&self, path: &Path) -> Option<&PathBuf> {
        let order = |it: &PathBuf| it.as_os_str().cmp(path.as_os_str());
        self.paths.binary_search_by(order).ok().map(|at| &self.paths[at])
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.get(path).is_some()
    }

    /// A folder, if the set contains it, and the paths of the set below it.
    pub(super) fn all_in(&self, folder: &Path) -> impl Iterator<Item = &PathBuf> {
        let within = with_slash(folder);
        let first = self.paths.partition_point(|it| it.as_os_str().as_bytes() < &within[..]);
        let is_below = move |it: &&PathBuf| it.as_os_str().as_bytes().starts_with(&within);
        self.get(folder).into_iter().chain(self.paths[first..].iter().take_while(is_below))
    }
}

impl FromIterator<PathBuf> for PathSet {
    fn from_iter<T: IntoIterator<Item = PathBuf>>(paths: T) -> Self {
        let mut paths: Vec<PathBuf> = paths.into_iter().collect();
        paths.sort_unstable_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
        paths.dedup_by(|one, other| one.as_os_str() == other.as_os_str());
        Self { paths }
    }
}

fn with_slash(path: &Path) -> Vec<u8> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if bytes.last() != Some(&b'/') {
        bytes.push(b'/');
    }
    bytes
}

/// The flags to open a path only to determine its type.
const OPEN_PATH_FLAGS: OFlag = OFlag::O_PATH;

/// Opens a regular file at a real path for reading. It never blocks on a named pipe, but may wait
/// for a lease on the file, which the kernel breaks after a timeout.
///
/// # Errors
/// The errors of [`open_real`]; also if the path is not a regular file.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let held = check_regular(open_real(path, OPEN_PATH_FLAGS)?)?;
    // Reopen exactly the file that was checked.
    File::open(format!("/proc/self/fd/{}", held.as_raw_fd()))
        .and_then(check_regular)
        .or_else(|_| check_regular(open_real(path, OFlag::O_RDONLY)?))
}

/// Like [`open_regular`], with fewer system calls, for a path that a folder lists as a regular
/// file. Opening a device may have effects: it happens only if one has replaced the file since.
///
/// # Errors
/// Those of [`open_regular`].
pub(super) fn open_listed(path: &Path) -> io::Result<File> {
    match open_real(path, OFlag::O_RDONLY) {
        // There is a lease on the file.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => open_regular(path),
        opened => check_regular(opened?),
    }
}

fn check_regular(file: File) -> io::Result<File> {
    let is_file = file.metadata()?.is_file();
    if is_file { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Opens a real path without blocking and without following links. Since the permission check a
/// command may have replaced a folder on the path, or the file, by a link.
///
/// # Errors
/// System errors; also if a link is in the path.
pub(super) fn open_real(path: &Path, flags: OFlag) -> io::Result<File> {
    open_at(AT_FDCWD, path, flags)
}

/// Reads at most `most` bytes of the file at a real path.
pub(super) fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_real(path, OFlag::O_RDONLY)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path of an open folder, which leads to the same folder even if that is renamed or replaced.
/// Without `/proc`, the path `folder` by which it was opened.
pub(super) fn path_of_open<'a>(opened: &File, folder: &'a Path) -> Cow<'a, Path> {
    let by_number = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    if by_number.is_dir() { by_number.into() } else { folder.into() }
}

/// Opens the folder at a real path, without following links. Missing folders are created one after
/// the other, each in the one that was opened before.
///
/// # Errors
/// System errors; also if a link is in the path.
pub(super) fn open_or_create_folder(path: &Path) -> io::Result<File> {
    let (mut opened, mut missing) = (open_real(path, OPEN_FOLDER_FLAGS), Vec::new());
    let mut ancestors = path.ancestors();
    while opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let Some((name, above)) = ancestors.next().and_then(|it| it.file_name().zip(it.parent()))
        else {
            break;
        };
        missing.push(name);
        opened = open_real(above, OPEN_FOLDER_FLAGS);
    }
    let mut folder = opened?;
    while let Some(name) = missing.pop() {
        match nix::sys::stat::mkdirat(&folder, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        folder = open_at(folder.as_fd(), Path::new(name), OPEN_FOLDER_FLAGS)?;
    }
    Ok(folder)
}

/// Opens a path in a folder: a relative one does not leave it.
fn open_at(folder: BorrowedFd<'_>, path: &Path, flags: OFlag) -> io::Result<File> {
    // `O_PATH` cannot be combined with the flags for reading.
    let is_reference = flags.contains(OPEN_PATH_FLAGS);
    let reading = if is_reference { OFlag::empty() } else { OFlag::O_NONBLOCK | OFlag::O_NOCTTY };
    let flags = flags | reading | OFlag::O_CLOEXEC;
    let mut resolve = ResolveFlag::RESOLVE_NO_SYMLINKS;
    resolve.set(ResolveFlag::RESOLVE_BENEATH, path.is_relative());
    match openat2(folder, path, OpenHow::new().flags(flags).resolve(resolve)) {
        Ok(opened) => return Ok(opened.into()),
        // An old kernel, or a container that forbids unknown system calls.
        Err(Errno::ENOSYS | Errno::EPERM) => {}
        Err(Errno::ELOOP) => return Err(io::Error::other("a link has taken its place")),
        Err(errno) => return Err(errno.into()),
    }
    let opened = nix::fcntl::openat(folder, path, flags | OFlag::O_NOFOLLOW, Mode::empty());
    Ok(opened?.into())
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(part) => Some(part.to_os_string()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}

/// Removes `.` and `..` lexically, without accessing the file system.
pub(super) fn normalize_lexically(path: &Path) -> PathBuf {
    let mut made = PathBuf::from("/");
    for part in components(path) {
        if part == ".." {
            made.pop();
        } else {
            made.push(part);
        }
    }
    made
}

/// The path as shown to the model: relative to the working directory if it is below it.
pub(super) fn display_path(path: &Path, base: &Path) -> String {
    match path.strip_prefix(base) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_string(),
        Ok(rest) => file_names::shown(rest),
        Err(_) => file_names::shown(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_regular_file_is_opened_and_a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::write(folder.join("file"), "words").unwrap();
        symlink("file", folder.join("link")).unwrap();
        fs::create_dir(folder.join("sub")).unwrap();
        symlink(&folder, folder.join("sub/up")).unwrap();
        nix::unistd::mkfifo(&folder.join("pipe"), Mode::S_IRWXU).unwrap();
        let mut read = String::new();
        open_regular(&folder.join("file")).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, "words");
        for other in ["link", "sub", "sub/up/file", "none"] {
            assert!(open_regular(&folder.join(other)).is_err(), "{other}");
        }
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(open_regular(&folder.join("pipe")).is_err()));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn a_set_of_paths_contains_these_paths_only() {
        let set = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<PathSet>();
        let some = set(&["/a/b-x", "/a/b/c", "/a/b/c", "/d"]);
        assert_eq!(some.as_slice().len(), 3);
        for (path, is_in, has_part) in [
            ("/a", false, true),
            ("/a/b", false, true),
            ("/a/b/c", true, true),
            ("/a/b/c/x", false, false),
            ("/a/b-", false, false),
            ("/a/b-x", true, true),
            ("/a/bc", false, false),
            ("/d", true, true),
            ("/e", false, false),
            ("/", false, true),
        ] {
            assert_eq!(some.contains(Path::new(path)), is_in, "{path}");
            assert_eq!(some.all_in(Path::new(path)).next().is_some(), has_part, "{path}");
        }
        let root = Path::new("/");
        assert_eq!(set(&[]).all_in(root).count(), 0);
        assert!(set(&["/"]).contains(root) && set(&["/"]).all_in(root).next().is_some());
    }

    #[test]
    fn a_set_of_folders_contains_what_is_in_one_of_them() {
        let set = |folders: &[&str]| folders.iter().map(Path::new).collect::<FolderSet>();
        assert!(set(&["/"]).contains(Path::new("/a")) && !set(&[]).contains(Path::new("/")));
        let set = set(&["/a/b.c", "/a/b/x", "/a/b", "/c"]);
        for (path, expected) in [
            ("/a/b", true),
            ("/a/b/", true),
            ("/a/b/x/y", true),
            ("/a/b/z", true),
            ("/a/b.", false),
            ("/a/b.c/d", true),
            ("/a", false),
            ("/a/bc", false),
            ("/c/d", true),
            ("/", false),
        ] {
            assert_eq!(set.contains(Path::new(path)), expected, "{path}");
        }
    }
}
