//! Classified failures of model calls, with everything that the recovery table needs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConnectionChoice, ErrorBody, ErrorClass};
use crate::types::{FailureOrigin, exit_code};

/// A classified failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    pub class: ErrorClass,
    /// The wait that the server demands before the next attempt.
    pub retry_after: Option<RetryAfter>,
    /// `x-should-retry`: the server's own retry hint, which overrides the class.
    pub retry_hint: Option<RetryHint>,
    pub stage: FailureStage,
    /// The mitigations that the conversation offers.
    pub mitigations: AvailableMitigations,
    /// True if the service denies fast mode to this account.
    pub fast_denied: bool,
    /// The kind of body that a refusal had.
    pub body: ErrorBody,
    /// Proven if the endpoint has given a good answer before.
    pub endpoint_status: EndpointStatus,
    /// True if known facts contradict the refusal: the request is far smaller than any limit, or
    /// lacks the content that it is refused for, or the service has accepted other requests.
    pub contradicted: bool,
}

/// The state of an endpoint, judged by the answers that this process had from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointStatus {
    /// It has not answered successfully yet.
    Untried,
    /// It has answered successfully: address and credential are right. The model may have been
    /// another one.
    Proven,
}

/// Changes to the conversation that could still be made, so that the next request differs from the
/// failed one. The machine has no access to the conversation: the shell fills this in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent mitigations")]
pub struct AvailableMitigations {
    /// Old tool results that are staged to be folded.
    pub folds: bool,
    /// An older part that a summary could replace; for a summarising request, rounds that it could
    /// do without.
    pub rounds: bool,
    /// Images or documents.
    pub media: bool,
    /// The block that the refusal names, if it can be repaired.
    pub block: bool,
    /// The output cap: with a smaller one, the otherwise unchanged request would fit.
    pub output: bool,
    /// The field for thinking or effort, if the refusal is about it.
    pub thinking: bool,
    /// The cache breakpoints (`cache_control`), if the refusal is about them.
    pub cache_marks: bool,
    /// Streaming, if the refusal is about it.
    pub streaming: bool,
    /// Content that was added since the last answer, if the refusal gives no recognised reason.
    pub added: bool,
}

impl AvailableMitigations {
    pub const NONE: Self = Self {
        folds: false,
        rounds: false,
        media: false,
        block: false,
        output: false,
        thinking: false,
        cache_marks: false,
        streaming: false,
        added: false,
    };
}

/// The wait that the server requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryAfter {
    pub wait: Duration,
    pub source: RetryAfterSource,
}

/// The source of a [`RetryAfter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfterSource {
    /// `retry-after` or `retry-after-ms`.
    RetryAfter,
    /// The reset time of a rate-limit window: an exact moment, not an estimate.
    Reset,
}

/// The server's `x-should-retry` hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryHint {
    Retry,
    Stop,
}

/// The stage at which a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureStage {
    /// The request was never sent, or the stage is unknown.
    Unsent,
    /// A kept-alive connection died before any byte of the answer.
    StaleConnection,
    /// A new connection died before any byte of the answer.
    FreshConnection,
    /// The server answered with a status.
    Status,
    /// A stream began, but no content block of it was complete.
    Stream,
    /// At least one content block was complete.
    Block,
}

impl Failure {
    /// A failure of this class, with nothing else known.
    pub const fn of(class: ErrorClass) -> Self {
        Self {
            class,
            retry_after: None,
            retry_hint: None,
            stage: FailureStage::Status,
            mitigations: AvailableMitigations::NONE,
            fast_denied: false,
            body: ErrorBody::None,
            endpoint_status: EndpointStatus::Untried,
            contradicted: false,
        }
    }

    /// True if an intermediary may have answered, so that the refusal may be temporary: a proven
    /// endpoint refuses in a form that is not the API's or has another certificate, or an untried
    /// one is behind a portal.
    pub(super) fn is_odd_refusal(self) -> bool {
        let is_proven = self.endpoint_status == EndpointStatus::Proven;
        if self.class.info().origin == FailureOrigin::Certificate {
            return is_proven;
        }
        // Failures of other origins have their own retries, are never retried, or are not refusals.
        let is_final = matches!(
            self.class.info().origin,
            FailureOrigin::Access | FailureOrigin::Credential | FailureOrigin::Request
        );
        let is_odd = match self.body {
            ErrorBody::Portal => true,
            ErrorBody::Foreign => is_proven,
            ErrorBody::None | ErrorBody::Api => false,
        };
        is_final && is_odd
    }

    /// True if known facts contradict a refusal of the API: the endpoint has accepted the
    /// credential before, or the request lacks the content that it is refused for.
    pub(super) fn is_doubtful_refusal(self) -> bool {
        let is_about_request = matches!(
            self.class,
            ErrorClass::InvalidRequest | ErrorClass::ToolUseMismatch | ErrorClass::ContentFiltered
        );
        self.is_doubtful_rejection() || (is_about_request && self.contradicted)
    }

    /// True if the API refuses access or the model although the endpoint has accepted the
    /// credential, perhaps for another model: one node of a service or a gateway may be wrong.
    pub(super) fn is_doubtful_access(self) -> bool {
        matches!(self.class, ErrorClass::AuthError | ErrorClass::InvalidModel)
            && (self.endpoint_status, self.body) == (EndpointStatus::Proven, ErrorBody::Api)
    }

    /// True if the API rejects a credential although the endpoint has accepted one.
    pub(super) fn is_doubtful_rejection(self) -> bool {
        self.class == ErrorClass::InvalidApiKey
            && (self.endpoint_status, self.body) == (EndpointStatus::Proven, ErrorBody::Api)
    }

    /// Removes contradictions from the failure of a call over `connection`: a retry-after of zero,
    /// and a stale connection where the call used a new one.
    pub(super) fn normalized_for(self, connection: ConnectionChoice) -> Self {
        let retry_after = self.retry_after.filter(|retry_after| !retry_after.wait.is_zero());
        let stage = match (self.stage, connection) {
            (FailureStage::StaleConnection, ConnectionChoice::Fresh) => {
                FailureStage::FreshConnection
            }
            (stage, ConnectionChoice::Fresh | ConnectionChoice::Pooled) => stage,
        };
        Self { retry_after, stage, ..self }
    }

    /// True if the same call may succeed later.
    pub(super) fn is_temporary(self) -> bool {
        let may_pass = self.class.info().exit_code == exit_code::TEMPORARY;
        may_pass && self.retry_hint != Some(RetryHint::Stop)
    }

    /// True if the connection failed, and not the service.
    pub(super) fn is_connection_failure(self) -> bool {
        let is_of_connection = self.class.info().origin == FailureOrigin::Connection;
        let is_unsent = matches!(self.stage, FailureStage::Unsent | FailureStage::StaleConnection);
        is_of_connection && !(self.class == ErrorClass::ConnectionError && is_unsent)
    }

    /// True if a call without streaming may have failed because it did not stream: the connection
    /// died, or a proxy gave up before the reply was complete.
    pub(super) fn may_be_of_whole_reply(self) -> bool {
        let is_of_service = matches!(self.class, ErrorClass::ServerError | ErrorClass::BadResponse);
        is_of_service || self.is_connection_failure()
    }

    /// True if the conversation did not fit.
    pub(super) fn is_overflow(self) -> bool {
        matches!(self.class, ErrorClass::PromptTooLong | ErrorClass::RequestTooLarge)
    }

    /// True if this request failed, and not the service: another request may succeed.
    pub(super) fn is_request_failure(self) -> bool {
        matches!(self.class.info().origin, FailureOrigin::Request | FailureOrigin::Model)
    }

    /// True if streaming itself may be the cause: the stream began and broke, early or late.
    pub(super) fn is_broken_stream(self) -> bool {
        self.is_connection_failure() && self.has_streamed()
    }

    /// True if a stream had begun.
    pub fn has_streamed(self) -> bool {
        matches!(self.stage, FailureStage::Stream | FailureStage::Block)
    }

    /// True if the next attempt must not reuse a pooled connection. The state of a silent
    /// connection is unknown, so it counts as dead.
    pub(super) fn suspects_connection(self) -> bool {
        let is_dead =
            matches!(self.stage, FailureStage::StaleConnection | FailureStage::FreshConnection);
        is_dead || self.has_streamed() || self.is_connection_failure()
    }
}
