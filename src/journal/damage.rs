//! Recovery of a journal that is damaged before its end: the intact part is used, the rest is set
//! aside.
//!
//! ```text
//! line 1 ... intact ... line n | damaged line | ... whole or not ...
//!        the session goes on ──┘ └── moved to <session id>/damaged-1.jsonl, with a note to the model
//! ```

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::process::create_private_folder;
use crate::transcript::{Block, ToolCall, describe_unknown_outcome};

use super::entry::{Damage, JournalRecord};
use super::parsed_line::JournalEntry;
use super::reader::{self, JournalContents, JournalRefusal, ParseError};
use super::session_folder::sync_folders;

/// The most damaged parts that are set aside for one session.
const RESTS_MAX: u32 = 1_000;

/// The most calls listed in the note to the model.
const LISTED_CALLS_MAX: usize = 20;

const LOST_NOTE: &str = "The record of this session was damaged on the disk, and everything after this \
                    point of the conversation is lost. What was done since then is unknown: \
                    commands may have run, and files may have been changed. Check the present \
                    state before you go on, and check before doing anything again.";

/// The policy for a file that is damaged before its last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    #[default]
    Refuse,
    /// Use the part before the damage.
    UseIntactPart,
}

/// The rest of a file, from the damage on.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) damage: Damage,
    bytes: Vec<u8>,
    entries: Vec<JournalEntry>,
}

impl Rest {
    /// Splits a file at its damage: the contents before it, and the rest.
    ///
    /// # Errors
    /// Those of [`reader::parse_journal`].
    pub(super) fn split(
        bytes: &[u8],
        refusal: &JournalRefusal,
        what: &str,
    ) -> Result<(JournalContents, Self), ParseError> {
        let end = usize::try_from(refusal.intact).unwrap_or(usize::MAX).min(bytes.len());
        let (intact, rest) = bytes.split_at(end);
        let contents = reader::parse_journal(intact)?;
        let lines = rest.split_inclusive(|byte| *byte == b'\n').count();
        let damage = Damage {
            line: refusal.line,
            what: what.to_owned(),
            dropped_records: u32::try_from(lines).unwrap_or(u32::MAX),
            kept_in: None,
        };
        let (bytes, entries) = (rest.to_vec(), reader::parse_readable(rest));
        Ok((contents, Self { damage, bytes, entries }))
    }

    /// The readable spending records after the damage, which still count.
    pub(super) fn spending_records(&self) -> impl Iterator<Item = &JournalRecord> {
        self.entries.iter().filter_map(|entry| {
            let JournalEntry::Record(record) = entry else { return None };
            matches!(**record, JournalRecord::Spend(_)).then_some(&**record)
        })
    }

    /// Returns the note to the model that replaces the damaged part.
    pub(super) fn note_to_model(&self) -> Block {
        let mut text = LOST_NOTE.to_owned();
        let calls = self.calls();
        if !calls.is_empty() {
            text.push_str("\nAs far as the record can be read, these calls were made:");
            for call in calls.iter().take(LISTED_CALLS_MAX) {
                let _ = write!(text, "\n- {call}: outcome unknown");
            }
            if calls.len() > LISTED_CALLS_MAX {
                let _ = write!(text, "\n- and {} more", calls.len() - LISTED_CALLS_MAX);
            }
        }
        Block::text(text)
    }

    /// The tool calls in the replies of the rest.
    fn calls(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut calls = Vec::new();
        for entry in &self.entries {
            let JournalEntry::Message(entry) = entry else { continue };
            for (id, name, input) in entry.message.content.iter().filter_map(Block::as_call) {
                if seen.insert(id) {
                    let (id, name) = (id.to_owned(), name.to_owned());
                    let call = ToolCall { id, name, input: input.clone() };
                    calls.push(describe_unknown_outcome(&call));
                }
            }
        }
        calls
    }

    /// Copies the rest to a file beside the session's, before it is cut off there.
    pub(super) fn save(&self, journal: &Path) -> io::Result<PathBuf> {
        let folder = journal.with_extension("");
        create_private_folder(&folder)?;
        let (path, mut file) = create(&folder)?;
        file.write_all(&self.bytes)?;
        file.sync_all()?;
        sync_folders(&folder)?;
        Ok(path)
    }
}

/// Returns true for the name of a file with a damaged part that was set aside.
pub(super) fn is_rest_name(name: &str) -> bool {
    let number = name.strip_prefix("damaged-").and_then(|rest| rest.strip_suffix(".jsonl"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn create(folder: &Path) -> io::Result<(PathBuf, File)> {
    for number in 1..=RESTS_MAX {
        let path = folder.join(format!("damaged-{number}.jsonl"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}
