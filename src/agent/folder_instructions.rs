//! Folder instructions, added when a file in their folder is worked on.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::process::last_panic;
use crate::recovery::FOLDER_INSTRUCTIONS;
use crate::tools::PreparedCall;
use crate::transcript::Block;

use super::delegate::FolderNote;
use super::run_event::RunEvent;
use super::world::RunWorld;

/// Time limit for reading the instructions. A file beside them was just read or written.
const READ_LIMIT: Duration = Duration::from_secs(5);

impl RunWorld<'_> {
    /// Adds the instructions of the folders of the files that were worked on, except those that the
    /// conversation holds already.
    pub(super) async fn add_folder_notes(&mut self, done: &[Arc<PreparedCall>]) {
        let files: BTreeSet<PathBuf> =
            done.iter().filter_map(|call| self.tools.toolbox().file_path_of(call)).collect();
        if files.is_empty() {
            return;
        }
        let find = Arc::clone(&self.context.deps.registry.delegation.folder_notes);
        let found = tokio::task::spawn_blocking(move || {
            files.iter().flat_map(|file| find(file)).collect::<Vec<_>>()
        });
        let notes = match tokio::time::timeout(READ_LIMIT, found).await {
            Ok(Ok(notes)) => notes,
            Ok(Err(_)) => {
                let warning = format!("folder instructions were not read: {}", last_panic());
                return self.monitor.emit(&RunEvent::Warning(warning));
            }
            Err(_) => {
                let warning = "folder instructions were not read: the disk did not answer in time";
                return self.monitor.emit(&RunEvent::Warning(warning.to_owned()));
            }
        };
        for note in notes {
            let known = match &note {
                FolderNote::Text { path, .. } => path.display().to_string(),
                FolderNote::Warning(warning) => warning.clone(),
            };
            if !self.tools.record_folder_note(known) {
                continue;
            }
            match note {
                FolderNote::Text { path, text } => {
                    let path = path.display();
                    let head =
                        format!("{FOLDER_INSTRUCTIONS}{path}. Follow them below its folder:");
                    if !self.conversation.holds_text(&head) {
                        let text = format!("{head}\n\n{}", text.trim());
                        self.hooks.add_notice(Block::text(text));
                    }
                }
                FolderNote::Warning(warning) => self.monitor.emit(&RunEvent::Warning(warning)),
            }
        }
    }
}
