//! Events and actions: the interface between the state machine and the shell that performs its
//! actions.

use serde::{Deserialize, Serialize};

use super::{
    AvailableMitigations, ErrorClass, Failure, Interrupt, LeftOff, Limits, LoopStatus, Moment,
    Money, StopReason,
};

/// An event that the shell reports to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Begin,
    /// A process resumes the prompt of an earlier one, without a new prompt.
    Resumed(LeftOff),
    Estimated(TokenEstimate),
    Replied(ReplyKind),
    Failed(Failure),
    /// The request was not sent: by the rate limits shared on this host, the service would refuse
    /// it before `until`.
    SharedLimitMet {
        until: Moment,
    },
    /// Every tool call has its result, and the loop detector has judged them.
    ToolsDone(LoopStatus),
    /// Like `ToolsDone`, and one of the results is the required structured output.
    Delivered,
    /// Like `Delivered`, but background work is still running, or its end is not reported yet.
    DeliveredEarly,
    /// Like `ToolsDone`, but the structured output did not fit its schema.
    SchemaMismatch,
    /// The wait for background work has ended.
    BackgroundWaited(WorkStatus),
    /// The command of `--require` has ended.
    Checked {
        passed: bool,
    },
    /// The Stop hooks have decided.
    Consulted(StopHookDecision),
    /// A hook requests the end of the run, before a request or around a tool call.
    HookStopped,
    /// A hook defers the tool call of the last reply, which therefore has no result.
    Deferred,
    /// A hook prevents the summary that was about to be requested.
    SummaryPrevented,
    /// A tool call was denied, and the run ends because of it. Every call has its result.
    Denied,
    Refreshed,
    WaitEnded,
    /// A probe has ended.
    Probed(Probed),
    Interrupted(Interrupt),
    /// Work was cancelled because the deadline passed.
    DeadlinePassed,
    /// The shell broke an invariant, or panicked.
    InternalError,
}

impl Event {
    /// True if this event brings an answer or decides about one: the answer with which the run ends
    /// is then this one, and not an earlier one.
    pub(super) fn brings_answer(self) -> bool {
        match self {
            Self::Delivered
            | Self::DeliveredEarly
            | Self::BackgroundWaited(_)
            | Self::Checked { .. }
            | Self::Consulted(_) => true,
            Self::Replied(reply) => reply.is_answer(),
            Self::Resumed(left) => left.is_answered(),
            Self::Begin
            | Self::Estimated(_)
            | Self::Failed(_)
            | Self::SharedLimitMet { .. }
            | Self::ToolsDone(_)
            | Self::SchemaMismatch
            | Self::HookStopped
            | Self::Deferred
            | Self::SummaryPrevented
            | Self::Denied
            | Self::Refreshed
            | Self::WaitEnded
            | Self::Probed(_)
            | Self::Interrupted(_)
            | Self::DeadlinePassed
            | Self::InternalError => false,
        }
    }

    /// True if a structured output was accepted, possibly by a process that ended at once.
    pub fn delivers_output(self) -> bool {
        matches!(self, Self::Delivered | Self::DeliveredEarly | Self::Resumed(LeftOff::Delivered))
    }

    /// The failure, if the event is a failed call.
    pub fn failure(self) -> Option<Failure> {
        if let Self::Failed(failure) = self { Some(failure) } else { None }
    }

    /// True if the event came in place of a request that was due.
    pub(super) fn replaces_request(self) -> bool {
        matches!(self, Self::SharedLimitMet { .. } | Self::SummaryPrevented)
    }

    /// True if a planned probe was not sent.
    pub(super) fn says_unsent_probe(self) -> bool {
        matches!(self, Self::Probed(probed) if !probed.was_sent())
    }
}

/// The result of a probe for capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probed {
    /// The service answered it.
    Answered,
    /// The probe failed.
    Failed(Failure),
    /// Not sent: the probe of another run on this host was answered. Waiting runs return one by
    /// one; this one may return at `turn`.
    AnsweredElsewhere { turn: Moment },
    /// Not sent: another run on this host is probing, or its probe has just failed. Its result is
    /// known at `until`.
    Deferred { until: Moment },
    /// Not sent: the budget does not cover its possible cost.
    Unaffordable,
}

impl Probed {
    fn was_sent(self) -> bool {
        matches!(self, Self::Answered | Self::Failed(_))
    }
}

/// The estimate of the next request: worst-case cost, and approximate size in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenEstimate {
    /// The most that the input can cost.
    pub input: Money,
    /// The most that one output token can cost.
    pub token: Money,
    /// The amount that the ledger has left; `None` without a budget.
    pub left: Option<Money>,
    /// The model's own output limit, in tokens.
    pub ceiling: u32,
    /// The request's estimated size in tokens; rather too high than too low.
    pub size: u32,
    /// The part of `size` that every request has: the system prompt and the tools.
    pub fixed: u32,
    /// The model's context window as far as it is known, in tokens.
    pub window: u32,
    /// True if the service counted the tokens of this request, so that `size` is exact.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub counted: bool,
    /// True if a stream of this model would lose a part of the reply, or is refused.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub needs_whole_reply: bool,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub mitigations: AvailableMitigations,
}

impl TokenEstimate {
    /// The estimate of an empty request to a model without prices, limits or a known window.
    pub const FREE: Self = Self {
        input: Money::ZERO,
        token: Money::ZERO,
        left: None,
        ceiling: u32::MAX,
        size: 0,
        fixed: 0,
        window: u32::MAX,
        counted: false,
        needs_whole_reply: false,
        mitigations: AvailableMitigations::NONE,
    };

    /// True if the conversation is due for compaction.
    pub(super) fn is_crowded(self, limits: &Limits) -> bool {
        self.size >= limits.crowded_from(self.window, self.ceiling, self.fixed)
    }

    /// True if the request fills the window, so that it cannot be answered.
    pub(super) fn is_full(self) -> bool {
        self.size >= self.window
    }

    /// The number of tokens that the request leaves for output.
    pub(super) fn room(self) -> u32 {
        self.window.saturating_sub(self.size)
    }

    /// True if the request would not be sent as it is, so that an exact token count is worth
    /// requesting: it seems to fill the window, or cannot be paid for with an output cap of `floor`
    /// tokens.
    pub fn needs_count(self, floor: u32) -> bool {
        !self.counted && (self.is_full() || self.shortfall(floor).is_some())
    }

    /// The shortfall of the budget for the request with an output cap of `floor` tokens. `None` if
    /// the request can be paid for.
    pub fn shortfall(self, floor: u32) -> Option<Shortfall> {
        let needed = self.input + self.token * u64::from(floor.min(self.ceiling));
        self.left.filter(|left| needed > *left).map(|left| Shortfall { needed, left })
    }

    /// The number of output tokens that can be paid for.
    pub fn affordable(self) -> u64 {
        match self.left {
            None => u64::MAX,
            Some(left) if self.input > left => 0,
            Some(left) => left.minus(self.input).buys(self.token),
        }
    }

    /// The part of an output cap of `wanted` tokens that can be paid for.
    pub(super) fn affordable_cap(self, wanted: u32) -> u32 {
        u32::try_from(self.affordable()).unwrap_or(u32::MAX).min(wanted)
    }

    /// The estimate for the same call after it was made with an output cap of `cap` tokens at its
    /// worst-case cost.
    pub(super) fn after_call(self, cap: u32) -> Self {
        let cost = self.input + self.token * u64::from(cap);
        Self { left: self.left.map(|left| left.minus(cost)), ..self }
    }
}

/// A request that the budget does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The lowest worst-case cost of the request.
    pub needed: Money,
    /// The amount that the budget has left.
    pub left: Money,
}

/// The status of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkStatus {
    /// No work is running, and the model has received all results.
    Over,
    /// Some work has ended, which is not reported to the model yet.
    Unreported,
    /// The wait has ended, and some work is still running.
    StillRunning,
}

/// The decision of the Stop hooks about a model that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopHookDecision {
    /// No hook objects.
    Pass,
    /// A hook objects: the model must continue.
    Block,
    /// The previous objection in the same words, with no tool call since.
    BlockAgain,
    /// A hook ends the run, done or not.
    Halt,
}

/// The kind of the model's reply, as far as the machine depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// Text, and no tool use.
    Answer { tokens: u32 },
    /// Like `Answer`, but background work is still running, or its end is not reported yet.
    Early { tokens: u32 },
    /// Like `Answer`, after tool work, with open to-dos or a text that announces work that does not
    /// follow.
    LeftOpen { tokens: u32 },
    /// Tool calls, with text or without.
    ToolCalls { tokens: u32 },
    /// The output limit was reached.
    CutShort(CutKind),
    /// Text that does not count as an answer, because nothing shows that it is complete.
    Incomplete(Incomplete),
    /// The model declined.
    Refusal,
    /// No content, or only thinking.
    Empty,
    /// `pause_turn`.
    Paused,
}

impl ReplyKind {
    /// True if the reply is text that the model gives as its answer.
    pub(super) fn is_answer(self) -> bool {
        matches!(self, Self::Answer { .. } | Self::Early { .. } | Self::LeftOpen { .. })
    }
}

/// The reason why a reply is incomplete that the output limit did not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Incomplete {
    /// It ended with a stop reason for tool calls, but has none.
    MissingCall,
    /// It has a tool call as text, which was not run.
    CallInText,
    /// A content filter stopped it.
    Filtered,
    /// The service reports that the reply broke off.
    BrokenOff,
    /// The stop reason has no meaning in the Messages API.
    UnknownReason,
}

impl Incomplete {
    /// The class of the failure, if the reply stays incomplete.
    pub(super) fn class(self) -> ErrorClass {
        match self {
            Self::Filtered => ErrorClass::ContentFiltered,
            // The Messages API does not allow such a reply.
            Self::MissingCall | Self::CallInText | Self::BrokenOff | Self::UnknownReason => {
                ErrorClass::BadResponse
            }
        }
    }
}

/// The usable part of a reply that hit the output limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutKind {
    /// Text that can be continued.
    Text,
    /// Only part of a tool call, which was dropped.
    ToolCall,
    /// Only thinking.
    Thinking,
}

/// The next action. The shell performs it and reports back with one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use = "an action that is not performed stalls the run"]
pub enum Action {
    /// Estimate what the next request can cost and how much of the window it fills.
    Estimate {
        model_index: u8,
        purpose: CallPurpose,
        /// True if the request would use fast mode, which costs more.
        fast: bool,
    },
    Ask(ModelCall),
    Refresh,
    RunTools,
    /// Run the Stop hooks.
    RunStopHooks,
    /// Run the command of `--require`.
    RunRequirement,
    /// Wait for a change of background work, but not beyond `until`.
    AwaitWork {
        until: Moment,
    },
    Wait {
        until: Moment,
    },
    /// Send the smallest request that shows whether there is capacity.
    Probe {
        model_index: u8,
    },
    Finish(StopReason),
}

impl Action {
    /// The stop reason, if the run ends.
    pub fn end(self) -> Option<StopReason> {
        if let Self::Finish(reason) = self { Some(reason) } else { None }
    }
}

/// The purpose of a call to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPurpose {
    /// To continue the conversation.
    Reply,
    /// To summarise the older part of the conversation, which the summary then replaces.
    Summary(CompactionTrigger),
}

/// The reason for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTrigger {
    /// The conversation is about to fill the window. The compaction can wait if necessary.
    Threshold,
    /// The conversation no longer fits. Nothing else helps.
    Overflow,
}

/// One request to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelCall {
    pub purpose: CallPurpose,
    /// The index of the model in the chain.
    pub model_index: u8,
    /// Output cap, in tokens.
    pub cap: u32,
    pub mode: ReplyMode,
    pub connection: ConnectionChoice,
    /// Counted from 1.
    pub attempt: u8,
    /// True if the request uses fast mode.
    pub fast: bool,
    /// True if the request may be [held back](Event::SharedLimitMet). False once the limit of these
    /// waits is reached.
    pub may_wait_for_shared_limit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyMode {
    Streaming,
    Whole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionChoice {
    #[default]
    Pooled,
    /// A new connection instead of a kept-alive one.
    Fresh,
}

/// The change of the conversation by a step. Applied before the action is performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryEdit {
    #[serde(skip_serializing_if = "super::is_default")]
    pub reply: ReplyDisposition,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trim: Option<Trim>,
    /// The message to the model in reply to the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub say: Option<Nudge>,
    /// A further notice to the model before its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<Nudge>,
}

/// Content that is removed from the conversation so that it fits, or is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trim {
    /// Commits all staged folds.
    Folds,
    /// Leaves the oldest rounds out of the summarising request.
    OldestRounds,
    /// Replaces media that are too large by a text.
    Media,
    /// Repairs the refused block.
    Block,
    /// Leaves out of the next requests some of the content that was added since the last answer,
    /// and removes it when one of them is answered.
    Added,
    /// Stops sending the refused field for thinking or effort.
    ThinkingParameter,
    /// Stops sending cache breakpoints.
    CacheMarks,
    /// Stops asking for streaming.
    Streaming,
}

/// The treatment of the last reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyDisposition {
    /// There is no reply.
    #[default]
    Absent,
    /// It enters the history.
    Keep,
    /// It is discarded.
    Drop,
    /// It replaces the older part of the history.
    Summary,
}

/// A message to the model from outlast itself. The texts are in `nudges.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nudge {
    Continue(CutKind),
    /// Like [`Nudge::Continue`], when one reply is left.
    ContinueLast,
    /// The reply before was incomplete and does not count.
    Complete(Incomplete),
    /// The last two replies had no content.
    EmptyReply,
    MoreEffort,
    /// The model stopped with work left open. A list of that work follows this text.
    LeftOpen,
    WrapUp,
    LastTurn,
    /// The loop detector's soft note.
    StepBack,
    /// The answer must be given as structured output.
    UseStructuredOutput,
    /// The command of `--require` did not pass. Its output follows this text.
    Unmet,
    /// The command failed again, with more than one check left.
    UnmetAgain,
    /// The command failed again, with one check left.
    UnmetLast,
    /// A Stop hook objects. Its message follows this text.
    StopHookObjection,
    /// Background work has ended. Its results follow this text.
    WorkEnded,
    /// The model is done and background work is not. The list of commands follows this text.
    StillRunning,
}
