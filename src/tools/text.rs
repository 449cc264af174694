//! Makes bytes readable for a model: valid characters, no control codes, bounded. Pure.

use std::iter::Peekable;
use std::str::Chars;

/// Truncates `text` to `limit` characters.
pub(super) fn truncated(text: &str, limit: usize) -> &str {
    text.char_indices().nth(limit).map_or(text, |(end, _)| &text[..end])
}

/// The last `limit` characters.
pub(super) fn tail(text: &str, limit: usize) -> &str {
    if limit == 0 {
        return "";
    }
    text.char_indices().rev().nth(limit - 1).map_or(text, |(start, _)| &text[start..])
}

/// Whether these bytes are binary: a NUL, or more than a tenth of invalid UTF-8.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    if bytes.contains(&0) {
        return true;
    }
    let unreadable: usize = bytes.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    // A character split at either end does not count.
    unreadable > 8 && unreadable > bytes.len() / 10
}

/// Renders text as a terminal would: without escape sequences, and only the final state of a line
/// that overwrites itself.
pub(super) fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => skip_escape(&mut letters),
            '\r' if letters.peek() == Some(&'\n') => {}
            '\r' if letters.peek().is_some() => {
                plain.truncate(plain.rfind('\n').map_or(0, |end| end + 1));
            }
            '\n' | '\t' => plain.push(letter),
            _ if letter.is_control() => {}
            _ => plain.push(letter),
        }
    }
    plain
}

/// Skips an escape sequence: CSI, a terminal string (a title, an image), or one letter. Never goes
/// beyond the line, as a sequence may be truncated.
fn skip_escape(letters: &mut Peekable<Chars<'_>>) {
    match letters.next() {
        Some('[') => skip_controls(letters),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(letters),
        Some('(' | ')') => {
            letters.next();
        }
        Some(_) | None => {}
    }
}

fn skip_controls(letters: &mut Peekable<Chars<'_>>) {
    while let Some(letter) = letters.next_if(|letter| *letter != '\n') {
        if ('\u{40}'..='\u{7e}').contains(&letter) {
            return;
        }
    }
}

fn skip_string(letters: &mut Peekable<Chars<'_>>) {
    while let Some(letter) = letters.next_if(|letter| *letter != '\n') {
        if letter == '\u{7}' {
            return;
        }
        if letter == '\u{1b}' {
            letters.next_if_eq(&'\\');
            return;
        }
    }
}

/// The similarity of two texts, from 0 to 1: the share of letter pairs that they have in common.
pub(super) fn similarity(one: &str, other: &str) -> f64 {
    let pairs = |text: &str| -> Vec<[char; 2]> {
        let letters: Vec<char> = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        letters.windows(2).map(|pair| [pair[0], pair[1]]).collect()
    };
    let (ours, mut theirs) = (pairs(one), pairs(other));
    let all = ours.len() + theirs.len();
    if all == 0 {
        return 0.0;
    }
    let mut shared = 0_u32;
    for pair in ours {
        if let Some(at) = theirs.iter().position(|other| *other == pair) {
            theirs.swap_remove(at);
            shared += 1;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "texts are far shorter than 2^52")]
    let all = all as f64;
    2.0 * f64::from(shared) / all
}
