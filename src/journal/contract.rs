//! The contract and the first prompt that a session was started with.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::entry::{JournalRecord, LineChecksum, check_seal};
use super::redact::Redaction;
use super::{JournalError, SessionFolder, SessionId};

/// How much of a prompt is kept as a title, in characters.
const BEGINNING_CHARS: usize = 60;

/// The limits, acceptance checks and rules of a session, as stored in its journal. The settings
/// module defines their meaning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// The version of the terms.
    pub version: u32,
    /// The value of each term by name. `null`: the session has no such limit or rule.
    pub terms: Map<String, Value>,
    /// The terms that held a secret, which the journal stores without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
}

impl Contract {
    /// The contract with secrets removed, as it may be written to disk.
    pub(super) fn redacted_by(&self, redaction: &Redaction) -> Self {
        let mut contract = self.clone();
        for (name, value) in &mut contract.terms {
            if redaction.mask_value(value) {
                contract.redacted.push(name.clone());
            }
        }
        contract
    }
}

/// The first prompt of a session: a hash to recognise it, and a title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstPrompt {
    /// In hexadecimal digits.
    pub sha256: String,
    /// Its first words, on one line.
    pub beginning: String,
}

impl FirstPrompt {
    /// Describes a prompt. Surrounding white space is ignored.
    pub fn of(prompt: &str) -> Self {
        let prompt = prompt.trim();
        let digest = Sha256::digest(prompt.as_bytes());
        let mut sha256 = String::with_capacity(2 * digest.len());
        for byte in digest {
            let _ = write!(sha256, "{byte:02x}");
        }
        Self { sha256, beginning: prompt_title(prompt) }
    }
}

/// Returns the first words of a text, on one line.
pub fn prompt_title(text: &str) -> String {
    let near: String = text.chars().take(4 * BEGINNING_CHARS).collect();
    let line = near.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(BEGINNING_CHARS).collect();
    if short.len() < line.len() || near.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// How a session was started, according to its journal. Empty if it was started by a version that
/// did not record it, or by another program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    pub contract: Option<Kept>,
    pub prompt: Option<FirstPrompt>,
}

/// The contracts of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The one that the session was started with.
    pub original: Contract,
    /// The one in force when the last process began.
    pub latest: Contract,
}

/// Reads how a session was started, without locking it. Damage elsewhere in the file is ignored.
///
/// # Errors
/// The session is unknown or unreadable.
pub fn read_terms(place: &SessionFolder, id: &SessionId) -> Result<Terms, JournalError> {
    let path = place.find(id)?;
    let bytes = std::fs::read(&path);
    let bytes = bytes.map_err(|cause| JournalError::Unreadable { path: path.clone(), cause })?;
    find_terms(&path, &bytes)
}

/// Finds contract and prompt records among the lines of a file. Their marker cannot occur within
/// the text of a message, where quotes are escaped.
///
/// # Errors
/// A contract that this version cannot read.
pub(super) fn find_terms(path: &Path, bytes: &[u8]) -> Result<Terms, JournalError> {
    let mut terms = Terms::default();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let head = &line[..line.len().min(HEAD_BYTES)];
        let has = |mark: &[u8]| head.windows(mark.len()).any(|window| window == mark);
        if !has(OURS) || !(has(CONTRACT) || has(PROMPT)) || check_seal(line) != LineChecksum::Intact
        {
            continue;
        }
        let record = serde_json::from_slice::<JournalRecord>(line).map_err(|error| {
            let (path, what) = (path.to_owned(), format!("contract: {error}"));
            JournalError::Newer { path, line: index + 1, what }
        })?;
        match record {
            JournalRecord::Contract(contract) => match &mut terms.contract {
                Some(kept) => kept.latest = *contract,
                none @ None => {
                    *none = Some(Kept { original: (*contract).clone(), latest: *contract });
                }
            },
            JournalRecord::Prompt(prompt) => {
                terms.prompt.get_or_insert(prompt);
            }
            JournalRecord::Open(_)
            | JournalRecord::Transition { .. }
            | JournalRecord::Intent { .. }
            | JournalRecord::Spend { .. }
            | JournalRecord::Repair { .. }
            | JournalRecord::Rewrite { .. }
            | JournalRecord::Recovery(_)
            | JournalRecord::ToolCalls { .. }
            | JournalRecord::Window { .. }
            | JournalRecord::End { .. } => {}
        }
    }
    Ok(terms)
}

/// The start of our records, and within how many bytes it must occur.
const OURS: &[u8] = br#""type":"outlast""#;
const HEAD_BYTES: usize = 160;
const CONTRACT: &[u8] = br#""kind":"contract""#;
const PROMPT: &[u8] = br#""kind":"prompt""#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_prompt_is_one_short_line() {
        assert_eq!(prompt_title("Fix\n  it."), "Fix it.");
        let long = "word ".repeat(100);
        let short = prompt_title(&long);
        assert!(short.ends_with("...") && short.chars().count() == BEGINNING_CHARS + 3, "{short}");
        assert_eq!(FirstPrompt::of(" a\n"), FirstPrompt::of("a"));
        assert_ne!(FirstPrompt::of("a b").sha256, FirstPrompt::of("a  b").sha256);
    }
}
