//! Walks every state that the machine can reach and checks what must never happen.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;
use std::time::Duration;

use outlast::recovery::{
    Account, Action, Breach, Budget, Budgets, Call, Caps, Cut, ErrorClass, Event, Failure, Fate,
    Interrupt, Limits, Moment, Money, Pause, Persistence, Phase, Reach, RecoveryPlan, Reply,
    Ruling, Run, Source, StopReason, Transition, Weight,
};

use super::{FREE, failure, limits, reaching, ruled, secs, wishing};

/// One of everything: enough for everything to happen, and to happen after everything else.
fn small() -> Limits {
    let budgets = Budgets {
        turns: Some(1),
        retries: 1,
        bucket: 10,
        switches: 1,
        refreshes: 1,
        escalations: 1,
        continuations: 1,
        empty_replies: 1,
        resumptions: 1,
        nudges: 1,
    };
    let caps = Caps { first: 100, escalated: 1_000, whole: 500, floor: 10 };
    Limits { budgets, caps, ..limits() }
}

/// More of what failures need, and nothing of what replies do.
fn failing() -> Limits {
    let budgets = Budgets {
        turns: Some(2),
        retries: 2,
        bucket: 12,
        switches: 1,
        refreshes: 1,
        escalations: 0,
        continuations: 0,
        empty_replies: 0,
        resumptions: 0,
        nudges: 0,
    };
    Limits { budgets, ..small() }
}

/// More of what replies need, and nothing of what failures do.
fn replying() -> Limits {
    let budgets = Budgets {
        turns: Some(4),
        retries: 0,
        bucket: 0,
        switches: 0,
        refreshes: 0,
        continuations: 2,
        nudges: 2,
        ..small().budgets
    };
    Limits { budgets, effort: Some(600), ..small() }
}

fn settings() -> Vec<(&'static str, Limits)> {
    let failing = failing();
    let once = Limits { budgets: Budgets { turns: Some(1), ..failing.budgets }, ..failing };
    vec![
        ("one of everything", small()),
        ("replies and effort", replying()),
        ("time to wrap up", Limits { wrap_up: Some(Moment::default()), ..replying() }),
        ("failures", failing),
        ("subscription", Limits { account: Account::Subscription, ..once }),
        ("background", Limits { source: Source::Background, ..once }),
        ("a limit on overloads", Limits { overload_limit: Some(2), ..once }),
        ("waiting for capacity", Limits { persistence: Persistence::Capacity, ..failing }),
        ("waiting for anything", Limits { persistence: Persistence::All, ..once }),
    ]
}

fn every_event() -> Vec<Event> {
    let replies = [
        Reply::Answer { tokens: 0 },
        Reply::Answer { tokens: 500 },
        Reply::ToolCalls { tokens: 0 },
        Reply::CutShort(Cut::Text),
        Reply::CutShort(Cut::ToolCall),
        Reply::CutShort(Cut::Thinking),
        Reply::Refusal,
        Reply::Empty,
        Reply::Paused,
    ];
    let pico = Money::from_pico_dollars;
    let weights = [
        FREE,
        Weight { ceiling: 0, ..FREE },
        Weight { left: Some(pico(50)), token: pico(1), ..FREE },
        Weight { left: Some(pico(9)), token: pico(1), ..FREE },
    ];
    let plain = [
        Event::Begin,
        Event::ToolsDone,
        Event::HookStopped,
        Event::Refreshed,
        Event::Woke,
        Event::Interrupted(Interrupt::Sigint),
        Event::DeadlinePassed,
        Event::Broke,
    ];
    plain
        .into_iter()
        .chain(replies.map(Event::Replied))
        .chain(weights.map(Event::Weighed))
        .chain(every_failure().into_iter().map(Event::Failed))
        .collect()
}

fn every_failure() -> Vec<Failure> {
    let mut all = Vec::new();
    for class in ErrorClass::ALL {
        all.extend([failure(class), ruled(class, Ruling::Retry), ruled(class, Ruling::Stop)]);
    }
    let reaches = [Reach::Nowhere, Reach::StaleConnection, Reach::FreshConnection, Reach::Stream];
    for reach in reaches {
        let classes = [ErrorClass::ConnectionError, ErrorClass::ServerOverload];
        all.extend(classes.map(|class| reaching(class, reach)));
    }
    let asking = [
        ErrorClass::RateLimit,
        ErrorClass::ServerOverload,
        ErrorClass::ServerError,
        ErrorClass::InvalidApiKey,
    ];
    for wait in [Duration::ZERO, secs(5), secs(3_600)] {
        all.extend(asking.map(|class| wishing(class, wait)));
        let stale = wishing(ErrorClass::ConnectionError, wait);
        all.push(Failure { reach: Reach::StaleConnection, ..stale });
    }
    all
}

/// Every event, and whether it is the first of its kind.
fn every_event_by_kind() -> Vec<(Event, bool)> {
    let mut kinds = HashSet::new();
    let first = |event: Event| (event, kinds.insert(discriminant(&event)));
    every_event().into_iter().map(first).collect()
}

/// Whether the phase waits for the event.
fn fits(phase: Phase, event: Event) -> bool {
    match event {
        Event::Interrupted(_) | Event::DeadlinePassed | Event::Broke => {
            !matches!(phase, Phase::Stopped(_))
        }
        Event::Begin => phase == Phase::Ready,
        Event::Weighed(_) => phase == Phase::Weighing,
        Event::Replied(_) => phase == Phase::Calling(Call::Reply),
        Event::Failed(_) => matches!(phase, Phase::Calling(_)),
        Event::Refreshed => phase == Phase::Calling(Call::Credentials),
        Event::ToolsDone | Event::HookStopped => phase == Phase::Working,
        Event::Woke => matches!(phase, Phase::Pausing { .. }),
    }
}

/// When an event happens: at once, but nobody wakes early.
fn when(run: Run, event: Event) -> Moment {
    match run.phase {
        Phase::Pausing { until, .. } if event == Event::Woke => until,
        Phase::Pausing { .. }
        | Phase::Ready
        | Phase::Weighing
        | Phase::Calling(_)
        | Phase::Working
        | Phase::Stopped(_) => Moment::default(),
    }
}

/// The run as it looks to somebody without a clock: two runs that differ only in when things
/// happen, or in how long the ladder has grown, are one.
fn timeless(run: Run, now: Moment) -> Run {
    let phase = if let Phase::Pausing { until, why, then } = run.phase {
        let until = Moment::default().after(now.until(until).min(secs(1)));
        Phase::Pausing { until, why: Pause { retry: 0, ..why }, then }
    } else {
        run.phase
    };
    let may_escalate = run.may_escalate && phase == Phase::Calling(Call::Reply);
    let not_before = Moment::default();
    Run { phase, may_escalate, not_before, failures: run.failures.min(1), ..run }
}

#[derive(Default)]
struct Graph {
    states: Vec<Run>,
    numbers: HashMap<Run, usize>,
    /// From where to where, and whether time passes or tools run on the way.
    edges: Vec<(usize, usize, Way)>,
    breaches: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Waits,
    Works,
    Straight,
}

impl Graph {
    fn number(&mut self, run: Run) -> usize {
        *self.numbers.entry(run).or_insert_with(|| {
            self.states.push(run);
            self.states.len() - 1
        })
    }

    /// Every state that can be reached, and every step between them. What a phase does not wait
    /// for is refused without a look inside, so one event of each such kind is enough.
    fn walk(limits: &Limits, check: impl Fn(Run, &Transition)) -> Self {
        let (mut graph, events) = (Self::default(), every_event_by_kind());
        graph.number(Run::new(7, limits));
        let mut from = 0;
        while from < graph.states.len() {
            let run = graph.states[from];
            for &(event, first) in &events {
                let at = when(run, event);
                if fits(run.phase, event) {
                    let step = run.step(at, event, limits).expect("the event fits the phase");
                    check(run, &step);
                    let to = graph.number(timeless(step.next, at));
                    graph.edges.push((from, to, way(&step)));
                } else if first {
                    let breach = Breach { phase: run.phase, event };
                    assert_eq!(run.step(at, event, limits), Err(breach));
                    graph.breaches += 1;
                }
            }
            from += 1;
        }
        graph
    }

    /// Whether going only by `allowed` ways leads round in a circle.
    fn has_circle(&self, allowed: &[Way]) -> bool {
        let edges = || self.edges.iter().filter(|(_, _, way)| allowed.contains(way));
        let mut arriving = vec![0_usize; self.states.len()];
        let mut leaving = vec![Vec::new(); self.states.len()];
        for &(from, to, _) in edges() {
            arriving[to] += 1;
            leaving[from].push(to);
        }
        let mut open: Vec<usize> =
            (0..arriving.len()).filter(|&state| arriving[state] == 0).collect();
        let mut closed = 0;
        while let Some(state) = open.pop() {
            closed += 1;
            for &to in &leaving[state] {
                arriving[to] -= 1;
                if arriving[to] == 0 {
                    open.push(to);
                }
            }
        }
        closed < self.states.len()
    }
}

fn way(transition: &Transition) -> Way {
    match transition.action {
        Action::Wait { until } => {
            assert!(until > transition.at, "a wait that takes no time: {transition:?}");
            Way::Waits
        }
        Action::RunTools => Way::Works,
        Action::Weigh { .. } | Action::Ask(_) | Action::Refresh | Action::Finish(_) => {
            Way::Straight
        }
    }
}

const ANY: [Way; 3] = [Way::Waits, Way::Works, Way::Straight];

/// What holds of every single step.
fn check(run: Run, step: &Transition, limits: &Limits) {
    let next = step.next;
    let agree = match step.action {
        Action::Weigh { rung } => next.phase == Phase::Weighing && rung == next.rung,
        Action::Ask(ask) => {
            next.phase == Phase::Calling(Call::Reply) && ask.rung == next.rung && ask.cap > 0
        }
        Action::Refresh => next.phase == Phase::Calling(Call::Credentials),
        Action::RunTools => next.phase == Phase::Working,
        Action::Wait { until } => {
            until <= step.at.after(limits.heartbeat) && matches!(next.phase, Phase::Pausing { .. })
        }
        Action::Finish(reason) => next.phase == Phase::Stopped(reason),
    };
    assert!(agree, "the action is not what the run waits for: {step:?}");
    let calls = matches!(step.action, Action::Weigh { .. } | Action::Ask(_) | Action::Refresh);
    assert!(!calls || next.not_before <= step.at, "the server did not allow it yet: {step:?}");
    let answered = matches!(step.event, Event::Replied(_) | Event::Failed(_));
    assert_eq!(step.edit.reply == Fate::Absent, !answered, "{step:?}");
    let told = step.edit.say.is_none() || matches!(step.action, Action::Weigh { .. });
    assert!(told, "said to nobody: {step:?}");
    let ends_as = match step.event {
        Event::Broke => Some(StopReason::InternalError),
        Event::DeadlinePassed => Some(StopReason::Deadline),
        Event::Interrupted(by) if run.phase == Phase::Working => Some(StopReason::AbortedTools(by)),
        Event::Interrupted(by) => Some(StopReason::AbortedStreaming(by)),
        Event::Begin
        | Event::Weighed(_)
        | Event::Replied(_)
        | Event::Failed(_)
        | Event::ToolsDone
        | Event::HookStopped
        | Event::Refreshed
        | Event::Woke => None,
    };
    if let Some(reason) = ends_as {
        assert_eq!((step.action, step.plan), (Action::Finish(reason), None));
    } else {
        assert_ne!(step.action, Action::Finish(StopReason::InternalError), "{step:?}");
    }
    check_price(run, step, limits);
    let goes_on = !matches!(step.action, Action::Finish(_) | Action::RunTools);
    if answered && goes_on {
        assert!(step.plan.is_some_and(|plan| !matches!(plan, RecoveryPlan::Stop(_))), "{step:?}");
    }
    if let (Action::Finish(reason), Some(plan)) = (step.action, step.plan) {
        assert_eq!(plan, RecoveryPlan::Stop(reason));
    }
}

/// Every recovery is paid for, in full.
fn check_price(run: Run, step: &Transition, limits: &Limits) {
    let (before, after, full) = (run.budgets, step.next.budgets, limits.budgets);
    let Some(plan) = step.plan else { return };
    let paid = match plan.price() {
        None => true,
        Some(Budget::Turn) => false,
        Some(Budget::Retry { tokens }) => {
            let free = limits.persistence != Persistence::Off && before.bucket < 10;
            after.retries + 1 == before.retries
                && after.bucket + tokens == before.bucket
                && (tokens >= 5 || free)
        }
        Some(Budget::Switch) => {
            after.switches + 1 == before.switches && step.next.rung == run.rung + 1
        }
        Some(Budget::Refresh) => after.refreshes + 1 == before.refreshes,
        Some(Budget::Escalation) => after.escalations + 1 == before.escalations,
        Some(Budget::Continuation) => after.continuations + 1 == before.continuations,
        Some(Budget::EmptyReply) => after.empty_replies + 1 == before.empty_replies,
        Some(Budget::Resumption) => after.resumptions + 1 == before.resumptions,
        Some(Budget::Nudge) => after.nudges < full.nudges,
    };
    assert!(paid, "nobody paid for this: {step:?}");
    let rung_kept = step.next.rung == run.rung || plan == RecoveryPlan::SwitchModel;
    assert!(rung_kept, "the model changed for no reason: {step:?}");
    assert!(after.turns <= before.turns, "turns came back: {step:?}");
}

#[test]
fn every_run_ends_or_waits_and_pays_for_every_recovery() {
    let mut states = 0;
    for (name, limits) in settings() {
        let graph = Graph::walk(&limits, |run, step| check(run, step, &limits));
        eprintln!(
            "{name}: {} states, {} steps, {} breaches refused",
            graph.states.len(),
            graph.edges.len(),
            graph.breaches
        );
        states += graph.states.len();
        let patient = limits.persistence != Persistence::Off;
        assert_eq!(graph.has_circle(&ANY), patient, "{name}: only the patient may go round");
        assert!(
            !graph.has_circle(&[Way::Works, Way::Straight]),
            "{name}: but never without a wait"
        );
        let mut alive = vec![false; graph.states.len()];
        graph.edges.iter().for_each(|&(from, _, _)| alive[from] = true);
        for (run, alive) in graph.states.iter().zip(alive) {
            let over = matches!(run.phase, Phase::Stopped(_));
            assert_ne!(alive, over, "{name}: a dead end, or no rest after the end: {run:?}");
        }
    }
    eprintln!("{states} states in all");
}

#[test]
fn a_run_without_a_turn_limit_goes_round_only_by_working() {
    let budgets = Budgets { turns: None, ..replying().budgets };
    let limits = Limits { budgets, ..replying() };
    let graph = Graph::walk(&limits, |run, step| check(run, step, &limits));
    assert!(graph.has_circle(&ANY));
    assert!(!graph.has_circle(&[Way::Waits, Way::Straight]), "failures alone must end it");
}

#[test]
fn no_state_outlives_its_deadline() {
    for (name, limits) in [("one of everything", small()), ("failures", failing())] {
        let graph = Graph::walk(&limits, |_, _| ());
        let events = every_event();
        let late = Limits { deadline: Some(Moment::default()), ..limits };
        let soon = Limits { deadline: Some(Moment::from_millis(700)), ..limits };
        for &run in &graph.states {
            for &event in events.iter().filter(|&&event| fits(run.phase, event)) {
                let step =
                    run.step(when(run, event), event, &late).expect("the event fits the phase");
                let done = matches!(step.action, Action::Finish(_));
                assert!(done, "{name}: {step:?} goes on after the deadline");
                let Ok(step) = run.step(Moment::default(), event, &soon) else { continue };
                if let (Phase::Pausing { until, .. }, false) =
                    (step.next.phase, event == Event::Woke)
                {
                    assert!(until < Moment::from_millis(700), "{name}: {step:?} waits too long");
                }
            }
        }
    }
}
