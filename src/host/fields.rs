//! Fields of messages of a host, and the reasons why a message is invalid.

use serde_json::Value;

/// The reason why a line is not a valid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("it is not JSON ({0:?})")]
    NotJson(String),
    #[error("it is not a JSON object with a \"type\"")]
    NoType,
    #[error("a control request has no \"request_id\"")]
    NoRequestId,
    #[error(
        "the \"content\" of a user message is neither text nor a list of content blocks, each with its content"
    )]
    BadContent,
}

/// Returns the string in a field.
pub(super) fn text(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().map(ToOwned::to_owned)
}
