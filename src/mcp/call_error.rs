//! Classifies failed exchanges. Messages are one line, and contain no URL, which may hold a secret.

use std::io;

use reqwest::StatusCode;

use crate::connect_error::{ConnectRefusal, causes};
use crate::secrets::Redactor;
use crate::text::contains_any;

use super::rpc::{INTERNAL_ERROR, INVALID_REQUEST, RpcError, UNREADABLE_ANSWER};
use super::sanitize::sanitize_start;
use super::state::ConnectionLoss;

/// Phrases in errors of servers about a session that has expired or is unknown.
#[rustfmt::skip]
const LOST_SESSION: [&str; 31] = [
    "not found", "unable to find", "cannot find", "could not find", "couldn't find", "can't find",
    "no such", "not exist", "n't exist", "unknown", "not known", "unrecognized", "unrecognised",
    "not recognized", "not recognised", "no valid", "not valid", "invalid", "expired", "timed out",
    "terminated", "closed", "ended", "deleted", "gone", "lost", "stale", "missing", "no longer",
    "not active", "no active",
];

/// Phrases in errors of servers about a session that has not begun, such as after a restart of the
/// server.
const NO_HANDSHAKE: [&str; 7] = [
    "not initialized",
    "not initialised",
    "not been initialized",
    "uninitialized",
    "initialize first",
    "reinitialize",
    "before initiali",
];

/// The error codes with which servers refuse a request before they process it.
const REFUSED_AT_ONCE: [i64; 3] = [-32_000, -32_001, INVALID_REQUEST];

/// The reason that a call has no result.
#[derive(Debug, PartialEq)]
pub(super) enum CallError {
    /// The connection is lost. Whether the call had an effect is unknown.
    Lost(String),
    /// There was an answer, but not a result. Whether the call had an effect is unknown.
    Ambiguous(String),
    /// The server no longer has the session, and has not processed the call.
    Expired(String),
    /// The server has not received the call.
    NotSent(String),
    /// The server requires a login, or a different one.
    NeedsAuth(String),
    /// The server demands a scope for this call that the token does not have.
    MissingScope(String),
    /// The server answered with a JSON-RPC error.
    Refused(String),
}

/// The reason that a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestFault {
    /// The server answered with an error.
    Refused(RpcError),
    /// The answer to the first request is not valid for it.
    Mismatch,
    Exchange(ExchangeFault),
    /// The connection ended before the answer; with the reason if outlast closed it.
    Closed(Option<&'static str>),
}

/// The reason that an exchange of messages failed, for calls and connection attempts alike.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExchangeFault {
    NeedsAuth(String),
    /// The server demands a scope for this request that the token does not have.
    MissingScope(String),
    /// The server no longer has the session, and has not processed the request.
    Expired(String),
    Status(StatusCode, String),
    /// The answer is not an MCP message.
    InvalidAnswer(String),
    ConnectionLost(String),
    /// There is no connection, so the server has not received the request.
    NotSent(String),
    /// Like [`NotSent`](Self::NotSent), for a cause that no retry removes: TLS, or a proxy.
    Barred(String),
}

impl ExchangeFault {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::NeedsAuth(why)
            | Self::MissingScope(why)
            | Self::Expired(why)
            | Self::Status(_, why)
            | Self::InvalidAnswer(why)
            | Self::ConnectionLost(why)
            | Self::NotSent(why)
            | Self::Barred(why) => why,
        }
    }

    /// Returns true if the connection failed before the answer was complete.
    pub(super) fn is_of_connection(&self) -> bool {
        matches!(self, Self::ConnectionLost(_) | Self::NotSent(_) | Self::Barred(_))
    }
}

/// Classifies why a connection over HTTP could not be made.
pub(super) fn classify_connect_loss(fault: &RequestFault, redactor: &Redactor) -> ConnectionLoss {
    let transient = || ConnectionLoss::Transient(describe_handshake_fault(fault, redactor));
    let RequestFault::Exchange(exchange) = fault else { return transient() };
    match exchange {
        ExchangeFault::NeedsAuth(why) | ExchangeFault::MissingScope(why) => {
            ConnectionLoss::NeedsAuth(why.clone())
        }
        ExchangeFault::Status(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, why) => {
            ConnectionLoss::Permanent(format!(
                "{why}: its \"url\" may be wrong, or it speaks the other transport over HTTP \
                 (\"type\": \"http\" or \"sse\")"
            ))
        }
        ExchangeFault::Status(code, why) if is_permanent(*code) => {
            ConnectionLoss::Permanent(why.clone())
        }
        ExchangeFault::Barred(why) => ConnectionLoss::Permanent(why.clone()),
        ExchangeFault::Status(..)
        | ExchangeFault::InvalidAnswer(_)
        | ExchangeFault::ConnectionLost(_)
        | ExchangeFault::NotSent(_)
        | ExchangeFault::Expired(_) => transient(),
    }
}

/// Describes a failed handshake. Empty if the server only closed the connection.
pub(super) fn describe_handshake_fault(fault: &RequestFault, redactor: &Redactor) -> String {
    match fault {
        // The reason is part of the server's output.
        RequestFault::Closed(_) => String::new(),
        RequestFault::Refused(error) => sanitize_start(&error.text(), redactor),
        RequestFault::Mismatch => "it answered the first message with something else".to_owned(),
        RequestFault::Exchange(ExchangeFault::Expired(why)) => {
            format!("it forgot the session at once: {why}")
        }
        RequestFault::Exchange(fault) => fault.text().to_owned(),
    }
}

/// Returns true if a retry is useless, since the address or the request is wrong.
fn is_permanent(code: StatusCode) -> bool {
    (code.is_client_error() || code.is_redirection())
        && code != StatusCode::REQUEST_TIMEOUT
        && code != StatusCode::TOO_MANY_REQUESTS
}

/// Returns true if the text of an HTTP error says that the server does not have the session.
pub(super) fn is_session_lost(text: &str) -> bool {
    let text = text.to_lowercase();
    contains_any(&text, &NO_HANDSHAKE)
        || text.contains("session") && contains_any(&text, &LOST_SESSION)
}

/// Returns true if the error of an answer reports that the server had no handshake, since its
/// program, or a part of it, was restarted. Servers use several of the protocol's codes for that.
fn lacks_handshake(error: &RpcError) -> bool {
    (-32_768..=-32_000).contains(&error.code)
        && error.code != INTERNAL_ERROR
        && contains_any(&error.message.to_lowercase(), &NO_HANDSHAKE)
}

/// Returns true if the error of an answer is about a lost session. Only the codes of refusals
/// count: other errors may come from a tool, and be about the tool's own sessions.
pub(super) fn is_session_error(error: &RpcError) -> bool {
    lacks_handshake(error)
        || REFUSED_AT_ONCE.contains(&error.code) && is_session_lost(&error.message)
}

/// Classifies why a call has no result.
pub(super) fn classify_call_error(fault: RequestFault) -> CallError {
    match fault {
        RequestFault::Refused(error) if error.code == UNREADABLE_ANSWER => {
            CallError::Ambiguous(error.message)
        }
        RequestFault::Refused(error) if lacks_handshake(&error) => CallError::Expired(error.text()),
        RequestFault::Refused(error) => {
            let (code, text) = (error.code, error.text());
            if text.is_empty() {
                CallError::Refused(format!("it refused with error code {code} and no message"))
            } else {
                CallError::Refused(text)
            }
        }
        RequestFault::Mismatch => {
            CallError::Ambiguous("it answered with something other than a result".to_owned())
        }
        RequestFault::Closed(Some(why)) => CallError::Lost(why.to_owned()),
        RequestFault::Closed(None) => {
            CallError::Lost("it ended, or hung up, before it answered".to_owned())
        }
        RequestFault::Exchange(fault) => match fault {
            ExchangeFault::NeedsAuth(why) => CallError::NeedsAuth(why),
            ExchangeFault::MissingScope(why) => CallError::MissingScope(why),
            ExchangeFault::Expired(why) => CallError::Expired(why),
            ExchangeFault::Status(code, why)
                if is_permanent(code) || code == StatusCode::TOO_MANY_REQUESTS =>
            {
                CallError::Refused(why)
            }
            ExchangeFault::Status(_, why) | ExchangeFault::InvalidAnswer(why) => {
                CallError::Ambiguous(why)
            }
            ExchangeFault::ConnectionLost(why) => CallError::Lost(why),
            ExchangeFault::NotSent(why) | ExchangeFault::Barred(why) => CallError::NotSent(why),
        },
    }
}

/// Converts a status that is not a success to a fault, with the server's text and its
/// `retry-after`.
pub(super) fn classify_status(
    code: StatusCode,
    body: &str,
    retry_after: Option<&str>,
    redactor: &Redactor,
) -> ExchangeFault {
    let reason = code.canonical_reason().unwrap_or_default();
    let mut why = format!("it answered HTTP {} {reason}", code.as_u16()).trim_end().to_owned();
    // An HTML page is not worth quoting.
    if !body.trim().is_empty() && !body.contains('<') {
        why = format!("{why} (it said: {})", sanitize_start(body, redactor));
    }
    if code.is_redirection() {
        why = format!(
            "{why}, which is not followed: write the address that it leads to into its \"url\", \
             often the same with or without a \"/\" at the end"
        );
    }
    if let Some(retry_after) = retry_after {
        why = format!("{why} (it asks to wait: {})", sanitize_start(retry_after, redactor));
    }
    ExchangeFault::Status(code, why)
}

/// Describes the required login, from the `WWW-Authenticate` challenge.
pub(super) fn describe_challenge(code: StatusCode, challenge: &str) -> String {
    let lower = challenge.to_lowercase();
    let what = if lower.contains("resource_metadata") {
        "it requires an OAuth login"
    } else if lower.contains("invalid_token") {
        "it rejects the token"
    } else {
        "it requires a login"
    };
    format!("{what} (HTTP {})", code.as_u16())
}

/// Describes a refusal because of a missing scope, which the challenge may name.
pub(super) fn describe_missing_scope(code: StatusCode, scope: Option<&str>) -> String {
    let what = match scope {
        Some(scope) => format!("the token lacks the scope {scope:?}"),
        None => "the token has no permission for this".to_owned(),
    };
    format!("{what} (HTTP {})", code.as_u16())
}

/// Classifies why an HTTP request has no response.
pub(super) fn classify_client_error(error: &reqwest::Error, redactor: &Redactor) -> ExchangeFault {
    if let Some(refusal) = ConnectRefusal::of(error) {
        return ExchangeFault::Barred(sanitize_start(&describe_refusal(refusal), redactor));
    }
    let kind =
        causes(error).find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind);
    let why = match kind {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        _ if error.is_timeout() => "it could not be reached in time".to_owned(),
        _ if error.is_connect() => {
            // Only the root cause: the errors above it quote URLs.
            let cause = causes(error).last().map(ToString::to_string).unwrap_or_default();
            format!("it cannot be reached: {}", sanitize_start(&cause, redactor))
        }
        _ => return connection_broken(),
    };
    if error.is_connect() {
        ExchangeFault::NotSent(why)
    } else {
        ExchangeFault::ConnectionLost(why)
    }
}

fn describe_refusal(refusal: ConnectRefusal) -> String {
    match refusal {
        ConnectRefusal::Certificate(why) => {
            format!("TLS: {why}; --ca-file or NODE_EXTRA_CA_CERTS names a further authority")
        }
        ConnectRefusal::Handshake(why) => format!("TLS: {why}"),
        ConnectRefusal::ProxyLogin => {
            "the proxy demands another user and password in HTTPS_PROXY or ALL_PROXY".to_owned()
        }
        ConnectRefusal::ProxyTunnel => {
            "the proxy refuses the connection; check HTTPS_PROXY, ALL_PROXY, NO_PROXY".to_owned()
        }
    }
}

pub(super) fn connection_broken() -> ExchangeFault {
    ExchangeFault::ConnectionLost("the connection broke before it had answered".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_http_errors_are_described_by_their_meaning() {
        let redactor = Redactor::default();
        for (code, body, wanted) in [
            (500, "<html>oops", "it answered HTTP 500 Internal Server Error"),
            (
                418,
                "short\nand stout",
                "it answered HTTP 418 I'm a teapot (it said: short and stout)",
            ),
            (403, "<p>", "it answered HTTP 403 Forbidden"),
        ] {
            let code = StatusCode::from_u16(code).expect("a status");
            assert_eq!(classify_status(code, body, None, &redactor).text(), wanted);
        }
        let busy = classify_status(StatusCode::TOO_MANY_REQUESTS, "", Some("7"), &redactor);
        assert_eq!(busy.text(), "it answered HTTP 429 Too Many Requests (it asks to wait: 7)");
    }

    #[test]
    fn a_lost_session_is_recognized_in_other_words() {
        for text in [
            "Bad Request: No valid session ID provided",
            "Unknown session id; reinitialize",
            "Bad Request: Server not initialized",
            "Session not found: x",
            "Session expired",
            "Missing or invalid mcp-session-id header",
            "The session s1 does not exist",
            "Session has been terminated",
            "Could not find session",
            "Received request before initialization: not initialized",
        ] {
            assert!(is_session_lost(text), "{text}");
        }
        for text in ["what was that", "Unknown tool", "no such file", "the session goes on", ""] {
            assert!(!is_session_lost(text), "{text}");
        }
        let error = |code| RpcError::new(code, "Session not found".to_owned());
        assert!([-32_000, -32_001, -32_600].into_iter().all(|code| is_session_error(&error(code))));
        assert!(!is_session_error(&error(-32_603)), "it may be that of a tool");
        assert!(!is_session_error(&error(-32_602)), "it may be that of a tool");
        let refusal = |code, text: &str| {
            classify_call_error(RequestFault::Refused(RpcError::new(code, text.to_owned())))
        };
        for (code, text, is_expired) in [
            (-32_002, "Server not initialized", true),
            (-32_602, "Received request before initialization was complete", true),
            (-32_600, "Client is not initialised", true),
            (-32_603, "Database not initialized", false),
            (7, "Server not initialized", false),
            (-32_000, "Session not found", false),
        ] {
            let is = matches!(refusal(code, text), CallError::Expired(_));
            assert_eq!(is, is_expired, "{code} {text}");
        }
    }

    #[test]
    fn an_mcp_auth_challenge_is_described() {
        let table = [
            ("Bearer", "it requires a login (HTTP 401)"),
            ("Bearer resource_metadata=\"https://x\"", "it requires an OAuth login (HTTP 401)"),
            ("Bearer error=\"invalid_token\"", "it rejects the token"),
        ];
        for (challenge, wanted) in table {
            let description = describe_challenge(StatusCode::UNAUTHORIZED, challenge);
            assert!(description.contains(wanted), "{challenge}: {description}");
        }
        let description = describe_missing_scope(StatusCode::FORBIDDEN, Some("write"));
        assert_eq!(description, "the token lacks the scope \"write\" (HTTP 403)");
    }
}
