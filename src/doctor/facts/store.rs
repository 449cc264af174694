//! The folder of sessions: whether it takes a file, what it holds, how much room there is.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use serde_json::Value;

use crate::hooks::CrashLog;
use crate::journal;
use crate::process::reading;

/// What is written to see whether that can be done, in bytes: a page, so that a full disk shows.
const PROBE: usize = 4096;

/// What was seen of the folder of sessions.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Where sessions are kept.
    pub folder: PathBuf,
    /// Where the file was written: the folder itself, or the one that would be made first.
    pub tried: PathBuf,
    /// Why it could not be written.
    pub unwritable: Option<String>,
    pub store: journal::Store,
    /// On the disk that it is on, in bytes.
    pub free: Option<u64>,
}

/// Tries to write, and counts.
pub fn look(config_dir: &Path) -> Kept {
    let store = journal::survey(config_dir);
    let folder = store.folder.clone();
    // What is not there yet is made by the first run, in the first folder above that is there.
    let tried = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let tried = tried.to_path_buf();
    let unwritable = probe(&tried).err().map(|error| error.to_string());
    let free = statvfs(&tried).ok().map(|disk| {
        // Their types are not the same everywhere.
        let bytes = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
        u64::try_from(bytes).unwrap_or(u64::MAX)
    });
    Kept { folder, tried, unwritable, store, free }
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookLog {
    pub path: PathBuf,
    pub failures: usize,
    /// The last few, a line each.
    pub last: Vec<String>,
}

/// So many failures are shown.
const SHOWN_MAX: usize = 3;

/// Longer words of a failure are cut.
const SHOWN_CHARS: usize = 120;

/// No log is read further, in bytes.
const LOG_MAX: u64 = 2 << 20;

/// Counts the failures in the log, and reads the last few.
pub fn hook_log(config_dir: &Path) -> HookLog {
    let path = CrashLog::of(config_dir).path().to_path_buf();
    let text = reading::read_regular(&path, LOG_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.iter().skip(lines.len().saturating_sub(SHOWN_MAX)).map(|line| told(line));
    HookLog { failures: lines.len(), last: last.collect(), path }
}

/// A line of the log, for people.
fn told(line: &str) -> String {
    let failure: Value = serde_json::from_str(line).unwrap_or_default();
    let text = |key: &str| failure[key].as_str().unwrap_or("?").chars().take(SHOWN_CHARS);
    let text = |key: &str| text(key).collect::<String>();
    format!(
        "{} {}: {} ({}: {})",
        text("time"),
        text("event"),
        text("command"),
        text("kind"),
        text("detail")
    )
}
