//! Resumes a run in a new process.

use super::event::ConnectionChoice;
use super::state::{Attempts, CompactionState, Fast, Phase, PreferredModel, Run, Streaming};
use super::{Budgets, Limits, Moment};

impl Run {
    /// A run that continues in a new process: spent budgets stay spent, and an awaited reply is
    /// requested again. No call has failed in it yet, and moments start again at zero, so an
    /// earlier retry-after is void.
    pub fn resumed(self) -> Self {
        Self {
            phase: Phase::Ready,
            connection: ConnectionChoice::Pooled,
            attempts: Attempts::default(),
            streaming: Streaming::default(),
            shared_wait_until: Moment::default(),
            preferred: PreferredModel {
                retry_at: self.preferred.retry_at.map(|_| Moment::default()),
                ..PreferredModel::default()
            },
            fast: if self.fast == Fast::Off { Fast::Off } else { Fast::On },
            compaction: CompactionState::default(),
            asked_about_work: false,
            wrapping_up: false,
            quota_ended: false,
            ..self
        }
    }

    /// A run that ended without success and continues with the same prompt. The budgets of the
    /// prompt stay spent: turns, tries at the answer and at the requirement, effort, the larger
    /// output limit. So do those of the session, as for a new prompt: resuming is not a way around
    /// them. The budgets of recoveries are full again, since this is another attempt.
    pub fn reopened(self, before: Option<&Limits>, limits: &Limits) -> Self {
        let fresh = self.for_new_prompt(before, limits);
        let budgets = Budgets {
            turns: self.budgets.turns,
            escalations: self.budgets.escalations,
            nudges: self.budgets.nudges,
            schema_tries: self.budgets.schema_tries,
            requirement_tries: self.budgets.requirement_tries,
            reports: self.budgets.reports,
            objections: self.budgets.objections,
            reminders: self.budgets.reminders,
            ..fresh.budgets
        };
        let Self { cap, effort, kept_answer, has_output, .. } = self;
        Self { budgets, cap, effort, kept_answer, has_output, ..fresh }
    }

    /// A run for a new prompt of the same session: budgets of the session stay spent, and fast mode
    /// stays off once it was disabled. `before` are the limits of the earlier prompt; the budget of
    /// compactions is full again if its limit has changed.
    pub fn for_new_prompt(self, before: Option<&Limits>, limits: &Limits) -> Self {
        let fresh = Self::new(self.seed, limits);
        let Budgets { compactions, cool_downs, fast_mode, .. } = self.budgets;
        let is_same =
            before.is_some_and(|before| before.budgets.compactions == limits.budgets.compactions);
        let compactions = if is_same { compactions } else { limits.budgets.compactions };
        let budgets = Budgets { compactions, cool_downs, fast_mode, ..fresh.budgets };
        Self { budgets, fast: if fast_mode > 0 { fresh.fast } else { Fast::Off }, ..fresh }
    }

    /// A run that begins with the calls of the last reply, which a hook had deferred.
    pub fn awaiting_tools(self) -> Self {
        self.without_answer().enter(Phase::Working)
    }
}
