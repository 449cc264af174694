//! Half-open probes: how a run that waits for capacity notices that the service is back.
//!
//! The back-off keeps real requests, which may be large, minutes apart while the service has no
//! capacity. A probe is the smallest request that shows capacity. It is sent every
//! [`probe_interval`](crate::recovery::Limits::probe_interval) within such a wait:
//!
//! ```text
//!            Woke, a probe is due          answered
//! Pausing ─────────────────────► Probing ───────────► Pausing (briefly) ─► Weighing
//!    ▲                              │
//!    └──── failed, or not sent ─────┘
//! ```
//! While a fallback model is in use, every second probe is for the preferred model, and an answer
//! leads back to it. A failed probe does not change the wait, unless the server sends a retry-after.
//! An answered one ends it, at the price of an early return: a service that answers probes but
//! refuses requests soon gets no more of either than the back-off allows.

use std::time::Duration;

use super::backoff::part;
use super::event::{Action, Probed, ReplyDisposition};
use super::failure_transitions::allowed_from;
use super::recovery_table::{RetryDistance, distance};
use super::state::{Call, Pause, Phase, Run};
use super::step::{StepContext, StepOutcome};
use super::{Budgets, Failure, Limits, Moment, RecoveryPlan, RetryHint, SetbackKind, StopReason};
use crate::types::ProbeFinding;

/// A wait for capacity.
#[derive(Clone, Copy)]
pub(super) struct CapacityWait {
    pub(super) until: Moment,
    pub(super) why: Pause,
    pub(super) then: Call,
}

/// A probe that was sent: when, and to which model.
#[derive(Clone, Copy)]
pub(super) struct SentProbe {
    pub(super) since: Moment,
    pub(super) rung: u8,
}

impl Run {
    /// Begins or continues a wait in which the next probe is due at `probe_at`.
    pub(super) fn wait_with_probes(
        self,
        wait: CapacityWait,
        probe_at: Option<Moment>,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        let CapacityWait { until, why, then } = wait;
        let probe_at = probe_at.filter(|&probe_at| probe_at < until);
        let piece = probe_at.map_or(until, |probe_at| probe_at.max(scene.at.after(SHORTEST)));
        self.enter(Phase::Pausing { until, why, then, probe_at }).wait(piece, scene)
    }

    /// When a wait that begins now is first interrupted by a probe. Not before the server's
    /// retry-after, and not for a credential: a probe asks the model.
    pub(super) fn first_probe(self, then: Call, scene: StepContext<'_>) -> Option<Moment> {
        match then {
            Call::Ask(_) => Some(self.next_probe(scene.at, scene.limits)?.max(self.not_before)),
            Call::Refresh(_) => None,
        }
    }

    /// One interval after `since`, or up to a fifth less, so that hosts that failed together do not
    /// probe together.
    fn next_probe(self, since: Moment, limits: &Limits) -> Option<Moment> {
        let interval = limits.probe_interval?;
        let [nth, _] = self.budgets.capacity_probes.to_le_bytes();
        Some(since.after(interval.saturating_sub(part(interval / 5, self.seed, nth))))
    }

    /// Handles the end of a piece of a wait: the call, a probe, or the next piece.
    pub(super) fn woke(
        self,
        wait: CapacityWait,
        probe_at: Option<Moment>,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        if scene.at >= wait.until {
            return self.call(wait.then, scene);
        }
        if scene.is_late() {
            return self.stop(StopReason::Deadline);
        }
        if probe_at.is_none_or(|probe_at| scene.at < probe_at) {
            return self.wait_with_probes(wait, probe_at, scene);
        }
        let (run, chosen) = self.choose_plan(SetbackKind::ProbeDue, scene);
        if chosen != RecoveryPlan::Probe {
            return run.wait_with_probes(wait, None, scene);
        }
        let CapacityWait { until, why, then } = wait;
        let rung = run.model_to_probe(scene.at);
        let probing = Phase::Probing { until, why, then, since: scene.at, rung };
        run.enter(probing).doing(Action::Probe { rung }).by(chosen)
    }

    /// The model in use, and every second time the preferred one: it may be back first.
    fn model_to_probe(self, at: Moment) -> u8 {
        let may_return = self.preferred_retry_at.is_some_and(|earliest| earliest <= at);
        let is_second = self.budgets.capacity_probes.is_multiple_of(2);
        if may_return && is_second { 0 } else { self.model_index }
    }

    /// Handles the result of a probe.
    pub(super) fn probed(
        self,
        wait: CapacityWait,
        probe: SentProbe,
        probed: Probed,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        if scene.is_late() {
            return self.stop(StopReason::Deadline);
        }
        match probed {
            Probed::Answered => {
                let [nth, _] = self.budgets.capacity_probes.to_le_bytes();
                let spread = scene.limits.probe_interval.unwrap_or_default() / 10;
                let turn = scene.at.after(part(spread, self.seed, nth));
                self.return_early(turn, probe.rung, wait, scene)
            }
            Probed::AnsweredElsewhere { turn } => {
                self.unsent().return_early(turn, probe.rung, wait, scene)
            }
            Probed::Failed(failure) if probe.rung != self.model_index => {
                self.preferred_still_out(failure, wait, probe.since, scene)
            }
            Probed::Failed(failure) => self.probe_failed(failure, wait, probe.since, scene),
            Probed::Deferred { until } => self.unsent().wait_with_probes(wait, Some(until), scene),
            Probed::Unaffordable => self.unsent().wait_with_probes(wait, None, scene),
        }
    }

    /// Refunds a probe that was not sent.
    fn unsent(self) -> Self {
        let capacity_probes = self.budgets.capacity_probes.saturating_add(1);
        Self { budgets: Budgets { capacity_probes, ..self.budgets }, ..self }
    }

    /// Makes the call at `turn`, before the end of the back-off, if that can be paid for: to the
    /// model that has capacity again.
    fn return_early(
        self,
        turn: Moment,
        rung: u8,
        wait: CapacityWait,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        let (run, chosen) = self.choose_plan(SetbackKind::CapacityBack, scene);
        if chosen != RecoveryPlan::ReturnEarly {
            return run.wait_with_probes(wait, None, scene);
        }
        let run = if rung == run.model_index { run } else { run.trying_preferred_model(scene) };
        run.call_from(turn.min(wait.until), wait.why, wait.then, scene).by(chosen)
    }

    /// The preferred model, which is not in use, has no capacity either.
    fn preferred_still_out(
        self,
        failure: Failure,
        wait: CapacityWait,
        since: Moment,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        let earliest = allowed_from(failure, self.seed, self.failures, scene);
        let preferred_retry_at = failure.is_temporary().then_some(earliest);
        let run = Self { preferred_retry_at, ..self };
        let next = run.next_probe(since, scene.limits);
        run.wait_with_probes(wait, next.map(|next| next.max(run.not_before)), scene)
    }

    fn probe_failed(
        self,
        failure: Failure,
        wait: CapacityWait,
        since: Moment,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        // A wait that long is decided on as if the call itself had failed with it.
        if distance(failure, scene.at, scene.limits) != RetryDistance::Near {
            let calling = self.enter(Phase::Calling(wait.then));
            return calling.recover(wait.then, failure, scene).with(ReplyDisposition::Absent);
        }
        let allowed = allowed_from(failure, self.seed, self.failures, scene);
        let run = Self { not_before: self.not_before.max(allowed), ..self };
        let wait = CapacityWait { until: wait.until.max(run.not_before), ..wait };
        match classify_probe_failure(failure) {
            ProbeFinding::Answers => run.return_early(scene.at, run.model_index, wait, scene),
            ProbeFinding::RefusesProbes => {
                let budgets = Budgets { capacity_probes: 0, ..run.budgets };
                Self { budgets, ..run }.wait_with_probes(wait, None, scene)
            }
            ProbeFinding::StillOut => {
                let next = run.next_probe(since, scene.limits);
                run.wait_with_probes(wait, next.map(|next| next.max(run.not_before)), scene)
            }
        }
    }
}

/// The shortest wait.
const SHORTEST: Duration = Duration::from_millis(1);

fn classify_probe_failure(failure: Failure) -> ProbeFinding {
    if failure.retry_hint == Some(RetryHint::Stop) {
        return ProbeFinding::RefusesProbes;
    }
    failure.class.info().probe
}
