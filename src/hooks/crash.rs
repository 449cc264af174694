//! The log of hooks that failed: a run goes on without them, and nobody watches.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::json;

use crate::secrets::Mask;

use super::answer::Mishap;
use super::config::Handler;

/// Beyond this the log says nothing new, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// A file of JSON lines, one for each failure, which every run on this machine appends to.
#[derive(Clone, Debug)]
pub struct CrashLog {
    path: PathBuf,
}

impl CrashLog {
    /// The log in a configuration folder.
    pub fn of(config: &Path) -> Self {
        Self { path: config.join("hooks/.logs/hook-log.jsonl") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many failures it tells of.
    pub fn count(&self) -> usize {
        let mut text = Vec::new();
        let read =
            File::open(&self.path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut text));
        if read.is_ok() { text.split(|byte| *byte == b'\n').count() - 1 } else { 0 }
    }

    /// Adds a failure, in one write, so that lines of several runs do not mix.
    ///
    /// # Errors
    /// The system refuses, or the log is full.
    pub(super) fn add(
        &self,
        handler: &Handler,
        mishap: &Mishap,
        session: &str,
        mask: &Mask,
    ) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        if file.metadata()?.len() >= BYTES_MAX {
            return Err(io::Error::other("it is full; read it, and delete it"));
        }
        let mut line = json!({
            "time": Timestamp::now().to_string(),
            "session_id": session,
            "event": handler.event.name(),
            "command": handler.command.line(),
            "source": handler.source,
            "kind": mishap.kind.name(),
            "detail": mishap.detail,
        });
        mask.hide_json(&mut line);
        file.write_all(format!("{line}\n").as_bytes())
    }
}
