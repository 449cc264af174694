//! Half-open probes: they detect during a wait for capacity that the service is back.
//!
//! The back-off keeps real requests, which may be large, minutes apart while the service has no
//! capacity. A probe is the smallest request that shows capacity. It is sent every
//! [`probe_interval`](crate::recovery::Limits::probe_interval) within such a wait:
//!
//! ```text
//!          WaitEnded, a probe is due         answered
//! Pausing ───────────────────────────► Probing ───────────► Pausing (briefly) ─► Estimating
//!    ▲                                    │
//!    └─────── failed, or not sent ────────┘
//! ```
//! While a fallback model is in use, every second probe is for the preferred model, and an answer
//! leads back to it. A failed probe does not change the wait, unless the server sends a
//! retry-after. An answered one ends it, at the price of an early return: a service that answers
//! probes but refuses requests soon gets no more of either than the back-off allows.

use super::backoff::part;
use super::event::{Action, Probed, ReplyDisposition};
use super::failure_transitions::allowed_from;
use super::recovery_table::{RetryDistance, distance};
use super::state::{Attempts, Call, Pause, Phase, PreferredModel, Run};
use super::step::{StepContext, StepOutcome, WAIT_MIN};
use super::{Budgets, Failure, Limits, Moment, RecoveryCause, RecoveryPlan, RetryHint, StopReason};
use crate::types::ProbeFinding;

/// A wait for capacity.
#[derive(Clone, Copy)]
pub(super) struct CapacityWait {
    pub(super) until: Moment,
    pub(super) why: Pause,
    pub(super) then: Call,
}

/// A probe that was sent: its time and its model.
#[derive(Clone, Copy)]
pub(super) struct SentProbe {
    pub(super) since: Moment,
    pub(super) model_index: u8,
}

impl Run {
    /// Begins or continues a wait in which the next probe is due at `probe_at`.
    pub(super) fn wait_with_probes(
        self,
        wait: CapacityWait,
        probe_at: Option<Moment>,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let CapacityWait { until, why, then } = wait;
        let probe_at = probe_at.filter(|&probe_at| probe_at < until);
        let piece = probe_at.map_or(until, |probe_at| probe_at.max(context.at.after(WAIT_MIN)));
        self.enter(Phase::Pausing { until, why, then, probe_at }).wait(piece, context)
    }

    /// Time of the first probe in a wait that begins now. `None` without probes and for a
    /// credential: a probe is a request to the model.
    pub(super) fn first_probe(self, then: Call, context: StepContext<'_>) -> Option<Moment> {
        match then {
            Call::Ask(_) => self.next_probe(context.at, context.limits),
            Call::Refresh(_) => None,
        }
    }

    /// Time of the next probe: one interval after `since`, or up to a fifth less, so that hosts
    /// that failed together do not probe together; never before the server's retry-after.
    fn next_probe(self, since: Moment, limits: &Limits) -> Option<Moment> {
        let interval = limits.probe_interval?;
        let [nth, _] = self.budgets.capacity_probes.to_le_bytes();
        let pause = interval.saturating_sub(part(interval / 5, self.seed, nth));
        Some(since.after(pause).max(self.attempts.not_before))
    }

    /// Handles the end of one piece of a wait: makes the call, sends a probe, or begins the next
    /// piece.
    pub(super) fn on_wait_ended(
        self,
        wait: CapacityWait,
        probe_at: Option<Moment>,
        context: StepContext<'_>,
    ) -> StepOutcome {
        if context.at >= wait.until {
            return self.call(wait.then, context);
        }
        if context.is_late() {
            return self.stop(StopReason::Deadline);
        }
        if probe_at.is_none_or(|probe_at| context.at < probe_at) {
            return self.wait_with_probes(wait, probe_at, context);
        }
        let cause = RecoveryCause::ProbeDue;
        let (run, chosen) = self.choose_plan(cause, context);
        if chosen != RecoveryPlan::Probe {
            return run.wait_with_probes(wait, None, context);
        }
        let CapacityWait { until, why, then } = wait;
        let model_index = run.model_to_probe(context.at);
        let probing = Phase::Probing { until, why, then, since: context.at, model_index };
        run.enter(probing).doing(Action::Probe { model_index }).by(cause, chosen)
    }

    /// The model in use or, every second time, the preferred one, which may be back first.
    fn model_to_probe(self, at: Moment) -> u8 {
        let may_return = self.preferred.retry_at.is_some_and(|earliest| earliest <= at);
        let is_second = self.budgets.capacity_probes.is_multiple_of(2);
        if may_return && is_second { 0 } else { self.model_index }
    }

    /// Handles the result of a probe.
    pub(super) fn on_probe(
        self,
        wait: CapacityWait,
        probe: SentProbe,
        probed: Probed,
        context: StepContext<'_>,
    ) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline);
        }
        match probed {
            Probed::Answered => {
                let [nth, _] = self.budgets.capacity_probes.to_le_bytes();
                let spread = context.limits.probe_interval.unwrap_or_default() / 10;
                let turn = context.at.after(part(spread, self.seed, nth));
                self.return_early(turn, probe.model_index, wait, context)
            }
            Probed::AnsweredElsewhere { turn } => {
                self.unsent().return_early(turn, probe.model_index, wait, context)
            }
            Probed::Failed(failure) if probe.model_index != self.model_index => {
                self.preferred_still_out(failure, wait, probe.since, context)
            }
            Probed::Failed(failure) => self.probe_failed(failure, wait, probe.since, context),
            Probed::Deferred { until } => {
                self.unsent().wait_with_probes(wait, Some(until), context)
            }
            Probed::Unaffordable => self.unsent().wait_with_probes(wait, None, context),
        }
    }

    /// Refunds a probe that was not sent.
    fn unsent(self) -> Self {
        let capacity_probes = self.budgets.capacity_probes.saturating_add(1);
        Self { budgets: Budgets { capacity_probes, ..self.budgets }, ..self }
    }

    /// Makes the call at `turn`, before the end of the back-off, to the model that has capacity
    /// again, if the budget allows it.
    fn return_early(
        self,
        turn: Moment,
        model_index: u8,
        wait: CapacityWait,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let cause = RecoveryCause::CapacityBack;
        let (run, chosen) = self.choose_plan(cause, context);
        if chosen != RecoveryPlan::ReturnEarly {
            return run.wait_with_probes(wait, None, context);
        }
        let run =
            if model_index == run.model_index { run } else { run.trying_preferred_model(context) };
        run.call_from(turn.min(wait.until), wait.why, wait.then, context).by(cause, chosen)
    }

    /// Handles a failed probe of the preferred model, which is not in use: it has no capacity
    /// either.
    fn preferred_still_out(
        self,
        failure: Failure,
        wait: CapacityWait,
        since: Moment,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let earliest = allowed_from(failure, self.seed, self.attempts.failures, context);
        let retry_at = failure.is_temporary().then_some(earliest);
        let run = Self { preferred: PreferredModel { retry_at, ..self.preferred }, ..self };
        run.wait_with_probes(wait, run.next_probe(since, context.limits), context)
    }

    fn probe_failed(
        self,
        failure: Failure,
        wait: CapacityWait,
        since: Moment,
        context: StepContext<'_>,
    ) -> StepOutcome {
        // A retry-after that long is handled as if the call itself had failed.
        if distance(failure, context.at, context.limits) != RetryDistance::Near {
            let calling = self.enter(Phase::Calling(wait.then));
            return calling.on_failure(wait.then, failure, context).with(ReplyDisposition::Absent);
        }
        let allowed = allowed_from(failure, self.seed, self.attempts.failures, context);
        let not_before = self.attempts.not_before.max(allowed);
        let run = Self { attempts: Attempts { not_before, ..self.attempts }, ..self };
        let wait = CapacityWait { until: wait.until.max(not_before), ..wait };
        match classify_probe_failure(failure) {
            ProbeFinding::Answers => run.return_early(context.at, run.model_index, wait, context),
            ProbeFinding::RefusesProbes => {
                let budgets = Budgets { capacity_probes: 0, ..run.budgets };
                Self { budgets, ..run }.wait_with_probes(wait, None, context)
            }
            ProbeFinding::StillOut => {
                run.wait_with_probes(wait, run.next_probe(since, context.limits), context)
            }
        }
    }
}

impl StepOutcome {
    /// Schedules probes during a wait, from `probe_at` on.
    pub(super) fn probing_from(self, probe_at: Option<Moment>, context: StepContext<'_>) -> Self {
        let Phase::Pausing { until, why, then, .. } = self.run.phase else { return self };
        let wait = CapacityWait { until, why, then };
        let Self { recovery, edit, run, .. } = self;
        Self { recovery, edit, ..run.wait_with_probes(wait, probe_at, context) }
    }
}

fn classify_probe_failure(failure: Failure) -> ProbeFinding {
    if failure.retry_hint == Some(RetryHint::Stop) {
        return ProbeFinding::RefusesProbes;
    }
    failure.class.info().probe
}
