//! The location of sessions: `<config dir>/projects/<working directory>/<session id>.jsonl`.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use memchr::memmem;
use uuid::Uuid;

use crate::process::file_reads::open_regular;
use crate::process::{boot_id, read_kernel_value, sync_folder};

use super::error::JournalError;
use super::mirror::JournalMirror;
use super::moved_session::{MOVED, current_folder};

/// The id of a session, which is also its file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(String);

impl SessionId {
    /// Creates a unique id.
    pub fn generate() -> Self {
        Self(Uuid::now_v7().to_string())
    }

    /// Accepts an id that is safe as a file name: of letters, digits, `-` and `_`.
    pub fn parse(name: &str) -> Option<Self> {
        let safe = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        ((1..=128).contains(&name.len()) && name.chars().all(safe)).then(|| Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of the sessions of one working directory.
#[derive(Clone, Debug)]
pub struct SessionFolder {
    projects: PathBuf,
    cwd: PathBuf,
    mirror: Option<JournalMirror>,
    machine: MachineId,
}

/// The machine that a process runs on, as leases name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineId {
    /// The host name, for people.
    pub(super) host: String,
    /// The boot id of the kernel: processes with the same boot id share file locks.
    pub(super) boot_id: String,
}

impl MachineId {
    /// This machine.
    pub fn this() -> Self {
        let host = host_name();
        // Without boot ids, hosts are distinguished by their names.
        Self { boot_id: boot_id().unwrap_or(&host).to_owned(), host }
    }

    /// This machine with a given name instead of its boot id, for hosts that share a boot id.
    pub fn named(name: &str) -> Self {
        Self { host: host_name(), boot_id: name.to_owned() }
    }
}

/// The longest folder name without a hash.
const NAME_MAX: usize = 200;
/// Number of bytes at the start of a file that are searched for a user message.
const SCAN_BYTES_MAX: u64 = 256 * 1024;
/// The largest accepted clock difference for file times in the future.
const AHEAD_MAX: Duration = Duration::from_mins(10);

/// The path of a folder as journals record it: each byte that is not UTF-8 becomes U+FFFD and its
/// two hexadecimal digits, so that different folders have different texts.
pub fn recorded_path(folder: &Path) -> String {
    let mut text = String::new();
    for chunk in folder.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // A string accepts every write.
            let _ = write!(text, "{}{byte:02x}", char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

/// Returns why what has the name of a session is none: a folder, a pipe, a link to a missing file.
pub(super) fn obstacle(path: PathBuf) -> Option<JournalError> {
    fs::symlink_metadata(&path).ok()?;
    let cause = match fs::metadata(&path) {
        Ok(facts) if facts.is_file() => return None,
        Ok(_) => io::Error::other("it is not a regular file"),
        Err(error) => io::Error::new(error.kind(), format!("it is a link, and {error}")),
    };
    Some(JournalError::Unreadable { path, cause })
}

impl SessionFolder {
    /// Resolves `cwd`, so that a session is found again through any symbolic link.
    pub fn new(config_dir: &Path, cwd: &Path) -> Self {
        let cwd = fs::canonicalize(cwd).unwrap_or_else(|_gone| cwd.to_owned());
        let machine = MachineId::this();
        Self { projects: config_dir.join("projects"), cwd, mirror: None, machine }
    }

    /// Copies the lines of its journals to `mirror`.
    #[must_use]
    pub fn mirrored(self, mirror: Option<JournalMirror>) -> Self {
        Self { mirror, ..self }
    }

    /// Sets the machine that leases name.
    #[must_use]
    pub fn on_machine(self, machine: MachineId) -> Self {
        Self { machine, ..self }
    }

    pub(super) fn machine(&self) -> &MachineId {
        &self.machine
    }

    pub(super) fn mirror(&self) -> Option<&JournalMirror> {
        self.mirror.as_ref()
    }

    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The working directory as journals record it.
    pub(super) fn recorded_cwd(&self) -> String {
        recorded_path(&self.cwd)
    }

    /// Returns true if a session belongs to this working directory: a session may have moved to or
    /// from another one, and several directories may share a folder. A session of another program
    /// that records no directory belongs to all of them.
    fn owns(&self, path: &Path) -> bool {
        current_folder(path).is_none_or(|folder| folder == self.recorded_cwd())
    }

    /// The folder for sessions of this working directory. Directories share one if their names
    /// differ only in characters other than the letters and digits of ASCII.
    pub fn folder(&self) -> PathBuf {
        self.projects.join(folder_name(&self.cwd.to_string_lossy()))
    }

    /// The folder with the folders of all working directories.
    pub fn projects(&self) -> PathBuf {
        self.projects.clone()
    }

    pub(super) fn file(&self, id: &SessionId) -> PathBuf {
        self.folder().join(format!("{id}.jsonl"))
    }

    /// Finds a session of any working directory: first of this one, then the newest.
    pub(super) fn find(&self, id: &SessionId) -> Result<PathBuf, JournalError> {
        let name = format!("{id}.jsonl");
        let mut own = self.own_folders().into_iter().map(|folder| folder.join(&name));
        if let Some(path) = own.find(|path| path.is_file() && self.owns(path)) {
            return Ok(path);
        }
        let files = self.files_anywhere(&name).into_iter();
        let found = files.filter_map(|path| Some((modified(&path)?, path))).max();
        found.map(|(_when, path)| path).ok_or_else(|| {
            let folders = entries(&self.projects).into_iter();
            let obstacle = folders.map(|folder| folder.join(&name)).find_map(obstacle);
            let (id, projects) = (id.clone(), self.projects.clone());
            obstacle.unwrap_or(JournalError::Unknown { id, projects })
        })
    }

    /// The files of this name in the folders of all working directories.
    fn files_anywhere(&self, name: &str) -> Vec<PathBuf> {
        let paths = entries(&self.projects).into_iter().map(|folder| folder.join(name));
        paths.filter(|path| path.is_file()).collect()
    }

    /// Returns true if this session has a file, in any working directory.
    pub fn has(&self, id: &SessionId) -> bool {
        self.find(id).is_ok()
    }

    /// The files of the sessions that belong to this working directory.
    pub(super) fn own_files(&self) -> impl Iterator<Item = PathBuf> {
        self.candidates().filter(|path| self.owns(path))
    }

    /// The files of the sessions in the folder of this working directory, and of those elsewhere to
    /// which a mark there leads.
    fn candidates(&self) -> impl Iterator<Item = PathBuf> {
        let paths = self.own_folders().into_iter().flat_map(|folder| entries(&folder));
        paths.flat_map(|path| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            let journal = path.with_extension("jsonl");
            match (extension, journal.file_name().and_then(|name| name.to_str())) {
                (Some("jsonl"), _) => vec![path],
                (Some(MOVED), Some(name)) if !journal.exists() => self.files_anywhere(name),
                (Some(_) | None, _) => Vec::new(),
            }
        })
    }

    /// The folders with this directory's sessions. Long names end in a hash, which other programs
    /// may compute differently.
    fn own_folders(&self) -> Vec<PathBuf> {
        let exact = self.folder();
        let plain = plain_name(&self.cwd.to_string_lossy());
        let mut folders = vec![exact.clone()];
        if plain.len() > NAME_MAX {
            let prefix = format!("{}-", &plain[..NAME_MAX]);
            let has_prefix = |path: &PathBuf| {
                let name = path.file_name().and_then(|name| name.to_str());
                *path != exact && name.is_some_and(|name| name.starts_with(&prefix))
            };
            folders.extend(entries(&self.projects).into_iter().filter(has_prefix));
        }
        folders
    }
}

/// The last written session of this working directory, for `--continue`. Sessions without a user
/// message are ignored.
///
/// # Errors
/// [`JournalError::Unreadable`] if a session's file exists and cannot be read.
pub fn latest(sessions: &SessionFolder) -> Result<Option<SessionId>, JournalError> {
    let files = sessions.candidates().filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
        Some((modified(&path)?, SessionId::parse(name)?, path))
    });
    let mut files: Vec<(SystemTime, SessionId, PathBuf)> = files.collect();
    sort_newest_first(&mut files, |(written, id, _)| (*written, id));
    for (_when, id, path) in files {
        let has_prompt = has_user_message(&path)
            .map_err(|cause| JournalError::Unreadable { path: path.clone(), cause })?;
        if has_prompt && sessions.owns(&path) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Sorts sessions by the time of their last write, the newest first. A time in the future is due to
/// a wrong clock, so a session with such a time comes after all others.
pub(super) fn sort_newest_first<T>(
    sessions: &mut [T],
    key: impl Fn(&T) -> (SystemTime, &SessionId),
) {
    let soon = SystemTime::now() + AHEAD_MAX;
    let rank = |session: &T| {
        let (written, id) = key(session);
        (written <= soon, written, id.clone())
    };
    sessions.sort_by_cached_key(|session| Reverse(rank(session)));
}

fn has_user_message(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    open_regular(path)?.take(SCAN_BYTES_MAX).read_to_end(&mut start)?;
    Ok(memmem::find(&start, br#""type":"user""#).is_some())
}

/// Syncs a folder and its parent.
pub(super) fn sync_folders(folder: &Path) -> io::Result<()> {
    folder.ancestors().take(2).try_for_each(|folder| sync_folder(&File::open(folder)?))
}

pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn modified(path: &Path) -> Option<SystemTime> {
    let facts = fs::metadata(path).ok()?;
    if facts.is_file() { facts.modified().ok() } else { None }
}

fn plain_name(path: &str) -> String {
    path.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// Returns the name of the project folder, computed as in the public SDKs.
fn folder_name(path: &str) -> String {
    let plain = plain_name(path);
    if plain.len() <= NAME_MAX {
        return plain;
    }
    format!("{}-{}", &plain[..NAME_MAX], base36(string_hash(path).unsigned_abs()))
}

/// Java's string hash: factor 31, on UTF-16 units and 32 bits.
fn string_hash(text: &str) -> i32 {
    let add = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    text.encode_utf16().fold(0, add)
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).expect("a remainder of 36 is a digit"));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// Opens a file beside sessions for reading. Fails if it is a symbolic link.
pub(super) fn open_without_links(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)
}

/// Returns the host name, as it was at the first call.
pub(super) fn host_name() -> String {
    static KNOWN: OnceLock<String> = OnceLock::new();
    let read = || {
        let name = read_kernel_value("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
    };
    KNOWN.get_or_init(read).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_as_the_sdks_name_them() {
        assert_eq!(folder_name("/home/me/my_app.v2/ü"), "-home-me-my-app-v2--");
        let long = format!("/tmp/{}", "a/".repeat(120));
        let name = folder_name(&long);
        assert_eq!(name.len(), 200 + "-3flxyv".len(), "{name}");
        assert!(name.ends_with("-3flxyv"), "{name}");
    }

    #[test]
    fn a_session_id_cannot_leave_its_folder() {
        for name in ["", "..", "../x", "a/b", "a.b", "a\0", &"x".repeat(129)] {
            assert_eq!(SessionId::parse(name), None, "{name:?}");
        }
        assert!(SessionId::parse(SessionId::generate().as_str()).is_some());
    }
}
