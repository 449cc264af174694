//! Texts for messages: shortened ones, numbers with their nouns, digests, words for a POSIX shell.

use std::fmt::{Display, Write as _};
use std::time::Duration;

/// The first `limit` characters of `text`, followed by `mark` if that is not all of it.
pub fn shortened(text: &str, limit: usize, mark: &str) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}{mark}", &text[..end]),
        None => text.to_owned(),
    }
}

/// The last lines of an output: at most `lines`, in at most `bytes` bytes.
pub fn last_lines(output: &str, lines: usize, bytes: usize) -> String {
    let output = output.trim_end();
    let from = output.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1);
    let from = from.max(output.len().saturating_sub(bytes));
    output[output.ceil_char_boundary(from)..].to_owned()
}

/// Formats a number with its noun: `1 line`, `2 lines`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{plural}")
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
