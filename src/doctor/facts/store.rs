//! The folder of sessions: whether it takes a file, what it holds, how much room there is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use serde_json::Value;

use crate::hooks::CrashLog;
use crate::journal;

/// What is written to see whether that can be done, in bytes: a page, so that a full disk shows.
const PROBE: usize = 4096;

/// What was seen of the folder of sessions.
#[derive(Clone, Debug)]
pub struct SessionStoreFacts {
    /// Where sessions are kept.
    pub folder: PathBuf,
    /// Where the file was written: the folder itself, or the one that would be made first.
    pub tried: PathBuf,
    /// Whether that is a folder at all.
    pub is_folder: bool,
    /// Why it could not be written.
    pub unwritable: Option<String>,
    pub store: journal::SessionStore,
    /// On the disk that it is on, in bytes.
    pub free: Option<u64>,
    /// How many more files that disk takes; `None` where it sets no limit.
    pub free_files: Option<u64>,
}

/// Tries to write, and counts.
pub fn inspect_store(config_dir: &Path) -> SessionStoreFacts {
    let store = journal::survey_sessions(config_dir);
    let folder = store.folder.clone();
    // What is not there yet is made by the first run, in the first folder above that is there.
    let tried = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let tried = tried.to_path_buf();
    let is_folder = tried.is_dir();
    let unwritable = if is_folder {
        probe(&tried).err().map(|error| error.to_string())
    } else {
        Some("it is a file, where a folder should be".to_owned())
    };
    let disk = statvfs(&tried).ok();
    let free_files = disk.filter(|disk| disk.files() > 0).map(|disk| {
        // Their types are not the same everywhere.
        u64::try_from(u128::from(disk.files_available())).unwrap_or(u64::MAX)
    });
    let free = disk.map(|disk| {
        // Their types are not the same everywhere.
        let bytes = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
        u64::try_from(bytes).unwrap_or(u64::MAX)
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

/// The log of hooks that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookLog {
    pub path: PathBuf,
    pub failures: usize,
    /// Lines that tell of no failure.
    pub unreadable_lines: usize,
    /// Whether it is so long that only its end was read.
    pub partial: bool,
    /// Why nothing of it could be read, though it is there.
    pub unreadable: Option<String>,
    /// The last few, a line each.
    pub last: Vec<String>,
}

/// So many failures are shown.
const SHOWN_MAX: usize = 3;

/// Longer words of a failure are cut.
const SHOWN_CHARS: usize = 120;

/// No more of a log's end is read, in bytes.
const LOG_MAX: u64 = 2 << 20;

/// Counts the failures in the log, and reads the last few.
pub fn hook_log(config_dir: &Path) -> HookLog {
    let path = CrashLog::in_folder(config_dir).path().to_path_buf();
    let (bytes, partial) = match end_of(&path) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return HookLog { path, ..HookLog::default() };
        }
        Err(error) => {
            return HookLog { path, unreadable: Some(error.to_string()), ..HookLog::default() };
        }
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line of a part is most probably none.
    let lines = text.lines().skip(usize::from(partial));
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    let told: Vec<String> = lines.iter().filter_map(|line| format_failure(line)).collect();
    let (failures, rubbish) = (told.len(), lines.len() - told.len());
    let last = told.into_iter().skip(failures.saturating_sub(SHOWN_MAX)).collect();
    HookLog { path, failures, unreadable_lines: rubbish, partial, unreadable: None, last }
}

/// The end of a regular file, and whether there is more before it. Waits for nobody.
fn end_of(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut file = File::open(path)?;
    let before = file.metadata()?.len().saturating_sub(LOG_MAX);
    file.seek(SeekFrom::Start(before))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX).read_to_end(&mut bytes)?;
    Ok((bytes, before > 0))
}

/// A line of the log, for people; `None` if it tells of no failure.
fn format_failure(line: &str) -> Option<String> {
    let failure: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| failure[key].as_str().map(shortened);
    let (time, event, kind) = (text("time")?, text("event")?, text("kind")?);
    let (command, detail) = (text("command")?, text("detail")?);
    Some(format!("{time} {event}: {command} ({kind}: {detail})"))
}

/// The words that fit. None is cut in two: half a secret would not be known as one.
fn shortened(text: &str) -> String {
    let fits = |end: &usize| text[..*end].chars().count() <= SHOWN_CHARS;
    let ends = text.char_indices().filter(|(_, letter)| letter.is_whitespace());
    let ends = ends.map(|(at, _)| at).chain([text.len()]);
    let end = ends.take_while(fits).last().unwrap_or_default();
    let more = if end < text.len() { " ..." } else { "" };
    format!("{}{more}", &text[..end])
}
