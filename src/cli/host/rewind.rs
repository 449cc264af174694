//! Answers a host's request to restore files.

use serde_json::{Value, json};

use crate::cli::host_turn::FILE_HISTORY;
use crate::cli::startup::StartupSteps;
use crate::cli::usage::UsageError;
use crate::journal::SessionFolder;
use crate::tools::{FileHistory, RestoreMode, RestoredFiles};

use super::session::HostSession;

impl HostSession {
    /// Restores the files that were changed since a prompt. A failure is a reply, too.
    pub(super) async fn rewind(&self, prompt: String, is_dry_run: bool) -> Value {
        match self.restore_files(prompt, is_dry_run).await {
            Ok(RestoredFiles { files, insertions, deletions }) => json!({
                "canRewind": true,
                "filesChanged": files,
                "insertions": insertions,
                "deletions": deletions,
            }),
            Err(error) => json!({ "canRewind": false, "error": error.to_string() }),
        }
    }

    async fn restore_files(
        &self,
        prompt: String,
        is_dry_run: bool,
    ) -> Result<RestoredFiles, UsageError> {
        let Some(prompts) = self.checkpoints.clone() else {
            let why = "files are not kept: set CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING=true";
            return Err(UsageError::new(why));
        };
        let settings = self.settings().await?;
        let mode = if is_dry_run { RestoreMode::DryRun } else { RestoreMode::Restore };
        let session = self.session_id.get();
        StartupSteps::new(&self.context.signals, &self.shared.stderr, None)
            .step("restoring files", move || {
                let place = SessionFolder::new(&settings.session_dir, &settings.cwd);
                let folder = place.folder().join(session).join(FILE_HISTORY);
                let further = settings
                    .config
                    .permissions
                    .additional_directories
                    .iter()
                    .map(|it| settings.cwd.join(it));
                let roots: Vec<_> = [settings.cwd.clone()].into_iter().chain(further).collect();
                FileHistory::restore(&folder, &prompt, &prompts, &roots, mode)
                    .map_err(|error| UsageError::new(error.to_string()))
            })
            .await
    }
}
