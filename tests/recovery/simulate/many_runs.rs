//! Many runs through one outage: what reaches the service while it is out, how soon each run
//! notices its return, and how fast they come back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use outlast_core::pacing::{ProbeEnd, ProbeLeave, Prober, RETURN_GAP, SharedRateLimit};
use outlast_core::recovery::{
    Action, ErrorClass, Event, Limits, Moment, Persistence, Probed, Run, StopReason,
};

use super::super::{ANSWER, FREE, failure, limits, secs};
use super::RandomSource;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// The runs are at work when the service goes down: their first requests fail within a minute.
const OUTAGE: u64 = 60 * MINUTE;
/// Begin of the part of an outage that counts as its load: the second half, when every backoff is
/// at its cap.
const COUNTED_FROM: u64 = 30 * MINUTE;
/// From a request to its answer.
const LATENCY: u64 = 400;
/// The first time on the clock that the runs of a host share.
const BOOT: u64 = 100 * MINUTE;

struct Client {
    run: Run,
    host: usize,
    /// Time at which its last real request failed.
    failed_at: u64,
}

/// An event of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    Event(Event),
    /// The answer to its probe.
    ProbeEnds,
}

#[derive(Default)]
struct Counts {
    /// By second.
    requests: BTreeMap<u64, u32>,
    probes: BTreeMap<u64, u32>,
    /// Time at which each client had its answer.
    answered: Vec<u64>,
}

struct Fleet {
    limits: Limits,
    clients: Vec<Client>,
    hosts: Vec<SharedRateLimit>,
    /// The next events, with a number that keeps those of the same time in order.
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    happenings: Vec<Happening>,
    counts: Counts,
}

/// The figures of a fleet.
#[derive(Clone, Copy, Debug)]
struct Figures {
    requests_a_minute: u32,
    probes_a_minute: u32,
    /// From the service's return to a client's answer, in milliseconds.
    median: u64,
    last: u64,
    /// The most requests within a second after the return.
    peak: u32,
}

impl Fleet {
    fn new(clients: usize, hosts: usize, limits: Limits) -> Self {
        let mut dice = RandomSource::new(11);
        let client = |nth: usize| {
            let seed = u64::try_from(nth).expect("it is small") + 1;
            Client { run: Run::new(seed * 7_919, &limits), host: nth % hosts, failed_at: 0 }
        };
        let mut fleet = Self {
            limits,
            clients: (0..clients).map(client).collect(),
            hosts: vec![SharedRateLimit::default(); hosts],
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            counts: Counts::default(),
        };
        for nth in 0..clients {
            fleet.plan(dice.roll(MINUTE), nth, Happening::Event(Event::Begin));
        }
        fleet
    }

    fn plan(&mut self, at: u64, client: usize, happening: Happening) {
        let number = u64::try_from(self.happenings.len()).expect("it is small");
        self.happenings.push(happening);
        self.queue.push(Reverse((at, number, client)));
    }

    /// Simulates the outage and its end, until every client has its reply.
    fn play(mut self) -> Figures {
        while let Some(Reverse((at, number, client))) = self.queue.pop() {
            assert!(at < OUTAGE + 15 * MINUTE, "client {client} does not come back");
            match self.happenings[usize::try_from(number).expect("an index fits")] {
                Happening::Event(event) => self.step(at, client, event),
                Happening::ProbeEnds => self.end_probe(at, client),
            }
        }
        self.figures()
    }

    fn step(&mut self, at: u64, nth: usize, event: Event) {
        let moment = Moment::from_millis(at);
        if matches!(event, Event::Failed(_)) {
            self.clients[nth].failed_at = at;
        }
        let step = self.clients[nth].run.step(moment, event, &self.limits);
        let step = step.unwrap_or_else(|breach| panic!("client {nth}: {breach}"));
        self.clients[nth].run = step.next;
        match step.action {
            Action::Estimate { .. } => self.step(at, nth, Event::Estimated(FREE)),
            Action::Ask(_) => {
                *self.counts.requests.entry(at / SECOND).or_default() += 1;
                let overload = Event::Failed(failure(ErrorClass::ServerOverload));
                let answer = if at < OUTAGE { overload } else { ANSWER };
                self.plan(at + LATENCY, nth, Happening::Event(answer));
            }
            Action::Wait { until } => {
                self.plan(until.as_millis(), nth, Happening::Event(Event::WaitEnded));
            }
            Action::Probe { .. } => self.probe(at, nth),
            Action::Finish(reason) => {
                assert_eq!(reason, StopReason::Completed, "client {nth}");
                self.counts.answered.push(at);
            }
            Action::Refresh
            | Action::RunTools
            | Action::RunStopHooks
            | Action::RunRequirement
            | Action::AwaitWork { .. } => panic!("client {nth} has nothing else to do"),
        }
    }

    fn probe(&mut self, at: u64, nth: usize) {
        let Client { host, failed_at, .. } = self.clients[nth];
        let id = u64::try_from(nth).expect("it is small") + 1;
        let spread = u32::try_from(id * 7_919 % 1_000).expect("it is small");
        let interval = self.limits.probe_interval.expect("there are probes").as_millis();
        let interval = u64::try_from(interval).expect("it is small");
        let jitter = f64::from(spread) / 1_000.0;
        let asks = Prober { id, jitter, waited: at - failed_at, interval };
        let moment = |shared: u64| Moment::from_millis(shared - BOOT);
        let probed = match self.hosts[host].claim_probe(BOOT + at, asks) {
            ProbeLeave::Go => {
                *self.counts.probes.entry(at / SECOND).or_default() += 1;
                return self.plan(at + LATENCY, nth, Happening::ProbeEnds);
            }
            ProbeLeave::Defer { until } => Probed::Deferred { until: moment(until) },
            ProbeLeave::Answered { turn } => Probed::AnsweredElsewhere { turn: moment(turn) },
        };
        self.step(at, nth, Event::Probed(probed));
    }

    fn end_probe(&mut self, at: u64, nth: usize) {
        let id = u64::try_from(nth).expect("it is small") + 1;
        let out = at - LATENCY < OUTAGE;
        let end = if out { ProbeEnd::Failed } else { ProbeEnd::Answered };
        self.hosts[self.clients[nth].host].record_probe_end(BOOT + at, id, end);
        let failed = Probed::Failed(failure(ErrorClass::ServerOverload));
        self.step(at, nth, Event::Probed(if out { failed } else { Probed::Answered }));
    }

    fn figures(mut self) -> Figures {
        let minutes = u32::try_from((OUTAGE - COUNTED_FROM) / MINUTE).expect("it is small");
        let load = |of: &BTreeMap<u64, u32>| {
            let all: u32 = of.range(COUNTED_FROM / SECOND..OUTAGE / SECOND).map(|(_, n)| n).sum();
            all.div_ceil(minutes)
        };
        let answered = &mut self.counts.answered;
        assert_eq!(answered.len(), self.clients.len(), "a client was lost");
        answered.sort_unstable();
        let delay = |nth: usize| answered[nth] - OUTAGE;
        let back = self.counts.requests.range(OUTAGE / SECOND..);
        Figures {
            requests_a_minute: load(&self.counts.requests),
            probes_a_minute: load(&self.counts.probes),
            median: delay(answered.len() / 2),
            last: delay(answered.len() - 1),
            peak: back.map(|(_, count)| *count).max().unwrap_or_default(),
        }
    }
}

fn persistent() -> Limits {
    let persistence = Persistence::Capacity;
    Limits { persistence, max_retry_wait: persistence.max_retry_wait(), ..limits() }
}

/// The last run to return has waited for at most this long: one interval of probes with its
/// jitter and a look into the shared file, and its turn among those of its host.
fn latest_return(clients: usize, hosts: usize) -> u64 {
    let on_a_host = u64::try_from(clients.div_ceil(hosts)).expect("it is small");
    30 * SECOND + on_a_host * RETURN_GAP
}

#[test]
fn many_runs_notice_the_end_of_an_outage_without_adding_load_to_it() {
    let mut table = "clients  hosts  probes  requests/min  probes/min  median back  last back  \
                     most requests/s after\n"
        .to_owned();
    for (clients, hosts) in [(1, 1), (1_000, 1), (1_000, 10), (1_000, 1_000)] {
        let [without, with] = [None, Some(secs(25))].map(|probe_interval| {
            let figures =
                Fleet::new(clients, hosts, Limits { probe_interval, ..persistent() }).play();
            let Figures { requests_a_minute, probes_a_minute, median, last, peak } = figures;
            let probes = if probe_interval.is_some() { "25 s" } else { "none" };
            writeln!(
                table,
                "{clients:>7}  {hosts:>5}  {probes:>6}  {requests_a_minute:>12}  \
                 {probes_a_minute:>10}  {:>9}.{} s  {:>7}.{} s  {peak:>21}",
                median / SECOND,
                median % SECOND / 100,
                last / SECOND,
                last % SECOND / 100,
            )
            .expect("a string never fails");
            figures
        });
        let what = format!("{clients} clients on {hosts} hosts: {with:?}, {without:?}");
        // The back-off of real requests is what it was.
        assert_eq!(with.requests_a_minute, without.requests_a_minute, "{what}");
        let hosts_probing = u32::try_from(hosts.min(clients)).expect("it is small");
        assert!(with.probes_a_minute <= 3 * hosts_probing, "{what}");
        assert_eq!(without.probes_a_minute, 0, "{what}");
        assert!(with.last <= latest_return(clients, hosts), "{what}");
        assert!(with.median < without.median, "{what}");
        assert!(without.last > 30 * SECOND, "there is nothing to gain: {what}");
        // Twenty a second from each host, and a tenth of all where each is on a host of its own,
        // beside those whose back-off has ended.
        let gap = u32::try_from(SECOND / RETURN_GAP).expect("it is small");
        let most = (gap * hosts_probing).min(if clients == hosts { 100 } else { u32::MAX });
        assert!(with.peak <= most + without.peak, "{what}");
    }
    eprintln!("{table}");
}
