//! Invariants of a run, checked only on what is visible from outside.
//!
//! The checks use requests, replies and the clock, never the state of the machine itself.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_core::recovery::{
    Action, CallPurpose, CompactionTrigger, ErrorClass, Event, Failure, LoopStatus, ModelCall,
    Moment, Nudge, Persistence, Phase, Probed, QuerySource, RecoveryPlan, ReplyDisposition,
    ReplyKind, ReplyMode, RetryHint, Run, StopHookDecision, StopReason, TokenEstimate, Transition,
    Trim,
};

use super::super::secs;
use super::environment::Simulation;
use super::refusals::{is_final, is_odd, is_shortage};
use super::streams::Streams;

/// The properties that distinguish requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    model_index: u8,
    pub(super) purpose: CallPurpose,
    revision: u64,
    fast: bool,
}

/// Counters of what is visible from outside.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) requests: u64,
    pub(super) plans: BTreeSet<&'static str>,
    pub(super) sent: Option<Sent>,
    /// Requests that repeated one that had failed, since the last reply.
    repeats: u32,
    /// Requests that repeated one after an odd refusal, since the last reply.
    odd: u32,
    refreshes: u32,
    empty: u32,
    turns: u32,
    /// No request to this model before then.
    allowed: Moment,
    failed: Option<Failure>,
    /// Requests that were refused for what is in them. None of them is made again.
    refused: Vec<Sent>,
    /// Whether it was a request to the model that failed, and not a refresh.
    failed_asking: bool,
    last_reply: Option<ReplyKind>,
    /// Since the last turn that ended.
    turn: Counts,
    compactions: u32,
    /// Compactions in a row after which the conversation was still too large.
    useless: u8,
    /// The size of the request that the last summary was asked for, until its effect is measured.
    summed_up: Option<u32>,
    /// The size of the last request for a reply, as estimated.
    size: u32,
    /// Compactions ahead of need in a row that came to nothing.
    forgone: u8,
    models: Models,
    speed: Speed,
    probes: Probes,
    streams: Streams,
    unmet: u8,
    tries: u8,
    answers: Answers,
}

#[derive(Default)]
struct Answers {
    /// Whether the model was reminded of what is open.
    reminded: bool,
    /// Whether the model was asked for more effort after an answer, and nothing has objected since.
    asked_for_more: bool,
    /// Whether an output was accepted, and nothing has objected since.
    delivered: bool,
}

/// Counts of the actions that have a limit in each turn.
#[derive(Default)]
struct Counts {
    drains: u8,
    reactive: u8,
    strips: u8,
    heals: u8,
    omitted: u8,
    trims: u8,
    escalations: u8,
    continuations: u8,
    resumptions: u8,
    incomplete_retries: u8,
    completions: u8,
    overflow_retries: u8,
    /// Whether this turn asked for a summary already, and whether anything failed in it.
    compacted: bool,
    troubled: bool,
}

#[derive(Default)]
struct Models {
    /// Bit `n`: model `n` was tried since the chain began.
    tried: u8,
    switched: Option<Moment>,
    /// Which model to go back to.
    home: Option<u8>,
    probes: u8,
    /// Whether the preferred model was asked once more before the end, since the last reply.
    retried: bool,
}

#[derive(Default)]
struct Probes {
    /// Start of the latest one, sent or not.
    begun: Moment,
    /// Start of the latest one that was sent.
    last: Option<Moment>,
    /// Calls ahead of the back-off since the last reply or change of model.
    early: u8,
}

#[derive(Default)]
struct Speed {
    cooling: Moment,
    denied: bool,
    /// The next request to the same model is fast.
    stays: bool,
}

impl Seen {
    /// Another process takes the run up. What it was waiting for means nothing to it.
    pub(super) fn begin_again(&mut self) {
        (self.allowed, self.failed, self.repeats, self.refreshes) = (Moment::default(), None, 0, 0);
        self.probes = Probes::default();
        self.odd = 0;
        (self.models.switched, self.models.home) = (None, None);
        (self.speed.cooling, self.speed.stays) = (Moment::default(), false);
        (self.useless, self.summed_up) = (0, None);
        (self.answers.delivered, self.answers.asked_for_more) = (false, false);
        self.size = 0;
        self.streams = Streams::default();
        self.turn.overflow_retries = 0;
        // It has not been refused anything, and may take out of the conversation what it can.
        self.refused.clear();
        let turn = &mut self.turn;
        (turn.drains, turn.reactive, turn.strips, turn.heals) = (0, 0, 0, 0);
        turn.omitted = 0;
    }

    /// Whether the last request was not for this.
    pub(super) fn is_new_to(&self, purpose: CallPurpose) -> bool {
        self.sent.is_none_or(|sent| sent.purpose != purpose)
    }

    /// Whether the request at hand repeats one that was called too long.
    pub(super) fn is_unexpected_after_success(&self) -> bool {
        self.turn.overflow_retries > 0
    }

    fn was_summarising(&self) -> bool {
        self.sent.is_some_and(|sent| sent.purpose != CallPurpose::Reply)
    }
}

fn is_unmet(nudge: Nudge) -> bool {
    matches!(nudge, Nudge::Unmet | Nudge::UnmetAgain | Nudge::UnmetLast)
}

/// From the window, less what a first reply takes, less the headroom; half of it at least.
fn is_over_threshold(weight: TokenEstimate) -> bool {
    let reserved = 8_192.min(weight.ceiling) + 13_000;
    weight.size >= weight.window.saturating_sub(reserved).max(weight.window / 2)
}

impl Simulation {
    pub(super) fn check(&mut self, before: Run, step: &Transition) {
        let seed = self.seed;
        let over_the_top = self.ledger.ceiling().is_some_and(|top| self.ledger.spent() > top);
        assert!(!over_the_top, "seed {seed}: spent {}", self.ledger.spent());
        self.seen.plans.extend(step.plan.map(RecoveryPlan::name));
        self.begin_turn(step.event);
        self.hear(before, step);
        self.check_models(before, step);
        self.check_context(before, step);
        self.check_mitigations(step);
        self.check_nudges(step);
        if step.edit.reply == ReplyDisposition::Keep {
            self.seen.turns += 1;
            self.seen.streams.whole = self.seen.streams.whole.saturating_sub(1);
            let most = self.limits.budgets.turns.unwrap_or(u32::MAX);
            assert!(self.seen.turns <= most, "seed {seed}: {} turns", self.seen.turns);
        }
        match step.action {
            Action::Ask(ask) => self.check_request(ask),
            Action::Refresh => self.check_refresh(),
            Action::Probe { .. } => self.check_probe(),
            Action::Finish(reason) => self.check_end(reason, step.event),
            Action::Estimate { .. }
            | Action::RunTools
            | Action::RunStopHooks
            | Action::RunRequirement
            | Action::AwaitWork { .. }
            | Action::Wait { .. } => {}
        }
    }

    /// A turn begins with everything that a model is asked anew after.
    fn begin_turn(&mut self, event: Event) {
        let answered =
            matches!(event, Event::Replied(ReplyKind::Answer { .. } | ReplyKind::LeftOpen { .. }));
        let begins = matches!(
            event,
            Event::Begin
                | Event::ToolsDone(_)
                | Event::Delivered
                | Event::SchemaMismatch
                | Event::Consulted(_)
                | Event::Checked { .. }
        );
        if begins || (answered && !self.seen.was_summarising()) {
            (self.seen.turn.compacted, self.seen.turn.troubled) = (false, false);
        }
        self.seen.answers.delivered |= matches!(event, Event::Delivered | Event::DeliveredEarly);
    }

    fn hear(&mut self, before: Run, step: &Transition) {
        match step.event {
            Event::Failed(failure) => {
                let asking = !matches!(before.phase, Phase::Calling(call)
                    if matches!(call, outlast_core::recovery::Call::Refresh(_)));
                let wish = failure.retry_after.map_or(Duration::ZERO, |wish| wish.wait);
                self.seen.failed = Some(failure);
                self.remember(failure, asking);
                if asking {
                    self.seen.streams.fail(failure);
                }
                self.seen.failed_asking = asking;
                self.seen.turn.troubled = true;
                let fast = asking && self.seen.sent.is_some_and(|sent| sent.fast);
                let slower = fast && is_shortage(failure) && self.cool_down(failure);
                if !slower {
                    self.seen.allowed = self.seen.allowed.max(self.now.after(wish));
                }
                self.check_quota(failure, step);
            }
            Event::Replied(reply) => self.observe_reply(reply),
            Event::Probed(probed) => self.observe_probe(before, probed, step),
            Event::Checked { passed } => {
                self.seen.unmet += u8::from(!passed);
                let most = self.limits.budgets.requirement_tries + 1;
                assert!(self.seen.unmet <= most, "seed {}: checked for ever", self.seed);
            }
            Event::Begin
            | Event::Resumed(_)
            | Event::Estimated(_)
            | Event::ToolsDone(_)
            | Event::Delivered
            | Event::DeliveredEarly
            | Event::BackgroundWaited(_)
            | Event::SchemaMismatch
            | Event::Consulted(_)
            | Event::HookStopped
            | Event::Deferred
            | Event::SummaryPrevented
            | Event::Denied
            | Event::Refreshed
            | Event::SharedLimitMet { .. }
            | Event::WaitEnded
            | Event::Interrupted(_)
            | Event::DeadlinePassed
            | Event::InternalError => {}
        }
    }

    fn observe_probe(&mut self, before: Run, probed: Probed, step: &Transition) {
        let seed = self.seed;
        // Every second one may be for the preferred model, which says nothing of the one in use.
        let of_another = !matches!(before.phase, Phase::Probing { model_index, .. }
            if model_index == before.model_index);
        let slower =
            matches!(step.plan, Some(RecoveryPlan::CoolDown | RecoveryPlan::DisableFastMode));
        if let Probed::Failed(failure) = probed
            && !of_another
        {
            let wish = failure.retry_after.map_or(Duration::ZERO, |wish| wish.wait);
            if !slower {
                self.seen.allowed = self.seen.allowed.max(self.now.after(wish));
            }
            self.check_quota(failure, step);
        }
        if matches!(probed, Probed::Answered | Probed::Failed(_)) {
            let (begun, least) = (self.seen.probes.begun, self.limits.probe_interval);
            let least = least.unwrap_or_default() / 5 * 4;
            let before = self.seen.probes.last.replace(begun);
            let rested = before.is_none_or(|before| before.until(begun) >= least);
            assert!(rested, "seed {seed}: probed too often");
        }
        if step.plan == Some(RecoveryPlan::ReturnEarly) {
            self.seen.probes.early += 1;
            let most = self.limits.budgets.early_returns;
            assert!(self.seen.probes.early <= most, "seed {seed}: back early for ever");
        }
    }

    /// The service is out, may be asked, and was not asked a moment ago.
    fn check_probe(&mut self) {
        let seed = self.seed;
        self.seen.requests += 1;
        assert_ne!(self.limits.persistence, Persistence::Off, "seed {seed}: probed");
        let (now, allowed) = (self.now, self.seen.allowed);
        assert!(now >= allowed, "seed {seed}: probed {:?} early", now.until(allowed));
        let in_time = self.limits.deadline.is_none_or(|deadline| now < deadline);
        assert!(in_time, "seed {seed}: a probe after the deadline");
        let waiting = self.seen.failed.is_some();
        assert!(waiting, "seed {seed}: probed a service that is not known to be out");
        self.seen.probes.begun = now;
    }

    fn remember(&mut self, failure: Failure, asking: bool) {
        let mended_elsewhere = matches!(
            failure.class,
            ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked | ErrorClass::Aborted
        );
        let told_to = failure.retry_hint == Some(RetryHint::Retry);
        let doubtful = failure.contradicted && !self.seen.is_unexpected_after_success();
        let may_come_again = told_to || doubtful || is_odd(failure);
        if asking && is_final(failure.class) && !mended_elsewhere && !may_come_again {
            self.seen.refused.extend(self.seen.sent.map(|sent| Sent { fast: false, ..sent }));
        }
    }

    /// Returns whether the run should be slower now.
    fn cool_down(&mut self, failure: Failure) -> bool {
        let wish = failure.retry_after.map(|wish| wish.wait).filter(|wait| !wait.is_zero());
        if failure.fast_denied {
            self.seen.speed.denied = true;
            return true;
        }
        let near = |wait: Duration| {
            let ends = self.limits.deadline.is_some_and(|end| self.now.after(wait) >= end);
            wait <= self.limits.max_retry_wait && !ends
        };
        let spell = match wish {
            Some(wait) if wait < secs(20) && near(wait) => {
                self.seen.speed.stays = true;
                return false;
            }
            Some(wait) => wait.max(secs(600)),
            None => secs(1_800),
        };
        self.seen.speed.cooling = self.now.after(spell);
        true
    }

    fn observe_reply(&mut self, reply: ReplyKind) {
        self.seen.failed = None;
        self.seen.streams.hold();
        let summarising = self.seen.was_summarising();
        if !summarising {
            self.seen.last_reply = Some(reply);
        }
        if !matches!(reply, ReplyKind::Empty | ReplyKind::Incomplete(_)) || summarising {
            (self.seen.repeats, self.seen.refreshes, self.seen.probes.early) = (0, 0, 0);
            self.seen.odd = 0;
            let models = &mut self.seen.models;
            (models.home, models.retried) = (None, false);
            // Where the preferred model answers, the chain begins anew.
            if self.seen.sent.is_some_and(|sent| sent.model_index == 0) {
                models.tried = 1;
            }
        }
        match reply {
            _any if summarising => {}
            ReplyKind::Empty => {
                self.seen.empty += 1;
                self.seen.turn.troubled = true;
                // One more is the end, and one more may come from a model that was tried again.
                let most = u32::from(self.limits.budgets.empty_replies) + 2;
                assert!(self.seen.empty <= most, "seed {}: empty for ever", self.seed);
            }
            ReplyKind::Answer { .. }
            | ReplyKind::Early { .. }
            | ReplyKind::LeftOpen { .. }
            | ReplyKind::ToolCalls { .. } => {
                let compacted = self.seen.turn.compacted;
                self.seen.turn = Counts { compacted, ..Counts::default() };
                self.seen.empty = 0;
                self.seen.turn.compacted &=
                    !matches!(reply, ReplyKind::Answer { .. } | ReplyKind::LeftOpen { .. });
            }
            ReplyKind::Incomplete(_) => self.seen.turn.troubled = true,
            ReplyKind::CutShort(_) | ReplyKind::Refusal | ReplyKind::Paused => {}
        }
    }

    // --- which model --------------------------------------------------------------------------

    fn check_models(&mut self, before: Run, step: &Transition) {
        let (from, to, seed) = (before.model_index, step.next.model_index, self.seed);
        let models = &mut self.seen.models;
        models.tried |= 1 << from;
        if from == to {
            return;
        }
        let back = models.home.is_some();
        if step.plan == Some(RecoveryPlan::ReturnEarly) {
            assert_eq!(to, 0, "seed {seed}: only the preferred model is returned to");
            (models.home, models.tried) = (Some(from), 1);
        } else if matches!(step.event, Event::ToolsDone(_)) {
            let pause = self.limits.fallback_return;
            let pause = pause.unwrap_or_else(|| panic!("seed {seed}: no return is configured"));
            let earliest = models.switched.map(|moment| moment.after(pause));
            assert!(earliest <= Some(self.now), "seed {seed}: tried again too soon");
            assert_eq!(to, 0, "seed {seed}: only the preferred model is tried again");
            models.probes += 1;
            assert!(models.probes <= self.limits.budgets.probes, "seed {seed}: tried for ever");
            (models.home, models.tried) = (Some(from), 1);
        } else {
            let allowed = matches!(
                step.event,
                Event::Failed(_)
                    | Event::Probed(Probed::Failed(_))
                    | Event::Replied(ReplyKind::Empty | ReplyKind::Incomplete(_))
            );
            assert!(allowed, "seed {seed}: the model changed by {:?}", step.event);
            if step.plan == Some(RecoveryPlan::RetryPreferredModel) {
                assert_eq!(to, 0, "seed {seed}: only the preferred model is asked once more");
                assert!(!models.retried, "seed {seed}: asked once more for ever");
                models.retried = true;
            } else if let Some(home) = models.home.take() {
                assert_eq!(to, home, "seed {seed}: not where it came from");
            } else {
                assert_eq!(to, from + 1, "seed {seed}: not the next model");
                assert_eq!(models.tried & (1 << to), 0, "seed {seed}: model {to} again");
            }
            models.switched = Some(self.now);
        }
        let way = from.min(to)..from.max(to);
        if way.into_iter().any(|model_index| self.limits.endpoint_changes >> model_index & 1 == 1) {
            self.seen.streams = Streams::default();
        }
        self.seen.speed.stays = false;
        (self.seen.allowed, self.seen.failed) = (Moment::default(), None);
        (self.seen.repeats, self.seen.refreshes) = (0, 0);
        if step.plan != Some(RecoveryPlan::ReturnEarly) && !back {
            self.seen.probes.early = 0;
        }
        self.seen.odd = 0;
    }

    // --- the window ---------------------------------------------------------------------------

    fn check_context(&mut self, before: Run, step: &Transition) {
        let seed = self.seed;
        if step.edit.reply == ReplyDisposition::Summary {
            self.seen.summed_up = Some(self.seen.size);
        }
        // A summary that is missing after an overflow does not count.
        let is_without = step.plan == Some(RecoveryPlan::CompactUnsummarised);
        if step.plan == Some(RecoveryPlan::SkipCompaction) {
            self.seen.forgone += 1;
        } else if step.edit.reply == ReplyDisposition::Summary && !is_without {
            self.seen.forgone = 0;
        }
        if let (Event::Estimated(weight), Phase::Estimating(CallPurpose::Reply)) =
            (step.event, before.phase)
        {
            let crowded = is_over_threshold(weight);
            if let Some(before) = self.seen.summed_up.take() {
                let progress = !crowded || weight.size <= before - before / 4;
                self.seen.useless = if progress { 0 } else { self.seen.useless + 1 };
            }
            self.seen.size = weight.size;
            let ends = matches!(step.action, Action::Finish(_));
            assert!(self.seen.useless < 2 || ends, "seed {seed}: compaction does not help");
            self.check_automatic_compaction(weight, crowded, step.action);
        }
        if let (Event::Refreshed, Action::Estimate { purpose, .. }) = (step.event, step.action) {
            assert!(!self.seen.is_new_to(purpose), "seed {seed}: refreshed for something else");
        }
    }

    /// Compaction happens exactly when it is due.
    fn check_automatic_compaction(&mut self, weight: TokenEstimate, crowded: bool, action: Action) {
        let seed = self.seed;
        let working =
            self.limits.auto_compact && self.seen.forgone < self.limits.budgets.failed_compactions;
        let left =
            self.limits.budgets.compactions.is_none_or(|most| self.seen.compactions < most.into());
        let due =
            crowded && working && left && weight.mitigations.rounds && !self.seen.turn.compacted;
        let ahead = CallPurpose::Summary(CompactionTrigger::Threshold);
        match action {
            Action::Estimate { purpose, .. } if purpose == ahead => {
                assert!(due, "seed {seed}: compacted without need");
            }
            Action::Ask(_) => {
                let late = due && !self.seen.turn.troubled;
                assert!(!late, "seed {seed}: not compacted in time: {weight:?}");
                let full = weight.size >= weight.window;
                assert!(!full || !weight.counted, "seed {seed}: sent, and known not to fit");
                let drains = weight.mitigations.folds && self.seen.turn.drains == 0;
                let reacts = weight.mitigations.rounds && self.seen.turn.reactive == 0 && left;
                assert!(!full || (!drains && !reacts), "seed {seed}: sent to be refused");
            }
            Action::Finish(StopReason::BlockingLimit) => {
                assert!(weight.size >= weight.window, "seed {seed}: blocked for nothing");
                let drains = weight.mitigations.folds && self.seen.turn.drains == 0;
                let reacts = weight.mitigations.rounds && self.seen.turn.reactive == 0 && left;
                assert!(!working && !drains && !reacts, "seed {seed}: blocked without need");
            }
            Action::Estimate { .. }
            | Action::Refresh
            | Action::RunTools
            | Action::RunStopHooks
            | Action::RunRequirement
            | Action::AwaitWork { .. }
            | Action::Wait { .. }
            | Action::Probe { .. }
            | Action::Finish(_) => {}
        }
    }

    /// Every mitigation of a turn stays within its budget.
    fn check_mitigations(&mut self, step: &Transition) {
        let (seed, full) = (self.seed, self.limits.budgets);
        let turn = &mut self.seen.turn;
        match step.edit.trim {
            Some(Trim::Folds) => turn.drains += 1,
            Some(Trim::OldestRounds) => turn.trims += 1,
            Some(Trim::Media) => turn.strips += 1,
            Some(Trim::Block) => turn.heals += 1,
            Some(Trim::Added) => turn.omitted += 1,
            Some(Trim::ThinkingParameter | Trim::CacheMarks | Trim::Streaming) | None => {}
        }
        let is = |plan| u8::from(step.plan == Some(plan));
        turn.escalations += is(RecoveryPlan::Escalate);
        turn.continuations += is(RecoveryPlan::Continue);
        turn.resumptions += is(RecoveryPlan::Resume);
        turn.incomplete_retries += is(RecoveryPlan::RetryIncomplete);
        turn.completions += is(RecoveryPlan::RequestCompletion);
        turn.overflow_retries += is(RecoveryPlan::RetryOverflow);
        turn.reactive += is(RecoveryPlan::CompactReactively);
        let begun = is(RecoveryPlan::Compact) + is(RecoveryPlan::CompactReactively);
        if begun > 0 {
            (turn.trims, turn.compacted) = (0, true);
        }
        self.seen.compactions += u32::from(begun);
        self.seen.tries += is(RecoveryPlan::Restructure);
        let reminds = step.plan == Some(RecoveryPlan::Remind);
        assert!(!(reminds && self.seen.answers.reminded), "seed {seed}: reminded twice");
        self.seen.answers.reminded |= reminds;
        self.seen.answers.asked_for_more |= step.edit.say == Some(Nudge::MoreEffort);
        let objects = |nudge: Nudge| nudge == Nudge::StopHookObjection || is_unmet(nudge);
        if step.edit.say.is_some_and(objects) {
            (self.seen.answers.asked_for_more, self.seen.answers.delivered) = (false, false);
        }
        let turn = &self.seen.turn;
        let bounds = [
            ("drains", turn.drains, full.fold_commits),
            ("trims", turn.trims, full.trims),
            ("strips", turn.strips, full.strips),
            ("heals", turn.heals, full.block_repairs),
            ("omitted", turn.omitted, full.added_content),
            ("escalations", turn.escalations, full.escalations),
            ("continuations", turn.continuations, full.continuations),
            ("resumptions", turn.resumptions, full.resumptions),
            ("retries of incomplete replies", turn.incomplete_retries, full.incomplete_retries),
            ("completions", turn.completions, full.completions),
            ("retries of overflows", turn.overflow_retries, full.overflow_retries),
            ("reactive compactions", turn.reactive, full.reactive_compactions),
            ("tries at structure", self.seen.tries, full.schema_tries),
        ];
        for (what, times, most) in bounds {
            assert!(times <= most, "seed {seed}: {times} {what}");
        }
        let most = full.compactions.map_or(u32::MAX, u32::from);
        assert!(self.seen.compactions <= most, "seed {seed}: {} summaries", self.seen.compactions);
    }

    /// Checks that the model gets the nudges that it should, and no others.
    fn check_nudges(&self, step: &Transition) {
        let seed = self.seed;
        let goes_on = matches!(step.action, Action::Estimate { .. });
        if goes_on && step.event == Event::ToolsDone(LoopStatus::Repeating) {
            assert_eq!(step.edit.say, Some(Nudge::StepBack), "seed {seed}");
        } else if step.event == Event::ToolsDone(LoopStatus::Stuck) {
            let stalls = step.action == Action::Finish(StopReason::Stalled);
            let stands = self.seen.answers.asked_for_more && step.keeps_answer();
            assert!(stalls || stands, "seed {seed}: {step:?}");
        } else if goes_on && (step.event == Event::Checked { passed: false }) {
            assert!(step.edit.say.is_some_and(is_unmet), "seed {seed}");
        }
    }

    // --- requests -----------------------------------------------------------------------------

    /// N retries are N+1 requests: whatever repeats a request that failed is counted here.
    fn check_request(&mut self, ask: ModelCall) {
        let seed = self.seed;
        self.seen.requests += 1;
        let allowed = self.seen.allowed;
        assert!(self.now >= allowed, "seed {seed}: asked {:?} early", self.now.until(allowed));
        let in_time = self.limits.deadline.is_none_or(|deadline| self.now < deadline);
        assert!(in_time, "seed {seed}: a request after the deadline");
        let room = self.weight.window.saturating_sub(self.weight.size).max(1_024);
        assert!(ask.cap <= room.min(self.weight.ceiling), "seed {seed}: {ask:?} has no room");
        self.check_speed(ask);
        let whole = self.seen.streams.whole > 0;
        assert_eq!(ask.mode == ReplyMode::Whole, whole, "seed {seed}: {ask:?}");
        self.seen.streams.asked = Some((ask.mode, ask.connection));
        let (model_index, purpose, fast) = (ask.model_index, ask.purpose, ask.fast);
        let sent = Some(Sent { model_index, purpose, revision: self.talk.revision, fast });
        let same = sent == self.seen.sent;
        let again =
            sent.is_some_and(|sent| self.seen.refused.contains(&Sent { fast: false, ..sent }));
        assert!(!again, "seed {seed}: {sent:?} was refused before");
        self.seen.sent = sent;
        if let Some(failed) = self.seen.failed.take()
            && same
        {
            self.repeat(failed);
        }
    }

    fn check_speed(&mut self, ask: ModelCall) {
        let seed = self.seed;
        let pace = &mut self.seen.speed;
        if ask.fast {
            assert!(self.limits.fast.is_some(), "seed {seed}: fast mode is not configured");
            assert!(!pace.denied, "seed {seed}: fast mode was denied");
            assert!(self.now >= pace.cooling, "seed {seed}: fast while cooling down");
        }
        let slowed = std::mem::take(&mut pace.stays) && !ask.fast;
        assert!(!slowed, "seed {seed}: slower for a short wait");
    }

    fn repeat(&mut self, failed: Failure) {
        let seed = self.seed;
        let told_to = failed.retry_hint == Some(RetryHint::Retry);
        if is_odd(failed) && !told_to {
            assert_ne!(
                failed.retry_hint,
                Some(RetryHint::Stop),
                "seed {seed}: asked against its word"
            );
            self.seen.odd += 1;
            // One more where the credential was fetched anew in between.
            let most = u32::from(self.limits.budgets.odd_refusals) + 1;
            assert!(self.seen.odd <= most, "seed {seed}: odd refusal {}", self.seen.odd);
            return;
        }
        let overflow =
            matches!(failed.class, ErrorClass::PromptTooLong | ErrorClass::RequestTooLarge);
        let doubtful = failed.contradicted && overflow;
        let refused = is_final(failed.class) && self.seen.failed_asking && !told_to && !doubtful;
        assert!(!refused, "seed {seed}: the same request after {}", failed.class);
        let overload = failed.class == ErrorClass::ServerOverload;
        let dropped = overload && self.limits.source == QuerySource::Background;
        assert!(!dropped, "seed {seed}: background work adds to an overload");
        assert_ne!(failed.retry_hint, Some(RetryHint::Stop), "seed {seed}: asked against its word");
        let uncounted = match self.limits.persistence {
            Persistence::Off => false,
            Persistence::Capacity => is_shortage(failed),
            Persistence::All => !matches!(
                failed.class,
                ErrorClass::BadResponse | ErrorClass::InvalidRequest | ErrorClass::Unknown
            ),
        };
        if !uncounted && !doubtful {
            self.seen.repeats += 1;
            let most = u32::from(self.limits.budgets.retries);
            assert!(self.seen.repeats <= most, "seed {seed}: retry {}", self.seen.repeats);
        }
    }

    /// A refresh answers a rejection, or repeats a refresh that failed.
    fn check_refresh(&mut self) {
        let Some(failed) = self.seen.failed.take() else { return };
        let key = matches!(failed.class, ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked);
        if self.seen.failed_asking && key {
            self.seen.refreshes += 1;
            let most = u32::from(self.limits.budgets.refreshes);
            assert!(self.seen.refreshes <= most, "seed {}: refreshes for ever", self.seed);
        } else if self.limits.persistence == Persistence::Off {
            self.repeat(failed);
        }
    }

    fn check_quota(&self, failed: Failure, step: &Transition) {
        let wait = failed.retry_after.map_or(Duration::ZERO, |wish| wish.wait);
        if is_shortage(failed) && wait > self.limits.max_retry_wait {
            let reason = StopReason::ModelError(ErrorClass::QuotaExhausted);
            let other = matches!(
                step.plan,
                Some(
                    RecoveryPlan::SwitchModel
                        | RecoveryPlan::RetryPreferredModel
                        | RecoveryPlan::CoolDown
                        | RecoveryPlan::DisableFastMode
                )
            );
            // Past the deadline nothing else is begun either.
            let late = step.action == Action::Finish(StopReason::Deadline);
            let over = step.action == Action::Finish(reason) || late;
            assert!(other || over, "seed {}: {step:?}", self.seed);
        }
    }

    // --- the end ------------------------------------------------------------------------------

    fn check_end(&self, reason: StopReason, event: Event) {
        let seed = self.seed;
        let in_time = self.limits.deadline.is_none_or(|deadline| self.now <= deadline);
        assert!(in_time, "seed {seed}: ended {:?}", self.now);
        match reason {
            StopReason::Completed => self.check_completion(event),
            StopReason::RequirementFailed => {
                let checks = self.limits.budgets.requirement_tries + 1;
                assert_eq!(self.seen.unmet, checks, "seed {seed}: given up too soon");
            }
            StopReason::StructuredOutputRetryExhausted => {
                assert_eq!(self.seen.tries, self.limits.budgets.schema_tries, "seed {seed}");
            }
            StopReason::PromptTooLong => {
                let summarising = self.seen.was_summarising();
                let overflowed = self.seen.failed.is_some_and(|failed| {
                    matches!(failed.class, ErrorClass::PromptTooLong | ErrorClass::RequestTooLarge)
                });
                let counted = self.weight.counted && self.weight.size >= self.weight.window;
                let lost = self.seen.useless >= 2 || overflowed || summarising || counted;
                assert!(lost, "seed {seed}: too long for nothing");
            }
            StopReason::MaxBudgetUsd => {
                let affordable = self.weight.affordable();
                assert!(affordable < 1_024, "seed {seed}: {affordable} tokens were left");
            }
            StopReason::InternalError | StopReason::OutputFailed | StopReason::RehearsalFailed => {
                panic!("seed {seed}: an error of ours")
            }
            StopReason::MaxTurns
            | StopReason::BackgroundPending
            | StopReason::Deadline
            | StopReason::AbortedStreaming(_)
            | StopReason::AbortedTools(_)
            | StopReason::HookStopped
            | StopReason::ToolDeferred
            | StopReason::Denied
            | StopReason::StopHookPrevented
            | StopReason::StopHookBlocked
            | StopReason::BlockingLimit
            | StopReason::MaxOutputTokens
            | StopReason::ImageError
            | StopReason::ModelError(_)
            | StopReason::EmptyResponse
            | StopReason::Refusal
            | StopReason::Stalled => {}
        }
        let early =
            self.limits.deadline.is_none_or(|deadline| self.now.after(secs(330)) < deadline);
        let told = |failed: Failure| failed.retry_after.is_some();
        let asked = self.seen.failed.is_some_and(told)
            || matches!(event, Event::Probed(Probed::Failed(failed)) if told(failed));
        assert!(reason != StopReason::Deadline || !early || asked, "seed {seed}: {reason:?} early");
    }

    /// A run is complete only with a reply that was delivered and accepted as requested.
    fn check_completion(&self, event: Event) {
        let (seed, limits) = (self.seed, &self.limits);
        let answered =
            matches!(event, Event::Replied(ReplyKind::Answer { .. } | ReplyKind::LeftOpen { .. }));
        // The answer before a reminder or more effort stands, however the work after it ends.
        let stands = self.seen.answers.reminded || self.seen.answers.asked_for_more;
        let said = if limits.requirement {
            event == Event::Checked { passed: true }
        } else if limits.stop_hooks {
            event == Event::Consulted(StopHookDecision::Pass)
        } else if limits.structured {
            // Words after an accepted output change nothing.
            event == Event::Delivered || (self.seen.answers.delivered && (answered || stands))
        } else {
            answered || stands
        };
        assert!(said, "seed {seed}: completed by {event:?}");
        assert!(
            !limits.structured || self.seen.answers.delivered,
            "seed {seed}: nothing was delivered"
        );
        let last = self.seen.last_reply;
        let whole = matches!(
            last,
            Some(
                ReplyKind::Answer { .. } | ReplyKind::LeftOpen { .. } | ReplyKind::ToolCalls { .. }
            )
        );
        assert!(whole || stands, "seed {seed}: completed after {last:?}");
    }
}
