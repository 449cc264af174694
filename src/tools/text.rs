//! Makes bytes readable for a model: valid characters, no control codes, bounded. Pure.

use std::iter::Peekable;
use std::str::Chars;

/// Truncates `text` to `limit` characters.
pub(super) fn truncated(text: &str, limit: usize) -> &str {
    text.char_indices().nth(limit).map_or(text, |(end, _)| &text[..end])
}

/// Returns the last `limit` characters.
pub(super) fn tail(text: &str, limit: usize) -> &str {
    if limit == 0 {
        return "";
    }
    text.char_indices().rev().nth(limit - 1).map_or(text, |(start, _)| &text[start..])
}

/// The character that is shown for NUL.
pub const NUL_SIGN: &str = "\u{2400}";

/// True if these bytes are binary: more than a tenth is control characters or invalid UTF-8. A
/// single NUL between other bytes does not count: it separates names, or is in a source file.
pub fn is_binary(bytes: &[u8]) -> bool {
    if controls(bytes) > (bytes.len() / 10).max(1) {
        return true;
    }
    let unreadable: usize = bytes.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    // A character split at either end does not count.
    unreadable > (bytes.len() / 10).max(8)
}

/// Counts the control characters that text does not contain. A single NUL does not count.
pub(super) fn controls(bytes: &[u8]) -> usize {
    // Most texts have none, and this check handles many bytes at once.
    if !bytes.iter().fold(false, |any, byte| any | is_control(*byte)) {
        return 0;
    }
    let mut before = u8::MAX;
    let controls = bytes.iter().filter(|byte| {
        let counts = is_control(**byte) && (**byte != 0 || before == 0);
        before = **byte;
        counts
    });
    controls.count()
}

/// True if a byte is a control character that text does not contain.
pub(super) fn is_control(byte: u8) -> bool {
    matches!(byte, 0..=6 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)
}

/// Renders text as a terminal would: without escape sequences, and only the final state of a line
/// that overwrites itself.
pub(super) fn readable(text: &str) -> String {
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
            '\0' => plain.push_str(NUL_SIGN),
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
