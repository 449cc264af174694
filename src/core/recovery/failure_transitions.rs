//! The transitions after a failed call.

use super::backoff::retry_after_jitter;
use super::event::{ConnectionChoice, ReplyDisposition, Trim};
use super::recovery_table::{plan, retry_cost};
use super::state::{Attempts, Call, Fast, Pause, Run, Streaming};
use super::step::{FAILURES_MAX, StepContext, StepOutcome};
use super::{
    Backoff, Budgets, ErrorClass, Failure, Limits, Moment, Persistence, RecoveryCause,
    RecoveryPlan, StopReason,
};

impl Run {
    pub(super) fn on_failure(
        self,
        call: Call,
        failure: Failure,
        context: StepContext<'_>,
    ) -> StepOutcome {
        use RecoveryPlan as P;

        let failure = failure.normalized_for(self.connection);
        let counted = self.count(call, failure, context);
        let cause = RecoveryCause::Failed(failure);
        let (run, chosen) = counted.choose_plan(cause, context);
        let (class, purpose, ask) = (failure.class, call.purpose(), Call::Ask(call.purpose()));
        let full = &context.limits.budgets;
        let nth_retry = Pause::counted(class, run.budgets.retries, full.retries);
        let again = |run: Self, call| run.retry_changed_request(class, call, context);
        let without = |trim| again(run, call).trimming(trim);
        let outcome = match chosen {
            P::Stop(reason) => {
                let quota_ended = counted.needs_quota(failure, context);
                Self { quota_ended, ..run }.stop(reason)
            }
            P::SwitchModel => run.change_model(Some(failure), context).call(ask, context),
            P::RetryPreferredModel => run.retry_preferred_model(class, purpose, context),
            P::Refresh => {
                let why = Pause::counted(class, run.budgets.refreshes, full.refreshes);
                run.call_from(context.at, why, Call::Refresh(purpose), context)
            }
            P::RetryAtOnce { .. } => run.call_from(context.at, nth_retry, call, context),
            P::Retry { tokens } => {
                let until = run.back_off(context.limits.backoff, tokens, failure, context);
                run.call_from(until, nth_retry, call, context)
            }
            // A credential that could not be refreshed is used unchanged.
            P::RetryOddRefusal => {
                let until = run.back_off(context.limits.backoff, 1, failure, context);
                let why = Pause::counted(class, run.budgets.odd_refusals, full.odd_refusals);
                run.call_from(until, why, ask, context)
            }
            P::WaitForCapacity => run.wait_for_capacity(call, failure, context),
            P::RetryOverflow => run.call_after_pause(Pause::once(class), call, context),
            P::LowerCap => again(run, call),
            P::CommitFolds => without(Trim::Folds),
            P::Strip => without(Trim::Media),
            P::RepairBlock => without(Trim::Block),
            P::OmitAdded => without(Trim::Added),
            P::DropThinking => without(Trim::ThinkingParameter),
            P::DropCacheMarks => without(Trim::CacheMarks),
            P::Trim => without(Trim::OldestRounds),
            P::DropStreaming => again(run.without_streams(), call).trimming(Trim::Streaming),
            P::ResumeStreaming => again(run.streaming_again(), call),
            P::CompactReactively => again(run.compacting(context), Call::OVERFLOW_SUMMARY),
            P::SkipCompaction => again(run.skip_compaction(), Call::REPLY),
            P::CompactUnsummarised => {
                let outcome = again(run.compacted(), Call::REPLY);
                return outcome.with(ReplyDisposition::Summary).by(cause, chosen);
            }
            P::CoolDown => run.cool_down(self, failure, purpose, context),
            P::DisableFastMode => run.slow_down(Fast::Off, self, purpose, context),
            // These plans are for replies or waits; for a failure they are a bug of outlast.
            P::Probe
            | P::ReturnEarly
            | P::Compact
            | P::ReturnToPreferredModel
            | P::Remind
            | P::Restructure
            | P::RetryRequirement
            | P::RetryStopHook
            | P::Report
            | P::Escalate
            | P::Continue
            | P::AskAgain
            | P::RetryIncomplete
            | P::RequestCompletion
            | P::Resume
            | P::Nudge => run.stop(StopReason::InternalError),
        };
        outcome.with(ReplyDisposition::Drop).by(cause, chosen)
    }

    /// True if the failure would be retried with a full bucket.
    fn needs_quota(self, failure: Failure, context: StepContext<'_>) -> bool {
        let budgets = Budgets { bucket: u16::MAX, ..self.budgets };
        let full = Self { budgets, ..self };
        let chosen = plan(RecoveryCause::Failed(failure), &full, context.at, context.limits);
        matches!(chosen, RecoveryPlan::Retry { .. } | RecoveryPlan::RetryAtOnce { .. })
    }

    /// Makes another request, which has not been refused yet.
    fn retry_changed_request(
        self,
        class: ErrorClass,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let why = Pause { class, retry: 1, of: None };
        self.with_failures(0).call_from(context.at, why, call, context)
    }

    /// Waits without counting attempts, and pays from the bucket as long as it lasts.
    fn wait_for_capacity(
        self,
        call: Call,
        failure: Failure,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let cost = retry_cost(failure.class);
        let (budgets, tokens) =
            self.budgets.take_tokens(cost).map_or((self.budgets, 0), |paid| (paid, cost));
        let run = Self { budgets, ..self };
        let why = Pause { class: failure.class, retry: run.attempts.failures, of: None };
        let longest = context.limits.longest_capacity_wait;
        let backoff = Backoff { longest, ..context.limits.backoff };
        let until = run.back_off(backoff, tokens, failure, context);
        let outcome = run.call_from(until, why, call, context);
        outcome.probing_from(run.first_probe(call, context), context)
    }

    /// Time of the next call. The server's retry-after, which `call_from` applies, outranks the
    /// back-off, and an empty bucket outranks both.
    fn back_off(
        self,
        backoff: Backoff,
        tokens: u16,
        failure: Failure,
        context: StepContext<'_>,
    ) -> Moment {
        let longest = context.limits.longest_capacity_wait;
        let pause = if tokens == 0 {
            Backoff { first: longest, longest }.pause(self.seed, self.attempts.failures)
        } else if failure.retry_after.is_some() {
            return context.at;
        } else {
            backoff.within(context.limits.max_retry_wait).pause(self.seed, self.attempts.failures)
        };
        context.at.after(pause)
    }

    fn count(self, call: Call, failure: Failure, context: StepContext<'_>) -> Self {
        let failures = self.attempts.failures.saturating_add(1).min(FAILURES_MAX);
        let allowed = allowed_from(failure, self.seed, failures, context);
        let connection = if failure.suspects_connection() {
            ConnectionChoice::Fresh
        } else {
            ConnectionChoice::Pooled
        };
        let not_before = self.attempts.not_before.max(allowed);
        let (overloads, streaming) = match call {
            Call::Ask(_) => (
                self.attempts.count_overloads(failure, context.limits),
                self.streaming.after(failure, context.limits),
            ),
            Call::Refresh(_) => (self.attempts.overloads, self.streaming),
        };
        let attempts = Attempts { failures, overloads, not_before };
        Self { attempts, streaming, connection, ..self }
    }

    /// The run after the service has refused to stream for this model.
    fn without_streams(self) -> Self {
        Self { streaming: Streaming { is_refused: true, ..self.streaming }, ..self }
    }

    /// The run after a call without streaming has failed, too.
    fn streaming_again(self) -> Self {
        Self { streaming: Streaming { unstreamed_turns: 0, ..self.streaming }, ..self }
    }

    /// Sets the number of failures of the current call.
    pub(super) fn with_failures(self, failures: u8) -> Self {
        Self { attempts: Attempts { failures, ..self.attempts }, ..self }
    }
}

impl Attempts {
    /// Counts consecutive overloads, up to the largest number that matters.
    fn count_overloads(self, failure: Failure, limits: &Limits) -> u8 {
        if failure.class != ErrorClass::ServerOverload {
            return 0;
        }
        let most = limits.overloads_per_switch.max(limits.overload_limit.unwrap_or(0)).max(2);
        self.overloads.saturating_add(1).min(most)
    }
}

impl Streaming {
    /// True if the current turn does without streaming.
    pub(super) fn is_avoided(self, limits: &Limits) -> bool {
        self.is_refused || self.unstreamed_turns > 0 || limits.torn_streams_per_whole == 0
    }

    /// An answer without streaming does not show that streams work.
    pub(super) fn after_answer(self, limits: &Limits) -> Self {
        if self.is_avoided(limits) { self } else { Self { torn_streams: 0, ..self } }
    }

    /// Counts broken streams. After enough of them in a row, early or late, this turn and
    /// the next ones do not stream. If a call without streaming fails, too, the next one streams
    /// again, and one more torn stream is then enough.
    fn after(self, failure: Failure, limits: &Limits) -> Self {
        if self.is_avoided(limits) {
            let is_over = failure.may_be_of_whole_reply();
            return if is_over { Self { unstreamed_turns: 0, ..self } } else { self };
        }
        if !failure.has_streamed() {
            return self;
        }
        let torn = if failure.is_broken_stream() { self.torn_streams.saturating_add(1) } else { 0 };
        if torn == 0 || torn < limits.torn_streams_per_whole {
            return Self { torn_streams: torn, ..self };
        }
        Self {
            torn_streams: limits.torn_streams_per_whole.saturating_sub(1),
            // The current turn counts as well.
            unstreamed_turns: limits.whole_turns.saturating_add(1),
            ..self
        }
    }
}

/// The earliest time at which the server allows the next call. Jitter is added to its retry-after,
/// but not beyond a deadline that the retry-after itself meets.
pub(super) fn allowed_from(
    failure: Failure,
    seed: u64,
    nth: u8,
    context: StepContext<'_>,
) -> Moment {
    let Some(retry_after) = failure.retry_after else { return Moment::default() };
    let exactly = context.limits.persistence != Persistence::Off;
    let with_jitter = context.at.after(retry_after_jitter(seed, nth, retry_after, exactly));
    match context.limits.deadline {
        Some(deadline) if context.at.after(retry_after.wait) < deadline => {
            with_jitter.min(deadline.just_before())
        }
        Some(_) | None => with_jitter,
    }
}
