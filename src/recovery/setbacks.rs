//! Where a reply or a failure leads: every recovery path, in one place.

use super::backoff::courtesy;
use super::event::{Action, Connection, Cut, Fate, Reply};
use super::machine::{Call, Cap, FAILURES_MAX, Outcome, Pause, Phase, Run, Scene};
use super::plan::TRANSIENT;
use super::{
    Budgets, ErrorClass, Failure, Ladder, Moment, Nudge, Persistence, RecoveryPlan, Setback,
    StopReason,
};

impl Run {
    pub(super) fn hear(self, reply: Reply, scene: Scene<'_>) -> Outcome {
        match reply {
            Reply::Answer { tokens } => self.settle(scene).ended(scene).answer(tokens, scene),
            Reply::ToolCalls { tokens } => {
                self.settle(scene).ended(scene).credit(tokens).work(scene)
            }
            Reply::Refusal => self.settle(scene).stop(StopReason::Refusal).with(Fate::Keep),
            Reply::CutShort(cut) => self.settle(scene).go_on(cut, scene),
            Reply::Paused => self.settle(scene).resume(scene),
            Reply::Empty => self.ask_again(scene),
        }
    }

    /// Takes an answer for the end, unless the token budget asks for more.
    fn answer(self, tokens: u32, scene: Scene<'_>) -> Outcome {
        let run = self.credit(tokens);
        if run.effort_left == 0 {
            return run.stop(StopReason::Completed).with(Fate::Keep);
        }
        match run.choose(Setback::Idle, scene) {
            (run, RecoveryPlan::Stop(reason)) => run.stop(reason).with(Fate::Keep),
            (run, chosen) => Self { since_nudge: 0, ..run }
                .next_turn(scene)
                .saying(Nudge::MoreEffort)
                .with(Fate::Keep)
                .by(chosen),
        }
    }

    fn work(self, scene: Scene<'_>) -> Outcome {
        if self.late(scene) {
            return self.stop(StopReason::Deadline).with(Fate::Keep);
        }
        self.enter(Phase::Working).doing(Action::RunTools).with(Fate::Keep)
    }

    /// Recovers from a reply that hit the output limit (SPEC 9).
    fn go_on(self, cut: Cut, scene: Scene<'_>) -> Outcome {
        let (run, chosen) = self.choose(Setback::CutShort, scene);
        let outcome = match chosen {
            RecoveryPlan::Stop(reason) => run.stop(reason).with(Fate::Keep),
            RecoveryPlan::Escalate => {
                Self { cap: Cap::Escalated, ..run }.call(Call::Reply, scene).with(Fate::Drop)
            }
            RecoveryPlan::Continue
            | RecoveryPlan::RetryAtOnce { .. }
            | RecoveryPlan::Retry { .. }
            | RecoveryPlan::WaitForCapacity
            | RecoveryPlan::SwitchModel
            | RecoveryPlan::Refresh
            | RecoveryPlan::AskAgain
            | RecoveryPlan::Resume
            | RecoveryPlan::Nudge => {
                run.same_turn_continues(scene).saying(Nudge::Continue(cut)).with(Fate::Keep)
            }
        };
        outcome.by(chosen)
    }

    fn resume(self, scene: Scene<'_>) -> Outcome {
        let (run, chosen) = self.choose(Setback::Paused, scene);
        let outcome = match chosen {
            RecoveryPlan::Stop(reason) => run.stop(reason),
            _paid => run.same_turn_continues(scene),
        };
        outcome.with(Fate::Keep).by(chosen)
    }

    fn ask_again(self, scene: Scene<'_>) -> Outcome {
        let (run, chosen) = self.choose(Setback::Empty, scene);
        let outcome = match chosen {
            RecoveryPlan::Stop(reason) => run.stop(reason),
            _paid => {
                let full = scene.limits.budgets.empty_replies;
                let retry = full.saturating_sub(run.budgets.empty_replies);
                let why = Pause { class: ErrorClass::EmptyResponse, retry, of: Some(full) };
                let until = scene.at.after(scene.limits.ladder.pause(run.seed, retry));
                run.rest(until, why, Call::Reply, scene)
            }
        };
        outcome.with(Fate::Drop).by(chosen)
    }

    // --- what a failure leads to ----------------------------------------------------------

    pub(super) fn recover(self, call: Call, failure: Failure, scene: Scene<'_>) -> Outcome {
        let (run, chosen) = self.count(failure, scene).choose(Setback::Failed(failure), scene);
        let outcome = match chosen {
            RecoveryPlan::Stop(reason) => run.stop(reason),
            RecoveryPlan::Refresh => run.call(Call::Credentials, scene),
            RecoveryPlan::SwitchModel => run.change_model(scene).call(call, scene),
            RecoveryPlan::RetryAtOnce { .. } => run.call(call, scene),
            RecoveryPlan::WaitForCapacity => run.wait_for_capacity(call, failure, scene),
            RecoveryPlan::Retry { .. }
            | RecoveryPlan::Escalate
            | RecoveryPlan::Continue
            | RecoveryPlan::AskAgain
            | RecoveryPlan::Resume
            | RecoveryPlan::Nudge => run.back_off(call, failure, scene),
        };
        outcome.with(Fate::Drop).by(chosen)
    }

    fn back_off(self, then: Call, failure: Failure, scene: Scene<'_>) -> Outcome {
        let full = scene.limits.budgets.retries;
        let retry = full.saturating_sub(self.budgets.retries);
        let why = Pause { class: failure.class, retry, of: Some(full) };
        let pause = scene.limits.ladder.pause(self.seed, self.failures);
        let until = if failure.wish.is_some() { self.not_before } else { scene.at.after(pause) };
        self.rest(until, why, then, scene)
    }

    /// Waits without a count. An empty bucket makes the wait as long as waits get.
    fn wait_for_capacity(self, then: Call, failure: Failure, scene: Scene<'_>) -> Outcome {
        let longest = scene.limits.longest_capacity_wait;
        let paid = self.budgets.bucket.checked_sub(TRANSIENT);
        let ladder = Ladder { longest, ..scene.limits.ladder };
        let pause = if paid.is_some() { ladder.pause(self.seed, self.failures) } else { longest };
        let until = if failure.wish.is_some() { self.not_before } else { scene.at.after(pause) };
        let why = Pause { class: failure.class, retry: self.failures, of: None };
        let budgets = Budgets { bucket: paid.unwrap_or(self.budgets.bucket), ..self.budgets };
        Self { budgets, ..self }.rest(until, why, then, scene)
    }

    fn change_model(self, scene: Scene<'_>) -> Self {
        Self {
            rung: self.rung.saturating_add(1),
            budgets: self.budgets.renewed_by_switch(&scene.limits.budgets),
            failures: 0,
            overloads: 0,
            torn: 0,
            not_before: Moment::default(),
            ..self
        }
    }

    fn count(self, failure: Failure, scene: Scene<'_>) -> Self {
        let limits = scene.limits;
        let patience = limits.overloads_per_switch.max(limits.overload_limit.unwrap_or(0));
        let overloads = match failure.class {
            ErrorClass::ServerOverload => self.overloads.saturating_add(1).min(patience),
            _other => 0,
        };
        let torn = if failure.broke_before_a_block() {
            self.torn.saturating_add(1).min(limits.torn_streams_per_whole)
        } else {
            0
        };
        let torn = if self.asks_whole(limits) { self.torn } else { torn };
        let failures = self.failures.saturating_add(1).min(FAILURES_MAX);
        let exactly = limits.persistence != Persistence::Off;
        let asked =
            failure.wish.map(|wish| scene.at.after(courtesy(self.seed, failures, wish, exactly)));
        Self {
            failures,
            overloads,
            torn,
            connection: Connection::after(failure.reach),
            not_before: self.not_before.max(asked.unwrap_or_default()),
            ..self
        }
    }
}
