//! The destination of a journal's lines: a file, or none; after failed writes, a new file as soon
//! as it can be written.
//!
//! ```text
//!       a write fails            with a synced line, if there is room now
//! File ───────────────► Lost ─────────────────────────────────────────► File (a new one)
//!   │                     └── the lines are kept in memory
//!   └── another process takes the session over ──► TakenOver
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::time::Instant;

use crate::process::limit_to_raise;

use super::lease::{AppendError, LeaseFence};
use super::writer::{JournalWriter, Sync};

/// The pause after a failed attempt to write everything again, as a multiple of its duration.
const RETRY_PAUSE_PER_COST: u32 = 50;

/// The state of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalHealth {
    Durable,
    /// Persistence is disabled.
    Off,
    /// It could not be written, for this reason.
    Lost(String),
    /// Another process took the session over. The message names that process. Nothing more is
    /// written.
    TakenOver(String),
}

#[derive(Debug, Default)]
pub(super) enum JournalSink {
    File(JournalWriter),
    #[default]
    Off,
    Lost {
        why: String,
        /// Also keeps the lock: the run continues, so no other process may take the session.
        writer: Option<JournalWriter>,
        /// Time of the next attempt, at the earliest, to write the lines that failed. `None`:
        /// never.
        retry: Option<Instant>,
    },
    TakenOver {
        why: String,
    },
}

impl JournalSink {
    pub(super) fn health(&self) -> JournalHealth {
        match self {
            Self::File(_) => JournalHealth::Durable,
            Self::Off => JournalHealth::Off,
            Self::Lost { why, .. } => JournalHealth::Lost(why.clone()),
            Self::TakenOver { why } => JournalHealth::TakenOver(why.clone()),
        }
    }

    /// Returns the fence of the session's lease. `None` without a lease.
    pub(super) fn fence(&self) -> Option<&Arc<LeaseFence>> {
        match self {
            Self::File(writer) | Self::Lost { writer: Some(writer), .. } => writer.fence(),
            Self::Lost { writer: None, .. } | Self::Off | Self::TakenOver { .. } => None,
        }
    }

    /// Returns true if appended lines are written, or kept in memory until they can be.
    pub(super) fn keeps_lines(&self) -> bool {
        match self {
            Self::File(_) | Self::Lost { retry: Some(_), .. } => true,
            Self::Lost { retry: None, .. } | Self::Off | Self::TakenOver { .. } => false,
        }
    }

    /// Appends whole lines to the file at `path`.
    pub(super) fn append(&mut self, path: &Path, lines: &[u8], sync: Sync) {
        match self {
            Self::File(writer) => match writer.append(lines, sync) {
                Ok(()) => {}
                Err(AppendError::Io(cause)) => {
                    self.stop(path, &cause, is_of_disk(&cause).then(Instant::now));
                    if sync != Sync::Later {
                        self.resume_writing(path);
                    }
                }
                Err(AppendError::TakenOver(why)) => *self = Self::TakenOver { why },
            },
            Self::Lost { writer: Some(writer), retry: retry @ Some(_), .. } => {
                if !writer.keep(lines) {
                    *retry = None;
                } else if sync != Sync::Later {
                    self.resume_writing(path);
                }
            }
            Self::Lost { .. } | Self::Off | Self::TakenOver { .. } => {}
        }
    }

    /// Stops writing permanently.
    pub(super) fn fail(&mut self, path: &Path, cause: &io::Error) {
        self.stop(path, cause, None);
    }

    fn stop(&mut self, path: &Path, cause: &io::Error, retry: Option<Instant>) {
        let advice = limit_to_raise(cause).map_or_else(String::new, |how| format!("; {how}"));
        let why = format!("cannot write {}: {cause}{advice}", path.display());
        let writer = match std::mem::replace(self, Self::Off) {
            Self::File(writer) => Some(writer),
            Self::Lost { writer, .. } => writer,
            Self::Off | Self::TakenOver { .. } => None,
        };
        *self = Self::Lost { why, writer, retry };
    }

    /// Tries to write the lines that failed, to a new file.
    fn resume_writing(&mut self, path: &Path) {
        let Self::Lost { writer: kept, retry: Some(retry), .. } = self else { return };
        let began = Instant::now();
        if began < *retry {
            return;
        }
        let Some(writer) = kept else { return };
        match writer.replace_file(path) {
            Ok(()) => {
                if let Some(writer) = kept.take() {
                    *self = Self::File(writer);
                }
            }
            Err(AppendError::TakenOver(why)) => *self = Self::TakenOver { why },
            Err(AppendError::Io(cause)) => {
                let pause = began.elapsed() * RETRY_PAUSE_PER_COST;
                let next = is_of_disk(&cause).then(|| Instant::now() + pause);
                self.stop(path, &cause, next);
            }
        }
    }
}

/// Returns true if the error is of the system, which may allow a later write. A file that was
/// deleted is not created again.
fn is_of_disk(cause: &io::Error) -> bool {
    cause.raw_os_error().is_some()
}
