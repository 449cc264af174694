//! Knows common commands: which only look, which tidy files, which could ruin the machine.

use std::path::{Component, Path, PathBuf};

use super::flags::FlagLine;
use super::script::{self, SimpleCommand, ShellWord};
use super::sed;
use super::wrapper::{self, IgnorableAssignments};

/// What a well-known command would touch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KnownCommand<'a> {
    /// It looks at these paths and changes nothing.
    Looks(Vec<&'a str>),
    /// The same, and it reads whatever is in those that are folders, following no links.
    Searches(Vec<&'a str>),
    /// It looks at these. In a folder it would read what is in it, and what links there lead to.
    Compares(Vec<&'a str>),
    /// It moves on to this folder.
    Moves(&'a str),
    /// It makes, moves or removes these paths.
    Tidies(Vec<&'a str>),
}

/// Commands that print what they are told, or facts about themselves.
const TALKERS: &[&str] = &[
    "echo", "printf", "pwd", "true", "false", "which", "basename", "dirname", "tr", "uname",
    "whoami", "id", "nproc", "seq", "sleep", ":",
];

/// Commands that read the files they are given.
#[rustfmt::skip]
const LOOKERS: &[&str] = &[
    "[", "cat", "cksum", "cmp", "column", "comm", "cut", "df", "du", "find", "head", "ls", "md5sum",
    "nl", "paste", "readlink", "realpath", "rev", "sha1sum", "sha256sum", "sort", "stat", "tac",
    "tail", "test", "uniq", "wc",
];

const SEARCHERS: &[&str] = &["grep", "egrep", "fgrep"];

const TIDIERS: &[&str] = &["mkdir", "touch", "rm", "rmdir", "mv", "cp"];

/// Whether a command makes, moves or removes what its arguments name.
pub(super) fn is_tidier(name: &str) -> bool {
    TIDIERS.contains(&name)
}

/// Questions to git that it answers without a look at the index or at an object. For anything
/// else it may run what the repository's own configuration names: a monitor, a filter, a way to
/// show a difference, a program that checks signatures or fetches what is missing. Only a rule
/// can tell that the repository is trusted with that.
const GIT_LOOKS: [&[&str]; 8] = [
    &["branch", "--show-current"],
    &["remote"],
    &["remote", "-v"],
    &["rev-parse", "--show-toplevel"],
    &["rev-parse", "--show-prefix"],
    &["rev-parse", "--is-inside-work-tree"],
    &["rev-parse", "--abbrev-ref", "HEAD"],
    &["rev-parse", "HEAD"],
];

/// What a command is, if it is well known and simple enough to be sure.
pub(super) fn recognise(simple: &SimpleCommand) -> Option<KnownCommand<'_>> {
    let words = wrapper::unwrap(&simple.words, IgnorableAssignments::Harmless);
    let (first, rest) = words.split_first()?;
    let name = first.raw.as_str();
    if simple.words.iter().any(|word| word.raw == "xargs") {
        return None;
    }
    if turns_into_a_flag(name, rest) {
        return None;
    }
    if TALKERS.contains(&name) {
        // What it expands to is only printed.
        return Some(KnownCommand::Looks(Vec::new()));
    }
    if rest.iter().any(|word| word.expands) {
        return None;
    }
    match name {
        "cd" => match rest {
            [folder] if folder.raw != "-" => Some(KnownCommand::Moves(&folder.plain)),
            _ => None,
        },
        "date" => rest.iter().all(|word| word.plain.starts_with('+')).then(|| looks(&[])),
        "git" => git(rest),
        "sed" => sed::files(rest).map(KnownCommand::Tidies),
        "jq" => filter(rest),
        "diff" => FlagLine::read(name, rest).map(|line| KnownCommand::Compares(paths(&line))),
        _ if SEARCHERS.contains(&name) => search(name, rest),
        _ if LOOKERS.contains(&name) => look(name, rest),
        _ if TIDIERS.contains(&name) && rest.iter().all(|word| !word.globs) => {
            FlagLine::read(name, rest).map(|line| KnownCommand::Tidies(paths(&line)))
        }
        _ => None,
    }
}

/// Whether one of these words names something that the shell would run a substitution in, as in
/// `test -v 'a[$(x)]'`, or may come to be a flag that writes: a pattern fits files of any name.
fn turns_into_a_flag(name: &str, rest: &[ShellWord]) -> bool {
    let is_loose = |word: &ShellWord| word.globs && word.plain.starts_with(['*', '?', '[']);
    match name {
        "printf" => rest.first().is_some_and(|word| word.plain.starts_with('-') || is_loose(word)),
        "test" | "[" => {
            rest.iter().any(|word| matches!(word.plain.as_str(), "-v" | "-R") || is_loose(word))
        }
        "find" | "sort" | "uniq" => rest.iter().any(is_loose),
        _ => false,
    }
}

fn looks<'a>(words: &[&'a ShellWord]) -> KnownCommand<'a> {
    KnownCommand::Looks(words.iter().map(|word| word.plain.as_str()).collect())
}

/// Every word that may be a path. Whether the value of a flag is one is not asked.
fn paths<'a>(line: &FlagLine<'a>) -> Vec<&'a str> {
    line.values.iter().chain(&line.operands).map(|word| word.plain.as_str()).collect()
}

fn look<'a>(name: &str, rest: &'a [ShellWord]) -> Option<KnownCommand<'a>> {
    let line = FlagLine::read(name, rest)?;
    // What `uniq` is told besides the first file is written to.
    let writes =
        name == "uniq" && (line.operands.len() > 1 || line.operands.iter().any(|word| word.globs));
    (!writes).then(|| KnownCommand::Looks(paths(&line)))
}

/// `jq` with a program that reads no file of its own choice.
fn filter(rest: &[ShellWord]) -> Option<KnownCommand<'_>> {
    let mut line = FlagLine::read("jq", rest)?;
    let imports = |word: &ShellWord| word.plain.contains("import") || word.plain.contains("include");
    if rest.iter().any(imports) {
        return None;
    }
    leave_out_first(&mut line);
    Some(KnownCommand::Looks(paths(&line)))
}

fn search<'a>(name: &str, rest: &'a [ShellWord]) -> Option<KnownCommand<'a>> {
    let mut line = FlagLine::read(name, rest)?;
    if !line.has('e', "regexp") && !line.has('f', "file") {
        leave_out_first(&mut line);
    }
    if !line.has('r', "recursive") {
        return Some(KnownCommand::Looks(paths(&line)));
    }
    let mut below = paths(&line);
    below.extend(line.operands.is_empty().then_some("."));
    Some(KnownCommand::Searches(below))
}

/// The first word is no path but a program or a pattern, unless the shell makes several of it.
fn leave_out_first(line: &mut FlagLine<'_>) {
    if line.operands.first().is_some_and(|word| !word.globs) {
        line.operands.remove(0);
    }
}

fn git(rest: &[ShellWord]) -> Option<KnownCommand<'_>> {
    let said = || rest.iter().map(|word| word.raw.as_str());
    GIT_LOOKS.iter().any(|look| said().eq(look.iter().copied())).then(|| looks(&[]))
}

/// Whether an exit code of 1 is this command's way to say "no", not a failure.
pub(in super::super) fn tells_by_exit_code(command: &str) -> bool {
    let Ok(parts) = script::split(command) else { return false };
    let Some(last) = parts.last() else { return false };
    let words = wrapper::unwrap(&last.words, IgnorableAssignments::All);
    let name = |index: usize| words.get(index).map(|word| base_name(&word.plain));
    match name(0) {
        Some("git") => matches!(name(1), Some("grep" | "diff")),
        Some(name) => matches!(
            name,
            "grep" | "egrep" | "fgrep" | "zgrep" | "rg" | "diff" | "cmp" | "find" | "test" | "["
        ),
        None => false,
    }
}

pub(super) fn base_name(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}

/// What `rm` and `rmdir` are told to remove, if one of them is what these words run.
pub(super) fn removals<T: AsRef<str>>(words: &[T]) -> impl Iterator<Item = &str> {
    let removes = |word: &T| matches!(base_name(word.as_ref()), "rm" | "rmdir");
    let suspects = wrapper::suspects(words);
    let runs = if suspects.len() > 1 {
        // The words after the first are also the words after any later.
        words[suspects.clone()].iter().position(removes)
    } else {
        let skipped = |word: &&T| {
            let word = word.as_ref();
            let runs_another = matches!(
                base_name(word),
                "sudo" | "doas" | "env" | "command" | "nohup" | "exec" | "time"
            );
            runs_another || word.starts_with('-') || word.contains('=')
        };
        let at = words[suspects.start..].iter().take_while(skipped).count();
        words.get(suspects.start + at).filter(|word| removes(word)).map(|_| at)
    };
    let targets = runs.map_or(&[][..], |at| &words[suspects.start + at + 1..]);
    targets.iter().map(AsRef::as_ref).filter(|word| !word.starts_with('-'))
}

/// Folders that a run must never remove, nor what they are in.
#[derive(Clone, Copy)]
pub(super) struct CriticalFolders<'a> {
    pub(super) home: Option<&'a Path>,
    pub(super) work: [&'a Path; 2],
}

/// Whether this names, seen from a folder, what a run must never remove.
pub(super) fn is_critical(target: &str, from: &Path, grounds: CriticalFolders<'_>) -> bool {
    let bare = target.trim_matches(['"', '\'']);
    let bare = if bare == "*" { "." } else { bare.strip_suffix("/*").unwrap_or(bare) };
    if bare.starts_with('$') {
        // Empty, `"$X"/*` is everything; `$HOME` is home.
        return target.ends_with(['*', '/']) || matches!(bare, "$HOME" | "${HOME}");
    }
    let path = match (bare, grounds.home) {
        ("", _) => PathBuf::from("/"),
        ("~" | "~/", Some(home)) => home.to_path_buf(),
        ("~" | "~/", None) => return true,
        (bare, _) => flatten(&from.join(bare)),
    };
    let depth = path.components().count();
    // `/` counts as one component.
    let mut kept = grounds.work.into_iter().chain(grounds.home);
    depth <= 2 || kept.any(|folder| folder.starts_with(&path))
}

pub(super) fn flatten(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                flat.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                flat.push(component);
            }
        }
    }
    flat
}
