//! Validates single content blocks.

use serde_json::Value;

use super::{is_name, is_tool_use_id};
use crate::sse::{SigningKey, sign_thinking};

/// Validates the content of one message.
pub(super) fn message(
    message: &Value,
    role: &str,
    signer: Option<&str>,
    place: &str,
    faults: &mut Vec<String>,
) {
    for key in message.as_object().into_iter().flat_map(|fields| fields.keys()) {
        if key != "role" && key != "content" {
            faults.push(format!("{place}.{key}: Extra inputs are not permitted"));
        }
    }
    match &message["content"] {
        Value::String(text) if text.trim().is_empty() => {
            faults.push(format!("{place}: text content blocks must contain non-whitespace text"));
        }
        Value::String(_) => {}
        Value::Array(blocks) if blocks.is_empty() => {
            faults.push(format!("{place}: messages must have non-empty content"));
        }
        Value::Array(blocks) => {
            for (index, inner) in blocks.iter().enumerate() {
                block(inner, role, signer, &format!("{place}.content.{index}"), faults);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            faults.push(format!("{place}.content: must be a string or an array of blocks"));
        }
    }
}

fn block(block: &Value, role: &str, signer: Option<&str>, place: &str, faults: &mut Vec<String>) {
    let kind = block["type"].as_str().unwrap_or_default();
    let (role_of_kind, known): (Option<&str>, &[&str]) = match kind {
        "text" => (None, &["text", "cache_control", "citations"]),
        "image" => (Some("user"), &["source", "cache_control"]),
        "document" => (Some("user"), &["source", "title", "context", "citations", "cache_control"]),
        "tool_result" => (Some("user"), &["tool_use_id", "content", "is_error", "cache_control"]),
        "tool_use" => (Some("assistant"), &["id", "name", "input", "cache_control", "caller"]),
        "thinking" => (Some("assistant"), &["thinking", "signature"]),
        "redacted_thinking" => (Some("assistant"), &["data"]),
        _ => {
            faults.push(format!("{place}: `{kind}` is not a type of block"));
            return;
        }
    };
    for key in block.as_object().into_iter().flat_map(|fields| fields.keys()) {
        if key != "type" && !known.contains(&key.as_str()) {
            faults.push(format!("{place}.{key}: Extra inputs are not permitted"));
        }
    }
    if role_of_kind.is_some_and(|role_of_kind| role_of_kind != role) {
        faults.push(format!("{place}: a `{kind}` block cannot stand in a `{role}` message"));
    }
    match kind {
        "text" => text(block, place, faults),
        "tool_use" => tool_use(block, place, faults),
        "tool_result" => tool_result(block, place, faults),
        "thinking" => {
            let signing_keys = [SigningKey::First, SigningKey::Second];
            if signer.is_some_and(|model| !is_signed(block, model, &signing_keys)) {
                faults.push(badly_signed(place));
            }
        }
        "image" | "document" => source(block, place, faults),
        _ => {}
    }
}

/// Validates a text block.
pub(super) fn text(block: &Value, place: &str, faults: &mut Vec<String>) {
    match block["text"].as_str() {
        None => faults.push(format!("{place}.text: Field required")),
        Some("") => faults.push(format!("{place}: text content blocks must be non-empty")),
        Some(text) if text.trim().is_empty() => {
            faults.push(format!("{place}: text content blocks must contain non-whitespace text"));
        }
        Some(_) => {}
    }
}

fn tool_use(block: &Value, place: &str, faults: &mut Vec<String>) {
    let (id, name) = (block["id"].as_str(), block["name"].as_str());
    if !id.is_some_and(is_tool_use_id) {
        faults.push(format!("{place}.tool_use.id: {} is not an id", block["id"]));
    }
    if !name.is_some_and(is_name) {
        faults.push(format!("{place}.tool_use.name: {} is not a tool name", block["name"]));
    }
    if !block["input"].is_object() {
        faults.push(format!("{place}.tool_use.input: must be an object"));
    }
}

fn tool_result(block: &Value, place: &str, faults: &mut Vec<String>) {
    let place = format!("{place}.tool_result");
    if !block["tool_use_id"].is_string() {
        faults.push(format!("{place}.tool_use_id: Field required"));
    }
    let is_empty = match &block["content"] {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(blocks) => {
            for (index, inner) in blocks.iter().enumerate() {
                let place = format!("{place}.content.{index}");
                match inner["type"].as_str().unwrap_or_default() {
                    "text" => text(inner, &place, faults),
                    "image" | "document" => source(inner, &place, faults),
                    kind => faults.push(format!("{place}: `{kind}` cannot stand in a result")),
                }
            }
            blocks.is_empty()
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            faults.push(format!("{place}.content: must be a string or an array of blocks"));
            false
        }
    };
    if is_empty && block["is_error"] == true {
        faults.push(format!("{place}: content cannot be empty if `is_error` is true"));
    }
}

/// True if a thinking block is signed with one of these keys.
pub(super) fn is_signed(block: &Value, model: &str, signing_keys: &[SigningKey]) -> bool {
    let thinking = block["thinking"].as_str().unwrap_or_default();
    let signature = block["signature"].as_str();
    signing_keys.iter().any(|key| signature == Some(&sign_thinking(model, thinking, *key)))
}

pub(super) fn badly_signed(place: &str) -> String {
    format!("{place}: Invalid `signature` in `thinking` block")
}

fn source(block: &Value, place: &str, faults: &mut Vec<String>) {
    let source = &block["source"];
    let whole = match source["type"].as_str() {
        Some("base64") => source["media_type"].is_string() && source["data"].is_string(),
        Some("text") => source["data"].is_string(),
        Some("url") => source["url"].is_string(),
        Some("file") => source["file_id"].is_string(),
        Some("content") => !source["content"].is_null(),
        Some(_) | None => false,
    };
    if !whole {
        faults.push(format!("{place}.source: is missing or incomplete"));
    }
}
