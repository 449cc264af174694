//! Thousands of tasks on a simulated engine: each is a run of the real recovery core, and all share
//! one account at one service. Time is virtual, and everything follows from one seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use outlast_core::recovery::{
    Action, ErrorClass, Event, Failure, Limits, LoopStatus, Moment, Persistence, Probed, ReplyKind,
    RetryAfter, RetryAfterSource, Run, TokenEstimate,
};
use outlast_core::types::exit_code;

use super::super::{FREE, failure};
use super::RandomSource;

/// Model replies that each task needs.
pub(super) const TURNS: u32 = 8;
/// Number of tasks that share a host, and so its state of rate limits.
const TASKS_PER_HOST: usize = 20;
/// Delay before the engine restarts a task that ended with exit code 75; doubled each time, up to
/// the longest.
const RESTART_DELAY: u64 = 10_000;
const RESTART_DELAY_MAX: u64 = 360_000;
/// Delay before a task of a lost node runs elsewhere: longer than the lease of its session.
const NODE_LOSS_DELAY: u64 = 60_000;
/// Begin and duration of the outage.
const OUTAGE_BEGIN: u64 = 15 * MINUTE;
pub(super) const OUTAGE: u64 = 60 * MINUTE;
pub(super) const MINUTE: u64 = 60_000;
/// The price of a reply, in cents.
pub(super) const REPLY_CENTS: u64 = 2;

/// The trouble of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Nothing,
    /// The account may send half the requests that its tasks would.
    AccountLimit,
    /// Every request of one hour is refused with 529.
    Outage,
    /// One task in a hundred loses its node.
    NodeLoss,
}

/// The figures of a fleet whose tasks have all ended.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetFigures {
    pub(super) completed: usize,
    /// Tasks that ended, and that the engine must not start again.
    pub(super) failed: usize,
    /// End of the last task, in milliseconds.
    pub(super) makespan: u64,
    /// From the first start of each task to its end, sorted.
    pub(super) durations: Vec<u64>,
    /// Those of the tasks that met the trouble.
    troubled: Vec<u64>,
    pub(super) requests: u64,
    pub(super) replies: u64,
    /// Requests in the minute that had the most.
    pub(super) busiest_minute: u64,
    /// Requests during the outage.
    pub(super) outage_requests: u64,
    pub(super) restarts: u64,
}

impl FleetFigures {
    /// The duration below which a part of the tasks stay.
    pub(super) fn percentile(&self, percent: usize) -> u64 {
        let last = self.durations.len().saturating_sub(1);
        self.durations.get(last * percent / 100).copied().unwrap_or_default()
    }

    /// Jain's index of the durations of tasks that met the trouble, in thousandths: 1000 if all
    /// are equal.
    pub(super) fn fairness(&self) -> u64 {
        let sum: u128 = self.troubled.iter().map(|length| u128::from(*length)).sum();
        let squares: u128 = self.troubled.iter().map(|length| u128::from(*length).pow(2)).sum();
        let tasks = self.troubled.len() as u128;
        u64::try_from(sum * sum * 1000 / (tasks * squares).max(1)).expect("at most 1000")
    }
}

/// One task: a session, and the process that works on it.
struct FleetTask {
    run: Run,
    turns: u32,
    /// The slot that it runs in, if it runs.
    slot: Option<usize>,
    /// Start of its process: the clock of its run begins at zero.
    began: u64,
    first_start: Option<u64>,
    /// Counts processes: what was scheduled for an earlier one is void.
    process: u32,
    refusals: u32,
    /// Time of the loss of its node.
    lost_at: Option<u64>,
}

/// A scheduled event of a task.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// It may run again, once a slot is free.
    Ready,
    Event(Event),
    NodeLoss,
}

/// State that the runs of a host share.
#[derive(Clone, Default)]
struct HostState {
    blocked_until: u64,
    probed_at: Option<u64>,
    /// Earliest return of the next waiting run, after a probe was answered.
    next_return: u64,
    is_back: bool,
}

pub(super) struct Fleet {
    trouble: Trouble,
    limits: Limits,
    dice: RandomSource,
    now: u64,
    tasks: Vec<FleetTask>,
    agenda: BinaryHeap<Reverse<(u64, u64, usize, u32)>>,
    /// The scheduled events, by the number of their entry in the agenda.
    due: Vec<Due>,
    ready: VecDeque<usize>,
    free_slots: Vec<usize>,
    hosts: Vec<HostState>,
    /// Requests that the account may send in a minute, and those sent in this one.
    allowance: u64,
    minute: (u64, u64),
    sent_in_minute: (u64, u64),
    figures: FleetFigures,
}

impl Fleet {
    /// A tenth of the tasks run at a time.
    pub(super) fn new(tasks: usize, trouble: Trouble, persistence: Persistence) -> Self {
        let slots = (tasks / 10).max(1);
        let limits = Limits {
            persistence,
            max_retry_wait: persistence.max_retry_wait(),
            ..Limits::default()
        };
        let mut dice = RandomSource::new(11);
        // A task that runs sends a request about every 30 seconds.
        let allowance = slots as u64;
        let all = (0..tasks).map(|number| FleetTask {
            run: Run::new(number as u64, &limits),
            turns: 0,
            slot: None,
            began: 0,
            first_start: None,
            process: 0,
            refusals: 0,
            lost_at: (trouble == Trouble::NodeLoss && number % 100 == 50)
                .then(|| 1 + dice.roll(2 * MINUTE)),
        });
        let all = all.collect();
        Self {
            trouble,
            limits,
            dice,
            now: 0,
            tasks: all,
            agenda: BinaryHeap::new(),
            due: Vec::new(),
            ready: (0..tasks).collect(),
            free_slots: (0..slots).rev().collect(),
            hosts: vec![HostState::default(); slots.div_ceil(TASKS_PER_HOST)],
            allowance,
            minute: (0, 0),
            sent_in_minute: (0, 0),
            figures: FleetFigures::default(),
        }
    }

    /// Lets all tasks run to their end.
    pub(super) fn play(mut self) -> FleetFigures {
        self.fill_slots();
        while let Some(Reverse((at, entry, task, process))) = self.agenda.pop() {
            self.now = at;
            let due = self.due[usize::try_from(entry).expect("an index fits")];
            if self.tasks[task].process != process {
                continue;
            }
            match due {
                // A task that has begun goes before those that have not.
                Due::Ready => self.ready.push_front(task),
                Due::Event(event) => self.step(task, event),
                Due::NodeLoss => self.lose_node(task),
            }
            self.fill_slots();
        }
        self.figures.durations.sort_unstable();
        self.figures
    }

    fn schedule(&mut self, task: usize, at: u64, due: Due) {
        let entry = self.due.len() as u64;
        self.due.push(due);
        self.agenda.push(Reverse((at, entry, task, self.tasks[task].process)));
    }

    fn fill_slots(&mut self) {
        while let (false, Some(slot)) = (self.ready.is_empty(), self.free_slots.pop()) {
            let task = self.ready.pop_front().expect("it is not empty");
            let state = &mut self.tasks[task];
            state.slot = Some(slot);
            state.began = self.now;
            state.first_start.get_or_insert(self.now);
            // Processes of a job do not begin in the same instant.
            let delay = self.dice.roll(5_000);
            if let Some(lost) = self.tasks[task].lost_at.take() {
                self.schedule(task, self.now + lost, Due::NodeLoss);
            }
            self.schedule(task, self.now + delay, Due::Event(Event::Begin));
        }
    }

    /// The process ends, and its slot is free.
    fn leave_slot(&mut self, task: usize) {
        let state = &mut self.tasks[task];
        state.process += 1;
        self.free_slots.push(state.slot.take().expect("it ran"));
    }

    fn lose_node(&mut self, task: usize) {
        self.leave_slot(task);
        self.figures.restarts += 1;
        let state = &mut self.tasks[task];
        state.run = state.run.resumed();
        self.schedule(task, self.now + NODE_LOSS_DELAY, Due::Ready);
    }

    /// Lets a run decide on events until it has to wait for something.
    fn step(&mut self, task: usize, mut event: Event) {
        loop {
            let state = &mut self.tasks[task];
            let at = Moment::from_millis(self.now - state.began);
            if matches!(event, Event::Replied(_)) {
                state.turns += 1;
                state.refusals = 0;
            }
            let step = state.run.step(at, event, &self.limits).expect("the fleet keeps the rules");
            state.run = step.next;
            let begun = state.began;
            let (after, then) = match step.action {
                Action::Estimate { .. } => {
                    event =
                        Event::Estimated(TokenEstimate { window: 200_000, size: 20_000, ..FREE });
                    continue;
                }
                Action::Ask(call) => {
                    let host = self.host(task);
                    let blocked = self.hosts[host].blocked_until;
                    if call.may_wait_for_shared_limit && blocked > self.now {
                        // Each waits a little longer than the limit, by a time of its own.
                        let until = blocked - begun + self.dice.roll(5_000);
                        event = Event::SharedLimitMet { until: Moment::from_millis(until) };
                        continue;
                    }
                    self.ask(task)
                }
                Action::Probe { .. } => match self.probe(task) {
                    Ok(timed) => timed,
                    Err(unsent) => {
                        event = Event::Probed(unsent);
                        continue;
                    }
                },
                Action::RunTools => (self.dice.roll(30_000), Event::ToolsDone(LoopStatus::Fresh)),
                Action::Wait { until } => {
                    ((begun + until.as_millis()).saturating_sub(self.now), Event::WaitEnded)
                }
                Action::Finish(reason) => return self.finish(task, reason.info().exit_code),
                Action::Refresh
                | Action::RunStopHooks
                | Action::RunRequirement
                | Action::AwaitWork { .. } => panic!("nothing here needs {:?}", step.action),
            };
            return self.schedule(task, self.now + after, Due::Event(then));
        }
    }

    fn host(&self, task: usize) -> usize {
        self.tasks[task].slot.expect("it runs") / TASKS_PER_HOST
    }

    /// Sends a request. Returns how long it takes, and what comes of it.
    fn ask(&mut self, task: usize) -> (u64, Event) {
        let host = self.host(task);
        if let Some(refused) = self.refusal() {
            if let Some(RetryAfter { wait, .. }) = refused.retry_after {
                let until = self.now + u64::try_from(wait.as_millis()).expect("minutes");
                let known = &mut self.hosts[host].blocked_until;
                *known = until.max(*known);
            }
            return (200, Event::Failed(refused));
        }
        self.figures.replies += 1;
        let tokens = 500;
        let is_last = self.tasks[task].turns + 1 >= TURNS;
        let reply =
            if is_last { ReplyKind::Answer { tokens } } else { ReplyKind::ToolCalls { tokens } };
        (5_000 + self.dice.roll(20_000), Event::Replied(reply))
    }

    /// Probes for capacity, unless another run of the host has just done that.
    fn probe(&mut self, task: usize) -> Result<(u64, Event), Probed> {
        let (host, begun) = (self.host(task), self.tasks[task].began);
        let now = self.now;
        let known = &mut self.hosts[host];
        if let Some(probed) = known.probed_at.filter(|probed| now - probed < 25_000) {
            let moment = |at: u64| Moment::from_millis(at.max(now) - begun);
            if known.is_back {
                known.next_return = known.next_return.max(now) + 250;
                return Err(Probed::AnsweredElsewhere { turn: moment(known.next_return) });
            }
            return Err(Probed::Deferred { until: moment(probed + 25_000) });
        }
        known.probed_at = Some(now);
        let refused = self.refusal();
        self.hosts[host].is_back = refused.is_none();
        Ok((500, Event::Probed(refused.map_or(Probed::Answered, Probed::Failed))))
    }

    /// Counts a request, and says why the service refuses it, if it does.
    fn refusal(&mut self) -> Option<Failure> {
        let minute = self.now / MINUTE;
        self.figures.requests += 1;
        if self.sent_in_minute.0 != minute {
            self.sent_in_minute = (minute, 0);
        }
        self.sent_in_minute.1 += 1;
        self.figures.busiest_minute = self.figures.busiest_minute.max(self.sent_in_minute.1);
        match self.trouble {
            Trouble::Nothing | Trouble::NodeLoss => None,
            Trouble::Outage => {
                let is_down = (OUTAGE_BEGIN..OUTAGE_BEGIN + OUTAGE).contains(&self.now);
                self.figures.outage_requests += u64::from(is_down);
                is_down.then(|| failure(ErrorClass::ServerOverload))
            }
            Trouble::AccountLimit => {
                if self.minute.0 != minute {
                    self.minute = (minute, 0);
                }
                if self.minute.1 < self.allowance {
                    self.minute.1 += 1;
                    return None;
                }
                let left = (MINUTE - self.now % MINUTE).div_ceil(1_000);
                let wait = std::time::Duration::from_secs(left);
                let source = RetryAfterSource::RetryAfter;
                let limited = failure(ErrorClass::RateLimit);
                Some(Failure { retry_after: Some(RetryAfter { wait, source }), ..limited })
            }
        }
    }

    /// Ends or reschedules a task, as the engine does for this exit code.
    fn finish(&mut self, task: usize, code: u8) {
        self.leave_slot(task);
        let state = &mut self.tasks[task];
        if code == exit_code::TEMPORARY {
            state.run = state.run.reopened(Some(&self.limits), &self.limits).resumed();
            let delay = (RESTART_DELAY << state.refusals.min(10)).min(RESTART_DELAY_MAX);
            state.refusals += 1;
            self.figures.restarts += 1;
            return self.schedule(task, self.now + delay, Due::Ready);
        }
        let began = state.first_start.expect("it ran");
        let lasted = self.now - began;
        self.figures.durations.push(lasted);
        let met_outage = began < OUTAGE_BEGIN + OUTAGE && self.now > OUTAGE_BEGIN;
        if self.trouble != Trouble::Outage || met_outage {
            self.figures.troubled.push(lasted);
        }
        self.figures.makespan = self.now;
        if code == exit_code::SUCCESS {
            self.figures.completed += 1;
        } else {
            self.figures.failed += 1;
        }
    }
}
