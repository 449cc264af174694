//! Facts about a failed call, as the transport saw them. No judgement: that is
//! [`classify`](super::classify())'s.

use serde::{Deserialize, Serialize};

use super::{FailureStage, RetryHint, RetryAfter};

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub kind: FaultKind,
    /// Whose words a refusal is in.
    #[serde(default)]
    pub body: ErrorBody,
    pub stage: FailureStage,
    pub retry_after: Option<RetryAfter>,
    pub retry_hint: Option<RetryHint>,
    /// The server's `request-id`, for a support ticket.
    pub request_id: Option<String>,
    /// The `anthropic-ratelimit-unified-overage-disabled-reason` header, verbatim.
    pub overage_disabled: Option<String>,
}

/// Whether the body of a refusal is an error of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorBody {
    /// There was no refusal.
    #[default]
    None,
    /// It reads as an error object, of the service or of a gateway that speaks its language.
    Api,
    /// It does not: a page, plain text, nothing. Something else on the way may have answered.
    Foreign,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
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
    /// One of our own timers ran out.
    Timeout { timer: Timer },
    /// The connection never came up, or died.
    Connection { detail: String },
    /// The certificate was not accepted.
    Certificate { detail: String },
    /// The stream ended, cleanly or not, before its last event.
    TornStream { detail: String },
    /// A success status with content that does not parse: bad JSON, an unknown shape.
    InvalidContent { detail: String },
    /// A success status with an HTML page: something else answered in place of the service.
    HtmlPage { detail: String },
    /// A request that could not be built or sent at all: a broken rule of ours.
    Unsendable { detail: String },
}

/// Our timers, by the name that settings, events and doctor use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timer {
    Connect,
    FirstByte,
    /// No byte for too long.
    StreamIdle,
    /// Bytes, but no content for too long.
    StreamProgress,
    /// The whole of a reply that streams.
    Reply,
    /// The whole of a call without streaming.
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
    /// A fault about which nothing but its kind and reach is known.
    pub fn new(kind: FaultKind, stage: FailureStage) -> Self {
        let body = match kind {
            FaultKind::Refused { .. } => ErrorBody::Api,
            FaultKind::Timeout { .. }
            | FaultKind::Connection { .. }
            | FaultKind::Certificate { .. }
            | FaultKind::TornStream { .. }
            | FaultKind::InvalidContent { .. }
            | FaultKind::HtmlPage { .. }
            | FaultKind::Unsendable { .. } => ErrorBody::None,
        };
        let (request_id, overage_disabled) = (None, None);
        Self { kind, body, stage, retry_after: None, retry_hint: None, request_id, overage_disabled }
    }

    /// The HTTP status, if the service gave one that says failure.
    pub fn status(&self) -> Option<u16> {
        match &self.kind {
            FaultKind::Refused { status, .. } if *status != 200 => Some(*status),
            FaultKind::Refused { .. }
            | FaultKind::Timeout { .. }
            | FaultKind::Connection { .. }
            | FaultKind::Certificate { .. }
            | FaultKind::TornStream { .. }
            | FaultKind::InvalidContent { .. }
            | FaultKind::HtmlPage { .. }
            | FaultKind::Unsendable { .. } => None,
        }
    }

    /// The timer of ours that ran out, if one did.
    pub fn timer(&self) -> Option<Timer> {
        match self.kind {
            FaultKind::Timeout { timer } => Some(timer),
            FaultKind::Refused { .. }
            | FaultKind::Connection { .. }
            | FaultKind::Certificate { .. }
            | FaultKind::TornStream { .. }
            | FaultKind::InvalidContent { .. }
            | FaultKind::HtmlPage { .. }
            | FaultKind::Unsendable { .. } => None,
        }
    }

    /// What was said or seen, in the words of whoever said it.
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
