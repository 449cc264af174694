//! The fuzz targets, and what they share: bytes read as choices, and folders.

pub mod assembly;
pub mod history;
pub mod inputs;
pub mod journal;
pub mod media;
pub mod permission;
pub mod refusal;
pub mod settings;
pub mod sse;
pub mod words;

#[cfg(test)]
mod seeds;

use std::path::PathBuf;

use outlast::tools::{PermissionMode, ToolSettings, Toolbox};
use tempfile::TempDir;

/// Bytes that choices are made by. When they run out, every choice is the first.
pub struct Tape<'a>(pub &'a [u8]);

impl<'a> Tape<'a> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// One of so many, at least one.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub fn pick<'b, T>(&mut self, choices: &'b [T]) -> &'b T {
        &choices[self.below(choices.len())]
    }

    /// Up to so many bytes.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let length = self.below(most + 1).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    /// The text behind many openings of one kind: depth that random bytes do not reach.
    pub fn nested(&mut self, text: &str) -> String {
        let depth = 1_usize << self.below(16);
        let [open, close] =
            *self.pick(&[["{", "}"], ["{a,", "}"], ["(", ")"], ["[", "]"], ["$(", ")"]]);
        let close = if self.below(2) == 0 { "" } else { close };
        format!("{}{text}{}", open.repeat(depth), close.repeat(depth))
    }

    pub fn text(&mut self, most: usize) -> String {
        String::from_utf8_lossy(self.take(most)).into_owned()
    }
}

thread_local! {
    static FOLDER: TempDir = scratch_folder();
}

fn scratch_folder() -> TempDir {
    let folder = TempDir::new().expect("a scratch folder can be made");
    for name in ["work/src", "home", "scratch"] {
        std::fs::create_dir_all(folder.path().join(name)).expect("a folder can be made");
    }
    std::fs::write(folder.path().join("work/src/a.rs"), "x\n").expect("a file can be made");
    folder
}

/// A folder that exists until the thread ends.
pub fn folder() -> PathBuf {
    FOLDER.with(|folder| folder.path().to_owned())
}

pub fn work() -> PathBuf {
    folder().join("work")
}

/// Tools under these rules.
pub fn toolbox(mode: PermissionMode, allow: &[&str], deny: &[&str]) -> Toolbox {
    let mut settings = ToolSettings::new(&work(), &folder().join("scratch"), "fuzz");
    settings.home = Some(folder().join("home"));
    settings.permissions.mode = mode;
    settings.permissions.allow = allow.iter().map(ToString::to_string).collect();
    settings.permissions.deny = deny.iter().map(ToString::to_string).collect();
    Toolbox::new(&settings).expect("the settings are good")
}
