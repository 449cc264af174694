//! Paths that decide what other programs run.

use std::path::Path;

/// Folders whose contents decide what other programs run.
#[rustfmt::skip]
const PROTECTED_FOLDERS: &[&str] = &[
    ".git", ".vscode", ".idea", ".husky", ".cargo", ".devcontainer", ".yarn", ".mvn", ".claude",
    ".outlast",
];

#[rustfmt::skip]
const PROTECTED_FILES: &[&str] = &[
    ".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile",
    ".zlogin", ".npmrc", ".mcp.json", ".gitconfig", ".gitmodules", ".envrc",
    ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", "lefthook.yaml",
    ".lefthook.yml", ".lefthook.yaml", ".bash_logout", ".bash_aliases", ".zlogout", ".cshrc",
    ".tcshrc", ".kshrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", "bunfig.toml",
];

/// Whether a change to this path could make another program run code.
pub(super) fn is_protected(path: &Path) -> bool {
    let named = |names: &[&str], part: &std::ffi::OsStr| {
        part.to_str().is_some_and(|part| names.iter().any(|name| part.eq_ignore_ascii_case(name)))
    };
    let is = |part: &std::ffi::OsStr, name: &str| part.eq_ignore_ascii_case(name);
    let parts: Vec<_> = path.iter().collect();
    parts.iter().any(|part| named(PROTECTED_FOLDERS, part))
        || parts.last().is_some_and(|last| named(PROTECTED_FILES, last))
        || parts.windows(2).any(|pair| is(pair[0], ".config") && is(pair[1], "git"))
}
