//! The log file of failed hooks: an unattended run continues without them.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::libc;
use serde_json::json;

use crate::json::to_line;
use crate::process::{create_private_folder, file_reads};
use crate::secrets::Redactor;

use super::config::HookHandler;
use super::failure::HookFailure;

/// The size limit of the log, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// A JSON Lines file with one line for each failure; all runs on this machine append to it.
#[derive(Clone, Debug)]
pub struct CrashLog {
    path: PathBuf,
}

impl CrashLog {
    /// The log in a configuration folder.
    pub fn in_folder(config: &Path) -> Self {
        Self { path: config.join("hooks/.logs/hook-log.jsonl") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts the logged failures. 0 if it is not a regular file.
    pub fn count(&self) -> usize {
        // Concurrent runs may each have appended a last line beyond the limit.
        let text = file_reads::read_regular(&self.path, 2 * BYTES_MAX).unwrap_or_default();
        text.split(|byte| *byte == b'\n').count() - 1
    }

    /// Appends a failure in one write, so that lines of concurrent runs do not mix.
    ///
    /// # Errors
    /// The system refuses, or the log is full.
    pub(super) fn add(
        &self,
        handler: &HookHandler,
        failure: &HookFailure,
        session: &str,
        redactor: &Redactor,
    ) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            create_private_folder(folder)?;
        }
        let mut options = OpenOptions::new();
        // Opening a pipe would block until it has a reader.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        options.append(true).create(true).mode(0o600).custom_flags(flags);
        let mut file = options.open(&self.path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut line = json!({
            "time": Timestamp::now().to_string(),
            "session_id": session,
            "event": handler.event.name(),
            "command": handler.command.line(),
            "source": handler.source,
            "kind": failure.kind,
            "detail": failure.detail,
        });
        redactor.redact_json(&mut line);
        let line = to_line(&line) + "\n";
        if facts.len() + line.len() as u64 > BYTES_MAX {
            return Err(io::Error::other("it is full; read and delete it"));
        }
        file.write_all(line.as_bytes())
    }
}
