//! A simulated environment of one run: it performs the actions and advances the clock.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use outlast_core::recovery::{
    Action, AvailableMitigations, CallPurpose, EndpointStatus, ErrorBody, ErrorClass, Event,
    Failure, FailureStage, Interrupt, Ledger, Limits, ModelCall, Moment, Money, Probed, Run,
    StopHookDecision, StopReason, TokenEstimate,
};

use super::super::{failure, secs};
use super::RandomSource;
use super::conversation::Conversation;
use super::invariants::Seen;
use super::records::Records;
use super::scenarios::{DAYS, ServiceScenario, rules};

pub(super) struct Simulation {
    pub(super) seed: u64,
    pub(super) dice: RandomSource,
    pub(super) day: ServiceScenario,
    pub(super) limits: Limits,
    /// Since the process began.
    pub(super) now: Moment,
    /// Duration of earlier processes.
    pub(super) lived: Duration,
    pub(super) ledger: Ledger,
    /// Whether every call costs all that it can, failed ones included.
    greedy: bool,
    pub(super) overload_ends: Moment,
    /// Duration of an overload, and of the calm after it, in milliseconds.
    pub(super) flap: u64,
    pub(super) down_from: Moment,
    pub(super) down_with: ErrorClass,
    /// Whether the service has answered this process well.
    pub(super) endpoint_status: EndpointStatus,
    pub(super) key_ends: Moment,
    /// The true size of the context window, and the size that the run believes, in tokens.
    pub(super) true_window: u32,
    window: u32,
    /// Whether the service counts the tokens of a request when asked to.
    counts: bool,
    /// Whether the service counts the output cap towards the window.
    pub(super) strict: bool,
    /// Number of times that the requirement is not met.
    unmet: u8,
    interrupted: Option<Moment>,
    /// The step at which the process is killed.
    killed: Option<u32>,
    pub(super) talk: Conversation,
    pub(super) weight: TokenEstimate,
    pub(super) seen: Seen,
    records: Records,
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Self {
        Self::with(seed, RandomSource::new(seed))
    }

    pub(super) fn with(seed: u64, mut dice: RandomSource) -> Self {
        let day = dice.pick(&DAYS);
        let limits = rules(day, &mut dice);
        let ceiling = dice.pick(&[None, Some(200), Some(2_000), Some(50_000)]);
        let token = Money::from_pico_dollars(dice.roll(3));
        let window = day.window(&mut dice);
        let share = if day == ServiceScenario::Misjudged { dice.between(50, 90) } else { 100 };
        let true_window = if share == 100 { window } else { window / 100 * share };
        let far = limits.endpoint_changes & 1 == 1;
        let wrong = [ErrorClass::ServerOverload, ErrorClass::ServerError];
        let worse = [ErrorClass::ServerOverload, ErrorClass::ServerError, ErrorClass::ApiTimeout];
        let mut talk = Conversation::new(dice.between(1_000, 8_000));
        talk.thinking = day == ServiceScenario::Unthinking;
        talk.cache_marks = talk.thinking && seed.is_multiple_of(2);
        Self {
            seed,
            day,
            limits,
            now: Moment::default(),
            lived: Duration::ZERO,
            ledger: Ledger::new(ceiling.map(|tokens| Money::from_pico_dollars(2) * (tokens * 100))),
            greedy: dice.one_in(2),
            overload_ends: Moment::default().after(dice.secs(86_400)),
            flap: 1_000 * (dice.roll(60) + 5),
            down_from: Moment::default().after(dice.secs(1_200)),
            down_with: if far { dice.pick(&worse) } else { dice.pick(&wrong) },
            endpoint_status: EndpointStatus::Untried,
            key_ends: Moment::default().after(dice.secs(900)),
            true_window,
            window,
            counts: dice.one_in(2),
            strict: dice.one_in(2),
            unmet: dice.small(6),
            interrupted: dice.one_in(8).then(|| Moment::from_millis(dice.roll(3_600_000))),
            killed: dice.one_in(6).then(|| dice.between(2, 80)),
            talk,
            weight: TokenEstimate {
                token,
                left: None,
                ceiling: dice.pick(&[4_096, 64_000, 64_000]),
                window,
                ..TokenEstimate::FREE
            },
            seen: Seen::default(),
            records: Records::default(),
            dice,
        }
    }

    /// Plays the run to its end. The trace is a digest of every step.
    pub(super) fn play(&mut self) -> (StopReason, u64) {
        let mut trace = DefaultHasher::new();
        let (mut run, mut event) = (Run::new(self.seed, &self.limits), Event::Begin);
        for nth in 0..50_000 {
            if self.killed == Some(nth) {
                (run, event) = (run.resumed(), Event::Begin);
                self.restart_process();
            }
            let step = run.step(self.now, event, &self.limits).expect("the world keeps the rules");
            (self.now, event, step.action, step.next).hash(&mut trace);
            self.check(run, &step);
            self.records.hear(self.seed, &step);
            self.talk.apply(step.edit, self.seen.sent.map(|sent| sent.purpose));
            run = step.next;
            event = match step.action {
                Action::Finish(reason) => {
                    self.records.check(self.seed, self.ledger.spent());
                    return (reason, trace.finish());
                }
                Action::Estimate { purpose, .. } => Event::Estimated(self.measure(purpose)),
                Action::Ask(ask) => {
                    let before = self.ledger.spent();
                    let event = self.answer(ask);
                    self.records.bill(self.ledger.spent().minus(before));
                    event
                }
                Action::Refresh => self.refresh(),
                Action::Probe { model_index } => {
                    let before = self.ledger.spent();
                    let event = self.probe(model_index);
                    self.records.bill(self.ledger.spent().minus(before));
                    event
                }
                Action::RunTools => self.tools(),
                Action::RunStopHooks => self.run_stop_hooks(),
                Action::RunRequirement => self.check_requirement(),
                Action::AwaitWork { .. } => panic!("there is no background work in this world"),
                Action::Wait { until } => self.wait(until),
            };
        }
        panic!("seed {} does not end: {run:?}", self.seed)
    }

    /// The process is gone; another one takes the run up.
    fn restart_process(&mut self) {
        self.lived += Moment::default().until(self.now);
        self.now = Moment::default();
        self.key_ends = Moment::default().after(secs(300));
        self.overload_ends = Moment::default();
        self.interrupted = None;
        self.endpoint_status = EndpointStatus::Untried;
        self.talk.thinking = self.day == ServiceScenario::Unthinking;
        self.talk.cache_marks = self.talk.thinking && self.seed.is_multiple_of(2);
        self.seen.begin_again();
        self.records.begin_again();
    }

    fn measure(&mut self, purpose: CallPurpose) -> TokenEstimate {
        if purpose != CallPurpose::Reply && self.seen.is_new_to(purpose) {
            self.talk.begin_summary();
        }
        let input = Money::from_pico_dollars(self.dice.roll(3_000));
        // The estimate errs, and rather on the high side.
        let exact = self.talk.size(purpose);
        let size = exact + exact / 100 * self.dice.between(0, 15);
        let remedies = self.talk.remedies(purpose);
        let window = self.window;
        // The service counts what seems to fill the window, if it counts at all.
        let counted = self.counts && size >= window && remedies == AvailableMitigations::NONE;
        let size = if counted { exact } else { size };
        self.weight = TokenEstimate {
            input,
            left: self.ledger.left(),
            size,
            window,
            counted,
            mitigations: remedies,
            ..self.weight
        };
        self.weight
    }

    /// Lets `length` pass, unless the deadline or a signal cuts it short.
    fn pass(&mut self, length: Duration) -> Option<Event> {
        let then = self.now.after(length);
        let signal = self.interrupted.filter(|&moment| moment >= self.now && moment < then);
        let deadline = self.limits.deadline.filter(|&deadline| deadline < then);
        let (moment, event) = match (signal, deadline) {
            (None, None) => {
                self.now = then;
                return None;
            }
            (Some(moment), None) => (moment, Event::Interrupted(Interrupt::Sigterm)),
            (Some(moment), Some(deadline)) if moment < deadline => {
                (moment, Event::Interrupted(Interrupt::Sigterm))
            }
            (_, Some(deadline)) => (deadline, Event::DeadlinePassed),
        };
        self.now = self.now.max(moment);
        Some(event)
    }

    fn wait(&mut self, until: Moment) -> Event {
        let silence = self.now.until(until);
        assert!(silence <= self.limits.heartbeat, "seed {}: silent for {silence:?}", self.seed);
        let in_time = self.limits.deadline.is_none_or(|deadline| until < deadline);
        assert!(in_time, "seed {}: a wait past the deadline", self.seed);
        self.pass(silence).unwrap_or(Event::WaitEnded)
    }

    fn tools(&mut self) -> Event {
        let longest = if self.day == ServiceScenario::OneModelDown { 300_000 } else { 60_000 };
        let length = Duration::from_millis(self.dice.roll(longest));
        if let Some(cut) = self.pass(length) {
            return cut;
        }
        self.tool_results()
    }

    fn run_stop_hooks(&mut self) -> Event {
        if let Some(cut) = self.pass(secs(20)) {
            return cut;
        }
        Event::Consulted(match self.dice.roll(20) {
            0..=4 => StopHookDecision::Block,
            5 => StopHookDecision::BlockAgain,
            6 => StopHookDecision::Halt,
            _fine => StopHookDecision::Pass,
        })
    }

    fn check_requirement(&mut self) -> Event {
        if let Some(cut) = self.pass(secs(20)) {
            return cut;
        }
        let passed = self.unmet == 0;
        self.unmet = self.unmet.saturating_sub(1);
        Event::Checked { passed }
    }

    fn refresh(&mut self) -> Event {
        if let Some(cut) = self.pass(secs(1)) {
            return cut;
        }
        match self.dice.roll(40) {
            0..=9 => Event::Failed(failure(ErrorClass::ServerError)),
            10..=19 if self.day == ServiceScenario::Anything => Event::Failed(self.any_failure()),
            20 => {
                let (body, endpoint_status) = (ErrorBody::Foreign, self.endpoint_status);
                Event::Failed(Failure {
                    body,
                    endpoint_status,
                    ..failure(ErrorClass::InvalidApiKey)
                })
            }
            _ => {
                let lasts = secs(u64::from(self.dice.between(120, 1_200)));
                self.key_ends = self.now.after(lasts);
                Event::Refreshed
            }
        }
    }

    /// A request for one token, unless other runs make it superfluous or there is no money for it.
    fn probe(&mut self, model_index: u8) -> Event {
        let later = self.now.after(self.dice.secs(40));
        match self.dice.roll(12) {
            0 => return Event::Probed(Probed::Deferred { until: later }),
            1 => return Event::Probed(Probed::AnsweredElsewhere { turn: later }),
            _sent => {}
        }
        let worst = self.weight.token * self.dice.roll(300);
        let Some(reserved) = self.ledger.reserve(worst) else {
            return Event::Probed(Probed::Unaffordable);
        };
        let length = Duration::from_millis(self.dice.roll(10_000));
        let cut = self.pass(length);
        let failed = if cut.is_some() { None } else { self.probe_fault(model_index) };
        let cost = if cut.is_some() || failed.is_some() { Money::ZERO } else { worst };
        self.ledger.settle(reserved, cost);
        let probed = failed.map_or(Probed::Answered, Probed::Failed);
        cut.unwrap_or(Event::Probed(probed))
    }

    /// One call: reserved in full beforehand, settled afterwards at what it received.
    fn answer(&mut self, ask: ModelCall) -> Event {
        let seed = self.seed;
        let worst = self.weight.input + self.weight.token * u64::from(ask.cap);
        let reserved = self.ledger.reserve(worst);
        let reserved =
            reserved.unwrap_or_else(|| panic!("seed {seed}: {ask:?} was not affordable"));
        let length = if self.day == ServiceScenario::SlowDrip { 1_200_000 } else { 20_000 };
        let length = Duration::from_millis(self.dice.roll(length));
        let cut = self.pass(length);
        let event = match cut {
            Some(cut) => cut,
            None => self.outcome(ask),
        };
        let begun = if let Event::Failed(failure) = event {
            matches!(failure.stage, FailureStage::Stream | FailureStage::Block)
        } else {
            cut.is_none() || self.dice.one_in(2)
        };
        let output = if self.greedy { ask.cap.into() } else { self.dice.roll(ask.cap.into()) };
        let cost = if begun { self.weight.input + self.weight.token * output } else { Money::ZERO };
        let broke = cut.is_some() || matches!(event, Event::Failed(_));
        let before = self.ledger.spent();
        self.ledger.settle(reserved, if broke { Money::ZERO } else { cost });
        self.ledger.charge_uncounted(if broke { cost } else { Money::ZERO });
        assert_eq!(self.ledger.spent().minus(before), cost, "seed {seed}: {event:?}");
        event
    }
}
