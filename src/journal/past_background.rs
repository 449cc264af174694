//! The background work of earlier processes.

use std::path::PathBuf;

use super::entry::{BackgroundChanges, BackgroundWork};

/// The background work of earlier processes, and the folder of their shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastBackground {
    /// Number of commands that they started.
    pub commands: usize,
    /// The work whose end was not reported to the model.
    pub lost: Vec<BackgroundWork>,
    /// The folder in which the next command would have started. `None`: the session's folder.
    pub folder: Option<PathBuf>,
}

impl PastBackground {
    pub(super) fn apply(&mut self, changes: &BackgroundChanges) {
        self.commands = self.commands.max(changes.commands);
        self.lost.extend(changes.started.iter().cloned());
        self.lost.retain(|work| !changes.reported.iter().any(|id| id == work.id()));
        self.folder = changes.folder.clone().or(self.folder.take());
    }
}
