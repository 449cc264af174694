//! Escapes text for XML and HTML.

use std::fmt::Write as _;

use crate::cli::output::is_terminal_control;

/// Escapes a text for an element or an attribute in quotes. Characters that are forbidden in XML
/// become U+FFFD.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // In an attribute they would become spaces.
            '\n' | '\t' => {
                let _ = write!(safe, "&#{};", u32::from(letter));
            }
            letter if is_forbidden(letter) => safe.push(char::REPLACEMENT_CHARACTER),
            letter => safe.push(letter),
        }
    }
    safe
}

/// Escapes a text for an element, and keeps its lines.
pub(super) fn escaped_lines(text: &str) -> String {
    text.lines().map(escaped).collect::<Vec<_>>().join("\n")
}

/// Replaces characters that are forbidden in XML by U+FFFD. Lines are kept.
pub(super) fn displayable(text: &str) -> String {
    let is_line = |letter| matches!(letter, '\n' | '\t');
    text.replace(|letter| is_forbidden(letter) && !is_line(letter), "\u{fffd}")
}

/// Returns true for control characters of terminals, and characters that XML 1.0 forbids.
fn is_forbidden(letter: char) -> bool {
    is_terminal_control(letter) || matches!(letter, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_escaped_and_control_characters_are_replaced() {
        let safe = escaped("<a b='c' d=\"e\">&\0\u{8}\u{1b}\u{85}\u{202e}\u{ffff}\n]]>");
        assert_eq!(
            safe,
            "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}&#10;]]&gt;"
        );
    }
}
