//! The causes of recoveries, and the plans for them.

use serde::{Deserialize, Serialize};

use super::{
    AvailableMitigations, Budget, CompactionTrigger, CutKind, Failure, Incomplete, StopReason,
};

/// A condition that keeps a run from simply continuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryCause {
    /// A call failed.
    Failed(Failure),
    /// The reply hit the output limit.
    CutShort(CutKind),
    /// The reply had no content.
    Empty,
    /// The reply is incomplete for another reason than the output limit, or nothing shows that it
    /// is complete.
    Incomplete(Incomplete),
    /// The service paused a long turn and expects a request to resume it.
    Paused,
    /// The model stopped after tool work with something left open.
    LeftOpen,
    /// The model stopped below the token budget.
    Idle,
    /// The conversation is about to fill the context window.
    Crowded,
    /// The next request does not fit the window, as far as its size is known.
    Full(AvailableMitigations),
    /// There is no summary: the budget does not cover it, a hook prevented it, or the reply to the
    /// request ahead of need was not a summary.
    NoSummary(CompactionTrigger),
    /// The reply to the request for a summary after an overflow was not a summary.
    UnusableSummary,
    /// The answer was text, or did not fit the required schema.
    Unstructured,
    /// The command of `--require` did not pass.
    Unmet,
    /// A Stop hook objects.
    Objected,
    /// The model is done, and does not know the status of background work.
    Unreported,
    /// A fallback model is in use, and it is time to ask the preferred one again.
    PreferredModelDue,
    /// The service has no capacity, and a probe is due.
    ProbeDue,
    /// A probe was answered during the back-off.
    CapacityBack,
}

/// The properties of a plan: its row in the table.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryPlanInfo {
    /// The name used in events and reports.
    pub name: &'static str,
    /// The budget that the plan is paid from. `None` for waits and ends, which are free.
    pub price: Option<Budget>,
    /// The description of the completed action, for the transcript of a session. Empty if the
    /// failure that led to the plan is not reported there, as with probes.
    pub done: &'static str,
    /// The description in verbose output. `None` if another line reports it: a wait, a switch of
    /// model, a check, an end.
    pub action: Option<&'static str>,
    /// True if observers are notified of the plan in another way than by its name: as a wait, a
    /// switch of model, or an end.
    pub is_reported_elsewhere: bool,
    /// True if reports name the plan as the reason why the loop continued.
    is_transition: bool,
    /// True if the plan sends the same request to the same model again.
    pub(super) repeats: bool,
}

/// Defines the plans from one row each: the variant and its properties.
macro_rules! plans {
    ($($(#[$doc:meta])* $plan:ident $({ $field:ident: $type:ty })? $(($inner:ty))? => $row:expr;)*)
    => {
        /// The plan for a failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum RecoveryPlan {
            $($(#[$doc])* $plan $({ $field: $type })? $(($inner))?,)*
        }

        impl RecoveryPlan {
            pub const fn info(self) -> RecoveryPlanInfo {
                match self {
                    $(Self::$plan { $($field,)? .. } => $row,)*
                }
            }
        }
    };
}

plans! {
    /// Send the same request again at once: only a kept-alive connection had died.
    RetryAtOnce { tokens: u16 } => paid("retry_at_once", Budget::Retry { tokens },
        "retried at once").repeating().shown("asking again at once: an idle connection was closed");
    /// Send the same request again after a pause. It takes no tokens when the bucket is empty and
    /// the pause has its maximum length (persistent mode).
    Retry { tokens: u16 } => paid("retry", Budget::Retry { tokens }, "retried after a pause")
        .repeating().reported_elsewhere();
    /// Ask again after a pause, because the refusal is odd: the endpoint has answered before, is
    /// behind a portal, or the request contradicts the refusal.
    RetryOddRefusal => paid("odd_refusal_retry", Budget::OddRefusal,
        "retried, since the refusal was odd").repeating().reported_elsewhere();
    /// Wait for capacity, at no cost but time.
    WaitForCapacity => free("wait_for_capacity", "waited for capacity").repeating()
        .reported_elsewhere();
    /// Ask the next model of the chain.
    SwitchModel => paid("model_fallback", Budget::Switch, "asked the next model").as_transition()
        .reported_elsewhere();
    /// Fetch a fresh credential, then ask again.
    Refresh => paid("refresh_credentials", Budget::Refresh, "fetched a new credential")
        .shown("renewing the credential, then asking again");
    /// Drop the truncated reply and ask again with the larger output cap.
    Escalate => paid("max_output_tokens_escalate", Budget::Escalation,
        "asked again with a larger output limit").as_transition()
        .shown("the reply was cut at its length limit: asking again with a larger limit");
    /// Keep the truncated reply and ask the model to continue it.
    Continue => paid("max_output_tokens_recovery", Budget::Continuation,
        "kept the reply and asked for the rest").as_transition()
        .shown("the reply was cut at its length limit: asking the model to continue");
    /// Drop the reply without content and ask again after a pause.
    AskAgain => paid("retry_empty_reply", Budget::EmptyReply, "dropped the reply and asked again")
        .shown("the reply was empty: asking again");
    /// Drop the incomplete reply and ask again after a pause.
    RetryIncomplete => paid("retry_incomplete_reply", Budget::IncompleteRetry,
        "dropped the reply and asked again").shown("the reply was incomplete: asking again");
    /// Keep the incomplete reply and tell the model what is missing.
    RequestCompletion => paid("request_completion", Budget::Completion,
        "asked for what was missing")
        .shown("the reply was incomplete: telling the model what is missing");
    /// Keep the paused reply and ask again.
    Resume => paid("resume_paused_turn", Budget::Resumption, "asked the model to resume its reply")
        .shown("the service paused the reply: asking for the rest");
    /// Ask the model for more effort.
    Nudge => paid("budget_continuation", Budget::Nudge, "asked for more work").as_transition()
        .shown("asking the model for more effort");
    /// Have the older part of the conversation summarised, ahead of need.
    Compact => paid("auto_compact", Budget::Compaction, "asked for a summary")
        .shown("the context window is almost full: summarising older messages");
    /// Continue without the failed summary.
    SkipCompaction => paid("compact_skipped", Budget::FailedCompaction, "went on without a summary")
        .shown("there is no summary: continuing without it");
    /// Commit all staged folds and ask again.
    CommitFolds => paid("collapse_drain_retry", Budget::FoldCommit, "removed old tool output")
        .as_transition()
        .shown("the conversation did not fit: asking again with older tool results shortened");
    /// Like [`RecoveryPlan::Compact`], because the conversation did not fit.
    CompactReactively => paid("reactive_compact_retry", Budget::ReactiveCompaction,
        "asked for a summary").as_transition()
        .shown("the conversation did not fit: summarising older messages");
    /// Remove the older part of the conversation without a summary.
    CompactUnsummarised => paid("compact_unsummarised", Budget::UnsummarisedCompaction,
        "removed the older messages without a summary")
        .shown("there is no summary: continuing without the older messages");
    /// Leave the oldest rounds out of the summarising request, which did not fit itself.
    Trim => paid("compact_trim_retry", Budget::Trim, "left the oldest messages out of the summary")
        .shown("the request for a summary did not fit: asking again without the oldest messages");
    /// Ask again with an output cap that leaves room for the conversation.
    LowerCap => paid("output_cap_retry", Budget::SmallerCap,
        "asked again with a smaller output limit")
        .shown("the length limit for the reply was refused: asking again with a smaller one");
    /// Replace the media that were refused by a text and ask again.
    Strip => paid("media_strip_retry", Budget::Strip, "removed the media that were refused")
        .as_transition().shown("images were refused: asking again without them");
    /// Repair the refused block and ask again.
    RepairBlock => paid("block_repair_retry", Budget::BlockRepair,
        "repaired the message that was refused")
        .shown("a block was refused: repairing it, and asking again");
    /// Ask again without some of the content that was added since the last answer. The conversation
    /// keeps it until an answer shows that the service refused it.
    OmitAdded => paid("added_content_retry", Budget::AddedContent,
        "asked again without content that was added last").as_transition()
        .shown("the request was refused for no known reason: asking again without what was added");
    /// Ask again without the refused field for thinking or effort.
    DropThinking => paid("thinking_off_retry", Budget::Thinking, "asked again without thinking")
        .shown("thinking was refused: asking again without it");
    /// Ask again without cache breakpoints.
    DropCacheMarks => paid("cache_marks_off_retry", Budget::CacheMarks,
        "asked again without marks for the prompt cache")
        .shown("prompt cache markers were refused: asking again without them");
    /// Ask again without streaming.
    DropStreaming => paid("streaming_off_retry", Budget::Streaming,
        "asked again without streaming")
        .shown("streaming was refused: asking again without it");
    /// Ask again with streaming: without it, as after broken streams, the request was refused.
    ResumeStreaming => paid("streaming_on_retry", Budget::OddRefusal,
        "asked again with streaming")
        .shown("a request without streaming was refused: asking again with it");
    /// Repeat the small request that was refused as too long or too large.
    RetryOverflow => paid("overflow_retry", Budget::OverflowRetry, "sent the same request again")
        .repeating().shown("a small request was refused as too large: sending it once more");
    /// Continue at normal speed for a while.
    CoolDown => paid("fast_mode_cool_down", Budget::CoolDown,
        "went on at normal speed for a while");
    /// Continue at normal speed permanently.
    DisableFastMode => paid("fast_mode_off", Budget::FastMode, "went on at normal speed");
    /// Ask the preferred model again.
    ReturnToPreferredModel => paid("fallback_return", Budget::Probe,
        "asked the preferred model again").shown("asking the preferred model again");
    /// Ask the preferred model once more, before a fallback model ends the run.
    RetryPreferredModel => paid("preferred_model_retry", Budget::PreferredRetry,
        "asked the preferred model again")
        .shown("no model is left: asking the preferred model once more");
    /// Keep the answer and remind the model of open work.
    Remind => paid("reminder", Budget::Reminder, "reminded the model of what is open")
        .shown("work was left unfinished: reminding the model of it");
    /// Ask for the answer in the form that its schema requires.
    Restructure => paid("structured_output_retry", Budget::SchemaTry,
        "asked for the answer in the required form")
        .shown("the answer does not fit its schema: telling the model what is wrong");
    /// Tell the model that its work is not accepted yet.
    RetryRequirement => paid("requirement_retry", Budget::RequirementTry, "told the model");
    /// Tell the model the objection of a Stop hook.
    RetryStopHook => paid("stop_hook_blocking", Budget::Objection, "told the model").as_transition()
        .shown("a Stop hook objects: telling the model why");
    /// Tell the model the status of background work.
    Report => paid("background_report", Budget::Report, "told the model about background work")
        .shown("telling the model the state of its background tasks");
    /// Ask for one token, to see whether the service has capacity.
    Probe => paid("capacity_probe", Budget::CapacityProbe, "").reported_elsewhere();
    /// Make the call before the end of the back-off: a probe was answered.
    ReturnEarly => paid("early_return", Budget::EarlyReturn, "").repeating()
        .shown("the service has capacity again: ending the wait early");
    /// End the run: nothing is left to try, or nothing needs to be tried.
    Stop(StopReason) => free("stop", "ended the run").reported_elsewhere();
}

impl RecoveryPlan {
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The reason why the loop continues, for plans whose reason has a name in reports.
    pub fn transition(self) -> Option<&'static str> {
        let info = self.info();
        info.is_transition.then_some(info.name)
    }
}

/// The row of a plan that takes one from a budget.
const fn paid(name: &'static str, budget: Budget, done: &'static str) -> RecoveryPlanInfo {
    RecoveryPlanInfo { price: Some(budget), ..free(name, done) }
}

/// The row of a wait or an end.
const fn free(name: &'static str, done: &'static str) -> RecoveryPlanInfo {
    RecoveryPlanInfo {
        name,
        price: None,
        done,
        action: None,
        is_reported_elsewhere: false,
        is_transition: false,
        repeats: false,
    }
}

impl RecoveryPlanInfo {
    const fn shown(self, action: &'static str) -> Self {
        Self { action: Some(action), ..self }
    }

    const fn reported_elsewhere(self) -> Self {
        Self { is_reported_elsewhere: true, ..self }
    }

    const fn as_transition(self) -> Self {
        Self { is_transition: true, ..self }
    }

    const fn repeating(self) -> Self {
        Self { repeats: true, ..self }
    }
}
