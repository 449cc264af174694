//! Renders JSON values as YAML in block style, which users can edit.

use std::fmt::Write as _;

use serde_json::Value;

/// Renders one document.
pub fn render_yaml(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, &mut text);
    text
}

fn write_value(value: &Value, indent: usize, text: &mut String) {
    if let Value::Object(map) = value
        && !map.is_empty()
    {
        for (key, value) in map {
            text.push_str(&" ".repeat(indent));
            text.push_str(&scalar(&Value::String(key.clone())));
            text.push(':');
            write_nested(value, indent + 2, text);
        }
    } else if let Value::Array(items) = value
        && !items.is_empty()
    {
        for item in items {
            let mut inner = String::new();
            write_value(item, indent + 2, &mut inner);
            text.push_str(&" ".repeat(indent));
            text.push_str("- ");
            text.push_str(inner.trim_start());
        }
    } else {
        text.push_str(&" ".repeat(indent));
        text.push_str(&scalar(value));
        text.push('\n');
    }
}

/// Writes the value after a key.
fn write_nested(value: &Value, indent: usize, text: &mut String) {
    let is_nested = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if is_nested {
        text.push('\n');
        write_value(value, indent, text);
    } else {
        text.push(' ');
        text.push_str(&scalar(value));
        text.push('\n');
    }
}

/// Formats a value on one line, as JSON, which is valid YAML. Plain strings have no quotes.
fn scalar(value: &Value) -> String {
    if let Value::String(text) = value
        && is_plain(text)
    {
        text.clone()
    } else {
        escaped(&value.to_string())
    }
}

/// Escapes characters that are valid in JSON strings, but not in YAML, or are line breaks there.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(letter));
            }
            _ => text.push(letter),
        }
    }
    text
}

/// True if YAML reads the unquoted text as the same string.
fn is_plain(text: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/')
        && text.chars().all(is_word)
        && !words.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_in_block_style() {
        let value = json!({
            "kind": "Job", "empty": {}, "none": [], "number": 3,
            "list": [{ "a": "x", "b": ["1", "no"] }, "plain", []],
            "text": "a: b\n\"c\" # ä", "odd": "\u{7f}\u{85}\u{9b}\u{2028}\u{feff}\u{ffff}😀",
        });
        let wanted = "kind: Job\nempty: {}\nnone: []\nnumber: 3\nlist:\n  - a: x\n    b:\n      \
                      - \"1\"\n      - \"no\"\n  - plain\n  - []\ntext: \"a: b\\n\\\"c\\\" # ä\"\n\
                      odd: \"\\u007f\\u0085\\u009b\\u2028\\ufeff\\uffff😀\"\n";
        assert_eq!(render_yaml(&value), wanted);
        let read: Value = serde_saphyr::from_str(&render_yaml(&value)).expect("it is YAML");
        assert_eq!(read, value);
    }
}
