//! Redacts secrets in JSON without breaking the message format.

use serde_json::{Map, Value};

use super::redactor::Redactor;

/// Values that belong to the format. A secret equal to one of them is not worth protecting, and
/// redacting it would make the line unreadable.
const FORMAT_WORDS: [&str; 12] = [
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

/// Fields with opaque values such as signatures and ids, which services accept only unchanged. Only
/// known secret values are redacted in them, and only long ones: a short one would match by chance.
const OPAQUE_FIELDS: [&str; 13] = [
    "signature",
    "encrypted_content",
    "encrypted_index",
    "id",
    "tool_use_id",
    "uuid",
    "parentUuid",
    "session_id",
    "sessionId",
    "request_id",
    "requestId",
    "parent_tool_use_id",
    "timestamp",
];

/// Fields that name the kind of the enclosing object. Their values are words of the format.
const KIND_FIELDS: [&str; 3] = ["type", "subtype", "role"];

/// Fields with free-form values from models, commands and users: no field inside them counts as
/// opaque.
const FREE_FORM_FIELDS: [&str; 4] =
    ["input", "tool_use_result", "toolUseResult", "structured_output"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonZone {
    Message,
    Free,
}

impl Redactor {
    /// Redacts all free-form text in a JSON value. Ids, signatures and other opaque parts of a
    /// message are kept byte for byte, unless they contain a known value: services reject modified
    /// ones.
    pub fn redact_json(&self, value: &mut Value) {
        walk(self, value, JsonZone::Message);
    }
}

fn walk(redactor: &Redactor, value: &mut Value, zone: JsonZone) {
    match value {
        Value::String(text) => {
            if !FORMAT_WORDS.contains(&text.as_str()) {
                redactor.redact_in_place(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(redactor, item, zone)),
        Value::Object(members) => walk_members(redactor, members, zone),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn walk_members(redactor: &Redactor, members: &mut Map<String, Value>, zone: JsonZone) {
    let kind = members.get("type").and_then(Value::as_str);
    // Base64, and encrypted thinking.
    let sealed_data = matches!(kind, Some("base64" | "redacted_thinking"));
    for (name, value) in members.iter_mut() {
        let is_sealed = OPAQUE_FIELDS.contains(&name.as_str()) || (sealed_data && name == "data");
        let is_kind = KIND_FIELDS.contains(&name.as_str());
        if let Value::String(text) = value
            && zone == JsonZone::Message
        {
            if is_sealed {
                if let Some(hidden) = redactor.redact_long_values(text) {
                    *text = hidden;
                }
                continue;
            }
            if is_kind && is_plain(text) {
                continue;
            }
        }
        let is_free = FREE_FORM_FIELDS.contains(&name.as_str());
        walk(redactor, value, if is_free { JsonZone::Free } else { zone });
    }
    if members.keys().any(|name| redactor.redact(name) != *name) {
        let renamed = std::mem::take(members).into_iter();
        *members = renamed.map(|(name, value)| (redact_name(redactor, name), value)).collect();
    }
}

/// Redacts secrets in a field name. Names of letters and underscores only are kept: they may belong
/// to the format, and no API key consists of these characters only.
fn redact_name(redactor: &Redactor, name: String) -> String {
    if is_plain(&name) { name } else { redactor.redact(&name) }
}

fn is_plain(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}
