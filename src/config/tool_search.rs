//! The setting that defers definitions of MCP tools.

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::values::InvalidValue;
use crate::types::ToolSearchMode;

/// The mode of deferring definitions of MCP tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolSearch(pub ToolSearchMode);

impl ToolSearch {
    /// Reads the text of a flag or a variable.
    ///
    /// # Errors
    /// The text is not a known value.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let mode = ToolSearchMode::parse(text).map(Self);
        mode.ok_or_else(|| "is none of true, false, auto, auto:N".into())
    }
}

impl Serialize for ToolSearch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for ToolSearch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::Bool(is_on) => is_on.to_string(),
            Value::String(text) => text,
            other @ (Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(de::Error::custom(format!("{other} is not a mode of tool search")));
            }
        };
        Self::parse(&text).map_err(|why| de::Error::custom(format!("{text:?} {why}")))
    }
}
