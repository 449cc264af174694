//! The driver with a scripted world, on paused time: no sockets, no waiting.

use std::time::Duration;

use outlast::agent::{World, drive};
use outlast::recovery::{
    Action, ErrorClass, Event, Failure, Interrupt, InvalidEvent, Limits, LoopStatus, Moment, Phase,
    ReplyKind, RetryAfter, RetryAfterSource, Run, StopHookDecision, StopReason, TokenEstimate,
    Transition, WorkStatus,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const SEED: u64 = 7;
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn limits() -> Limits {
    Limits { max_retry_wait: 6 * HOUR, ..Limits::default() }
}

fn failed(class: ErrorClass, wait: Option<Duration>) -> Event {
    let wish = wait.map(|wait| RetryAfter { wait, source: RetryAfterSource::RetryAfter });
    Event::Failed(Failure { retry_after: wish, ..Failure::of(class) })
}

/// The events of a run with a failure of each kind, which ends with an answer.
fn story() -> Vec<Event> {
    vec![
        failed(ErrorClass::ConnectionError, None),
        Event::Replied(ReplyKind::ToolCalls { tokens: 10 }),
        failed(ErrorClass::ServerOverload, None),
        failed(ErrorClass::RateLimit, Some(HOUR)),
        Event::Replied(ReplyKind::Empty),
        Event::Replied(ReplyKind::ToolCalls { tokens: 10 }),
        failed(ErrorClass::InvalidApiKey, None),
        Event::Replied(ReplyKind::Answer { tokens: 10 }),
    ]
}

struct Scripted {
    start: Instant,
    /// The next one is the last.
    replies: Vec<Event>,
    journal: Vec<Transition>,
    interrupt: watch::Receiver<Option<Interrupt>>,
    dies_after: usize,
}

impl Scripted {
    fn new(replies: &[Event], interrupt: watch::Receiver<Option<Interrupt>>) -> Self {
        let replies = replies.iter().rev().copied().collect();
        let start = Instant::now();
        Self { start, replies, journal: Vec::new(), interrupt, dies_after: usize::MAX }
    }

    async fn wait(&self, until: Moment) -> Event {
        let mut interrupt = self.interrupt.clone();
        tokio::select! {
            () = sleep_until(self.start + Moment::default().until(until)) => Event::WaitEnded,
            Ok(seen) = interrupt.wait_for(Option::is_some) => {
                Event::Interrupted(seen.expect("it was waited for"))
            }
        }
    }
}

impl World for Scripted {
    fn now(&self) -> Moment {
        Moment::default().after(self.start.elapsed())
    }

    fn record(&mut self, transition: &Transition) {
        self.journal.push(*transition);
    }

    async fn perform(&mut self, action: Action) -> Event {
        if self.journal.len() >= self.dies_after {
            std::future::pending::<()>().await;
        }
        match action {
            Action::Estimate { .. } => Event::Estimated(TokenEstimate::FREE),
            Action::Ask(_) => self.replies.pop().expect("the script is long enough"),
            Action::Refresh => Event::Refreshed,
            Action::RunTools => Event::ToolsDone(LoopStatus::Fresh),
            Action::RunStopHooks => Event::Consulted(StopHookDecision::Pass),
            Action::RunRequirement => Event::Checked { passed: true },
            Action::AwaitWork { .. } => Event::BackgroundWaited(WorkStatus::Over),
            Action::Wait { until } => self.wait(until).await,
            Action::Probe { .. } => unreachable!("the service says when to come back"),
            Action::Finish(_) => unreachable!("the driver returns first"),
        }
    }
}

fn begin(limits: &Limits) -> Run {
    Run::new(SEED, limits)
}

#[tokio::test(start_paused = true)]
async fn the_driver_emits_heartbeats_during_an_hour_of_waiting() {
    let (_stay, interrupt) = watch::channel(None);
    let mut world = Scripted::new(&story(), interrupt);
    let limits = limits();
    let reason = drive(begin(&limits), Event::Begin, &limits, &mut world).await;
    assert_eq!(reason, Ok(StopReason::Completed));
    assert!(world.start.elapsed() >= HOUR, "the server's wish was kept");
    for pair in world.journal.windows(2) {
        let silence = pair[0].at.until(pair[1].at);
        assert!(silence <= limits.heartbeat, "{silence:?} between {pair:#?}");
    }
    let last = world.journal.last().expect("something happened");
    assert_eq!(last.action, Action::Finish(StopReason::Completed), "the end is on record too");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_a_wait_at_once() {
    let (interrupter, interrupt) = watch::channel(None);
    let mut world = Scripted::new(&[failed(ErrorClass::RateLimit, Some(HOUR))], interrupt);
    let limits = limits();
    let began = world.start;
    let after = Duration::from_secs(617);
    let interrupting = async {
        sleep(after).await;
        interrupter.send(Some(Interrupt::Sigterm)).expect("the run is listening");
    };
    let run = drive(begin(&limits), Event::Begin, &limits, &mut world);
    let (reason, ()) = tokio::join!(run, interrupting);
    assert_eq!(reason, Ok(StopReason::AbortedStreaming(Interrupt::Sigterm)));
    let late = began.elapsed().saturating_sub(after);
    assert!(late <= Duration::from_millis(50), "{late:?} late");
}

/// The process dies before the action of any one step is performed, and another goes on from
/// that step, or only from its state, as one that reads a journal does.
#[tokio::test(start_paused = true)]
async fn a_run_killed_after_any_step_reaches_the_same_outcome() {
    let (_stay, interrupt) = watch::channel(None);
    let limits = limits();
    let mut whole = Scripted::new(&story(), interrupt.clone());
    let expected = drive(begin(&limits), Event::Begin, &limits, &mut whole).await;
    assert_eq!(expected, Ok(StopReason::Completed));
    let steps = 1..whole.journal.len();
    for (dies_after, knows_action) in steps.flat_map(|step| [(step, true), (step, false)]) {
        let mut world = Scripted::new(&story(), interrupt.clone());
        world.dies_after = dies_after;
        let doomed = drive(begin(&limits), Event::Begin, &limits, &mut world);
        assert!(timeout(DAY, doomed).await.is_err(), "it died after step {dies_after}");

        let last = *world.journal.last().expect("something was recorded");
        world.dies_after = usize::MAX;
        let (state, event) = if knows_action {
            (last.next, world.perform(last.action).await)
        } else {
            (last.next.resumed(), Event::Begin)
        };
        let resumed = drive(state, event, &limits, &mut world).await;
        assert_eq!(resumed, expected, "from step {dies_after} on");
        if knows_action {
            assert!(world.replies.is_empty(), "nothing was asked twice after step {dies_after}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_does_not_fit_the_pending_action_is_invalid() {
    let (_stay, interrupt) = watch::channel(None);
    let mut world = Scripted::new(&[Event::ToolsDone(LoopStatus::Fresh)], interrupt);
    let limits = limits();
    let reason = drive(begin(&limits), Event::Begin, &limits, &mut world).await;
    let Err(InvalidEvent { phase: Phase::Calling(_), event: Event::ToolsDone(LoopStatus::Fresh) }) =
        reason
    else {
        panic!("{reason:?}");
    };
    assert!(
        matches!(world.journal.last().map(|last| last.action), Some(Action::Ask(_))),
        "a breach leaves no record of a step that was not one"
    );
}
