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
    ReadsFiles(Vec<&'a str>),
    /// The same, and it reads whatever is in those that are folders, following no links.
    SearchesFolders(Vec<&'a str>),
    /// It looks at these. In a folder it would read what is in it, and what links there lead to.
    ReadsFollowingLinks(Vec<&'a str>),
    /// It moves on to this folder.
    ChangesFolder(&'a str),
    /// It makes, moves or removes these paths.
    ChangesFiles(Vec<&'a str>),
}

/// Commands that print what they are told, or facts about themselves.
const PRINT_COMMANDS: &[&str] = &[
    "echo", "printf", "pwd", "true", "false", "which", "basename", "dirname", "tr", "uname",
    "whoami", "id", "nproc", "seq", "sleep", ":",
];

/// Commands that read the files they are given.
#[rustfmt::skip]
const READ_COMMANDS: &[&str] = &[
    "[", "cat", "cksum", "cmp", "column", "comm", "cut", "df", "du", "find", "head", "ls", "md5sum",
    "nl", "paste", "readlink", "realpath", "rev", "sha1sum", "sha256sum", "sort", "stat", "tac",
    "tail", "test", "uniq", "wc",
];

const SEARCH_COMMANDS: &[&str] = &["grep", "egrep", "fgrep"];

const CHANGE_COMMANDS: &[&str] = &["mkdir", "touch", "rm", "rmdir", "mv", "cp"];

/// Whether a command makes, moves or removes what its arguments name.
pub(super) fn is_change_command(name: &str) -> bool {
    CHANGE_COMMANDS.contains(&name)
}

/// Questions to git that it answers without a look at the index or at an object. For anything
/// else it may run what the repository's own configuration names: a monitor, a filter, a way to
/// show a difference, a program that checks signatures or fetches what is missing. Only a rule
/// can tell that the repository is trusted with that.
const GIT_READ_COMMANDS: [&[&str]; 8] = [
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
pub(super) fn classify(simple: &SimpleCommand) -> Option<KnownCommand<'_>> {
    let words = wrapper::inner_command(&simple.words, IgnorableAssignments::Harmless);
    let (first, rest) = words.split_first()?;
    let name = first.raw.as_str();
    if simple.words.iter().any(|word| word.raw == "xargs") {
        return None;
    }
    if may_expand_to_flag(name, rest) {
        return None;
    }
    if PRINT_COMMANDS.contains(&name) {
        // What it expands to is only printed.
        return Some(KnownCommand::ReadsFiles(Vec::new()));
    }
    if rest.iter().any(|word| word.expands) {
        return None;
    }
    match name {
        "cd" => match rest {
            [folder] if folder.raw != "-" => Some(KnownCommand::ChangesFolder(&folder.plain)),
            _ => None,
        },
        "date" => rest.iter().all(|word| word.plain.starts_with('+')).then(|| reads_files(&[])),
        "git" => classify_git(rest),
        "sed" => sed::sed_files(rest).map(KnownCommand::ChangesFiles),
        "jq" => classify_jq(rest),
        "diff" => FlagLine::parse_args(name, rest).map(|line| KnownCommand::ReadsFollowingLinks(path_operands(&line))),
        _ if SEARCH_COMMANDS.contains(&name) => classify_search(name, rest),
        _ if READ_COMMANDS.contains(&name) => classify_read_command(name, rest),
        _ if CHANGE_COMMANDS.contains(&name) && rest.iter().all(|word| !word.globs) => {
            FlagLine::parse_args(name, rest).map(|line| KnownCommand::ChangesFiles(path_operands(&line)))
        }
        _ => None,
    }
}

/// Whether one of these words names something that the shell would run a substitution in, as in
/// `test -v 'a[$(x)]'`, or may come to be a flag that writes: a pattern fits files of any name.
fn may_expand_to_flag(name: &str, rest: &[ShellWord]) -> bool {
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

fn reads_files<'a>(words: &[&'a ShellWord]) -> KnownCommand<'a> {
    KnownCommand::ReadsFiles(words.iter().map(|word| word.plain.as_str()).collect())
}

/// Every word that may be a path. Whether the value of a flag is one is not asked.
fn path_operands<'a>(line: &FlagLine<'a>) -> Vec<&'a str> {
    line.values.iter().chain(&line.operands).map(|word| word.plain.as_str()).collect()
}

fn classify_read_command<'a>(name: &str, rest: &'a [ShellWord]) -> Option<KnownCommand<'a>> {
    let line = FlagLine::parse_args(name, rest)?;
    // What `uniq` is told besides the first file is written to.
    let writes =
        name == "uniq" && (line.operands.len() > 1 || line.operands.iter().any(|word| word.globs));
    (!writes).then(|| KnownCommand::ReadsFiles(path_operands(&line)))
}

/// `jq` with a program that reads no file of its own choice.
fn classify_jq(rest: &[ShellWord]) -> Option<KnownCommand<'_>> {
    let mut line = FlagLine::parse_args("jq", rest)?;
    let imports = |word: &ShellWord| word.plain.contains("import") || word.plain.contains("include");
    if rest.iter().any(imports) {
        return None;
    }
    drop_first_operand(&mut line);
    Some(KnownCommand::ReadsFiles(path_operands(&line)))
}

fn classify_search<'a>(name: &str, rest: &'a [ShellWord]) -> Option<KnownCommand<'a>> {
    let mut line = FlagLine::parse_args(name, rest)?;
    if !line.has('e', "regexp") && !line.has('f', "file") {
        drop_first_operand(&mut line);
    }
    if !line.has('r', "recursive") {
        return Some(KnownCommand::ReadsFiles(path_operands(&line)));
    }
    let mut below = path_operands(&line);
    below.extend(line.operands.is_empty().then_some("."));
    Some(KnownCommand::SearchesFolders(below))
}

/// The first word is no path but a program or a pattern, unless the shell makes several of it.
fn drop_first_operand(line: &mut FlagLine<'_>) {
    if line.operands.first().is_some_and(|word| !word.globs) {
        line.operands.remove(0);
    }
}

fn classify_git(rest: &[ShellWord]) -> Option<KnownCommand<'_>> {
    let said = || rest.iter().map(|word| word.raw.as_str());
    GIT_READ_COMMANDS.iter().any(|look| said().eq(look.iter().copied())).then(|| reads_files(&[]))
}

/// Whether an exit code of 1 is this command's way to say "no", not a failure.
pub(in super::super) fn exit_code_1_is_a_result(command: &str) -> bool {
    let Ok(parts) = script::split(command) else { return false };
    let Some(last) = parts.last() else { return false };
    let words = wrapper::inner_command(&last.words, IgnorableAssignments::All);
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
    let suspects = wrapper::candidate_offsets(words);
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
        (bare, _) => normalize(&from.join(bare)),
    };
    let depth = path.components().count();
    // `/` counts as one component.
    let mut kept = grounds.work.into_iter().chain(grounds.home);
    depth <= 2 || kept.any(|folder| folder.starts_with(&path))
}

pub(super) fn normalize(path: &Path) -> PathBuf {
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
