//! Facts about the session store: write access, content, and free disk space.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use serde_json::Value;

use crate::hooks::CrashLog;
use crate::journal;

/// Size of the test file, in bytes: a whole page, so that writing it fails on a full disk.
const PROBE: usize = 4096;

/// Facts about the session store.
#[derive(Clone, Debug)]
pub struct SessionStoreFacts {
    /// The folder of sessions.
    pub folder: PathBuf,
    /// The folder in which the test file was written: `folder`, or its nearest existing parent.
    pub tried: PathBuf,
    /// True if `tried` is a folder.
    pub is_folder: bool,
    /// The reason why the test file could not be written. `None`: it was written.
    pub unwritable: Option<String>,
    pub store: journal::SessionStore,
    /// Free space on its disk, in bytes.
    pub free: Option<u64>,
    /// Free inodes on its disk; `None` if unlimited.
    pub free_files: Option<u64>,
}

/// Writes a test file, and surveys the sessions.
pub fn inspect_store(config_dir: &Path) -> SessionStoreFacts {
    let store = journal::survey_sessions(config_dir);
    let folder = store.folder.clone();
    // A missing folder will be created in its nearest existing parent.
    let tried = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let tried = tried.to_path_buf();
    let is_folder = tried.is_dir();
    let unwritable = if is_folder {
        probe(&tried).err().map(|error| error.to_string())
    } else {
        Some("it is a file, where a folder should be".to_owned())
    };
    // The types of the numbers differ between platforms.
    let saturated = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let disk = statvfs(&tried).ok();
    let free_files = disk.filter(|disk| disk.files() > 0);
    let free_files = free_files.map(|disk| saturated(u128::from(disk.files_available())));
    let free = disk.map(|disk| {
        saturated(u128::from(disk.blocks_available()) * u128::from(disk.fragment_size()))
    });
    SessionStoreFacts { folder, tried, is_folder, unwritable, store, free, free_files }
}

fn probe(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".outlast-probe-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let written = file.write_all(&[b'\n'; PROBE]).and_then(|()| file.sync_all());
    drop(file);
    let removed = fs::remove_file(&path);
    written.and(removed)
}

/// The log of failed hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookLog {
    pub path: PathBuf,
    pub failures: usize,
    /// Lines that cannot be parsed.
    pub unreadable_lines: usize,
    /// True if only the end of a long log was read.
    pub partial: bool,
    /// The reason why an existing log could not be read.
    pub unreadable: Option<String>,
    /// The last few failures, one line each.
    pub last: Vec<String>,
}

/// Maximum number of failures that are shown.
const SHOWN_MAX: usize = 3;

/// Maximum length of each text that is shown, in characters.
const SHOWN_CHARS: usize = 120;

/// Maximum number of bytes that are read from the end of the log.
const LOG_MAX: u64 = 2 << 20;

/// Reads the log: the number of failures, and the last few of them.
pub fn hook_log(config_dir: &Path) -> HookLog {
    let path = CrashLog::in_folder(config_dir).path().to_path_buf();
    let (bytes, partial) = match end_of(&path) {
        Ok(read) => read,
        Err(error) => {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let unreadable = (!is_missing).then(|| error.to_string());
            return HookLog { path, unreadable, ..HookLog::default() };
        }
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line of a partial read is probably cut.
    let lines = text.lines().skip(usize::from(partial));
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    let formatted: Vec<String> = lines.iter().filter_map(|line| format_failure(line)).collect();
    let (failures, unreadable_lines) = (formatted.len(), lines.len() - formatted.len());
    let last = formatted.into_iter().skip(failures.saturating_sub(SHOWN_MAX)).collect();
    HookLog { path, failures, unreadable_lines, partial, unreadable: None, last }
}

/// Reads the end of a regular file. The flag is true if that is not the whole file. Other files are
/// rejected, because reading them could block.
fn end_of(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut file = File::open(path)?;
    let before = file.metadata()?.len().saturating_sub(LOG_MAX);
    file.seek(SeekFrom::Start(before))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok((bytes, before > 0))
}

/// Formats a line of the log. `None`: the line cannot be parsed.
fn format_failure(line: &str) -> Option<String> {
    let failure: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| failure[key].as_str().map(shortened);
    let (time, event, kind) = (text("time")?, text("event")?, text("kind")?);
    let (command, detail) = (text("command")?, text("detail")?);
    Some(format!("{time} {event}: {command} ({kind}: {detail})"))
}

/// Cuts a text between words, because part of a secret would not be recognised and redacted.
fn shortened(text: &str) -> String {
    let fits = |end: &usize| text[..*end].chars().count() <= SHOWN_CHARS;
    let ends = text.char_indices().filter(|(_, letter)| letter.is_whitespace());
    let ends = ends.map(|(at, _)| at).chain([text.len()]);
    let end = ends.take_while(fits).last().unwrap_or_default();
    let more = if end < text.len() { " ..." } else { "" };
    format!("{}{more}", &text[..end])
}
