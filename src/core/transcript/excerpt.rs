//! Truncates text, with a note about the omitted part.

use super::TokenDensity;
use crate::text::words_joined;

/// Minimum length of an excerpt, in bytes: enough for the note and some text around it.
pub(super) const EXCERPT_MIN: usize = 200;

/// Divisor of a byte limit with which any text fits: the estimate of a text is at most three times
/// its bytes.
const ESTIMATE_MARGIN: u64 = 4;

/// Shortens `text` to at most `limit` bytes: its beginning and its end, with a note about the
/// number of omitted bytes between them. Both ends matter: command output begins with its subject
/// and ends with its errors.
pub(super) fn excerpt(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let note = |missing: usize| format!("\n[... {missing} bytes left out here ...]\n");
    let Some(kept) = limit.checked_sub(note(text.len()).len()) else {
        return beginning(text, limit).to_owned();
    };
    let head = beginning(text, kept.div_ceil(2));
    let tail = &text[text.ceil_char_boundary(text.len() - kept / 2)..];
    let missing = text.len() - head.len() - tail.len();
    format!("{head}{}{tail}", note(missing))
}

/// Shortens `text` to at most `room` tokens, but never below [`EXCERPT_MIN`] bytes.
pub(super) fn excerpt_within(text: &str, room: u64, density: TokenDensity) -> String {
    shrink_until_fits(room, density, |limit| excerpt(text, limit.max(EXCERPT_MIN)))
}

/// Calls `make` with decreasing byte limits until its text has at most `room` tokens, since the
/// token density of the text is known only afterwards.
pub(super) fn shrink_until_fits(
    room: u64,
    density: TokenDensity,
    make: impl Fn(usize) -> String,
) -> String {
    const TRIES: usize = 4;
    let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let most = density.bytes(room);
    let mut limit = most;
    for _ in 0..TRIES {
        let text = make(to_usize(limit));
        let tokens = density.of_text(&text);
        if tokens <= room {
            return text;
        }
        limit = limit.saturating_mul(room) / tokens;
    }
    make(to_usize(most / ESTIMATE_MARGIN))
}

/// The words of `text` on one line of at most `limit` bytes.
pub fn excerpt_line(text: &str, limit: usize) -> String {
    // Avoids scanning many megabytes for one line.
    let start = beginning(text, limit.saturating_mul(4));
    let line = words_joined(start);
    if start.len() == text.len() && line.len() <= limit {
        return line;
    }
    format!("{}...", beginning(&line, limit.saturating_sub(3)))
}

/// The maximum for each of `sizes` so that together they take at most `room`: small ones are kept
/// whole, and large ones share the rest.
pub(super) fn fair_share(mut sizes: Vec<u64>, room: u64) -> u64 {
    sizes.sort_unstable();
    let mut left = room;
    let others = (1..=u64::try_from(sizes.len()).unwrap_or(u64::MAX)).rev();
    for (size, others) in sizes.into_iter().zip(others) {
        let share = left / others;
        if size > share {
            return share;
        }
        left -= size;
    }
    u64::MAX
}

/// The first `limit` bytes, ending at a character boundary.
pub(super) fn beginning(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
