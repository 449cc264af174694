//! Commands of the reference about the set-up of a run.

use clap::Args;

/// The subject of a command about the set-up of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectSubject {
    Mcp,
    Plugin,
    Agents,
    Auth,
    Install,
    Update,
    SetupToken,
}

/// A command about the set-up of a run, with its words.
#[derive(Clone, Debug)]
pub struct InspectArgs {
    pub subject: InspectSubject,
    pub words: Vec<String>,
}

/// The words of a command about the set-up of a run.
#[derive(Clone, Debug, Args)]
pub(super) struct InspectWords {
    /// Action: list, get NAME, status
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl InspectWords {
    pub(super) fn about(self, subject: InspectSubject) -> InspectArgs {
        InspectArgs { subject, words: self.words }
    }
}
