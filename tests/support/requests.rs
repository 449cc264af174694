//! Reads requests to the model.

use outlast::rehearsal::ReceivedRequest;
use serde_json::Value;

/// The messages of a request.
pub(crate) fn messages(request: &ReceivedRequest) -> Vec<Value> {
    request.body["messages"].as_array().cloned().unwrap_or_default()
}

/// The blocks of a type in all messages of a request.
pub(crate) fn blocks(request: &ReceivedRequest, kind: &str) -> Vec<Value> {
    let messages = messages(request);
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["type"] == kind).cloned().collect()
}

/// The texts of a message.
pub(crate) fn texts(message: &Value) -> Vec<String> {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str().map(str::to_owned)).collect()
}

/// The output limit of each request.
pub(crate) fn caps(requests: &[ReceivedRequest]) -> Vec<u64> {
    requests.iter().filter_map(|request| request.body["max_tokens"].as_u64()).collect()
}
