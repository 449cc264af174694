//! JSON in one line.

use serde::Serialize;

/// Unicode line separators that JSON does not escape. Readers that split text by Unicode's rules,
/// such as Python's `str.splitlines`, would break a JSON line in two there.
const LINE_ENDS: [(char, &str); 3] =
    [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];

/// Serializes a value as one line, without the line feed at its end.
///
/// # Panics
/// If the value has a map whose keys are not strings, or its serialization fails. Both are bugs.
pub fn to_line(value: &(impl Serialize + ?Sized)) -> String {
    let line = serde_json::to_string(value).expect("values for JSON lines have text as keys");
    escape_line_ends(line)
}

/// Escapes Unicode line separators in JSON text, where they can occur only inside strings.
pub fn escape_line_ends(json: String) -> String {
    let escape_one = |json: String, (end, escape): &(char, &str)| {
        if json.contains(*end) { json.replace(*end, escape) } else { json }
    };
    LINE_ENDS.iter().fold(json, escape_one)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_json_line_is_one_line_by_the_rules_of_unicode() {
        for end in [
            '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
            '\u{2029}',
        ] {
            let value = json!({ "key": format!("a{end}b"), format!("k{end}"): [end] });
            let line = to_line(&value);
            assert!(!line.contains(end), "{end:?}: {line}");
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        }
        assert_eq!(to_line(&json!({ "é": "\u{1f600}" })), "{\"é\":\"\u{1f600}\"}");
    }
}
