//! `outlast sessions prune`.

use std::time::SystemTime;

use crate::journal::{PruneCandidate, PruneCriteria, PruneState, RemovalError, remove_session};
use crate::text::counted;

use super::super::args::PruneSessionsArgs;
use super::super::output::one_line;
use super::super::usage::UsageError;
use super::{ReportWriter, SessionsContext, phrases};

pub(super) fn prune(context: &SessionsContext, args: &PruneSessionsArgs) -> Result<u8, UsageError> {
    let criteria =
        PruneCriteria { older_than: args.older_than, max_bytes: args.max_size, keep: args.keep };
    if criteria == PruneCriteria::default() {
        return Err(UsageError::new(
            "outlast sessions prune needs at least one of --older-than, --keep and --max-size",
        ));
    }
    let files = context.list(SessionsContext::scope(args.all_projects))?;
    let candidates: Vec<PruneCandidate> = files.into_iter().map(PruneCandidate::new).collect();
    let running = candidates.iter().filter(|one| one.state == PruneState::Running).count();
    let chosen = criteria.choose(candidates, SystemTime::now());
    let mut out = ReportWriter::optional();
    let mut deleted = Deleted::default();
    let mut has_failed = false;
    for candidate in &chosen {
        let removed = if args.dry_run { Ok(()) } else { remove_session(&candidate.file) };
        let verb = if args.dry_run { "would delete" } else { "deleted" };
        let (id, size) = (&candidate.file.id, phrases::size(candidate.bytes));
        match removed {
            Ok(()) => {
                let is_unfinished = candidate.state == PruneState::Unfinished;
                deleted.sessions += 1;
                deleted.unfinished += usize::from(is_unfinished);
                deleted.bytes = deleted.bytes.saturating_add(candidate.bytes);
                let state = if is_unfinished { ", unfinished" } else { "" };
                out.print(&format!("{verb} {id} ({size}{state})\n"))?;
            }
            Err(error) => {
                // A session that is in use again is not a failure.
                has_failed |= matches!(error, RemovalError::Io(_));
                out.print(&(one_line(&format!("kept {id}: {error}")) + "\n"))?;
            }
        }
    }
    out.print(&deleted.summary(args.dry_run, running))?;
    Ok(u8::from(has_failed))
}

/// Number and size of the sessions that were deleted, or would be.
#[derive(Default)]
struct Deleted {
    sessions: usize,
    unfinished: usize,
    bytes: u64,
}

impl Deleted {
    fn summary(&self, is_dry: bool, running: usize) -> String {
        let would_be = if is_dry { "would be " } else { "" };
        let (sessions, size) = (counted(self.sessions, "session"), phrases::size(self.bytes));
        let unfinished = match self.unfinished {
            0 => String::new(),
            count => format!(", {count} of them unfinished"),
        };
        let kept = match running {
            0 => String::new(),
            count => format!("; kept: {}", counted(count, "running session")),
        };
        format!("{sessions} {would_be}deleted{unfinished}, {size} {would_be}freed{kept}\n")
    }
}
