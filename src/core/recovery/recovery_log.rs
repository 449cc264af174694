//! The recovery log: plans, duration and cost of each recovery, derived from the steps of a run.
//!
//! A recovery begins with the first failure that has a recovery plan. It records the plans, their
//! duration and their cost, and ends in one of two ways: the goal was reached (*saved*), or the run
//! ended first (*lost*), for any reason.
//!
//! ```text
//! failure ─► retry, switch, compact … ─► a complete reply, or the summary         saved
//!            nudge, restructure       ─► an accepted answer                       saved
//!            answer the objection     ─► no Stop hook objects                     saved
//!            retry the requirement    ─► the command passes                       saved
//!                                     └► the run ends                             lost
//! ```
//! A call has one recovery at a time, which includes all failures during the call. There is also
//! one at a time for the schema, the token budget, the Stop hooks and the acceptance of an answer,
//! each beside the recoveries of the calls that are made for it.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use super::recovery_record::{RecoveryCounts, RecoveryGoal, RecoveryRecord};
use super::{
    Action, Event, Moment, RecoveryCause, RecoveryPlan, ReplyDisposition, ReplyKind, Spending,
    StopHookDecision, StopReason, Transition,
};

/// Maximum number of finished recoveries that are kept in full: the latest.
const MAX_RECORDS: usize = 100;

/// The recoveries of a run: open ones, finished ones, and totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryLog {
    totals: RecoveryTotals,
    open: Vec<OpenRecovery>,
    over: VecDeque<RecoveryRecord>,
    /// Start of the current pause; true if the pause is for a shared rate limit.
    pausing: Option<(Moment, bool)>,
    /// Times of the first and last step of this process.
    steps: Option<(Moment, Moment)>,
    /// Time of the last step, or of the end.
    now: Moment,
    /// The cost of the last call, until it is assigned to a recovery.
    bill: RecoveryBill,
}

/// The pauses for rate limits that were known on this host. They are among all pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedLimitWaits {
    pub count: u32,
    pub waited: Duration,
}

/// The probes for capacity that were sent. They are among the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentProbes {
    pub count: u32,
    pub cost: Spending,
}

/// Totals over all recoveries, open ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryTotals {
    /// Requests to the model, failed ones included.
    pub requests: u32,
    /// Failed calls with a recovery plan, by class.
    pub retries_by_class: RecoveryCounts,
    /// Recovery plans, by name.
    pub strategies: RecoveryCounts,
    /// Time spent in pauses that are over.
    pub waited: Duration,
    pub shared_limits: SharedLimitWaits,
    pub probes: SentProbes,
    /// Summaries that replaced an older part of the conversation.
    pub compactions: u32,
    /// Changes from one model to another because of a failure.
    pub fallbacks: u32,
    pub saved: u32,
    pub lost: u32,
    /// Finished recoveries that are no longer kept in full.
    pub forgotten: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RecoveryBill {
    cost: Spending,
    tokens: u64,
}

/// A recovery in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenRecovery {
    goal: RecoveryGoal,
    /// Start of the recovery, or the time at which this process resumed it.
    since: Moment,
    /// The record so far.
    record: RecoveryRecord,
}

impl RecoveryLog {
    pub fn totals(&self) -> &RecoveryTotals {
        &self.totals
    }

    /// The latest finished recoveries, oldest first.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &RecoveryRecord> {
        self.over.iter()
    }

    /// The time from the first to the last step of this process.
    pub fn worked(&self) -> Duration {
        self.steps.map_or(Duration::ZERO, |(first, last)| first.until(last))
    }

    /// Records the cost of a call. Called before the step that the call leads to.
    pub fn record_cost(&mut self, cost: impl Into<Spending>, tokens: u64) {
        self.bill.cost += cost.into();
        self.bill.tokens = self.bill.tokens.saturating_add(tokens);
    }

    /// Records a step. `turns` counts the replies in the history, that of this step included.
    /// Returns the recoveries that it ends.
    pub fn observe(&mut self, step: &Transition, turns: u32) -> Vec<RecoveryRecord> {
        self.advance_clock(step);
        self.count(step);
        let bill = mem::take(&mut self.bill);
        if let Some(open) = self.open_call_recovery().filter(|_| step.event.replaces_request()) {
            open.record.attempts = open.record.attempts.saturating_sub(1);
        }
        if matches!(step.event, Event::Probed(_)) {
            self.totals.probes.cost += bill.cost;
        }
        let kept = step.edit.reply == ReplyDisposition::Keep;
        if kept {
            // The summary itself was expected, unless an earlier request for it had failed.
            charge(self.open.iter_mut().rfind(|open| !open.goal.is_of_a_call()), bill);
        }
        if let Some(failure) = step.cause.and_then(RecoveryCause::as_failure) {
            self.record_failure(failure, step, turns);
        } else if let (Some(RecoveryPlan::ReturnEarly), Some(open)) =
            (step.plan, self.open_call_recovery())
        {
            RecoveryPlan::ReturnEarly.name().clone_into(&mut open.record.strategy);
            open.record.strategies.add(RecoveryPlan::ReturnEarly.name());
        }
        if !kept {
            charge(self.open_call_recovery(), bill);
        }
        if let (Action::Ask(_), Some(open)) = (step.action, self.open_call_recovery()) {
            open.record.attempts = open.record.attempts.saturating_add(1);
        }
        let open = mem::take(&mut self.open);
        let (saved, open) = open.into_iter().partition(|open| open.is_reached_by(step));
        self.open = open;
        let mut ended = self.close(saved, None);
        if let Action::Finish(reason) = step.action {
            ended.extend(self.end(step.at, reason));
        }
        ended
    }

    /// Records the end of the run, whether or not a step reported it. Returns the recoveries that
    /// this ends.
    pub fn end(&mut self, at: Moment, reason: StopReason) -> Vec<RecoveryRecord> {
        self.now = at;
        self.stop_waiting();
        let lost = mem::take(&mut self.open);
        self.close(lost, Some(reason))
    }

    /// Continues the log in a new process, in which time starts again. Open recoveries stay open.
    #[must_use]
    pub fn resumed(mut self) -> Self {
        self.stop_waiting();
        for open in &mut self.open {
            open.record.took += open.since.until(self.now);
            open.since = Moment::default();
        }
        Self { steps: None, now: Moment::default(), ..self }
    }

    fn advance_clock(&mut self, step: &Transition) {
        self.now = step.at;
        let first = self.steps.map_or(step.at, |(first, _)| first);
        self.steps = Some((first, step.at));
        if let Some((_, why)) = step.next.phase.pause() {
            self.pausing.get_or_insert((step.at, why.is_for_shared_limit()));
        } else {
            self.stop_waiting();
        }
    }

    fn stop_waiting(&mut self) {
        let Some((since, for_others)) = self.pausing.take() else { return };
        let waited = since.until(self.now);
        self.totals.waited += waited;
        if for_others {
            self.totals.shared_limits.count += 1;
            self.totals.shared_limits.waited += waited;
        }
        if let Some(open) = self.open_call_recovery() {
            open.record.waited += waited;
        }
    }

    fn count(&mut self, step: &Transition) {
        let totals = &mut self.totals;
        let probing = u32::from(matches!(step.action, Action::Probe { .. }));
        totals.requests += probing + u32::from(matches!(step.action, Action::Ask(_)));
        totals.probes.count += probing;
        // A request that was not sent was counted when it was planned.
        let unsent = u32::from(step.event.says_unsent_probe());
        totals.probes.count -= unsent.min(totals.probes.count);
        let unsent = unsent + u32::from(step.event.replaces_request());
        totals.requests -= unsent.min(totals.requests);
        totals.compactions += u32::from(step.edit.reply == ReplyDisposition::Summary);
        // Probes have a count of their own: not every due probe is sent.
        let is_counted =
            |plan: &RecoveryPlan| !matches!(plan, RecoveryPlan::Stop(_) | RecoveryPlan::Probe);
        let Some(plan) = step.plan.filter(is_counted) else { return };
        totals.strategies.add(plan.name());
        totals.fallbacks += u32::from(plan == RecoveryPlan::SwitchModel);
        let is_retry = matches!(
            step.event,
            Event::Failed(_) | Event::Replied(ReplyKind::Empty | ReplyKind::Incomplete(_))
        );
        if let Some(class) = step.failure_class().filter(|_| is_retry) {
            totals.retries_by_class.add(class);
        }
    }

    fn open_call_recovery(&mut self) -> Option<&mut OpenRecovery> {
        self.open.iter_mut().find(|open| open.goal.is_of_a_call())
    }

    /// Records a failure. A failure without a recovery plan counts only for an open recovery.
    fn record_failure(
        &mut self,
        (class, goal): (&'static str, RecoveryGoal),
        step: &Transition,
        turns: u32,
    ) {
        let of_a_call = goal.is_of_a_call();
        let plan = step.plan.filter(|plan| !matches!(plan, RecoveryPlan::Stop(_)));
        let is_same =
            |open: &OpenRecovery| open.goal == goal || (of_a_call && open.goal.is_of_a_call());
        let at = match (self.open.iter().position(is_same), plan) {
            (Some(at), _) => at,
            (None, None) => return,
            (None, Some(_)) => {
                let next = of_a_call && step.edit.reply != ReplyDisposition::Keep;
                let turn = turns.saturating_add(u32::from(next));
                let record =
                    RecoveryRecord { class: class.to_owned(), turn, ..RecoveryRecord::default() };
                self.open.push(OpenRecovery { goal, since: step.at, record });
                self.open.len() - 1
            }
        };
        let open = &mut self.open[at];
        // A call counts when it is made, but the call that failed first was made before the
        // recovery.
        let is_call = matches!(step.event, Event::Failed(_) | Event::Replied(_));
        let counts = !of_a_call || (is_call && open.record.attempts == 0);
        let record = &mut open.record;
        record.attempts = record.attempts.saturating_add(u32::from(counts));
        record.failures.add(class);
        let Some(plan) = plan else { return };
        if plan == RecoveryPlan::SkipCompaction {
            open.goal = RecoveryGoal::Reply;
        }
        plan.name().clone_into(&mut record.strategy);
        record.strategies.add(plan.name());
        if let Some(transition) = plan.transition() {
            record.transition = Some(transition.to_owned());
        }
    }

    fn close(
        &mut self,
        closed: Vec<OpenRecovery>,
        lost_to: Option<StopReason>,
    ) -> Vec<RecoveryRecord> {
        let mut ended = Vec::with_capacity(closed.len());
        for OpenRecovery { goal, since, mut record } in closed {
            // The successful judgement is the last one.
            let judged = lost_to.is_none() && !goal.is_of_a_call();
            record.attempts = record.attempts.saturating_add(u32::from(judged));
            record.took += since.until(self.now);
            record.saved = lost_to.is_none();
            record.lost_to = lost_to.map(|reason| reason.name().to_owned());
            match lost_to {
                None => self.totals.saved += 1,
                Some(_) => self.totals.lost += 1,
            }
            if self.over.len() == MAX_RECORDS {
                self.over.pop_front();
                self.totals.forgotten += 1;
            }
            self.over.push_back(record.clone());
            ended.push(record);
        }
        ended
    }
}

impl OpenRecovery {
    /// True if a step reaches the goal.
    fn is_reached_by(&self, step: &Transition) -> bool {
        let is_answer = matches!(step.event, Event::Replied(reply) if reply.is_answer());
        let is_whole = is_answer
            || matches!(
                step.event,
                Event::Replied(ReplyKind::ToolCalls { .. } | ReplyKind::Refusal)
            );
        let is_kept = is_whole && step.edit.reply == ReplyDisposition::Keep;
        let is_accepted = step.plan.is_none()
            && matches!(
                step.action,
                Action::RunRequirement | Action::Finish(StopReason::Completed)
            );
        match self.goal {
            RecoveryGoal::Summary => step.edit.reply == ReplyDisposition::Summary || is_kept,
            RecoveryGoal::Reply => is_kept,
            RecoveryGoal::Shape => {
                // A text is accepted if there is an earlier structured output.
                let is_rejected =
                    matches!(step.plan, Some(RecoveryPlan::Restructure | RecoveryPlan::Stop(_)));
                matches!(step.event, Event::Delivered | Event::DeliveredEarly)
                    || (is_answer && is_kept && !is_rejected)
            }
            RecoveryGoal::Effort => {
                let is_delivered = matches!(
                    step.event,
                    Event::Delivered
                        | Event::BackgroundWaited(_)
                        | Event::Consulted(StopHookDecision::Pass)
                );
                (is_answer || is_delivered) && is_accepted
            }
            RecoveryGoal::Consent => step.event == Event::Consulted(StopHookDecision::Pass),
            RecoveryGoal::Acceptance => step.event == Event::Checked { passed: true },
        }
    }
}

fn charge(open: Option<&mut OpenRecovery>, bill: RecoveryBill) {
    if let Some(open) = open {
        open.record.cost += bill.cost.amount;
        open.record.cost_is_partial |= bill.cost.is_partial;
        open.record.tokens = open.record.tokens.saturating_add(bill.tokens);
    }
}
