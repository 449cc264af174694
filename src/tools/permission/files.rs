//! Finds the files that the words of a command may name, for deny rules. It errs on the side of
//! finding too many.

use std::collections::BTreeSet;

use super::known_commands::{self, KnownCommand};
use super::splitter::{ShellWord, SimpleCommand, base_name};
use super::wrapper::{self, IgnorableAssignments};

/// Commands that change the files named in their arguments.
#[rustfmt::skip]
const CHANGE_COMMANDS: &[&str] = &[
    "chattr", "chgrp", "chmod", "chown", "install", "ln", "mkfifo", "mknod", "patch", "rsync",
    "setfacl", "shred", "tee", "truncate", "unlink",
];

/// Flags whose value is a file that is written.
const OUTPUT_FLAGS: &[&str] = &["-o", "--output", "--output-document", "-O"];

/// How many words one brace expansion may produce.
const ALTERNATIVES_MAX: usize = 64;

/// The words that name files which a command changes.
pub(super) fn changed_files(words: &[ShellWord]) -> Vec<ShellWord> {
    let simple = SimpleCommand { words: words.to_vec(), ..SimpleCommand::default() };
    if let Some(KnownCommand::ChangesFiles(paths)) = known_commands::classify(&simple) {
        let paths: BTreeSet<&str> = paths.into_iter().collect();
        let is_path = |word: &&ShellWord| paths.contains(word.plain.as_str());
        return words.iter().filter(is_path).cloned().collect();
    }
    let words = wrapper::inner_command(words, IgnorableAssignments::All);
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let name = base_name(&first.plain);
    let tidies = known_commands::is_change_command(name) || CHANGE_COMMANDS.contains(&name);
    let mut found = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        let is_flag = word.plain.starts_with('-');
        let before = at.checked_sub(1).and_then(|at| rest.get(at));
        let is_output = before.is_some_and(|flag| OUTPUT_FLAGS.contains(&flag.plain.as_str()));
        if !is_flag && (tidies || is_output) {
            found.push(word.clone());
        }
        let value = word
            .plain
            .split_once('=')
            .filter(|(flag, _)| OUTPUT_FLAGS.contains(flag) || name == "dd" && *flag == "of");
        found.extend(value.map(|(_, value)| word_part(word, value)));
    }
    found
}

/// How many one-letter flags without a value may precede one with a value in the same word.
const BUNDLED_MAX: usize = 5;

/// The words, and suffixes of words, that may name a file: `x`, `--file=x`, `if=x`, `@x`, `HEAD:x`,
/// `-fx`, `-vfx`, and `-x` behind `--`.
pub(super) fn named_files(words: &[ShellWord]) -> impl Iterator<Item = ShellWord> {
    let last_flag = words.iter().position(|word| word.plain == "--").unwrap_or(words.len());
    words.iter().enumerate().flat_map(move |(at, word)| {
        let text = word.plain.as_str();
        let is_flag = text.starts_with('-') && at < last_flag;
        let whole = (at > 0 && !is_flag).then(|| word.clone());
        let is_short = is_flag && !text.starts_with("--");
        let short = text.char_indices().skip(2).take(BUNDLED_MAX).filter(|_| is_short);
        let short = short.map(|(at, _)| &text[at..]);
        let ends = text.match_indices(['=', '@', ':']).map(|(at, _)| &text[at + 1..]);
        let ends = ends.take(ALTERNATIVES_MAX).chain(short).filter(|end| !end.is_empty());
        let ends: Vec<ShellWord> = ends.map(|end| word_part(word, end)).collect();
        whole.into_iter().chain(ends)
    })
}

fn word_part(word: &ShellWord, plain: &str) -> ShellWord {
    ShellWord { raw: plain.to_owned(), plain: plain.to_owned(), ..word.clone() }
}

/// The expansions of a word: `a{b,c}` gives `ab` and `ac`, `$PWD/x` and `~+/x` give `./x`.
pub(super) fn alternatives(word: &ShellWord) -> Vec<String> {
    if !word.expands {
        return vec![word.plain.clone()];
    }
    let mut open = vec![word.plain.clone()];
    let mut done = Vec::new();
    while let Some(text) = open.pop() {
        let end = text.find('}').filter(|_| open.len() + done.len() < ALTERNATIVES_MAX);
        let braces = end.and_then(|end| Some((text[..end].rfind('{')?, end)));
        match braces.map(|(begin, end)| (&text[..begin], &text[begin + 1..end], &text[end + 1..])) {
            Some((before, within, after)) if within.contains(',') && !before.ends_with('$') => {
                open.extend(within.split(',').map(|one| format!("{before}{one}{after}")));
            }
            Some(_) | None => done.push(text),
        }
    }
    let heres = ["$PWD/", "${PWD}/", "\"$PWD\"/", "~+/"];
    let seen_from_here = done.iter().flat_map(|text| {
        heres.iter().filter_map(|here| Some(format!("./{}", text.strip_prefix(here)?)))
    });
    let seen_from_here: Vec<String> = seen_from_here.collect();
    done.extend(seen_from_here);
    done
}
