//! Events that an observer of a run receives, and their order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast::agent::{self, AgentStatus, Observer, RunEvent};
use outlast::journal::{Journal, OnDamage, SessionFolder, SessionId, read_session};
use outlast::recovery::{Backoff, StopReason};
use outlast::rehearsal::{AfterLast, Scenario, StepCondition};
use outlast::tools::{NoSuchTask, TaskStops};
use outlast::transcript::history_violations;
use serde_json::json;
use tokio::sync::watch;

use super::run_fixture::{ObservedEvent, RunFixture, opening};

fn count(said: &[ObservedEvent], wanted: impl Fn(&ObservedEvent) -> bool) -> usize {
    said.iter().filter(|said| wanted(said)).count()
}

#[tokio::test]
async fn observer_sees_each_wait_start_and_end_once() {
    let scenario = Scenario::new()
        .status(529)
        .times(2)
        .status(503)
        .tool("Bash", json!({ "command": "true" }))
        .status(429)
        .reply("Done.");
    // Several heartbeats to a wait, so that its pieces could be taken for waits.
    let play = RunFixture::of(scenario).limits(|limits| {
        limits.heartbeat = Duration::from_millis(60);
        limits.backoff =
            Backoff { first: Duration::from_millis(300), longest: limits.heartbeat * 10 };
    });
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let expected = [
        "init",
        "wait server_overload 1 of Some(10)",
        "waited server_overload 1 of Some(10)",
        "wait server_overload 2 of Some(10)",
        "waited server_overload 2 of Some(10)",
        "wait server_error 3 of Some(10)",
        "waited server_error 3 of Some(10)",
        "assistant",
        "user",
        "wait rate_limit 1 of Some(10)",
        "waited rate_limit 1 of Some(10)",
        "assistant",
    ];
    assert_eq!(played.trace(), expected);
    let beats = count(
        &played.said,
        |said| matches!(said, ObservedEvent::Heartbeat(what) if what.starts_with("retry after")),
    );
    assert!(beats >= 4, "a wait of 300 ms has pieces of 60 ms: {beats}");
    let announced: Duration = played.ending.stats.recovery.totals().waited;
    assert!(
        announced >= Duration::from_millis(300 * 2 + 600),
        "waits are summed up: {announced:?}"
    );
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn slow_tools_emit_heartbeats() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "sleep 1" })).reply("Done.");
    let play =
        RunFixture::of(scenario).limits(|limits| limits.heartbeat = Duration::from_millis(100));
    let played = play.run().await;
    let beats =
        count(&played.said, |said| *said == ObservedEvent::Heartbeat("tool Bash".to_owned()));
    assert!(beats >= 3, "{beats}");
}

/// Panics at the notice of this number, and at every one that follows.
struct PanickingObserver {
    left: usize,
    asked: Arc<Mutex<usize>>,
}

impl Observer for PanickingObserver {
    fn observe(&mut self, _event: &RunEvent) {
        if self.left == 0 {
            *self.asked.lock().expect("it is not held") += 1;
            panic!("the observer fell over");
        }
        self.left -= 1;
    }
}

/// Wherever the observer panics, the run ends, reports it, and leaves a journal that can be
/// resumed.
#[tokio::test]
async fn a_panicking_observer_ends_the_run_without_a_panic() {
    for left in 0.. {
        let scenario =
            Scenario::new().status(500).tool("Bash", json!({ "command": "true" })).reply("Done.");
        let mut play = RunFixture::of(scenario);
        let place = SessionFolder::new(&play.folder.path().join("config"), play.folder.path());
        let id = SessionId::generate();
        play.setup.journal = Journal::create(&place, &id, &opening()).expect("it can be made");
        let asked = Arc::new(Mutex::new(0));
        let mut observer = PanickingObserver { left, asked: Arc::clone(&asked) };
        let (_stays, interrupts) = watch::channel(None);
        let ending = Box::pin(agent::run(play.setup, &mut observer, interrupts)).await;
        if ending.reason == StopReason::Completed {
            assert!(left > 12, "every notice was tried: {left}");
            return;
        }
        assert_eq!(ending.reason, StopReason::InternalError, "at notice {left}");
        assert_eq!(ending.broken.as_deref(), Some("the observer fell over"), "at notice {left}");
        assert_eq!(*asked.lock().expect("it is not held"), 1, "who fell over is left alone");
        let restored = read_session(&place, &id, OnDamage::Refuse).expect("the journal is whole");
        assert_eq!(restored.work.ended, Some(StopReason::InternalError), "at notice {left}");
        assert_eq!(restored.conversation.repairs, [], "at notice {left}");
        assert_eq!(history_violations(&restored.conversation.messages), [], "at notice {left}");
    }
}

/// Panics at the first reply of a sub-agent.
struct ReplyPanic;

impl Observer for ReplyPanic {
    fn observe(&mut self, event: &RunEvent) {
        if let RunEvent::OfAgent { event, .. } = event {
            assert!(!matches!(**event, RunEvent::Assistant { .. }), "the observer fell over");
        }
    }
}

#[tokio::test]
async fn a_subagent_that_is_cut_off_by_a_panic_is_reported_with_its_usage() {
    let of_agent = StepCondition {
        source: Some("agent:general-purpose".to_owned()),
        ..StepCondition::default()
    };
    let scenario = Scenario::new()
        .tool("Agent", json!({ "description": "look", "prompt": "Look." }))
        .tool("Bash", json!({ "command": "true" }))
        .usage(1_000, 100)
        .when(of_agent.clone())
        .reply("Too late.")
        .when(of_agent)
        .delay(Duration::from_mins(5));
    let play = RunFixture::of(scenario);
    let (_stays, interrupts) = watch::channel(None);
    let ending = Box::pin(agent::run(play.setup, &mut ReplyPanic, interrupts)).await;
    assert_eq!(ending.broken.as_deref(), Some("the observer fell over"));
    let [agent] = &ending.agents[..] else { panic!("one: {:?}", ending.agents) };
    assert_eq!(
        (agent.status, agent.usage.turns, agent.usage.tokens, agent.usage.tool_calls),
        (AgentStatus::Stopped, 1, 1_100, 1)
    );
}

/// Stops every sub-agent as soon as its start is announced.
struct PromptStop {
    stops: TaskStops,
    answers: Vec<Result<(), NoSuchTask>>,
}

impl Observer for PromptStop {
    fn observe(&mut self, event: &RunEvent) {
        if let RunEvent::Agent(task) = event
            && task.status == AgentStatus::Running
        {
            self.answers.push(self.stops.stop(&task.identity.id));
        }
    }
}

#[tokio::test]
async fn a_subagent_can_be_stopped_as_soon_as_its_start_is_announced() {
    for in_background in [false, true] {
        let call = json!({
            "description": "look", "prompt": "Look.", "run_in_background": in_background,
        });
        let of_agent = StepCondition {
            source: Some("agent:general-purpose".to_owned()),
            ..StepCondition::default()
        };
        let scenario = Scenario::new()
            .tool("Agent", call)
            .reply("Too late.")
            .when(of_agent)
            .delay(Duration::from_mins(5))
            .reply("Done.")
            .after(AfterLast::RepeatLast);
        let play = RunFixture::of(scenario);
        let stops = play.setup.toolbox.task_stops().clone();
        let mut observer = PromptStop { stops, answers: Vec::new() };
        let (_stays, interrupts) = watch::channel(None);
        let ending = Box::pin(agent::run(play.setup, &mut observer, interrupts)).await;
        assert_eq!(observer.answers, [Ok(())], "in the background: {in_background}");
        let [agent] = &ending.agents[..] else { panic!("one: {:?}", ending.agents) };
        assert_eq!(agent.status, AgentStatus::Stopped, "in the background: {in_background}");
    }
}

#[tokio::test]
async fn a_journal_write_failure_is_reported_once() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "true" })).reply("Done.");
    let mut play = RunFixture::of(scenario);
    play.setup.journal = Journal::unwritable("the disk is full");
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let trace = played.trace();
    let warnings: Vec<_> = trace.iter().filter(|word| word.starts_with("warning")).collect();
    assert_eq!(warnings.len(), 1, "{trace:?}");
    assert!(warnings[0].contains("the disk is full"), "{warnings:?}");
    assert!(warnings[0] == &trace[1], "before anything is sent: {trace:?}");
}
