//! Memory files: standing instructions for agents in `CLAUDE.md` and `AGENTS.md`.

mod imports;
mod search;

use std::fmt::Write as _;
use std::path::PathBuf;

pub(super) use imports::{references, unescaped};
pub use search::MemorySearch;

/// Instructions found for a run, the most general first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub files: Vec<MemoryFile>,
    /// Rules that apply to some files only.
    pub conditional: Vec<ConditionalMemory>,
    /// Messages about files that were left out, with the reasons.
    pub warnings: Vec<String>,
}

/// One file, with its imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFile {
    pub path: PathBuf,
    pub origin: MemoryOrigin,
    pub text: String,
}

/// A memory file that applies when the model works on a matching file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionalMemory {
    pub path: PathBuf,
    /// Patterns of the files that it applies to.
    pub paths: Vec<String>,
}

/// Author of a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOrigin {
    /// The administrator of this machine.
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
    /// Returns the section for the system prompt, if there are memory files.
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
        if !self.conditional.is_empty() {
            text += "\nInstructions for some files only. Before you read or change a file that fits \
                one of these, read what is kept for it, and follow it:\n";
        }
        for ConditionalMemory { path, paths } in &self.conditional {
            let _ = writeln!(text, "- {}: {}", paths.join(", "), path.display());
        }
        Some(text).filter(|text| !text.is_empty())
    }
}
