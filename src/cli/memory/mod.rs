//! Memory files: what people write down for agents in `CLAUDE.md` and `AGENTS.md`.

mod imports;
mod search;

use std::fmt::Write as _;
use std::path::PathBuf;

pub use search::Search;

/// Instructions found for a run, the most general first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub files: Vec<MemoryFile>,
    /// What was left out, and why. For people.
    pub warnings: Vec<String>,
}

/// One file, with what it imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFile {
    pub path: PathBuf,
    pub origin: Origin,
    pub text: String,
}

/// Who wrote a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Whoever keeps this machine.
    Machine,
    /// The user, for all projects.
    User,
    /// The project, or a folder above it.
    Project,
    /// The user, for this project.
    Local,
}

impl Origin {
    fn words(self) -> &'static str {
        match self {
            Self::Machine => "for every run on this machine",
            Self::User => "the user's own, for every project",
            Self::Project => "kept with the project",
            Self::Local => "the user's own, for this project",
        }
    }
}

impl Memory {
    /// What the model is told, if there is anything to tell.
    pub fn prompt(&self) -> Option<String> {
        if self.files.is_empty() {
            return None;
        }
        let mut text = String::from(
            "Instructions kept in files. Follow them. Where two disagree, the later one counts.\n",
        );
        for file in &self.files {
            let _ = write!(
                text,
                "\nFrom {} ({}):\n\n{}\n",
                file.path.display(),
                file.origin.words(),
                file.text.trim()
            );
        }
        Some(text)
    }
}
