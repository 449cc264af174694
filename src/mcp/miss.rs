//! What the library's errors mean, each in one plain line without an address: it may hold a secret.

use std::error::Error;
use std::io;
use std::iter::successors;

use reqwest::StatusCode;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::secrets::Redactor;

use super::quote::sanitize_start;
use super::state::ConnectionLoss;

/// What the library says of an exchange over HTTP.
type HttpTransportError = StreamableHttpError<reqwest::Error>;

/// How servers and the library say that a session is forgotten.
const SESSION_EXPIRED_MESSAGES: [&str; 3] = ["session not found", "session expired", "no valid session"];

/// What became of a call that was not answered, or the words that came instead of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum CallError {
    /// The connection is gone. Whether the call had an effect is unknown.
    Lost(String),
    /// Something was answered, but no result. Whether the call had an effect is unknown.
    Ambiguous(String),
    /// The server has forgotten the session, and has not looked at the call.
    Expired,
    /// The server wants a login, or another one.
    NeedsAuth(String),
    /// The server answered with an error of its own.
    Refused(String),
}

/// What an exchange that failed shows of the other side.
#[derive(Debug, PartialEq)]
enum ExchangeFault {
    NeedsAuth(String),
    Expired,
    Status(StatusCode, String),
    /// It answers, but with something else than the protocol.
    InvalidAnswer(String),
    ConnectionLost(String),
}

/// Why a server over HTTP could not be connected to.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of errors is open")]
pub(super) fn classify_connect_loss(error: &ClientInitializeError, mask: &Redactor) -> ConnectionLoss {
    let fault = match error {
        ClientInitializeError::TransportError { error, .. } => classify_exchange(error.error.as_ref(), mask),
        ClientInitializeError::ConnectionClosed(_) => {
            ExchangeFault::InvalidAnswer("it did not answer the first message as the protocol wants".to_owned())
        }
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
        ExchangeFault::Status(_, why) | ExchangeFault::InvalidAnswer(why) | ExchangeFault::ConnectionLost(why) => ConnectionLoss::Transient(why),
        ExchangeFault::Expired => ConnectionLoss::Transient("it forgot the session at once".to_owned()),
    }
}

/// What went wrong with the first messages, without the library's own names.
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
            "it speaks no version of the protocol that is known here".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => {
            sanitize_start(&innermost(error).to_string(), mask)
        }
        _ => sanitize_start(&error.to_string(), mask),
    }
}

/// Whether trying again is of no use: the address or the request is wrong, and stays so.
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
                CallError::Refused(format!("it refused, and said no more than {}", error.code.0))
            } else {
                CallError::Refused(error.message.to_string())
            };
        }
        ServiceError::TransportSend(error) => error.error.as_ref(),
        ServiceError::TransportClosed => {
            return CallError::Lost("it ended, or hung up, before it answered".to_owned());
        }
        ServiceError::UnexpectedResponse => {
            return CallError::Ambiguous("it answered with something else than a result".to_owned());
        }
        _ => return CallError::Ambiguous(sanitize_start(&error.to_string(), mask)),
    };
    match classify_exchange(error, mask) {
        ExchangeFault::NeedsAuth(why) => CallError::NeedsAuth(why),
        ExchangeFault::Expired => CallError::Expired,
        ExchangeFault::Status(code, why) if is_permanent(code) || code == StatusCode::TOO_MANY_REQUESTS => {
            CallError::Refused(why)
        }
        ExchangeFault::Status(_, why) | ExchangeFault::InvalidAnswer(why) => CallError::Ambiguous(why),
        ExchangeFault::ConnectionLost(why) => CallError::Lost(why),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of errors is open")]
fn classify_exchange(error: &(dyn Error + Send + Sync + 'static), mask: &Redactor) -> ExchangeFault {
    let Some(over_http) = error.downcast_ref::<HttpTransportError>() else {
        return ExchangeFault::ConnectionLost(match error.downcast_ref::<io::Error>() {
            Some(_) => "it takes no more messages".to_owned(),
            None => sanitize_start(&innermost(error).to_string(), mask),
        });
    };
    match over_http {
        HttpTransportError::AuthRequired(error) => {
            ExchangeFault::NeedsAuth(describe_challenge(StatusCode::UNAUTHORIZED, &error.www_authenticate_header))
        }
        HttpTransportError::InsufficientScope(error) => {
            ExchangeFault::NeedsAuth(describe_challenge(StatusCode::FORBIDDEN, &error.www_authenticate_header))
        }
        HttpTransportError::SessionExpired => ExchangeFault::Expired,
        HttpTransportError::HttpStatus(error) => classify_status(error.status, "", error.retry_after.as_deref(), mask),
        HttpTransportError::UnexpectedServerResponse(text) => parse_library_message(text, mask),
        HttpTransportError::UnexpectedContentType(kind) => ExchangeFault::InvalidAnswer(format!(
            "it answered with {}, which is none of the protocol's",
            kind.as_deref()
                .map_or_else(|| "content of no type".to_owned(), |kind| sanitize_start(kind, mask))
        )),
        HttpTransportError::ResponseBodyTooLarge { max_size } => {
            ExchangeFault::InvalidAnswer(format!("its answer is larger than {} MiB", max_size >> 20))
        }
        HttpTransportError::ReservedHeaderConflict(name) => {
            ExchangeFault::InvalidAnswer(format!("the header {name:?} of its \"headers\" is the protocol's own"))
        }
        HttpTransportError::Client(error) => classify_client_error(error, mask),
        HttpTransportError::Deserialize(_) => ExchangeFault::InvalidAnswer("its answer is no message".to_owned()),
        HttpTransportError::UnexpectedEndOfStream | HttpTransportError::Sse(_) | HttpTransportError::Io(_) => connection_broken(),
        _ => ExchangeFault::ConnectionLost("it hung up".to_owned()),
    }
}

/// Reads the library's own words for a status without a message of the protocol.
fn parse_library_message(text: &str, mask: &Redactor) -> ExchangeFault {
    let Some((code, said)) = text.strip_prefix("HTTP ").and_then(|rest| rest.split_once(": "))
    else {
        return ExchangeFault::InvalidAnswer("its answer is no message of the protocol".to_owned());
    };
    let code = code.get(..3).and_then(|code| code.parse().ok()).unwrap_or_default();
    let is_forgotten = SESSION_EXPIRED_MESSAGES.iter().any(|words| said.to_lowercase().contains(words));
    if is_forgotten { ExchangeFault::Expired } else { classify_status(code, said, None, mask) }
}

fn classify_status(code: u16, said: &str, retry_after: Option<&str>, mask: &Redactor) -> ExchangeFault {
    let Ok(code) = StatusCode::from_u16(code) else {
        return ExchangeFault::InvalidAnswer("its answer is no message of the protocol".to_owned());
    };
    if code == StatusCode::UNAUTHORIZED {
        return ExchangeFault::NeedsAuth(describe_challenge(code, ""));
    }
    let mut why = format!("it answered HTTP {code}");
    // A page for people says nothing here.
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

/// What is wanted, as the challenge has it.
fn describe_challenge(code: StatusCode, challenge: &str) -> String {
    let lower = challenge.to_lowercase();
    let what = if lower.contains("insufficient_scope") {
        "the token that it is given may not do this"
    } else if lower.contains("resource_metadata") {
        "it wants a login by OAuth"
    } else if lower.contains("invalid_token") {
        "it does not take the token that it is given"
    } else {
        "it wants a login"
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
        Some(io::ErrorKind::ConnectionRefused) => "nobody listens at its address".to_owned(),
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

/// The error that all others come from. Those above it quote addresses.
fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    successors(Some(error), |&error| error.source()).last().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_as_what_it_means() {
        let words = |fault: ExchangeFault| match fault {
            ExchangeFault::Status(_, why) | ExchangeFault::InvalidAnswer(why) | ExchangeFault::NeedsAuth(why) => why,
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
            ("HTTP 401 Unauthorized: no", "it wants a login (HTTP 401)"),
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
    fn a_challenge_is_told_as_what_it_wants() {
        let table = [
            ("Bearer", "it wants a login (HTTP 401)"),
            ("Bearer resource_metadata=\"https://x\"", "it wants a login by OAuth (HTTP 401)"),
            ("Bearer error=\"invalid_token\"", "it does not take the token that it is given"),
            ("Bearer error=\"insufficient_scope\", resource_metadata=\"x\"", "may not do this"),
        ];
        for (challenge, wanted) in table {
            let told = describe_challenge(StatusCode::UNAUTHORIZED, challenge);
            assert!(told.contains(wanted), "{challenge}: {told}");
        }
    }
}
