//! Converts transport and HTTP errors to a [`Fault`], without classifying them.

use std::error::Error;
use std::io;
use std::time::SystemTime;

use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use crate::connect_error::{ConnectRefusal, causes};
use crate::json;
use crate::recovery::{ErrorBody, FailureStage, Fault, FaultKind, Timer};
use crate::response_body::BodyError;
use crate::sse::SseParser;

use super::credentials::Secret;
use super::error_body::{parse_error, truncate_message};
use super::headers::{header_text, parse_retry_after, parse_retry_hint, request_id, wall_clock};
use super::http2::http2_only;
use super::transport::HttpClientError;

/// The fault of a request for which no HTTP client can be built.
pub(super) fn fault_without_client(error: &HttpClientError) -> Box<Fault> {
    let detail = error.to_string();
    Box::new(Fault::new(FaultKind::Certificate { detail }, FailureStage::Unsent))
}

/// Converts a response with a status outside 2xx.
pub fn fault_of_response(status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Fault {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let value = json::read::<Value>(body).ok().or_else(|| event_data(body));
    let error = value.as_ref().and_then(|value| parse_error(value, status));
    let error_body = match &error {
        Some(_) if value.as_ref().is_some_and(|body| is_of_gateway(status, headers, body)) => {
            ErrorBody::Foreign
        }
        Some(_) => ErrorBody::Api,
        None if is_portal(status, headers, body) => ErrorBody::Portal,
        None => ErrorBody::Foreign,
    };
    let text = || match &value {
        Some(Value::String(text)) => text.clone(),
        Some(_) | None => body_text(body),
    };
    let foreign = || redirection(status, headers).unwrap_or_else(text);
    let mut kind = error.unwrap_or_else(|| refusal_kind(status, foreign()));
    if let FaultKind::Refused { label, .. } = &mut kind
        && label.is_empty()
    {
        // Amazon reports the error type in a header, and only the message in the body.
        *label = header_text(headers, "x-amzn-errortype").unwrap_or_default();
    }
    let mut fault = Fault { body: error_body, ..Fault::new(kind, FailureStage::Status) };
    fault.retry_after = parse_retry_after(headers, status, &String::from_utf8_lossy(body), now);
    fault.retry_hint = parse_retry_hint(headers);
    fault.request_id = request_id(headers);
    fault.overage_disabled =
        header_text(headers, "anthropic-ratelimit-unified-overage-disabled-reason");
    fault
}

/// Adds the wait that an error within a reply names. `text` is the event or the body with the
/// error.
pub(super) fn with_named_wait(mut fault: Fault, text: &str) -> Fault {
    if let FaultKind::Refused { status, .. } = fault.kind {
        fault.retry_after = parse_retry_after(&HeaderMap::new(), status, text, wall_clock());
    }
    fault
}

/// The error in a stream of events: some gateways answer so with any status.
fn event_data(body: &[u8]) -> Option<Value> {
    let mut events = Vec::new();
    SseParser::default().push(&[body, b"\n\n"].concat(), &mut events).ok()?;
    events.iter().find_map(|event| json::read_str(&event.data).ok())
}

fn refusal_kind(status: u16, message: String) -> FaultKind {
    FaultKind::Refused {
        status,
        label: String::new(),
        code: String::new(),
        message: truncate_message(message),
    }
}

/// Converts a non-JSON body: the title of an HTML page, the message of an XML document, or the text
/// itself.
pub(super) fn body_text(bytes: &[u8]) -> String {
    let is_control = |letter: char| letter.is_control() && !letter.is_whitespace();
    let body = String::from_utf8_lossy(bytes);
    let body = body.trim();
    let is_binary = body.contains(char::REPLACEMENT_CHARACTER) && body.contains(is_control);
    if is_binary {
        return format!("{} bytes that are not text", bytes.len());
    }
    if !body.starts_with('<') {
        return body.to_owned();
    }
    let lower = body.to_ascii_lowercase();
    let between = |open: &str, close: &str| {
        let start = lower.find(open)? + open.len();
        let end = start + lower[start..].find(close)?;
        Some(body[start..end].trim().to_owned()).filter(|text| !text.is_empty())
    };
    let is_xml = lower.starts_with("<?xml") || lower.starts_with("<error");
    let (tags, what) = if is_xml {
        ([("<message>", "</message>"), ("<code>", "</code>")], "an XML document")
    } else {
        ([("<title>", "</title>"), ("<h1>", "</h1>")], "an HTML page")
    };
    let title = tags.iter().find_map(|(open, close)| between(open, close));
    title.map_or_else(|| what.to_owned(), |title| format!("{title} ({what})"))
}

/// True if a body with only a message comes from a gateway that has no route for the request, or
/// denies access to it: Kong, Amazon's API Gateway.
fn is_of_gateway(status: u16, headers: &HeaderMap, body: &Value) -> bool {
    const NAMES: [&str; 6] = ["error", "errors", "type", "code", "__type", "detail"];

    let kind = header_text(headers, "x-amzn-errortype").unwrap_or_default();
    let has_name = !kind.is_empty() && !kind.starts_with("ForbiddenException");
    matches!(status, 403 | 404) && !has_name && NAMES.iter().all(|name| body[*name].is_null())
}

/// True if the answer comes from a captive portal, or from a proxy that demands a login: a
/// temporary redirection, or a page that refuses access.
fn is_portal(status: u16, headers: &HeaderMap, body: &[u8]) -> bool {
    match status {
        302 | 303 | 307 => headers.contains_key(LOCATION),
        401 | 403 => body.trim_ascii_start().starts_with(b"<"),
        _ => false,
    }
}

/// Describes a redirection to another origin, which is not followed with a POST.
fn redirection(status: u16, headers: &HeaderMap) -> Option<String> {
    if !(300..400).contains(&status) {
        return None;
    }
    let to = headers.get(LOCATION)?.to_str().ok()?;
    let to = to.split(['?', '#']).next().unwrap_or_default();
    let to = to.rsplit_once('@').map_or(to, |(_, host)| host);
    Some(format!("redirected to {to}, which is not followed"))
}

/// Converts an error without a response. `stage` is the stage of a failure after the connection was
/// established. `to` is displayed in place of the URL, which may hold credentials.
pub(super) fn fault_without_response(
    error: reqwest::Error,
    to: &str,
    stage: FailureStage,
) -> Fault {
    let error = error.without_url();
    let detail = if error.is_connect() {
        format!("no connection to {to}: {}", error_chain(&error))
    } else {
        error_line(&error)
    };
    let refusal = ConnectRefusal::of(&error);
    if let Some(ConnectRefusal::Certificate(why) | ConnectRefusal::Handshake(why)) = &refusal {
        let detail = format!("{to}: {why}");
        return Fault::new(FaultKind::Certificate { detail }, FailureStage::Unsent);
    }
    if refuses_http_1(&error) {
        return http2_only(to);
    }
    if error.is_builder() {
        return Fault::new(FaultKind::Unsendable { detail }, FailureStage::Unsent);
    }
    if error.is_connect() {
        let kind = if error.is_timeout() {
            FaultKind::Timeout { timer: Timer::Connect }
        } else if refusal == Some(ConnectRefusal::ProxyLogin) {
            refusal_kind(407, detail)
        } else {
            FaultKind::Connection { detail }
        };
        let fault = Fault::new(kind, FailureStage::Unsent);
        let body = if fault.status().is_some() { ErrorBody::Foreign } else { fault.body };
        return Fault { body, ..fault };
    }
    let speaks_no_http = causes(&error)
        .any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse));
    let kind = if speaks_no_http {
        FaultKind::InvalidContent { detail }
    } else {
        FaultKind::Connection { detail }
    };
    Fault::new(kind, stage)
}

/// Converts an interrupted response body.
pub(super) fn torn_body(error: BodyError) -> FaultKind {
    let detail = match error {
        BodyError::Connection(error) => error_line(&error),
        BodyError::Compression(error) => error_chain(&error),
    };
    FaultKind::TornStream { detail }
}

/// The error chain on one line. Names the dead-path timeout if the kernel closed a dead connection,
/// which would otherwise look like any other timeout.
fn error_line(error: &reqwest::Error) -> String {
    let cut = |cause: &(dyn Error + 'static)| {
        let error = cause.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    };
    let line = error_chain(error);
    if causes(error).any(cut) { line + " (dead-path timeout)" } else { line }
}

/// Removes secrets from a fault's text. Some services quote the rejected key.
pub(super) fn redacted<'a>(
    mut fault: Fault,
    secrets: impl IntoIterator<Item = &'a Secret>,
) -> Fault {
    for secret in secrets {
        match &mut fault.kind {
            FaultKind::Refused { label, code, message, .. } => {
                for text in [label, code, message] {
                    *text = secret.redact_in(text);
                }
            }
            FaultKind::Connection { detail }
            | FaultKind::Certificate { detail }
            | FaultKind::TornStream { detail }
            | FaultKind::InvalidContent { detail }
            | FaultKind::HtmlPage { detail }
            | FaultKind::Unsendable { detail } => *detail = secret.redact_in(detail),
            FaultKind::Timeout { .. } => {}
        }
    }
    fault
}

/// True if the server refused HTTP/1.1, which was offered by ALPN.
fn refuses_http_1(error: &reqwest::Error) -> bool {
    use rustls::{AlertDescription, Error as Tls};

    let alert = Tls::AlertReceived(AlertDescription::NoApplicationProtocol);
    causes(error).filter_map(|cause| cause.downcast_ref::<Tls>()).any(|error| *error == alert)
}

/// The error chain on one line, without repetitions.
fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for cause in causes(error) {
        let text = cause.to_string();
        if line.ends_with(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    truncate_message(line)
}
