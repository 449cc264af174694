//! Renders an answer as the bytes of an HTTP response, before faults are injected.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::cloud_protocols::EventFormat;
use super::scenario::{
    ReplyForm, ScriptStep, ScriptedError, ScriptedFaultKind, ScriptedHttp, StepAnswer,
};
use super::sse::{self, ResolvedReply};

/// A response, ready to be sent.
#[derive(Debug)]
pub(super) struct RenderedResponse {
    pub(super) head: Vec<u8>,
    /// The body, in pieces that are written separately.
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) framing: Framing,
    /// True if the response announces keep-alive.
    pub(super) keep_alive: bool,
    /// The format of a stream.
    pub(super) events: EventFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Each write is one chunk of a chunked body.
    Chunked,
    /// The head announces the content length.
    Length,
    /// The bytes are not HTTP.
    Bare,
}

/// The context of a response besides its step.
pub(super) struct RenderContext<'a> {
    pub(super) request_id: &'a str,
    pub(super) reply: Option<&'a ResolvedReply>,
    pub(super) streaming: bool,
    pub(super) keep_alive: bool,
    /// The format of a stream.
    pub(super) events: EventFormat,
}

/// Renders the response of a step.
pub(super) fn render(step: &ScriptStep, context: &RenderContext<'_>) -> RenderedResponse {
    let (status, content_type, pieces, announced) = match &step.answer {
        StepAnswer::Raw(bytes) => {
            return RenderedResponse {
                head: Vec::new(),
                pieces: vec![bytes.clone()],
                framing: Framing::Bare,
                keep_alive: false,
                events: context.events,
            };
        }
        StepAnswer::Http(http) => {
            let body = http.body.replace("${request_id}", context.request_id).into_bytes();
            (http.status, http.content_type.as_str(), vec![body], http.content_length)
        }
        StepAnswer::Reply(reply) => match context.reply {
            Some(resolved) if context.streaming && reply.form != ReplyForm::Json => {
                let events = sse::events(resolved, reply.form).into_iter();
                let events = events.map(|event| context.events.encode(event)).collect();
                (200, context.events.content_type(), events, None)
            }
            Some(resolved) => {
                (200, "application/json", vec![resolved.message().to_string().into_bytes()], None)
            }
            None => (200, "application/json", vec![b"{}".to_vec()], None),
        },
    };
    let framing = if content_type == context.events.content_type() {
        Framing::Chunked
    } else {
        Framing::Length
    };
    let mut headers = vec![
        ("content-type".to_owned(), content_type.to_owned()),
        ("request-id".to_owned(), context.request_id.to_owned()),
    ];
    match framing {
        Framing::Chunked => {
            headers.push(("cache-control".to_owned(), "no-cache".to_owned()));
            headers.push(("transfer-encoding".to_owned(), "chunked".to_owned()));
        }
        Framing::Length | Framing::Bare => {
            let length = announced.unwrap_or_else(|| pieces.iter().map(Vec::len).sum());
            headers.push(("content-length".to_owned(), length.to_string()));
        }
    }
    if step.closes_early {
        headers.push(("keep-alive".to_owned(), "timeout=5, max=100".to_owned()));
    } else if !context.keep_alive {
        headers.push(("connection".to_owned(), "close".to_owned()));
    }
    for (name, value) in &step.headers {
        headers.retain(|(usual, _)| !usual.eq_ignore_ascii_case(name));
        headers.push((name.clone(), expand_times(value, SystemTime::now())));
    }
    let closes = headers
        .iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("connection") && value.contains("close"));
    let (head, events) = (head(status, &headers), context.events);
    RenderedResponse { head, pieces, framing, keep_alive: !closes, events }
}

/// A status line and headers.
pub(super) fn head(status: u16, headers: &[(String, String)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// An error response in the service's format. Without an `error`, it has the usual one of the
/// status.
pub fn error_response(status: u16, error: Option<&ScriptedError>) -> ScriptedHttp {
    let usual = usual_error(status);
    let error = error.unwrap_or(&usual);
    ScriptedHttp {
        status,
        content_type: "application/json".to_owned(),
        body: envelope(error, Some("${request_id}")).to_string(),
        content_length: None,
    }
}

/// The JSON object around every error, in a body and in a stream.
pub(super) fn envelope(error: &ScriptedError, request_id: Option<&str>) -> Value {
    let mut inner = json!({ "type": error.kind, "message": error.message });
    if let Some(code) = &error.code {
        inner["details"] = json!({ "error_code": code });
    }
    let mut outer = json!({ "type": "error", "error": inner });
    if let Some(request_id) = request_id {
        outer["request_id"] = json!(request_id);
    }
    outer
}

/// Converts a step for a request without streaming: stream faults become their equivalent.
pub(super) fn without_streaming(mut step: ScriptStep) -> ScriptStep {
    let Some(fault) = &mut step.fault else { return step };
    if let ScriptedFaultKind::Error(error) = &fault.kind {
        let status = STATUSES.iter().find(|status| usual_error(**status).kind == error.kind);
        step.answer = StepAnswer::Http(error_response(*status.unwrap_or(&500), Some(error)));
        step.fault = None;
    } else if let ScriptedFaultKind::Pings { .. } = fault.kind {
        fault.kind = ScriptedFaultKind::Stall;
    }
    step
}

/// Statuses with an error type of their own.
const STATUSES: &[u16] = &[400, 401, 402, 403, 404, 409, 413, 429, 500, 504, 529];

/// The error of an overloaded service.
pub(super) fn overloaded() -> ScriptedError {
    usual_error(529)
}

/// The error that the service sends with this status.
pub fn usual_error(status: u16) -> ScriptedError {
    let (kind, message) = match status {
        401 => ("authentication_error", "invalid x-api-key"),
        402 => ("billing_error", "There is a problem with your billing"),
        403 => ("permission_error", "Your API key may not use this resource"),
        404 => ("not_found_error", "Not found"),
        409 => ("conflict_error", "The resource is being changed"),
        413 => ("request_too_large", "Request exceeds the maximum size"),
        429 => ("rate_limit_error", "This request would exceed your rate limit"),
        504 => ("timeout_error", "Request timed out"),
        529 => ("overloaded_error", "Overloaded"),
        500..=599 => ("api_error", "Internal server error"),
        _ => ("invalid_request_error", "Invalid request"),
    };
    ScriptedError::new(kind, message)
}

fn reason(status: u16) -> &'static str {
    let known = http::StatusCode::from_u16(status).ok().and_then(|it| it.canonical_reason());
    if status == 529 { "Overloaded" } else { known.unwrap_or("Status") }
}

/// Replaces `${unix+5h}` by seconds since the epoch and `${date+61s}` by an HTTP date. Other text
/// is kept.
fn expand_times(value: &str, now: SystemTime) -> String {
    let moment = |name: &str| {
        let span = value.strip_prefix("${")?.strip_suffix('}')?.strip_prefix(name)?;
        match span.strip_prefix('+') {
            Some(span) => Some(now + humantime::parse_duration(span).ok()?),
            None if span.is_empty() => Some(now),
            None => None,
        }
    };
    if let Some(at) = moment("unix") {
        let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        return since_epoch.as_secs().to_string();
    }
    moment("date").map_or_else(|| value.to_owned(), httpdate::fmt_http_date)
}
