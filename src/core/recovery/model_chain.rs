//! Selects the model of the chain and its speed.

use super::event::CallPurpose;
use super::state::{Call, Fast, Pause, Run};
use super::step::{StepContext, StepOutcome};
use super::{Budget, Budgets, Failure, Moment};

impl Run {
    /// Changes to another model and resets the state of the last one: its overloads and its
    /// retry-after do not apply. Takes the next of the chain, or returns to the one in use before
    /// the preferred one was tried again. `failure` is the cause, unless it was a reply.
    pub(super) fn change_model(self, failure: Option<Failure>, scene: StepContext<'_>) -> Self {
        let away_until = match scene.limits.fallback_return {
            Some(pause) => scene.at.after(pause),
            None => Moment::default(),
        };
        let renewed = self.budgets.renewed_by_switch(&scene.limits.budgets);
        // A model that answers probes and refuses calls is not returned to for ever.
        let early_returns = match self.fallback_from {
            Some(_) => self.budgets.early_returns,
            None => renewed.early_returns,
        };
        let budgets = Budgets { early_returns, ..renewed };
        let passes = failure.is_none_or(Failure::is_temporary);
        let preferred_retry_at = match self.model_index {
            0 => passes.then_some(self.not_before),
            _ => self.preferred_retry_at,
        };
        Self {
            fallback_from: None,
            preferred_model_after: away_until,
            preferred_retry_at,
            budgets,
            failures: 0,
            overloads: 0,
            not_before: Moment::default(),
            ..self
                .moving_to(self.fallback_from.unwrap_or(self.model_index.saturating_add(1)), scene)
        }
    }

    /// Changes the model index. The stream statistics belong to the endpoint, not to the model.
    fn moving_to(self, rung: u8, scene: StepContext<'_>) -> Self {
        if scene.limits.share_endpoint(self.model_index, rung) {
            Self { model_index: rung, ..self }
        } else {
            Self { model_index: rung, torn_streams: 0, unstreamed_turns: 0, ..self }
        }
    }

    /// Tries the preferred model again, if it is due (`--fallback-return`). Returns whether it is.
    pub(super) fn try_preferred_model(self, scene: StepContext<'_>) -> (Self, bool) {
        let due = self.model_index > 0
            && scene.limits.fallback_return.is_some()
            && scene.at >= self.preferred_model_after
            && self.budgets.turns != Some(0)
            && !scene.is_late();
        let Some(budgets) = self.budgets.spend(Budget::Probe).filter(|_| due) else {
            return (self, false);
        };
        (Self { budgets, ..self }.trying_preferred_model(scene), true)
    }

    /// Goes back to the preferred model, and leaves it again at once if it still fails.
    pub(super) fn trying_preferred_model(self, scene: StepContext<'_>) -> Self {
        Self {
            fallback_from: Some(self.model_index),
            budgets: self.budgets.renewed_by_return(&scene.limits.budgets),
            failures: 0,
            overloads: 0,
            not_before: Moment::default(),
            ..self.moving_to(0, scene)
        }
    }

    /// Asks the preferred model once more before a fallback model ends the run. What was counted
    /// stays counted, and no other model is tried before it answers.
    pub(super) fn retry_preferred_model(
        self,
        failure: Failure,
        purpose: CallPurpose,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        let not_before = self.preferred_retry_at.unwrap_or_default();
        let budgets = Budgets { switches: 0, ..self.budgets };
        let run =
            Self { preferred_retry_at: None, not_before, budgets, ..self.moving_to(0, scene) };
        let why = Pause { class: failure.class, retry: 1, of: Some(1) };
        let pause = scene.limits.backoff.pause(self.seed, 1);
        run.call_from(scene.at.after(pause), why, Call::Ask(purpose), scene)
    }

    /// Resumes fast mode at the start of a turn.
    pub(super) fn resume_fast_mode(self, scene: StepContext<'_>) -> Self {
        match self.fast {
            Fast::Cooling { until } if scene.at >= until => Self { fast: Fast::On, ..self },
            Fast::Cooling { .. } | Fast::On | Fast::Off => self,
        }
    }

    /// Goes on at normal speed at once: the shortage concerned fast mode only. `before` is the run
    /// without this failure.
    pub(super) fn cool_down(
        self,
        before: Self,
        failure: Failure,
        purpose: CallPurpose,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        let rules = scene.limits.fast.unwrap_or_default();
        let spell = match failure.retry_after {
            Some(wish) => wish.wait.max(rules.cool_down),
            None => rules.unknown,
        };
        let until = scene.at.after(spell);
        self.slow_down(Fast::Cooling { until }, before, purpose, scene)
    }

    pub(super) fn slow_down(
        self,
        fast: Fast,
        before: Self,
        purpose: CallPurpose,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        let run = Self {
            fast,
            failures: before.failures,
            overloads: before.overloads,
            not_before: before.not_before,
            ..self
        };
        run.call(Call::Ask(purpose), scene)
    }
}
