//! Commands that run another command. Rules are matched against the inner command, too.

use super::shell_lexer::ShellWord;

/// Variables that change how a command reports, or for which system it builds, and choose no
/// program.
#[rustfmt::skip]
const HARMLESS_VARIABLES: &[&str] = &[
    "CARGO_TERM_COLOR", "CGO_ENABLED", "CI", "CLICOLOR", "COLORTERM", "COLUMNS", "FORCE_COLOR",
    "GO111MODULE", "GOARCH", "GOOS", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_TIME",
    "NO_COLOR", "NODE_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "RUST_BACKTRACE",
    "RUST_LOG", "TERM", "TZ",
];

/// Programs that limit, time or slow down another one, and do nothing else.
const TIMERS: &[&str] = &["nice", "time", "timeout"];

/// Returns the command inside `timeout 5 ...`, `nohup ...`, `NO_COLOR=1 ...` and the like.
pub(super) fn inner_command(words: &[ShellWord]) -> &[ShellWord] {
    within(words, |_| true)
}

/// Returns the command inside `timeout 5 ...`, `time ...` and `nice ...`.
pub(super) fn timed_command(words: &[ShellWord]) -> &[ShellWord] {
    within(words, |name| TIMERS.contains(&name))
}

fn within(mut words: &[ShellWord], is_wrapper: impl Fn(&str) -> bool) -> &[ShellWord] {
    while let Some(first) = words.first().filter(|first| is_wrapper(&first.raw)) {
        let skipped = skipped(words, first);
        // A word that the shell expands may become several, and the command begins elsewhere.
        let is_certain = words.iter().take(skipped).all(ShellWord::is_literal);
        if skipped == 0 || skipped >= words.len() || !is_certain {
            return words;
        }
        words = &words[skipped..];
    }
    words
}

/// The number of words before the command inside. 0 if there is none.
fn skipped(words: &[ShellWord], first: &ShellWord) -> usize {
    let is_flag = |at: &usize| words.get(*at).is_some_and(|word| word.raw.starts_with('-'));
    match (first.assigns(), first.raw.as_str()) {
        (Some(name), spelt) => {
            // In a subscript, the shell runs what is written there.
            let is_whole = spelt[name.len()..].starts_with('=');
            usize::from(HARMLESS_VARIABLES.contains(&name) && is_whole && first.is_literal())
        }
        (None, "nohup" | "builtin" | "command") => after_flags(words, |_| None),
        (None, "time") => after_flags(words, |flag| (flag == "-p").then_some(1)),
        (None, "nice") => after_flags(words, flag_of_nice),
        (None, "timeout") => match after_flags(words, flag_of_timeout) {
            0 => 0,
            duration => duration + 1,
        },
        (None, "stdbuf") => 1 + (1..words.len()).take_while(is_flag).count(),
        (None, _) => 0,
    }
}

/// The number of words before the first operand. `words_of` is the number of words that a flag
/// takes. 0 if one is not known: it may take a value, or change what is run.
fn after_flags(words: &[ShellWord], words_of: impl Fn(&str) -> Option<usize>) -> usize {
    let mut at = 1;
    while let Some(flag) = words.get(at).map(|word| word.raw.as_str()) {
        if flag == "--" {
            return at + 1;
        }
        if !flag.starts_with('-') {
            break;
        }
        let Some(count) = words_of(flag) else { return 0 };
        at += count;
    }
    at
}

fn flag_of_timeout(flag: &str) -> Option<usize> {
    let alone = ["-f", "-p", "-v", "--foreground", "--preserve-status", "--verbose"];
    let has_value =
        ["-k", "-s", "--kill-after=", "--signal="].iter().any(|it| flag.starts_with(it));
    match flag {
        "-k" | "-s" | "--kill-after" | "--signal" => Some(2),
        _ => (alone.contains(&flag) || has_value).then_some(1),
    }
}

fn flag_of_nice(flag: &str) -> Option<usize> {
    if ["-n", "--adjustment"].contains(&flag) {
        return Some(2);
    }
    let value = ["--adjustment=", "-n", "-"].iter().find_map(|start| flag.strip_prefix(start));
    value.is_some_and(|value| value.parse::<i32>().is_ok()).then_some(1)
}
