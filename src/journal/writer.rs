//! Appends lines to a file until the first failure, and never after it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Marks the line by which a process takes a session over.
const TAKE_OVER: &[u8] = br#""kind":"open""#;
/// How much a process that shares the file may have added between two of our lines.
const FOREIGN_BYTES_MAX: u64 = 1 << 20;

/// When a line must be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// Before anything else happens.
    Now,
    /// With the next line that must be.
    Later,
}

/// The writing end of a journal. After a failed write or sync it must not be used again: the
/// kernel forgets what it could not write, so that a second sync would succeed and lie.
#[derive(Debug)]
pub(super) struct JournalWriter {
    file: File,
    /// How long the file is when nobody else has written to it.
    len: u64,
}

impl JournalWriter {
    /// Makes a new file. Fails if there is one.
    pub(super) fn create(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)
    }

    /// Goes on at the end of `file`, which is `len` bytes long.
    pub(super) fn new(file: File, len: u64) -> Self {
        Self { file, len }
    }

    /// Appends one line, whole or not at all.
    pub(super) fn append(&mut self, line: &[u8], sync: Sync) -> io::Result<()> {
        self.check_takeover()?;
        if let Err(cause) = self.file.write_all(line) {
            // A line that is half there would be dropped by the next reader anyway; taking it
            // back keeps the file whole for those who do not know that. It may fail.
            let _half_a_line_stays = self.file.set_len(self.len);
            return Err(cause);
        }
        self.len += u64::try_from(line.len()).unwrap_or(u64::MAX);
        match sync {
            Sync::Now => self.file.sync_data(),
            Sync::Later => Ok(()),
        }
    }

    /// Fails when the session is no longer ours: where locks do not work, another process may
    /// have taken it over. One that only added a title does no harm.
    fn check_takeover(&mut self) -> io::Result<()> {
        let facts = self.file.metadata()?;
        if !facts.is_file() || (facts.len() == self.len && facts.nlink() > 0) {
            return Ok(());
        }
        if facts.nlink() == 0 {
            return Err(io::Error::other("the file was deleted"));
        }
        if facts.len() < self.len {
            return Err(io::Error::other("another program shortened the file"));
        }
        let mut added = Vec::new();
        self.file.seek(SeekFrom::Start(self.len))?;
        Read::by_ref(&mut self.file).take(FOREIGN_BYTES_MAX).read_to_end(&mut added)?;
        if added.windows(TAKE_OVER.len()).any(|window| window == TAKE_OVER) {
            return Err(io::Error::other("another process took the session over"));
        }
        self.len = facts.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::journal::{CarryOver, JournalHealth, Journal, MessageMeta, ProcessOpening, SessionFolder, SessionId};
    use crate::recovery::{Limits, Money, StopReason};
    use crate::transcript::{Block, Message, ToolCall, Usage};

    use super::*;

    fn device(name: &str) -> JournalWriter {
        JournalWriter::new(OpenOptions::new().append(true).open(name).expect("a device"), 0)
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let error = device("/dev/full").append(b"x\n", Sync::Later).expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_sync_that_fails_is_an_error() {
        assert!(device("/dev/null").append(b"x\n", Sync::Later).is_ok());
        assert!(device("/dev/null").append(b"x\n", Sync::Now).is_err(), "it cannot be synced");
    }

    /// Where a sync always fails, a journal is lost exactly when it syncs.
    fn syncs(tell: impl FnOnce(&mut Journal)) -> bool {
        let opening = ProcessOpening {
            version: String::new(),
            model: String::new(),
            permission_mode: String::new(),
            limits: Limits::default(),
            carry: CarryOver::Fresh,
            required_servers: Vec::new(),
            contract: None,
            prompt: None,
            redact: Vec::new(),
        };
        let place = SessionFolder::new(Path::new("/nowhere"), Path::new("/"));
        let mut journal = Journal::on_writer(device("/dev/null"), &place, &SessionId::generate(), &opening);
        tell(&mut journal);
        journal.health() != JournalHealth::Durable
    }

    #[test]
    fn what_must_not_happen_twice_is_on_the_disk_before_it_happens() {
        let call = ToolCall { id: "a".to_owned(), name: "Bash".to_owned(), input: Value::Null };
        let text = Block::text("x");
        let tool = Block::ToolUse { id: "a".to_owned(), name: "B".to_owned(), input: Value::Null };
        let says = |block: &Block| Message::assistant(vec![block.clone()]);
        let user = Message::user(vec![text.clone()]);
        let meta = MessageMeta::default();
        assert!(syncs(|journal| journal.intent(&[(call, false)])));
        assert!(syncs(|journal| _ = journal.outcome(&text, &Value::Null)));
        assert!(syncs(|journal| _ = journal.message(&user, &meta)));
        assert!(syncs(|journal| _ = journal.message(&says(&text), &meta)));
        assert!(syncs(|journal| journal.end(StopReason::Completed)));
        assert!(!syncs(|journal| _ = journal.message(&says(&tool), &meta)), "its intent syncs it");
        assert!(!syncs(|journal| journal.spend(Some(Money::ZERO), &Usage::default(), "m")));
    }
}
