//! Memory files: what people write down for agents in `CLAUDE.md` and `AGENTS.md`.

mod imports;
mod search;

use std::fmt::Write as _;
use std::path::PathBuf;

pub(super) use imports::references;
pub use search::MemorySearch;

/// Instructions found for a run, the most general first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub files: Vec<MemoryFile>,
    /// Those that are for some files only.
    pub waiting: Vec<ConditionalMemory>,
    /// What was left out, and why. For people.
    pub warnings: Vec<String>,
}

/// One file, with what it imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFile {
    pub path: PathBuf,
    pub origin: MemoryOrigin,
    pub text: String,
}

/// A file of instructions that counts once a file is worked on that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalMemory {
    pub path: PathBuf,
    /// Patterns of the files that it is for.
    pub paths: Vec<String>,
}

/// Who wrote a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrigin {
    /// Whoever keeps this machine.
    Machine,
    /// The user, for all projects.
    User,
    /// The project, or a folder above it.
    Project,
    /// The user, for this project.
    Local,
}

impl MemoryOrigin {
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
        let mut text = String::new();
        if !self.files.is_empty() {
            text += "Instructions kept in files. Follow them. Where two disagree, the later one \
                counts.\n";
        }
        if self.files.iter().any(|file| file.origin == MemoryOrigin::Project) {
            text += "A folder below the working folder may have a CLAUDE.md or an AGENTS.md of its \
                own: it is shown to you when you read or change a file there. Follow it there.\n";
        }
        for file in &self.files {
            let _ = write!(
                text,
                "\nFrom {} ({}):\n\n{}\n",
                file.path.display(),
                file.origin.words(),
                file.text.trim()
            );
        }
        if !self.waiting.is_empty() {
            text += "\nInstructions for some files only. Before you read or change a file that fits \
                one of these, read what is kept for it, and follow it:\n";
        }
        for ConditionalMemory { path, paths } in &self.waiting {
            let _ = writeln!(text, "- {}: {}", paths.join(", "), path.display());
        }
        Some(text).filter(|text| !text.is_empty())
    }
}
