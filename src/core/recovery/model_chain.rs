//! Selects the model of the chain and its speed.

use super::budget::Renewal;
use super::event::CallPurpose;
use super::state::{Attempts, Call, Fast, Pause, PreferredModel, Run, Streaming};
use super::step::{StepContext, StepOutcome};
use super::{Budgets, ErrorClass, Failure, RecoveryPlan};

impl Run {
    /// Changes to another model and resets the state of the last one: its overloads and its
    /// retry-after do not apply. Takes the next of the chain, or returns to the one in use before
    /// the preferred one was tried again. `failure` is the cause, unless it was a reply.
    pub(super) fn change_model(self, failure: Option<Failure>, context: StepContext<'_>) -> Self {
        let away_until = context.limits.fallback_return.map(|pause| context.at.after(pause));
        let next = self.preferred.fallback_from.unwrap_or(self.model_index.saturating_add(1));
        let renewed = self.budgets.renewed_by(Renewal::Switch, &context.limits.budgets);
        // Limits the returns to a model that answers probes but refuses calls.
        let early_returns = match self.preferred.fallback_from {
            Some(_) => self.budgets.early_returns,
            None => renewed.early_returns,
        };
        let budgets = Budgets { early_returns, ..renewed };
        let is_temporary = failure.is_none_or(Failure::is_temporary);
        let retry_at = match self.model_index {
            0 => is_temporary.then_some(self.attempts.not_before),
            _ => self.preferred.retry_at,
        };
        let not_before = away_until.unwrap_or_default();
        Self {
            preferred: PreferredModel { fallback_from: None, not_before, retry_at },
            budgets,
            attempts: Attempts::default(),
            ..self.moving_to(next, context)
        }
    }

    /// Changes the model index. The stream statistics belong to the endpoint, not to the model; a
    /// refusal of streaming is about the model.
    fn moving_to(self, model_index: u8, context: StepContext<'_>) -> Self {
        let streaming = if context.limits.share_endpoint(self.model_index, model_index) {
            Streaming { is_refused: false, ..self.streaming }
        } else {
            Streaming::default()
        };
        Self { model_index, streaming, ..self }
    }

    /// True if the preferred model is to be tried again now (`--fallback-return`).
    pub(super) fn is_preferred_model_due(self, context: StepContext<'_>) -> bool {
        self.model_index > 0
            && context.limits.fallback_return.is_some()
            && context.at >= self.preferred.not_before
            && self.budgets.turns != Some(0)
            && !context.is_late()
            && self.pay(RecoveryPlan::ReturnToPreferredModel).is_some()
    }

    /// Goes back to the preferred model, and leaves it again at once if it still fails.
    pub(super) fn trying_preferred_model(self, context: StepContext<'_>) -> Self {
        Self {
            preferred: PreferredModel { fallback_from: Some(self.model_index), ..self.preferred },
            budgets: self.budgets.renewed_by(Renewal::Return, &context.limits.budgets),
            attempts: Attempts::default(),
            ..self.moving_to(0, context)
        }
    }

    /// Asks the preferred model once more before a fallback model ends the run. The counters are
    /// kept, and no other model is tried before it answers.
    pub(super) fn retry_preferred_model(
        self,
        class: ErrorClass,
        purpose: CallPurpose,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let not_before = self.preferred.retry_at.unwrap_or_default();
        let attempts = Attempts { not_before, ..self.attempts };
        let preferred = PreferredModel { retry_at: None, ..self.preferred };
        let budgets = Budgets { switches: 0, ..self.budgets };
        let run = Self { budgets, preferred, attempts, ..self.moving_to(0, context) };
        run.call_after_pause(Pause::once(class), Call::Ask(purpose), context)
    }

    /// Resumes fast mode at the start of a turn.
    pub(super) fn resume_fast_mode(self, context: StepContext<'_>) -> Self {
        match self.fast {
            Fast::Cooling { until } if context.at >= until => Self { fast: Fast::On, ..self },
            Fast::Cooling { .. } | Fast::On | Fast::Off => self,
        }
    }

    /// Continues at normal speed at once: the shortage concerned fast mode only. `before` is the
    /// run without this failure.
    pub(super) fn cool_down(
        self,
        before: Self,
        failure: Failure,
        purpose: CallPurpose,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let rules = context.limits.fast.unwrap_or_default();
        let cool_down = match failure.retry_after {
            Some(retry_after) => retry_after.wait.max(rules.cool_down),
            None => rules.unknown,
        };
        let until = context.at.after(cool_down);
        self.slow_down(Fast::Cooling { until }, before, purpose, context)
    }

    pub(super) fn slow_down(
        self,
        fast: Fast,
        before: Self,
        purpose: CallPurpose,
        context: StepContext<'_>,
    ) -> StepOutcome {
        Self { fast, attempts: before.attempts, ..self }.call(Call::Ask(purpose), context)
    }
}
