//! Writes TOML values.

use serde_json::Value;
use textwrap::{Options, WordSplitter};

/// A text as a TOML string: literal where that is easier to read.
pub(super) fn text(text: &str) -> String {
    let is_plain = text.chars().all(|one| !one.is_control() || matches!(one, '\n' | '\t'));
    let lines = text.contains('\n');
    if is_plain && lines && !text.contains("'''") && !text.ends_with('\'') {
        return format!("'''\n{text}'''");
    }
    if is_plain && !lines && text.contains(['"', '\\']) && !text.contains('\'') {
        return format!("'{text}'");
    }
    // The escapes of JSON are escapes of TOML, which also requires one for DEL.
    Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

/// A key, quoted if necessary.
pub(super) fn key(name: &str) -> String {
    let is_bare = |one: char| one.is_ascii_alphanumeric() || one == '-' || one == '_';
    if !name.is_empty() && name.chars().all(is_bare) {
        return name.to_owned();
    }
    Value::from(name).to_string().replace('\u{7f}', "\\u007F")
}

/// A value on one line. `None` if TOML has no such value.
pub(super) fn value(json: &Value) -> Option<String> {
    Some(match json {
        Value::Null => return None,
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => {
            // TOML has no larger whole numbers.
            let is_large = number.as_u64().is_some_and(|number| i64::try_from(number).is_err());
            return (!is_large).then(|| number.to_string());
        }
        Value::String(string) => text(string),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(value).collect::<Option<_>>()?;
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| Some((name, value(field)?)));
            inline(&fields.collect::<Option<Vec<_>>>()?)
        }
    })
}

/// A table on one line.
pub(super) fn inline<K: AsRef<str>>(fields: &[(K, String)]) -> String {
    if fields.is_empty() {
        return "{}".to_owned();
    }
    let field = |(name, value): &(K, String)| format!("{} = {value}", key(name.as_ref()));
    format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
}

/// A duration in the format of [`humantime`].
pub(super) fn duration(span: std::time::Duration) -> String {
    text(&humantime::format_duration(span).to_string())
}

/// Formats a text as lines of comments.
pub(super) fn comment(words: &str) -> String {
    // A control character would end the comment.
    let words: String = words.chars().filter(|one| !one.is_control()).collect();
    if words.is_empty() {
        return words;
    }
    let options = Options::new(COMMENT_WIDTH).word_splitter(WordSplitter::NoHyphenation);
    let marked = options.initial_indent("# ").subsequent_indent("# ");
    textwrap::fill(&words, marked) + "\n"
}

/// The width of comments.
const COMMENT_WIDTH: usize = 98;
