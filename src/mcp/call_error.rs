//! Classifies the library's errors. Messages are one line, and contain no URL, which may hold a
//! secret.

use std::error::Error;
use std::io;
use std::iter::successors;

use reqwest::StatusCode;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::secrets::Redactor;

use super::sanitize::sanitize_start;
use super::state::ConnectionLoss;

/// An HTTP transport error of the library.
type HttpTransportError = StreamableHttpError<reqwest::Error>;

/// Messages with which servers and the library report an expired session.
const SESSION_EXPIRED_MESSAGES: [&str; 3] =
    ["session not found", "session expired", "no valid session"];

/// Why a call has no result.
#[derive(Debug, PartialEq)]
pub(super) enum CallError {
    /// The connection is lost. Whether the call had an effect is unknown.
    Lost(String),
    /// There was an answer, but not a result. Whether the call had an effect is unknown.
    Ambiguous(String),
    /// The server has dropped the session, and has not processed the call.
    Expired,
    /// The server requires a login, or a different one.
    NeedsAuth(String),
    /// The server answered with a JSON-RPC error.
    Refused(String),
}

/// A failed exchange, before it is related to a call or a connection attempt.
#[derive(Debug, PartialEq)]
enum ExchangeFault {
    NeedsAuth(String),
    Expired,
    Status(StatusCode, String),
    /// The answer is not an MCP message.
    InvalidAnswer(String),
    ConnectionLost(String),
}

/// Classifies why a connection over HTTP could not be made.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of errors is open")]
pub(super) fn classify_connect_loss(
    error: &ClientInitializeError,
    mask: &Redactor,
) -> ConnectionLoss {
    let fault = match error {
        ClientInitializeError::TransportError { error, .. } => {
            classify_exchange(error.error.as_ref(), mask)
        }
        ClientInitializeError::ConnectionClosed(_) => ExchangeFault::InvalidAnswer(
            "its answer to the first message violates the protocol".to_owned(),
        ),
        _ => ExchangeFault::InvalidAnswer(describe_initialize_error(error, mask)),
    };
    match fault {
        ExchangeFault::NeedsAuth(why) => ConnectionLoss::NeedsAuth(why),
        ExchangeFault::Status(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, why) => {
            ConnectionLoss::Permanent(format!(
                "{why}: its \"url\" may be wrong, or it speaks the old SSE transport, which is not \
                 supported"
            ))
        }
        ExchangeFault::Status(code, why) if is_permanent(code) => ConnectionLoss::Permanent(why),
        ExchangeFault::Status(_, why)
        | ExchangeFault::InvalidAnswer(why)
        | ExchangeFault::ConnectionLost(why) => ConnectionLoss::Transient(why),
        ExchangeFault::Expired => {
            ConnectionLoss::Transient("it forgot the session at once".to_owned())
        }
    }
}

/// Describes a failed handshake, without the library's type names.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of errors is open")]
pub(super) fn describe_initialize_error(error: &ClientInitializeError, mask: &Redactor) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => String::new(),
        ClientInitializeError::JsonRpcError(error) => sanitize_start(&error.message, mask),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "it answered the first message with something else".to_owned()
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it supports no protocol version that outlast supports".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => {
            sanitize_start(&innermost(error).to_string(), mask)
        }
        _ => sanitize_start(&error.to_string(), mask),
    }
}

/// Whether a retry is useless, since the address or the request is wrong.
fn is_permanent(code: StatusCode) -> bool {
    (code.is_client_error() || code.is_redirection())
        && code != StatusCode::REQUEST_TIMEOUT
        && code != StatusCode::TOO_MANY_REQUESTS
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of errors is open")]
pub(super) fn classify_call_error(error: &ServiceError, mask: &Redactor) -> CallError {
    let error = match error {
        ServiceError::McpError(error) => {
            let text = error.message.to_lowercase();
            let is_about = |words: &str| text.contains(words);
            let forgotten = SESSION_EXPIRED_MESSAGES.into_iter().any(is_about)
                || text.contains("session") && error.code.0 == -32001;
            return if forgotten && [-32000, -32001].contains(&error.code.0) {
                CallError::Expired
            } else if error.message.trim().is_empty() {
                CallError::Refused(format!(
                    "it refused with error code {} and no message",
                    error.code.0
                ))
            } else {
                CallError::Refused(error.message.to_string())
            };
        }
        ServiceError::TransportSend(error) => error.error.as_ref(),
        ServiceError::TransportClosed => {
            return CallError::Lost("it ended, or hung up, before it answered".to_owned());
        }
        ServiceError::UnexpectedResponse => {
            return CallError::Ambiguous(
                "it answered with something else than a result".to_owned(),
            );
        }
        _ => return CallError::Ambiguous(sanitize_start(&error.to_string(), mask)),
    };
    match classify_exchange(error, mask) {
        ExchangeFault::NeedsAuth(why) => CallError::NeedsAuth(why),
        ExchangeFault::Expired => CallError::Expired,
        ExchangeFault::Status(code, why)
            if is_permanent(code) || code == StatusCode::TOO_MANY_REQUESTS =>
        {
            CallError::Refused(why)
        }
        ExchangeFault::Status(_, why) | ExchangeFault::InvalidAnswer(why) => {
            CallError::Ambiguous(why)
        }
        ExchangeFault::ConnectionLost(why) => CallError::Lost(why),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of errors is open")]
fn classify_exchange(
    error: &(dyn Error + Send + Sync + 'static),
    mask: &Redactor,
) -> ExchangeFault {
    let Some(over_http) = error.downcast_ref::<HttpTransportError>() else {
        return ExchangeFault::ConnectionLost(match error.downcast_ref::<io::Error>() {
            Some(_) => "it takes no more messages".to_owned(),
            None => sanitize_start(&innermost(error).to_string(), mask),
        });
    };
    match over_http {
        HttpTransportError::AuthRequired(error) => ExchangeFault::NeedsAuth(describe_challenge(
            StatusCode::UNAUTHORIZED,
            &error.www_authenticate_header,
        )),
        HttpTransportError::InsufficientScope(error) => ExchangeFault::NeedsAuth(
            describe_challenge(StatusCode::FORBIDDEN, &error.www_authenticate_header),
        ),
        HttpTransportError::SessionExpired => ExchangeFault::Expired,
        HttpTransportError::HttpStatus(error) => {
            classify_status(error.status, "", error.retry_after.as_deref(), mask)
        }
        HttpTransportError::UnexpectedServerResponse(text) => parse_library_message(text, mask),
        HttpTransportError::UnexpectedContentType(kind) => ExchangeFault::InvalidAnswer(format!(
            "it answered with {}, which is none of the protocol's",
            kind.as_deref()
                .map_or_else(|| "content of no type".to_owned(), |kind| sanitize_start(kind, mask))
        )),
        HttpTransportError::ResponseBodyTooLarge { max_size } => ExchangeFault::InvalidAnswer(
            format!("its answer is larger than {} MiB", max_size >> 20),
        ),
        HttpTransportError::ReservedHeaderConflict(name) => ExchangeFault::InvalidAnswer(format!(
            "the header {name:?} of its \"headers\" is the protocol's own"
        )),
        HttpTransportError::Client(error) => classify_client_error(error, mask),
        HttpTransportError::Deserialize(_) => {
            ExchangeFault::InvalidAnswer("its answer is no message".to_owned())
        }
        HttpTransportError::UnexpectedEndOfStream
        | HttpTransportError::Sse(_)
        | HttpTransportError::Io(_) => connection_broken(),
        _ => ExchangeFault::ConnectionLost("it hung up".to_owned()),
    }
}

/// Parses the library's message for an HTTP status without a protocol message.
fn parse_library_message(text: &str, mask: &Redactor) -> ExchangeFault {
    let Some((code, said)) = text.strip_prefix("HTTP ").and_then(|rest| rest.split_once(": "))
    else {
        return ExchangeFault::InvalidAnswer("its answer is no message of the protocol".to_owned());
    };
    let code = code.get(..3).and_then(|code| code.parse().ok()).unwrap_or_default();
    let is_forgotten =
        SESSION_EXPIRED_MESSAGES.iter().any(|words| said.to_lowercase().contains(words));
    if is_forgotten { ExchangeFault::Expired } else { classify_status(code, said, None, mask) }
}

fn classify_status(
    code: u16,
    said: &str,
    retry_after: Option<&str>,
    mask: &Redactor,
) -> ExchangeFault {
    let Ok(code) = StatusCode::from_u16(code) else {
        return ExchangeFault::InvalidAnswer("its answer is no message of the protocol".to_owned());
    };
    if code == StatusCode::UNAUTHORIZED {
        return ExchangeFault::NeedsAuth(describe_challenge(code, ""));
    }
    let mut why = format!("it answered HTTP {code}");
    // An HTML page is not worth quoting.
    if !said.trim().is_empty() && !said.contains('<') {
        why = format!("{why} (it said: {})", sanitize_start(said, mask));
    }
    if code.is_redirection() {
        why = format!(
            "{why}, which is not followed: write the address that it leads to into its \"url\", \
             often the same with or without a \"/\" at the end"
        );
    }
    if let Some(wish) = retry_after {
        why = format!("{why} (it asks to wait: {})", sanitize_start(wish, mask));
    }
    ExchangeFault::Status(code, why)
}

/// Describes the required login, from the `WWW-Authenticate` challenge.
fn describe_challenge(code: StatusCode, challenge: &str) -> String {
    let lower = challenge.to_lowercase();
    let what = if lower.contains("insufficient_scope") {
        "the token has no permission for this"
    } else if lower.contains("resource_metadata") {
        "it requires an OAuth login"
    } else if lower.contains("invalid_token") {
        "it rejects the token"
    } else {
        "it requires a login"
    };
    format!("{what} (HTTP {})", code.as_u16())
}

fn classify_client_error(error: &reqwest::Error, mask: &Redactor) -> ExchangeFault {
    if let Some(code) = error.status() {
        return classify_status(code.as_u16(), "", None, mask);
    }
    let inner = innermost(error);
    let kind = successors(Some(error as &(dyn Error + 'static)), |&error| error.source())
        .find_map(|error| error.downcast_ref::<io::Error>())
        .map(io::Error::kind);
    ExchangeFault::ConnectionLost(match kind {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        _ if error.is_timeout() => "it could not be reached in time".to_owned(),
        _ if error.is_connect() => {
            format!("it cannot be reached: {}", sanitize_start(&inner.to_string(), mask))
        }
        _ => return connection_broken(),
    })
}

fn connection_broken() -> ExchangeFault {
    ExchangeFault::ConnectionLost("the connection broke before it had answered".to_owned())
}

/// The root cause of an error. The errors above it quote URLs.
fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    successors(Some(error), |&error| error.source()).last().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_http_errors_are_described_by_their_meaning() {
        let words = |fault: ExchangeFault| match fault {
            ExchangeFault::Status(_, why)
            | ExchangeFault::InvalidAnswer(why)
            | ExchangeFault::NeedsAuth(why) => why,
            ExchangeFault::Expired => "expired".to_owned(),
            ExchangeFault::ConnectionLost(why) => format!("gone: {why}"),
        };
        for (text, wanted) in [
            (
                "HTTP 500 Internal Server Error: <html>oops",
                "it answered HTTP 500 Internal Server \
                                                            Error",
            ),
            (
                "HTTP 418 I'm a teapot: short\nand stout",
                "it answered HTTP 418 I'm a teapot (it \
                                                         said: short and stout)",
            ),
            ("HTTP 401 Unauthorized: no", "it requires a login (HTTP 401)"),
            ("HTTP 403 Forbidden: <p>", "it answered HTTP 403 Forbidden"),
            ("HTTP 400 Bad Request: No valid session ID", "expired"),
            ("could not parse JSON: <html>", "its answer is no message of the protocol"),
            ("HTTP ö: x", "its answer is no message of the protocol"),
        ] {
            assert_eq!(words(parse_library_message(text, &Redactor::default())), wanted, "{text}");
        }
        let asked = words(classify_status(429, "", Some("7"), &Redactor::default()));
        assert_eq!(asked, "it answered HTTP 429 Too Many Requests (it asks to wait: 7)");
    }

    #[test]
    fn an_mcp_auth_challenge_is_described() {
        let table = [
            ("Bearer", "it requires a login (HTTP 401)"),
            ("Bearer resource_metadata=\"https://x\"", "it requires an OAuth login (HTTP 401)"),
            ("Bearer error=\"invalid_token\"", "it rejects the token"),
            ("Bearer error=\"insufficient_scope\", resource_metadata=\"x\"", "no permission"),
        ];
        for (challenge, wanted) in table {
            let told = describe_challenge(StatusCode::UNAUTHORIZED, challenge);
            assert!(told.contains(wanted), "{challenge}: {told}");
        }
    }
}
