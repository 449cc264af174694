//! Finds the command inside commands that only run another.

use super::chores::base_name;
use super::script::{self, Word};

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

/// Which settings of variables may be overlooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlook {
    Harmless,
    All,
}

/// The command inside `timeout 5 …`, `nohup …`, `NO_COLOR=1 …` and the like.
pub(super) fn unwrap(mut words: &[Word], overlook: Overlook) -> &[Word] {
    loop {
        let Some(first) = words.first() else { return words };
        let skipped = match (first.assigns(), first.raw.as_str()) {
            (Some(name), _) => {
                let fine = overlook == Overlook::All
                    || (HARMLESS_VARIABLES.contains(&name) && !first.expands);
                usize::from(fine)
            }
            (None, "nohup" | "builtin") => 1,
            (None, "env" | "sudo" | "doas" | "exec") if overlook == Overlook::All => 1,
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

fn is_flag(word: Option<&Word>) -> bool {
    word.is_some_and(|word| word.raw.starts_with('-'))
}

/// The script inside `sh -c '…'` or `eval …`. Always shorter than what it is in.
pub(super) fn script_within(words: &[Word]) -> Option<String> {
    let (first, rest) = words.split_first()?;
    match base_name(&first.plain) {
        "eval" => Some(script::plain(rest)),
        "sh" | "bash" | "dash" | "zsh" | "ksh" => {
            let is_script_flag =
                |word: &Word| word.plain.starts_with('-') && word.plain.ends_with('c');
            let at = rest.iter().position(is_script_flag)?;
            rest.get(at + 1).map(|word| word.plain.clone())
        }
        _ => None,
    }
}
