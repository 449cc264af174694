//! Commands that run another command, which rules may match, too.

use super::shell_lexer::ShellWord;

/// Variables that change how a command reports, not what it does.
#[rustfmt::skip]
const HARMLESS_VARIABLES: &[&str] = &[
    "CARGO_TERM_COLOR", "CI", "CLICOLOR", "FORCE_COLOR", "LANG", "LC_ALL", "NO_COLOR", "NODE_ENV",
    "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "RUST_BACKTRACE", "RUST_LOG", "TZ",
];

/// Returns the command inside `timeout 5 ...`, `nohup ...`, `NO_COLOR=1 ...` and the like.
pub(super) fn inner_command(mut words: &[ShellWord]) -> &[ShellWord] {
    let is_flag = |at: usize, words: &[ShellWord]| {
        words.get(at).is_some_and(|word| word.raw.starts_with('-'))
    };
    while let Some(first) = words.first() {
        let skipped = match (first.assigns(), first.raw.as_str()) {
            (Some(name), _) => usize::from(HARMLESS_VARIABLES.contains(&name) && first.is_literal),
            (None, "nohup" | "builtin") => 1,
            (None, "command" | "time" | "nice") if !is_flag(1, words) => 1,
            (None, "timeout") if !is_flag(1, words) => 2,
            (None, "nice") if words.get(1).is_some_and(|word| word.raw == "-n") => 3,
            (None, "stdbuf") => 1 + (1..words.len()).take_while(|at| is_flag(*at, words)).count(),
            (None, _) => 0,
        };
        // A word that the shell expands may become several, and the command begins elsewhere.
        let is_certain = words.iter().take(skipped).all(|word| word.is_literal);
        if skipped == 0 || skipped >= words.len() || !is_certain {
            return words;
        }
        words = &words[skipped..];
    }
    words
}
