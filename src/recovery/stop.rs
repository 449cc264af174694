//! Why a run ended.

use serde::{Deserialize, Serialize};

use super::ErrorClass;

/// The one reason a run ended. The exit code follows from it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    Completed,
    MaxTurns,
    MaxBudgetUsd,
    Deadline,
    AbortedStreaming(Interrupt),
    AbortedTools(Interrupt),
    HookStopped,
    /// A tool call was denied, and the run ends on denials.
    Denied,
    /// A Stop hook ended the run.
    StopHookPrevented,
    /// A Stop hook kept objecting past its bound.
    StopHookBlocked,
    /// The context is full and nothing may be taken out of it.
    BlockingLimit,
    PromptTooLong,
    MaxOutputTokens,
    ImageError,
    /// Any other failure after its recoveries ran out.
    ModelError(ErrorClass),
    EmptyResponse,
    Refusal,
    /// The loop detector's hard limit.
    Stalled,
    /// Background work was cut after the longest allowed wait.
    BackgroundPending,
    /// The command of `--require` never passed.
    RequirementFailed,
    /// No reply fitted the schema.
    StructuredOutputRetryExhausted,
    /// The work was done, and the file for its result could not be written.
    OutputFailed,
    /// A panic or a broken rule in outlast itself.
    InternalError,
}

/// What interrupted the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupt {
    Sigint,
    Sigterm,
    Sighup,
    Sigquit,
    Sigusr1,
    Sigusr2,
    Sigalrm,
    Sigxcpu,
    /// The reader of standard output is gone.
    StdoutClosed,
}

impl StopReason {
    /// The `terminal_reason` of the result.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxTurns => "max_turns",
            Self::MaxBudgetUsd => "max_budget_usd",
            Self::Deadline => "deadline",
            Self::AbortedStreaming(_) => "aborted_streaming",
            Self::AbortedTools(_) => "aborted_tools",
            Self::HookStopped => "hook_stopped",
            Self::Denied => "denied",
            Self::StopHookPrevented => "stop_hook_prevented",
            Self::StopHookBlocked => "stop_hook_blocked",
            Self::BlockingLimit => "blocking_limit",
            Self::PromptTooLong => "prompt_too_long",
            Self::MaxOutputTokens => "max_output_tokens",
            Self::ImageError => "image_error",
            Self::ModelError(_) => "model_error",
            Self::EmptyResponse => "empty_response",
            Self::Refusal => "refusal",
            Self::Stalled => "stalled",
            Self::BackgroundPending => "background_pending",
            Self::RequirementFailed => "requirement_failed",
            Self::StructuredOutputRetryExhausted => "structured_output_retry_exhausted",
            Self::OutputFailed => "output_failed",
            Self::InternalError => "internal_error",
        }
    }

    /// The stop reason for a failure that cannot be recovered from.
    pub fn from_class(class: ErrorClass) -> Self {
        match class {
            ErrorClass::PromptTooLong | ErrorClass::RequestTooLarge => Self::PromptTooLong,
            ErrorClass::PdfTooLarge | ErrorClass::ImageTooLarge => Self::ImageError,
            ErrorClass::EmptyResponse => Self::EmptyResponse,
            ErrorClass::Refusal => Self::Refusal,
            ErrorClass::Aborted
            | ErrorClass::ApiTimeout
            | ErrorClass::StreamStalled
            | ErrorClass::ConnectionError
            | ErrorClass::SslCertError
            | ErrorClass::RateLimit
            | ErrorClass::ServerOverload
            | ErrorClass::Repeated529
            | ErrorClass::ServerError
            | ErrorClass::ToolUseMismatch
            | ErrorClass::InvalidModel
            | ErrorClass::CreditBalanceLow
            | ErrorClass::InvalidApiKey
            | ErrorClass::TokenRevoked
            | ErrorClass::AuthError
            | ErrorClass::InvalidRequest
            | ErrorClass::BadResponse
            | ErrorClass::QuotaExhausted
            | ErrorClass::Unknown => Self::ModelError(class),
        }
    }
}
