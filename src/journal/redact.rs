//! Keeps secrets off the disk.

use serde_json::{Map, Value};

const MASK: &str = "[redacted]";
/// Shorter values are words such as `none` or `local`, which key-less servers are given.
const SECRET_BYTES_MIN: usize = 8;
/// How deep JSON may lie within JSON strings and still be seen through.
const NESTING: usize = 3;
/// Values that say what a line is. A secret that is one of these words is not much of a secret,
/// and masking them would make the line unreadable.
const FORMAT: [&str; 12] = [
    "user",
    "assistant",
    "message",
    "outlast",
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "image",
    "document",
    "transition",
];

/// The values to mask.
#[derive(Clone, Debug, Default)]
pub(super) struct Redaction {
    /// Each secret as it is, and as it looks within JSON strings, longest first.
    forms: Vec<String>,
}

impl Redaction {
    pub(super) fn new(secrets: &[String]) -> Self {
        let mut forms = Vec::new();
        for secret in secrets.iter().filter(|secret| secret.len() >= SECRET_BYTES_MIN) {
            let mut form = secret.clone();
            for _depth in 0..=NESTING {
                let escaped = escaped(&form);
                forms.push(form);
                form = escaped;
            }
        }
        forms.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
        forms.dedup();
        Self { forms }
    }

    /// Masks the secrets in a JSON object. One that holds none comes back untouched.
    pub(super) fn mask(&self, json: Vec<u8>) -> Vec<u8> {
        let Ok(text) = String::from_utf8(json) else { return Vec::new() };
        if !self.forms.iter().any(|form| text.contains(form)) {
            return text.into_bytes();
        }
        let value: Value = serde_json::from_str(&text).expect("serde_json reads what it wrote");
        self.mask_value(value).to_string().into_bytes()
    }

    fn mask_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.mask_text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.mask_value(item)).collect(),
            Value::Object(members) => Value::Object(self.mask_members(members)),
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
        }
    }

    /// Names that could be part of the format are left alone: no key has only such letters.
    fn mask_members(&self, members: Map<String, Value>) -> Map<String, Value> {
        let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
        let mask = |(name, value): (String, Value)| {
            let name = if is_plain(&name) { name } else { self.mask_text(name) };
            (name, self.mask_value(value))
        };
        members.into_iter().map(mask).collect()
    }

    fn mask_text(&self, text: String) -> String {
        if FORMAT.contains(&text.as_str()) {
            return text;
        }
        self.forms.iter().fold(text, |text, form| {
            if text.contains(form) { text.replace(form, MASK) } else { text }
        })
    }
}

fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
