//! Finds shell startup files that redefine the name `outlast`. They are read, never executed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::process::file_reads;

/// Startup files of shells, below the home folder.
const FILES: [&str; 11] = [
    ".bashrc",
    ".bash_profile",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".config/fish/config.fish",
    ".config/fish/functions/outlast.fish",
    ".aliases",
    ".kshrc",
];

/// Maximum size of a file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// A definition in a shell startup file that shadows the program `outlast`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowingAlias {
    pub file: PathBuf,
    /// Line number, counted from 1.
    pub line: usize,
    /// `alias` or `function`.
    pub what: &'static str,
}

/// Searches the startup files of common shells.
pub fn find_shadowing_aliases(
    home: Option<&Path>,
    variables: &BTreeMap<OsString, OsString>,
) -> Vec<ShadowingAlias> {
    let zsh = variables.get(OsStr::new("ZDOTDIR")).map(|folder| Path::new(folder).join(".zshrc"));
    let files = home.into_iter().flat_map(|home| FILES.map(|file| home.join(file)));
    let files: Vec<PathBuf> = files.chain(zsh).collect();
    let mut found = Vec::new();
    for file in files.into_iter().filter(|file| file.is_file()) {
        let Ok(bytes) = file_reads::read_bounded(&file, FILE_MAX) else { continue };
        let shadows = shadows(&String::from_utf8_lossy(&bytes));
        let alias = |(line, what)| ShadowingAlias { file: file.clone(), line, what };
        found.extend(shadows.into_iter().map(alias));
    }
    found
}

/// Returns the number and kind of each line that defines the name.
pub fn shadows(text: &str) -> Vec<(usize, &'static str)> {
    let kind = |line: &str| {
        let line = line.trim_start();
        let alias = line.strip_prefix("alias ").map(str::trim_start).and_then(|rest| {
            let rest = rest.trim_start_matches("-g ").trim_start_matches("-- ");
            rest.strip_prefix("outlast")
        });
        if alias.is_some_and(|rest| rest.starts_with(['=', ' '])) {
            return Some("alias");
        }
        let named = line.strip_prefix("function ").map(str::trim_start);
        let named = named.and_then(|rest| rest.strip_prefix("outlast"));
        let plain = line.strip_prefix("outlast").map(str::trim_start);
        let function = named
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '(', ';']))
            || plain.is_some_and(|rest| rest.starts_with("()"));
        function.then_some("function")
    };
    text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, kind(line)?))).collect()
}
