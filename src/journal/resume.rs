//! Resumes sessions: locks, reads and reopens their journals.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::LockedFile;
use crate::recovery::Money;
use crate::transcript::{Block, Message, Usage};

use super::damage::{OnDamage, Rest};
use super::ended_calls::UndoneCalls;
use super::entry::{MessageMeta, ProcessOpening};
use super::lease::{LeaseRequest, SessionLease, Takeover};
use super::lock::lock_session;
use super::log::JournalStart;
use super::moved_session::record_move;
use super::output::await_earlier_thread;
use super::past_agents::read_subagents;
use super::reader::{self, ParseError, RefusalReason};
use super::restore::{ParsedFile, RestoreRemarks, ResumePoint, restore};
use super::terms::find_terms;
use super::writer::{JournalWriter, Sync, replace_file};
use super::{Journal, JournalError, RestoredSession, SessionFolder, SessionId};

/// Options for reading a session.
#[derive(Clone, Debug, Default)]
pub struct ReadRequest {
    pub on_damage: OnDamage,
    /// The message up to which it is restored. `None`: to its end.
    pub point: Option<ResumePoint>,
}

impl From<OnDamage> for ReadRequest {
    fn from(on_damage: OnDamage) -> Self {
        Self { on_damage, point: None }
    }
}

/// A session that was read and is locked, but not yet written to.
#[derive(Debug)]
pub struct LockedSession {
    id: SessionId,
    restored: RestoredSession,
    remarks: RestoreRemarks,
    rest: Option<Rest>,
    file: LockedFile,
    lease: Option<(SessionLease, Takeover)>,
    path: PathBuf,
    /// The end of the intact part, where writing continues.
    end: IntactEnd,
    /// The reason that the file cannot be written to, if it cannot.
    unwritable: Option<io::Error>,
}

#[derive(Debug)]
struct IntactEnd {
    /// The number of bytes before it.
    bytes: u64,
    /// The number of the last line.
    seq: u64,
    lacks_newline: bool,
}

/// Reads a session of any working directory without locking it, for a fork or a report. Concurrent
/// appends may be missed.
///
/// # Errors
/// The session is unknown, unreadable, damaged or newer than this program, or cannot be resumed at
/// the requested message.
pub fn read_session(
    sessions: &SessionFolder,
    id: &SessionId,
    request: impl Into<ReadRequest>,
) -> Result<RestoredSession, JournalError> {
    let ReadRequest { on_damage, point } = request.into();
    let path = sessions.find(id)?;
    let unreadable = |cause| JournalError::Unreadable { path: path.clone(), cause };
    let bytes = std::fs::read(&path).map_err(unreadable)?;
    let file = ParsedFile::parse(sessions, id, &path, (&bytes, on_damage))?;
    restore(id, &file, point.as_ref()).map(|(restored, _remarks)| restored)
}

impl LockedSession {
    /// Locks and reads a session of any working directory.
    ///
    /// # Errors
    /// Those of [`read_session`], and [`JournalError::Locked`] when another process holds the
    /// session.
    pub fn lock_and_read(
        sessions: &SessionFolder,
        id: &SessionId,
        request: impl Into<ReadRequest>,
    ) -> Result<Self, JournalError> {
        let ReadRequest { on_damage, point } = request.into();
        let path = sessions.find(id)?;
        await_earlier_thread(&path);
        let unreadable = |cause| JournalError::Unreadable { path: path.clone(), cause };
        let (file, unwritable) = open(&path).map_err(unreadable)?;
        let mut file = LockedFile::from(file);
        let lock = lock_session(&file, id, &path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let epoch_before = reader::last_open_record(&bytes[..]).map_or(0, |open| open.epoch);
        let request =
            LeaseRequest { journal: &path, machine: sessions.machine(), epoch_before, lock };
        let lease = SessionLease::acquire_if_available(id, &request)?;
        // Another process may have written before this one acquired the lease.
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let parsed = ParsedFile::parse(sessions, id, &path, (&bytes, on_damage))?;
        let contents = &parsed.contents;
        let end = IntactEnd {
            bytes: contents.intact_bytes,
            seq: contents.seq,
            lacks_newline: contents.lacks_newline,
        };
        let (restored, remarks) = restore(id, &parsed, point.as_ref())?;
        let (id, rest) = (id.clone(), parsed.rest);
        Ok(Self { id, restored, remarks, rest, file, lease, path, end, unwritable })
    }

    pub fn restored(&self) -> &RestoredSession {
        &self.restored
    }

    /// Continues writing: cuts off the torn end, and records the answers to interrupted calls. If
    /// the file cannot be written, the journal reports itself lost and the run may continue.
    pub fn open(
        mut self,
        sessions: &SessionFolder,
        opening: &ProcessOpening,
    ) -> (Journal, RestoredSession) {
        let cut = self.cut_off_end();
        let Self { id, mut restored, remarks, rest, file, lease, path, end, .. } = self;
        record_move(&path, &sessions.recorded_cwd(), &sessions.folder());
        let lease = lease.map(|(lease, _)| lease);
        let writer = JournalWriter::new(file, end.bytes).with_lease(lease);
        let RestoreRemarks { leaf, answers, ids, fold } = remarks;
        let journal = Journal::on_writer(writer, sessions, &id, opening);
        let mut journal = Journal { path, seq: end.seq, leaf, earlier_ids: ids, fold, ..journal };
        // The lines below are not written after a failure, but show the journal the state of the
        // prompt.
        let kept_in = cut.unwrap_or_else(|cause| {
            journal.fail(&cause);
            None
        });
        if let Some(damage) = &mut restored.contract.damage {
            damage.kept_in = kept_in.map(|file| file.display().to_string());
        }
        if end.lacks_newline {
            journal.end_line();
        }
        if let Some(rest) = &rest {
            journal.repeat_terms(&restored.contract.terms);
            rest.spending_records().for_each(|spend| journal.record(spend, Sync::Later));
        }
        let totals = &restored.totals;
        if totals.in_flight > Money::ZERO {
            let (cost, model) = (totals.in_flight, totals.in_flight_model.as_str());
            journal.spend_upper_bound(Some(cost), &Usage::default(), model);
        }
        let dropped = totals.dropped_records;
        let damage = restored.contract.damage.clone();
        let epoch =
            restored.contract.opened.as_ref().map_or(0, |open| open.epoch).saturating_add(1);
        let start = JournalStart { dropped, damage, ..JournalStart::new(epoch) };
        journal.open(opening, &restored.contract.terms, start);
        let abandoned = answers.iter().filter_map(Block::answered_call);
        let abandoned = abandoned.map(str::to_owned).collect();
        journal.undone_calls(UndoneCalls { abandoned, ..UndoneCalls::default() });
        for answer in &answers {
            journal.outcome(answer, &Value::Null);
        }
        if let Some(rest) = &rest {
            journal.message(&Message::user(vec![rest.note_to_model()]), &MessageMeta::default());
        }
        journal.repairs(&restored.conversation.repairs);
        (journal, restored)
    }

    /// Cuts off the torn or damaged end of the file. Returns the file that a damaged part was
    /// copied to.
    fn cut_off_end(&mut self) -> io::Result<Option<PathBuf>> {
        if let Some(cause) = self.unwritable.take() {
            return Err(cause);
        }
        let kept_in = self.rest.as_ref().map(|rest| rest.save(&self.path)).transpose()?;
        let length = self.end.bytes;
        match self.lease {
            Some((_, Takeover::Presumed)) => {
                self.file = replace_file(&self.path, &mut self.file, length, &[])?.into();
            }
            Some((_, Takeover::Certain)) | None => self.file.set_len(length)?,
        }
        Ok(kept_in)
    }
}

/// Opens a file for writing, or read-only where that is not allowed.
fn open(path: &Path) -> io::Result<(File, Option<io::Error>)> {
    match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => Ok((file, None)),
        Err(cause) => Ok((File::open(path)?, Some(cause))),
    }
}

impl ParsedFile {
    fn parse(
        sessions: &SessionFolder,
        id: &SessionId,
        path: &Path,
        (bytes, on_damage): (&[u8], OnDamage),
    ) -> Result<Self, JournalError> {
        let parsed = match reader::parse_journal(bytes) {
            Err(ParseError::Refused(refusal)) if on_damage == OnDamage::UseIntactPart => {
                match &refusal.why {
                    RefusalReason::Damaged(what) => Rest::split(bytes, &refusal, what)
                        .map(|(contents, rest)| (contents, Some(rest))),
                    RefusalReason::Newer(_) => Err(ParseError::Refused(refusal)),
                }
            }
            parsed => parsed.map(|contents| (contents, None)),
        };
        let (contents, rest) = parsed.map_err(|error| match error {
            ParseError::Io(cause) => JournalError::Unreadable { path: path.to_owned(), cause },
            ParseError::Refused(refusal) => {
                let (id, path, line) = (id.clone(), path.to_owned(), refusal.line);
                match refusal.why {
                    RefusalReason::Damaged(what) => JournalError::Damaged { id, path, line, what },
                    RefusalReason::Newer(what) => JournalError::Newer { path, line, what },
                }
            }
        })?;
        let terms = find_terms(path, bytes, &sessions.recorded_cwd())?;
        Ok(Self { contents, rest, terms, agents: read_subagents(path) })
    }
}
