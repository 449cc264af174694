//! Files of settings below the home folder whose names indicate credentials, or a history of input,
//! for programs that the table of credentials lacks. Reads the file system.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::real_paths::LinkedPath;
use super::context::SandboxContext;

/// The folders with a folder of settings or data for each program.
const FOLDERS: [&str; 4] = ["", ".config", ".local/share", ".local/state"];

/// Words in the name of a file with credentials. Only whole words count: not `tokenizer`.
const WORDS: [&str; 10] = [
    "credential",
    "credentials",
    "creds",
    "passwd",
    "password",
    "passwords",
    "secret",
    "secrets",
    "token",
    "tokens",
];

/// Endings of names of files with keys and of histories.
const ENDINGS: [&str; 6] = [".key", "key.pem", "_history", "-history", ".history", ".keystore"];

/// Whole names.
const NAMES: [&str; 4] = ["auth.json", "auth.toml", "auth.yml", "history"];

/// Extensions of files with settings or data. Other files, such as sources and documents, are only
/// about credentials.
const DATA: [&str; 13] = [
    "json",
    "yaml",
    "yml",
    "toml",
    "ini",
    "conf",
    "cfg",
    "xml",
    "txt",
    "db",
    "sqlite",
    "sqlite3",
    "properties",
];

/// Files that their programs need to start, below the home folder.
const NEEDED: [&str; 6] = [
    ".composer/auth.json",
    ".android/debug.keystore",
    ".conan2/credentials.json",
    ".config/coursier/credentials.properties",
    ".config/dart/pub-tokens.json",
    ".office-addin-dev-certs/localhost.key",
];

/// Finds these files, as far as they can be closed to commands: in hidden folders of the home
/// folder, and below the folders of settings and data. Checkouts and links are left out.
pub(super) fn find(context: &SandboxContext<'_>, writable: &[PathBuf]) -> Vec<LinkedPath> {
    let Some(home) = context.home else { return Vec::new() };
    let files_of_programs = |folder: &&str| {
        let is_hidden = |path: &PathBuf| name_of(path).is_none_or(|name| name.starts_with('.'));
        let (mut files, mut folders) = entries(&home.join(folder));
        if folder.is_empty() {
            files.retain(is_hidden);
            folders.retain(is_hidden);
        }
        let in_folders = folders.iter().filter(|folder| !folder.join(".git").exists());
        files.extend(in_folders.flat_map(|folder| entries(folder).0));
        files
    };
    let may_exist = |folder: &&&str| context.may_exist(&home.join(folder));
    let files = FOLDERS.iter().filter(may_exist).flat_map(files_of_programs);
    let is_needed = |path: &Path| NEEDED.iter().any(|needed| *path == home.join(needed));
    let is_secret = |path: &PathBuf| name_of(path).is_some_and(names_secret) && !is_needed(path);
    context.closable(files.filter(is_secret).collect::<Vec<_>>().into_iter(), writable)
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The files and folders in a folder, without links.
fn entries(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            Ok(kind) if kind.is_dir() => folders.push(entry.path()),
            Ok(_) | Err(_) => {}
        }
    }
    (files, folders)
}

/// True if the name of a file of settings indicates credentials, or a history of input.
fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, extension),
        Some(_) | None => (name.as_str(), ""),
    };
    let is_word = |word: &str| WORDS.contains(&word);
    let mut words = stem.split(|one: char| !one.is_ascii_alphanumeric());
    // A file without an extension may be a program, such as `git-credential-store`.
    let of_data = if extension.is_empty() {
        words.next_back().is_some_and(is_word)
    } else {
        DATA.contains(&extension) && words.any(is_word)
    };
    of_data
        || is_word(extension)
        || NAMES.contains(&name.as_str())
        || ENDINGS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::names_secret;

    #[test]
    fn names_of_files_with_credentials_are_recognised() {
        let secrets = "\
             credentials .credentials.json default.credential creds.json access_token.json \
             token-cache.json my.secret auth.json ca.key rootCA-key.pem privateKey.pem \
             .usql_history .mycli-history history";
        for name in secrets.split_whitespace() {
            assert!(names_secret(name), "{name}");
        }
        let others = "\
             tokenizer.json secretary.txt credentials.rs credentials.md token.py \
             git-credential-store keymap.json history.lua auth.py authors.json cert.pem \
             known_hosts .bashrc";
        for name in others.split_whitespace() {
            assert!(!names_secret(name), "{name}");
        }
    }
}
