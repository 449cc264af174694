//! Transitions for replies and failures: every recovery path, in one place.

use super::backoff::retry_after_jitter;
use super::event::{
    Action, CallPurpose, CompactionTrigger, ConnectionChoice, CutKind, Incomplete,
    ReplyDisposition, ReplyKind, Trim,
};
use super::recovery_table::{plan, retry_cost};
use super::state::{Call, Cap, Compaction, Fast, Pause, Phase, Run};
use super::step::{FAILURES_MAX, StepContext, StepOutcome};
use super::{
    Backoff, Budgets, ErrorClass, Failure, Limits, Moment, Nudge, Persistence, RecoveryCause,
    RecoveryPlan, StopReason,
};

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
            ReplyKind::CutShort(cut) => run.settle(context).recover_cut_reply(cut, context),
            ReplyKind::Incomplete(why) => {
                run.count_unusable_reply(context).recover_incomplete_reply(why, context)
            }
            ReplyKind::Paused => run.settle(context).resume(context),
            ReplyKind::Empty => run.count_unusable_reply(context).ask_again(context),
        }
    }

    /// Records that a call was answered by a reply of `tokens` output tokens that ended normally.
    fn record_whole(self, tokens: u32, context: StepContext<'_>) -> Self {
        self.settle(context).record_reply_ended(context).count_output_tokens(tokens, context)
    }

    fn work(self, context: StepContext<'_>) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline).with(ReplyDisposition::Keep);
        }
        self.enter(Phase::Working).doing(Action::RunTools).with(ReplyDisposition::Keep)
    }

    /// Recovers from a reply that hit the output limit.
    fn recover_cut_reply(self, cut: CutKind, context: StepContext<'_>) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline).with(ReplyDisposition::Keep);
        }
        let (run, chosen) = self.choose_plan(RecoveryCause::CutShort, context);
        let outcome = if let RecoveryPlan::Stop(reason) = chosen {
            run.stop(reason).with(ReplyDisposition::Keep)
        } else if chosen == RecoveryPlan::Escalate {
            let run = Self { cap: Cap::Escalated, ..run };
            run.call(Call::Ask(CallPurpose::Reply), context).with(ReplyDisposition::Drop)
        } else {
            run.continue_reply(cut, context).with(ReplyDisposition::Keep)
        };
        outcome.by(chosen)
    }

    pub(super) fn continue_reply(self, cut: CutKind, context: StepContext<'_>) -> StepOutcome {
        match self.afford_reply(context) {
            Err(reason) => self.stop(reason),
            Ok(run) if run.is_last_reply() => {
                run.call(Call::Ask(CallPurpose::Reply), context).saying(Nudge::ContinueLast)
            }
            Ok(run) => {
                run.call(Call::Ask(CallPurpose::Reply), context).saying(Nudge::Continue(cut))
            }
        }
    }

    /// Continues a paused turn. The service requires an unchanged conversation, so no nudge is
    /// added, not even that this is the last reply.
    fn resume(self, context: StepContext<'_>) -> StepOutcome {
        let (run, chosen) = self.choose_plan(RecoveryCause::Paused, context);
        let outcome = if let RecoveryPlan::Stop(reason) = chosen {
            run.stop(reason)
        } else {
            match run.afford_reply(context) {
                Err(reason) => run.stop(reason),
                Ok(run) => run.call(Call::Ask(CallPurpose::Reply), context),
            }
        };
        outcome.with(ReplyDisposition::Keep).by(chosen)
    }

    /// Recovers from a reply that may be incomplete. The same request may bring a better one; after
    /// that, the model is told.
    fn recover_incomplete_reply(self, why: Incomplete, context: StepContext<'_>) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline).with(ReplyDisposition::Keep);
        }
        let (cause, class) = match why {
            Incomplete::CallInText => (RecoveryCause::CallInText, ErrorClass::BadResponse),
            Incomplete::Filtered => (RecoveryCause::Filtered, ErrorClass::ContentFiltered),
            Incomplete::MissingCall | Incomplete::BrokenOff | Incomplete::UnknownReason => {
                (RecoveryCause::Incomplete, ErrorClass::BadResponse)
            }
        };
        let (run, chosen) = self.choose_plan(cause, context);
        let outcome = if let RecoveryPlan::Stop(reason) = chosen {
            run.stop(reason).with(ReplyDisposition::Keep)
        } else if chosen == RecoveryPlan::SwitchModel {
            run.change_model(None, context)
                .call(Call::Ask(CallPurpose::Reply), context)
                .with(ReplyDisposition::Drop)
        } else if chosen == RecoveryPlan::RetryPreferredModel {
            run.retry_preferred_model(ErrorClass::BadResponse, CallPurpose::Reply, context)
                .with(ReplyDisposition::Drop)
        } else if chosen == RecoveryPlan::RequestCompletion {
            Self { failures: 0, ..run }
                .request_completion(why, context)
                .with(ReplyDisposition::Keep)
        } else {
            let full = context.limits.budgets.incomplete_retries;
            let retry = full.saturating_sub(run.budgets.incomplete_retries);
            let why = Pause { class, retry, of: Some(full) };
            let until = context.at.after(context.limits.backoff.pause(run.seed, retry));
            run.call_from(until, why, Call::Ask(CallPurpose::Reply), context)
                .with(ReplyDisposition::Drop)
        };
        outcome.by(chosen)
    }

    pub(super) fn request_completion(
        self,
        why: Incomplete,
        context: StepContext<'_>,
    ) -> StepOutcome {
        match self.afford_reply(context) {
            Err(reason) => self.stop(reason),
            Ok(run) => {
                run.call(Call::Ask(CallPurpose::Reply), context).saying(Nudge::Complete(why))
            }
        }
    }

    /// Counts an unusable reply as a failed attempt over a working connection.
    fn count_unusable_reply(self, context: StepContext<'_>) -> Self {
        Self {
            failures: self.failures.saturating_add(1).min(FAILURES_MAX),
            ..self.record_service_reached(context)
        }
    }

    fn ask_again(self, context: StepContext<'_>) -> StepOutcome {
        let (run, chosen) = self.choose_plan(RecoveryCause::Empty, context);
        let outcome = if let RecoveryPlan::Stop(reason) = chosen {
            run.stop(reason)
        } else if chosen == RecoveryPlan::SwitchModel {
            run.change_model(None, context).call(Call::Ask(CallPurpose::Reply), context)
        } else if chosen == RecoveryPlan::RetryPreferredModel {
            run.retry_preferred_model(ErrorClass::EmptyResponse, CallPurpose::Reply, context)
        } else {
            let outcome = run.ask_again_after_pause(Call::Ask(CallPurpose::Reply), context);
            // The same request may bring the same nothing, so the model is told once.
            let full = context.limits.budgets.empty_replies;
            let spent = full.saturating_sub(run.budgets.empty_replies);
            if spent == 2 { outcome.saying(Nudge::EmptyReply) } else { outcome }
        };
        outcome.with(ReplyDisposition::Drop).by(chosen)
    }

    /// Repeats, after a pause, a call whose reply was useless. It is paid for.
    pub(super) fn ask_again_after_pause(self, call: Call, context: StepContext<'_>) -> StepOutcome {
        let full = context.limits.budgets.empty_replies;
        let retry = full.saturating_sub(self.budgets.empty_replies);
        let why = Pause { class: ErrorClass::EmptyResponse, retry, of: Some(full) };
        let until = context.at.after(context.limits.backoff.pause(self.seed, retry));
        self.call_from(until, why, call, context)
    }

    // --- failures --------------------------------------------------------------------------------

    pub(super) fn on_failure(
        self,
        call: Call,
        failure: Failure,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let failure = failure.normalized_for(self.connection);
        let counted = self.count(call, failure, context);
        let (run, chosen) = counted.choose_plan(RecoveryCause::Failed(failure), context);
        let without = |trim| run.retry_without(trim, failure, call, context);
        let outcome = match chosen {
            RecoveryPlan::Stop(reason) => {
                let quota_ended = counted.needs_quota(failure, context);
                Self { quota_ended, ..run }.stop(reason)
            }
            RecoveryPlan::SwitchModel => {
                run.change_model(Some(failure), context).call(Call::Ask(call.purpose()), context)
            }
            RecoveryPlan::RetryPreferredModel => {
                run.retry_preferred_model(failure.class, call.purpose(), context)
            }
            RecoveryPlan::Refresh => {
                let why = run.nth_refresh(failure, context);
                run.call_from(context.at, why, Call::Refresh(call.purpose()), context)
            }
            RecoveryPlan::RetryAtOnce { .. } => {
                run.call_from(context.at, run.nth_retry(failure, context), call, context)
            }
            RecoveryPlan::Retry { tokens } => {
                let until = run.back_off(context.limits.backoff, tokens, failure, context);
                run.call_from(until, run.nth_retry(failure, context), call, context)
            }
            RecoveryPlan::RetryOddRefusal => run.retry_odd_refusal(call, failure, context),
            RecoveryPlan::WaitForCapacity => run.wait_for_capacity(call, failure, context),
            RecoveryPlan::CommitFolds => without(Trim::Folds),
            RecoveryPlan::LowerCap => run.retry_changed_request(failure, call, context),
            RecoveryPlan::Strip => without(Trim::Media),
            RecoveryPlan::RepairBlock => without(Trim::Block),
            RecoveryPlan::OmitAdded => without(Trim::Added),
            RecoveryPlan::DropThinking => without(Trim::ThinkingParameter),
            RecoveryPlan::DropCacheMarks => without(Trim::CacheMarks),
            RecoveryPlan::DropStreaming => run.retry_without_streaming(failure, call, context),
            RecoveryPlan::ResumeStreaming => run.resume_streaming(failure, call, context),
            RecoveryPlan::RetryOverflow => run.retry_overflow(call, failure, context),
            RecoveryPlan::Trim => without(Trim::OldestRounds),
            RecoveryPlan::CompactReactively => {
                let call = Call::Ask(CallPurpose::Summary(CompactionTrigger::Overflow));
                run.compacting(context).retry_changed_request(failure, call, context)
            }
            RecoveryPlan::SkipCompaction => {
                let call = Call::Ask(CallPurpose::Reply);
                run.skip_compaction().retry_changed_request(failure, call, context)
            }
            RecoveryPlan::CompactUnsummarised => {
                return run.compact_unsummarised(failure, context).by(chosen);
            }
            RecoveryPlan::CoolDown => run.cool_down(self, failure, call.purpose(), context),
            RecoveryPlan::DisableFastMode => {
                run.slow_down(Fast::Off, self, call.purpose(), context)
            }
            // These plans are for replies or waits; for a failure they are a bug of outlast.
            RecoveryPlan::Probe
            | RecoveryPlan::ReturnEarly
            | RecoveryPlan::Compact
            | RecoveryPlan::ReturnToPreferredModel
            | RecoveryPlan::Remind
            | RecoveryPlan::Restructure
            | RecoveryPlan::RetryRequirement
            | RecoveryPlan::RetryStopHook
            | RecoveryPlan::Report
            | RecoveryPlan::Escalate
            | RecoveryPlan::Continue
            | RecoveryPlan::AskAgain
            | RecoveryPlan::RetryIncomplete
            | RecoveryPlan::RequestCompletion
            | RecoveryPlan::Resume
            | RecoveryPlan::Nudge => run.stop(StopReason::InternalError),
        };
        outcome.with(ReplyDisposition::Drop).by(chosen)
    }

    /// True if the failure would be retried with a full bucket.
    fn needs_quota(self, failure: Failure, context: StepContext<'_>) -> bool {
        let budgets = Budgets { bucket: u16::MAX, ..self.budgets };
        let full = Self { budgets, ..self };
        let chosen = plan(RecoveryCause::Failed(failure), &full, context.at, context.limits);
        matches!(chosen, RecoveryPlan::Retry { .. } | RecoveryPlan::RetryAtOnce { .. })
    }

    /// Removes the older part of the conversation, whose summary was refused.
    fn compact_unsummarised(self, failure: Failure, context: StepContext<'_>) -> StepOutcome {
        let call = Call::Ask(CallPurpose::Reply);
        let run = Self { compaction: Compaction::Done, ..self };
        run.retry_changed_request(failure, call, context).with(ReplyDisposition::Summary)
    }

    /// Repeats, after a pause, a request that was refused as too long although it is small.
    fn retry_overflow(self, call: Call, failure: Failure, context: StepContext<'_>) -> StepOutcome {
        let why = Pause { class: failure.class, retry: 1, of: Some(1) };
        let pause = context.limits.backoff.pause(self.seed, 1);
        self.call_from(context.at.after(pause), why, call, context)
    }

    /// Repeats, after a pause, a request whose refusal may be temporary. A credential that could not
    /// be refreshed is used as it is.
    fn retry_odd_refusal(
        self,
        call: Call,
        failure: Failure,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let until = self.back_off(context.limits.backoff, 1, failure, context);
        let why = self.nth_odd_refusal(failure, context);
        self.call_from(until, why, Call::Ask(call.purpose()), context)
    }

    /// Repeats the request without the content that `trim` names.
    fn retry_without(
        self,
        trim: Trim,
        failure: Failure,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        self.retry_changed_request(failure, call, context).trimming(trim)
    }

    /// Repeats the request without streaming, as do all further requests to this model.
    fn retry_without_streaming(
        self,
        failure: Failure,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        Self { streaming_refused: true, ..self }.retry_without(
            Trim::Streaming,
            failure,
            call,
            context,
        )
    }

    /// Repeats the request with streaming, as before the streams that broke.
    fn resume_streaming(
        self,
        failure: Failure,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        Self { unstreamed_turns: 0, ..self }.retry_changed_request(failure, call, context)
    }

    /// Makes another request, which has not been refused yet.
    fn retry_changed_request(
        self,
        failure: Failure,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let why = Pause { class: failure.class, retry: 1, of: None };
        Self { failures: 0, ..self }.call_from(context.at, why, call, context)
    }

    /// Waits without counting attempts, and pays from the bucket as long as it lasts.
    fn wait_for_capacity(
        self,
        call: Call,
        failure: Failure,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let paid = self.budgets.take_tokens(retry_cost(failure.class));
        let run = Self { budgets: paid.unwrap_or(self.budgets), ..self };
        let why = Pause { class: failure.class, retry: run.failures, of: None };
        let tokens = paid.map_or(0, |_| retry_cost(failure.class));
        let longest = context.limits.longest_capacity_wait;
        let ladder = Backoff { longest, ..context.limits.backoff };
        let outcome =
            run.call_from(run.back_off(ladder, tokens, failure, context), why, call, context);
        outcome.probing_from(run.first_probe(call, context), context)
    }

    /// Time of the next call. The server's retry-after, which `call_from` applies, outranks the
    /// back-off, and an empty bucket outranks both.
    fn back_off(
        self,
        ladder: Backoff,
        tokens: u16,
        failure: Failure,
        context: StepContext<'_>,
    ) -> Moment {
        let longest = context.limits.longest_capacity_wait;
        let pause = if tokens == 0 {
            Backoff { first: longest, longest }.pause(self.seed, self.failures)
        } else if failure.retry_after.is_some() {
            return context.at;
        } else {
            ladder.within(context.limits.max_retry_wait).pause(self.seed, self.failures)
        };
        context.at.after(pause)
    }

    fn nth_retry(self, failure: Failure, context: StepContext<'_>) -> Pause {
        let full = context.limits.budgets.retries;
        let retry = full.saturating_sub(self.budgets.retries);
        Pause { class: failure.class, retry, of: Some(full) }
    }

    fn nth_odd_refusal(self, failure: Failure, context: StepContext<'_>) -> Pause {
        let full = context.limits.budgets.odd_refusals;
        let retry = full.saturating_sub(self.budgets.odd_refusals);
        Pause { class: failure.class, retry, of: Some(full) }
    }

    fn nth_refresh(self, failure: Failure, context: StepContext<'_>) -> Pause {
        let full = context.limits.budgets.refreshes;
        let retry = full.saturating_sub(self.budgets.refreshes);
        Pause { class: failure.class, retry, of: Some(full) }
    }

    fn count(self, call: Call, failure: Failure, context: StepContext<'_>) -> Self {
        let failures = self.failures.saturating_add(1).min(FAILURES_MAX);
        let allowed = allowed_from(failure, self.seed, failures, context);
        let suspect = failure.suspects_connection();
        let run = Self {
            failures,
            connection: if suspect { ConnectionChoice::Fresh } else { ConnectionChoice::Pooled },
            not_before: self.not_before.max(allowed),
            ..self
        };
        match call {
            Call::Ask(_) => {
                let overloads = self.count_overloads(failure, context.limits);
                Self { overloads, ..run.count_torn(failure, context.limits) }
            }
            Call::Refresh(_) => run,
        }
    }

    /// Counts consecutive overloads, up to the largest number that matters.
    fn count_overloads(self, failure: Failure, limits: &Limits) -> u8 {
        if failure.class != ErrorClass::ServerOverload {
            return 0;
        }
        let patience = limits.overloads_per_switch.max(limits.overload_limit.unwrap_or(0)).max(2);
        self.overloads.saturating_add(1).min(patience)
    }

    /// Counts broken streams. After enough of them in a row, however far each came, this turn and
    /// the next ones do not stream. If a call without streaming fails, too, the next one streams
    /// again, and one more torn stream is then enough.
    fn count_torn(self, failure: Failure, limits: &Limits) -> Self {
        if self.avoids_streaming(limits) {
            let whole_turns =
                if failure.may_be_of_whole_reply() { 0 } else { self.unstreamed_turns };
            return Self { unstreamed_turns: whole_turns, ..self };
        }
        if !failure.has_streamed() {
            return self;
        }
        let torn = if failure.is_broken_stream() { self.torn_streams.saturating_add(1) } else { 0 };
        if torn == 0 || torn < limits.torn_streams_per_whole {
            return Self { torn_streams: torn, ..self };
        }
        // The current turn counts as well.
        let whole_turns = limits.whole_turns.saturating_add(1);
        Self {
            torn_streams: limits.torn_streams_per_whole.saturating_sub(1),
            unstreamed_turns: whole_turns,
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
    let polite = context.at.after(retry_after_jitter(seed, nth, retry_after, exactly));
    match context.limits.deadline {
        Some(deadline) if context.at.after(retry_after.wait) < deadline => {
            polite.min(deadline.just_before())
        }
        Some(_) | None => polite,
    }
}
