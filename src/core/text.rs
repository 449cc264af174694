//! Texts for messages: shortened ones, numbers with their nouns, digests, words for a POSIX shell.

use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first `limit` characters of `text`, followed by `ellipsis` if that is not all of it.
pub fn shortened(text: &str, limit: usize, ellipsis: &str) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}{ellipsis}", &text[..end]),
        None => text.to_owned(),
    }
}

/// The value of a variable without surrounding white space and quotation marks: Docker passes those
/// in a file of variables on.
pub fn without_quotes(value: &str) -> &str {
    value.trim_matches(|letter: char| letter.is_whitespace() || "\"'".contains(letter))
}

/// A list of items, a line each.
pub fn bullets(items: &[String]) -> String {
    items.iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n")
}

/// Formats a list of names: at most `most` of them, and the number of the others.
pub fn listed<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let (shown, rest) = names.split_at(names.len().min(most));
    let shown = shown.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match rest.len() {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Joins the words of a text with single spaces, on one line.
pub fn words_joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of a text on one line, shortened to `limit` characters.
pub fn shortened_line(text: &str, limit: usize) -> String {
    // Avoids scanning many megabytes for one line.
    let start = shortened(text, limit.saturating_mul(4), "");
    let line = words_joined(&start);
    let short = shortened(&line, limit, "");
    if short.len() < line.len() || start.len() < text.len() { short + "..." } else { short }
}

/// Expands `~`, or `~/` at the start of a path. `None` if the text does not begin like this, or the
/// home folder is unknown.
pub fn in_home(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    let below = text.strip_prefix('~')?;
    match below.strip_prefix('/') {
        Some(below) => Some(home?.join(below.trim_start_matches('/'))),
        None => home.filter(|_| below.is_empty()).map(Path::to_path_buf),
    }
}

/// The last lines of an output: at most `lines`, in at most `bytes` bytes.
pub fn last_lines(output: &str, lines: usize, bytes: usize) -> String {
    let output = output.trim_end();
    let from = output.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1);
    let from = from.max(output.len().saturating_sub(bytes));
    output[output.ceil_char_boundary(from)..].to_owned()
}

/// True if a text contains one of the phrases.
pub fn contains_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// Formats a number with its noun: `1 line`, `2 lines`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A duration in whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string accepts every write.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Quotes a word, unless the shell reads it unchanged.
pub fn quoted_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=@%+,".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes the words of a command line.
pub fn quoted_command<I: IntoIterator<Item = S>, S: AsRef<str>>(words: I) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| quoted_word(word.as_ref())).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tilde_that_stands_alone_means_the_home_folder() {
        let home = Some(Path::new("/h"));
        for (text, path) in [
            ("~", Some("/h")),
            ("~/", Some("/h/")),
            ("~//a", Some("/h/a")),
            ("~/a/b", Some("/h/a/b")),
            ("~other/a", None),
            ("a/~", None),
            ("/a", None),
        ] {
            assert_eq!(in_home(text, home), path.map(PathBuf::from), "{text}");
            assert_eq!(in_home(text, None), None, "{text}");
        }
    }

    #[test]
    fn only_words_that_a_shell_would_change_are_quoted() {
        for (word, quoted) in [
            ("", "''"),
            ("--jobs=4", "--jobs=4"),
            ("/a b", "'/a b'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("~", "'~'"),
        ] {
            assert_eq!(quoted_word(word), quoted);
        }
        assert_eq!(quoted_command(["outlast", "batch", "my tasks"]), "outlast batch 'my tasks'");
    }
}
