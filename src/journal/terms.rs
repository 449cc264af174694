//! The contract and the first prompt of a session, found without parsing the whole journal.

use std::io::BufRead;
use std::path::Path;

use crate::process::file_reads::open_regular;

use super::contract::{Contract, FirstPrompt};
use super::entry::{JournalRecord, LineChecksum, check_seal};
use super::line_head::record_kind;
use super::raw_lines::{RawLines, buffered};
use super::view::JournalView;
use super::{JournalError, SessionFolder, SessionId};

/// The contract and the first prompt of a session, according to its journal. Empty if another
/// program started the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    pub contract: Option<Kept>,
    pub prompt: Option<FirstPrompt>,
}

/// The contracts of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The contract that the session was started with.
    pub original: Contract,
    /// The contract in force when the last process began.
    pub latest: Contract,
    /// The last contract of a process in the reader's working directory: its permissions apply
    /// there.
    pub here: Option<Contract>,
}

impl Terms {
    fn add(&mut self, contract: Contract, here: &str) {
        let is_of_here = contract.folder.as_deref().is_none_or(|folder| folder == here);
        let of_here = is_of_here.then(|| contract.clone());
        match &mut self.contract {
            Some(known) => {
                known.here = of_here.or(known.here.take());
                known.latest = contract;
            }
            none @ None => {
                *none = Some(Kept { original: contract.clone(), latest: contract, here: of_here });
            }
        }
    }
}

/// Reads the contract and the first prompt of a session, without locking it. Damage elsewhere in
/// the file is ignored.
///
/// # Errors
/// The session is unknown or unreadable.
pub fn read_terms(sessions: &SessionFolder, id: &SessionId) -> Result<Terms, JournalError> {
    let path = sessions.find(id)?;
    let unreadable = |cause| JournalError::Unreadable { path: path.clone(), cause };
    let file = open_regular(&path).map_err(unreadable)?;
    find_terms(&path, buffered(file), &sessions.recorded_cwd())
}

/// Finds contract and prompt records among the lines of a file. `here` is the working directory.
///
/// # Errors
/// The file cannot be read, or has a contract that this version cannot read.
pub(super) fn find_terms(
    path: &Path,
    journal: impl BufRead,
    here: &str,
) -> Result<Terms, JournalError> {
    let unreadable = |cause| JournalError::Unreadable { path: path.to_owned(), cause };
    let mut fold = TermsFold { terms: Terms::default(), here };
    let mut lines = RawLines::new(journal);
    while let Some((number, line)) = lines.next_line().map_err(unreadable)? {
        let Ok(line) = line else { continue };
        if !record_kind(line).is_some_and(|kind| KINDS.contains(&kind))
            || check_seal(line) != LineChecksum::Intact
        {
            continue;
        }
        let record = serde_json::from_slice::<JournalRecord>(line).map_err(|error| {
            let (path, what) = (path.to_owned(), format!("contract: {error}"));
            JournalError::Newer { path, line: number, what }
        })?;
        record.show(&mut fold);
    }
    Ok(fold.terms)
}

/// The terms while records are read in order.
struct TermsFold<'a> {
    terms: Terms,
    /// The working directory.
    here: &'a str,
}

impl JournalView<'_> for TermsFold<'_> {
    fn contract(&mut self, contract: &Contract) {
        self.terms.add(contract.clone(), self.here);
    }

    fn first_prompt(&mut self, prompt: &FirstPrompt) {
        self.terms.prompt.get_or_insert_with(|| prompt.clone());
    }
}

/// The kinds of the records with contract or prompt, as they are written.
const KINDS: [&[u8]; 2] = [br#""contract""#, br#""prompt""#];
