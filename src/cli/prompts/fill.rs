//! Puts the words of a call into a command's text. Pure.

/// How long the text may get, in bytes: a little more than standard input may bring.
const LONGEST: usize = 12 << 20;

/// What the text becomes longer than.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Replaces `$ARGUMENTS` by all that follows the name, `$1` to `$9` by single words of it (quotes
/// hold words together) and `${CLAUDE_SKILL_DIR}` by the folder. Where the text has no place for
/// arguments, they are added at its end.
pub(super) fn fill(text: &str, arguments: &str, folder: &str) -> Result<String, TooLong> {
    let words = words(arguments);
    let mut filled = String::with_capacity(text.len() + arguments.len());
    let (mut rest, mut used) = (text, false);
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let digit = rest[1..].bytes().next().filter(|byte| (b'1'..=b'9').contains(byte));
        let longer = rest.as_bytes().get(2).is_some_and(u8::is_ascii_digit);
        if let Some(after) = rest.strip_prefix("$ARGUMENTS") {
            filled.push_str(arguments);
            (rest, used) = (after, true);
        } else if let Some(after) = rest.strip_prefix("${CLAUDE_SKILL_DIR}") {
            filled.push_str(folder);
            rest = after;
        } else if let Some(digit) = digit.filter(|_| !longer) {
            filled.push_str(words.get(usize::from(digit - b'1')).map_or("", String::as_str));
            (rest, used) = (&rest[2..], true);
        } else {
            filled.push('$');
            rest = &rest[1..];
        }
        if filled.len() > LONGEST {
            return Err(TooLong);
        }
    }
    filled.push_str(rest);
    if !used && !arguments.is_empty() {
        filled.push_str("\n\nArguments: ");
        filled.push_str(arguments);
    }
    if filled.len() > LONGEST { Err(TooLong) } else { Ok(filled) }
}

/// The first nine words, where quotes hold words together.
fn words(arguments: &str) -> Vec<String> {
    const MOST: usize = 9;
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in arguments.chars() {
        if words.len() == MOST {
            return words;
        }
        if quote == Some(letter) {
            quote = None;
        } else if quote.is_none() && (letter == '"' || letter == '\'') && word.is_none() {
            quote = Some(letter);
            word = Some(String::new());
        } else if quote.is_none() && letter.is_whitespace() {
            words.extend(word.take());
        } else {
            word.get_or_insert_default().push(letter);
        }
    }
    words.extend(word);
    words
}

/// Whether a text holds commands that other tools run before the model sees it: !`command`.
pub(super) fn holds_commands(text: &str) -> bool {
    text.match_indices("!`").any(|(at, mark)| {
        let before = text[..at].chars().next_back();
        let rest = &text[at + mark.len()..];
        let line = rest.lines().next().unwrap_or_default();
        before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '`')
            && line.find('`').is_some_and(|end| end > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_call_are_put_where_the_text_has_a_place_for_them() {
        let rows = [
            ("Fix $ARGUMENTS now", "a b", "Fix a b now"),
            ("$1 then $2, $3.", "a 'b c'", "a then b c, ."),
            ("it's $1", "it's me", "it's it's"),
            ("$2$1$9", "1 2 3 4 5 6 7 8 9 10", "219"),
            ("costs $10 or $0", "x", "costs $10 or $0\n\nArguments: x"),
            ("no place", "a b", "no place\n\nArguments: a b"),
            ("no place", "", "no place"),
            ("$ARGUMENTS", "$1 $ARGUMENTS", "$1 $ARGUMENTS"),
            ("in ${CLAUDE_SKILL_DIR}/x, $HOME, $", "", "in /skill/x, $HOME, $"),
            ("[$1]", "\"open", "[open]"),
        ];
        for (text, arguments, expected) in rows {
            assert_eq!(fill(text, arguments, "/skill").as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_text_that_would_grow_without_end_is_refused() {
        let text = "$ARGUMENTS ".repeat(20_000);
        assert_eq!(fill(&text, &"x".repeat(1 << 20), ""), Err(TooLong));
    }

    #[test]
    fn commands_in_a_text_are_seen() {
        for (text, expected) in [
            ("- Status: !`git status`", true),
            ("!`ls`", true),
            ("Say hello!`x`", false),
            ("the sign ! and `code`", false),
            ("an open !`end", false),
            ("empty !``", false),
        ] {
            assert_eq!(holds_commands(text), expected, "{text}");
        }
    }
}
