//! Waiting for a rate limit that other runs of the same host have met.

use std::time::Duration;

use super::machine::{StepOutcome, StepContext};
use super::state::{Call, Pause, Phase, Run};
use super::{Budget, Budgets, ErrorClass, Moment};

impl Run {
    /// Whether a request may be held back for the sake of others.
    pub(super) fn may_wait_for_shared_limit(self) -> bool {
        self.budgets.shared_limit_waits > 0
    }

    /// Waits until others say that the service has room again.
    ///
    /// They say so in a file, and a file must not end a run, nor keep it for ever: all such waits
    /// of a call together are no longer than one for the service itself may be, nor too many, and
    /// none goes beyond the deadline. After that, requests are made whatever others say, until one
    /// is answered.
    pub(super) fn wait_for_shared_limit(self, until: Moment, call: Call, scene: StepContext<'_>) -> StepOutcome {
        let first = self.budgets.shared_limit_waits == scene.limits.budgets.shared_limit_waits;
        let patience = scene.at.after(scene.limits.max_retry_wait);
        let yields_until = if first { patience } else { self.shared_wait_until };
        let late = scene.limits.deadline.is_some_and(|deadline| until >= deadline);
        if late || until > yields_until {
            let budgets = Budgets { shared_limit_waits: 0, ..self.budgets };
            return Self { budgets, ..self }.call(call, scene);
        }
        let budgets = self.budgets.spend(Budget::SharedLimitWait).unwrap_or(self.budgets);
        let run = Self { budgets, shared_wait_until: yields_until, ..self };
        let why = Pause { class: ErrorClass::RateLimit, retry: 0, of: None };
        // A moment that has passed already is no reason to go round without a wait.
        let until = until.max(scene.at.after(SHORTEST));
        run.enter(Phase::Pausing { until, why, then: call, probe_at: None }).wait(until, scene)
    }
}

/// The shortest wait.
const SHORTEST: Duration = Duration::from_millis(1);
