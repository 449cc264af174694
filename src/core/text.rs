//! Texts for messages: shortened ones, numbers with their nouns, digests.

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
