//! What a failed call means, in the only words recovery needs.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConnectionChoice, ErrorBody};

/// A failed call, already judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    pub class: ErrorClass,
    /// When the server asked us to come back.
    pub retry_after: Option<RetryAfter>,
    /// `x-should-retry`: the server's own verdict, which overrides the class.
    pub retry_hint: Option<RetryHint>,
    pub stage: FailureStage,
    /// What the conversation offers against it.
    pub mitigations: AvailableMitigations,
    /// The service says that this account gets no fast mode.
    pub fast_denied: bool,
    /// Whose words a refusal is in.
    #[serde(default)]
    pub body: ErrorBody,
    /// Whether the endpoint has answered well before.
    #[serde(default)]
    pub standing: Standing,
    /// The service calls a request too long that is far smaller than the window.
    #[serde(default)]
    pub contradicted: bool,
}

/// What is known of an endpoint from the answers that this process had from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It has not given a good answer yet.
    #[default]
    Untried,
    /// It has: address, credential and model are right.
    Proven,
}

/// What could still be taken out of the conversation, so that a request would be another one.
/// The machine knows no conversation: whoever reports a failure looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is there or not, whatever the others")]
pub struct AvailableMitigations {
    /// Old tool traffic that is staged to be folded.
    pub folds: bool,
    /// An older part that a summary could replace; of a summarising request, rounds that it could
    /// do without.
    pub rounds: bool,
    /// Images or documents.
    pub media: bool,
    /// The block that the refusal names, if it can be repaired.
    pub block: bool,
    /// The output cap: with a smaller one, the request as it is would fit.
    pub output: bool,
    /// The thinking parameter, which the refusal is about.
    #[serde(default)]
    pub thinking: bool,
}

impl AvailableMitigations {
    pub const NONE: Self = Self {
        folds: false,
        rounds: false,
        media: false,
        block: false,
        output: false,
        thinking: false,
    };
}

/// How long the server asked us to stay away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryAfter {
    pub wait: Duration,
    pub source: RetryAfterSource,
}

/// Where a [`Wish`] was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfterSource {
    /// `retry-after` or `retry-after-ms`.
    RetryAfter,
    /// The reset time of a rate-limit window: an exact moment, not an estimate.
    Reset,
}

/// The server's `x-should-retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryHint {
    Retry,
    Stop,
}

/// How far a failed call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureStage {
    /// The request never left, or nothing is known.
    Unsent,
    /// A kept-alive connection died under the request before a byte of answer came.
    StaleConnection,
    /// A connection made for this request died before a byte of answer came.
    FreshConnection,
    /// The server answered with a status.
    Status,
    /// A stream began, but no content block of it was complete.
    Stream,
    /// At least one content block was complete.
    Block,
}

impl Failure {
    /// A refusal of this class, of which nothing else is known.
    pub fn of(class: ErrorClass) -> Self {
        Self {
            class,
            retry_after: None,
            retry_hint: None,
            stage: FailureStage::Status,
            mitigations: AvailableMitigations::NONE,
            fast_denied: false,
            body: ErrorBody::None,
            standing: Standing::Untried,
            contradicted: false,
        }
    }

    /// Whether an endpoint that has answered well refuses in words that are not the API's: then
    /// something else on the way may have answered, and the refusal may pass.
    pub(super) fn is_odd_refusal(self) -> bool {
        let is_final = match self.class {
            ErrorClass::InvalidApiKey
            | ErrorClass::AuthError
            | ErrorClass::TokenRevoked
            | ErrorClass::InvalidModel
            | ErrorClass::CreditBalanceLow
            | ErrorClass::PromptTooLong
            | ErrorClass::RequestTooLarge
            | ErrorClass::PdfTooLarge
            | ErrorClass::ImageTooLarge
            | ErrorClass::ToolUseMismatch
            | ErrorClass::InvalidRequest
            | ErrorClass::Unknown => true,
            // These have retries of their own, or none by rule, or are no refusals.
            ErrorClass::RateLimit
            | ErrorClass::ServerOverload
            | ErrorClass::Repeated529
            | ErrorClass::QuotaExhausted
            | ErrorClass::ServerError
            | ErrorClass::BadResponse
            | ErrorClass::Aborted
            | ErrorClass::ApiTimeout
            | ErrorClass::StreamStalled
            | ErrorClass::ConnectionError
            | ErrorClass::SslCertError
            | ErrorClass::Refusal
            | ErrorClass::EmptyResponse => false,
        };
        is_final && (self.standing, self.body) == (Standing::Proven, ErrorBody::Foreign)
    }

    /// The failure of a call that was made over `connection`, without what cannot be: a wish for
    /// no time at all, and a fresh connection that went stale.
    pub(super) fn normalized_for(self, connection: ConnectionChoice) -> Self {
        let wish = self.retry_after.filter(|wish| !wish.wait.is_zero());
        let reach = match (self.stage, connection) {
            (FailureStage::StaleConnection, ConnectionChoice::Fresh) => FailureStage::FreshConnection,
            (reach, ConnectionChoice::Fresh | ConnectionChoice::Pooled) => reach,
        };
        Self { retry_after: wish, stage: reach, ..self }
    }

    /// Whether the way to the service failed, and not the service.
    pub(super) fn is_connection_failure(self) -> bool {
        match self.class {
            ErrorClass::ApiTimeout | ErrorClass::StreamStalled | ErrorClass::BadResponse => true,
            ErrorClass::ConnectionError => {
                !matches!(self.stage, FailureStage::Unsent | FailureStage::StaleConnection)
            }
            ErrorClass::Aborted
            | ErrorClass::SslCertError
            | ErrorClass::RateLimit
            | ErrorClass::ServerOverload
            | ErrorClass::Repeated529
            | ErrorClass::ServerError
            | ErrorClass::PromptTooLong
            | ErrorClass::RequestTooLarge
            | ErrorClass::PdfTooLarge
            | ErrorClass::ImageTooLarge
            | ErrorClass::ToolUseMismatch
            | ErrorClass::InvalidModel
            | ErrorClass::CreditBalanceLow
            | ErrorClass::InvalidApiKey
            | ErrorClass::TokenRevoked
            | ErrorClass::AuthError
            | ErrorClass::InvalidRequest
            | ErrorClass::Refusal
            | ErrorClass::EmptyResponse
            | ErrorClass::QuotaExhausted
            | ErrorClass::Unknown => false,
        }
    }

    /// Whether the conversation did not fit.
    pub(super) fn is_overflow(self) -> bool {
        matches!(self.class, ErrorClass::PromptTooLong | ErrorClass::RequestTooLarge)
    }

    /// Whether this request failed, and not the service: another request may well pass.
    pub(super) fn is_request_failure(self) -> bool {
        match self.class {
            ErrorClass::PromptTooLong
            | ErrorClass::RequestTooLarge
            | ErrorClass::PdfTooLarge
            | ErrorClass::ImageTooLarge
            | ErrorClass::ToolUseMismatch
            | ErrorClass::InvalidRequest
            | ErrorClass::Refusal
            | ErrorClass::Unknown => true,
            ErrorClass::Aborted
            | ErrorClass::ApiTimeout
            | ErrorClass::StreamStalled
            | ErrorClass::ConnectionError
            | ErrorClass::SslCertError
            | ErrorClass::RateLimit
            | ErrorClass::ServerOverload
            | ErrorClass::Repeated529
            | ErrorClass::ServerError
            | ErrorClass::InvalidModel
            | ErrorClass::CreditBalanceLow
            | ErrorClass::InvalidApiKey
            | ErrorClass::TokenRevoked
            | ErrorClass::AuthError
            | ErrorClass::BadResponse
            | ErrorClass::EmptyResponse
            | ErrorClass::QuotaExhausted => false,
        }
    }

    /// Whether streaming itself looks like what failed: it began and broke, however far it came.
    pub(super) fn is_broken_stream(self) -> bool {
        self.is_connection_failure() && self.has_streamed()
    }

    /// Whether a stream had begun.
    pub(super) fn has_streamed(self) -> bool {
        match self.stage {
            FailureStage::Stream | FailureStage::Block => true,
            FailureStage::Unsent | FailureStage::StaleConnection | FailureStage::FreshConnection | FailureStage::Status => {
                false
            }
        }
    }

    /// Whether the next attempt must not reuse a pooled connection. Nothing is known of one that
    /// fell silent, so it counts as dead.
    pub(super) fn suspects_connection(self) -> bool {
        match self.stage {
            FailureStage::StaleConnection | FailureStage::FreshConnection | FailureStage::Stream | FailureStage::Block => true,
            FailureStage::Unsent | FailureStage::Status => self.is_connection_failure(),
        }
    }
}

/// Every way a call can fail (SPEC 5). Adding one breaks the build until
/// [`plan`](super::plan()) answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// We were told to stop.
    Aborted,
    /// No answer within a timer that covers connecting, the first byte or the whole call.
    ApiTimeout,
    /// A stream fell silent, or brought nothing but pings.
    StreamStalled,
    /// DNS, refused, reset, broken pipe, unexpected end.
    ConnectionError,
    /// The server's certificate was not accepted.
    SslCertError,
    /// 429: we asked too often.
    RateLimit,
    /// 529: the service has no room for anyone.
    ServerOverload,
    /// 529 to the end of the ladder.
    Repeated529,
    /// 5xx, 408, 409: the service broke.
    ServerError,
    /// The conversation does not fit the context window.
    PromptTooLong,
    /// 413: the request has too many bytes.
    RequestTooLarge,
    PdfTooLarge,
    ImageTooLarge,
    /// A `tool_use` without its `tool_result`, or the other way round.
    ToolUseMismatch,
    /// The model does not exist for this account.
    InvalidModel,
    /// No credit, or a spend limit was reached.
    CreditBalanceLow,
    InvalidApiKey,
    TokenRevoked,
    /// The credentials are fine but may not do this.
    AuthError,
    /// The request is wrong and will stay wrong.
    InvalidRequest,
    Refusal,
    /// A 200 whose content made no sense.
    BadResponse,
    /// A 200 that ended by itself and said nothing.
    EmptyResponse,
    /// A rate limit that will not reset soon enough to wait for.
    QuotaExhausted,
    Unknown,
}

impl ErrorClass {
    pub const ALL: [Self; 25] = [
        Self::Aborted,
        Self::ApiTimeout,
        Self::StreamStalled,
        Self::ConnectionError,
        Self::SslCertError,
        Self::RateLimit,
        Self::ServerOverload,
        Self::Repeated529,
        Self::ServerError,
        Self::PromptTooLong,
        Self::RequestTooLarge,
        Self::PdfTooLarge,
        Self::ImageTooLarge,
        Self::ToolUseMismatch,
        Self::InvalidModel,
        Self::CreditBalanceLow,
        Self::InvalidApiKey,
        Self::TokenRevoked,
        Self::AuthError,
        Self::InvalidRequest,
        Self::Refusal,
        Self::BadResponse,
        Self::EmptyResponse,
        Self::QuotaExhausted,
        Self::Unknown,
    ];

    /// The name used in results, events and documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::ApiTimeout => "api_timeout",
            Self::StreamStalled => "stream_stalled",
            Self::ConnectionError => "connection_error",
            Self::SslCertError => "ssl_cert_error",
            Self::RateLimit => "rate_limit",
            Self::ServerOverload => "server_overload",
            Self::Repeated529 => "repeated_529",
            Self::ServerError => "server_error",
            Self::PromptTooLong => "prompt_too_long",
            Self::RequestTooLarge => "request_too_large",
            Self::PdfTooLarge => "pdf_too_large",
            Self::ImageTooLarge => "image_too_large",
            Self::ToolUseMismatch => "tool_use_mismatch",
            Self::InvalidModel => "invalid_model",
            Self::CreditBalanceLow => "credit_balance_low",
            Self::InvalidApiKey => "invalid_api_key",
            Self::TokenRevoked => "token_revoked",
            Self::AuthError => "auth_error",
            Self::InvalidRequest => "invalid_request",
            Self::Refusal => "refusal",
            Self::BadResponse => "bad_response",
            Self::EmptyResponse => "empty_response",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
