//! Going on in a new process with a run that another one left.

use super::event::ConnectionChoice;
use super::state::{Compaction, Fast, Phase, Run};
use super::{Budgets, Limits, Moment};

impl Run {
    /// A run that goes on in a new process: what was spent stays spent, what was awaited is
    /// asked for anew. Moments start again at zero, so an earlier wish no longer means anything.
    #[must_use]
    pub fn resumed(self) -> Self {
        Self {
            phase: Phase::Ready,
            connection: ConnectionChoice::Pooled,
            not_before: Moment::default(),
            shared_wait_until: Moment::default(),
            fallback_from: None,
            preferred_model_after: Moment::default(),
            fast: if self.fast == Fast::Off { Fast::Off } else { Fast::On },
            compaction: Compaction::Idle,
            useless_compactions: 0,
            asked_about_work: false,
            wrapping_up: false,
            ..self
        }
    }

    /// A run that came to an end without success and goes on with the same prompt. What its prompt
    /// was allowed stays spent: turns, tries at the answer and at the requirement, effort. What
    /// recoveries may spend is full again: a later time is another try.
    #[must_use]
    pub fn reopened(self, limits: &Limits) -> Self {
        let fresh = Self::new(self.seed, limits);
        let Budgets { turns, nudges, schema_tries, requirement_tries: amendments, reports, objections, .. } =
            self.budgets;
        let budgets = Budgets {
            turns,
            nudges,
            schema_tries,
            requirement_tries: amendments,
            reports,
            objections,
            ..fresh.budgets
        };
        let (effort_left, since_nudge) = (self.effort_left, self.since_nudge);
        Self { budgets, effort_left, since_nudge, ..fresh }
    }

    /// A run whose answer waits for the hooks of Stop or the command of `--require`, and for
    /// nothing else.
    #[must_use]
    pub fn awaiting_acceptance(self, limits: &Limits) -> Self {
        self.enter(if limits.stop_hooks { Phase::RunningStopHooks } else { Phase::RunningRequirement })
    }
}
