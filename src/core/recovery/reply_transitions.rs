//! The transitions after a reply.

use super::event::{Action, CallPurpose, CutKind, Incomplete, Nudge, ReplyDisposition, ReplyKind};
use super::state::{Call, Cap, Pause, Phase, Run};
use super::step::{FAILURES_MAX, StepContext, StepOutcome};
use super::{ErrorClass, RecoveryCause, RecoveryPlan, StopReason};

impl Run {
    pub(super) fn on_reply(self, reply: ReplyKind, context: StepContext<'_>) -> StepOutcome {
        let run = Self { kept_answer: self.kept_answer.after(reply), ..self };
        match reply {
            ReplyKind::Answer { tokens } => run.record_whole(tokens, context).answer(context),
            ReplyKind::Early { tokens } => run.record_whole(tokens, context).answer_early(context),
            ReplyKind::LeftOpen { tokens } => run.record_whole(tokens, context).remind(context),
            ReplyKind::ToolCalls { tokens } => run.record_whole(tokens, context).work(context),
            ReplyKind::Refusal => {
                run.settle(context).stop(StopReason::Refusal).with(ReplyDisposition::Keep)
            }
            ReplyKind::CutShort(cut) => {
                run.settle(context).recover_reply(RecoveryCause::CutShort(cut), context)
            }
            ReplyKind::Paused => run.settle(context).recover_reply(RecoveryCause::Paused, context),
            ReplyKind::Incomplete(why) => {
                let run = run.count_unusable_reply(context);
                run.recover_reply(RecoveryCause::Incomplete(why), context)
            }
            ReplyKind::Empty => {
                run.count_unusable_reply(context).recover_reply(RecoveryCause::Empty, context)
            }
        }
    }

    /// Records that a call was answered by a reply of `tokens` output tokens that ended normally.
    fn record_whole(self, tokens: u32, context: StepContext<'_>) -> Self {
        self.settle(context).record_reply_ended(context).count_output_tokens(tokens, context)
    }

    /// Counts an unusable reply as a failed attempt over a working connection.
    fn count_unusable_reply(self, context: StepContext<'_>) -> Self {
        let failures = self.attempts.failures.saturating_add(1).min(FAILURES_MAX);
        self.record_service_reached(context).with_failures(failures)
    }

    fn work(self, context: StepContext<'_>) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline).with(ReplyDisposition::Keep);
        }
        self.enter(Phase::Working).doing(Action::RunTools).with(ReplyDisposition::Keep)
    }

    /// Recovers from a reply that does not end its turn, or that is not the summary requested after
    /// an overflow.
    pub(super) fn recover_reply(
        self,
        cause: RecoveryCause,
        context: StepContext<'_>,
    ) -> StepOutcome {
        use RecoveryCause as C;
        use RecoveryPlan as P;
        use ReplyDisposition::{Drop, Keep};

        if context.is_late() && matches!(cause, C::CutShort(_) | C::Incomplete(_)) {
            return self.stop(StopReason::Deadline).with(Keep);
        }
        let call = if cause == C::UnusableSummary { Call::OVERFLOW_SUMMARY } else { Call::REPLY };
        let class =
            if let C::Incomplete(why) = cause { why.class() } else { ErrorClass::EmptyResponse };
        let full = &context.limits.budgets;
        let (run, chosen) = self.choose_plan(cause, context);
        let outcome = match (chosen, cause) {
            (P::Stop(reason), C::Empty | C::UnusableSummary) => run.stop(reason).with(Drop),
            (P::Stop(reason), _) => run.stop(reason).with(Keep),
            (P::SwitchModel, _) => run.change_model(None, context).call(call, context).with(Drop),
            (P::RetryPreferredModel, _) => {
                run.retry_preferred_model(class, CallPurpose::Reply, context).with(Drop)
            }
            (P::Escalate, _) => Self { cap: Cap::Escalated, ..run }.call(call, context).with(Drop),
            (P::Continue, C::CutShort(cut)) => run.continue_reply(cut, context).with(Keep),
            // The service requires an unchanged conversation, so no nudge is added, not even that
            // this is the last reply.
            (P::Resume, _) => run.request_reply(context).with(Keep),
            (P::RequestCompletion, C::Incomplete(why)) => {
                run.with_failures(0).request_completion(why, context).with(Keep)
            }
            (P::RetryIncomplete, _) => {
                let left = run.budgets.incomplete_retries;
                let why = Pause::counted(class, left, full.incomplete_retries);
                run.call_after_pause(why, call, context).with(Drop)
            }
            (P::AskAgain, _) => run.ask_again(cause, class, call, context),
            (P::CompactUnsummarised, _) => run.compact(context),
            // These plans are for other causes; here they are a bug of outlast.
            (
                P::Continue
                | P::RequestCompletion
                | P::RetryAtOnce { .. }
                | P::Retry { .. }
                | P::RetryOddRefusal
                | P::WaitForCapacity
                | P::Refresh
                | P::Nudge
                | P::Compact
                | P::SkipCompaction
                | P::CommitFolds
                | P::CompactReactively
                | P::Trim
                | P::LowerCap
                | P::Strip
                | P::RepairBlock
                | P::OmitAdded
                | P::DropThinking
                | P::DropCacheMarks
                | P::DropStreaming
                | P::ResumeStreaming
                | P::RetryOverflow
                | P::CoolDown
                | P::DisableFastMode
                | P::ReturnToPreferredModel
                | P::Remind
                | P::Restructure
                | P::RetryRequirement
                | P::RetryStopHook
                | P::Report
                | P::Probe
                | P::ReturnEarly,
                _,
            ) => run.stop(StopReason::InternalError).with(Drop),
        };
        outcome.by(cause, chosen)
    }

    /// Asks again after an empty reply or an unusable summary.
    fn ask_again(
        self,
        cause: RecoveryCause,
        class: ErrorClass,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let (left, full) = (self.budgets.empty_replies, context.limits.budgets.empty_replies);
        let why = Pause::counted(class, left, full);
        let outcome = self.call_after_pause(why, call, context).with(ReplyDisposition::Drop);
        // The reply to an unchanged request may be empty again, so the model gets a notice once.
        let is_second = full.saturating_sub(left) == 2;
        let says = cause == RecoveryCause::Empty && is_second;
        if says { outcome.saying(Nudge::EmptyReply) } else { outcome }
    }

    /// Asks the model to continue a reply that the output limit cut.
    pub(super) fn continue_reply(self, cut: CutKind, context: StepContext<'_>) -> StepOutcome {
        let outcome = self.request_reply(context);
        let is_last = outcome.run.is_last_reply();
        outcome.saying(if is_last { Nudge::ContinueLast } else { Nudge::Continue(cut) })
    }

    /// Tells the model what its last reply lacks.
    pub(super) fn request_completion(
        self,
        why: Incomplete,
        context: StepContext<'_>,
    ) -> StepOutcome {
        self.request_reply(context).saying(Nudge::Complete(why))
    }
}
