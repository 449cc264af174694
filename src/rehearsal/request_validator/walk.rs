//! Lists every block of a request's messages, with its path.

use serde_json::Value;

/// A block and its path: `messages.2.content.0.tool_result.content.1`. A message of plain text
/// counts as a block.
pub(super) struct PlacedBlock<'a> {
    pub(super) place: String,
    pub(super) block: &'a Value,
}

impl PlacedBlock<'_> {
    pub(super) fn kind(&self) -> &str {
        self.block["type"].as_str().unwrap_or_default()
    }

    /// The base64 data of an image or a document.
    pub(super) fn base64(&self) -> Option<&str> {
        let source = &self.block["source"];
        if source["type"] == "base64" { source["data"].as_str() } else { None }
    }
}

/// All blocks in document order. A result precedes its inner blocks.
pub(super) fn blocks(body: &Value) -> Vec<PlacedBlock<'_>> {
    let mut found = Vec::new();
    for (index, message) in list(&body["messages"]).iter().enumerate() {
        let place = format!("messages.{index}");
        let content = &message["content"];
        if content.is_string() {
            found.push(PlacedBlock { place, block: content });
        } else {
            collect(content, &place, &mut found);
        }
    }
    found
}

fn collect<'a>(content: &'a Value, place: &str, found: &mut Vec<PlacedBlock<'a>>) {
    for (index, block) in list(content).iter().enumerate() {
        let place = format!("{place}.content.{index}");
        let inside = format!("{place}.tool_result");
        found.push(PlacedBlock { place, block });
        if block["type"] == "tool_result" {
            collect(&block["content"], &inside, found);
        }
    }
}

/// The items of an array; empty for another value.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// All texts in a value, in order, without the names of its fields.
pub(crate) fn strings(value: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        Value::String(text) => Box::new(std::iter::once(text.as_str())),
        Value::Array(items) => Box::new(items.iter().flat_map(strings)),
        Value::Object(fields) => Box::new(fields.values().flat_map(strings)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Box::new(std::iter::empty()),
    }
}
