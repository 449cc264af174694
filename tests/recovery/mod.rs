//! The recovery core, tested without a network, a clock, or a runtime.

pub(crate) mod arbitrary;
mod classify;
mod error_text;
mod explore;
mod explored_limits;
mod loop_detector;
mod money;
mod nudges;
mod recovery_log;
mod simulate;
mod steps;
mod table;
mod unexpected_refusals;
mod waits;

use std::time::Duration;

use outlast_core::recovery::{
    Action, AvailableMitigations, Budgets, ErrorClass, Event, Failure, FailureStage, Limits,
    LoopStatus, ModelCall, Moment, Phase, Probed, RecoveryPlan, ReplyKind, RetryAfter,
    RetryAfterSource, RetryHint, Run, StopReason, TokenEstimate, Transition,
};

/// The default limits.
fn limits() -> Limits {
    Limits::default()
}

fn with_budgets(budgets: Budgets) -> Limits {
    Limits { budgets, ..limits() }
}

fn failure(class: ErrorClass) -> Failure {
    Failure::of(class)
}

fn failure_with_retry_after(class: ErrorClass, wait: Duration) -> Failure {
    Failure {
        retry_after: Some(RetryAfter { wait, source: RetryAfterSource::RetryAfter }),
        ..failure(class)
    }
}

fn failure_with_retry_hint(class: ErrorClass, ruling: RetryHint) -> Failure {
    Failure { retry_hint: Some(ruling), ..failure(class) }
}

fn failure_at_stage(class: ErrorClass, reach: FailureStage) -> Failure {
    Failure { stage: reach, ..failure(class) }
}

/// Nothing to spend on any recovery.
const NOTHING: Budgets = Budgets {
    turns: None,
    retries: 0,
    bucket: 0,
    bucket_taken: 0,
    switches: 0,
    refreshes: 0,
    escalations: 0,
    continuations: 0,
    empty_replies: 0,
    incomplete_retries: 0,
    completions: 0,
    resumptions: 0,
    nudges: 0,
    fold_commits: 0,
    compactions: Some(0),
    reactive_compactions: 0,
    trims: 0,
    unsummarised_compactions: 0,
    failed_compactions: 0,
    smaller_caps: 0,
    strips: 0,
    block_repairs: 0,
    added_content: 0,
    thinking: 0,
    cache_marks: 0,
    streaming: 0,
    overflow_retries: 0,
    probes: 0,
    preferred_retries: 0,
    cool_downs: 0,
    fast_mode: 0,
    reminders: 0,
    schema_tries: 0,
    requirement_tries: 0,
    reports: 0,
    objections: 0,
    shared_limit_waits: 0,
    capacity_probes: 0,
    early_returns: 0,
    odd_refusals: 0,
};

/// A call that costs nothing, for a model that allows any output.
const FREE: TokenEstimate = TokenEstimate::FREE;

const ANSWER: Event = Event::Replied(ReplyKind::Answer { tokens: 100 });
const TOOL_CALLS: Event = Event::Replied(ReplyKind::ToolCalls { tokens: 100 });
const TOOLS_DONE: Event = Event::ToolsDone(LoopStatus::Fresh);

/// A conversation that nothing can be taken out of is the exception.
const ANYTHING: AvailableMitigations = AvailableMitigations {
    folds: true,
    rounds: true,
    media: true,
    block: true,
    output: true,
    thinking: true,
    cache_marks: true,
    streaming: true,
    added: true,
};

/// Plays events and keeps every transition. Time moves only by waiting, or when told to.
struct Story {
    run: Run,
    now: Moment,
    limits: Limits,
    weight: TokenEstimate,
    told: Vec<Transition>,
}

impl Story {
    /// The run begins; its first request is measured and sent.
    fn begin(limits: Limits) -> Self {
        Self::unasked(limits).then(Event::Begin)
    }

    fn resume(run: Run, limits: Limits) -> Self {
        Self { run, ..Self::unasked(limits) }.then(Event::Begin)
    }

    /// The process that told `earlier` is gone, and this one takes its run up.
    fn goes_on_from(self, earlier: &Self) -> Self {
        Self { run: earlier.run.resumed(), ..self }.then(Event::Begin)
    }

    /// Nothing has happened yet.
    fn unasked(limits: Limits) -> Self {
        let (run, now) = (Run::new(7, &limits), Moment::default());
        Self { run, now, limits, weight: FREE, told: Vec::new() }
    }

    /// One event; what is only measuring is done at once.
    #[track_caller]
    fn then(mut self, event: Event) -> Self {
        self = self.just(event);
        while let Action::Estimate { .. } = self.last() {
            let weight = self.weight;
            self = self.just(Event::Estimated(weight));
        }
        self
    }

    /// One event, and no more.
    #[track_caller]
    fn just(mut self, event: Event) -> Self {
        let step = self.run.step(self.now, event, &self.limits);
        let transition = step.expect("the event fits the phase");
        self.run = transition.next;
        self.told.push(transition);
        assert!(self.told.len() < 100_000, "the story does not end");
        self
    }

    #[track_caller]
    fn fails(self, class: ErrorClass) -> Self {
        self.then(Event::Failed(failure(class)))
    }

    /// The call fails and the pause that follows is waited out; `times` over.
    #[track_caller]
    fn fails_and_waits(mut self, class: ErrorClass, times: usize) -> Self {
        for _ in 0..times {
            self = self.fails(class).wakes();
        }
        self
    }

    /// Waits, heartbeat by heartbeat, until the run goes on. Probes on the way fail as the call did.
    #[track_caller]
    fn wakes(mut self) -> Self {
        assert!(
            matches!(self.last(), Action::Wait { .. }),
            "nothing to wake from: {:?}",
            self.last()
        );
        loop {
            self = match (self.last(), self.run.phase.pause()) {
                (Action::Wait { until }, _) => self.at(until).then(Event::WaitEnded),
                (Action::Probe { .. }, Some((_, why))) => {
                    self.then(Event::Probed(Probed::Failed(failure(why.class))))
                }
                _other => return self,
            };
        }
    }

    fn is_pausing(&self) -> bool {
        matches!(self.run.phase, Phase::Pausing { .. })
    }

    fn at(self, now: Moment) -> Self {
        Self { now, ..self }
    }

    fn measure_with(self, weight: TokenEstimate) -> Self {
        Self { weight, ..self }
    }

    #[track_caller]
    fn transition(&self) -> Transition {
        *self.told.last().expect("a story has a beginning")
    }

    #[track_caller]
    fn last(&self) -> Action {
        self.transition().action
    }

    /// The request that was just made.
    #[track_caller]
    fn asked(&self) -> ModelCall {
        let Action::Ask(ask) = self.last() else { panic!("no request but {:?}", self.last()) };
        ask
    }

    /// The transition before the last request was measured: the one that decided.
    #[track_caller]
    fn decision(&self) -> Transition {
        let decided = |step: &&Transition| !matches!(step.event, Event::Estimated(_));
        *self.told.iter().rev().find(decided).expect("a story has a beginning")
    }

    #[track_caller]
    fn ends_as(&self, reason: StopReason) {
        assert_eq!(self.last(), Action::Finish(reason));
    }

    /// Every plan so far.
    fn plans(&self) -> Vec<RecoveryPlan> {
        self.told.iter().filter_map(|step| step.plan).collect()
    }

    /// Requests sent to the model so far.
    fn requests(&self) -> usize {
        self.told.iter().filter(|step| matches!(step.action, Action::Ask(_))).count()
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn after(seconds: u64) -> Moment {
    Moment::default().after(secs(seconds))
}
