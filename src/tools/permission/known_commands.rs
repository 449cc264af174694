//! Classifies well-known commands: those that only read, those that change files, and removals of
//! critical folders.

use std::path::{Component, Path, PathBuf};

use super::flags::FlagLine;
use super::sed;
use super::splitter::{self, ShellWord, SimpleCommand, base_name};
use super::wrapper::{self, IgnorableAssignments};

/// What a well-known command accesses.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KnownCommand<'a> {
    /// Reads these paths and changes nothing.
    ReadsFiles(Vec<&'a str>),
    /// Reads these paths, and the contents of those that are folders, without following links.
    SearchesFolders(Vec<&'a str>),
    /// Reads these paths. For a folder it may also read the contents and follow the links in it.
    ReadsFollowingLinks(Vec<&'a str>),
    /// Changes the working directory to this folder.
    ChangesFolder(&'a str),
    /// Creates, moves or removes these paths.
    ChangesFiles(Vec<&'a str>),
}

/// Commands that print their arguments, or facts about themselves.
const PRINT_COMMANDS: &[&str] = &[
    "echo", "printf", "pwd", "true", "false", "which", "basename", "dirname", "tr", "uname",
    "whoami", "id", "nproc", "seq", "sleep", ":",
];

/// Commands that read the files named in their arguments.
#[rustfmt::skip]
const READ_COMMANDS: &[&str] = &[
    "[", "cat", "cksum", "cmp", "column", "comm", "cut", "df", "du", "find", "head", "ls", "md5sum",
    "nl", "paste", "readlink", "realpath", "rev", "sha1sum", "sha256sum", "sort", "stat", "tac",
    "tail", "test", "uniq", "wc",
];

const SEARCH_COMMANDS: &[&str] = &["grep", "egrep", "fgrep"];

const CHANGE_COMMANDS: &[&str] = &["mkdir", "touch", "rm", "rmdir", "mv", "cp"];

/// Whether a command creates, moves or removes the paths in its arguments.
pub(super) fn is_change_command(name: &str) -> bool {
    CHANGE_COMMANDS.contains(&name)
}

/// Git subcommands that read neither the index nor an object. Any other subcommand may run programs
/// that the repository's configuration names: a file system monitor, a filter, a diff driver, a
/// signature checker, a fetch of missing objects. Only an explicit rule can declare that repository
/// trusted.
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

/// Classifies a command, if it is well known and simple enough to be sure.
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
        // The expansion is only printed.
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
        "diff" => FlagLine::parse_args(name, rest)
            .map(|line| KnownCommand::ReadsFollowingLinks(path_operands(&line))),
        _ if SEARCH_COMMANDS.contains(&name) => classify_search(name, rest),
        _ if READ_COMMANDS.contains(&name) => classify_read_command(name, rest),
        _ if CHANGE_COMMANDS.contains(&name) && rest.iter().all(|word| !word.globs) => {
            FlagLine::parse_args(name, rest)
                .map(|line| KnownCommand::ChangesFiles(path_operands(&line)))
        }
        _ => None,
    }
}

/// Whether one of these words may make the shell run a substitution, as in `test -v 'a[$(x)]'`, or
/// may expand to a flag that writes: a pattern matches files of any name.
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

/// Every word that may be a path. Values of flags are included.
fn path_operands<'a>(line: &FlagLine<'a>) -> Vec<&'a str> {
    line.values.iter().chain(&line.operands).map(|word| word.plain.as_str()).collect()
}

fn classify_read_command<'a>(name: &str, rest: &'a [ShellWord]) -> Option<KnownCommand<'a>> {
    let line = FlagLine::parse_args(name, rest)?;
    // `uniq` writes to its second file argument.
    let writes =
        name == "uniq" && (line.operands.len() > 1 || line.operands.iter().any(|word| word.globs));
    (!writes).then(|| KnownCommand::ReadsFiles(path_operands(&line)))
}

/// Classifies `jq`, if its program cannot read further files.
fn classify_jq(rest: &[ShellWord]) -> Option<KnownCommand<'_>> {
    let mut line = FlagLine::parse_args("jq", rest)?;
    let imports =
        |word: &ShellWord| word.plain.contains("import") || word.plain.contains("include");
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

/// Drops the first operand, which is a program or a pattern and not a path, unless the shell
/// expands it to several words.
fn drop_first_operand(line: &mut FlagLine<'_>) {
    if line.operands.first().is_some_and(|word| !word.globs) {
        line.operands.remove(0);
    }
}

fn classify_git(rest: &[ShellWord]) -> Option<KnownCommand<'_>> {
    let said = || rest.iter().map(|word| word.raw.as_str());
    GIT_READ_COMMANDS.iter().any(|look| said().eq(look.iter().copied())).then(|| reads_files(&[]))
}

/// Whether an exit code of 1 is this command's negative result and not a failure.
pub(in super::super) fn exit_code_1_is_a_result(command: &str) -> bool {
    let Ok(parts) = splitter::split(command) else { return false };
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

/// The paths that `rm` or `rmdir` would remove, if these words run one of them.
pub(super) fn removals<T: AsRef<str>>(words: &[T]) -> impl Iterator<Item = &str> {
    let removes = |word: &T| matches!(base_name(word.as_ref()), "rm" | "rmdir");
    let suspects = wrapper::candidate_offsets(words);
    let runs = if suspects.len() > 1 {
        // Later occurrences are covered: their arguments are also arguments of the first one.
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

/// Folders that a run must never remove, and neither their parents.
#[derive(Clone, Copy)]
pub(super) struct CriticalFolders<'a> {
    pub(super) home: Option<&'a Path>,
    pub(super) work: [&'a Path; 2],
}

/// Whether `target`, resolved against `from`, is or contains a critical folder.
pub(super) fn is_critical(target: &str, from: &Path, grounds: CriticalFolders<'_>) -> bool {
    let bare = target.trim_matches(['"', '\'']);
    let bare = if bare == "*" { "." } else { bare.strip_suffix("/*").unwrap_or(bare) };
    if bare.starts_with('$') {
        // An unset variable makes `"$X"/*` match everything; `$HOME` is the home folder.
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
