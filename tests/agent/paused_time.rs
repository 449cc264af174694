//! Waits, heartbeats, cuts and broken streams of a run, on paused time and without sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast::agent::interrupt;
use outlast::model::{Renewal, StreamProgress};
use outlast::recovery::{
    Action, Backoff, ErrorClass, Event, FailureStage, Fault, FaultKind, Interrupt, Moment,
    StopReason,
};
use outlast::transcript::Block;
use serde_json::json;

use super::run_fixture::ObservedEvent;
use super::scripted_transport::{ScriptedAttempt, ScriptedRun, tool_use};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn overload() -> ScriptedAttempt {
    ScriptedAttempt::status(529, "overloaded_error")
}

#[tokio::test(start_paused = true)]
async fn an_overload_is_waited_out_with_a_heartbeat_each_minute() {
    let mut run = ScriptedRun::of([overload(), overload(), ScriptedAttempt::reply("Done.")]);
    run.setup.limits.backoff = Backoff { first: 8 * MINUTE, longest: 8 * MINUTE };
    let ended = run.run().await;
    assert_eq!(ended.outcome.reason, StopReason::Completed);
    assert_eq!(ended.outcome.text, "Done.");
    let pauses: Vec<Duration> =
        ended.made.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert_eq!(pauses.len(), 2);
    // Up to a quarter of jitter.
    assert!(pauses.iter().all(|pause| (8 * MINUTE..=10 * MINUTE).contains(pause)), "{pauses:?}");
    let waited = ended.outcome.stats.recovery.totals().waited;
    let all: Duration = pauses.iter().sum();
    assert!(waited.abs_diff(all) < SECOND, "{waited:?} of {all:?}");
    let beats = ended.heartbeats("retry after server_overload");
    assert!((14..=20).contains(&beats), "a heartbeat each minute: {beats} in {all:?}");
    let begins = |event: &ObservedEvent| matches!(event, ObservedEvent::WaitBegins(_));
    let ends = |event: &ObservedEvent| matches!(event, ObservedEvent::WaitEnds(_));
    assert_eq!((ended.count(begins), ended.count(ends)), (2, 2));
}

/// The helper's failure explains the rejection and does not replace it: result, event and stop
/// reason have one class.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_keeps_the_class_of_the_rejection() {
    let kind = FaultKind::Refused {
        status: 401,
        label: "invalid_api_key".to_owned(),
        code: String::new(),
        message: "the helper failed".to_owned(),
    };
    let fault = Fault::new(kind, FailureStage::Unsent);
    let rejected = ScriptedAttempt::status(401, "expired_key");
    let renewal = Renewal::Failed(Box::new(fault.clone()));
    let ended = ScriptedRun::renewing(renewal, [rejected]).run().await;
    let class = ErrorClass::TokenRevoked;
    assert_eq!(ended.outcome.reason, StopReason::ModelError(class));
    let last = ended.outcome.failure.expect("the renewal failed");
    assert_eq!((last.class, last.fault), (class, fault));
}

/// The acceptance of the request and its reply are then noticed together.
#[tokio::test(start_paused = true)]
async fn housekeeping_begins_even_if_the_whole_reply_comes_at_once() {
    let reply = ScriptedAttempt::reply("Done.").with_progress(vec![StreamProgress::Accepted(None)]);
    let run = ScriptedRun::of([reply]);
    let has_begun = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_begun);
    run.setup.housekeeping.add(move || flag.store(true, Ordering::Relaxed));
    assert_eq!(run.run().await.outcome.reason, StopReason::Completed);
    assert!(has_begun.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_header_sets_the_pause() {
    let limited = ScriptedAttempt::status(429, "rate_limit_error").retry_after(10 * MINUTE);
    let ended = ScriptedRun::of([limited, ScriptedAttempt::reply("Done.")]).run().await;
    assert_eq!(ended.outcome.reason, StopReason::Completed);
    let pause = ended.made[1].saturating_sub(ended.made[0]);
    // Up to a tenth of jitter, and never earlier than the service said.
    assert!((10 * MINUTE..=11 * MINUTE).contains(&pause), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reply_emits_a_heartbeat_each_minute() {
    let slow = ScriptedAttempt::reply("Done.").after(10 * MINUTE + SECOND);
    let ended = ScriptedRun::of([slow]).run().await;
    assert_eq!(ended.outcome.reason, StopReason::Completed);
    assert_eq!(ended.heartbeats("model claude-sonnet-5-5"), 10);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_during_a_wait_ends_it_and_the_run() {
    let limited = ScriptedAttempt::status(429, "rate_limit_error").retry_after(5 * MINUTE);
    let run = ScriptedRun::of([limited]).start();
    run.record.wait_for(|event| matches!(event, ObservedEvent::WaitBegins(_))).await;
    interrupt(&run.interrupter, Interrupt::Sigint);
    let ended = run.end().await;
    assert_eq!(ended.outcome.reason, StopReason::AbortedStreaming(Interrupt::Sigint));
    assert!(ended.took < SECOND, "{:?}", ended.took);
    assert_eq!(ended.count(|event| matches!(event, ObservedEvent::WaitEnds(_))), 1);
    assert_eq!(ended.made.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_cuts_a_call_that_goes_on() {
    let mut run = ScriptedRun::of([ScriptedAttempt::reply("Too late.").after(60 * MINUTE)]);
    run.setup.limits.deadline = Some(Moment::default().after(20 * MINUTE));
    let ended = run.run().await;
    assert_eq!(ended.outcome.reason, StopReason::Deadline);
    assert_eq!(ended.outcome.text, "");
    assert!((20 * MINUTE..20 * MINUTE + 2 * SECOND).contains(&ended.took), "{:?}", ended.took);
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_leaves_nothing_behind_and_the_next_reply_counts() {
    let path = |name: &str| json!({ "pattern": name });
    let broken = vec![Block::text("I look"), tool_use("toolu_1", "Glob", path("*.broken"))];
    let run = ScriptedRun::of([
        ScriptedAttempt::torn(broken),
        ScriptedAttempt::tool("toolu_2", "Glob", path("*.whole")),
        ScriptedAttempt::reply("Done."),
    ]);
    let ended = run.run().await;
    assert_eq!(ended.outcome.reason, StopReason::Completed);
    assert_eq!((ended.outcome.stats.turns, ended.outcome.stats.tools.calls), (2, 1));
    let replies = ended.events.iter().filter_map(|event| {
        if let ObservedEvent::Assistant(blocks) = event {
            Some(format!("{blocks:?}"))
        } else {
            None
        }
    });
    let replies: Vec<String> = replies.collect();
    assert!(!replies.concat().contains("broken"), "{replies:?}");
    let failed = |event: &ObservedEvent| matches!(event, ObservedEvent::Step(step) if matches!(step.event, Event::Failed(_)));
    assert_eq!(ended.count(failed), 1);
}

#[tokio::test(start_paused = true)]
async fn steps_come_in_order_and_the_end_of_the_run_last() {
    let run = ScriptedRun::of([
        ScriptedAttempt::status(500, "api_error"),
        ScriptedAttempt::tool("toolu_1", "Glob", json!({ "pattern": "*" })),
        ScriptedAttempt::reply("Ok."),
    ]);
    let ended = run.run().await;
    let steps = ended
        .events
        .iter()
        .filter_map(|event| if let ObservedEvent::Step(step) = event { Some(step) } else { None });
    let steps: Vec<_> = steps.collect();
    let asks = steps.iter().filter(|step| matches!(step.action, Action::Ask(_))).count();
    assert_eq!(asks, ended.made.len(), "each request was decided, and told, before");
    assert!(steps.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let last = steps.last().map(|step| step.action);
    assert_eq!(last, Some(Action::Finish(StopReason::Completed)));
    assert_eq!(ended.events.first(), Some(&ObservedEvent::Init));
    assert!(matches!(ended.events.last(), Some(ObservedEvent::Step(_))));
}
