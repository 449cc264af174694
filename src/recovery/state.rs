//! What a run is: everything that is remembered between two events.

use serde::{Deserialize, Serialize};

use super::event::{ConnectionChoice, CallPurpose};
use super::{Budgets, ErrorClass, Moment, StopReason};

/// A run, whole: small enough to copy, plain enough to journal.
///
/// The conversation is not here. The machine decides when to speak, never what to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    pub phase: Phase,
    pub budgets: Budgets,
    /// Which model is in use, counted from the preferred one.
    pub model_index: u8,
    /// Which model to go back to if the preferred one, tried again, still fails.
    pub fallback_from: Option<u8>,
    /// Before then the preferred model is not tried again.
    pub preferred_model_after: Moment,
    pub fast: Fast,
    /// How far this turn's compaction has come.
    pub compaction: Compaction,
    /// Compactions in a row that did not bring the conversation under its threshold.
    pub useless_compactions: u8,
    pub cap: Cap,
    /// Consecutive failures of the call at hand; the exponent of the back-off. Stays clamped.
    pub failures: u8,
    /// Consecutive overloads; enough of them change the model.
    pub overloads: u8,
    /// Consecutive streams that broke, however far they came.
    pub torn_streams: u8,
    /// Turns that do without streaming because streams broke, the one at hand included.
    #[serde(default)]
    pub unstreamed_turns: u8,
    /// How the next attempt connects.
    pub connection: ConnectionChoice,
    /// No call to this model before then: the server asked for it.
    pub not_before: Moment,
    /// Where waiting for others ends that the call at hand has begun with.
    #[serde(default)]
    pub shared_wait_until: Moment,
    /// Whether a larger output cap would have given the call at hand more room.
    pub may_escalate: bool,
    /// Output tokens still wanted by the token budget.
    pub effort_left: u32,
    /// Output tokens since the last nudge, as far as they matter.
    pub since_nudge: u32,
    /// Whether the model was told, since background work last brought news, that the run waits
    /// for what is still running.
    #[serde(default)]
    pub asked_about_work: bool,
    /// Whether the model was told to wrap up.
    pub wrapping_up: bool,
    /// Where jitter comes from.
    pub seed: u64,
}

/// What the run is waiting for. There is always exactly one thing.
///
/// ```text
///            ┌─────────────── ToolsDone ───────────────┐
///            ▼                                         │
/// Ready ─► Weighing ─► Calling ─► (ToolCalls) ──► Working
///            ▲            │ │
///            │      Failed│ └── Answer ──► (Consulting) ──► (Checking) ──► Stopped
///            └─ Pausing ◄─┘
///                 ▲ │ a probe is due
///                 │ ▼
///               Probing
/// ```
/// Awaiting stands between an answer and its end while background work is under way.
///
/// A conversation that fills the window goes through Weighing and Calling once more, for a
/// summary, before it asks for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Ready,
    /// The next request is being measured against the budget and the window.
    Estimating(CallPurpose),
    Calling(Call),
    Working,
    /// The model is done, and the hooks of Stop are heard.
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
        /// When the service is next probed, in a wait for capacity.
        #[serde(default)]
        probe_at: Option<Moment>,
    },
    /// A pause, while a probe that began at `since` is under way.
    Probing {
        until: Moment,
        why: Pause,
        then: Call,
        since: Moment,
    },
    Stopped(StopReason),
}

impl Phase {
    /// Whether the model has answered and its answer is being worked on: a run that is cut off then
    /// is cut off at work, and not while the model was answering.
    pub fn is_at_work(self) -> bool {
        match self {
            Self::Working | Self::RunningStopHooks | Self::RunningRequirement | Self::Awaiting { .. } => true,
            Self::Ready
            | Self::Estimating(_)
            | Self::Calling(_)
            | Self::Pausing { .. }
            | Self::Probing { .. }
            | Self::Stopped(_) => false,
        }
    }

    /// Until when the run pauses and why, if it does. A probe does not end a pause.
    pub fn pause(self) -> Option<(Moment, Pause)> {
        match self {
            Self::Pausing { until, why, .. } | Self::Probing { until, why, .. } => {
                Some((until, why))
            }
            Self::Ready
            | Self::Estimating(_)
            | Self::Calling(_)
            | Self::Working
            | Self::RunningStopHooks
            | Self::RunningRequirement
            | Self::Awaiting { .. }
            | Self::Stopped(_) => None,
        }
    }
}

/// A request that can fail and be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Ask the model.
    Ask(CallPurpose),
    /// Ask for a fresh credential, to ask the model with.
    Refresh(CallPurpose),
}

impl Call {
    /// What the model is asked for in the end.
    pub(super) fn purpose(self) -> CallPurpose {
        match self {
            Self::Ask(purpose) | Self::Refresh(purpose) => purpose,
        }
    }
}

/// Whether fast mode is asked for (SPEC 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fast {
    Off,
    On,
    /// At normal speed until then.
    Cooling {
        until: Moment,
    },
}

/// How far a turn's compaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// There was none.
    Idle,
    /// It has just happened, and nobody has measured what it brought.
    Done,
    /// There is no more of it this turn.
    Spent,
}

/// Why the run pauses. What a heartbeat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pause {
    pub class: ErrorClass,
    /// Which retry follows, counted from 1. 0 when nothing of ours has failed, and the wait is for
    /// the rate limit that [other runs](crate::recovery::Event::Held) have met.
    pub retry: u8,
    /// Of how many; `None` when they are not counted.
    pub of: Option<u8>,
}

impl Pause {
    /// Whether it is others who met a limit.
    pub fn is_for_others(self) -> bool {
        self.retry == 0
    }
}

/// Which output cap the turn uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    First,
    Escalated,
}
