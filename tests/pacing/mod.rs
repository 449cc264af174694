//! Shared rate limits: simulated runs against a simulated service, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use outlast_core::pacing::{
    ClaimAnswer, HeaderLimits, ProbeEnd, ProbeLeave, Prober, RETURN_GAP, RequestPermit, Requester,
    SharedRateLimit,
};
use proptest::prelude::*;

/// A service with a limit.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is so or not, whatever the others")]
struct Service {
    limit: u64,
    /// Length of a window, in milliseconds.
    length: u64,
    /// Whether room comes back bit by bit, and not at the end of the window.
    trickles: bool,
    /// Whether its answers say what is left.
    tells: bool,
    /// Whether its refusals say when to come back.
    hints: bool,
    /// From a request to the headers of its answer.
    latency: u64,
    /// Whether it refuses the first request of each run.
    refuses_first: bool,
    /// The time within which the runs start.
    starts: u64,
}

const MINUTE: u64 = 60_000;

const WINDOW: Service = Service {
    limit: 60,
    length: MINUTE,
    trickles: false,
    tells: true,
    hints: true,
    latency: 900,
    refuses_first: false,
    starts: 50,
};

/// The rest of the limit, in thousandths of a request.
struct SimulatedLimit {
    service: Service,
    left: u64,
    at: u64,
}

impl SimulatedLimit {
    /// Takes a request, and says what is told of it; or refuses it, and says when to come back.
    fn take(&mut self, now: u64) -> Result<HeaderLimits, u64> {
        let Service { limit, length, trickles, .. } = self.service;
        let full = limit * 1_000;
        if trickles {
            let more = (now - self.at) * full / length;
            if more > 0 {
                self.left = (self.left + more).min(full);
                self.at = now;
            }
        } else if now / length > self.at / length {
            (self.left, self.at) = (full, now);
        }
        let resets =
            if trickles { (full - self.left) * length / full } else { length - now % length };
        // Whole seconds, as headers have them.
        let seconds = |time: u64| time.div_ceil(1_000) * 1_000;
        if self.left < 1_000 {
            let wait = if trickles { (1_000 - self.left) * length / full } else { resets };
            return Err(seconds(wait));
        }
        self.left -= 1_000;
        let left = u32::try_from(self.left / 1_000).expect("it is small");
        let limit = u32::try_from(limit).expect("it is small");
        Ok(HeaderLimits { limit: Some(limit), left, resets_in: seconds(resets) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Wants,
    Arrives { number: usize },
    Answered { number: usize },
}

#[derive(Debug, Default)]
struct Outcome {
    requests: u64,
    refusals: u64,
    /// Time at which each run had all its answers.
    ends: Vec<u64>,
    /// The longest that a request had to wait from when it was first wanted.
    longest: u64,
}

struct TestRng(u64);

impl TestRng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Simulates `runs` runs of `turns` requests each, together or each by itself. All start at once.
fn simulate(service: Service, runs: usize, turns: u64, share: bool, seed: u64) -> Outcome {
    let mut meter = SimulatedLimit { service, left: service.limit * 1_000, at: 1 };
    let (mut pace, mut dice) = (SharedRateLimit::default(), TestRng(seed));
    let (mut done, mut failures) = (vec![0; runs], vec![0_u32; runs]);
    let (mut since, mut is_known) = (vec![0; runs], vec![false; runs]);
    let mut outcome = Outcome { ends: vec![0; runs], ..Outcome::default() };
    let mut grants: Vec<Option<RequestPermit>> = Vec::new();
    let mut answers: Vec<Result<HeaderLimits, u64>> = Vec::new();
    let mut queue = BinaryHeap::new();
    for (run, since) in since.iter_mut().enumerate() {
        let at = 5 * MINUTE + dice.below(service.starts);
        *since = at;
        queue.push(Reverse((at, run, Step::Wants)));
    }
    while let Some(Reverse((now, run, step))) = queue.pop() {
        assert!(now < 48 * 60 * MINUTE, "it never ends");
        match step {
            Step::Wants => {
                let id = run as u64 + 1;
                let jitter =
                    f64::from(u32::try_from(dice.below(1_000)).expect("it is below")) / 1_000.0;
                let asker = Requester { id, jitter, skips_wait: false };
                let leave = share.then(|| pace.claim(now, asker));
                if let Some(ClaimAnswer::Wait { until }) = leave {
                    assert!(until > now, "a wait that takes no time");
                    queue.push(Reverse((until, run, Step::Wants)));
                    continue;
                }
                grants.push(match leave {
                    Some(ClaimAnswer::Go(grant)) => Some(grant),
                    Some(ClaimAnswer::Wait { .. }) | None => None,
                });
                let number = grants.len() - 1;
                queue.push(Reverse((now + 20 + dice.below(30), run, Step::Arrives { number })));
            }
            Step::Arrives { number } => {
                outcome.requests += 1;
                let is_refused = service.refuses_first && !is_known[run];
                is_known[run] = true;
                let answer = if is_refused { Err(0) } else { meter.take(now) };
                let refused = answer.is_err();
                if answers.len() <= number {
                    answers.resize(number + 1, Err(0));
                }
                answers[number] = answer;
                let latency = if refused { 20 } else { service.latency };
                let at = now + latency + dice.below(latency + 1);
                queue.push(Reverse((at, run, Step::Answered { number })));
            }
            Step::Answered { number } => match answers[number] {
                Ok(told) => {
                    if let Some(grant) = grants[number] {
                        pace.record_success(now, grant, service.tells.then_some(told));
                    }
                    failures[run] = 0;
                    outcome.longest = outcome.longest.max(now - since[run]);
                    done[run] += 1;
                    if done[run] == turns {
                        outcome.ends[run] = now;
                        continue;
                    }
                    let at = now + 200 + dice.below(1_500);
                    since[run] = at;
                    queue.push(Reverse((at, run, Step::Wants)));
                }
                Err(hint) => {
                    outcome.refusals += 1;
                    let wish = service.hints.then_some(hint);
                    if let Some(grant) = grants[number] {
                        pace.record_refusal(now, grant, wish);
                    }
                    failures[run] += 1;
                    let wait = wish.unwrap_or(500 << failures[run].min(7));
                    let at = now + wait + dice.below(wait.min(40_000) / 4 + 1);
                    queue.push(Reverse((at, run, Step::Wants)));
                }
            },
        }
    }
    outcome
}

fn services() -> Vec<(&'static str, Service)> {
    let bucket = Service { trickles: true, ..WINDOW };
    vec![
        ("a window that is told", WINDOW),
        ("a window that is told, quick answers", Service { latency: 20, ..WINDOW }),
        ("a window that is told, slow answers", Service { latency: 8_000, ..WINDOW }),
        ("a window of which only refusals speak", Service { tells: false, ..WINDOW }),
        ("a window of which nothing is said", Service { tells: false, hints: false, ..WINDOW }),
        ("a bucket that is told", bucket),
        ("a bucket of which only refusals speak", Service { tells: false, ..bucket }),
        ("a bucket of which nothing is said", Service { tells: false, hints: false, ..bucket }),
    ]
}

#[test]
fn runs_that_share_a_limit_hardly_ever_meet_it() {
    for (name, service) in services() {
        for seed in 1..6 {
            let together = simulate(service, 32, 30, true, seed);
            let apart = simulate(service, 32, 30, false, seed);
            let context = format!("{name}, seed {seed}: {together:?}");
            assert_eq!(together.requests - together.refusals, 32 * 30, "{context}");
            // Where the service tells what is left, hardly any request is refused; elsewhere the
            // runs have to find out.
            let part = if service.tells { 50 } else { 3 };
            assert!(together.refusals * part <= together.requests, "too many refusals: {context}");
            assert!(together.refusals * 4 < apart.refusals, "it brought nothing: {context}");
            let last = |outcome: &Outcome| outcome.ends.iter().max().map(|end| end - 5 * MINUTE);
            let most = last(&apart).expect("there are runs") / 5 * 6;
            assert!(last(&together) < Some(most), "it takes too long: {context}");
        }
    }
}

/// Gateways answer so while a route is new. By itself, each run needs a second.
#[test]
fn first_refusals_of_different_runs_do_not_add_up() {
    let silent = Service { tells: false, hints: false, ..WINDOW };
    let service = Service { refuses_first: true, starts: 2_000, latency: 100, ..silent };
    for seed in 1..20 {
        let outcome = simulate(service, 8, 1, true, seed);
        let last = outcome.ends.iter().max().expect("there are runs") - 5 * MINUTE;
        assert_eq!(outcome.refusals, 8, "seed {seed}: {outcome:?}");
        assert!(last < 30_000, "seed {seed}: {last}");
    }
}

#[test]
fn shared_rate_limit_starves_no_run() {
    for (name, service) in services() {
        // Where nothing is said, a run that was refused comes back at a time of its own.
        if !service.hints {
            continue;
        }
        for seed in 1..6 {
            let outcome = simulate(service, 32, 30, true, seed);
            let context = format!("{name}, seed {seed}: {outcome:?}");
            // 32 wait for a place among sixty a minute.
            assert!(outcome.longest < 4 * MINUTE, "a run waited for too long: {context}");
        }
    }
}

#[test]
fn a_run_that_is_alone_is_as_it_would_be_anyway() {
    for (name, service) in services() {
        for seed in 1..6 {
            let (with, without) =
                (simulate(service, 1, 200, true, seed), simulate(service, 1, 200, false, seed));
            assert_eq!(with.requests, without.requests, "{name}, seed {seed}");
            assert_eq!(with.ends, without.ends, "{name}, seed {seed}");
        }
    }
}

fn asker(id: u64) -> Requester {
    Requester { id, jitter: 0.5, skips_wait: false }
}

#[track_caller]
fn granted(leave: ClaimAnswer) -> RequestPermit {
    match leave {
        ClaimAnswer::Go(grant) => grant,
        ClaimAnswer::Wait { until } => panic!("made to wait until {until}"),
    }
}

#[track_caller]
fn waits(leave: ClaimAnswer) -> u64 {
    match leave {
        ClaimAnswer::Wait { until } => until,
        ClaimAnswer::Go(grant) => panic!("let go: {grant:?}"),
    }
}

/// One goes first; the others follow when it was answered, or has been gone for too long.
#[test]
fn after_a_rate_limit_one_run_probes_for_all() {
    let blocked = || {
        let mut pace = SharedRateLimit::default();
        let one = granted(pace.claim(1_000, asker(1)));
        granted(pace.claim(1_000, asker(2)));
        pace.record_refusal(2_000, one, Some(30_000));
        let turns: Vec<u64> = (1..5).map(|id| waits(pace.claim(3_000, asker(id)))).collect();
        assert!((32_000..33_000).contains(&turns[0]), "the first comes early: {turns:?}");
        assert!(turns[1] >= 33_000, "the others leave it time: {turns:?}");
        assert!(turns.windows(2).all(|pair| pair[0] < pair[1]), "in turn: {turns:?}");
        let probe = granted(pace.claim(turns[0], asker(1)));
        (pace, probe, turns)
    };
    let (mut pace, probe, turns) = blocked();
    let until = waits(pace.claim(turns[0] + 500, asker(2)));
    assert!(until > turns[0] + 500, "the probe is still under way");
    pace.record_success(turns[0] + 600, probe, None);
    granted(pace.claim(turns[1], asker(2)));
    // Its run was killed.
    let (mut pace, _, turns) = blocked();
    granted(pace.claim(turns[0] + 10_000, asker(2)));
    // It was refused.
    let (mut pace, probe, turns) = blocked();
    pace.record_refusal(turns[1], probe, Some(30_000));
    assert!(waits(pace.claim(turns[1] + 10, asker(2))) >= turns[1] + 30_000);
}

#[test]
fn requests_in_flight_count_against_the_limit() {
    let mut pace = SharedRateLimit::default();
    let grants: Vec<RequestPermit> =
        (1..=10).map(|id| granted(pace.claim(1_000, asker(id)))).collect();
    let told = HeaderLimits { limit: Some(12), left: 11, resets_in: 60_000 };
    pace.record_success(1_500, grants[0], Some(told));
    // Nine are on their way, so two are left.
    for id in 11..13 {
        granted(pace.claim(1_600, asker(id)));
    }
    let until = waits(pace.claim(1_600, asker(13)));
    assert!((61_550..63_000).contains(&until), "a little after the window is over: {until}");
    let next = waits(pace.claim(1_600, asker(14)));
    assert!(next > 61_550 + 2_000, "those that follow are spread over the window: {next}");
}

#[test]
fn waiting_runs_keep_their_order_and_a_lost_one_is_passed_over() {
    let mut pace = SharedRateLimit::default();
    let (one, two) = (granted(pace.claim(1_000, asker(1))), granted(pace.claim(1_000, asker(2))));
    pace.record_success(1_050, two, None);
    pace.record_refusal(1_100, one, Some(10_000));
    let turns: Vec<u64> = (3..6).map(|id| waits(pace.claim(1_200, asker(id)))).collect();
    let probe = granted(pace.claim(turns[0], asker(3)));
    pace.record_success(turns[0] + 50, probe, None);
    waits(pace.claim(turns[1], asker(6)));
    waits(pace.claim(turns[1] + 2_000, asker(5)));
    // Run 4 was killed while it waited.
    granted(pace.claim(turns[1] + 2_001, asker(5)));
}

#[test]
fn runs_that_follow_each_other_wait_only_for_what_the_service_said() {
    let (mut pace, mut now) = (SharedRateLimit::default(), MINUTE);
    for id in 1..100 {
        let refused = granted(pace.claim(now, asker(id)));
        pace.record_refusal(now + 20, refused, Some(1_000));
        let until = waits(pace.claim(now + 30, asker(id)));
        assert!(until <= now + 1_020 + 250, "run {id}: {until} at {now}");
        for request in 0..3 {
            let at = until + request * 100;
            let served = granted(pace.claim(at, asker(id)));
            pace.record_success(at + 50, served, None);
        }
        now = until + 500;
    }
}

#[test]
fn a_run_that_gave_up_does_not_slow_the_next_one() {
    let mut pace = SharedRateLimit::default();
    for id in 1..10 {
        let served = granted(pace.claim(id * MINUTE, asker(id)));
        pace.record_success(id * MINUTE + 50, served, None);
    }
    let refused = granted(pace.claim(10 * MINUTE, asker(10)));
    pace.record_refusal(10 * MINUTE + 50, refused, Some(MINUTE));
    let until = waits(pace.claim(10 * MINUTE + 30_000, asker(11)));
    assert!(until < 11 * MINUTE + 2_000, "{until}");
    for request in 0..5 {
        let served = granted(pace.claim(until + request * 400, asker(11)));
        pace.record_success(until + request * 400 + 50, served, None);
    }
}

#[test]
fn the_gap_is_what_the_service_says_halves_with_each_answer_and_is_forgotten() {
    let mut pace = SharedRateLimit::default();
    let grants: Vec<RequestPermit> =
        (1..=20).map(|id| granted(pace.claim(1_000, asker(id)))).collect();
    for grant in &grants[..10] {
        pace.record_success(1_100, *grant, None);
    }
    pace.record_refusal(1_200, grants[10], Some(60_000));
    assert_eq!(pace.gap_us, 6_020_000, "ten in a minute");
    pace.record_success(1_300, grants[11], None);
    pace.record_success(1_300, grants[12], None);
    assert_eq!(pace.gap_us, 1_505_000);
    let short = granted(pace.claim(61_300, asker(30)));
    pace.record_refusal(61_400, short, Some(1_000));
    assert!(pace.gap_us <= 1_000_000, "it is never longer than the retry-after");
    waits(pace.claim(61_500, asker(31)));
    pace.claim(62_400 + MINUTE, asker(32));
    assert!(pace.gap_us > 0);
    pace.claim(62_401 + MINUTE, asker(33));
    assert_eq!(pace.gap_us, 0, "a minute after the last refusal");
}

#[test]
fn refusals_of_requests_that_were_under_way_count_as_one() {
    let mut pace = SharedRateLimit::default();
    let grants: Vec<RequestPermit> =
        (1..=20).map(|id| granted(pace.claim(1_000, asker(id)))).collect();
    pace.record_success(1_500, grants[0], None);
    pace.record_refusal(1_600, grants[1], Some(10_000));
    let gap = pace.gap_us;
    for grant in &grants[2..] {
        pace.record_refusal(1_700, *grant, Some(10_000));
    }
    assert_eq!((pace.gap_us, pace.blocked_until), (gap, 11_700));
}

#[test]
fn an_insisting_request_is_admitted_despite_a_block() {
    let mut pace = SharedRateLimit::default();
    let one = granted(pace.claim(1_000, asker(1)));
    pace.record_refusal(1_100, one, Some(30_000));
    waits(pace.claim(1_200, asker(2)));
    granted(pace.claim(1_200, Requester { skips_wait: true, ..asker(2) }));
}

#[test]
fn expired_rate_limit_entries_are_dropped() {
    let mut pace = SharedRateLimit::default();
    let one = granted(pace.claim(1_000, asker(1)));
    granted(pace.claim(1_000, asker(2)));
    pace.record_refusal(1_100, one, Some(30_000));
    assert!(pace.gap_us > 0);
    pace.claim(1_100 + 6 * MINUTE, asker(3));
    assert_eq!((pace.gap_us, pace.blocked_until), (0, 0));
}

// --- probes for capacity ----------------------------------------------------------------------

/// A run that has been waiting for a minute.
fn prober(id: u64) -> Prober {
    Prober { id, jitter: 0.0, waited: MINUTE, interval: 25_000 }
}

#[test]
fn one_run_probes_for_all_and_the_others_learn_of_it() {
    let (mut pace, now) = (SharedRateLimit::default(), 10 * MINUTE);
    assert_eq!(pace.claim_probe(now, prober(1)), ProbeLeave::Go);
    let look = ProbeLeave::Defer { until: now + 2_100 };
    assert_eq!(pace.claim_probe(now + 100, prober(2)), look, "one is under way");
    pace.record_probe_end(now + 300, 1, ProbeEnd::Failed);
    let due = ProbeLeave::Defer { until: now + 20_000 };
    assert_eq!(pace.claim_probe(now + 2_100, prober(2)), due, "one has just failed");
    assert_eq!(pace.claim_probe(now + 20_000, prober(2)), ProbeLeave::Go);
    pace.record_probe_end(now + 20_300, 2, ProbeEnd::Answered);
    for nth in 1..=3 {
        let turn = now + 20_300 + nth * RETURN_GAP;
        let leave = pace.claim_probe(now + 20_300, prober(2 + nth));
        assert_eq!(leave, ProbeLeave::Answered { turn }, "one after the other");
    }
    // A run that failed after that does not get the result.
    let late = Prober { waited: 1_000, ..prober(9) };
    let leave = pace.claim_probe(now + 45_300, late);
    assert_eq!(leave, ProbeLeave::Go);
}

#[test]
fn a_run_that_is_killed_while_it_probes_is_replaced() {
    let (mut pace, now) = (SharedRateLimit::default(), 10 * MINUTE);
    assert_eq!(pace.claim_probe(now, prober(1)), ProbeLeave::Go);
    let mut at = now + 20_000;
    assert_eq!(pace.claim_probe(at, prober(2)), ProbeLeave::Go, "its lease of 15 s is over");
    at += 100;
    pace.record_probe_end(at, 1, ProbeEnd::Failed);
    let leave = pace.claim_probe(at, prober(3));
    assert_eq!(leave, ProbeLeave::Defer { until: at + 2_000 }, "the lease of another one stays");
}

#[test]
fn a_rate_limit_is_not_probed_before_it_ends() {
    let (mut pace, now) = (SharedRateLimit::default(), 10 * MINUTE);
    let grant = granted(pace.claim(now, asker(1)));
    pace.record_refusal(now, grant, Some(90_000));
    let leave = pace.claim_probe(now + 30_000, prober(2));
    assert_eq!(leave, ProbeLeave::Defer { until: now + 90_000 });
    assert_eq!(pace.claim_probe(now + 90_000, prober(2)), ProbeLeave::Go);
    pace.record_probe_end(now + 90_000, 2, ProbeEnd::Limited { wait: Some(60_000) });
    let leave = pace.claim_probe(now + 120_000, prober(3));
    assert_eq!(leave, ProbeLeave::Defer { until: now + 150_000 }, "a probe may meet one too");
    assert!(pace.is_sound(now + 120_000));
}

#[derive(Clone, Debug)]
enum LimiterEvent {
    Claim { id: u64, insists: bool },
    Served { nth: usize, told: Option<(u32, u64)> },
    Refused { nth: usize, wish: Option<u64> },
}

fn limiter_events() -> impl Strategy<Value = Vec<(u64, LimiterEvent)>> {
    let claim = (1..5_u64, prop::bool::weighted(0.1))
        .prop_map(|(id, insists)| LimiterEvent::Claim { id, insists });
    let told = prop::option::of((0..20_u32, prop_oneof![0..70_000_u64, Just(u64::MAX)]));
    let served = (any::<usize>(), told).prop_map(|(nth, told)| LimiterEvent::Served { nth, told });
    let wish = prop::option::of(prop_oneof![0..90_000_u64, Just(u64::MAX), 0..100_000_000_u64]);
    let refused =
        (any::<usize>(), wish).prop_map(|(nth, wish)| LimiterEvent::Refused { nth, wish });
    let deed = prop_oneof![4 => claim, 2 => served, 1 => refused];
    prop::collection::vec((prop_oneof![0..50_u64, 0..400_000_u64], deed), 0..120)
}

proptest! {
    /// For any order of events: no run is admitted before the block is over, every wait
    /// takes time and is bounded by what is known, and what is written can be believed.
    #[test]
    fn any_event_order_keeps_the_rate_limit_invariants(deeds in limiter_events(), start in 0..u64::MAX / 4) {
        let (mut pace, mut now) = (SharedRateLimit::default(), start);
        let mut grants = Vec::new();
        for (passed, deed) in deeds {
            now += passed;
            match deed {
                LimiterEvent::Claim { id, insists } => {
                    let blocked = pace.blocked_until;
                    match pace.claim(now, Requester { id, jitter: 0.9, skips_wait: insists }) {
                        ClaimAnswer::Go(grant) => {
                            prop_assert!(insists || now >= blocked);
                            grants.push(grant);
                        }
                        ClaimAnswer::Wait { until } => {
                            prop_assert!(!insists && until > now);
                            let known = now.max(blocked).max(pace.room.map_or(0, |room| room.resets));
                            // Beyond that, at most the longest gap and a place in the queue.
                            prop_assert!(until <= known + 3 * MINUTE, "{} at {}", until, now);
                        }
                    }
                }
                LimiterEvent::Served { nth, told } if !grants.is_empty() => {
                    let told = told.map(|(left, resets_in)| HeaderLimits { limit: Some(20), left, resets_in });
                    pace.record_success(now, grants[nth % grants.len()], told);
                }
                LimiterEvent::Refused { nth, wish } if !grants.is_empty() => {
                    pace.record_refusal(now, grants[nth % grants.len()], wish);
                }
                LimiterEvent::Served { .. } | LimiterEvent::Refused { .. } => {}
            }
            let text = serde_json::to_string(&pace).expect("it can be written");
            let read: SharedRateLimit = serde_json::from_str(&text).expect("it can be read");
            prop_assert_eq!(&read, &pace);
            prop_assert!(pace.is_sound(now), "{:?} at {}", pace, now);
        }
    }
}
