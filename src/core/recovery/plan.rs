//! Setbacks, and the recovery plans for them.

use serde::{Deserialize, Serialize};

use super::{AvailableMitigations, Budget, CompactionTrigger, Failure, StopReason};

/// A condition that keeps a run from simply continuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecoveryCause {
    /// A call failed.
    Failed(Failure),
    /// The reply hit the output limit.
    CutShort,
    /// The reply had no content.
    Empty,
    /// The reply may be incomplete.
    Incomplete,
    /// The service paused a long turn and expects a request to resume it.
    Paused,
    /// The reply has a tool call as text.
    CallInText,
    /// The model stopped after tool work with something left open.
    LeftOpen,
    /// The model stopped below the token budget.
    Idle,
    /// The conversation is about to fill the context window.
    Crowded,
    /// The next request does not fit the window, as far as its size is known.
    Full(AvailableMitigations),
    /// A summary was requested, and the reply was not one.
    NoSummary(CompactionTrigger),
    /// The answer was text, or did not fit the required schema.
    Unstructured,
    /// The command of `--require` did not pass.
    Unmet,
    /// A Stop hook objects.
    Objected,
    /// The model is done and does not know the status of background work.
    Unreported,
    /// The service has no capacity, and a probe is due.
    ProbeDue,
    /// A probe was answered during the back-off.
    CapacityBack,
}

/// The plan for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryPlan {
    /// Send the same request again at once: only a kept-alive connection had died.
    RetryAtOnce { tokens: u16 },
    /// Send the same request again after a pause. It takes no tokens when the bucket is empty and
    /// the pause has its maximum length (persistent mode).
    Retry { tokens: u16 },
    /// Ask again after a pause, because the refusal is odd: the endpoint has answered before, is
    /// behind a portal, or the request contradicts the refusal.
    RetryOddRefusal,
    /// Wait for capacity, at no cost but time.
    WaitForCapacity,
    /// Ask the next model of the chain.
    SwitchModel,
    /// Fetch a fresh credential, then ask again.
    Refresh,
    /// Drop the truncated reply and ask again with the larger output cap.
    Escalate,
    /// Keep the truncated reply and ask the model to continue it.
    Continue,
    /// Drop the reply without content and ask again after a pause.
    AskAgain,
    /// Drop the incomplete reply and ask again after a pause.
    RetryIncomplete,
    /// Keep the incomplete reply and tell the model what is missing.
    RequestCompletion,
    /// Keep the paused reply and ask again.
    Resume,
    /// Ask the model for more effort.
    Nudge,
    /// Have the older part of the conversation summarised, ahead of need.
    Compact,
    /// Continue without the failed summary.
    SkipCompaction,
    /// Commit all staged folds and ask again.
    CommitFolds,
    /// Like [`RecoveryPlan::Compact`], because the conversation did not fit.
    CompactReactively,
    /// Leave the oldest rounds out of the summarising request, which did not fit itself.
    Trim,
    /// Ask again with an output cap that fits beside the conversation.
    LowerCap,
    /// Replace the media that are too large by a text and ask again.
    Strip,
    /// Repair the refused block and ask again.
    RepairBlock,
    /// Ask again without the refused field for thinking or effort.
    DropThinking,
    /// Ask again without cache breakpoints.
    DropCacheMarks,
    /// Repeat the small request that was refused as too long or too large.
    RetryOverflow,
    /// Continue at normal speed for a while.
    CoolDown,
    /// Continue at normal speed for good.
    DisableFastMode,
    /// Ask the preferred model again.
    ReturnToPreferredModel,
    /// Ask the preferred model once more, before a fallback model ends the run.
    RetryPreferredModel,
    /// Keep the answer and remind the model of what is open.
    Remind,
    /// Ask for the answer in the form that its schema requires.
    Restructure,
    /// Tell the model that its work is not accepted yet.
    RetryRequirement,
    /// Tell the model the objection of a Stop hook.
    RetryStopHook,
    /// Tell the model the status of background work.
    Report,
    /// Ask for one token, to see whether the service has capacity.
    Probe,
    /// Make the call before the end of the back-off: a probe was answered.
    ReturnEarly,
    /// End the run: nothing is left to try, or nothing needs to be tried.
    Stop(StopReason),
}

impl RecoveryPlan {
    /// The budget that the plan is paid from. `None` for waits and ends, which are free.
    pub fn price(self) -> Option<Budget> {
        match self {
            Self::RetryAtOnce { tokens } | Self::Retry { tokens } => Some(Budget::Retry { tokens }),
            Self::RetryOddRefusal => Some(Budget::OddRefusal),
            Self::SwitchModel => Some(Budget::Switch),
            Self::Refresh => Some(Budget::Refresh),
            Self::Escalate => Some(Budget::Escalation),
            Self::Continue => Some(Budget::Continuation),
            Self::AskAgain => Some(Budget::EmptyReply),
            Self::RetryIncomplete => Some(Budget::IncompleteRetry),
            Self::RequestCompletion => Some(Budget::Completion),
            Self::Resume => Some(Budget::Resumption),
            Self::Nudge => Some(Budget::Nudge),
            Self::Compact => Some(Budget::Compaction),
            Self::SkipCompaction => Some(Budget::FailedCompaction),
            Self::CommitFolds => Some(Budget::FoldCommit),
            Self::CompactReactively => Some(Budget::ReactiveCompaction),
            Self::Trim => Some(Budget::Trim),
            Self::LowerCap => Some(Budget::SmallerCap),
            Self::Strip => Some(Budget::Strip),
            Self::RepairBlock => Some(Budget::BlockRepair),
            Self::DropThinking => Some(Budget::Thinking),
            Self::DropCacheMarks => Some(Budget::CacheMarks),
            Self::RetryOverflow => Some(Budget::OverflowRetry),
            Self::CoolDown => Some(Budget::CoolDown),
            Self::DisableFastMode => Some(Budget::FastMode),
            Self::ReturnToPreferredModel => Some(Budget::Probe),
            Self::RetryPreferredModel => Some(Budget::PreferredRetry),
            Self::Remind => Some(Budget::Reminder),
            Self::Restructure => Some(Budget::SchemaTry),
            Self::RetryRequirement => Some(Budget::RequirementTry),
            Self::RetryStopHook => Some(Budget::Objection),
            Self::Report => Some(Budget::Report),
            Self::Probe => Some(Budget::CapacityProbe),
            Self::ReturnEarly => Some(Budget::EarlyReturn),
            Self::WaitForCapacity | Self::Stop(_) => None,
        }
    }

    /// True if observers are notified of the plan in another way than by its name: as a wait, a
    /// switch of model, or an end.
    pub fn is_reported_elsewhere(self) -> bool {
        matches!(
            self,
            Self::Retry { .. }
                | Self::RetryOddRefusal
                | Self::WaitForCapacity
                | Self::Probe
                | Self::SwitchModel
                | Self::Stop(_)
        )
    }

    /// The name used in events and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RetryAtOnce { .. } => "retry_at_once",
            Self::Retry { .. } => "retry",
            Self::RetryOddRefusal => "odd_refusal_retry",
            Self::WaitForCapacity => "wait_for_capacity",
            Self::SwitchModel => "model_fallback",
            Self::Refresh => "refresh_credentials",
            Self::Escalate => "max_output_tokens_escalate",
            Self::Continue => "max_output_tokens_recovery",
            Self::AskAgain => "retry_empty_reply",
            Self::RetryIncomplete => "retry_incomplete_reply",
            Self::RequestCompletion => "request_completion",
            Self::Resume => "resume_paused_turn",
            Self::Nudge => "budget_continuation",
            Self::Compact => "auto_compact",
            Self::SkipCompaction => "compact_skipped",
            Self::CommitFolds => "collapse_drain_retry",
            Self::CompactReactively => "reactive_compact_retry",
            Self::Trim => "compact_trim_retry",
            Self::LowerCap => "output_cap_retry",
            Self::Strip => "media_strip_retry",
            Self::RepairBlock => "block_repair_retry",
            Self::DropThinking => "thinking_off_retry",
            Self::DropCacheMarks => "cache_marks_off_retry",
            Self::RetryOverflow => "overflow_retry",
            Self::CoolDown => "fast_mode_cool_down",
            Self::DisableFastMode => "fast_mode_off",
            Self::ReturnToPreferredModel => "fallback_return",
            Self::RetryPreferredModel => "preferred_model_retry",
            Self::Remind => "reminder",
            Self::Restructure => "structured_output_retry",
            Self::RetryRequirement => "requirement_retry",
            Self::RetryStopHook => "stop_hook_blocking",
            Self::Report => "background_report",
            Self::Probe => "capacity_probe",
            Self::ReturnEarly => "early_return",
            Self::Stop(_) => "stop",
        }
    }

    /// The reason why the loop continues, for plans whose reason has a name in reports.
    pub fn transition(self) -> Option<&'static str> {
        match self {
            Self::SwitchModel
            | Self::Escalate
            | Self::Continue
            | Self::Nudge
            | Self::CommitFolds
            | Self::CompactReactively
            | Self::RetryStopHook
            | Self::Strip => Some(self.name()),
            Self::RetryAtOnce { .. }
            | Self::Retry { .. }
            | Self::RetryOddRefusal
            | Self::WaitForCapacity
            | Self::Refresh
            | Self::AskAgain
            | Self::RetryIncomplete
            | Self::RequestCompletion
            | Self::Resume
            | Self::Compact
            | Self::SkipCompaction
            | Self::Trim
            | Self::RepairBlock
            | Self::DropThinking
            | Self::DropCacheMarks
            | Self::Remind
            | Self::RetryOverflow
            | Self::LowerCap
            | Self::CoolDown
            | Self::DisableFastMode
            | Self::ReturnToPreferredModel
            | Self::RetryPreferredModel
            | Self::Restructure
            | Self::RetryRequirement
            | Self::Report
            | Self::Probe
            | Self::ReturnEarly
            | Self::Stop(_) => None,
        }
    }
}

impl RecoveryPlan {
    /// True if the plan sends the same request to the same model again.
    pub(super) fn repeats(self) -> bool {
        match self {
            Self::RetryAtOnce { .. }
            | Self::Retry { .. }
            | Self::RetryOddRefusal
            | Self::WaitForCapacity
            | Self::ReturnEarly
            | Self::RetryOverflow => true,
            Self::SwitchModel
            | Self::Refresh
            | Self::Escalate
            | Self::Continue
            | Self::AskAgain
            | Self::RetryIncomplete
            | Self::RequestCompletion
            | Self::Resume
            | Self::Nudge
            | Self::Compact
            | Self::SkipCompaction
            | Self::CommitFolds
            | Self::CompactReactively
            | Self::Trim
            | Self::Strip
            | Self::RepairBlock
            | Self::DropThinking
            | Self::DropCacheMarks
            | Self::Remind
            | Self::LowerCap
            | Self::CoolDown
            | Self::DisableFastMode
            | Self::ReturnToPreferredModel
            | Self::RetryPreferredModel
            | Self::Restructure
            | Self::RetryRequirement
            | Self::RetryStopHook
            | Self::Report
            | Self::Probe
            | Self::Stop(_) => false,
        }
    }
}
