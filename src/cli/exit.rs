//! Exit codes: the one table, which the man page prints.

use crate::recovery::{ErrorClass, Interrupt, StopReason};

pub(super) const FAILED: u8 = 1;
pub(super) const USAGE: u8 = 2;
const MAX_TURNS: u8 = 3;
const MAX_BUDGET: u8 = 4;
pub(super) const DEADLINE: u8 = 5;
const HOOK: u8 = 6;
const CONTEXT: u8 = 7;
const NO_PROGRESS: u8 = 8;
const NOT_ACCEPTED: u8 = 9;
pub(super) const TEMPORARY: u8 = 75;
pub(super) const CREDENTIALS: u8 = 77;
const SIGHUP: u8 = 129;
const SIGINT: u8 = 130;
const SIGQUIT: u8 = 131;
const SIGUSR1: u8 = 138;
const SIGUSR2: u8 = 140;
const SIGALRM: u8 = 142;
const SIGTERM: u8 = 143;
const SIGXCPU: u8 = 152;

/// Every exit code and what it means, as the manual has it.
pub const MEANINGS: [(u8, &str); 20] = [
    (0, "The task was completed."),
    (
        FAILED,
        "The run failed: the service refused the request for good, the model declined, \
              standard output was not read, the result file could not be written, or outlast broke.",
    ),
    (USAGE, "A mistake in the command line, the settings or the input. Nothing was sent."),
    (MAX_TURNS, "The turn limit was reached."),
    (MAX_BUDGET, "The money was spent, or the next request could not be paid for."),
    (DEADLINE, "Time ran out, or a wait could only have ended after the deadline."),
    (HOOK, "A hook stopped the run."),
    (CONTEXT, "The conversation, a reply or a file is too large."),
    (NO_PROGRESS, "The model kept answering nothing, or repeated itself without end."),
    (
        NOT_ACCEPTED,
        "The work was not accepted: a required command did not pass, a Stop hook kept objecting, \
         no answer had the shape that was asked for, background commands did not end in time, or \
         a tool call was denied under --on-denied fail.",
    ),
    (
        TEMPORARY,
        "Temporary: overload, rate limit, quota, network. Trying later makes sense; the \
                 result says when, and how to go on.",
    ),
    (CREDENTIALS, "The credentials are missing or were rejected."),
    (SIGHUP, "Ended by SIGHUP."),
    (SIGINT, "Ended by SIGINT."),
    (SIGQUIT, "Ended by SIGQUIT."),
    (SIGUSR1, "Ended by SIGUSR1."),
    (SIGUSR2, "Ended by SIGUSR2."),
    (SIGALRM, "Ended by SIGALRM."),
    (SIGTERM, "Ended by SIGTERM."),
    (SIGXCPU, "Ended by SIGXCPU: the processor time of ulimit -t was used up."),
];

/// The outcome of a run as an exit status. A failure with exit code 0 cannot be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    Success,
    Failure(RunFailure),
}

/// How a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// Never 0: only this module makes one.
    code: u8,
    subtype: &'static str,
}

impl ExitStatus {
    pub(super) const fn failure(code: u8) -> Self {
        Self::Failure(RunFailure { code, subtype: "error_during_execution" })
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure(failed) => failed.code,
        }
    }

    /// The `subtype` of the result.
    pub fn subtype(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure(failed) => failed.subtype,
        }
    }

    pub fn is_error(self) -> bool {
        self != Self::Success
    }

    /// Returns whether the same run may succeed later.
    pub fn is_temporary(self) -> bool {
        self.exit_code() == TEMPORARY
    }
}

/// Maps a stop reason to the exit status.
pub fn exit_status(reason: StopReason) -> ExitStatus {
    match reason {
        StopReason::Completed => ExitStatus::Success,
        StopReason::MaxTurns => {
            ExitStatus::Failure(RunFailure { code: MAX_TURNS, subtype: "error_max_turns" })
        }
        StopReason::MaxBudgetUsd => {
            ExitStatus::Failure(RunFailure { code: MAX_BUDGET, subtype: "error_max_budget_usd" })
        }
        StopReason::Deadline => ExitStatus::failure(DEADLINE),
        StopReason::AbortedStreaming(interrupt) | StopReason::AbortedTools(interrupt) => {
            ExitStatus::failure(interrupted(interrupt))
        }
        StopReason::HookStopped | StopReason::StopHookPrevented => ExitStatus::failure(HOOK),
        StopReason::BlockingLimit
        | StopReason::PromptTooLong
        | StopReason::MaxOutputTokens
        | StopReason::ImageError => ExitStatus::failure(CONTEXT),
        StopReason::ModelError(class) => ExitStatus::failure(failure_code(class)),
        StopReason::EmptyResponse | StopReason::Stalled => ExitStatus::failure(NO_PROGRESS),
        StopReason::RequirementFailed
        | StopReason::StopHookBlocked
        | StopReason::Denied
        | StopReason::BackgroundPending => ExitStatus::failure(NOT_ACCEPTED),
        StopReason::StructuredOutputRetryExhausted => ExitStatus::Failure(RunFailure {
            code: NOT_ACCEPTED,
            subtype: "error_max_structured_output_retries",
        }),
        StopReason::Refusal | StopReason::OutputFailed | StopReason::InternalError => {
            ExitStatus::failure(FAILED)
        }
    }
}

/// Returns the exit code for an error class.
fn failure_code(class: ErrorClass) -> u8 {
    match class {
        ErrorClass::ApiTimeout
        | ErrorClass::StreamStalled
        | ErrorClass::ConnectionError
        | ErrorClass::RateLimit
        | ErrorClass::ServerOverload
        | ErrorClass::Repeated529
        | ErrorClass::ServerError
        | ErrorClass::QuotaExhausted => TEMPORARY,
        ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked | ErrorClass::AuthError => CREDENTIALS,
        ErrorClass::PromptTooLong
        | ErrorClass::RequestTooLarge
        | ErrorClass::PdfTooLarge
        | ErrorClass::ImageTooLarge => CONTEXT,
        ErrorClass::EmptyResponse => NO_PROGRESS,
        ErrorClass::Aborted
        | ErrorClass::SslCertError
        | ErrorClass::ToolUseMismatch
        | ErrorClass::InvalidModel
        | ErrorClass::CreditBalanceLow
        | ErrorClass::InvalidRequest
        | ErrorClass::Refusal
        | ErrorClass::BadResponse
        | ErrorClass::Unknown => FAILED,
    }
}

/// Returns the exit code for an interrupt. An unread standard output is not a signal but a failure:
/// the result could not be delivered.
pub(super) fn interrupted(interrupt: Interrupt) -> u8 {
    match interrupt {
        Interrupt::Sigint => SIGINT,
        Interrupt::Sigterm => SIGTERM,
        Interrupt::Sighup => SIGHUP,
        Interrupt::Sigquit => SIGQUIT,
        Interrupt::Sigusr1 => SIGUSR1,
        Interrupt::Sigusr2 => SIGUSR2,
        Interrupt::Sigalrm => SIGALRM,
        Interrupt::Sigxcpu => SIGXCPU,
        Interrupt::StdoutClosed => FAILED,
    }
}
