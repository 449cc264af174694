//! Compares the recovery log with counts made from outside.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::recovery::{
    Action, Event, Moment, Money, Probed, RecoveryLog, RecoveryPlan, RecoveryRecord,
    ReplyDisposition, ReplyKind, StopReason, Transition,
};

#[derive(Default)]
pub(super) struct Records {
    chronicle: RecoveryLog,
    ended: Vec<RecoveryRecord>,
    turns: u32,
    tried: BTreeMap<&'static str, u32>,
    requests: u32,
    probes: u32,
    waited: Duration,
    /// Time of the last step, if that step began or prolonged a pause.
    paused: Option<Moment>,
    /// Whether something was done about a failure since the last whole reply.
    troubled: bool,
    /// Whether a summary is being asked for before anything had failed.
    ahead: bool,
    /// Whether an answer stood though the work after it failed.
    answer_stands: bool,
}

impl Records {
    pub(super) fn bill(&mut self, cost: Money) {
        self.chronicle.record_cost(cost, 1);
    }

    pub(super) fn begin_again(&mut self) {
        self.chronicle = std::mem::take(&mut self.chronicle).resumed();
        self.paused = None;
    }

    pub(super) fn hear(&mut self, seed: u64, step: &Transition) {
        self.turns += u32::from(step.edit.reply == ReplyDisposition::Keep);
        if let Some(since) = self.paused.take() {
            self.waited += since.until(step.at);
        }
        let probes = matches!(step.action, Action::Probe { .. });
        let waits = probes || matches!(step.action, Action::Wait { .. });
        self.paused = waits.then_some(step.at);
        self.requests += u32::from(probes || matches!(step.action, Action::Ask(_)));
        let unsent = matches!(
            step.event,
            Event::Probed(
                Probed::AnsweredElsewhere { .. } | Probed::Deferred { .. } | Probed::Unaffordable
            )
        );
        self.probes = self.probes + u32::from(probes) - u32::from(unsent);
        self.requests -= u32::from(unsent);
        let uncounted =
            |plan: &RecoveryPlan| matches!(plan, RecoveryPlan::Stop(_) | RecoveryPlan::Probe);
        let cure = step.plan.filter(|plan| !uncounted(plan));
        if let Some(plan) = cure {
            *self.tried.entry(plan.name()).or_default() += 1;
        }
        let ended = self.chronicle.observe(step, self.turns);
        self.answer_stands |= step.keeps_answer();
        if let Action::Finish(reason) = step.action {
            self.check_last(seed, reason, step.event, &ended);
        }
        self.ended.extend(ended);
        if step.plan == Some(RecoveryPlan::Compact) {
            self.ahead = !self.troubled;
        } else if step.plan == Some(RecoveryPlan::SkipCompaction) {
            self.ahead = false;
        }
        if step.edit.reply == ReplyDisposition::Summary && std::mem::take(&mut self.ahead) {
            self.troubled = false;
        }
        if matches!(step.event, Event::Failed(_)) {
            self.troubled |= cure.is_some();
        }
        let whole = |reply| {
            matches!(
                reply,
                ReplyKind::Answer { .. } | ReplyKind::LeftOpen { .. } | ReplyKind::ToolCalls { .. }
            )
        };
        if matches!(step.event, Event::Replied(reply) if whole(reply)) {
            self.troubled &= step.edit.reply != ReplyDisposition::Keep;
        }
    }

    /// A run that ends of a failure loses the recovery from it; one that succeeds loses none.
    fn check_last(&self, seed: u64, reason: StopReason, event: Event, ended: &[RecoveryRecord]) {
        let lost: Vec<&RecoveryRecord> = ended.iter().filter(|episode| !episode.saved).collect();
        // An answer before a nudge stands, though the work that the nudge asked for failed.
        if reason == StopReason::Completed && !self.answer_stands {
            assert_eq!(lost, [] as [&RecoveryRecord; 0], "seed {seed}: lost, and completed");
        }
        if matches!(event, Event::Failed(_)) && self.troubled {
            assert!(!lost.is_empty(), "seed {seed}: {reason:?} lost nothing");
        }
        for episode in lost {
            assert_eq!(episode.lost_to.as_deref(), Some(reason.name()), "seed {seed}");
        }
    }

    /// The run is over, and `spent` in all.
    pub(super) fn check(&self, seed: u64, spent: Money) {
        let totals = self.chronicle.totals();
        let sum = |of: fn(&RecoveryRecord) -> u32| self.ended.iter().map(of).sum::<u32>();
        assert_eq!(totals.saved, sum(|one| u32::from(one.saved)), "seed {seed}");
        assert_eq!(totals.lost, sum(|one| u32::from(!one.saved)), "seed {seed}");
        assert_eq!(totals.requests, self.requests, "seed {seed}");
        assert_eq!(totals.probes.count, self.probes, "seed {seed}");
        for (name, times) in &self.tried {
            assert_eq!(totals.strategies.of(name), *times, "seed {seed}: {name}");
            let told: u32 = self.ended.iter().map(|one| one.strategies.of(name)).sum();
            assert_eq!(told, *times, "seed {seed}: {name} in the records");
        }
        assert_eq!(totals.waited, self.waited, "seed {seed}");
        let waits: Duration = self.ended.iter().map(|one| one.waited).sum();
        assert_eq!(waits, self.waited, "seed {seed}: waits in the records");
        let costs: Money = self.ended.iter().map(|one| one.cost).sum();
        assert!(costs <= spent, "seed {seed}: recoveries cost {costs} of {spent}");
        for one in &self.ended {
            assert!(one.waited <= one.took, "seed {seed}: {one:?}");
            assert!(one.strategies.sum() > 0 && one.failures.sum() > 0, "seed {seed}: {one:?}");
        }
    }
}
