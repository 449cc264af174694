//! Finds the inner command of commands that run another one.

use std::ops::Range;

use super::fallback_tokens::is_opener;
use super::splitter::{self, ShellWord, base_name};

/// Variables that change how a command reports, not what it does.
const HARMLESS_VARIABLES: &[&str] = &[
    "CARGO_TERM_COLOR",
    "CI",
    "CLICOLOR",
    "FORCE_COLOR",
    "LANG",
    "LC_ALL",
    "NO_COLOR",
    "NODE_ENV",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "TZ",
];

/// Commands that run another command from among their arguments.
const RUNNERS: &[&str] = &[
    "builtin", "busybox", "chroot", "command", "coproc", "doas", "env", "exec", "find", "flock",
    "ionice", "nice", "nohup", "parallel", "setsid", "stdbuf", "strace", "sudo", "time", "timeout",
    "unshare", "watch", "xargs",
];

/// Commands that execute a script in their arguments.
const SHELLS: &[&str] = &["bash", "dash", "eval", "ksh", "sh", "trap", "zsh"];

/// Builtins that take names of variables, and perform the substitutions in a subscript even if it
/// is quoted.
const SUBSCRIPT_BUILTINS: &[&str] = &[
    "[",
    "declare",
    "export",
    "getopts",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "test",
    "typeset",
    "unset",
    "wait",
];

/// Whether a program is a shell, which takes a script from an argument or reads one.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) && !matches!(name, "eval" | "trap")
}

fn runs_another(name: &str) -> bool {
    RUNNERS.contains(&name) || SHELLS.contains(&name)
}

/// Whether these words execute their arguments as a command in a way that is not analysed.
pub(super) fn runs_its_arguments(words: &[ShellWord]) -> bool {
    let words = inner_command(words, IgnorableAssignments::All);
    let Some((first, rest)) = words.split_first() else { return false };
    match base_name(&first.plain) {
        "watch" | "setsid" | "ionice" | "flock" => true,
        "find" => {
            let acts = ["-exec", "-ok", "-delete", "-fprint", "-fls"];
            rest.iter()
                .any(|word| word.expands || acts.iter().any(|act| word.plain.starts_with(act)))
        }
        _ => false,
    }
}

/// The range of offsets at which a command that these words run may begin, whatever flags precede
/// it: for deny rules. Each command extends to the last word. Checking all the words of each would
/// take quadratic time.
pub(super) fn candidate_offsets<T: AsRef<str>>(words: &[T]) -> Range<usize> {
    let is_setting = |word: &&T| splitter::is_assignment(word.as_ref());
    let first = words.iter().take_while(is_setting).count();
    match words.get(first) {
        Some(name) if runs_another(base_name(name.as_ref())) => first..words.len(),
        Some(_) => first..first + 1,
        None => first..first,
    }
}

/// Options of git that precede its subcommand and take the next word.
const GIT_VALUED: &[&str] = &[
    "-C",
    "-c",
    "--attr-source",
    "--config-env",
    "--git-dir",
    "--namespace",
    "--super-prefix",
    "--work-tree",
];

/// The words of a git command without the options before its subcommand, if it has any: rules treat
/// `git -C . push` as `git push`.
pub(super) fn without_git_options<T: AsRef<str>>(words: &[T]) -> Option<Vec<&str>> {
    let git = words.iter().position(|word| base_name(word.as_ref()) == "git")? + 1;
    let mut at = git;
    while let Some(word) = words.get(at).map(AsRef::as_ref).filter(|word| word.starts_with('-')) {
        at += if GIT_VALUED.contains(&word) { 2 } else { 1 };
    }
    let rest = words.get(at..).filter(|_| at > git)?;
    Some(words[..git].iter().chain(rest).map(AsRef::as_ref).collect())
}

/// Whether the name of the command that these words run is only known to the shell: `$X`,
/// `/bin/r?`. `is_hidden` makes that decision for one word.
pub(super) fn hides_a_name<T: AsRef<str>>(words: &[T], is_hidden: impl Fn(&T) -> bool) -> bool {
    let by_find = |pair: &[T]| {
        matches!(pair[0].as_ref(), "-exec" | "-execdir" | "-ok" | "-okdir") && is_hidden(&pair[1])
    };
    if words.windows(2).any(by_find) {
        return true;
    }
    let (mut runs_another, mut after_flag) = (false, false);
    for word in words {
        let text = word.as_ref();
        if splitter::is_assignment(text) {
            continue;
        }
        if text != "[" && is_hidden(word) {
            return true;
        }
        let redirects = text.starts_with(['<', '>']);
        // A name may come first: `function f { $X; }`, `coproc f { $X; }`.
        let names = matches!(text, "function" | "coproc");
        let is_runner = names || RUNNERS.contains(&base_name(text)) || is_opener(text) || redirects;
        let is_flag = text.starts_with('-') || matches!(text, "<" | ">" | ">>");
        let is_value = after_flag || text.starts_with(|first: char| first.is_ascii_digit());
        runs_another |= is_runner;
        if !(runs_another && (is_runner || is_flag || is_value)) {
            return false;
        }
        after_flag = is_flag || names;
    }
    false
}

/// Like [`hides_a_name`], for fallback tokens, in which quoted scripts are plain words.
pub(super) fn may_hide_a_name(words: &[String]) -> bool {
    let is_hidden = |word: &String| word.contains(['$', '*', '?', '[']) && word != "[[";
    let last_hidden = words.iter().rposition(is_hidden);
    let last_flag = words.iter().rposition(|word| word.starts_with('-') && word.ends_with('c'));
    // A shell, or a command that acts as one, with a script as an argument.
    let is_told = |at: usize| {
        let name = base_name(&words[at]);
        let has_script = matches!(name, "eval" | "trap") || last_flag > Some(at);
        SHELLS.contains(&name) && has_script && last_hidden >= Some(at)
    };
    hides_a_name(words, is_hidden) || candidate_offsets(words).any(is_told)
}

/// Which variable assignments are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IgnorableAssignments {
    Harmless,
    All,
}

/// The command inside `timeout 5 …`, `nohup …`, `NO_COLOR=1 …` and the like.
pub(super) fn inner_command(
    mut words: &[ShellWord],
    overlook: IgnorableAssignments,
) -> &[ShellWord] {
    loop {
        let Some(first) = words.first() else { return words };
        let skipped = match (first.assigns(), first.raw.as_str()) {
            (Some(name), _) => {
                let fine = overlook == IgnorableAssignments::All
                    || (HARMLESS_VARIABLES.contains(&name) && !first.expands);
                usize::from(fine)
            }
            (None, "nohup" | "builtin") => 1,
            (None, "env" | "sudo" | "doas" | "exec") if overlook == IgnorableAssignments::All => 1,
            (None, "command" | "time" | "xargs") if !is_flag(words.get(1)) => 1,
            (None, "timeout") if !is_flag(words.get(1)) => 2,
            (None, "nice") if !is_flag(words.get(1)) => 1,
            (None, "nice") if words.get(1).is_some_and(|word| word.raw == "-n") => 3,
            (None, "stdbuf") => {
                1 + words[1..].iter().take_while(|word| word.raw.starts_with('-')).count()
            }
            (None, _) => 0,
        };
        if skipped == 0 || skipped >= words.len() {
            return words;
        }
        words = &words[skipped..];
    }
}

fn is_flag(word: Option<&ShellWord>) -> bool {
    word.is_some_and(|word| word.raw.starts_with('-'))
}

/// Whether these words may be a command that [`script_within`] recognises.
pub(super) fn may_contain_script(words: &[ShellWord]) -> bool {
    let name = words.first().map_or("", |first| base_name(&first.plain));
    SHELLS.contains(&name) || SUBSCRIPT_BUILTINS.contains(&name)
}

/// The script inside `sh -c '…'`, `eval …`, `trap '…' EXIT` or `test -v 'a[$(…)]'`. Always shorter
/// than the command that contains it.
pub(super) fn script_within(words: &[ShellWord]) -> Option<String> {
    let (first, rest) = words.split_first()?;
    match base_name(&first.plain) {
        "eval" => Some(splitter::plain(rest)),
        "trap" => {
            rest.iter().find(|word| !word.raw.starts_with('-')).map(|word| word.plain.clone())
        }
        "sh" | "bash" | "dash" | "zsh" | "ksh" => {
            let is_script_flag =
                |word: &ShellWord| word.plain.starts_with('-') && word.plain.ends_with('c');
            let at = rest.iter().position(is_script_flag)?;
            rest.get(at + 1).map(|word| word.plain.clone())
        }
        name if SUBSCRIPT_BUILTINS.contains(&name) => {
            Some(splitter::plain(rest)).filter(|text| text.contains("$(") || text.contains('`'))
        }
        _ => None,
    }
}
