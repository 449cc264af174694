//! Explores every reachable state of the state machine and checks its invariants.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::discriminant;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use outlast_core::recovery::{
    Action, Attempts, AvailableMitigations, Budget, Budgets, Call, CallPurpose, CompactionState,
    CutKind, EndpointStatus, ErrorBody, ErrorClass, Event, Failure, FailureStage, Fast, Incomplete,
    Interrupt, InvalidEvent, KeptAnswer, LeftOff, Limits, LoopStatus, Moment, Money, Pause,
    Persistence, Phase, PreferredModel, Probed, RecoveryPlan, ReplyDisposition, ReplyKind,
    RetryHint, Run, StopHookDecision, StopReason, TokenEstimate, Transition, WorkStatus,
};

use super::explored_limits::{failing, replying, settings, small, unbounded_summaries};
use super::{
    ANYTHING, FREE, after, failure, failure_at_stage, failure_with_retry_after,
    failure_with_retry_hint, secs,
};
use crate::support::rotation::rotating_part;

fn every_event() -> Vec<Event> {
    let replies = [
        ReplyKind::Answer { tokens: 0 },
        ReplyKind::Answer { tokens: 500 },
        ReplyKind::Early { tokens: 500 },
        ReplyKind::LeftOpen { tokens: 500 },
        ReplyKind::ToolCalls { tokens: 0 },
        ReplyKind::CutShort(CutKind::Text),
        ReplyKind::CutShort(CutKind::ToolCall),
        ReplyKind::CutShort(CutKind::Thinking),
        ReplyKind::Incomplete(Incomplete::MissingCall),
        ReplyKind::Incomplete(Incomplete::UnknownReason),
        ReplyKind::Incomplete(Incomplete::CallInText),
        ReplyKind::Refusal,
        ReplyKind::Empty,
        ReplyKind::Paused,
    ];
    let pico = Money::from_pico_dollars;
    let weights = [
        FREE,
        TokenEstimate { needs_whole_reply: true, ..FREE },
        TokenEstimate { ceiling: 0, ..FREE },
        TokenEstimate { left: Some(pico(50)), token: pico(1), ..FREE },
        TokenEstimate { left: Some(pico(9)), token: pico(1), ..FREE },
        TokenEstimate { size: 900, window: 1_000, mitigations: ANYTHING, ..FREE },
        TokenEstimate { size: 900, window: 1_000, ..FREE },
        TokenEstimate { size: 1_000, window: 1_000, mitigations: ANYTHING, ..FREE },
        TokenEstimate { size: 1_000, window: 1_000, ..FREE },
        TokenEstimate { size: 1_000, window: 1_000, counted: true, ..FREE },
        TokenEstimate { size: 1_200, window: 1_000, mitigations: ANYTHING, ..FREE },
    ];
    let plain = [
        Event::Begin,
        Event::Resumed(LeftOff::ReplyDue),
        Event::Resumed(LeftOff::Cut(CutKind::Text)),
        Event::Resumed(LeftOff::Incomplete(Incomplete::UnknownReason)),
        Event::Resumed(LeftOff::Paused),
        Event::Resumed(LeftOff::Continuing),
        Event::Resumed(LeftOff::Answered),
        Event::Resumed(LeftOff::Delivered),
        Event::Resumed(LeftOff::Consented),
        Event::Resumed(LeftOff::Finished(StopReason::Completed)),
        Event::ToolsDone(LoopStatus::Fresh),
        Event::ToolsDone(LoopStatus::Repeating),
        Event::ToolsDone(LoopStatus::Stuck),
        Event::Delivered,
        Event::DeliveredEarly,
        Event::BackgroundWaited(WorkStatus::Over),
        Event::BackgroundWaited(WorkStatus::Unreported),
        Event::BackgroundWaited(WorkStatus::StillRunning),
        Event::SchemaMismatch,
        Event::Checked { passed: true },
        Event::Checked { passed: false },
        Event::Consulted(StopHookDecision::Pass),
        Event::Consulted(StopHookDecision::Block),
        Event::Consulted(StopHookDecision::BlockAgain),
        Event::Consulted(StopHookDecision::Halt),
        Event::HookStopped,
        Event::Deferred,
        Event::SummaryPrevented,
        Event::Denied,
        Event::Refreshed,
        Event::SharedLimitMet { until: Moment::default() },
        Event::SharedLimitMet { until: Moment::default().after(secs(5)) },
        Event::SharedLimitMet { until: Moment::default().after(secs(3_600)) },
        Event::WaitEnded,
        Event::Probed(Probed::Answered),
        Event::Probed(Probed::AnsweredElsewhere { turn: Moment::default() }),
        Event::Probed(Probed::AnsweredElsewhere { turn: after(3_600) }),
        Event::Probed(Probed::Deferred { until: Moment::default() }),
        Event::Probed(Probed::Deferred { until: after(3_600) }),
        Event::Probed(Probed::Unaffordable),
        Event::Interrupted(Interrupt::Sigint),
        Event::DeadlinePassed,
        Event::InternalError,
    ];
    plain
        .into_iter()
        .chain(replies.map(Event::Replied))
        .chain(weights.map(Event::Estimated))
        .chain(every_failure().into_iter().map(Event::Failed))
        .chain(every_failure().into_iter().map(|failure| Event::Probed(Probed::Failed(failure))))
        .collect()
}

fn every_failure() -> Vec<Failure> {
    let mut all = Vec::new();
    for class in ErrorClass::ALL {
        all.extend([
            failure(class),
            failure_with_retry_hint(class, RetryHint::Retry),
            failure_with_retry_hint(class, RetryHint::Stop),
        ]);
    }
    let refusals = [
        ErrorClass::PromptTooLong,
        ErrorClass::RequestTooLarge,
        ErrorClass::ImageTooLarge,
        ErrorClass::InvalidRequest,
    ];
    all.extend(refusals.map(|class| Failure { mitigations: ANYTHING, ..failure(class) }));
    all.extend(
        [ErrorClass::RateLimit, ErrorClass::ServerOverload]
            .map(|class| Failure { fast_denied: true, ..failure(class) }),
    );
    let (body, endpoint_status) = (ErrorBody::Foreign, EndpointStatus::Proven);
    let odd = [ErrorClass::InvalidApiKey, ErrorClass::AuthError, ErrorClass::InvalidRequest];
    all.extend(odd.map(|class| Failure { body, endpoint_status, ..failure(class) }));
    all.push(Failure { endpoint_status, ..failure(ErrorClass::SslCertError) });
    let portal = failure(ErrorClass::Unknown);
    all.push(Failure { body: ErrorBody::Portal, ..portal });
    let (body, endpoint_status) = (ErrorBody::Api, EndpointStatus::Proven);
    let doubtful = [ErrorClass::InvalidApiKey, ErrorClass::AuthError];
    all.extend(doubtful.map(|class| Failure { body, endpoint_status, ..failure(class) }));
    let marked = AvailableMitigations { cache_marks: true, ..AvailableMitigations::NONE };
    let streamed = AvailableMitigations { streaming: true, ..AvailableMitigations::NONE };
    all.extend([
        Failure { contradicted: true, ..failure(ErrorClass::InvalidRequest) },
        Failure { mitigations: marked, ..failure(ErrorClass::InvalidRequest) },
        Failure { mitigations: streamed, ..failure(ErrorClass::InvalidRequest) },
    ]);
    let too_long = failure(ErrorClass::PromptTooLong);
    all.extend([
        Failure { contradicted: true, ..too_long },
        Failure { contradicted: true, mitigations: ANYTHING, ..too_long },
        Failure {
            contradicted: true,
            ..failure_with_retry_hint(ErrorClass::PromptTooLong, RetryHint::Stop)
        },
        failure_at_stage(ErrorClass::ConnectionError, FailureStage::Block),
        failure_at_stage(ErrorClass::StreamStalled, FailureStage::Block),
    ]);
    let reaches = [
        FailureStage::Unsent,
        FailureStage::StaleConnection,
        FailureStage::FreshConnection,
        FailureStage::Stream,
    ];
    for reach in reaches {
        let classes = [ErrorClass::ConnectionError, ErrorClass::ServerOverload];
        all.extend(classes.map(|class| failure_at_stage(class, reach)));
    }
    let asking = [
        ErrorClass::RateLimit,
        ErrorClass::ServerOverload,
        ErrorClass::ServerError,
        ErrorClass::InvalidApiKey,
    ];
    for wait in [Duration::ZERO, secs(5), secs(3_600)] {
        all.extend(asking.map(|class| failure_with_retry_after(class, wait)));
        all.extend(refusals.map(|class| Failure {
            mitigations: ANYTHING,
            ..failure_with_retry_after(class, wait)
        }));
        let stale = failure_with_retry_after(ErrorClass::ConnectionError, wait);
        all.push(Failure { stage: FailureStage::StaleConnection, ..stale });
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
fn fits(run: Run, event: Event) -> bool {
    let phase = run.phase;
    match event {
        Event::Interrupted(_) | Event::DeadlinePassed | Event::Denied | Event::InternalError => {
            !matches!(phase, Phase::Stopped(_))
        }
        Event::Begin | Event::Resumed(_) => phase == Phase::Ready,
        Event::Estimated(_) => matches!(phase, Phase::Estimating(_)),
        Event::Replied(_) => matches!(phase, Phase::Calling(Call::Ask(_))),
        Event::Failed(_) => matches!(phase, Phase::Calling(_) | Phase::Estimating(_)),
        Event::Refreshed => matches!(phase, Phase::Calling(Call::Refresh(_))),
        Event::SharedLimitMet { .. } => {
            run.budgets.shared_limit_waits > 0 && matches!(phase, Phase::Calling(Call::Ask(_)))
        }
        Event::ToolsDone(_) | Event::Delivered | Event::DeliveredEarly | Event::SchemaMismatch => {
            phase == Phase::Working
        }
        Event::Deferred => phase == Phase::Working,
        Event::HookStopped => matches!(
            phase,
            Phase::Ready
                | Phase::Estimating(_)
                | Phase::Calling(Call::Ask(_))
                | Phase::Working
                | Phase::RunningStopHooks
                | Phase::RunningRequirement
        ),
        Event::SummaryPrevented => {
            matches!(phase, Phase::Calling(Call::Ask(CallPurpose::Summary(_))))
        }
        Event::Consulted(_) => phase == Phase::RunningStopHooks,
        Event::BackgroundWaited(_) => matches!(phase, Phase::Awaiting { .. }),
        Event::Checked { .. } => phase == Phase::RunningRequirement,
        Event::WaitEnded => matches!(phase, Phase::Pausing { .. }),
        Event::Probed(_) => matches!(phase, Phase::Probing { .. }),
    }
}

/// Time of an event: at once, except that a wait ends when the next probe is due, or else at the
/// end.
fn when(run: Run, event: Event) -> Moment {
    match run.phase {
        Phase::Pausing { until, probe_at, .. } if event == Event::WaitEnded => {
            probe_at.map_or(until, |probe_at| probe_at.min(until))
        }
        Phase::Pausing { .. }
        | Phase::Probing { .. }
        | Phase::Ready
        | Phase::Estimating(_)
        | Phase::Calling(_)
        | Phase::Working
        | Phase::RunningStopHooks
        | Phase::RunningRequirement
        | Phase::Awaiting { .. }
        | Phase::Stopped(_) => Moment::default(),
    }
}

/// The run without its clock values, as the identity of a state: two runs that differ only in
/// their times, or in how far the backoff has grown, are the same state.
fn without_times(run: Run, now: Moment) -> Run {
    let soon = |until: Moment| Moment::default().after(now.until(until).min(secs(1)));
    let phase = if let Phase::Pausing { until, why, then, probe_at } = run.phase {
        // A probe comes first wherever there is one.
        let probe_at = probe_at.map(|_| Moment::from_millis(1));
        let until = if probe_at.is_some() { after(1) } else { soon(until) };
        Phase::Pausing { until, why: Pause { retry: 0, ..why }, then, probe_at }
    } else if let Phase::Probing { why, then, model_index, .. } = run.phase {
        let (until, why) = (after(1), Pause { retry: 0, ..why });
        Phase::Probing { until, why, then, since: Moment::default(), model_index }
    } else if let Phase::Awaiting { until } = run.phase {
        Phase::Awaiting { until: soon(until) }
    } else {
        run.phase
    };
    let may_escalate = run.may_escalate && phase == Phase::Calling(Call::Ask(CallPurpose::Reply));
    let retry_at = run.preferred.retry_at.map(|_| Moment::default());
    let preferred = PreferredModel { not_before: Moment::default(), retry_at, ..run.preferred };
    let fast = if let Fast::Cooling { .. } = run.fast {
        Fast::Cooling { until: Moment::default() }
    } else {
        run.fast
    };
    let failures = run.attempts.failures.min(1);
    let attempts = Attempts { failures, not_before: Moment::default(), ..run.attempts };
    // Between a reply and the next request, nothing depends on the size of the last one.
    let size = match phase {
        Phase::Estimating(_)
        | Phase::Calling(_)
        | Phase::Pausing { .. }
        | Phase::Probing { .. } => run.compaction.size,
        Phase::Ready
        | Phase::Working
        | Phase::RunningStopHooks
        | Phase::RunningRequirement
        | Phase::Awaiting { .. }
        | Phase::Stopped(_) => 0,
    };
    let yields_until = Moment::default().after(secs(600));
    Run {
        phase,
        may_escalate,
        shared_wait_until: yields_until,
        preferred,
        fast,
        attempts,
        compaction: CompactionState { size, ..run.compaction },
        ..run
    }
}

/// A multiplicative hash of words: with the default of `HashMap`, half of a walk is hashing.
#[derive(Default)]
struct WordHasher(u64);

impl WordHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        // The high bits depend on all words, and the table takes the low ones.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.add(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_isize(&mut self, value: isize) {
        self.add(value.unsigned_abs() as u64);
    }
}

#[derive(Default)]
struct Graph {
    states: Vec<Run>,
    numbers: HashMap<Run, usize, BuildHasherDefault<WordHasher>>,
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
                if fits(run, event) {
                    let step = run.step(at, event, limits).expect("the event fits the phase");
                    check(run, &step);
                    let to = graph.number(without_times(step.next, at));
                    graph.edges.push((from, to, way(&step)));
                } else if first {
                    let breach = InvalidEvent { phase: run.phase, event };
                    assert_eq!(run.step(at, event, limits), Err(breach));
                    graph.breaches += 1;
                }
            }
            from += 1;
        }
        graph
    }

    /// Whether the transitions in `allowed` form a cycle.
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

/// Goes wherever `tape` says, through states that the walk takes for one. Whatever was lived
/// through, the machine refuses what does not fit, and ends when it is told to.
pub(super) fn explore_random(tape: &[u8]) {
    let (Some((first, rest)), kinds) = (tape.split_first(), settings()) else { return };
    let limits = kinds[usize::from(*first) % kinds.len()].1;
    let (events, mut now) = (every_event(), Moment::default());
    let mut run = Run::new(u64::from(*first), &limits);
    for pair in rest.chunks_exact(2).take(600) {
        let fitting: Vec<Event> =
            events.iter().copied().filter(|&event| fits(run, event)).collect();
        let Some(&event) = fitting.get(usize::from(pair[0]) % fitting.len().max(1)) else { break };
        now = now.max(when(run, event)).after(Duration::from_millis(u64::from(pair[1]) * 40));
        let step = run.step(now, event, &limits).expect("the event fits the phase");
        check(run, &step, &limits);
        let written = serde_json::to_vec(&step).expect("JSON");
        assert_eq!(serde_json::from_slice::<Transition>(&written).expect("readable"), step);
        run = step.next;
    }
    if !matches!(run.phase, Phase::Stopped(_)) {
        let interrupted = Event::Interrupted(Interrupt::Sigterm);
        let step = run.step(now, interrupted, &limits).expect("it can always be interrupted");
        assert!(matches!(step.next.phase, Phase::Stopped(_)), "{step:?}");
    }
}

fn way(transition: &Transition) -> Way {
    match transition.action {
        Action::Wait { until } => {
            assert!(until > transition.at, "a wait that takes no time: {transition:?}");
            Way::Waits
        }
        Action::AwaitWork { until } => {
            assert!(until > transition.at, "a wait that takes no time: {transition:?}");
            Way::Waits
        }
        Action::RunTools | Action::RunStopHooks | Action::RunRequirement => Way::Works,
        // A wait has led to it.
        Action::Probe { .. } => Way::Straight,
        Action::Estimate { .. } | Action::Ask(_) | Action::Refresh | Action::Finish(_) => {
            Way::Straight
        }
    }
}

const ANY: [Way; 3] = [Way::Waits, Way::Works, Way::Straight];

/// Whether the action is what the run waits for.
fn agrees(step: &Transition, limits: &Limits) -> bool {
    let next = step.next;
    match step.action {
        Action::Estimate { model_index, purpose, .. } => {
            next.phase == Phase::Estimating(purpose) && model_index == next.model_index
        }
        Action::Ask(ask) => {
            let calling = Phase::Calling(Call::Ask(ask.purpose));
            next.phase == calling && ask.model_index == next.model_index && ask.cap > 0
        }
        Action::Refresh => matches!(next.phase, Phase::Calling(Call::Refresh(_))),
        Action::Probe { model_index } => {
            matches!(next.phase, Phase::Probing { until, since, model_index: of, .. }
                if since == step.at && since < until && of == model_index)
                && (model_index == next.model_index || model_index == 0)
                && limits.persistence != Persistence::Off
        }
        Action::RunTools => next.phase == Phase::Working,
        Action::RunStopHooks => next.phase == Phase::RunningStopHooks,
        Action::RunRequirement => next.phase == Phase::RunningRequirement,
        Action::AwaitWork { until: look } => {
            matches!(next.phase, Phase::Awaiting { until } if look <= until)
        }
        Action::Wait { until } => {
            until <= step.at.after(limits.heartbeat) && matches!(next.phase, Phase::Pausing { .. })
        }
        Action::Finish(reason) => next.phase == Phase::Stopped(reason),
    }
}

/// The stop reason of events that end any run.
fn ends_as(run: Run, event: Event) -> Option<StopReason> {
    match event {
        Event::InternalError => Some(StopReason::InternalError),
        Event::DeadlinePassed if matches!(run.phase, Phase::Awaiting { .. }) => {
            Some(StopReason::BackgroundPending)
        }
        // The answer before a reminder or more effort stands, where nothing has to accept it.
        Event::DeadlinePassed if run.kept_answer != KeptAnswer::None => None,
        Event::DeadlinePassed => Some(StopReason::Deadline),
        Event::Interrupted(by)
            if matches!(
                run.phase,
                Phase::Working
                    | Phase::RunningStopHooks
                    | Phase::RunningRequirement
                    | Phase::Awaiting { .. }
            ) =>
        {
            Some(StopReason::AbortedTools(by))
        }
        Event::Interrupted(by) => Some(StopReason::AbortedStreaming(by)),
        Event::Denied => Some(StopReason::Denied),
        Event::Begin
        | Event::Resumed(_)
        | Event::Estimated(_)
        | Event::Replied(_)
        | Event::Failed(_)
        | Event::ToolsDone(_)
        | Event::Delivered
        | Event::DeliveredEarly
        | Event::BackgroundWaited(_)
        | Event::SchemaMismatch
        | Event::Checked { .. }
        | Event::Consulted(_)
        | Event::HookStopped
        | Event::Deferred
        | Event::SummaryPrevented
        | Event::Refreshed
        | Event::SharedLimitMet { .. }
        | Event::WaitEnded
        | Event::Probed(_) => None,
    }
}

/// Checks the invariants of every single step.
fn check(run: Run, step: &Transition, limits: &Limits) {
    let next = step.next;
    let agree = agrees(step, limits);
    assert!(agree, "the action is not what the run waits for: {step:?}");
    let calls = matches!(
        step.action,
        Action::Estimate { .. } | Action::Ask(_) | Action::Refresh | Action::Probe { .. }
    );
    assert!(
        !calls || next.attempts.not_before <= step.at,
        "the server did not allow it yet: {step:?}"
    );
    let answered = matches!(step.event, Event::Replied(_) | Event::Failed(_));
    assert_eq!(step.edit.reply == ReplyDisposition::Absent, !answered, "{step:?}");
    let silent = step.edit.say.is_none() && step.edit.notice.is_none();
    let told = silent || matches!(step.action, Action::Estimate { .. });
    assert!(told, "a message without a request: {step:?}");
    let summarising = matches!(run.phase, Phase::Calling(Call::Ask(CallPurpose::Summary(_))));
    assert!(summarising || step.edit.reply != ReplyDisposition::Summary, "{step:?}");
    assert!(
        !summarising || step.edit.reply != ReplyDisposition::Keep,
        "a summary among the replies: {step:?}"
    );
    check_rejected_request_not_repeated(run, step);
    if step.action == Action::Finish(StopReason::BlockingLimit) {
        assert!(!limits.auto_compact || run.budgets.failed_compactions == 0, "{step:?}");
    }
    assert!(next.model_index <= limits.budgets.switches, "past the end of the chain: {step:?}");
    if let Some(reason) = ends_as(run, step.event) {
        assert_eq!((step.action, step.plan), (Action::Finish(reason), None));
    } else {
        assert_ne!(step.action, Action::Finish(StopReason::InternalError), "{step:?}");
    }
    assert_eq!(step.cause.is_some(), step.plan.is_some(), "{step:?}");
    check_recovery_charged(run, step, limits);
    let goes_on = matches!(
        step.action,
        Action::Estimate { .. } | Action::Ask(_) | Action::Refresh | Action::Wait { .. }
    );
    if answered && goes_on && step.edit.reply != ReplyDisposition::Summary {
        assert!(step.plan.is_some_and(|plan| !matches!(plan, RecoveryPlan::Stop(_))), "{step:?}");
    }
    if let (Action::Finish(reason), Some(plan)) = (step.action, step.plan) {
        assert_eq!(plan, RecoveryPlan::Stop(reason));
    }
}

/// The same request is never sent twice to a service that refused it, unless it said to, or
/// something else than the API refused after a good answer.
fn check_rejected_request_not_repeated(run: Run, step: &Transition) {
    let Event::Failed(failure) = step.event else { return };
    let refused = matches!(
        failure.class,
        ErrorClass::PromptTooLong
            | ErrorClass::RequestTooLarge
            | ErrorClass::PdfTooLarge
            | ErrorClass::ImageTooLarge
            | ErrorClass::ToolUseMismatch
            | ErrorClass::InvalidRequest
    );
    let foreign =
        failure.body == ErrorBody::Foreign && failure.endpoint_status == EndpointStatus::Proven;
    // An answer that stands is accepted without another request.
    let stands = run.kept_answer != KeptAnswer::None;
    let accepts = matches!(step.action, Action::RunStopHooks | Action::RunRequirement);
    let ends = matches!(step.action, Action::Finish(_)) || (stands && accepts);
    let told_to = failure.retry_hint == Some(RetryHint::Retry);
    let another = step.edit.trim.is_some()
        || matches!(
            step.plan,
            Some(
                RecoveryPlan::CompactReactively
                    | RecoveryPlan::SkipCompaction
                    | RecoveryPlan::CompactUnsummarised
                    | RecoveryPlan::LowerCap
                    | RecoveryPlan::DropStreaming
                    | RecoveryPlan::ResumeStreaming
                    | RecoveryPlan::RetryPreferredModel
            )
        )
        || (failure.contradicted
            && matches!(
                step.plan,
                Some(RecoveryPlan::RetryOverflow | RecoveryPlan::RetryOddRefusal)
            ));
    assert!(!refused || ends || told_to || another || foreign, "the same request again: {step:?}");
}

/// Every recovery is charged to its budget, in full.
fn check_recovery_charged(run: Run, step: &Transition, limits: &Limits) {
    let (before, after, full) = (run.budgets, step.next.budgets, limits.budgets);
    let Some(plan) = step.plan else { return };
    let paid = match plan.info().price {
        None => true,
        Some(Budget::Turn) => false,
        Some(Budget::Retry { tokens }) => {
            let free = limits.persistence != Persistence::Off && before.bucket < 10;
            after.retries + 1 == before.retries
                && after.bucket + tokens == before.bucket
                && (tokens >= 5 || free)
        }
        Some(Budget::Switch) => {
            let to = run.preferred.fallback_from.unwrap_or(run.model_index + 1);
            after.switches + 1 == before.switches && step.next.model_index == to
        }
        Some(Budget::Probe) => {
            after.probes + 1 == before.probes && step.next.model_index == 0 && run.model_index > 0
        }
        Some(Budget::PreferredRetry) => {
            after.preferred_retries + 1 == before.preferred_retries
                && step.next.model_index == 0
                && run.model_index > 0
        }
        Some(Budget::Refresh) => after.refreshes + 1 == before.refreshes,
        Some(Budget::Escalation) => after.escalations + 1 == before.escalations,
        Some(Budget::Continuation) => after.continuations + 1 == before.continuations,
        Some(Budget::EmptyReply) => after.empty_replies + 1 == before.empty_replies,
        Some(Budget::IncompleteRetry) => after.incomplete_retries + 1 == before.incomplete_retries,
        Some(Budget::Completion) => after.completions + 1 == before.completions,
        Some(Budget::Resumption) => after.resumptions + 1 == before.resumptions,
        Some(Budget::Nudge) => after.nudges < full.nudges,
        Some(Budget::FoldCommit) => after.fold_commits + 1 == before.fold_commits,
        Some(Budget::Compaction) => after.compactions.map(|left| left + 1) == before.compactions,
        Some(Budget::ReactiveCompaction) => {
            after.compactions.map(|left| left + 1) == before.compactions
                && after.reactive_compactions + 1 == before.reactive_compactions
        }
        Some(Budget::Trim) => after.trims + 1 == before.trims,
        Some(Budget::UnsummarisedCompaction) => {
            after.unsummarised_compactions + 1 == before.unsummarised_compactions
        }
        Some(Budget::FailedCompaction) => after.failed_compactions + 1 == before.failed_compactions,
        Some(Budget::SmallerCap) => after.smaller_caps + 1 == before.smaller_caps,
        Some(Budget::Strip) => after.strips + 1 == before.strips,
        Some(Budget::BlockRepair) => after.block_repairs + 1 == before.block_repairs,
        Some(Budget::AddedContent) => after.added_content + 1 == before.added_content,
        Some(Budget::Thinking) => after.thinking + 1 == before.thinking,
        Some(Budget::CacheMarks) => after.cache_marks + 1 == before.cache_marks,
        Some(Budget::Streaming) => after.streaming + 1 == before.streaming,
        Some(Budget::Reminder) => after.reminders + 1 == before.reminders,
        Some(Budget::OverflowRetry) => after.overflow_retries + 1 == before.overflow_retries,
        Some(Budget::CoolDown) => after.cool_downs + 1 == before.cool_downs,
        Some(Budget::FastMode) => after.fast_mode + 1 == before.fast_mode,
        Some(Budget::SchemaTry) => after.schema_tries + 1 == before.schema_tries,
        Some(Budget::RequirementTry) => after.requirement_tries + 1 == before.requirement_tries,
        Some(Budget::Objection) => after.objections + 1 == before.objections,
        Some(Budget::Report) => after.reports + 1 == before.reports,
        Some(Budget::SharedLimitWait) => after.shared_limit_waits + 1 == before.shared_limit_waits,
        Some(Budget::CapacityProbe) => after.capacity_probes + 1 == before.capacity_probes,
        Some(Budget::EarlyReturn) => after.early_returns + 1 == before.early_returns,
        Some(Budget::OddRefusal) => after.odd_refusals + 1 == before.odd_refusals,
    };
    assert!(paid, "a recovery without a charge: {step:?}");
    let rung_kept = step.next.model_index == run.model_index
        || matches!(
            plan,
            RecoveryPlan::SwitchModel
                | RecoveryPlan::ReturnToPreferredModel
                | RecoveryPlan::RetryPreferredModel
        )
        || (plan == RecoveryPlan::ReturnEarly && step.next.model_index == 0);
    assert!(rung_kept, "the model changed for no reason: {step:?}");
    assert!(after.turns <= before.turns, "turns came back: {step:?}");
}

/// The states under the limits that have one of everything, each step checked.
static SMALL: LazyLock<Graph> = LazyLock::new(|| walk_checked(&small()));

fn walk_checked(limits: &Limits) -> Graph {
    Graph::walk(limits, |run, step| check(run, step, limits))
}

/// Every state ends or goes on, and no run goes round without a wait.
fn check_graph(name: &str, limits: &Limits, graph: &Graph) {
    let patient = limits.persistence != Persistence::Off;
    assert_eq!(graph.has_circle(&ANY), patient, "{name}: only the patient may go round");
    assert!(!graph.has_circle(&[Way::Works, Way::Straight]), "{name}: but never without a wait");
    let mut alive = vec![false; graph.states.len()];
    graph.edges.iter().for_each(|&(from, _, _)| alive[from] = true);
    for (run, alive) in graph.states.iter().zip(alive) {
        let over = matches!(run.phase, Phase::Stopped(_));
        assert_ne!(alive, over, "{name}: a dead end, or no rest after the end: {run:?}");
    }
}

#[test]
fn every_run_ends_or_waits_and_pays_for_every_recovery() {
    let settings = settings();
    let check = |(name, limits): &(&str, Limits), graph: &Graph| {
        let (states, steps) = (graph.states.len(), graph.edges.len());
        eprintln!("{name}: {states} states, {steps} steps, {} breaches refused", graph.breaches);
        check_graph(name, limits, graph);
    };
    thread::scope(|scope| {
        for number in rotating_part(1..settings.len(), 3) {
            let setting = &settings[number];
            scope.spawn(move || check(setting, &walk_checked(&setting.1)));
        }
        // The first has one of everything: it is walked every time.
        check(&settings[0], &SMALL);
    });
}

#[test]
fn without_a_turn_limit_every_cycle_of_states_runs_tools() {
    for limits in [replying(), unbounded_summaries()] {
        let budgets = Budgets { turns: None, ..limits.budgets };
        let limits = Limits { budgets, ..limits };
        let graph = Graph::walk(&limits, |run, step| check(run, step, &limits));
        assert!(graph.has_circle(&ANY));
        let alone = [Way::Waits, Way::Straight];
        assert!(!graph.has_circle(&alone), "failures and summaries alone must end it");
    }
}

#[test]
fn no_state_continues_past_its_deadline() {
    let graphs = [
        ("one of everything", small(), &*SMALL),
        ("failures", failing(), &walk_checked(&failing())),
    ];
    for (name, limits, graph) in graphs {
        let events = every_event();
        let late = Limits { deadline: Some(Moment::default()), ..limits };
        let soon = Limits { deadline: Some(Moment::from_millis(700)), ..limits };
        for &run in &graph.states {
            for &event in events.iter().filter(|&&event| fits(run, event)) {
                let step =
                    run.step(when(run, event), event, &late).expect("the event fits the phase");
                let done = matches!(step.action, Action::Finish(_));
                assert!(done, "{name}: {step:?} goes on after the deadline");
                let Ok(step) = run.step(Moment::default(), event, &soon) else { continue };
                if let (Phase::Pausing { until, .. }, false) =
                    (step.next.phase, event == Event::WaitEnded)
                {
                    assert!(until < Moment::from_millis(700), "{name}: {step:?} waits too long");
                }
            }
        }
    }
}
