//! The first line (`#!`) of scripts, which names the program that runs them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::code_variables::is_loader;
use super::file_reads::open_regular;
use super::job::Job;
use super::job_paths::{FoundPrograms, absolute, search_path};

/// The part of a script that is read, in bytes.
const BEGINNING: u64 = 4096;

/// The most scripts that run one another: the kernel takes five.
const LEVELS_MAX: usize = 5;

/// The maximum number of words that are read from a line.
const WORDS_MAX: usize = 32;

/// The words of the `#!` lines of all scripts that words name, each line followed by the path of
/// its script. Interpreters can be scripts, too.
pub(super) fn interpreter_words<'a>(
    words: impl Iterator<Item = &'a String>,
    job: &Job,
    programs: &FoundPrograms,
) -> Vec<String> {
    let search_path = search_path(job);
    let (mut found, mut read) = (Vec::new(), BTreeSet::new());
    let mut level: BTreeSet<String> = words.cloned().collect();
    for _ in 0..LEVELS_MAX {
        let paths = level.iter().filter_map(|word| program_path(word, job, &search_path, programs));
        let scripts: Vec<PathBuf> = paths.filter(|path| read.insert(path.clone())).collect();
        level.clear();
        for script in scripts {
            let Some(mut line) = line_of(&script) else { continue };
            level.extend(line.iter().cloned());
            line.push(script.to_string_lossy().into_owned());
            found.append(&mut line);
        }
    }
    found
}

/// The file of a program that a word names.
fn program_path(
    word: &str,
    job: &Job,
    search_path: &OsStr,
    programs: &FoundPrograms,
) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(absolute(&job.cwd, word, job));
    }
    let is_name = |letter: char| letter.is_alphanumeric() || "._+-".contains(letter);
    let is_program = !word.starts_with('-') && word.chars().all(is_name);
    is_program.then(|| programs.find(word, search_path)).flatten()
}

/// The words that name the interpreter of a script. `None` if a file is not a script.
fn line_of(script: &Path) -> Option<Vec<String>> {
    let file = open_regular(script).ok()?;
    let is_executable = file.metadata().is_ok_and(|it| it.permissions().mode() & 0o111 != 0);
    let mut bytes = Vec::new();
    file.take(if is_executable { BEGINNING } else { 0 }).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let line = lines.next()?.strip_prefix("#!")?;
    // `env -S` takes quotes and assignments.
    let ends_word = |letter: char| letter.is_whitespace() || "\"'".contains(letter);
    let parts = line.split(ends_word).flat_map(|word| {
        let end = if stays_whole(word) { None } else { Some('=') };
        word.split(move |letter| Some(letter) == end)
    });
    let mut words: Vec<String> = parts.filter(|it| !it.is_empty()).map(str::to_owned).collect();
    // The kernel takes a name without a slash from the working folder.
    if let Some(bare) = words.first_mut().filter(|word| !word.contains('/')) {
        *bare = format!("./{bare}");
    }
    // A path that has blanks or is too long for the kernel is in the next line: pip and uv write
    // that line so that it is valid in both shell and Python.
    if let Some(command) = lines.next().and_then(|line| line.strip_prefix("'''exec' ")) {
        let in_quotes = |quote: char| command.strip_prefix(quote)?.split(quote).next();
        let quoted = in_quotes('"').or_else(|| in_quotes('\''));
        words.extend(quoted.or_else(|| command.split(' ').next()).map(str::to_owned));
    }
    words.truncate(WORDS_MAX);
    Some(words)
}

/// Returns true if the text after an equals sign is not a separate word: the value of an option
/// that does not name code, or a number (`-X utf8=1`).
fn stays_whole(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| {
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        is_number || name.starts_with('-') && !is_loader(name)
    })
}
