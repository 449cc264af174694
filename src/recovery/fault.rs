//! Facts about a failed call, as the transport saw them. No judgement: that is
//! [`classify`](super::classify())'s.

use serde::{Deserialize, Serialize};

use super::{Reach, Ruling, Wish};

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub kind: FaultKind,
    pub reach: Reach,
    pub wish: Option<Wish>,
    pub ruling: Option<Ruling>,
    /// The server's `request-id`, for a support ticket.
    pub request_id: Option<String>,
    /// The `anthropic-ratelimit-unified-overage-disabled-reason` header, verbatim.
    pub overage_disabled: Option<String>,
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
    /// A success status with content that does not parse: bad JSON, HTML, an unknown shape.
    Nonsense { detail: String },
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
    /// Bytes, but nothing except pings for too long.
    StreamProgress,
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
            Self::Whole => "request timeout",
        }
    }
}

impl Fault {
    /// A fault about which nothing but its kind and reach is known.
    pub fn new(kind: FaultKind, reach: Reach) -> Self {
        Self { kind, reach, wish: None, ruling: None, request_id: None, overage_disabled: None }
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
            | FaultKind::Nonsense { .. }
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
            | FaultKind::Nonsense { .. }
            | FaultKind::Unsendable { .. } => None,
        }
    }

    /// Whether the service certainly did no work for the call, so that it cost nothing: the request
    /// never left, or was turned down, or met a connection that was closed already. Of all else
    /// nobody knows. A service may finish, and bill, an answer that nobody waits for any more.
    pub fn was_surely_not_billed(&self) -> bool {
        let never_left = self.reach == Reach::Nowhere;
        match &self.kind {
            FaultKind::Certificate { .. }
            | FaultKind::Unsendable { .. }
            | FaultKind::Timeout { timer: Timer::Connect } => true,
            FaultKind::Refused { .. } => {
                never_left || (self.reach == Reach::Status && self.status().is_some())
            }
            FaultKind::Connection { .. } => never_left || self.reach == Reach::StaleConnection,
            FaultKind::Timeout {
                timer: Timer::FirstByte | Timer::StreamIdle | Timer::StreamProgress | Timer::Whole,
            }
            | FaultKind::TornStream { .. }
            | FaultKind::Nonsense { .. } => never_left,
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
            | FaultKind::Nonsense { detail }
            | FaultKind::Unsendable { detail } => detail,
        }
    }
}
