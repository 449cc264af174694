//! Faults: raw facts about a failed call, as the transport reports them.
//! [`classify`](super::classify()) maps them to failures.

use serde::{Deserialize, Serialize};

use super::{Failure, FailureStage, RetryAfter, RetryHint};

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// The kind of body that a refusal had.
    pub body: ErrorBody,
    pub stage: FailureStage,
    pub retry_after: Option<RetryAfter>,
    pub retry_hint: Option<RetryHint>,
    /// The server's `request-id`, for a support ticket.
    pub request_id: Option<String>,
    /// The `anthropic-ratelimit-unified-overage-disabled-reason` header, verbatim.
    pub overage_disabled: Option<String>,
}

/// A fault with its failure, which the shell completes by what the conversation shows. What the
/// wording of the fault says depends on its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedFault {
    pub fault: Fault,
    pub failure: Failure,
}

/// The kind of body that a refusal had: an error of the API or something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorBody {
    /// There was no refusal.
    None,
    /// An error object, of the service or of a compatible gateway.
    Api,
    /// Not an error object: a page, plain text, nothing. An intermediary may have answered.
    Foreign,
    /// A redirect to another address, or a page that requires a login: a captive portal or a proxy
    /// has answered.
    Portal,
}

/// The error code of a missing credential if the helper command that prints the API key failed.
pub const KEY_HELPER_FAILED: &str = "api_key_helper_failed";

/// The error code of a tunnel that a proxy refuses, whose message names the proxy already.
pub const TUNNEL_REFUSED: &str = "proxy_tunnel_refused";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The service answered with an error: on the status line, or inside a stream (then the
    /// status is 200).
    Refused {
        status: u16,
        /// The error's `type`, or empty.
        label: String,
        /// `error.details.error_code`, or empty.
        code: String,
        message: String,
    },
    /// One of outlast's own timers ran out.
    Timeout { timer: Timer },
    /// The connection was not established, or died.
    Connection { detail: String },
    /// TLS failed for a cause that no retry removes: a certificate, or the handshake.
    Certificate { detail: String },
    /// The stream ended, cleanly or not, before its last event.
    TornStream { detail: String },
    /// A success status with content that does not parse: bad JSON, an unknown structure.
    InvalidContent { detail: String },
    /// A success status with an HTML page: an intermediary answered instead of the service.
    HtmlPage { detail: String },
    /// A request that could not be built, which is a bug of outlast, or that the server cannot read
    /// at all.
    Unsendable { detail: String },
}

/// The timers of a call, by the names that settings, events and doctor use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    Connect,
    FirstByte,
    /// The longest time without any byte.
    StreamIdle,
    /// The longest time in which bytes arrive, but no content.
    StreamProgress,
    /// The total time of a streamed reply.
    Reply,
    /// The total time of a call without streaming.
    Whole,
}

impl Timer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect timeout",
            Self::FirstByte => "first-byte timeout",
            Self::StreamIdle => "stream idle timeout",
            Self::StreamProgress => "stream progress timeout",
            Self::Reply => "reply timeout",
            Self::Whole => "request timeout",
        }
    }
}

impl Fault {
    /// A fault with only its kind and stage.
    pub fn new(kind: FaultKind, stage: FailureStage) -> Self {
        let is_refused = matches!(kind, FaultKind::Refused { .. });
        let body = if is_refused { ErrorBody::Api } else { ErrorBody::None };
        Self {
            kind,
            body,
            stage,
            retry_after: None,
            retry_hint: None,
            request_id: None,
            overage_disabled: None,
        }
    }

    /// The HTTP status, if the service sent an error status.
    pub fn status(&self) -> Option<u16> {
        let FaultKind::Refused { status, .. } = self.kind else { return None };
        (status != 200).then_some(status)
    }

    /// The timer that ran out, if one did.
    pub fn timer(&self) -> Option<Timer> {
        if let FaultKind::Timeout { timer } = self.kind { Some(timer) } else { None }
    }

    /// The HTTP status, the message and the id of the request, as far as they are known.
    pub fn summary(&self) -> String {
        let status = self.status().map(|status| format!("HTTP {status}"));
        let detail = Some(self.detail().trim().to_owned()).filter(|detail| !detail.is_empty());
        let text = [status, detail].into_iter().flatten().collect::<Vec<_>>().join(": ");
        match &self.request_id {
            Some(id) => format!("{text} (request id {id})").trim_start().to_owned(),
            None => text,
        }
    }

    /// The message of the service, or a description of the fault.
    pub fn detail(&self) -> &str {
        match &self.kind {
            FaultKind::Refused { message, .. } => message,
            FaultKind::Timeout { timer } => timer.name(),
            FaultKind::Connection { detail }
            | FaultKind::Certificate { detail }
            | FaultKind::TornStream { detail }
            | FaultKind::InvalidContent { detail }
            | FaultKind::HtmlPage { detail }
            | FaultKind::Unsendable { detail } => detail,
        }
    }
}
