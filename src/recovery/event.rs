//! The words between the machine and the shell around it.

use serde::{Deserialize, Serialize};

use super::machine::{Phase, Run};
use super::{Failure, Interrupt, Moment, Money, RecoveryPlan, StopReason};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Begin,
    Weighed(Weight),
    Replied(Reply),
    Failed(Failure),
    ToolsDone,
    /// A hook said, during or after a tool, that the run should stop.
    HookStopped,
    Refreshed,
    Woke,
    Interrupted(Interrupt),
    /// Something was cut because the deadline passed.
    DeadlinePassed,
    /// The shell broke a rule of its own, or panicked.
    Broke,
}

/// The worst case of the next call, in money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weight {
    /// The most that the input can cost.
    pub input: Money,
    /// The most that one output token can cost.
    pub token: Money,
    /// What the ledger has left; `None` without a budget.
    pub left: Option<Money>,
    /// The model's own output limit, in tokens.
    pub ceiling: u32,
}

impl Weight {
    /// How many output tokens can be paid for.
    pub fn affordable(self) -> u64 {
        match self.left {
            None => u64::MAX,
            Some(left) if self.input > left => 0,
            Some(left) => left.minus(self.input).buys(self.token),
        }
    }

    /// As much of an output cap of `wanted` tokens as can be paid for.
    pub(super) fn grants(self, wanted: u32) -> u32 {
        u32::try_from(self.affordable()).unwrap_or(u32::MAX).min(wanted)
    }

    /// What the same call weighs once it was made with an output cap of `cap` tokens and has
    /// cost as much as it can.
    pub(super) fn after(self, cap: u32) -> Self {
        let cost = self.input + self.token * u64::from(cap);
        Self { left: self.left.map(|left| left.minus(cost)), ..self }
    }
}

/// What the model said, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Text, and no tool use.
    Answer {
        tokens: u32,
    },
    ToolCalls {
        tokens: u32,
    },
    /// The output limit was reached.
    CutShort(Cut),
    Refusal,
    /// Nothing, or only thinking.
    Empty,
    /// `pause_turn`.
    Paused,
}

/// What is left of a reply that hit the output limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
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
    /// Work out what the next request can cost.
    Weigh {
        rung: u8,
    },
    Ask(Ask),
    Refresh,
    RunTools,
    Wait {
        until: Moment,
    },
    Finish(StopReason),
}

/// One request to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// Which model of the chain.
    pub rung: u8,
    /// Output cap, in tokens.
    pub cap: u32,
    pub mode: Mode,
    pub connection: Connection,
    /// Counted from 1.
    pub attempt: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Streaming,
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    Pooled,
    /// Not one that was kept alive.
    Fresh,
}

/// What a step does to the conversation. Applied before the action is performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edit {
    pub reply: Fate,
    pub say: Option<Nudge>,
}

/// What becomes of the reply that just came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// There is none.
    #[default]
    Absent,
    /// It enters the history.
    Keep,
    /// It leaves no trace.
    Drop,
}

/// Something the model is told, beyond what the user and the tools say. The words are in
/// `nudges.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nudge {
    Continue(Cut),
    /// As [`Nudge::Continue`], when one reply is left to do it in.
    ContinueLast,
    MoreEffort,
    WrapUp,
    LastTurn,
}

/// The record of one step. The journal stores it and the reporter shows it; neither needs to be
/// told anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    pub at: Moment,
    pub event: Event,
    pub plan: Option<RecoveryPlan>,
    pub edit: Edit,
    pub next: Run,
    pub action: Action,
}

/// The shell reported something that the run was not waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} does not fit phase {phase:?}")]
pub struct Breach {
    pub phase: Phase,
    pub event: Event,
}
