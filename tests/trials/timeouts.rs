//! Trials.
//! Timeouts: silence at any stage is detected by a named timer, and the request repeated on a
//! fresh connection.

use std::time::Duration;

use outlast::rehearsal::{
    AfterLast, FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedFaultKind,
    StepCondition,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::stopwatch::Stopwatch;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// Far longer than any trial lasts: a timer that is not on trial.
pub(super) const NEVER: &str = "10m";

/// Long enough for an answer that comes, however busy the machine; short enough to be waited for.
const SOON: &str = "2500ms";
const SOON_MS: u64 = 2_500;

pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A run that tries again at once.
pub(super) fn hasty(server: &RehearsalServer) -> RunBuilder {
    with(
        RunBuilder::against(server),
        &json!({ "retryFirstDelay": "1ms", "retryLongestDelay": "1ms" }),
    )
}

pub(super) fn with(trial: RunBuilder, settings: &Value) -> RunBuilder {
    trial.args(["--settings", &settings.to_string()])
}

/// For runs whose time passes faster: a busy machine must not look like a silent service.
pub(super) const UNHURRIED: [&str; 2] = ["--first-byte-timeout", "1000h"];

/// Most of them wait most of the time.
const SIDE_BY_SIDE: usize = 8;

/// Runs trials side by side, a few at a time: a machine that is busy with all of them at once is on
/// trial itself.
pub(crate) async fn all<F>(trials: impl IntoIterator<Item = F>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut waiting = trials.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < SIDE_BY_SIDE
            && let Some(trial) = waiting.next()
        {
            running.spawn(trial);
        }
        let Some(tried) = running.join_next().await else { return };
        tried.expect("no trial fails");
    }
}

/// The lines that announce a wait for another try.
pub(super) fn announcements(ended: &FinishedProcess) -> Vec<&str> {
    let announces = |line: &&str| {
        line.starts_with("outlast: waiting ") && line.contains(" to retry (") && !is_heartbeat(line)
    };
    ended.stderr.lines().filter(announces).collect()
}

/// Whether a line says that something still lasts.
pub(super) fn is_heartbeat(line: &str) -> bool {
    ["waiting to retry (", "waiting for ", "running "]
        .iter()
        .any(|start| line.starts_with(&format!("outlast: {start}")))
}

/// Duration of a run in its result, in milliseconds of its own time.
pub(super) fn took(result: &Value) -> u64 {
    result["duration_ms"].as_u64().expect("a number of milliseconds")
}

/// The messages of one kind on standard output.
pub(super) fn messages(ended: &FinishedProcess, subtype: &str) -> Vec<Value> {
    let mut frames = ended.frames();
    frames.retain(|frame| frame["type"] == "system" && frame["subtype"] == subtype);
    frames
}

pub(super) fn connections(server: &RehearsalServer) -> Vec<usize> {
    server.requests().iter().map(|request| request.connection_id).collect()
}

/// The begin of a silence, the timer that must end it, and the class of the failure.
struct Hole {
    harm: ScriptedFaultKind,
    place: FaultPosition,
    flag: &'static str,
    timer: &'static str,
    class: &'static str,
}

fn holes() -> Vec<Hole> {
    let first = ("--first-byte-timeout", "first-byte timeout", "api_timeout");
    let idle = ("--stream-idle-timeout", "stream idle timeout", "stream_stalled");
    let progress = ("--stream-progress-timeout", "stream progress timeout", "stream_stalled");
    let pings = ScriptedFaultKind::Pings { every: millis(100) };
    [
        (ScriptedFaultKind::Stall, FaultPosition::Accept, first),
        (ScriptedFaultKind::Stall, FaultPosition::Request, first),
        (ScriptedFaultKind::Stall, FaultPosition::HalfHead, first),
        (ScriptedFaultKind::Stall, FaultPosition::Headers, first),
        (ScriptedFaultKind::Stall, FaultPosition::Events(1), idle),
        (ScriptedFaultKind::Stall, FaultPosition::Delta, idle),
        (pings.clone(), FaultPosition::Headers, progress),
        (pings, FaultPosition::Events(1), progress),
    ]
    .into_iter()
    .map(|(harm, place, (flag, timer, class))| Hole { harm, place, flag, timer, class })
    .collect()
}

impl Hole {
    fn timed(&self, trial: RunBuilder) -> RunBuilder {
        let flags = ["--first-byte-timeout", "--stream-idle-timeout", "--stream-progress-timeout"];
        let others = flags.into_iter().filter(|flag| *flag != self.flag);
        others.fold(trial, |trial, flag| trial.args([flag, NEVER])).args([self.flag, SOON])
    }
}

#[tokio::test]
async fn every_silent_stage_has_a_timer_and_retries_on_a_new_connection() {
    all(holes().into_iter().map(|hole| async move {
        let server =
            serve(Scenario::new().interrupted(hole.harm.clone(), hole.place).reply("Through."));
        let watch = Stopwatch::start();
        let trial = hole.timed(hasty(&server));
        let ended = trial.args(["--output-format", "stream-json", "go"]).run().await;
        let place = hole.place;
        let result = ended.result();
        assert_eq!(ended.code, Some(0), "{place:?}: {ended:?}");
        assert_eq!(result["result"], "Through.");
        assert_eq!(result["recovery"]["retries_by_class"], json!({ hole.class: 1 }));
        assert_eq!(server.accepted(), 2, "{place:?}: a fresh connection");
        assert_eq!(connections(&server).last(), Some(&2), "{place:?}");
        let told = announcements(&ended);
        assert_eq!(told.len(), 1, "{place:?}: {ended:?}");
        let cause = format!("({}, {}, retry 1 of 10)", hole.class, hole.timer);
        assert!(told[0].contains(&cause), "{place:?}: {told:?}");
        let retries = messages(&ended, "api_retry");
        assert_eq!(retries.len(), 1, "{place:?}");
        assert_eq!(retries[0]["timer"], hole.timer, "{place:?}");
        let (took, most) = (millis(took(&result)), watch.scaled_bound(millis(SOON_MS + 3_000)));
        assert!((millis(SOON_MS)..most).contains(&took), "{place:?}: {took:?} of {most:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_dead_kept_alive_connection_is_replaced() {
    let dead = [
        (ScriptedFaultKind::Stall, json!({ "api_timeout": 1 }), 1),
        (ScriptedFaultKind::Reset, json!({ "connection_error": 1 }), 0),
        (ScriptedFaultKind::Close, json!({ "connection_error": 1 }), 0),
    ];
    for (harm, retries, waits) in dead {
        let scenario = Scenario::new()
            .tool("Bash", json!({ "command": "echo once >> effects" }))
            .interrupted(harm.clone(), FaultPosition::Request)
            .reply("Through.");
        let server = serve(scenario);
        let ended = hasty(&server).args(["--first-byte-timeout", SOON, "go"]).run().await;
        assert_eq!(ended.result()["result"], "Through.", "{harm:?}");
        assert_eq!(ended.result()["recovery"]["retries_by_class"], retries, "{harm:?}");
        assert_eq!(connections(&server), [1, 1, 2], "{harm:?}");
        // A server that closes after each stream is asked again at once.
        assert_eq!(announcements(&ended).len(), waits, "{harm:?}: {ended:?}");
        let effects = std::fs::read_to_string(ended.work().join("effects"));
        assert_eq!(effects.expect("the tool ran"), "once\n");
    }
}

#[tokio::test]
async fn a_server_that_closes_after_each_stream_costs_no_retry() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .closes_early()
        .tool("Bash", json!({ "command": "true" }))
        .closes_early()
        .reply("Through.")
        .closes_early();
    let server = serve(scenario);
    let ended = hasty(&server).args(["go"]).run().await;
    assert_eq!(ended.result()["result"], "Through.");
    assert_eq!(ended.stderr, "");
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn permanent_silence_ends_the_run_with_a_timeout_error() {
    all(holes().into_iter().map(|hole| async move {
        let broken = Scenario::new().interrupted(hole.harm.clone(), hole.place);
        let broken = broken.after(AfterLast::RepeatLast);
        let place = hole.place;
        let server = serve(broken);
        let trial = hole.timed(hasty(&server)).args(["--max-retries", "1"]);
        let ended = trial.args(["--request-timeout", SOON, "go"]).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(75), "{place:?}: {ended:?}");
        assert_eq!(result["terminal_reason"], "model_error");
        assert_eq!(result["api_error_class"], hole.class, "{place:?}");
        assert_eq!(result["retryable"], true);
        assert_eq!(server.accepted(), 2, "{place:?}: one try and one retry");
        let why = result["errors"][0].as_str().expect("a reason");
        assert!(why.contains(hole.timer) && why.contains(hole.flag), "{place:?}: {why}");
    }))
    .await;
}

#[tokio::test]
async fn two_stalled_streams_are_followed_by_a_non_streaming_request() {
    let stalls = Scenario::new()
        .interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(2))
        .after(AfterLast::RepeatLast);
    let server = serve(stalls);
    let timers = ["--stream-idle-timeout", "400ms", "--request-timeout", SOON];
    let ended = hasty(&server).args(timers).args(["--max-retries", "3", "go"]).run().await;
    let streams: Vec<Value> =
        server.requests().iter().map(|request| request.body["stream"].clone()).collect();
    assert_eq!(streams, [true, true, false, true], "{ended:?}");
    assert_eq!(connections(&server), [1, 2, 3, 4]);
    let told = announcements(&ended);
    assert_eq!(told.len(), 3);
    assert!(told[1].contains("(stream_stalled, stream idle timeout, retry 2 of 3)"), "{told:?}");
    assert!(told[2].contains("(api_timeout, request timeout, retry 3 of 3)"), "{told:?}");
}

/// Some proxies keep every stream to themselves. What they hand on in one piece is good enough.
#[tokio::test]
async fn a_reply_that_never_streams_is_received_in_one_piece() {
    let stalls =
        Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(1)).times(2);
    let whole = StepCondition { stream: Some(false), ..StepCondition::default() };
    let server = serve(stalls.reply("Done.").when(whole));
    let ended = hasty(&server).args(["--stream-idle-timeout", "400ms", "go"]).run().await;
    let result = ended.result();
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert_eq!(result["recovery"]["retries_by_class"], json!({ "stream_stalled": 2 }));
    // Such an answer has to come before its own timer: it must not be too long for that.
    let cap = |request: &ReceivedRequest| request.body["max_tokens"].as_u64();
    let is_capped = |request: &ReceivedRequest| cap(request).is_some_and(|cap| cap <= 16_000);
    assert!(server.requests().iter().all(is_capped));
}
