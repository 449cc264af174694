//! The reasons why a run ended, and the table of their properties.

use std::iter::successors;

use serde::{Deserialize, Serialize};

use super::{ErrorClass, exit_code};

/// The reason why a run ended. The exit code follows from it alone.
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
    /// A hook deferred a tool call: it is decided on when the session is resumed.
    ToolDeferred,
    /// A tool call was denied, and the run ends on denials.
    Denied,
    /// A Stop hook ended the run.
    StopHookPrevented,
    /// A Stop hook kept objecting beyond its limit.
    StopHookBlocked,
    /// The context is full, and nothing may be removed from it.
    BlockingLimit,
    PromptTooLong,
    MaxOutputTokens,
    ImageError,
    /// Any other failure after its recoveries ran out.
    ModelError(ErrorClass),
    EmptyResponse,
    Refusal,
    /// The hard limit of the loop detector was reached.
    Stalled,
    /// Background work was cut after the longest allowed wait.
    BackgroundPending,
    /// The command of `--require` never passed.
    RequirementFailed,
    /// No reply fitted the schema.
    StructuredOutputRetryExhausted,
    /// The work was done, and its result could not be written to its file or to standard output.
    OutputFailed,
    /// A rehearsal did not end as its scenario expects.
    RehearsalFailed,
    /// A panic or a broken rule in outlast itself.
    InternalError,
}

/// The cause of an interruption of the run.
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
    /// The host of the run requested it.
    HostRequest,
    /// Another process took the session over, on another machine or while this one was suspended.
    SessionTakenOver,
}

/// The properties of a stop reason: its row in the table.
#[derive(Clone, Copy, Debug)]
pub struct StopReasonInfo {
    /// The `terminal_reason` of the result.
    pub name: &'static str,
    pub exit_code: u8,
    /// The `subtype` of the result.
    pub subtype: &'static str,
    /// The advice to the user; empty if there is none, or if it depends on the run.
    pub hint: &'static str,
    /// The words before the command that resumes the session.
    pub to_go_on: &'static str,
    /// The advice to the agent that started a sub-agent which ended for this reason.
    pub subagent_advice: &'static str,
    /// True if a second sub-agent may end differently.
    pub subagent_may_retry: bool,
    /// The error class of the result, if the reason implies one.
    pub error_class: Option<ErrorClass>,
    /// True if the result names the last failure of the service.
    pub reports_last_fault: bool,
    /// The error for `StopFailure` hooks: set if the service caused the end of the run.
    pub service_failure: Option<&'static str>,
}

impl StopReason {
    /// Every reason, with every cause.
    pub fn all() -> impl Iterator<Item = Self> {
        successors(Some(Self::Completed), |reason| reason.successor())
    }

    /// The next reason of [`Self::all`]. A new one breaks the build until it has its place.
    fn successor(self) -> Option<Self> {
        Some(match self {
            Self::Completed => Self::MaxTurns,
            Self::MaxTurns => Self::MaxBudgetUsd,
            Self::MaxBudgetUsd => Self::Deadline,
            Self::Deadline => Self::HookStopped,
            Self::HookStopped => Self::ToolDeferred,
            Self::ToolDeferred => Self::Denied,
            Self::Denied => Self::StopHookPrevented,
            Self::StopHookPrevented => Self::StopHookBlocked,
            Self::StopHookBlocked => Self::BlockingLimit,
            Self::BlockingLimit => Self::Stalled,
            Self::Stalled => Self::BackgroundPending,
            Self::BackgroundPending => Self::RequirementFailed,
            Self::RequirementFailed => Self::StructuredOutputRetryExhausted,
            Self::StructuredOutputRetryExhausted => Self::PromptTooLong,
            Self::PromptTooLong => Self::MaxOutputTokens,
            Self::MaxOutputTokens => Self::ImageError,
            Self::ImageError => Self::EmptyResponse,
            Self::EmptyResponse => Self::Refusal,
            Self::Refusal => Self::OutputFailed,
            Self::OutputFailed => Self::RehearsalFailed,
            Self::RehearsalFailed => Self::InternalError,
            Self::InternalError => Self::AbortedStreaming(Interrupt::Sigint),
            Self::AbortedStreaming(by) => {
                by.successor().map_or(Self::AbortedTools(Interrupt::Sigint), Self::AbortedStreaming)
            }
            Self::AbortedTools(by) => {
                by.successor().map_or(Self::ModelError(ErrorClass::ALL[0]), Self::AbortedTools)
            }
            Self::ModelError(class) => Self::ModelError(*ErrorClass::ALL.get(class as usize + 1)?),
        })
    }

    pub const fn info(self) -> StopReasonInfo {
        match self {
            Self::Completed => COMPLETED,
            Self::MaxTurns => MAX_TURNS,
            Self::MaxBudgetUsd => MAX_BUDGET_USD,
            Self::Deadline => DEADLINE,
            Self::AbortedStreaming(by) => {
                StopReasonInfo { exit_code: by.exit_code(), ..ABORTED_STREAMING }
            }
            Self::AbortedTools(by) => StopReasonInfo { exit_code: by.exit_code(), ..ABORTED_TOOLS },
            Self::HookStopped => HOOK_STOPPED,
            Self::ToolDeferred => TOOL_DEFERRED,
            Self::Denied => DENIED,
            Self::StopHookPrevented => STOP_HOOK_PREVENTED,
            Self::StopHookBlocked => STOP_HOOK_BLOCKED,
            Self::BlockingLimit => BLOCKING_LIMIT,
            Self::PromptTooLong => PROMPT_TOO_LONG,
            Self::MaxOutputTokens => MAX_OUTPUT_TOKENS,
            Self::ImageError => IMAGE_ERROR,
            Self::ModelError(class) => {
                let row = class.info();
                StopReasonInfo {
                    exit_code: row.exit_code,
                    subagent_advice: row.outlook.advice(),
                    subagent_may_retry: row.outlook.may_succeed_on_retry(),
                    error_class: Some(class),
                    service_failure: Some(row.name),
                    ..MODEL_ERROR
                }
            }
            Self::EmptyResponse => EMPTY_RESPONSE,
            Self::Refusal => REFUSAL,
            Self::Stalled => STALLED,
            Self::BackgroundPending => BACKGROUND_PENDING,
            Self::RequirementFailed => REQUIREMENT_FAILED,
            Self::StructuredOutputRetryExhausted => STRUCTURED_OUTPUT_RETRY_EXHAUSTED,
            Self::OutputFailed => OUTPUT_FAILED,
            Self::RehearsalFailed => REHEARSAL_FAILED,
            Self::InternalError => INTERNAL_ERROR,
        }
    }

    /// The `terminal_reason` of the result.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The stop reason for a failure that cannot be recovered from.
    pub fn from_class(class: ErrorClass) -> Self {
        let own = [
            (ErrorClass::PromptTooLong, Self::PromptTooLong),
            (ErrorClass::RequestTooLarge, Self::PromptTooLong),
            (ErrorClass::PdfTooLarge, Self::ImageError),
            (ErrorClass::ImageTooLarge, Self::ImageError),
            (ErrorClass::EmptyResponse, Self::EmptyResponse),
            (ErrorClass::Refusal, Self::Refusal),
        ];
        let known = own.into_iter().find(|(of, _)| *of == class);
        known.map_or(Self::ModelError(class), |(_, reason)| reason)
    }
}

impl Interrupt {
    /// The exit code of an interrupted run, the description of the cause, and the next cause of
    /// [`StopReason::all`]. A closed standard output is not a signal: the run failed to deliver its
    /// result.
    const fn row(self) -> (u8, &'static str, Option<Self>) {
        match self {
            Self::Sigint => (exit_code::SIGINT, "interrupted by SIGINT", Some(Self::Sigterm)),
            Self::Sigterm => (exit_code::SIGTERM, "ended by SIGTERM", Some(Self::Sighup)),
            Self::Sighup => (exit_code::SIGHUP, "ended by SIGHUP", Some(Self::Sigquit)),
            Self::Sigquit => (exit_code::SIGQUIT, "ended by SIGQUIT", Some(Self::Sigusr1)),
            Self::Sigusr1 => (exit_code::SIGUSR1, "ended by SIGUSR1", Some(Self::Sigusr2)),
            Self::Sigusr2 => (exit_code::SIGUSR2, "ended by SIGUSR2", Some(Self::Sigalrm)),
            Self::Sigalrm => (exit_code::SIGALRM, "ended by SIGALRM", Some(Self::Sigxcpu)),
            Self::Sigxcpu => (exit_code::SIGXCPU, "ended by SIGXCPU", Some(Self::StdoutClosed)),
            Self::StdoutClosed => {
                (exit_code::FAILED, "standard output is no longer read", Some(Self::HostRequest))
            }
            Self::HostRequest => {
                (exit_code::FAILED, "interrupted by the host", Some(Self::SessionTakenOver))
            }
            Self::SessionTakenOver => {
                (exit_code::TEMPORARY, "another process took the session over", None)
            }
        }
    }

    fn successor(self) -> Option<Self> {
        self.row().2
    }

    /// The exit code of an interrupted run.
    pub const fn exit_code(self) -> u8 {
        self.row().0
    }

    pub const fn cause(self) -> &'static str {
        self.row().1
    }
}

const SUCCEEDED: &str = "success";
const FAILED_WORKING: &str = "error_during_execution";

/// The values of a row that the row itself does not set.
const UNNAMED: StopReasonInfo = StopReasonInfo {
    name: "",
    exit_code: exit_code::FAILED,
    subtype: FAILED_WORKING,
    hint: "",
    to_go_on: "to go on where it ended",
    subagent_advice: "",
    subagent_may_retry: false,
    error_class: None,
    reports_last_fault: false,
    service_failure: None,
};

const COMPLETED: StopReasonInfo = StopReasonInfo {
    name: "completed",
    exit_code: exit_code::SUCCESS,
    subtype: SUCCEEDED,
    subagent_advice: "It reported that the task is done.",
    ..UNNAMED
};

const MAX_TURNS: StopReasonInfo = StopReasonInfo {
    name: "max_turns",
    exit_code: exit_code::MAX_TURNS,
    subtype: "error_max_turns",
    hint: "Raise --max-turns.",
    to_go_on: "to go on, with a higher --max-turns added",
    subagent_advice: "It reached its limit of replies: give the rest to another agent as a smaller \
                      task.",
    subagent_may_retry: true,
    ..UNNAMED
};

const MAX_BUDGET_USD: StopReasonInfo = StopReasonInfo {
    name: "max_budget_usd",
    exit_code: exit_code::MAX_BUDGET,
    subtype: "error_max_budget_usd",
    hint: "Raise --max-budget-usd.",
    to_go_on: "to go on, with a higher --max-budget-usd added",
    subagent_advice: "The budget of the whole run is used up, for other agents as well: finish \
                      with what there is.",
    ..UNNAMED
};

const DEADLINE: StopReasonInfo = StopReasonInfo {
    name: "deadline",
    exit_code: exit_code::DEADLINE,
    hint: "Raise --max-duration.",
    to_go_on: "to go on, with a higher --max-duration added",
    subagent_advice: "The time limit of the whole run is reached: finish with what there is.",
    reports_last_fault: true,
    ..UNNAMED
};

const ABORTED_STREAMING: StopReasonInfo = StopReasonInfo {
    name: "aborted_streaming",
    subagent_advice: "It was stopped from outside, and did not fail by itself.",
    error_class: Some(ErrorClass::Aborted),
    ..UNNAMED
};

const ABORTED_TOOLS: StopReasonInfo = StopReasonInfo {
    name: "aborted_tools",
    subagent_advice: "It was stopped from outside, and did not fail by itself.",
    error_class: Some(ErrorClass::Aborted),
    ..UNNAMED
};

const HOOK_STOPPED: StopReasonInfo = StopReasonInfo {
    name: "hook_stopped",
    exit_code: exit_code::HOOK,
    subagent_advice: "A hook of the user stopped it, and will do so again: try another approach, \
                      or report the message of the hook.",
    ..UNNAMED
};

const TOOL_DEFERRED: StopReasonInfo = StopReasonInfo {
    name: "tool_deferred",
    exit_code: exit_code::HOOK,
    hint: "Resume the session once the call can be decided on.",
    subagent_advice: "A hook of the user deferred the decision on one of its calls: try another \
                      approach, or report the message of the hook.",
    ..UNNAMED
};

const DENIED: StopReasonInfo = StopReasonInfo {
    name: "denied",
    exit_code: exit_code::NOT_ACCEPTED,
    hint: "Allow it by a rule, or run with --on-denied continue.",
    subagent_advice: "One of its tool calls was denied, and a denied call ends this run: do not \
                      try to work around that.",
    ..UNNAMED
};

const STOP_HOOK_PREVENTED: StopReasonInfo = StopReasonInfo {
    name: "stop_hook_prevented",
    exit_code: exit_code::HOOK,
    subagent_advice: "A hook of the user stopped it, and will do so again: try another approach, \
                      or report the message of the hook.",
    ..UNNAMED
};

const STOP_HOOK_BLOCKED: StopReasonInfo = StopReasonInfo {
    name: "stop_hook_blocked",
    exit_code: exit_code::NOT_ACCEPTED,
    hint: "Do what it asks for, or let the hook pass when stop_hook_active is true.",
    subagent_advice: "A hook of the user rejected its result repeatedly: what the hook requires is \
                      still to be done.",
    subagent_may_retry: true,
    ..UNNAMED
};

const BLOCKING_LIMIT: StopReasonInfo = StopReasonInfo {
    name: "blocking_limit",
    exit_code: exit_code::CONTEXT,
    hint: "Allow compaction, or split the task.",
    subagent_advice: "Its conversation became too long for the model: split the task, and have \
                      large files read in parts.",
    subagent_may_retry: true,
    ..UNNAMED
};

const PROMPT_TOO_LONG: StopReasonInfo = StopReasonInfo {
    name: "prompt_too_long",
    exit_code: exit_code::CONTEXT,
    subagent_advice: "Its conversation became too long for the model: split the task, and have \
                      large files read in parts.",
    subagent_may_retry: true,
    reports_last_fault: true,
    service_failure: Some("prompt_too_long"),
    ..UNNAMED
};

const MAX_OUTPUT_TOKENS: StopReasonInfo = StopReasonInfo {
    name: "max_output_tokens",
    exit_code: exit_code::CONTEXT,
    hint: "Raise --max-output-tokens, or ask for smaller steps.",
    subagent_advice: "Its reply was too long: ask for less, or have it written to a file in parts.",
    subagent_may_retry: true,
    service_failure: Some("max_output_tokens"),
    ..UNNAMED
};

const IMAGE_ERROR: StopReasonInfo = StopReasonInfo {
    name: "image_error",
    exit_code: exit_code::CONTEXT,
    subagent_advice: "An image or document that it read is too large: use a smaller one, or \
                      extract its text.",
    subagent_may_retry: true,
    reports_last_fault: true,
    service_failure: Some("image_error"),
    ..UNNAMED
};

const MODEL_ERROR: StopReasonInfo = StopReasonInfo {
    name: "model_error",
    subagent_advice: "",
    reports_last_fault: true,
    ..UNNAMED
};

const EMPTY_RESPONSE: StopReasonInfo = StopReasonInfo {
    name: "empty_response",
    exit_code: exit_code::NO_PROGRESS,
    subagent_advice: "The model returned empty replies: rephrase the task, or do it yourself.",
    subagent_may_retry: true,
    error_class: Some(ErrorClass::EmptyResponse),
    ..UNNAMED
};

const REFUSAL: StopReasonInfo = StopReasonInfo {
    name: "refusal",
    subagent_advice: "The model refused, and will refuse the same task again. Its reason follows, \
                      if it gave one.",
    error_class: Some(ErrorClass::Refusal),
    ..UNNAMED
};

const STALLED: StopReasonInfo = StopReasonInfo {
    name: "stalled",
    exit_code: exit_code::NO_PROGRESS,
    hint: "Say in the prompt what to do differently.",
    subagent_advice: "It repeated the same steps without progress: say what to do differently, or \
                      do it yourself.",
    subagent_may_retry: true,
    ..UNNAMED
};

const BACKGROUND_PENDING: StopReasonInfo = StopReasonInfo {
    name: "background_pending",
    exit_code: exit_code::NOT_ACCEPTED,
    subagent_advice: "It was done, but its background tasks were not, and were stopped.",
    subagent_may_retry: true,
    ..UNNAMED
};

const REQUIREMENT_FAILED: StopReasonInfo = StopReasonInfo {
    name: "requirement_failed",
    to_go_on: "to go on, with a prompt added (without one, only the check is repeated)",
    exit_code: exit_code::NOT_ACCEPTED,
    subagent_advice: "Its result is not what was asked for.",
    subagent_may_retry: true,
    ..UNNAMED
};

const STRUCTURED_OUTPUT_RETRY_EXHAUSTED: StopReasonInfo = StopReasonInfo {
    name: "structured_output_retry_exhausted",
    exit_code: exit_code::NOT_ACCEPTED,
    subtype: "error_max_structured_output_retries",
    subagent_advice: "Its result is not what was asked for.",
    subagent_may_retry: true,
    ..UNNAMED
};

const OUTPUT_FAILED: StopReasonInfo = StopReasonInfo {
    name: "output_failed",
    hint: "The model's answer is in partial_result and in the session. Make room there, or name \
           another file.",
    subagent_advice: "Its result could not be written.",
    subagent_may_retry: true,
    ..UNNAMED
};

const REHEARSAL_FAILED: StopReasonInfo = StopReasonInfo {
    name: "rehearsal_failed",
    subagent_advice: "A rehearsal did not end as expected.",
    subagent_may_retry: false,
    ..UNNAMED
};

const INTERNAL_ERROR: StopReasonInfo = StopReasonInfo {
    name: "internal_error",
    hint: "Please report this with the journal of the session.",
    subagent_advice: "An internal error of outlast ended it, not the task: a second attempt may \
                      succeed.",
    subagent_may_retry: true,
    ..UNNAMED
};
