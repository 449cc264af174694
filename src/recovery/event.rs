//! The words between the machine and the shell around it.

use serde::{Deserialize, Serialize};

use super::state::{Phase, Run};
use super::{Failure, Interrupt, Limits, Moment, Money, LoopStatus, RecoveryPlan, AvailableMitigations, StopReason};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Begin,
    Estimated(TokenEstimate),
    Replied(ReplyKind),
    Failed(Failure),
    /// The request was not sent: other runs of this host know that the service would refuse it
    /// before then.
    SharedLimitMet {
        until: Moment,
    },
    /// Every tool call has its result; whether they lead anywhere, the loop detector says.
    ToolsDone(LoopStatus),
    /// The same, and among them was the structured output that was asked for.
    Delivered,
    /// Delivered as well, while background work is under way or ended unknown to the model.
    DeliveredEarly,
    /// The same, but the structured output did not fit its schema.
    SchemaMismatch,
    /// Background work was waited for.
    BackgroundWaited(WorkStatus),
    /// The command of `--require` has ended.
    Checked {
        passed: bool,
    },
    /// The hooks of Stop were heard.
    Consulted(StopHookDecision),
    /// A hook said, before a request or around a tool, that the run should stop.
    HookStopped,
    /// A hook does not want the summary to be asked for that was about to be.
    SummaryPrevented,
    /// A tool call was denied, and that is to end the run. Every call has its result.
    Denied,
    Refreshed,
    WaitEnded,
    /// A probe has ended.
    Probed(Probed),
    Interrupted(Interrupt),
    /// Something was cut because the deadline passed.
    DeadlinePassed,
    /// The shell broke a rule of its own, or panicked.
    InternalError,
}

impl Event {
    /// Whether a probe was to be sent, and was not.
    pub(super) fn says_unsent_probe(self) -> bool {
        match self {
            Self::Probed(probed) => match probed {
                Probed::AnsweredElsewhere { .. }
                | Probed::Deferred { .. }
                | Probed::Unaffordable => true,
                Probed::Answered | Probed::Failed(_) => false,
            },
            Self::Begin
            | Self::Estimated(_)
            | Self::Replied(_)
            | Self::Failed(_)
            | Self::SharedLimitMet { .. }
            | Self::ToolsDone(_)
            | Self::Delivered
            | Self::DeliveredEarly
            | Self::SchemaMismatch
            | Self::BackgroundWaited(_)
            | Self::Checked { .. }
            | Self::Consulted(_)
            | Self::HookStopped
            | Self::SummaryPrevented
            | Self::Denied
            | Self::Refreshed
            | Self::WaitEnded
            | Self::Interrupted(_)
            | Self::DeadlinePassed
            | Self::InternalError => false,
        }
    }
}

/// How a probe for capacity ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probed {
    /// The service answered it.
    Answered,
    Failed(Failure),
    /// It was not sent: the probe of another run on this host was answered. Those that waited
    /// return one by one, and this one's turn is then.
    AnsweredElsewhere {
        turn: Moment,
    },
    /// It was not sent: another run on this host probes, or has just done so in vain. What came of
    /// it is known then.
    Deferred {
        until: Moment,
    },
    /// It was not sent: the budget has no room for what it could cost.
    Unaffordable,
}

/// What the next call would weigh: in money at worst, in the context window about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TokenEstimate {
    /// The most that the input can cost.
    pub input: Money,
    /// The most that one output token can cost.
    pub token: Money,
    /// What the ledger has left; `None` without a budget.
    pub left: Option<Money>,
    /// The model's own output limit, in tokens.
    pub ceiling: u32,
    /// The request's size as estimated, in tokens; rather too high than too low.
    pub size: u32,
    /// Of it, what every request has: the system prompt and the tools.
    pub fixed: u32,
    /// The model's context window as far as it is known, in tokens.
    pub window: u32,
    pub mitigations: AvailableMitigations,
}

impl TokenEstimate {
    /// Whether the conversation is due to be compacted.
    pub(super) fn is_crowded(self, limits: &Limits) -> bool {
        self.size >= limits.crowded_from(self.window, self.ceiling, self.fixed)
    }

    /// Whether the request cannot possibly be answered.
    pub(super) fn is_full(self) -> bool {
        self.size >= self.window
    }

    /// The room that the request leaves for output.
    pub(super) fn room(self) -> u32 {
        self.window.saturating_sub(self.size)
    }

    /// How many output tokens can be paid for.
    pub fn affordable(self) -> u64 {
        match self.left {
            None => u64::MAX,
            Some(left) if self.input > left => 0,
            Some(left) => left.minus(self.input).buys(self.token),
        }
    }

    /// As much of an output cap of `wanted` tokens as can be paid for.
    pub(super) fn affordable_cap(self, wanted: u32) -> u32 {
        u32::try_from(self.affordable()).unwrap_or(u32::MAX).min(wanted)
    }

    /// What the same call weighs once it was made with an output cap of `cap` tokens and has
    /// cost as much as it can.
    pub(super) fn after_call(self, cap: u32) -> Self {
        let cost = self.input + self.token * u64::from(cap);
        Self { left: self.left.map(|left| left.minus(cost)), ..self }
    }
}

/// How background work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkStatus {
    /// None is under way, and the model knows what came of all of it.
    Over,
    /// Some has ended, and the model does not know.
    Unreported,
    /// The wait is over, and the work is not.
    StillRunning,
}

/// What the hooks of Stop say to a model that is done (SPEC 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopHookDecision {
    /// Nothing stands against it.
    Pass,
    /// The model is to go on.
    Block,
    /// The same, in the words of the last time, and no tool was called since.
    BlockAgain,
    /// The run is to end, done or not.
    Halt,
}

/// What the model said, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// Text, and no tool use.
    Answer {
        tokens: u32,
    },
    /// The same, while background work is under way or ended unknown to the model.
    Early {
        tokens: u32,
    },
    ToolCalls {
        tokens: u32,
    },
    /// The output limit was reached.
    CutShort(CutKind),
    /// Text that does not count as an answer, because nothing says that it is whole.
    Incomplete(Incomplete),
    Refusal,
    /// Nothing, or only thinking.
    Empty,
    /// `pause_turn`.
    Paused,
}

/// Why a reply is not complete that the output limit did not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Incomplete {
    /// It ended as one that calls a tool, and no call came.
    MissingCall,
    /// A content filter stopped it.
    Filtered,
    /// The service says that it broke off.
    BrokenOff,
    /// The stop reason has no meaning in the Messages API.
    UnknownReason,
}

/// What is left of a reply that hit the output limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutKind {
    /// Text that can be continued.
    Text,
    /// Nothing but part of a tool call, which was dropped.
    ToolCall,
    /// Nothing but thinking.
    Thinking,
}

/// What to do next. The shell performs it and reports back with one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[must_use = "an action that is not performed stalls the run"]
pub enum Action {
    /// Work out what the next request can cost and how much of the window it fills.
    Estimate {
        model_index: u8,
        purpose: CallPurpose,
        /// Whether it would ask for fast mode, which costs more.
        fast: bool,
    },
    Ask(ModelCall),
    Refresh,
    RunTools,
    /// Hear the hooks of Stop.
    RunStopHooks,
    /// Run the command of `--require`.
    RunRequirement,
    /// Wait for news of background work, but not beyond `until`.
    AwaitWork {
        until: Moment,
    },
    Wait {
        until: Moment,
    },
    /// Send the smallest request that proves capacity.
    Probe {
        rung: u8,
    },
    Finish(StopReason),
}

/// What the model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPurpose {
    /// To go on with the conversation.
    Reply,
    /// To sum up the older part of the conversation, which the summary then replaces.
    Summary(CompactionTrigger),
}

/// Why the conversation is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTrigger {
    /// It is about to fill the window. It can wait, if it must.
    Threshold,
    /// It did not fit any more. There is no other way.
    Overflow,
}

/// One request to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelCall {
    pub purpose: CallPurpose,
    /// Which model of the chain.
    pub rung: u8,
    /// Output cap, in tokens.
    pub cap: u32,
    pub mode: ReplyMode,
    pub connection: ConnectionChoice,
    /// Counted from 1.
    pub attempt: u8,
    /// Whether fast mode is asked for.
    pub fast: bool,
    /// Whether it may be [held](Event::Held). Not when others were waited for in vain.
    #[serde(default)]
    pub may_wait_for_shared_limit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyMode {
    Streaming,
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionChoice {
    Pooled,
    /// Not one that was kept alive.
    Fresh,
}

/// What a step does to the conversation. Applied before the action is performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HistoryEdit {
    pub reply: ReplyDisposition,
    pub trim: Option<Trim>,
    /// What answers the event.
    pub say: Option<Nudge>,
    /// What the model should know besides before it takes its turn.
    pub notice: Option<Nudge>,
}

/// What is taken out of the conversation so that it fits, or is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trim {
    /// All staged folds are committed.
    Folds,
    /// The oldest rounds are left out of the summarising request.
    OldestRounds,
    /// Media that are too large are replaced by a text.
    Media,
    /// The block that was refused is repaired.
    Block,
    /// Thinking is not asked for any more.
    ThinkingParameter,
}

/// What becomes of the reply that just came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyDisposition {
    /// There is none.
    #[default]
    Absent,
    /// It enters the history.
    Keep,
    /// It leaves no trace.
    Drop,
    /// It replaces the older part of the history.
    Summary,
}

/// Something the model is told, beyond what the user and the tools say. The words are in
/// `nudges.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nudge {
    Continue(CutKind),
    /// As [`Nudge::Continue`], when one reply is left to do it in.
    ContinueLast,
    /// The reply before does not count.
    Complete(Incomplete),
    MoreEffort,
    WrapUp,
    LastTurn,
    /// The loop detector's soft note.
    StepBack,
    /// The answer is wanted as structured output.
    UseStructuredOutput,
    /// The command of `--require` did not pass. Its output follows these words.
    Unmet,
    /// The same again, with more than one check left.
    UnmetAgain,
    /// The same with one check left.
    UnmetLast,
    /// A Stop hook objects. Its words follow these.
    StopHookObjection,
    /// Background work has ended. What came of it follows these words.
    WorkEnded,
    /// The model is done and background work is not. What is running follows these words.
    StillRunning,
}

/// The record of one step. The journal stores it and the reporter shows it; neither needs to be
/// told anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    pub at: Moment,
    pub event: Event,
    pub plan: Option<RecoveryPlan>,
    pub edit: HistoryEdit,
    pub next: Run,
    pub action: Action,
}

/// The shell reported something that the run was not waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} does not fit phase {phase:?}")]
pub struct InvalidEvent {
    pub phase: Phase,
    pub event: Event,
}
