//! Decides whether jq reads nothing but its input.

use super::super::shell_lexer::ShellWord;

/// True if jq with these words, whose flags are known, opens no file and shows no variable of the
/// process.
pub(super) fn reads_input_only(words: &[ShellWord]) -> bool {
    filter_of(words).is_some_and(has_no_other_source)
}

/// The filter, if no other operand names a file. Without one, jq prints its input.
fn filter_of(words: &[ShellWord]) -> Option<&str> {
    let mut filter = None;
    let mut words = words.iter().map(|word| word.plain.as_str());
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            // A variable, and its value.
            Some("-arg" | "-argjson") => {
                words.nth(1)?;
            }
            Some(flag) if flag.starts_with(|first: char| first == '-' || first.is_alphabetic()) => {
                // Behind two hyphens, versions do not agree on what is a file.
                (flag != "-").then_some(())?;
            }
            // jq takes other words with a hyphen for operands.
            Some(_) | None => match filter.replace(word) {
                None => {}
                Some(_) => return None,
            },
        }
    }
    filter.or(Some("."))
}

/// Words that read other files, or the variables of the process: in a line with a rule, these
/// may be credentials.
const SOURCES: &[&str] =
    &["ENV", "__loc__", "env", "import", "include", "input_filename", "modulemeta"];

/// True if a filter reads nothing but its input. A field may have any name: `.env`.
fn has_no_other_source(filter: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut before = "";
    let mut rest = filter;
    while let Some(begin) = rest.find(is_part) {
        let (gap, from_word) = rest.split_at(begin);
        let end = from_word.find(|letter| !is_part(letter)).unwrap_or(from_word.len());
        let (word, after) = from_word.split_at(end);
        // After two dots, or after a number with one, a word is not a field.
        let is_field = gap.ends_with('.')
            && !gap.ends_with("..")
            && !(gap == "." && before.starts_with(|first: char| first.is_ascii_digit()));
        if SOURCES.contains(&word) && !is_field {
            return false;
        }
        (before, rest) = (word, after);
    }
    true
}
