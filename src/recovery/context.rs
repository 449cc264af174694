//! What keeps the conversation within the context window (SPEC 10).

use super::event::{CutKind, ReplyDisposition, CompactionTrigger, CallPurpose, ReplyKind, TokenEstimate};
use super::machine::{StepOutcome, StepContext};
use super::state::{Call, Compaction, Run};
use super::{Budget, Limits, RecoveryPlan, AvailableMitigations, SetbackKind, StopReason};

/// Compactions in a row that bring nothing, after which there is no point in another.
pub(super) const USELESS_MAX: u8 = 2;

impl Run {
    /// Compacts what is about to fill the window, refuses what cannot fit, and asks the rest.
    pub(super) fn preflight(self, weight: TokenEstimate, scene: StepContext<'_>) -> StepOutcome {
        if scene.is_late() {
            return self.stop(StopReason::Deadline);
        }
        let crowded = weight.is_crowded(scene.limits);
        let run = self.judge_compaction(crowded);
        if run.useless_compactions >= USELESS_MAX {
            return run.stop(StopReason::PromptTooLong);
        }
        if crowded && run.may_compact(weight.mitigations, scene.limits) {
            let (run, chosen) = run.choose_plan(SetbackKind::Crowded, scene);
            let call = Call::Ask(CallPurpose::Summary(CompactionTrigger::Threshold));
            return run.compacting(scene).call(call, scene).by(chosen);
        }
        if weight.is_full() && !run.can_make_room(weight.mitigations, scene.limits) {
            return run.stop(StopReason::BlockingLimit);
        }
        run.ask(CallPurpose::Reply, weight, scene)
    }

    /// A compaction is measured once, by the first request that follows it.
    fn judge_compaction(self, crowded: bool) -> Self {
        match self.compaction {
            Compaction::Idle | Compaction::Spent => self,
            Compaction::Done => {
                let useless = if crowded { self.useless_compactions.saturating_add(1) } else { 0 };
                Self { compaction: Compaction::Spent, useless_compactions: useless, ..self }
            }
        }
    }

    /// Whether to compact ahead of need. A call that has failed already is not the moment.
    fn may_compact(self, remedies: AvailableMitigations, limits: &Limits) -> bool {
        self.compaction == Compaction::Idle
            && self.failures == 0
            && self.compacts_ahead(limits)
            && remedies.rounds
            && self.budgets.spend(Budget::Compaction).is_some()
    }

    /// Three failures in a row switch it off for the session.
    fn compacts_ahead(self, limits: &Limits) -> bool {
        limits.auto_compact && self.budgets.failed_compactions > 0
    }

    /// Whether an overflow could still be mended. Then it is not prevented: it is what triggers
    /// the mending.
    fn can_make_room(self, remedies: AvailableMitigations, limits: &Limits) -> bool {
        let drains = remedies.folds && self.budgets.spend(Budget::FoldCommit).is_some();
        let reacts = remedies.rounds && self.budgets.spend(Budget::ReactiveCompaction).is_some();
        self.compacts_ahead(limits) || drains || reacts
    }

    /// Is about to ask for a summary.
    pub(super) fn compacting(self, scene: StepContext<'_>) -> Self {
        Self { budgets: self.budgets.renewed_by_compacting(&scene.limits.budgets), ..self }
    }

    /// A summary that was cut is one all the same: what must survive does not depend on it.
    pub(super) fn hear_summary(
        self,
        occasion: CompactionTrigger,
        reply: ReplyKind,
        scene: StepContext<'_>,
    ) -> StepOutcome {
        let run = self.settle(scene);
        match reply {
            ReplyKind::Answer { .. } | ReplyKind::Early { .. } | ReplyKind::CutShort(CutKind::Text) => {
                let budgets = run.budgets.renewed_by_summary(&scene.limits.budgets);
                let run = Self { budgets, compaction: Compaction::Done, ..run };
                run.call(Call::Ask(CallPurpose::Reply), scene).with(ReplyDisposition::Summary)
            }
            ReplyKind::ToolCalls { .. }
            | ReplyKind::CutShort(CutKind::ToolCall | CutKind::Thinking)
            | ReplyKind::Incomplete(_)
            | ReplyKind::Refusal
            | ReplyKind::Empty
            | ReplyKind::Paused => run.without_summary(occasion, scene).with(ReplyDisposition::Drop),
        }
    }

    /// No summary came, or none can be paid for.
    pub(super) fn without_summary(self, occasion: CompactionTrigger, scene: StepContext<'_>) -> StepOutcome {
        let (run, chosen) = self.choose_plan(SetbackKind::NoSummary(occasion), scene);
        let outcome = if let RecoveryPlan::Stop(reason) = chosen {
            run.stop(reason)
        } else {
            run.skip_compaction().call(Call::Ask(CallPurpose::Reply), scene)
        };
        outcome.by(chosen)
    }

    /// Goes on without the summary that did not come.
    pub(super) fn skip_compaction(self) -> Self {
        Self { compaction: Compaction::Spent, failures: 0, ..self }
    }
}
