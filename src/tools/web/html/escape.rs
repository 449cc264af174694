//! Escapes text where Markdown would read it as markup, and only there. Pure.

use crate::text::words_joined;

#[derive(Clone, Copy, Debug)]
pub(super) struct WordPlace {
    pub(super) is_at_line_start: bool,
    pub(super) is_in_link: bool,
    pub(super) has_space_after: bool,
}

/// Appends a word of text, which has no white space.
pub(super) fn push_word(out: &mut String, word: &str, place: WordPlace) {
    if word == "*" && place.has_space_after && !place.is_at_line_start && out.ends_with(' ') {
        out.push('*');
        return;
    }
    let escaped_at =
        if place.is_at_line_start { block_mark(word, place.has_space_after) } else { None };
    let mut keeps_underscores = false;
    let mut previous = None;
    let mut rest = word;
    while let Some(one) = rest.chars().next() {
        let at = word.len() - rest.len();
        rest = &rest[one.len_utf8()..];
        let next = rest.chars().next();
        let is_escaped = match one {
            '\\' => next.map_or(!place.has_space_after, |next| next.is_ascii_punctuation()),
            '*' | '`' => true,
            '_' => {
                if previous != Some('_') {
                    let after = rest.trim_start_matches('_').chars().next();
                    keeps_underscores = previous.is_some_and(char::is_alphanumeric)
                        && after.is_some_and(char::is_alphanumeric);
                }
                !keeps_underscores
            }
            '~' => previous == Some('~') || next == Some('~'),
            '<' => next.is_some_and(|next| next.is_ascii_alphabetic() || "/!?".contains(next)),
            '[' | ']' if place.is_in_link => true,
            // Text in brackets is only a link with an address after it.
            '(' | '[' => out.ends_with(']'),
            _ => false,
        };
        if is_escaped || escaped_at == Some(at) {
            out.push('\\');
        }
        out.push(one);
        previous = Some(one);
    }
}

/// Finds the position in the first word of a line to be escaped, so that no block begins there.
fn block_mark(word: &str, has_space_after: bool) -> Option<usize> {
    let first = word.chars().next()?;
    let is_run = word.chars().all(|one| one == first);
    let is_mark = match first {
        '#' => is_run && word.len() <= 6 && has_space_after,
        '-' => is_run && (word.len() > 1 || has_space_after),
        '+' => word.len() == 1 && has_space_after,
        '=' => is_run,
        '>' => true,
        '[' => word.contains("]:"),
        _ => {
            let number = word.trim_end_matches(['.', ')']);
            let is_item = number.len() + 1 == word.len()
                && number.len() < 10
                && number.bytes().all(|one| one.is_ascii_digit());
            return Some(number.len()).filter(|_| is_item && has_space_after);
        }
    };
    is_mark.then_some(0)
}

/// Returns the shortest run of backticks that is longer than those in a text.
pub(super) fn fence(text: &str, least: usize) -> String {
    let runs = text.split(|one| one != '`').map(str::len);
    "`".repeat(least.max(runs.max().unwrap_or(0) + 1))
}

/// Formats the address of a link or picture, with the title in quotes.
pub(super) fn destination(address: &str, title: Option<&str>) -> String {
    let address: String =
        address.trim().chars().filter(|one| !matches!(one, '\t' | '\n' | '\r')).collect();
    let mut text = String::with_capacity(address.len());
    let is_bracketed = address.contains([' ', '<', '>']);
    text.extend(is_bracketed.then_some('<'));
    for one in address.chars() {
        let is_escaped = if is_bracketed { "<>" } else { "()" }.contains(one);
        text.extend(is_escaped.then_some('\\'));
        text.push(one);
    }
    text.extend(is_bracketed.then_some('>'));
    let title = title.map(words_joined).filter(|title| !title.is_empty());
    if let Some(title) = title {
        text.extend([" \"", &title.replace('"', "\\\""), "\""]);
    }
    text
}
