//! The state machine: one event in, one transition out.

use super::budget::Renewal;
use super::capacity_probe::{CapacityWait, SentProbe};
use super::event::{
    Action, CallPurpose, CompactionTrigger, ConnectionChoice, Event, HistoryEdit, ModelCall,
    ReplyMode, TokenEstimate,
};
use super::state::{
    Attempts, Call, Cap, Compaction, Fast, Pause, Phase, PreferredModel, RequiredEffort, Run,
    Streaming,
};
use super::step::{InvalidEvent, StepContext, StepOutcome, Transition};
use super::{
    Budget, Limits, LoopStatus, Moment, Nudge, RecoveryCause, RecoveryPlan, StopReason, plan,
};

/// A nudge that leads to fewer output tokens than this counts as useless.
const NUDGE_WORTH: u32 = 500;

impl Run {
    pub fn new(seed: u64, limits: &Limits) -> Self {
        Self {
            budgets: limits.budgets,
            fast: if limits.fast.is_some() { Fast::On } else { Fast::Off },
            effort: RequiredEffort {
                left: limits.effort.map_or(0, |tokens| tokens / 10 * 9),
                since_nudge: 0,
            },
            seed,
            ..Self::default()
        }
    }

    /// Advances the run by one event.
    ///
    /// # Errors
    /// An [`InvalidEvent`] if the phase does not accept the event.
    pub fn step(
        self,
        at: Moment,
        event: Event,
        limits: &Limits,
    ) -> Result<Transition, InvalidEvent> {
        let context = StepContext { at, limits };
        let outcome = match (self.phase, event) {
            (Phase::Stopped(_), _) => return Err(InvalidEvent { phase: self.phase, event }),
            (phase, Event::Interrupted(by)) => self.stop(phase.interruption(by)),
            (_, Event::InternalError) => self.stop(StopReason::InternalError),
            (_, Event::Denied) => self.stop(StopReason::Denied),
            (phase, Event::DeadlinePassed) => self.stop(phase.deadline_reason()),
            (Phase::Ready, Event::Begin) => {
                self.without_answer().begin_in_new_process(context).next_turn(context)
            }
            (Phase::Ready, Event::Resumed(left)) => {
                self.begin_in_new_process(context).on_resumed(left, context)
            }
            (Phase::Working, Event::ToolsDone(loop_status)) => {
                self.on_tools_done(loop_status, context)
            }
            (Phase::Working, Event::Deferred) => self.stop(StopReason::ToolDeferred),
            (Phase::Working, Event::Delivered) => self.with_output().done(context),
            (Phase::Working, Event::DeliveredEarly) => self.with_output().await_work(context),
            (Phase::Awaiting { until }, Event::BackgroundWaited(work)) => {
                self.on_background_work(until, work, context)
            }
            (Phase::Working, Event::SchemaMismatch) => self.restructure(None, context),
            (phase, Event::HookStopped) if phase.allows_hook_stop() => {
                self.stop(StopReason::HookStopped)
            }
            (Phase::Calling(Call::Ask(CallPurpose::Summary(trigger))), Event::SummaryPrevented) => {
                self.without_summary(trigger, context)
            }
            (Phase::RunningStopHooks, Event::Consulted(decision)) => {
                self.on_stop_hooks(decision, context)
            }
            (Phase::RunningRequirement, Event::Checked { passed }) => {
                self.on_requirement(passed, context)
            }
            (Phase::Estimating(CallPurpose::Reply), Event::Estimated(estimate)) => {
                self.on_estimate(estimate, context)
            }
            (Phase::Estimating(purpose @ CallPurpose::Summary(_)), Event::Estimated(estimate)) => {
                self.ask(purpose, estimate, context)
            }
            (Phase::Calling(Call::REPLY), Event::Replied(reply)) => self.on_reply(reply, context),
            (Phase::Calling(Call::Ask(CallPurpose::Summary(trigger))), Event::Replied(reply)) => {
                self.on_summary(trigger, reply, context)
            }
            (Phase::Calling(Call::Refresh(purpose)), Event::Refreshed) => {
                self.call(Call::Ask(purpose), context)
            }
            (Phase::Calling(call), Event::Failed(failure)) => {
                self.on_failure(call, failure, context)
            }
            // The token count that the estimate needs failed.
            (Phase::Estimating(purpose), Event::Failed(failure)) => {
                self.on_failure(Call::Ask(purpose), failure, context)
            }
            (Phase::Calling(call @ Call::Ask(_)), Event::SharedLimitMet { until })
                if self.may_wait_for_shared_limit() =>
            {
                self.wait_for_shared_limit(until, call, context)
            }
            (Phase::Pausing { until, why, then, probe_at }, Event::WaitEnded) => {
                self.on_wait_ended(CapacityWait { until, why, then }, probe_at, context)
            }
            (Phase::Probing { until, why, then, since, model_index }, Event::Probed(probed)) => {
                let wait = CapacityWait { until, why, then };
                self.on_probe(wait, SentProbe { since, model_index }, probed, context)
            }
            (phase, event) => return Err(InvalidEvent { phase, event }),
        };
        let StepOutcome { run: next, recovery, edit, action } = outcome.keeping_answer(context);
        let (cause, plan) = recovery.unzip();
        Ok(Transition { at, event, cause, plan, edit, next, action })
    }

    // --- towards the next call -------------------------------------------------------------------

    /// Renews the budgets of a process.
    fn begin_in_new_process(self, context: StepContext<'_>) -> Self {
        let budgets = self.budgets.renewed_by(Renewal::Beginning, &context.limits.budgets);
        Self { budgets, ..self }
    }

    fn on_tools_done(self, loop_status: LoopStatus, context: StepContext<'_>) -> StepOutcome {
        if loop_status == LoopStatus::Stuck {
            return self.stop(StopReason::Stalled);
        }
        let go_on = |run: Self| {
            let outcome = run.next_turn(context);
            let repeats = loop_status == LoopStatus::Repeating;
            if repeats { outcome.saying(Nudge::StepBack) } else { outcome }
        };
        if !self.is_preferred_model_due(context) {
            return go_on(self);
        }
        self.recover(RecoveryCause::PreferredModelDue, context, |run| {
            go_on(run.trying_preferred_model(context))
        })
    }

    /// Starts a turn: at the start of the run, after tools, or when more is required.
    pub(super) fn next_turn(self, context: StepContext<'_>) -> StepOutcome {
        match self.afford_reply(context) {
            Err(reason) => self.stop(reason),
            Ok(run) => {
                let (run, notice) = run.resume_fast_mode(context).notice(context);
                let compaction = run.compaction.in_stage(Compaction::Idle);
                let run = Self { cap: Cap::First, compaction, ..run };
                run.call(Call::REPLY, context).noticing(notice)
            }
        }
    }

    /// Pays for one more reply and requests it, without a new turn.
    pub(super) fn request_reply(self, context: StepContext<'_>) -> StepOutcome {
        match self.afford_reply(context) {
            Err(reason) => self.stop(reason),
            Ok(run) => run.call(Call::REPLY, context),
        }
    }

    /// Pays for one more reply. Every reply that enters the history costs a turn.
    fn afford_reply(self, context: StepContext<'_>) -> Result<Self, StopReason> {
        if context.is_late() {
            return Err(StopReason::Deadline);
        }
        let budgets = self.budgets.spend(Budget::Turn).ok_or(StopReason::MaxTurns)?;
        let unstreamed_turns = self.streaming.unstreamed_turns.saturating_sub(1);
        Ok(Self { budgets, streaming: Streaming { unstreamed_turns, ..self.streaming }, ..self })
    }

    /// The notice for the model before this turn.
    fn notice(self, context: StepContext<'_>) -> (Self, Option<Nudge>) {
        if self.is_last_reply() {
            (self, Some(Nudge::LastTurn))
        } else if self.should_wrap_up(context.at, context.limits) && !self.wrapping_up {
            (Self { wrapping_up: true, ..self }, Some(Nudge::WrapUp))
        } else {
            (self, None)
        }
    }

    /// Prepares a call.
    pub(super) fn call(self, call: Call, context: StepContext<'_>) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline);
        }
        match call {
            Call::Ask(purpose) => {
                let fast = self.fast == Fast::On;
                let action = Action::Estimate { model_index: self.model_index, purpose, fast };
                self.enter(Phase::Estimating(purpose)).doing(action)
            }
            Call::Refresh(_) => self.enter(Phase::Calling(call)).doing(Action::Refresh),
        }
    }

    /// Makes the call if its worst case fits the budget, with a smaller output cap if need be.
    pub(super) fn ask(
        self,
        purpose: CallPurpose,
        estimate: TokenEstimate,
        context: StepContext<'_>,
    ) -> StepOutcome {
        if context.is_late() {
            return self.stop(StopReason::Deadline);
        }
        let caps = &context.limits.caps;
        let is_whole = estimate.needs_whole_reply || self.streaming.is_avoided(context.limits);
        let (mode, most) = if is_whole {
            (ReplyMode::Whole, caps.whole)
        } else {
            (ReplyMode::Streaming, u32::MAX)
        };
        // The size is an estimate, so a request that seems too large may still fit.
        let room = estimate.room().max(caps.floor);
        let most = most.min(estimate.ceiling).min(room).max(1);
        let wanted = match (purpose, self.cap) {
            (CallPurpose::Summary(_), _) => caps.summary.min(most),
            (CallPurpose::Reply, Cap::First) => caps.first.min(most),
            (CallPurpose::Reply, Cap::Escalated) => caps.escalated.min(most),
        };
        let cap = estimate.affordable_cap(wanted);
        if cap < caps.floor.min(wanted) {
            return self.cannot_afford(purpose, context);
        }
        let ask = ModelCall {
            purpose,
            model_index: self.model_index,
            cap,
            mode,
            connection: self.connection,
            attempt: self.attempts.failures.saturating_add(1),
            fast: self.fast == Fast::On,
            may_wait_for_shared_limit: self.may_wait_for_shared_limit(),
        };
        let may_escalate = estimate.after_call(cap).affordable_cap(caps.escalated.min(most)) > cap;
        let calling = Phase::Calling(Call::Ask(purpose));
        Self { may_escalate, ..self }.enter(calling).doing(Action::Ask(ask))
    }

    /// Handles a call that cannot be paid for. A summary that can wait must not use up the budget.
    fn cannot_afford(self, purpose: CallPurpose, context: StepContext<'_>) -> StepOutcome {
        match purpose {
            CallPurpose::Summary(CompactionTrigger::Threshold) => {
                self.without_summary(CompactionTrigger::Threshold, context)
            }
            CallPurpose::Summary(CompactionTrigger::Overflow) | CallPurpose::Reply => {
                self.stop(StopReason::MaxBudgetUsd)
            }
        }
    }

    /// Schedules a call as soon as the server allows it, but not before `earliest`.
    pub(super) fn call_from(
        self,
        earliest: Moment,
        why: Pause,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let until = earliest.max(self.attempts.not_before);
        if context.at >= until {
            return self.call(call, context);
        }
        if context.limits.deadline.is_some_and(|deadline| until >= deadline) {
            return self.stop(StopReason::Deadline);
        }
        self.enter(Phase::Pausing { until, why, then: call, probe_at: None }).wait(until, context)
    }

    /// Schedules a call after the back-off of this retry.
    pub(super) fn call_after_pause(
        self,
        why: Pause,
        call: Call,
        context: StepContext<'_>,
    ) -> StepOutcome {
        let pause = context.limits.backoff.pause(self.seed, why.retry);
        self.call_from(context.at.after(pause), why, call, context)
    }

    /// Waits in steps no longer than a heartbeat, so that silence is not taken for a hang.
    pub(super) fn wait(self, until: Moment, context: StepContext<'_>) -> StepOutcome {
        self.doing(Action::Wait { until: until.min(context.at.after(context.limits.heartbeat)) })
    }

    // --- helpers ---------------------------------------------------------------------------------

    /// The run after paying for a plan. `None` if its budget is exhausted.
    pub(super) fn pay(self, plan: RecoveryPlan) -> Option<Self> {
        let Some(price) = plan.info().price else { return Some(self) };
        Some(Self { budgets: self.budgets.spend(price)?, ..self })
    }

    /// Chooses a recovery plan and pays for it. The table offers no plan that cannot be paid.
    pub(super) fn choose_plan(
        self,
        cause: RecoveryCause,
        context: StepContext<'_>,
    ) -> (Self, RecoveryPlan) {
        let chosen = plan(cause, &self, context.at, context.limits);
        match self.pay(chosen) {
            Some(run) => (run, chosen),
            None => (self, RecoveryPlan::Stop(StopReason::InternalError)),
        }
    }

    /// Recovers from a cause that has one plan besides the end of the run: pays for that plan, and
    /// performs it by `perform`.
    pub(super) fn recover(
        self,
        cause: RecoveryCause,
        context: StepContext<'_>,
        perform: impl FnOnce(Self) -> StepOutcome,
    ) -> StepOutcome {
        let (run, chosen) = self.choose_plan(cause, context);
        let outcome =
            if let RecoveryPlan::Stop(reason) = chosen { run.stop(reason) } else { perform(run) };
        outcome.by(cause, chosen)
    }

    /// Records that the call was answered. If the preferred model answered, the model chain starts
    /// over.
    pub(super) fn settle(self, context: StepContext<'_>) -> Self {
        let (first_try, full) = (self.attempts.failures == 0, &context.limits.budgets);
        let budgets = self.budgets.renewed_by_success(full, first_try);
        let budgets =
            if self.model_index == 0 { budgets.renewed_by(Renewal::Return, full) } else { budgets };
        let run = self.record_service_reached(context).with_failures(0);
        let preferred = PreferredModel { fallback_from: None, ..run.preferred };
        Self { budgets, preferred, ..run }
    }

    /// Records that the service was reached.
    pub(super) fn record_service_reached(self, context: StepContext<'_>) -> Self {
        let streaming = self.streaming.after_answer(context.limits);
        let attempts = Attempts { overloads: 0, ..self.attempts };
        Self { attempts, streaming, connection: ConnectionChoice::Pooled, ..self }
    }

    /// Records that the reply ended normally.
    pub(super) fn record_reply_ended(self, context: StepContext<'_>) -> Self {
        let budgets = self.budgets.renewed_by(Renewal::Turn, &context.limits.budgets);
        Self { budgets, ..self }
    }

    /// Counts output tokens towards the token budget. Enough of them renew the nudges.
    pub(super) fn count_output_tokens(self, tokens: u32, context: StepContext<'_>) -> Self {
        if self.effort.left == 0 {
            return self;
        }
        let since_nudge = self.effort.since_nudge.saturating_add(tokens).min(NUDGE_WORTH);
        let left = self.effort.left.saturating_sub(tokens);
        let run = Self { effort: RequiredEffort { left, since_nudge }, ..self };
        if since_nudge < NUDGE_WORTH {
            return run;
        }
        Self { budgets: run.budgets.renewed_by(Renewal::Effort, &context.limits.budgets), ..run }
    }

    /// True if the run ended because compaction no longer helped.
    pub fn gave_up_compacting(self) -> bool {
        self.compaction.is_useless() && self.phase == Phase::Stopped(StopReason::PromptTooLong)
    }

    /// True if the reply that was just paid for is the last one.
    pub(super) fn is_last_reply(self) -> bool {
        self.budgets.turns == Some(0)
    }

    /// True if it is time to wrap up.
    pub(super) fn should_wrap_up(self, at: Moment, limits: &Limits) -> bool {
        self.wrapping_up || limits.wrap_up.is_some_and(|moment| at >= moment)
    }

    pub(super) fn stop(self, reason: StopReason) -> StepOutcome {
        self.enter(Phase::Stopped(reason)).doing(Action::Finish(reason))
    }

    pub(super) fn enter(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    pub(super) fn doing(self, action: Action) -> StepOutcome {
        StepOutcome { run: self, recovery: None, edit: HistoryEdit::default(), action }
    }
}
