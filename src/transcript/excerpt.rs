//! Makes text shorter and says so.

/// The least that an excerpt is cut to, in bytes: room for the note and some words around it.
pub(super) const EXCERPT_MIN: usize = 200;

/// `text` in at most `limit` bytes: its beginning and its end, and between them a note of how
/// much is missing. Both ends matter: a command names itself first and fails last.
pub(super) fn excerpt(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let note = |missing: usize| format!("\n[... {missing} bytes left out here ...]\n");
    let Some(words) = limit.checked_sub(note(text.len()).len()) else {
        return beginning(text, limit).to_owned();
    };
    let head = beginning(text, words.div_ceil(2));
    let tail = ending(text, words / 2);
    let missing = text.len() - head.len() - tail.len();
    format!("{head}{}{tail}", note(missing))
}

/// The words of `text` on one line of at most `limit` bytes.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    // Text of many megabytes is not looked through for a line.
    let near = beginning(text, limit.saturating_mul(4));
    let line = near.split_whitespace().collect::<Vec<_>>().join(" ");
    if near.len() == text.len() && line.len() <= limit {
        return line;
    }
    format!("{}...", beginning(&line, limit.saturating_sub(3)))
}

/// The most that each of `sizes` may take so that together they take at most `room`: the small
/// ones keep what they have, and the large ones share the rest.
pub(super) fn fair_share(mut sizes: Vec<usize>, room: usize) -> usize {
    sizes.sort_unstable();
    let (mut left, mut others) = (room, sizes.len());
    for size in sizes {
        let share = left / others;
        if size > share {
            return share;
        }
        left -= size;
        others -= 1;
    }
    usize::MAX
}

/// The first `limit` bytes, less what would be half a character.
pub(super) fn beginning(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// The last `limit` bytes, less what would be half a character.
fn ending(text: &str, limit: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(limit))..]
}
