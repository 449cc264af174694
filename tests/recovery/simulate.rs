//! Hostile services, a virtual clock, and a seed: whole runs, thousands of them.
//!
//! `SEEDS=1000000` runs more; `SEED=17` runs one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use outlast::recovery::{
    Account, Action, Ask, Budgets, Call, Cut, ErrorClass, Event, Failure, Fate, Interrupt, Ledger,
    Limits, Mode, Moment, Money, Pace, Persistence, Phase, Purpose, Reach, RecoveryPlan, Remedies,
    Reply, Ruling, Run, Source, StopReason, Transition, Weight, Wish, WishSource,
};

use super::{failure, limits, reaching, secs, wishing};

/// Draws everything from one seed, so that a failure is replayed by its number.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let sides = u64::try_from(choices.len()).expect("a length fits");
        choices[usize::try_from(self.roll(sides)).expect("an index fits")]
    }

    fn small(&mut self, sides: u8) -> u8 {
        u8::try_from(self.roll(u64::from(sides))).expect("below its sides")
    }
}

/// What kind of day the service has. Dice alone never make a long outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Day {
    /// Two calls in five fail, each in its own way.
    Flaky,
    /// 529 until a moment within a day, then everything works.
    Overloaded,
    /// 429 for ever, without a word about when to come back.
    Limited,
    /// 429 for ever, with a wish between nothing and a quarter of an hour.
    LimitedWithWishes,
    /// Everything takes minutes, or stalls.
    SlowDrip,
    /// Streams tear, before or after their first block; replies in one piece come through.
    Torn,
    /// Every reply is cut.
    Truncating,
    /// Every reply is empty.
    Empty,
    /// Every turn is paused.
    Pausing,
    /// Keys are rejected, and sometimes cannot be renewed.
    KeysChange,
    /// Connections go stale, are refused, or die.
    Wires,
    /// Anything at all, whatever it means.
    Anything,
}

const DAYS: [Day; 12] = [
    Day::Flaky,
    Day::Overloaded,
    Day::Limited,
    Day::LimitedWithWishes,
    Day::SlowDrip,
    Day::Torn,
    Day::Truncating,
    Day::Empty,
    Day::Pausing,
    Day::KeysChange,
    Day::Wires,
    Day::Anything,
];

/// A whole world around one run, and what an outsider knows of it.
struct World {
    seed: u64,
    dice: Dice,
    day: Day,
    limits: Limits,
    now: Moment,
    ledger: Ledger,
    /// Whether every call costs all that it can, failed ones included.
    greedy: bool,
    overload_ends: Moment,
    interrupted: Option<Moment>,
    weight: Weight,
    seen: Seen,
}

/// What an outsider counts, without asking the machine.
#[derive(Default)]
struct Seen {
    requests: u64,
    /// Requests that repeated one that had failed, since the last reply.
    repeats: u32,
    refreshes: u32,
    empty: u32,
    turns: u32,
    /// No request to this model before then.
    allowed: Moment,
    failed: Option<Failure>,
    /// What it was that failed.
    failed_call: Option<Phase>,
    last_reply: Option<Reply>,
}

fn rules(dice: &mut Dice) -> Limits {
    let budgets = Budgets {
        turns: dice.pick(&[None, Some(1), Some(3), Some(20)]),
        retries: dice.small(11),
        bucket: dice.pick(&[0, 30, 500, 500]),
        switches: dice.small(3),
        refreshes: dice.small(2),
        ..Budgets::DEFAULT
    };
    let persistence =
        dice.pick(&[Persistence::Off, Persistence::Off, Persistence::Capacity, Persistence::All]);
    let patient = persistence != Persistence::Off || dice.one_in(2);
    let deadline = patient.then(|| secs(dice.pick(&[60, 3_600, 86_400])));
    let deadline = deadline.map(|length| Moment::default().after(length));
    let tenth = |end: Moment| Moment::from_millis(end.as_millis() / 10 * 9);
    Limits {
        budgets,
        persistence,
        deadline,
        wrap_up: deadline.map(tenth),
        max_retry_wait: persistence.max_retry_wait(),
        heartbeat: secs(dice.pick(&[30, 600, 600])),
        account: dice.pick(&[Account::ApiKey, Account::Enterprise, Account::Subscription]),
        source: dice.pick(&[Source::Foreground, Source::Foreground, Source::Background]),
        overload_limit: dice.pick(&[None, None, Some(3)]),
        effort: dice.pick(&[None, None, Some(20_000)]),
        ..limits()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let limits = rules(&mut dice);
        let day = dice.pick(&DAYS);
        let ceiling = dice.pick(&[None, Some(200), Some(2_000), Some(50_000)]);
        let token = Money::from_pico_dollars(dice.roll(3));
        let overload_ends = Moment::default().after(secs(dice.roll(86_400)));
        let interrupted = dice.one_in(8).then(|| Moment::from_millis(dice.roll(3_600_000)));
        Self {
            seed,
            day,
            limits,
            now: Moment::default(),
            ledger: Ledger::new(ceiling.map(|tokens| Money::from_pico_dollars(2) * (tokens * 100))),
            greedy: dice.one_in(2),
            overload_ends,
            interrupted,
            weight: Weight {
                input: Money::ZERO,
                token,
                left: None,
                ceiling: 64_000,
                size: 0,
                window: u32::MAX,
                remedies: Remedies::NONE,
            },
            seen: Seen::default(),
            dice,
        }
    }

    /// Plays the run to its end. The trace is a digest of every step.
    fn play(&mut self) -> (StopReason, u64) {
        let mut trace = DefaultHasher::new();
        let (mut run, mut event) = (Run::new(self.seed, &self.limits), Event::Begin);
        for _ in 0..50_000 {
            let step = run.step(self.now, event, &self.limits).expect("the world keeps the rules");
            (self.now, event, step.action, step.next).hash(&mut trace);
            self.check(run, &step);
            run = step.next;
            event = match step.action {
                Action::Finish(reason) => return (reason, trace.finish()),
                Action::Weigh { .. } => Event::Weighed(self.weigh()),
                Action::Ask(ask) => self.answer(ask),
                Action::Refresh => self.refresh(),
                Action::RunTools => self.tools(),
                Action::Check => Event::Checked { passed: self.dice.one_in(2) },
                Action::Wait { until } => self.wait(until),
            };
        }
        panic!("seed {} does not end: {run:?}", self.seed)
    }

    fn weigh(&mut self) -> Weight {
        let input = Money::from_pico_dollars(self.dice.roll(3_000));
        self.weight = Weight { input, left: self.ledger.left(), ..self.weight };
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
        self.pass(silence).unwrap_or(Event::Woke)
    }

    fn tools(&mut self) -> Event {
        let length = Duration::from_millis(self.dice.roll(60_000));
        let done =
            if self.dice.one_in(50) { Event::HookStopped } else { Event::ToolsDone(Pace::Fresh) };
        self.pass(length).unwrap_or(done)
    }

    fn refresh(&mut self) -> Event {
        if let Some(cut) = self.pass(secs(1)) {
            return cut;
        }
        match self.dice.roll(4) {
            0 => Event::Failed(failure(ErrorClass::ServerError)),
            1 if self.day == Day::Anything => Event::Failed(self.any_failure()),
            _ => Event::Refreshed,
        }
    }

    /// One call: reserved in full beforehand, settled or forfeited afterwards.
    fn answer(&mut self, ask: Ask) -> Event {
        let seed = self.seed;
        let worst = self.weight.input + self.weight.token * u64::from(ask.cap);
        let reserved = self.ledger.reserve(worst);
        let reserved =
            reserved.unwrap_or_else(|| panic!("seed {seed}: {ask:?} was not affordable"));
        let length = if self.day == Day::SlowDrip { 1_200_000 } else { 20_000 };
        let length = Duration::from_millis(self.dice.roll(length));
        if let Some(cut) = self.pass(length) {
            self.ledger.forfeit(reserved);
            return cut;
        }
        let event = self.outcome(ask);
        let billed = match event {
            Event::Failed(failure) => {
                matches!(failure.reach, Reach::Stream | Reach::Block | Reach::FreshConnection)
            }
            Event::Replied(_)
            | Event::Begin
            | Event::Weighed(_)
            | Event::ToolsDone(_)
            | Event::Delivered
            | Event::Misfit
            | Event::Checked { .. }
            | Event::HookStopped
            | Event::Refreshed
            | Event::Woke
            | Event::Interrupted(_)
            | Event::DeadlinePassed
            | Event::Broke => true,
        };
        if self.greedy || (billed && matches!(event, Event::Failed(_))) {
            self.ledger.forfeit(reserved);
        } else if billed {
            let cost = self.weight.input + self.weight.token * self.dice.roll(u64::from(ask.cap));
            self.ledger.settle(reserved, cost);
        } else {
            self.ledger.settle(reserved, Money::ZERO);
        }
        event
    }

    fn outcome(&mut self, ask: Ask) -> Event {
        let wish = self.dice.roll(900);
        let trouble = match self.day {
            Day::Flaky if self.dice.roll(5) < 2 => self.any_failure(),
            Day::Overloaded if self.now < self.overload_ends => failure(ErrorClass::ServerOverload),
            Day::Limited => failure(ErrorClass::RateLimit),
            Day::LimitedWithWishes => wishing(ErrorClass::RateLimit, secs(wish)),
            Day::SlowDrip if self.dice.one_in(3) => {
                reaching(ErrorClass::StreamStalled, Reach::Block)
            }
            Day::Torn if ask.mode == Mode::Streaming && self.dice.roll(4) < 3 => {
                let reach = self.dice.pick(&[Reach::Stream, Reach::Stream, Reach::Block]);
                reaching(ErrorClass::ConnectionError, reach)
            }
            Day::KeysChange if self.dice.one_in(2) => {
                failure(self.dice.pick(&[ErrorClass::InvalidApiKey, ErrorClass::TokenRevoked]))
            }
            Day::Wires if self.dice.roll(4) < 3 => {
                let reach = self.dice.pick(&[
                    Reach::Nowhere,
                    Reach::StaleConnection,
                    Reach::FreshConnection,
                ]);
                reaching(ErrorClass::ConnectionError, reach)
            }
            Day::Anything if self.dice.one_in(2) => self.any_failure(),
            Day::Truncating => return Event::Replied(Reply::CutShort(self.any_cut())),
            Day::Empty => return Event::Replied(Reply::Empty),
            Day::Pausing => return Event::Replied(Reply::Paused),
            Day::Flaky
            | Day::Overloaded
            | Day::SlowDrip
            | Day::Torn
            | Day::KeysChange
            | Day::Wires
            | Day::Anything => return Event::Replied(self.reply()),
        };
        Event::Failed(trouble)
    }

    fn reply(&mut self) -> Reply {
        let tokens = u32::try_from(self.dice.roll(1_000)).expect("below a thousand");
        match self.dice.roll(if self.day == Day::Anything { 20 } else { 16 }) {
            0..=10 => Reply::ToolCalls { tokens },
            11..=15 => Reply::Answer { tokens },
            16 => Reply::CutShort(self.any_cut()),
            17 => Reply::Empty,
            18 => Reply::Paused,
            _ => Reply::Refusal,
        }
    }

    fn any_cut(&mut self) -> Cut {
        self.dice.pick(&[Cut::Text, Cut::ToolCall, Cut::Thinking])
    }

    fn any_failure(&mut self) -> Failure {
        let reaches = [
            Reach::Nowhere,
            Reach::StaleConnection,
            Reach::FreshConnection,
            Reach::Status,
            Reach::Stream,
            Reach::Block,
        ];
        let wait = Duration::from_millis(self.dice.roll(1_200_000));
        let source = self.dice.pick(&[WishSource::RetryAfter, WishSource::Reset]);
        Failure {
            class: self.dice.pick(&ErrorClass::ALL),
            wish: self.dice.one_in(4).then_some(Wish { wait, source }),
            ruling: self.dice.pick(&[None, None, None, Some(Ruling::Retry), Some(Ruling::Stop)]),
            reach: self.dice.pick(&reaches),
            remedies: Remedies::NONE,
            fast_denied: false,
        }
    }

    // --- what an outsider sees and checks -----------------------------------------------------

    fn check(&mut self, before: Run, step: &Transition) {
        let seed = self.seed;
        let over_the_top = self.ledger.ceiling().is_some_and(|top| self.ledger.spent() > top);
        assert!(!over_the_top, "seed {seed}: spent {}", self.ledger.spent());
        let switched = step.next.rung != before.rung;
        self.hear(step.event);
        if matches!(step.event, Event::Failed(_)) {
            self.seen.failed_call = Some(before.phase);
        }
        if switched {
            self.seen.allowed = Moment::default();
            self.seen.repeats = 0;
            self.seen.failed = None;
        }
        if step.edit.reply == Fate::Keep {
            self.seen.turns += 1;
            let most = self.limits.budgets.turns.unwrap_or(u32::MAX);
            assert!(self.seen.turns <= most, "seed {seed}: {} turns", self.seen.turns);
        }
        match step.action {
            Action::Ask(_) => self.check_request(),
            Action::Refresh => self.check_refresh(),
            Action::Finish(reason) => self.check_end(reason, step.event),
            Action::Weigh { .. } | Action::RunTools | Action::Check | Action::Wait { .. } => {}
        }
        if let Event::Failed(failure) = step.event {
            self.check_quota(failure, step);
        }
    }

    fn hear(&mut self, event: Event) {
        if let Event::Failed(failure) = event {
            self.seen.failed = Some(failure);
            let wish = failure.wish.map_or(Duration::ZERO, |wish| wish.wait);
            self.seen.allowed = self.seen.allowed.max(self.now.after(wish));
        }
        let Event::Replied(reply) = event else { return };
        self.seen.last_reply = Some(reply);
        self.seen.failed = None;
        match reply {
            Reply::Empty => {
                self.seen.empty += 1;
                let most = u32::from(self.limits.budgets.empty_replies) + 1;
                assert!(self.seen.empty <= most, "seed {}: empty for ever", self.seed);
            }
            Reply::Answer { .. } | Reply::ToolCalls { .. } => {
                self.seen =
                    Seen { empty: 0, repeats: 0, refreshes: 0, ..std::mem::take(&mut self.seen) };
            }
            Reply::CutShort(_) | Reply::Refusal | Reply::Paused => {
                self.seen.repeats = 0;
                self.seen.refreshes = 0;
            }
        }
    }

    /// N retries are N+1 requests: whatever repeats a request that failed is counted here.
    fn check_request(&mut self) {
        let seed = self.seed;
        self.seen.requests += 1;
        let allowed = self.seen.allowed;
        assert!(self.now >= allowed, "seed {seed}: asked {:?} early", self.now.until(allowed));
        let in_time = self.limits.deadline.is_none_or(|deadline| self.now < deadline);
        assert!(in_time, "seed {seed}: a request after the deadline");
        if let Some(failed) = self.seen.failed.take() {
            self.repeat(failed);
        }
    }

    fn repeat(&mut self, failed: Failure) {
        let seed = self.seed;
        let overload = failed.class == ErrorClass::ServerOverload;
        let dropped = overload && self.limits.source == Source::Background;
        assert!(!dropped, "seed {seed}: background work adds to an overload");
        assert_ne!(failed.ruling, Some(Ruling::Stop), "seed {seed}: asked against its word");
        let uncounted = match self.limits.persistence {
            Persistence::Off => false,
            Persistence::Capacity => {
                matches!(failed.class, ErrorClass::RateLimit | ErrorClass::ServerOverload)
            }
            Persistence::All => !matches!(
                failed.class,
                ErrorClass::BadResponse | ErrorClass::InvalidRequest | ErrorClass::Unknown
            ),
        };
        if !uncounted {
            self.seen.repeats += 1;
            let most = u32::from(self.limits.budgets.retries);
            assert!(self.seen.repeats <= most, "seed {seed}: retry {}", self.seen.repeats);
        }
    }

    /// A refresh answers a rejection, or repeats a refresh that failed.
    fn check_refresh(&mut self) {
        let Some(failed) = self.seen.failed.take() else { return };
        let rejected = self.seen.failed_call == Some(Phase::Calling(Call::Ask(Purpose::Reply)));
        let key = matches!(failed.class, ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked);
        if rejected && key {
            self.seen.refreshes += 1;
            let most = u32::from(self.limits.budgets.refreshes);
            assert!(self.seen.refreshes <= most, "seed {}: refreshes for ever", self.seed);
        } else if self.limits.persistence == Persistence::Off {
            self.repeat(failed);
        }
    }

    fn check_quota(&self, failed: Failure, step: &Transition) {
        let crowded = matches!(failed.class, ErrorClass::RateLimit | ErrorClass::ServerOverload);
        let wait = failed.wish.map_or(Duration::ZERO, |wish| wish.wait);
        if crowded && wait > self.limits.max_retry_wait {
            let reason = StopReason::ModelError(ErrorClass::QuotaExhausted);
            let switched = step.plan == Some(RecoveryPlan::SwitchModel);
            assert!(switched || step.action == Action::Finish(reason), "seed {}", self.seed);
        }
    }

    fn check_end(&self, reason: StopReason, event: Event) {
        let seed = self.seed;
        let in_time = self.limits.deadline.is_none_or(|deadline| self.now <= deadline);
        assert!(in_time, "seed {seed}: ended {:?}", self.now);
        if reason == StopReason::Completed {
            let whole = matches!(event, Event::Replied(Reply::Answer { .. }));
            assert!(whole, "seed {seed}: completed by {event:?}");
            let last = self.seen.last_reply;
            assert!(matches!(last, Some(Reply::Answer { .. })), "seed {seed}: after {last:?}");
        }
        let early =
            self.limits.deadline.is_none_or(|deadline| self.now.after(secs(330)) < deadline);
        let asked = self.seen.failed.is_some_and(|failed| failed.wish.is_some());
        assert!(reason != StopReason::Deadline || !early || asked, "seed {seed}: {reason:?} early");
        assert_ne!(reason, StopReason::InternalError, "seed {seed}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_day_hangs_hurries_silences_or_overcharges_a_run() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(20_000),
    };
    let (mut ends, mut simulated, mut requests) = (BTreeMap::new(), Duration::ZERO, 0);
    for seed in seeds {
        let mut world = World::new(seed);
        let (reason, trace) = world.play();
        simulated += Moment::default().until(world.now);
        requests += world.seen.requests;
        *ends.entry((world.day, reason.name())).or_insert(0_u32) += 1;
        if seed % 16 == 0 {
            assert_eq!(World::new(seed).play(), (reason, trace), "seed {seed} is not itself");
        }
    }
    let days = simulated.as_secs() / 86_400;
    eprintln!("{requests} requests in {days} simulated days");
    for ((day, reason), times) in &ends {
        eprintln!("{times:>6} {day:?}: {reason}");
    }
    if number("SEED").is_none() {
        let all = |name: &str| ends.keys().filter(|(_, reason)| *reason == name).count();
        let reached = ["completed", "max_turns", "max_budget_usd", "deadline", "model_error"];
        for name in reached {
            assert!(all(name) > 3, "hardly any run ends as {name}: the days are too alike");
        }
    }
}
