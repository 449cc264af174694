//! Answers a host's request to restore files.

use std::panic::resume_unwind;
use std::path::PathBuf;

use crate::cli::args::RunArgs;
use crate::cli::chosen_session::SessionChoice;
use crate::cli::host_turn::FILE_HISTORY;
use crate::cli::run::ProcessContext;
use crate::cli::settings::{self, Settings};
use crate::cli::stdout::print_report;
use crate::cli::usage::UsageError;
use crate::journal::SessionFolder;
use crate::messages::{ControlResult, RestoredLines, RewindResult};
use crate::tools::{FileHistory, RestoreMode, RestoredFiles};

use super::session::HostSession;

impl HostSession {
    /// Restores the files that were changed since a prompt. The reply reports a failure.
    pub(super) async fn rewind(&self, prompt: String, is_dry_run: bool) -> ControlResult {
        let (restored, error) = match self.restore_files(prompt, is_dry_run).await {
            Ok(RestoredFiles { files, insertions, deletions, failures }) => {
                let files_changed = files.iter().map(|file| file.display().to_string()).collect();
                let error = (!failures.is_empty()).then(|| failure_message(&failures));
                (Some(RestoredLines { files_changed, insertions, deletions }), error)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        ControlResult::Rewound(RewindResult { can_rewind: error.is_none(), restored, error })
    }

    /// Restores the files that were changed since a prompt, or only determines which can be
    /// restored.
    pub(super) async fn restore_files(
        &self,
        prompt: String,
        is_dry_run: bool,
    ) -> Result<RestoredFiles, UsageError> {
        if !self.keeps_files {
            let why = "files are not kept: set CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true";
            return Err(UsageError::new(why));
        }
        let settings = self.settings().await?;
        let mode = if is_dry_run { RestoreMode::DryRun } else { RestoreMode::Restore };
        let added = self.resources.live.existing_folders();
        let sessions = [self.cleared_sessions.clone(), vec![self.session_id.get()]].concat();
        let restore = move || restore(&settings, &added, &sessions, &prompt, mode);
        self.steps().step("restoring files", restore).await
    }
}

/// Restores files from the histories of consecutive sessions. `added` are the folders that the host
/// has added. Blocks.
fn restore(
    settings: &Settings,
    added: &[PathBuf],
    sessions: &[String],
    prompt: &str,
    mode: RestoreMode,
) -> Result<RestoredFiles, UsageError> {
    let place = SessionFolder::new(&settings.session_dir, &settings.cwd);
    let folder = |session: &String| place.folder().join(session).join(FILE_HISTORY);
    let folders: Vec<_> = sessions.iter().map(folder).collect();
    let further = settings.config.permissions.additional_directories.iter().chain(added);
    let further = further.map(|it| settings.cwd.join(it));
    let roots: Vec<_> = [settings.cwd.clone()].into_iter().chain(further).collect();
    FileHistory::restore(&folders, prompt, &roots, mode)
        .map_err(|error| UsageError::new(error.to_string()))
}

fn failure_message(failures: &[String]) -> String {
    format!("not all files were restored: {}", failures.join("; "))
}

/// Restores the files that were changed since a prompt of an earlier session of a host
/// (`--rewind-files`), and prints their number.
///
/// # Errors
/// No session is named, or the files cannot be restored.
pub(in crate::cli) async fn rewind_files(
    args: &RunArgs,
    context: ProcessContext,
    prompt: &str,
) -> Result<u8, UsageError> {
    if args.session.resume.is_none() && !args.session.go_on {
        let why = "--rewind-files needs --resume or --continue; add one of them";
        return Err(UsageError::new(why));
    }
    let (args, prompt) = (args.clone(), prompt.trim().to_owned());
    let ProcessContext { variables, cwd, .. } = context;
    let work = move || {
        let choice = SessionChoice::of(&args, &variables, &cwd)?;
        let terms = choice.terms();
        let session = choice.read()?.source().to_string();
        let settings = settings::resolve(&args, variables, cwd, &terms)?;
        let restored = restore(&settings, &[], &[session], &prompt, RestoreMode::Restore)?;
        if !restored.failures.is_empty() {
            return Err(UsageError::new(failure_message(&restored.failures)));
        }
        print_report(&format!("Restored files: {}\n", restored.files.len()))
    };
    let ended = tokio::task::spawn_blocking(work).await;
    // The task is never cancelled, so an error is a panic, which continues here.
    ended.unwrap_or_else(|error| resume_unwind(error.into_panic()))?;
    Ok(0)
}
