//! The state of a run: everything that is kept between two events.

use serde::{Deserialize, Serialize};

use super::event::{CallPurpose, CompactionTrigger, ConnectionChoice, Incomplete, ReplyKind};
use super::{Budgets, ErrorClass, Interrupt, Moment, StopReason};

/// The complete state of a run: cheap to copy, and stored in the journal.
///
/// The conversation is not part of it. The machine decides when a message is sent, not its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[must_use = "the methods of a run return a changed run"]
pub struct Run {
    pub phase: Phase,
    #[serde(skip_serializing_if = "super::is_default")]
    pub budgets: Budgets,
    /// The index of the model in use, counted from the preferred one.
    #[serde(skip_serializing_if = "super::is_default")]
    pub model_index: u8,
    #[serde(skip_serializing_if = "super::is_default")]
    pub preferred: PreferredModel,
    #[serde(skip_serializing_if = "super::is_default")]
    pub fast: Fast,
    #[serde(skip_serializing_if = "super::is_default")]
    pub compaction: CompactionState,
    #[serde(skip_serializing_if = "super::is_default")]
    pub cap: Cap,
    #[serde(skip_serializing_if = "super::is_default")]
    pub attempts: Attempts,
    #[serde(skip_serializing_if = "super::is_default")]
    pub streaming: Streaming,
    /// The kind of connection of the next attempt.
    #[serde(skip_serializing_if = "super::is_default")]
    pub connection: ConnectionChoice,
    /// The end of all waits for shared rate limits of the current call.
    #[serde(skip_serializing_if = "super::is_default")]
    pub shared_wait_until: Moment,
    /// True if a larger output cap would have given the current call more room.
    #[serde(skip_serializing_if = "super::is_default")]
    pub may_escalate: bool,
    #[serde(skip_serializing_if = "super::is_default")]
    pub effort: RequiredEffort,
    /// True if the model got the notice that the run waits for running commands, since the last
    /// change of background work.
    #[serde(skip_serializing_if = "super::is_default")]
    pub asked_about_work: bool,
    /// True if the model got the notice to wrap up.
    #[serde(skip_serializing_if = "super::is_default")]
    pub wrapping_up: bool,
    /// True if the run ended because its retry quota did not allow one more retry.
    #[serde(skip_serializing_if = "super::is_default")]
    pub quota_ended: bool,
    /// The answer that stands if the work after it fails.
    #[serde(skip_serializing_if = "super::is_default")]
    pub kept_answer: KeptAnswer,
    /// True if a structured output was accepted and nothing has objected to it since.
    #[serde(skip_serializing_if = "super::is_default")]
    pub has_output: bool,
    /// The seed of the jitter.
    pub seed: u64,
}

/// The phase of a run: the one event that it is waiting for.
///
/// ```text
///            ┌──────────────── ToolsDone ────────────────┐
///            ▼                                           │
/// Ready ─► Estimating ─► Calling ─► (ToolCalls) ──► Working
///            ▲              │ │
///            │        Failed│ └─ Answer ─► (RunningStopHooks) ─► (RunningRequirement) ─► Stopped
///            └── Pausing ◄──┘
///                 ▲ │ a probe is due
///                 │ ▼
///               Probing
/// ```
/// `Awaiting` lies between an answer and the end of the run while background work is running.
///
/// A conversation that fills the window goes through `Estimating` and `Calling` once more, for a
/// summary, before it asks for its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    #[default]
    Ready,
    /// The next request is being estimated against the budget and the window.
    Estimating(CallPurpose),
    Calling(Call),
    Working,
    /// The model is done, and the Stop hooks run.
    RunningStopHooks,
    /// The command of `--require` runs.
    RunningRequirement,
    /// The model is done and background work is not.
    Awaiting {
        until: Moment,
    },
    Pausing {
        until: Moment,
        why: Pause,
        then: Call,
        /// Time of the next probe, in a wait for capacity.
        probe_at: Option<Moment>,
    },
    /// A pause, while a probe of model `model_index` that began at `since` is under way.
    Probing {
        until: Moment,
        why: Pause,
        then: Call,
        since: Moment,
        model_index: u8,
    },
    Stopped(StopReason),
}

impl Phase {
    /// True if the model has answered and its answer is being processed: a run that is interrupted
    /// then ends as interrupted at work, not while streaming.
    pub fn is_at_work(self) -> bool {
        self.is_running() || matches!(self, Self::Awaiting { .. })
    }

    /// True if tools, Stop hooks or the command of `--require` run.
    fn is_running(self) -> bool {
        matches!(self, Self::Working | Self::RunningStopHooks | Self::RunningRequirement)
    }

    /// True if a hook may end the run now.
    pub(super) fn allows_hook_stop(self) -> bool {
        let is_before_reply =
            matches!(self, Self::Ready | Self::Estimating(_) | Self::Calling(Call::Ask(_)));
        is_before_reply || self.is_running()
    }

    /// The reason of the end if the run is interrupted now.
    pub(super) fn interruption(self, by: Interrupt) -> StopReason {
        if self.is_at_work() {
            StopReason::AbortedTools(by)
        } else {
            StopReason::AbortedStreaming(by)
        }
    }

    /// The reason of the end if the deadline passes now.
    pub(super) fn deadline_reason(self) -> StopReason {
        let awaits_work = matches!(self, Self::Awaiting { .. });
        if awaits_work { StopReason::BackgroundPending } else { StopReason::Deadline }
    }

    /// The end and the reason of the current pause, if there is one. A probe does not end a pause.
    pub fn pause(self) -> Option<(Moment, Pause)> {
        if let Self::Pausing { until, why, .. } | Self::Probing { until, why, .. } = self {
            return Some((until, why));
        }
        None
    }
}

/// A request that can fail and be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Ask the model.
    Ask(CallPurpose),
    /// Fetch a fresh credential, then ask the model.
    Refresh(CallPurpose),
}

impl Call {
    /// The request for the next reply.
    pub(super) const REPLY: Self = Self::Ask(CallPurpose::Reply);
    /// The request for a summary of a conversation that no longer fits.
    pub(super) const OVERFLOW_SUMMARY: Self =
        Self::Ask(CallPurpose::Summary(CompactionTrigger::Overflow));

    /// The purpose of the call to the model.
    pub(super) fn purpose(self) -> CallPurpose {
        match self {
            Self::Ask(purpose) | Self::Refresh(purpose) => purpose,
        }
    }
}

/// The terms of a return to the preferred model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PreferredModel {
    /// The model to return to if the preferred one, tried again, still fails.
    pub fallback_from: Option<u8>,
    /// Time before which it is not tried again.
    pub not_before: Moment,
    /// Time from which it may be asked once more before the end: the retry-after with which the
    /// run left it. `None` while it is in use, or if it refused permanently.
    pub retry_at: Option<Moment>,
}

/// The attempts at the current call, which begin again with another model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempts {
    /// Consecutive failures of the current call: the exponent of the back-off. Has an upper bound.
    pub failures: u8,
    /// Consecutive overloads; enough of them cause a change of model.
    pub overloads: u8,
    /// Time before which this model is not called: the server's retry-after.
    pub not_before: Moment,
}

/// The experience with streams, by which calls do without streaming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Streaming {
    /// Consecutive broken streams, whether they broke early or late.
    pub torn_streams: u8,
    /// Turns without streaming because streams broke, the current one included.
    pub unstreamed_turns: u8,
    /// True if the service refuses streaming for this model.
    pub is_refused: bool,
}

/// The state of fast mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fast {
    #[default]
    Off,
    On,
    /// At normal speed until `until`.
    Cooling {
        until: Moment,
    },
}

/// The output tokens that the token budget requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequiredEffort {
    /// The tokens that are still required.
    pub left: u32,
    /// The tokens since the last nudge, up to the largest number that matters.
    pub since_nudge: u32,
}

/// The answer before a nudge, which may stand if the work that the nudge asked for fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptAnswer {
    /// No answer stands.
    #[default]
    None,
    /// The model was reminded of open work: the answer stands until the model goes on with it.
    UntilWork,
    /// The model was asked for more effort after a finished answer, which stands in any case.
    ThroughWork,
}

impl KeptAnswer {
    /// The answer that stands after a reply.
    pub(super) fn after(self, reply: ReplyKind) -> Self {
        match (self, reply) {
            (Self::None | Self::ThroughWork, _) | (_, ReplyKind::Refusal | ReplyKind::Empty) => {
                self
            }
            (Self::UntilWork, ReplyKind::Incomplete(why)) if why != Incomplete::CallInText => self,
            (
                Self::UntilWork,
                ReplyKind::Answer { .. }
                | ReplyKind::Early { .. }
                | ReplyKind::LeftOpen { .. }
                | ReplyKind::ToolCalls { .. }
                | ReplyKind::CutShort(_)
                | ReplyKind::Incomplete(_)
                | ReplyKind::Paused,
            ) => Self::None,
        }
    }
}

/// The compaction of this turn, and the use of those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompactionState {
    pub stage: Compaction,
    /// Consecutive compactions without progress: they neither brought the conversation under its
    /// threshold nor made it much smaller.
    pub useless: u8,
    /// The size of the last request for a reply, in tokens, by which a compaction is judged.
    pub size: u32,
}

/// The stage of a turn's compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// No compaction this turn.
    #[default]
    Idle,
    /// A compaction has just happened, and its effect is not measured yet.
    Done,
    /// No further compaction this turn.
    Spent,
}

/// The reason for a pause, for heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pause {
    pub class: ErrorClass,
    /// The number of the next retry, counted from 1. 0 when the wait is for a rate limit that is
    /// [known on this host](crate::recovery::Event::SharedLimitMet).
    pub retry: u8,
    /// The number of retries allowed; `None` when they are not counted.
    pub of: Option<u8>,
}

impl Pause {
    /// The pause before a retry that was paid from a budget: `left` of `all` retries remain.
    pub(super) fn counted(class: ErrorClass, left: u8, all: u8) -> Self {
        Self { class, retry: all.saturating_sub(left), of: Some(all) }
    }

    /// The pause before the only retry.
    pub(super) fn once(class: ErrorClass) -> Self {
        Self { class, retry: 1, of: Some(1) }
    }

    /// True if the wait is for a rate limit that is known on this host.
    pub fn is_for_shared_limit(self) -> bool {
        self.retry == 0
    }
}

/// The output cap of the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    #[default]
    First,
    Escalated,
}
