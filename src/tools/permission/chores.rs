//! Knows common commands: which only look, which tidy files, which could ruin the machine.

use std::path::{Component, Path, PathBuf};

use super::script::{self, Simple, Word};
use super::sed;
use super::wrapper::{self, Overlook};

/// What a well-known command would touch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chore<'a> {
    /// It looks at these paths and changes nothing.
    Looks(Vec<&'a str>),
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
const LOOKERS: &[&str] = &[
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "stat",
    "diff",
    "cmp",
    "du",
    "df",
    "cut",
    "nl",
    "test",
    "[",
    "realpath",
    "readlink",
    "sort",
    "uniq",
    "find",
    "md5sum",
    "sha1sum",
    "sha256sum",
    "cksum",
    "tac",
    "rev",
    "column",
    "paste",
    "comm",
    "jq",
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
pub(super) fn recognise(simple: &Simple) -> Option<Chore<'_>> {
    let words = wrapper::unwrap(&simple.words, Overlook::Harmless);
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
        return Some(Chore::Looks(Vec::new()));
    }
    if rest.iter().any(|word| word.expands) {
        return None;
    }
    match name {
        "cd" => match rest {
            [folder] if folder.raw != "-" => Some(Chore::Moves(&folder.plain)),
            _ => None,
        },
        "date" => rest.iter().all(|word| word.plain.starts_with('+')).then(|| looks(&[])),
        "git" => git(rest),
        "sed" => sed::files(rest).map(Chore::Tidies),
        _ if SEARCHERS.contains(&name) => search(rest),
        _ if LOOKERS.contains(&name) => look(name, rest),
        _ if TIDIERS.contains(&name) && rest.iter().all(|word| !word.globs) => {
            let plain = |word: &Word| !word.raw.starts_with('-') || is_short_flag(&word.raw);
            rest.iter().all(plain).then(|| Chore::Tidies(arguments(rest)))
        }
        _ => None,
    }
}

/// Whether one of these words names something that the shell would run a substitution in, as in
/// `test -v 'a[$(x)]'`, or may come to be a flag that writes: a pattern fits files of any name.
fn turns_into_a_flag(name: &str, rest: &[Word]) -> bool {
    let is_loose = |word: &Word| word.globs && word.plain.starts_with(['*', '?', '[']);
    match name {
        "printf" => rest.first().is_some_and(|word| word.plain.starts_with('-') || is_loose(word)),
        "test" | "[" => {
            rest.iter().any(|word| matches!(word.plain.as_str(), "-v" | "-R") || is_loose(word))
        }
        "find" | "sort" | "uniq" => rest.iter().any(is_loose),
        _ => false,
    }
}

fn looks<'a>(words: &[&'a Word]) -> Chore<'a> {
    Chore::Looks(words.iter().map(|word| word.plain.as_str()).collect())
}

fn arguments(words: &[Word]) -> Vec<&str> {
    words
        .iter()
        .filter(|word| !word.plain.starts_with('-'))
        .map(|word| word.plain.as_str())
        .collect()
}

fn is_short_flag(flag: &str) -> bool {
    !flag.starts_with("--") && !flag.starts_with("-t") && !flag.contains('/')
}

/// Flags that make a looking command write or run something.
fn look<'a>(name: &str, rest: &'a [Word]) -> Option<Chore<'a>> {
    let forbidden: &[&str] = match name {
        "find" => &["-exec", "-ok", "-delete", "-fprint", "-fls", "-files0", "-L", "-H", "-follow"],
        "sort" => &["-o", "--o", "-T", "--t", "--c", "--fi"],
        "wc" | "du" => &["--fi"],
        "diff" => &["--to", "--fr"],
        "jq" => &["-f", "--from", "-L", "--slurpfile", "--rawfile", "--arg"],
        _ => &[],
    };
    let flags = rest.iter().map(|word| word.plain.as_str()).filter(|word| word.starts_with('-'));
    for flag in flags {
        let bundled: &[char] = match name {
            "sort" => &['o', 'T'],
            // What links lead to is not looked into.
            "du" | "ls" => &['L', 'D', 'H'],
            // The files are named in a file.
            "md5sum" | "sha1sum" | "sha256sum" | "cksum" => &['c'],
            _ => &[],
        };
        let follows = matches!(name, "du" | "ls") && flag.starts_with("--de");
        let checks = name.ends_with("sum") && flag.starts_with("--c");
        let bundle = !flag.starts_with("--") && flag.contains(bundled);
        if bundle
            || follows
            || checks
            || flag.contains('/')
            || forbidden.iter().any(|bad| flag.starts_with(bad))
        {
            return None;
        }
    }
    if name == "jq" && reads_more(rest) || name == "diff" && goes_below(rest) {
        return None;
    }
    let mut paths = arguments(rest);
    let given = |word: &&Word| word.plain == "-" || !word.plain.starts_with('-');
    if name == "uniq" && rest.iter().filter(given).count() > 1 {
        // The second is written to.
        return None;
    }
    if matches!(name, "jq") && !paths.is_empty() {
        paths.remove(0);
    }
    Some(Chore::Looks(paths))
}

/// Whether a program for `jq` may read files of its own choice, or is itself read from one.
fn reads_more(rest: &[Word]) -> bool {
    let bundles = |flag: &str| flag.starts_with('-') && !flag.starts_with("--");
    rest.iter().any(|word| {
        let text = word.plain.as_str();
        text.contains("import")
            || text.contains("include")
            || bundles(text) && text.contains(['f', 'L'])
    })
}

/// Whether a comparison goes through folders, where it would follow what links it meets.
fn goes_below(rest: &[Word]) -> bool {
    rest.iter().map(|word| word.plain.as_str()).any(|flag| match flag.strip_prefix("--") {
        Some(long) => long.starts_with("rec"),
        None => flag.starts_with('-') && flag.contains('r'),
    })
}

fn search(rest: &[Word]) -> Option<Chore<'_>> {
    let is_flag = |word: &&Word| word.plain.starts_with('-') && word.plain != "-";
    let names_pattern = |flag: &str| {
        flag.starts_with("--reg") || (!flag.starts_with("--") && flag.contains(['e', 'f']))
    };
    let mut paths = arguments(rest);
    let flags: Vec<&str> = rest.iter().filter(is_flag).map(|word| word.plain.as_str()).collect();
    // What links lead to, below a folder, is not looked into: a checkout may hold any link.
    let follows =
        |flag: &str| flag.starts_with("--de") || (!flag.starts_with("--") && flag.contains('R'));
    if flags.iter().any(|flag| flag.contains('/') || flag.starts_with("--fi") || follows(flag)) {
        return None;
    }
    if !flags.iter().any(|flag| names_pattern(flag)) && !paths.is_empty() {
        paths.remove(0);
    }
    Some(Chore::Looks(paths))
}

fn git(rest: &[Word]) -> Option<Chore<'_>> {
    let said = || rest.iter().map(|word| word.raw.as_str());
    GIT_LOOKS.iter().any(|look| said().eq(look.iter().copied())).then(|| looks(&[]))
}

/// Whether an exit code of 1 is this command's way to say "no", not a failure.
pub(in super::super) fn tells_by_exit_code(command: &str) -> bool {
    let Ok(parts) = script::split(command) else { return false };
    let Some(last) = parts.last() else { return false };
    let words = wrapper::unwrap(&last.words, Overlook::All);
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
pub(super) struct Grounds<'a> {
    pub(super) home: Option<&'a Path>,
    pub(super) work: [&'a Path; 2],
}

/// Whether this names, seen from a folder, what a run must never remove.
pub(super) fn is_critical(target: &str, from: &Path, grounds: Grounds<'_>) -> bool {
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
