//! Substitutes arguments and placeholders in the text of a command. Pure.

/// Maximum length of the expanded text, in bytes: a little more than that of standard input.
const TEXT_MAX: usize = 12 << 20;

/// The expanded text is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpansionTooLong;

/// The values of placeholders other than the arguments.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct Placeholders<'a> {
    /// `${CLAUDE_SKILL_DIR}`: the folder of the file.
    pub(in crate::cli) folder: &'a str,
    /// `${CLAUDE_PROJECT_DIR}`: the working folder of the run.
    pub(in crate::cli) project: &'a str,
    /// `${CLAUDE_SESSION_ID}`.
    pub(in crate::cli) session: &'a str,
    /// The names of the arguments: `$NAME`.
    pub(in crate::cli) names: &'a [String],
}

impl<'v> Placeholders<'v> {
    /// Returns the index of the argument whose name follows the dollar sign, and the text after it.
    fn argument<'t>(&self, rest: &'t str) -> Option<(usize, &'t str)> {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let mut names = self.names.iter().enumerate();
        names.find_map(|(index, name)| {
            let after = rest.strip_prefix('$')?.strip_prefix(name.as_str())?;
            (!after.starts_with(is_part)).then_some((index, after))
        })
    }

    /// Returns the value of the placeholder at the start of `rest`, and the text after it.
    /// Arguments are not searched.
    fn take<'t>(&self, rest: &'t str) -> Option<(&'v str, &'t str)> {
        let known = [
            ("${CLAUDE_SKILL_DIR}", self.folder),
            ("${CLAUDE_PROJECT_DIR}", self.project),
            ("${CLAUDE_SESSION_ID}", self.session),
        ];
        known.into_iter().find_map(|(name, value)| Some((value, rest.strip_prefix(name)?)))
    }
}

/// The replacement of a placeholder.
enum Replacement<'v> {
    Argument(&'v str),
    /// The placeholder stays, because there is no such argument.
    Itself,
    /// A value other than an argument, or an empty text for a named argument that is missing.
    Value(&'v str),
}

/// Returns the replacement of the placeholder at the start of `rest`, and the text after it.
fn replacement<'v, 't>(
    rest: &'t str,
    (arguments, words): (&'v str, &'v [String]),
    placeholders: &Placeholders<'v>,
) -> Option<(Replacement<'v>, &'t str)> {
    let word = |index: usize| words.get(index).map(|word| Replacement::Argument(word));
    let in_brackets = rest.strip_prefix("$ARGUMENTS[").and_then(index_in_brackets);
    if let Some((index, after)) = in_brackets.or_else(|| number(rest.strip_prefix('$')?)) {
        return Some((word(index).unwrap_or(Replacement::Itself), after));
    }
    if let Some((index, after)) = placeholders.argument(rest) {
        return Some((word(index).unwrap_or(Replacement::Value("")), after));
    }
    if let Some(after) = rest.strip_prefix("$ARGUMENTS") {
        return Some((Replacement::Argument(arguments), after));
    }
    placeholders.take(rest).map(|(value, after)| (Replacement::Value(value), after))
}

/// Replaces the placeholders in a text:
/// - `$ARGUMENTS` by all arguments, as written after the name of the command;
/// - `$0`, `$1`, `$ARGUMENTS[0]` and names from the front matter by single arguments, counted from
///   0. Words in quotes are one argument. If there is no such argument, `$1` stays, since it may be
///   part of a program;
/// - `${CLAUDE_SKILL_DIR}` and its like by their values.
///
/// `\$1` becomes `$1`. If no placeholder is replaced by an argument, the arguments are appended.
pub(super) fn fill(
    text: &str,
    arguments: &str,
    placeholders: Placeholders<'_>,
) -> Result<String, ExpansionTooLong> {
    let words = words(arguments);
    let mut filled = String::with_capacity(text.len() + arguments.len());
    let (mut rest, mut used) = (text, false);
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        let is_escaped = rest[..at].ends_with('\\');
        rest = &rest[at..];
        let found = replacement(rest, (arguments, &words), &placeholders);
        let (replacement, after) = found.unwrap_or((Replacement::Itself, &rest[1..]));
        let itself = &rest[..rest.len() - after.len()];
        if is_escaped && itself.len() > 1 {
            filled.pop();
            filled.push_str(itself);
        } else {
            used |= matches!(replacement, Replacement::Argument(_));
            filled.push_str(match replacement {
                Replacement::Argument(value) | Replacement::Value(value) => value,
                Replacement::Itself => itself,
            });
        }
        rest = after;
        if filled.len() > TEXT_MAX {
            return Err(ExpansionTooLong);
        }
    }
    filled.push_str(rest);
    if !used && !arguments.is_empty() {
        filled.push_str("\n\nArguments: ");
        filled.push_str(arguments);
    }
    if filled.len() > TEXT_MAX { Err(ExpansionTooLong) } else { Ok(filled) }
}

/// Returns the number at the start of a text, and the text after it. `None`: there is no number, or
/// a letter follows it, as in `$1st`.
fn number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    let is_word = after.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    Some((digits.parse().ok().filter(|_| !is_word)?, after))
}

/// Like [`number`], for an index in brackets, after the opening bracket: `N]`.
fn index_in_brackets(text: &str) -> Option<(usize, &str)> {
    let (digits, after) = text.split_once(']')?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| is_number)?, after))
}

/// Splits arguments into words, with quotes as in a shell.
pub(super) fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in arguments.chars() {
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

/// The first line of a block of commands.
const COMMAND_BLOCK: &str = "```!";

/// Returns true if a text contains commands that other tools run before the model reads the text:
/// !`command`, or a block that begins with three backticks and an exclamation mark.
pub(super) fn holds_commands(text: &str) -> bool {
    let begins_block = |line: &str| line.trim_start().starts_with(COMMAND_BLOCK);
    let is_inline = text.match_indices("!`").any(|(at, mark)| {
        let before = text[..at].chars().next_back();
        let rest = &text[at + mark.len()..];
        let line = rest.lines().next().unwrap_or_default();
        before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '`')
            && line.find('`').is_some_and(|end| end > 0)
    });
    is_inline || text.lines().any(begins_block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_replace_the_placeholders_of_a_command() {
        let rows = [
            ("Fix $ARGUMENTS now", "a b", "Fix a b now"),
            ("$0 then $1, $2.", "a 'b c'", "a then b c, $2."),
            ("$ARGUMENTS[0]-$ARGUMENTS[1]-$ARGUMENTS[7]", "a 'b c'", "a-b c-$ARGUMENTS[7]"),
            ("$ARGUMENTS[x] $ARGUMENTS[+1] $ARGUMENTS[1", "a b", "a b[x] a b[+1] a b[1"),
            ("it's $0", "it's me", "it's it's"),
            ("$2$1$9", "0 1 2 3 4 5 6 7 8 9 10", "219"),
            ("$10 and $ARGUMENTS[11]", "0 1 2 3 4 5 6 7 8 9 10 11", "10 and 11"),
            ("costs $10, the $1st, $0_", "x", "costs $10, the $1st, $0_\n\nArguments: x"),
            ("no place", "a b", "no place\n\nArguments: a b"),
            ("no place", "", "no place"),
            ("$ARGUMENTS", "$0 $ARGUMENTS", "$0 $ARGUMENTS"),
            ("in ${CLAUDE_SKILL_DIR}/x, $HOME, $", "", "in /skill/x, $HOME, $"),
            ("${CLAUDE_PROJECT_DIR}/${CLAUDE_SESSION_ID}.log", "", "/project/id-1.log"),
            ("[$0]", "\"open", "[open]"),
            ("Fix $issue on $branch.", "12 'my main'", "Fix 12 on my main."),
            ("$issue-$issues $issue_2", "12", "12-$issues $issue_2"),
            ("$branch", "12", "\n\nArguments: 12"),
            ("awk '{print $1}' !seen[$0]++ $5", "", "awk '{print $1}' !seen[$0]++ $5"),
            ("awk '{print $1}'", "a", "awk '{print $1}'\n\nArguments: a"),
            ("$ARGUMENTS[3]", "a", "$ARGUMENTS[3]\n\nArguments: a"),
            (r"\$0 \$7 \$ARGUMENTS \$issue $0", "a", "$0 $7 $ARGUMENTS $issue a"),
            (r"\$HOME \$200K \$ \\$0", "", r"\$HOME \$200K \$ \$0"),
            (r"\$ARGUMENTS[0]$0\", "a", r"$ARGUMENTS[0]a\"),
        ];
        let names = &["issue".to_owned(), "branch".to_owned()];
        let placeholders =
            Placeholders { folder: "/skill", project: "/project", session: "id-1", names };
        for (text, arguments, expected) in rows {
            assert_eq!(fill(text, arguments, placeholders).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn command_text_beyond_the_limit_is_rejected() {
        let text = "$ARGUMENTS ".repeat(20_000);
        let long = "x".repeat(1 << 20);
        assert_eq!(fill(&text, &long, Placeholders::default()), Err(ExpansionTooLong));
    }

    #[test]
    fn shell_commands_in_command_text_are_detected() {
        for (text, expected) in [
            ("- Status: !`git status`", true),
            ("!`ls`", true),
            ("Say hello!`x`", false),
            ("the sign ! and `code`", false),
            ("an open !`end", false),
            ("empty !``", false),
            ("Begin:\n\n```!\ngit status\n```\n", true),
            ("1. Begin\n   ```! git status\n   ```\n", true),
            ("```sh\ngit status # now!\n```\n", false),
            ("blocks of ```! run", false),
        ] {
            assert_eq!(holds_commands(text), expected, "{text}");
        }
    }
}
