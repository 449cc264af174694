//! One event in, one transition out.

use serde::{Deserialize, Serialize};

use super::event::{Action, Ask, Breach, Connection, Edit, Event, Fate, Mode, Transition, Weight};
use super::{
    Budget, Budgets, ErrorClass, Limits, Moment, Nudge, RecoveryPlan, Setback, StopReason, plan,
};

/// A run, whole: small enough to copy, plain enough to journal.
///
/// The conversation is not here. The machine decides when to speak, never what to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    pub phase: Phase,
    pub budgets: Budgets,
    /// Which model is in use, counted from the preferred one.
    pub rung: u8,
    pub cap: Cap,
    /// Consecutive failures of the call at hand; the exponent of the back-off. Stays clamped.
    pub failures: u8,
    /// Consecutive overloads; enough of them change the model.
    pub overloads: u8,
    /// Consecutive streams that broke before a block was complete.
    pub torn: u8,
    /// How the next attempt connects.
    pub connection: Connection,
    /// No call to this model before then: the server asked for it.
    pub not_before: Moment,
    /// Output tokens still wanted by the token budget.
    pub effort_left: u32,
    /// Output tokens since the last nudge, as far as they matter.
    pub since_nudge: u32,
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
///            │      Failed│ └── Answer ──► Stopped
///            └─ Pausing ◄─┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Ready,
    /// The next request is being measured against the budget.
    Weighing,
    Calling(Call),
    Working,
    Pausing {
        until: Moment,
        why: Pause,
        then: Call,
    },
    Stopped(StopReason),
}

/// A request that can fail and be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Ask the model to go on.
    Reply,
    /// Ask for a fresh credential.
    Credentials,
}

/// Why the run pauses. What a heartbeat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pause {
    pub class: ErrorClass,
    /// Which retry follows, counted from 1.
    pub retry: u8,
    /// Of how many; `None` when they are not counted.
    pub of: Option<u8>,
}

/// Which output cap the turn uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    First,
    Escalated,
}

/// Where the failure count stops mattering: the ladder has long reached its cap.
pub(super) const FAILURES_MAX: u8 = 30;

/// A nudge that brings fewer output tokens than this was in vain (SPEC 17).
const NUDGE_WORTH: u32 = 500;

/// When a step happens and under which rules.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) at: Moment,
    pub(super) limits: &'a Limits,
}

/// The outcome of a step before it is wrapped into a [`Transition`].
pub(super) struct Outcome {
    run: Run,
    plan: Option<RecoveryPlan>,
    edit: Edit,
    action: Action,
}

impl Run {
    pub fn new(seed: u64, limits: &Limits) -> Self {
        Self {
            phase: Phase::Ready,
            budgets: limits.budgets,
            rung: 0,
            cap: Cap::First,
            failures: 0,
            overloads: 0,
            torn: 0,
            connection: Connection::Pooled,
            not_before: Moment::default(),
            effort_left: limits.effort.map_or(0, |tokens| tokens / 10 * 9),
            since_nudge: 0,
            wrapping_up: false,
            seed,
        }
    }

    /// A run that goes on in a new process: what was spent stays spent, what was awaited is
    /// asked for anew. Moments start again at zero, so an earlier wish no longer means anything.
    #[must_use]
    pub fn resumed(self) -> Self {
        Self {
            phase: Phase::Ready,
            connection: Connection::Pooled,
            not_before: Moment::default(),
            wrapping_up: false,
            ..self
        }
    }

    /// Advances the run by one event.
    ///
    /// # Errors
    /// A [`Breach`] when the event is not one that the phase waits for.
    pub fn step(self, at: Moment, event: Event, limits: &Limits) -> Result<Transition, Breach> {
        let scene = Scene { at, limits };
        let Outcome { run: next, plan, edit, action } = match (self.phase, event) {
            (Phase::Stopped(_), _) => return Err(Breach { phase: self.phase, event }),
            (Phase::Working, Event::Interrupted(by)) => self.stop(StopReason::AbortedTools(by)),
            (_, Event::Interrupted(by)) => self.stop(StopReason::AbortedStreaming(by)),
            (_, Event::Broke) => self.stop(StopReason::InternalError),
            (_, Event::DeadlinePassed) => self.stop(StopReason::Deadline),
            (Phase::Ready, Event::Begin) | (Phase::Working, Event::ToolsDone) => {
                self.next_turn(scene)
            }
            (Phase::Working, Event::HookStopped) => self.stop(StopReason::HookStopped),
            (Phase::Weighing, Event::Weighed(weight)) => self.ask(weight, scene),
            (Phase::Calling(Call::Reply), Event::Replied(reply)) => self.hear(reply, scene),
            (Phase::Calling(Call::Credentials), Event::Refreshed) => self.call(Call::Reply, scene),
            (Phase::Calling(call), Event::Failed(failure)) => self.recover(call, failure, scene),
            (Phase::Pausing { until, .. }, Event::Woke) if at < until => self.wait(until, scene),
            (Phase::Pausing { then, .. }, Event::Woke) => self.call(then, scene),
            (phase, event) => return Err(Breach { phase, event }),
        };
        Ok(Transition { at, event, plan, edit, next, action })
    }

    // --- the way to the next call ---------------------------------------------------------

    /// Starts a turn: the tools are done, or the run begins.
    pub(super) fn next_turn(self, scene: Scene<'_>) -> Outcome {
        Self { cap: Cap::First, ..self }.same_turn_continues(scene)
    }

    /// Asks for one more reply. Every reply that enters the history is paid for as a turn.
    pub(super) fn same_turn_continues(self, scene: Scene<'_>) -> Outcome {
        if self.late(scene) {
            return self.stop(StopReason::Deadline);
        }
        let Some(budgets) = self.budgets.spend(Budget::Turn) else {
            return self.stop(StopReason::MaxTurns);
        };
        let run = Self { budgets, ..self };
        let time_to_wrap_up = scene.limits.wrap_up.is_some_and(|moment| scene.at >= moment);
        if budgets.turns == Some(0) {
            run.call(Call::Reply, scene).saying(Nudge::LastTurn)
        } else if time_to_wrap_up && !run.wrapping_up {
            Self { wrapping_up: true, ..run }.call(Call::Reply, scene).saying(Nudge::WrapUp)
        } else {
            run.call(Call::Reply, scene)
        }
    }

    /// Prepares a call, or first waits out what the server asked for.
    pub(super) fn call(self, call: Call, scene: Scene<'_>) -> Outcome {
        if scene.at < self.not_before {
            let why = Pause { class: ErrorClass::RateLimit, retry: self.failures, of: None };
            return self.rest(self.not_before, why, call, scene);
        }
        if self.late(scene) {
            return self.stop(StopReason::Deadline);
        }
        match call {
            Call::Reply => self.enter(Phase::Weighing).doing(Action::Weigh { rung: self.rung }),
            Call::Credentials => {
                self.enter(Phase::Calling(Call::Credentials)).doing(Action::Refresh)
            }
        }
    }

    /// Makes the call if its worst case fits the budget, with a smaller output cap if need be.
    fn ask(self, weight: Weight, scene: Scene<'_>) -> Outcome {
        let caps = &scene.limits.caps;
        let whole = self.asks_whole(scene.limits);
        let wanted = match self.cap {
            Cap::First => caps.first,
            Cap::Escalated => caps.escalated,
        };
        let wanted = wanted.min(weight.ceiling).min(if whole { caps.whole } else { u32::MAX });
        let affordable = weight.affordable();
        if affordable < u64::from(caps.floor.min(wanted)) {
            return self.stop(StopReason::MaxBudgetUsd);
        }
        let ask = Ask {
            rung: self.rung,
            cap: wanted.min(u32::try_from(affordable).unwrap_or(u32::MAX)),
            mode: if whole { Mode::Whole } else { Mode::Streaming },
            connection: self.connection,
            attempt: self.failures.saturating_add(1),
        };
        self.enter(Phase::Calling(Call::Reply)).doing(Action::Ask(ask))
    }

    /// Starts a pause, unless it would outlast the deadline.
    pub(super) fn rest(self, until: Moment, why: Pause, then: Call, scene: Scene<'_>) -> Outcome {
        if scene.limits.deadline.is_some_and(|deadline| until >= deadline) {
            return self.stop(StopReason::Deadline);
        }
        self.enter(Phase::Pausing { until, why, then }).wait(until, scene)
    }

    /// Waits in steps no longer than a heartbeat, so that silence never looks like death to
    /// whoever watches the run.
    fn wait(self, until: Moment, scene: Scene<'_>) -> Outcome {
        self.doing(Action::Wait { until: until.min(scene.at.after(scene.limits.heartbeat)) })
    }

    // --- small things ---------------------------------------------------------------------

    /// Chooses a cure and pays for it.
    pub(super) fn choose(self, setback: Setback, scene: Scene<'_>) -> (Self, RecoveryPlan) {
        let chosen = plan(setback, &self, scene.at, scene.limits);
        let budgets = chosen.price().and_then(|price| self.budgets.spend(price));
        (Self { budgets: budgets.unwrap_or(self.budgets), ..self }, chosen)
    }

    /// The call was answered.
    pub(super) fn settle(self, scene: Scene<'_>) -> Self {
        let first_try = self.failures == 0;
        let torn = if self.asks_whole(scene.limits) { self.torn.saturating_sub(1) } else { 0 };
        Self {
            budgets: self.budgets.renewed_by_success(&scene.limits.budgets, first_try),
            failures: 0,
            overloads: 0,
            torn,
            connection: Connection::Pooled,
            ..self
        }
    }

    /// The reply ended as replies should.
    pub(super) fn ended(self, scene: Scene<'_>) -> Self {
        Self { budgets: self.budgets.renewed_by_turn(&scene.limits.budgets), ..self }
    }

    /// Counts output tokens towards the token budget. Enough of them show that nudging helps.
    pub(super) fn credit(self, tokens: u32) -> Self {
        if self.effort_left == 0 {
            return self;
        }
        let since_nudge = self.since_nudge.saturating_add(tokens).min(NUDGE_WORTH);
        let nudges =
            if since_nudge == NUDGE_WORTH { Budgets::DEFAULT.nudges } else { self.budgets.nudges };
        Self {
            effort_left: self.effort_left.saturating_sub(tokens),
            since_nudge,
            budgets: Budgets { nudges, ..self.budgets },
            ..self
        }
    }

    pub(super) fn asks_whole(self, limits: &Limits) -> bool {
        self.torn >= limits.torn_streams_per_whole
    }

    pub(super) fn late(self, scene: Scene<'_>) -> bool {
        scene.limits.deadline.is_some_and(|deadline| scene.at >= deadline)
    }

    pub(super) fn stop(self, reason: StopReason) -> Outcome {
        self.enter(Phase::Stopped(reason)).doing(Action::Finish(reason))
    }

    pub(super) fn enter(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    pub(super) fn doing(self, action: Action) -> Outcome {
        Outcome { run: self, plan: None, edit: Edit::default(), action }
    }
}

impl Outcome {
    pub(super) fn with(self, reply: Fate) -> Self {
        Self { edit: Edit { reply, ..self.edit }, ..self }
    }

    /// Adds a message for the model. One that is already there is more urgent, and a run that
    /// stopped has nobody left to tell.
    pub(super) fn saying(self, nudge: Nudge) -> Self {
        if matches!(self.action, Action::Finish(_)) {
            return self;
        }
        Self { edit: Edit { say: self.edit.say.or(Some(nudge)), ..self.edit }, ..self }
    }

    pub(super) fn by(self, plan: RecoveryPlan) -> Self {
        Self { plan: Some(plan), ..self }
    }
}
