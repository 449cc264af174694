//! Runs of one host that share a rate limit: one after the other, twenty at a time, a thousand. No
//! storm reaches the service, and the runs do not wait longer than the service asks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use outlast_core::pacing::{ClaimAnswer, HeaderLimits, RequestPermit, Requester, SharedRateLimit};

use super::RandomSource;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// The first time on the clock of the host.
const START: u64 = 100 * MINUTE;
/// From a request to the headers of its answer, and to a refusal.
const LATENCY: u64 = 300;
const REFUSAL: u64 = 40;

/// The requests that the service refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// So many requests a minute, all of them at once if need be.
    Window { requests: u64, told: bool },
    /// So many requests a minute, which become available one by one.
    Trickle { requests: u64 },
    /// The first request of each run, with a retry-after of one second.
    FirstOfEachRun,
}

/// The reported window, or the delay of a refusal.
type Answer = Result<Option<HeaderLimits>, u64>;

struct Service {
    limit: Limit,
    /// Thousandths of requests that are left, and when that was.
    left: u64,
    at: u64,
}

impl Service {
    fn new(limit: Limit) -> Self {
        let left = match limit {
            Limit::Window { requests, .. } | Limit::Trickle { requests } => requests * 1_000,
            Limit::FirstOfEachRun => 0,
        };
        Self { limit, left, at: START }
    }

    /// Takes a request, and says what is told of the window; or says when to come back.
    fn take(&mut self, now: u64, is_first: bool) -> Answer {
        let whole_seconds = |time: u64| time.div_ceil(SECOND) * SECOND;
        match self.limit {
            Limit::FirstOfEachRun => {
                if is_first {
                    Err(SECOND)
                } else {
                    Ok(None)
                }
            }
            Limit::Trickle { requests } => {
                let full = requests * 1_000;
                let more = (now - self.at) * full / MINUTE;
                if more > 0 {
                    (self.left, self.at) = ((self.left + more).min(full), now);
                }
                let Some(left) = self.left.checked_sub(1_000) else {
                    return Err(whole_seconds((1_000 - self.left) * MINUTE / full));
                };
                self.left = left;
                Ok(None)
            }
            Limit::Window { requests, told } => {
                if now / MINUTE > self.at / MINUTE {
                    (self.left, self.at) = (requests * 1_000, now);
                }
                let resets_in = whole_seconds(MINUTE - now % MINUTE);
                let Some(left) = self.left.checked_sub(1_000) else { return Err(resets_in) };
                self.left = left;
                let small = |count: u64| u32::try_from(count).expect("it is small");
                let limit = Some(small(requests));
                let window = HeaderLimits { limit, left: small(left / 1_000), resets_in };
                Ok(told.then_some(window))
            }
        }
    }

    /// The shortest time in which the service serves so many requests.
    fn shortest(limit: Limit, requests: u64) -> u64 {
        match limit {
            Limit::Window { requests: limit, .. } => (requests - 1) / limit * MINUTE,
            Limit::Trickle { requests: limit } => requests.saturating_sub(limit) * MINUTE / limit,
            Limit::FirstOfEachRun => 0,
        }
    }
}

/// The next event of a client: a shell that starts one run after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Wants,
    Answered { number: usize },
}

struct Client {
    /// The run that it is at, from 1, and the requests of it that were answered.
    run: u64,
    answered: u64,
    was_refused: bool,
    waits: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    requests: u64,
    refused: u64,
    /// From the start to the last answer.
    wall: u64,
    /// The most requests of a second, the first two seconds left out.
    peak: u64,
    /// The most waits of one request.
    waits: u32,
}

/// Plays `clients` shells, each with `runs` runs of `turns` requests, one after the other.
fn play(limit: Limit, clients: usize, runs: u64, turns: u64, shared: bool) -> Figures {
    let (mut service, mut pace) = (Service::new(limit), SharedRateLimit::default());
    let (mut dice, mut figures) = (RandomSource::new(5), Figures::default());
    let mut requests: Vec<(Option<RequestPermit>, Answer)> = Vec::new();
    let mut all: Vec<Client> = (0..clients)
        .map(|_| Client { run: 1, answered: 0, was_refused: false, waits: 0 })
        .collect();
    let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
    let mut queue: BinaryHeap<_> =
        (0..clients).map(|nth| Reverse((START + dice.roll(50), nth, Next::Wants))).collect();
    while let Some(Reverse((now, nth, next))) = queue.pop() {
        assert!(now < START + 48 * 60 * MINUTE, "it never ends");
        let client = &mut all[nth];
        match next {
            Next::Wants => {
                let id = u64::try_from(nth).expect("it is small") * 1_000 + client.run;
                let jitter = f64::from(dice.between(0, 999)) / 1_000.0;
                let asker = Requester { id, jitter, skips_wait: false };
                let permit = match shared.then(|| pace.claim(now, asker)) {
                    Some(ClaimAnswer::Wait { until }) => {
                        client.waits += 1;
                        figures.waits = figures.waits.max(client.waits);
                        queue.push(Reverse((until, nth, Next::Wants)));
                        continue;
                    }
                    Some(ClaimAnswer::Go(permit)) => Some(permit),
                    None => None,
                };
                client.waits = 0;
                figures.requests += 1;
                *seconds.entry((now - START) / SECOND).or_default() += 1;
                let is_first = client.answered == 0 && !client.was_refused;
                let answer = service.take(now, is_first);
                let latency = if answer.is_ok() { LATENCY + dice.roll(LATENCY) } else { REFUSAL };
                requests.push((permit, answer));
                let number = requests.len() - 1;
                queue.push(Reverse((now + latency, nth, Next::Answered { number })));
            }
            Next::Answered { number } => match requests[number] {
                (permit, Ok(told)) => {
                    if let Some(permit) = permit {
                        pace.record_success(now, permit, told);
                    }
                    client.answered += 1;
                    if client.answered == turns {
                        (client.run, client.answered) = (client.run + 1, 0);
                        client.was_refused = false;
                    }
                    if client.run > runs {
                        figures.wall = figures.wall.max(now - START);
                        continue;
                    }
                    queue.push(Reverse((now + 100 + dice.roll(900), nth, Next::Wants)));
                }
                (permit, Err(wait)) => {
                    if let Some(permit) = permit {
                        pace.record_refusal(now, permit, Some(wait));
                    }
                    client.was_refused = true;
                    figures.refused += 1;
                    let jitter = dice.roll(wait.min(40 * SECOND) / 4 + 1);
                    queue.push(Reverse((now + wait + jitter, nth, Next::Wants)));
                }
            },
        }
    }
    figures.peak = seconds.range(2..).map(|(_, count)| *count).max().unwrap_or_default();
    figures
}

#[test]
fn shared_limits_make_neither_a_storm_nor_a_famine() {
    let window = |requests, told| Limit::Window { requests, told };
    let scenes = [
        (Limit::FirstOfEachRun, 1, 50, 3),
        (window(60, false), 1, 50, 3),
        (window(300, true), 20, 20, 15),
        (window(300, false), 20, 20, 15),
        (Limit::Trickle { requests: 300 }, 20, 20, 15),
        (window(300, true), 1_000, 1, 6),
        (window(300, false), 1_000, 1, 6),
        (Limit::Trickle { requests: 300 }, 1_000, 1, 6),
    ];
    let mut table =
        "clients  requests  refused  apart  wall s  ideal s  peak/s  waits\n".to_owned();
    for (limit, clients, runs, turns) in scenes {
        let shared = play(limit, clients, runs, turns, true);
        let apart = play(limit, clients, runs, turns, false);
        let needed = u64::try_from(clients).expect("it is small") * runs * turns;
        // The limit, or the runs themselves where they want less than it allows.
        let unlimited = play(window(1_000_000, false), clients, runs, turns, false).wall;
        let ideal = Service::shortest(limit, needed).max(unlimited);
        let seen = format!("{limit:?}, {clients} clients: {shared:?}, apart {apart:?}, {ideal}");
        writeln!(
            table,
            "{clients:>7} {needed:>9} {:>8} {:>6} {:>7} {:>8} {:>7} {:>6}  {limit:?}",
            shared.refused,
            apart.refused,
            shared.wall / SECOND,
            ideal / SECOND,
            shared.peak,
            shared.waits,
        )
        .expect("a string never fails");
        assert_eq!(shared.requests - shared.refused, needed, "{seen}");
        if clients == 1 {
            let alone = (shared.requests, shared.wall);
            assert!(alone.0 == apart.requests, "{seen}");
            // It waits for what the service said, with jitter: no second more than by itself.
            assert!(alone.1 <= apart.wall + runs * SECOND, "slower than by itself: {seen}");
        } else {
            let most = if clients > 20 { 12 } else { 11 };
            assert!(shared.wall * 10 <= ideal * most, "a famine: {seen}");
            // A thousand runs find the limit again and again; each refusal stops all of them.
            let most = if clients > 20 { needed } else { needed / 3 };
            assert!(shared.refused <= most, "a storm: {seen}");
            assert!(shared.refused < apart.refused, "it brought nothing: {seen}");
        }
    }
    eprintln!("{table}");
}
