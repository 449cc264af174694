//! The reasons why a run ended, and the table of their properties.

use serde::{Deserialize, Serialize};

use super::{ErrorClass, exit_code};

/// The properties of a stop reason: its row in the table.
#[derive(Clone, Copy, Debug)]
pub struct StopReasonInfo {
    /// The `terminal_reason` of the result.
    pub name: &'static str,
    pub exit_code: u8,
    /// The cause, if the reason has one; may be empty.
    pub cause: &'static str,
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
    /// True if calls had no usable reply, or the model did not finish: an answer from before that
    /// work may stand.
    pub answer_may_stand: bool,
    /// The error for `StopFailure` hooks: set if the service caused the end of the run.
    pub service_failure: Option<&'static str>,
}

/// The values of the columns that a row leaves out.
const DEFAULTS: StopReasonInfo = StopReasonInfo {
    name: "",
    exit_code: exit_code::FAILED,
    cause: "",
    subtype: "error_during_execution",
    hint: "",
    to_go_on: "to go on where it ended",
    subagent_advice: "",
    subagent_may_retry: false,
    error_class: None,
    reports_last_fault: false,
    answer_may_stand: false,
    service_failure: None,
};

/// Defines the stop reasons from one row each: the variant, its name, and the columns that differ
/// from the defaults.
macro_rules! stop_reasons {
    ($($(#[$doc:meta])* $reason:ident $(($by:ident: $cause:ty))? => $name:literal {
        $($column:ident: $value:expr,)*
    })*) => {
        /// The reason why a run ended. The exit code follows from it alone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum StopReason {
            $($(#[$doc])* $reason $(($cause))?,)*
        }

        impl StopReason {
            /// Every reason, with every cause.
            pub fn all() -> impl Iterator<Item = Self> {
                let mut all = Vec::new();
                $(all.extend(stop_reasons!(@each $reason $($cause)?));)*
                all.into_iter()
            }

            pub const fn info(self) -> StopReasonInfo {
                match self {
                    $(Self::$reason $(($by))? => {
                        StopReasonInfo { name: $name, $($column: $value,)* ..DEFAULTS }
                    })*
                }
            }
        }
    };
    (@each $reason:ident) => { [Self::$reason] };
    (@each $reason:ident $cause:ty) => { <$cause>::ALL.map(Self::$reason) };
}

stop_reasons! {
    Completed => "completed" {
        exit_code: exit_code::SUCCESS,
        subtype: "success",
        subagent_advice: "It reported that the task is done.",
    }
    MaxTurns => "max_turns" {
        exit_code: exit_code::MAX_TURNS,
        subtype: "error_max_turns",
        hint: "Raise --max-turns.",
        to_go_on: "to go on, with a higher --max-turns added",
        subagent_advice: "It reached its limit of replies: give the rest to another agent as a \
                          smaller task.",
        subagent_may_retry: true,
        answer_may_stand: true,
    }
    MaxBudgetUsd => "max_budget_usd" {
        exit_code: exit_code::MAX_BUDGET,
        subtype: "error_max_budget_usd",
        hint: "Raise --max-budget-usd.",
        to_go_on: "to go on, with a higher --max-budget-usd added",
        subagent_advice: "The budget of the whole run is used up, for other agents as well: finish \
                          with what there is.",
        answer_may_stand: true,
    }
    Deadline => "deadline" {
        exit_code: exit_code::DEADLINE,
        hint: "Raise --max-duration.",
        to_go_on: "to go on, with a higher --max-duration added",
        subagent_advice: "The time limit of the whole run is reached: finish with what there is.",
        reports_last_fault: true,
        answer_may_stand: true,
    }
    HookStopped => "hook_stopped" {
        exit_code: exit_code::HOOK,
        subagent_advice: "A hook of the user stopped it, and will do so again: try another \
                          approach, or report the message of the hook.",
    }
    /// A hook deferred a tool call: it is decided on when the session is resumed.
    ToolDeferred => "tool_deferred" {
        exit_code: exit_code::HOOK,
        hint: "Resume the session once the call can be decided on.",
        subagent_advice: "A hook of the user deferred the decision on one of its calls: try \
                          another approach, or report the message of the hook.",
    }
    /// A tool call was denied, and the run ends on denials.
    Denied => "denied" {
        exit_code: exit_code::NOT_ACCEPTED,
        hint: "Allow it by a rule, or run with --on-denied continue.",
        subagent_advice: "One of its tool calls was denied, and a denied call ends this run: do \
                          not try to work around that.",
    }
    /// A Stop hook ended the run.
    StopHookPrevented => "stop_hook_prevented" {
        exit_code: exit_code::HOOK,
        subagent_advice: "A hook of the user stopped it, and will do so again: try another \
                          approach, or report the message of the hook.",
    }
    /// A Stop hook kept objecting beyond its limit.
    StopHookBlocked => "stop_hook_blocked" {
        exit_code: exit_code::NOT_ACCEPTED,
        hint: "Do what it asks for, let the hook pass when stop_hook_active is true, or allow more \
               objections by CLAUDE_CODE_STOP_HOOK_BLOCK_CAP.",
        subagent_advice: "A hook of the user rejected its result repeatedly: what the hook \
                          requires is still to be done.",
        subagent_may_retry: true,
    }
    /// The context is full, and nothing may be removed from it.
    BlockingLimit => "blocking_limit" {
        exit_code: exit_code::CONTEXT,
        hint: "Allow compaction, or split the task.",
        subagent_advice: "Its conversation became too long for the model: split the task, and have \
                          large files read in parts.",
        subagent_may_retry: true,
        answer_may_stand: true,
    }
    /// The hard limit of the loop detector was reached.
    Stalled => "stalled" {
        exit_code: exit_code::NO_PROGRESS,
        hint: "Say in the prompt what to do differently.",
        subagent_advice: "It repeated the same steps without progress: say what to do differently, \
                          or do it yourself.",
        subagent_may_retry: true,
        answer_may_stand: true,
    }
    /// Background work was cut after the longest allowed wait.
    BackgroundPending => "background_pending" {
        exit_code: exit_code::NOT_ACCEPTED,
        subagent_advice: "It was done, but its background tasks were not, and were stopped.",
        subagent_may_retry: true,
    }
    /// The command of `--require` never passed.
    RequirementFailed => "requirement_failed" {
        to_go_on: "to go on, with a prompt added (without one, only the check is repeated)",
        exit_code: exit_code::NOT_ACCEPTED,
        subagent_advice: "Its result is not what was asked for.",
        subagent_may_retry: true,
    }
    /// No reply fitted the schema.
    StructuredOutputRetryExhausted => "structured_output_retry_exhausted" {
        exit_code: exit_code::NOT_ACCEPTED,
        subtype: "error_max_structured_output_retries",
        subagent_advice: "Its result is not what was asked for.",
        subagent_may_retry: true,
        answer_may_stand: true,
    }
    PromptTooLong => "prompt_too_long" {
        exit_code: exit_code::CONTEXT,
        subagent_advice: "Its conversation became too long for the model: split the task, and have \
                          large files read in parts.",
        subagent_may_retry: true,
        reports_last_fault: true,
        service_failure: Some("prompt_too_long"),
        answer_may_stand: true,
    }
    MaxOutputTokens => "max_output_tokens" {
        exit_code: exit_code::CONTEXT,
        hint: "Raise --max-output-tokens, or ask for smaller steps.",
        subagent_advice: "Its reply was too long: ask for less, or have it written to a file in \
                          parts.",
        subagent_may_retry: true,
        service_failure: Some("max_output_tokens"),
        answer_may_stand: true,
    }
    ImageError => "image_error" {
        exit_code: exit_code::CONTEXT,
        subagent_advice: "An image or document that it read is too large: use a smaller one, or \
                          extract its text.",
        subagent_may_retry: true,
        reports_last_fault: true,
        service_failure: Some("image_error"),
        answer_may_stand: true,
    }
    EmptyResponse => "empty_response" {
        exit_code: exit_code::NO_PROGRESS,
        subagent_advice: "The model returned empty replies: rephrase the task, or do it yourself.",
        subagent_may_retry: true,
        error_class: Some(ErrorClass::EmptyResponse),
        answer_may_stand: true,
    }
    Refusal => "refusal" {
        subagent_advice: "The model refused, and will refuse the same task again. Its reason \
                          follows, if it gave one.",
        error_class: Some(ErrorClass::Refusal),
        answer_may_stand: true,
    }
    /// The work was done, and its result could not be written to its file or to standard output.
    OutputFailed => "output_failed" {
        hint: "The model's answer is in partial_result and in the session. Make room there, or \
               name another file.",
        subagent_advice: "Its result could not be written.",
        subagent_may_retry: true,
    }
    /// A rehearsal did not end as its scenario expects.
    RehearsalFailed => "rehearsal_failed" {
        subagent_advice: "A rehearsal did not end as expected.",
    }
    /// A panic or a broken rule in outlast itself.
    InternalError => "internal_error" {
        hint: "Please report this with the journal of the session.",
        subagent_advice: "An internal error of outlast ended it, not the task: a second attempt \
                          may succeed.",
        subagent_may_retry: true,
    }
    AbortedStreaming(by: Interrupt) => "aborted_streaming" {
        exit_code: by.exit_code(),
        cause: by.cause(),
        subagent_advice: "It was stopped from outside, and did not fail by itself.",
        error_class: Some(ErrorClass::Aborted),
    }
    AbortedTools(by: Interrupt) => "aborted_tools" {
        exit_code: by.exit_code(),
        cause: by.cause(),
        subagent_advice: "It was stopped from outside, and did not fail by itself.",
        error_class: Some(ErrorClass::Aborted),
    }
    /// Any other failure after its recoveries ran out.
    ModelError(class: ErrorClass) => "model_error" {
        exit_code: class.info().exit_code,
        cause: class.name(),
        subagent_advice: class.info().outlook.advice(),
        subagent_may_retry: class.info().outlook.may_succeed_on_retry(),
        error_class: Some(class),
        reports_last_fault: true,
        service_failure: Some(class.info().category),
        answer_may_stand: true,
    }
}

impl StopReason {
    /// The `terminal_reason` of the result.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The cause of the interruption, if the run was interrupted.
    pub const fn interrupt(self) -> Option<Interrupt> {
        if let Self::AbortedStreaming(by) | Self::AbortedTools(by) = self { Some(by) } else { None }
    }

    /// True if the conversation did not fit the context window.
    pub const fn is_context_full(self) -> bool {
        matches!(self, Self::BlockingLimit | Self::PromptTooLong)
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

/// Defines the causes from one row each: the variant, the exit code of the run, and the words.
macro_rules! interrupts {
    ($($(#[$doc:meta])* $interrupt:ident => $exit_code:ident, $cause:literal;)*) => {
        /// The cause of an interruption of the run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Interrupt {
            $($(#[$doc])* $interrupt,)*
        }

        impl Interrupt {
            const ALL: [Self; 11] = [$(Self::$interrupt),*];

            /// The exit code of an interrupted run.
            pub const fn exit_code(self) -> u8 {
                match self {
                    $(Self::$interrupt => exit_code::$exit_code,)*
                }
            }

            pub const fn cause(self) -> &'static str {
                match self {
                    $(Self::$interrupt => $cause,)*
                }
            }
        }
    };
}

interrupts! {
    Sigint => SIGINT, "interrupted by SIGINT";
    Sigterm => SIGTERM, "ended by SIGTERM";
    Sighup => SIGHUP, "ended by SIGHUP";
    Sigquit => SIGQUIT, "ended by SIGQUIT";
    Sigusr1 => SIGUSR1, "ended by SIGUSR1";
    Sigusr2 => SIGUSR2, "ended by SIGUSR2";
    Sigalrm => SIGALRM, "ended by SIGALRM";
    Sigxcpu => SIGXCPU, "ended by SIGXCPU";
    /// The reader of standard output is gone. That is not a signal: the run failed to deliver its
    /// result.
    StdoutClosed => FAILED, "standard output is no longer read";
    /// The host of the run requested it.
    HostRequest => FAILED, "interrupted by the host";
    /// Another process took the session over, on another machine or while this one was suspended.
    SessionTakenOver => TEMPORARY, "another process took the session over";
}
