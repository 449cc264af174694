//! Chooses and deletes recorded sessions on request of the user. `cleanup` has the deletion by age,
//! which runs perform by themselves.

use std::fs::{File, TryLockError};
use std::time::{Duration, SystemTime};

use crate::process::LockedFile;
use crate::process::file_reads::open_regular;

use super::cleanup::{delete_files_of, is_dated, is_ours};
use super::lease_record::is_held_elsewhere;
use super::reader::is_ended;
use super::session_folder::open_without_links;
use super::store::read_tail;
use super::summary::SessionFile;

/// Selects the sessions to delete. Without a limit of age or size, all finished ones are selected
/// except those to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneCriteria {
    /// Selects sessions whose last write is longer ago than this.
    pub older_than: Option<Duration>,
    /// Selects the oldest sessions, until the others have at most this many bytes.
    pub max_bytes: Option<u64>,
    /// Number of newest sessions that are never selected.
    pub keep: Option<usize>,
}

/// A session that may be deleted.
#[derive(Clone, Debug)]
pub struct PruneCandidate {
    pub file: SessionFile,
    pub bytes: u64,
    pub state: PruneState,
}

/// The state of a session, from its locks and the end of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PruneState {
    Running,
    Finished,
    /// It can be resumed.
    Unfinished,
    /// Written by another program, or unreadable: it is never deleted.
    Foreign,
}

impl PruneCandidate {
    pub fn new(file: SessionFile) -> Self {
        Self { bytes: file.bytes(), state: state(&file), file }
    }
}

fn state(file: &SessionFile) -> PruneState {
    if file.is_running() {
        return PruneState::Running;
    }
    let Ok(mut opened) = open_regular(&file.path) else { return PruneState::Foreign };
    if !may_be_removed(&opened) {
        return PruneState::Foreign;
    }
    match read_tail(&mut opened).ok().map(|tail| (tail.is_empty(), is_ended(&tail))) {
        Some((_, Some(true))) => PruneState::Finished,
        Some((true, None) | (_, Some(false))) => PruneState::Unfinished,
        Some((false, None)) | None => PruneState::Foreign,
    }
}

/// Returns true if outlast began the file, or the file is empty, as after a power cut.
fn may_be_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|facts| facts.len() == 0) || is_ours(file)
}

impl PruneCriteria {
    /// Chooses among `candidates`, which come newest first. Unfinished sessions are chosen by age
    /// and size only; running ones and those of other programs never.
    pub fn choose(&self, candidates: Vec<PruneCandidate>, at: SystemTime) -> Vec<PruneCandidate> {
        let mut total: u64 = candidates.iter().map(|candidate| candidate.bytes).sum();
        let by_count_only = self.older_than.is_none() && self.max_bytes.is_none();
        let mut chosen = Vec::new();
        let kept = self.keep.unwrap_or(0);
        for candidate in candidates.into_iter().skip(kept).rev() {
            let may_be_chosen = match candidate.state {
                PruneState::Finished => true,
                PruneState::Unfinished => !by_count_only,
                PruneState::Running | PruneState::Foreign => false,
            };
            let age = at.duration_since(candidate.file.written).unwrap_or_default();
            let is_old = self
                .older_than
                .is_some_and(|limit| age > limit && is_dated(candidate.file.written));
            let is_too_much = self.max_bytes.is_some_and(|limit| total > limit);
            if may_be_chosen && (by_count_only || is_old || is_too_much) {
                total = total.saturating_sub(candidate.bytes);
                chosen.push(candidate);
            }
        }
        chosen
    }
}

/// The reason that a session was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error("a process works on it")]
    Running,
    #[error("it was written to meanwhile")]
    Changed,
    #[error("another program wrote it")]
    Foreign,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Deletes a session with the outputs and the journals of sub-agents beside it.
///
/// # Errors
/// The session is not deleted, for the reason given.
pub fn remove_session(file: &SessionFile) -> Result<(), RemovalError> {
    let opened = LockedFile::from(open_without_links(&file.path)?);
    // Locked until it is deleted, so that no process starts to work on the session meanwhile.
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(RemovalError::Running),
        // Without file locks, a session in use cannot be recognized.
        Err(TryLockError::Error(error)) => return Err(error.into()),
        Ok(()) if is_held_elsewhere(&file.path) => return Err(RemovalError::Running),
        Ok(()) => {}
    }
    if opened.metadata()?.modified()? != file.written {
        return Err(RemovalError::Changed);
    }
    if !may_be_removed(&opened) {
        return Err(RemovalError::Foreign);
    }
    delete_files_of(&file.path, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::SessionId;
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    /// Sessions of 100 bytes that are 0, 1, 2, ... days old.
    fn sessions(reports: &[PruneState], at: SystemTime) -> Vec<PruneCandidate> {
        let mut age = 0;
        let one = |state: &PruneState| {
            let id = SessionId::parse(&age.to_string()).expect("an id");
            let file = SessionFile { id, path: PathBuf::new(), written: at - DAY * age };
            age += 1;
            PruneCandidate { file, bytes: 100, state: *state }
        };
        reports.iter().map(one).collect()
    }

    #[test]
    fn pruning_never_chooses_running_or_foreign_sessions_nor_unfinished_ones_by_count() {
        use PruneState::{Finished, Foreign, Running, Unfinished};
        let at = SystemTime::UNIX_EPOCH + DAY * 30_000;
        let all = [Finished, Running, Unfinished, Finished, Foreign, Finished];
        let choose = |older_than: Option<u32>, max_bytes, keep| {
            let older_than = older_than.map(|days| DAY * days);
            let criteria = PruneCriteria { older_than, max_bytes, keep };
            let chosen = criteria.choose(sessions(&all, at), at);
            chosen.iter().map(|one| one.file.id.to_string()).collect::<String>()
        };
        assert_eq!(choose(None, None, Some(1)), "53");
        assert_eq!(choose(None, None, Some(4)), "5");
        assert_eq!(choose(Some(1), None, None), "532");
        assert_eq!(choose(Some(1), None, Some(4)), "5");
        assert_eq!(choose(None, Some(450), None), "53");
        assert_eq!(choose(None, Some(0), None), "5320");
        assert_eq!(choose(None, Some(600), None), "");
    }
}
