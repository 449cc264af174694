//! Keeps the conversation within the context window.

use super::budget::Renewal;
use super::event::{
    CallPurpose, CompactionTrigger, CutKind, ReplyDisposition, ReplyKind, TokenEstimate, Trim,
};
use super::state::{Call, Compaction, CompactionState, Run};
use super::step::{StepContext, StepOutcome};
use super::{AvailableMitigations, Budget, Limits, RecoveryCause, RecoveryPlan, StopReason};

/// Consecutive compactions without progress after which the run ends.
const USELESS_MAX: u8 = 2;
/// A compaction that leaves the conversation above its threshold is progress if it removes at least
/// one part in this many.
const PART_REMOVED: u32 = 4;

impl Run {
    /// Compacts a conversation that is about to fill the window, shortens one that does not fit,
    /// ends the run if it cannot fit, and sends the request otherwise.
    pub(super) fn on_estimate(
        self,
        estimate: TokenEstimate,
        context: StepContext<'_>,
    ) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline);
        }
        let crowded = estimate.is_crowded(context.limits);
        let run = Self { compaction: self.compaction.judged(crowded, estimate.size), ..self };
        if run.compaction.is_useless() {
            return run.stop(StopReason::PromptTooLong);
        }
        if crowded && run.may_compact(estimate.mitigations, context.limits) {
            let call = Call::Ask(CallPurpose::Summary(CompactionTrigger::Threshold));
            return run.recover(RecoveryCause::Crowded, context, |run| {
                run.compacting(context).call(call, context)
            });
        }
        if estimate.is_full() {
            return run.make_room(estimate, context);
        }
        run.ask(CallPurpose::Reply, estimate, context)
    }

    /// Shortens a request that fills the window, which the service would refuse. The estimate may
    /// be too high, so if nothing can be removed, the request is sent.
    fn make_room(self, estimate: TokenEstimate, context: StepContext<'_>) -> StepOutcome {
        let cause = RecoveryCause::Full(estimate.mitigations);
        let (run, chosen) = self.choose_plan(cause, context);
        let outcome = if chosen == RecoveryPlan::CommitFolds {
            run.call(Call::REPLY, context).trimming(Trim::Folds)
        } else if chosen == RecoveryPlan::CompactReactively {
            run.with_failures(0).compacting(context).call(Call::OVERFLOW_SUMMARY, context)
        } else if !run.compacts_ahead(context.limits) {
            run.stop(StopReason::BlockingLimit)
        } else if estimate.counted {
            run.stop(StopReason::PromptTooLong)
        } else {
            return run.ask(CallPurpose::Reply, estimate, context);
        };
        outcome.by(cause, chosen)
    }

    /// True if the conversation may be compacted ahead of need. False for a call that has already
    /// failed.
    fn may_compact(self, mitigations: AvailableMitigations, limits: &Limits) -> bool {
        self.compaction.stage == Compaction::Idle
            && self.attempts.failures == 0
            && self.compacts_ahead(limits)
            && mitigations.rounds
            && self.budgets.spend(Budget::Compaction).is_some()
    }

    /// True if automatic compaction is on. Three failures in a row switch it off for the session.
    fn compacts_ahead(self, limits: &Limits) -> bool {
        limits.auto_compact && self.budgets.failed_compactions > 0
    }

    /// Prepares a request for a summary.
    pub(super) fn compacting(self, context: StepContext<'_>) -> Self {
        Self {
            budgets: self.budgets.renewed_by(Renewal::Compacting, &context.limits.budgets),
            ..self
        }
    }

    /// Handles the reply to a request for a summary. A truncated summary counts: the facts that
    /// must survive do not depend on it.
    pub(super) fn on_summary(
        self,
        trigger: CompactionTrigger,
        reply: ReplyKind,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let run = self.settle(context);
        if reply.is_answer() || reply == ReplyKind::CutShort(CutKind::Text) {
            let budgets = run.budgets.renewed_by(Renewal::Summary, &context.limits.budgets);
            return Self { budgets, ..run }.compact(context);
        }
        match trigger {
            CompactionTrigger::Threshold => {
                run.without_summary(trigger, context).with(ReplyDisposition::Drop)
            }
            CompactionTrigger::Overflow => {
                run.recover_reply(RecoveryCause::UnusableSummary, context)
            }
        }
    }

    /// Replaces the older part of the conversation and goes on.
    pub(super) fn compact(self, context: StepContext<'_>) -> StepOutcome {
        self.compacted().call(Call::REPLY, context).with(ReplyDisposition::Summary)
    }

    /// The run after a compaction, whose effect is not measured yet.
    pub(super) fn compacted(self) -> Self {
        Self { compaction: self.compaction.in_stage(Compaction::Done), ..self }
    }

    /// Handles a summary that failed or cannot be paid for.
    pub(super) fn without_summary(
        self,
        trigger: CompactionTrigger,
        context: StepContext<'_>,
    ) -> StepOutcome {
        self.recover(RecoveryCause::NoSummary(trigger), context, |run| {
            run.skip_compaction().call(Call::REPLY, context)
        })
    }

    /// Continues without the failed summary.
    pub(super) fn skip_compaction(self) -> Self {
        Self { compaction: self.compaction.in_stage(Compaction::Spent), ..self.with_failures(0) }
    }
}

impl CompactionState {
    pub(super) fn in_stage(self, stage: Compaction) -> Self {
        Self { stage, ..self }
    }

    /// True if compaction no longer helps.
    pub(super) fn is_useless(self) -> bool {
        self.useless >= USELESS_MAX
    }

    /// Judges a compaction once, by the first request that follows it, which has `size` tokens.
    fn judged(self, crowded: bool, size: u32) -> Self {
        match self.stage {
            Compaction::Idle | Compaction::Spent => Self { size, ..self },
            Compaction::Done => {
                let shrank = size <= self.size - self.size / PART_REMOVED;
                let useless = if crowded && !shrank { self.useless.saturating_add(1) } else { 0 };
                Self { stage: Compaction::Spent, useless, size }
            }
        }
    }
}
