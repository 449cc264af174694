//! Where paths lead. Looks at the file system, changes nothing.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::OFlag;

/// The folders that the run may work in.
#[derive(Debug)]
pub(super) struct WorkFolders {
    /// The first is where the run works. All real.
    roots: Vec<PathBuf>,
    /// Where long output goes. Reading there is free.
    scratch: PathBuf,
    /// Where instructions for the model are kept. Reading there is free, too.
    readable: Vec<PathBuf>,
    pub(super) home: Option<PathBuf>,
}

/// One path of a call: as it was written, and where it really leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResolvedPath {
    /// Absolute, without `.` and `..`, symbolic links as written.
    pub(super) written: PathBuf,
    /// Without symbolic links. The end of it may not exist yet.
    pub(super) real: PathBuf,
    pub(super) scope: PathScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathScope {
    /// In a folder that the run may work in.
    Inside,
    /// Among the session's own long outputs, or in a folder that is only read.
    Scratch,
    Outside,
}

/// As many links as the kernel follows.
const LINKS_MAX: u32 = 40;

/// No more files than these are held against a pattern.
const GLOB_FILES_MAX: usize = 10_000;

/// What is longer, in bytes, no system opens: there is nothing to look at.
pub(super) const PATH_BYTES_MAX: usize = 4_096;

impl WorkFolders {
    pub(super) fn new(roots: &[PathBuf], scratch: &Path, home: Option<PathBuf>) -> Self {
        let roots = roots.iter().map(|root| resolve(root)).collect();
        Self { roots, scratch: resolve(scratch), readable: Vec::new(), home }
    }

    /// With further folders in which reading is free.
    pub(super) fn with_readable(self, folders: &[PathBuf]) -> Self {
        Self { readable: folders.iter().map(|folder| resolve(folder)).collect(), ..self }
    }

    pub(super) fn cwd(&self) -> &Path {
        self.roots.first().map_or(Path::new("/"), PathBuf::as_path)
    }

    /// Finds where `path` leads, seen from `base`.
    pub(super) fn resolve(&self, path: &str, base: &Path) -> ResolvedPath {
        let joined = base.join(self.expand(path));
        let real = resolve(&joined);
        let standing = if self.contains(&real) {
            PathScope::Inside
        } else if self.is_free_to_read(&real) {
            PathScope::Scratch
        } else {
            PathScope::Outside
        };
        ResolvedPath { written: normalize_lexically(&joined), real, scope: standing }
    }

    /// Makes a path of a call absolute, seen from `base`: without `~`, `.` and `..`, and with links as
    /// they are written. It leads where the tool itself would go.
    pub(super) fn absolute(&self, path: &str, base: &Path) -> PathBuf {
        let mut made = PathBuf::from("/");
        for part in components(&base.join(self.expand(path))) {
            if part != ".." {
                made.push(part);
                continue;
            }
            // Behind a link `..` leads up from where that leads, and not from where it stands.
            if fs::symlink_metadata(&made).is_ok_and(|facts| facts.is_symlink()) {
                made = resolve(&made);
            }
            made.pop();
        }
        made
    }

    pub(super) fn contains(&self, real: &Path) -> bool {
        self.roots.iter().any(|root| real.starts_with(root))
    }

    fn is_free_to_read(&self, real: &Path) -> bool {
        [&self.scratch].into_iter().chain(&self.readable).any(|folder| real.starts_with(folder))
    }

    fn expand(&self, path: &str) -> PathBuf {
        match (&self.home, path.strip_prefix('~')) {
            (Some(home), Some("")) => home.clone(),
            (Some(home), Some(rest)) if rest.starts_with('/') => {
                home.join(rest.trim_start_matches('/'))
            }
            (_, _) => PathBuf::from(path),
        }
    }
}

/// How a folder is opened of which only the place matters.
#[cfg(target_os = "linux")]
pub(super) const OPEN_FOLDER_FLAGS: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);
#[cfg(not(target_os = "linux"))]
pub(super) const HOLD: OFlag = OFlag::O_DIRECTORY;

/// Follows every link of an absolute path, also where its end does not exist: a link to nowhere
/// leads where it points, not where it stands.
pub(super) fn resolve(path: &Path) -> PathBuf {
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
            Ok(target) if links < LINKS_MAX => {
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

/// How a path is opened of which only the kind matters.
#[cfg(target_os = "linux")]
const OPEN_PATH_FLAGS: OFlag = OFlag::O_PATH;

/// Opens a real path for reading if a regular file is there. A pipe in its place is not waited for;
/// whoever holds a lease on the file is, since that has an end.
///
/// # Errors
/// As of [`open_real`]; also that something else is there.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |file: &File| {
        let is_file = file.metadata()?.is_file();
        if is_file { Ok(()) } else { Err(io::Error::other("it is no regular file")) }
    };
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;

        let held = open_real(path, OPEN_PATH_FLAGS)?;
        regular(&held)?;
        // The very file that was looked at.
        let opened = File::open(format!("/proc/self/fd/{}", held.as_raw_fd()));
        if opened.as_ref().is_ok_and(|file| regular(file).is_ok()) {
            return opened;
        }
    }
    let file = open_real(path, OFlag::O_RDONLY)?;
    regular(&file)?;
    Ok(file)
}

/// Opens a real path, and waits for nobody. While it was judged a command may have put a link in
/// the place of a folder of it, or of itself: such a link is not followed.
///
/// # Errors
/// As of the system; also that a link is there.
pub(super) fn open_real(path: &Path, flags: OFlag) -> io::Result<File> {
    // What is not opened for reading takes no such flags.
    #[cfg(target_os = "linux")]
    let looks = flags.contains(OPEN_PATH_FLAGS);
    #[cfg(not(target_os = "linux"))]
    let looks = flags == OPEN_FOLDER_FLAGS;
    let patience = if looks { OFlag::empty() } else { OFlag::O_NONBLOCK | OFlag::O_NOCTTY };
    let flags = flags | patience | OFlag::O_CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use nix::errno::Errno;
        use nix::fcntl::{AT_FDCWD, OpenHow, ResolveFlag, openat2};

        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        match openat2(AT_FDCWD, path, how) {
            Ok(opened) => return Ok(opened.into()),
            // An old kernel, or a container that forbids what it does not know.
            Err(Errno::ENOSYS | Errno::EPERM) => {}
            Err(Errno::ELOOP) => return Err(io::Error::other("a link has taken its place")),
            Err(errno) => return Err(errno.into()),
        }
    }
    let opened = nix::fcntl::open(path, flags | OFlag::O_NOFOLLOW, nix::sys::stat::Mode::empty());
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

/// Takes `.` and `..` out without looking at the file system.
fn normalize_lexically(path: &Path) -> PathBuf {
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

/// The paths that fit a pattern of the shell, seen from `base`. `?` and `[…]` stand for any letter
/// here: rather too many than too few. Also how many files were looked at; `None` where they are
/// more than anybody looks at.
pub(super) fn expand_glob(pattern: &str, base: &Path) -> Option<(Vec<String>, usize)> {
    let begin = if pattern.starts_with('/') { "/" } else { "" };
    let (mut found, mut looked) = (vec![begin.to_owned()], 0);
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !part.contains(['*', '?', '[']) {
            for path in &mut found {
                path.push_str(part);
                path.push('/');
            }
            continue;
        }
        let pattern = parse_loosely(part);
        let mut next = Vec::new();
        for folder in found {
            looked += 1;
            let Ok(entries) = fs::read_dir(base.join(&folder)) else { continue };
            for entry in entries.filter_map(Result::ok) {
                looked += 1;
                if looked > GLOB_FILES_MAX {
                    return None;
                }
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_shown = !name.starts_with('.') || part.starts_with('.');
                if is_shown && matches_pattern(&pattern, &name.chars().collect::<Vec<_>>()) {
                    next.push(format!("{folder}{name}/"));
                }
            }
        }
        found = next;
    }
    let paths = found.into_iter().map(|path| path.trim_end_matches('/').to_owned());
    Some((paths.collect(), looked))
}

/// Everything in a folder, seen from there; links are not followed. `None` where it is more than
/// anybody looks at.
pub(super) fn list_recursive(folder: &Path) -> Option<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = open.pop() {
        let Ok(entries) = fs::read_dir(folder.join(&inner)) else { continue };
        for entry in entries.filter_map(Result::ok) {
            if found.len() >= GLOB_FILES_MAX {
                return None;
            }
            let path = inner.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    Some(found)
}

/// What one sign of a pattern stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternSign {
    Is(char),
    One,
    Any,
}

/// What stands in brackets may be quoted, or be a class, `[[:alpha:]]`: from there on anything fits.
fn parse_loosely(part: &str) -> Vec<PatternSign> {
    let known = part.split_once('[').filter(|(_, rest)| rest.contains(']'));
    let signs = known.map_or(part, |(begin, _)| begin).chars().map(|letter| match letter {
        '*' => PatternSign::Any,
        '?' => PatternSign::One,
        letter => PatternSign::Is(letter),
    });
    signs.chain(known.map(|_| PatternSign::Any)).collect()
}

fn matches_pattern(pattern: &[PatternSign], name: &[char]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(PatternSign::Any) => {
                star = Some((at, seen));
                at += 1;
            }
            Some(PatternSign::One) => (at, seen) = (at + 1, seen + 1),
            Some(PatternSign::Is(letter)) if *letter == name[seen] => (at, seen) = (at + 1, seen + 1),
            Some(PatternSign::Is(_)) | None => {
                let Some((back, from)) = star else { return false };
                (at, seen) = (back + 1, from + 1);
                star = Some((back, from + 1));
            }
        }
    }
    pattern[at..].iter().all(|sign| *sign == PatternSign::Any)
}

/// How a path is shown to the model: from where its shell stands, if it is below.
pub(super) fn display_path(path: &Path, base: &Path) -> String {
    match path.strip_prefix(base) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_string(),
        Ok(rest) => rest.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;
    use std::time::Duration;

    use nix::sys::stat::Mode;

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
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(open_regular(&folder.join("pipe")).is_err()));
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
    }
}
