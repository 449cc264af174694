//! Waits for rate limits that are known on this host from earlier requests, of this run or of
//! another one.

use super::state::{Call, Pause, Phase, Run};
use super::step::{StepContext, StepOutcome, WAIT_MIN};
use super::{Budget, Budgets, ErrorClass, Moment};

impl Run {
    /// True if a request may be held back for a shared rate limit.
    pub(super) fn may_wait_for_shared_limit(self) -> bool {
        self.budgets.shared_limit_waits > 0
    }

    /// Waits until the shared rate limit has passed.
    ///
    /// The limit comes from a file, and a file must neither end a run nor delay it for ever: all
    /// such waits of a call together are no longer than the longest wait for the service itself,
    /// their number is limited, and none goes beyond the deadline. After that, requests ignore
    /// shared limits until one is answered.
    pub(super) fn wait_for_shared_limit(
        self,
        until: Moment,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let first = self.budgets.shared_limit_waits == context.limits.budgets.shared_limit_waits;
        let latest = context.at.after(context.limits.max_retry_wait);
        let shared_wait_until = if first { latest } else { self.shared_wait_until };
        let late = context.limits.deadline.is_some_and(|deadline| until >= deadline);
        if late || until > shared_wait_until {
            let budgets = Budgets { shared_limit_waits: 0, ..self.budgets };
            return Self { budgets, ..self }.call(call, context);
        }
        let budgets = self.budgets.spend(Budget::SharedLimitWait).unwrap_or(self.budgets);
        let run = Self { budgets, shared_wait_until, ..self };
        let why = Pause { class: ErrorClass::RateLimit, retry: 0, of: None };
        // A moment in the past would loop without a wait.
        let until = until.max(context.at.after(WAIT_MIN));
        run.enter(Phase::Pausing { until, why, then: call, probe_at: None }).wait(until, context)
    }
}
