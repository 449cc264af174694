//! The protocols of clouds: converts their requests to requests for the Messages API, and streams
//! for Bedrock to AWS event-stream frames.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::connection::RecordedRequest;

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFormat {
    Sse,
    AwsFrames,
}

/// Returns a request in the form that the script handles, and the format of its stream. The format
/// is `None` if it does not ask for a reply.
pub(super) fn admit(request: RecordedRequest) -> (RecordedRequest, Option<EventFormat>) {
    if let Some((request, events)) = translate(&request) {
        return (request, Some(events));
    }
    let asks_for_reply = request.bare_path().ends_with("/v1/messages");
    (request, asks_for_reply.then_some(EventFormat::Sse))
}

/// Converts a request to the path of a cloud. `None` if it has another path, or is not a JSON
/// object.
fn translate(request: &RecordedRequest) -> Option<(RecordedRequest, EventFormat)> {
    let path = request.bare_path();
    let body: Map<String, Value> = serde_json::from_slice(&request.body).ok()?;
    let (model, streams, events) = if let Some((_, rest)) = path.split_once("/model/") {
        let (model, action) = rest.split_once('/')?;
        match action {
            "invoke" => (model, false, EventFormat::Sse),
            "invoke-with-response-stream" => (model, true, EventFormat::AwsFrames),
            _ => return None,
        }
    } else {
        let (_, rest) = path.split_once("/publishers/anthropic/models/")?;
        match rest.split_once(':')? {
            (model, "streamRawPredict") => (model, true, EventFormat::Sse),
            (model, "rawPredict") if model != "count-tokens" => (model, false, EventFormat::Sse),
            _ => return None,
        }
    };
    let model = percent_decode_str(model).decode_utf8_lossy();
    let (body, headers) = as_messages(body, &model, streams, request);
    let request = RecordedRequest {
        method: request.method.clone(),
        path: request.path.clone(),
        headers,
        body: Value::Object(body).to_string().into_bytes(),
        keep_alive: request.keep_alive,
    };
    Some((request, events))
}

/// Returns the fields and headers that the Messages API expects. A request without the version of a
/// cloud keeps its fields, so that the validator rejects it.
fn as_messages(
    mut body: Map<String, Value>,
    model: &str,
    streams: bool,
    request: &RecordedRequest,
) -> (Map<String, Value>, Vec<(String, String)>) {
    let mut headers = request.headers.clone();
    if let Some(Value::String(version)) = body.shift_remove("anthropic_version") {
        headers.push(("anthropic-version".to_owned(), version));
    }
    if let Some(Value::Array(betas)) = body.shift_remove("anthropic_beta") {
        let betas: Vec<&str> = betas.iter().filter_map(Value::as_str).collect();
        headers.push(("anthropic-beta".to_owned(), betas.join(",")));
    }
    body.shift_insert(0, "model".to_owned(), json!(model));
    body.insert("stream".to_owned(), json!(streams));
    (body, headers)
}

impl EventFormat {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream; charset=utf-8",
            Self::AwsFrames => "application/vnd.amazon.eventstream",
        }
    }

    /// Converts one server-sent event.
    pub(super) fn encode(self, event: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Sse => event,
            Self::AwsFrames => frame(&event),
        }
    }
}

/// One frame with the data of a server-sent event, or with the exception that it reports.
fn frame(event: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    let data = text.lines().find_map(|line| line.strip_prefix("data:")).unwrap_or_default().trim();
    let value: Value = serde_json::from_str(data).unwrap_or_default();
    let text = |text: &str| HeaderValue::String(text.to_owned().into());
    let (headers, payload) = if value["type"] == "error" {
        let exception = exception(value["error"]["type"].as_str().unwrap_or_default());
        let headers = [(":exception-type", exception), (":message-type", "exception")];
        (headers, json!({ "message": value["error"]["message"] }))
    } else {
        let headers = [(":event-type", "chunk"), (":message-type", "event")];
        (headers, json!({ "bytes": STANDARD.encode(data), "p": "abcdefgh" }))
    };
    let mut message = Message::new(payload.to_string().into_bytes())
        .add_header(Header::new(":content-type", text("application/json")));
    for (name, value) in headers {
        message = message.add_header(Header::new(name, text(value)));
    }
    let mut bytes = Vec::new();
    write_message_to(&message, &mut bytes).expect("a frame of a scripted event is small");
    bytes
}

/// The exception of Bedrock for an error type of the Messages API. Another text is an exception
/// already.
fn exception(kind: &str) -> &str {
    match kind {
        "overloaded_error" => "serviceUnavailableException",
        "rate_limit_error" => "throttlingException",
        "api_error" => "internalServerException",
        "timeout_error" => "modelTimeoutException",
        "invalid_request_error" => "validationException",
        other => other,
    }
}
