//! `outlast sessions prune`.

use std::fmt::Write as _;
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
    let mut failed = 0_usize;
    for candidate in &chosen {
        let removed = if args.dry_run { Ok(()) } else { remove_session(&candidate.file) };
        let verb = if args.dry_run { "would delete" } else { "deleted" };
        let (id, size) = (&candidate.file.id, phrases::size(candidate.bytes));
        match removed {
            Ok(()) => {
                deleted.add(candidate);
                let is_open = candidate.state == PruneState::Unfinished;
                let state = if is_open { ", unfinished" } else { "" };
                out.print(&format!("{verb} {id} ({size}{state})\n"))?;
            }
            Err(error) => {
                // A session that is used again meanwhile is not a failure.
                failed += usize::from(matches!(error, RemovalError::Io(_)));
                out.print(&one_line(&format!("kept {id}: {error}")))?;
                out.print("\n")?;
            }
        }
    }
    out.print(&deleted.summary(args.dry_run, running))?;
    Ok(u8::from(failed > 0))
}

/// Number and size of the sessions that were deleted, or would be.
#[derive(Default)]
struct Deleted {
    sessions: usize,
    unfinished: usize,
    bytes: u64,
}

impl Deleted {
    fn add(&mut self, candidate: &PruneCandidate) {
        self.sessions += 1;
        self.unfinished += usize::from(candidate.state == PruneState::Unfinished);
        self.bytes = self.bytes.saturating_add(candidate.bytes);
    }

    fn summary(&self, is_dry: bool, running: usize) -> String {
        let Self { sessions, unfinished, bytes } = self;
        let (deleted, freed) =
            if is_dry { ("would be deleted", "would be freed") } else { ("deleted", "freed") };
        let mut text = format!("{} {deleted}", counted(*sessions, "session"));
        if *unfinished > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {unfinished} of them unfinished");
        }
        let _ = write!(text, ", {} {freed}", phrases::size(*bytes));
        if running > 0 {
            let running = counted(running, "running session");
            let _ = write!(text, "; kept: {running}");
        }
        text + "\n"
    }
}
