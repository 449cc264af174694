//! Trials.
//! Retries: how often and how long a run waits for the service, and how it reports each wait.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast::recovery::{
    ErrorClass, Event, Failure, Limits, Moment, Nudge, Phase, Run, TokenEstimate,
};
use outlast::rehearsal::{
    AfterLast, FaultPosition, RehearsalServer, Scenario, ScriptedError, ScriptedFaultKind,
};
use serde_json::{Value, json};

use super::timeouts::{
    UNHURRIED, all, announcements, hasty, is_heartbeat, messages, millis, took, with,
};
use crate::support::stopwatch::Stopwatch;
use crate::support::wire::dead_end;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The time between two requests, in seconds of a run whose time passes `scale` times faster.
fn gap(server: &RehearsalServer, first: usize, scale: f64) -> f64 {
    let requests = server.requests();
    requests[first + 1].at.saturating_sub(requests[first].at).as_secs_f64() * scale
}

// --- N retries are N + 1 requests -------------------------------------------------------------

fn overloaded() -> ScriptedFaultKind {
    ScriptedFaultKind::Error(ScriptedError {
        kind: "overloaded_error".to_owned(),
        message: "Overloaded".to_owned(),
        code: None,
    })
}

/// Faults that are retried, with the class of each and the exit code if it never ends.
fn retried() -> Vec<(String, Scenario, &'static str, i32)> {
    let statuses = [
        (408, "server_error"),
        (409, "server_error"),
        (429, "rate_limit"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
        (529, "server_overload"),
    ];
    let status = |(status, class): (u16, _)| {
        (format!("HTTP {status}"), Scenario::new().status(status), class, 75)
    };
    let html = Scenario::new().status(200).body("text/html", "<html><title>Log in</title></html>");
    let torn = |harm, place| Scenario::new().interrupted(harm, place);
    let others = [
        (
            "overload in a stream",
            torn(overloaded(), FaultPosition::Events(2)),
            "server_overload",
            75,
        ),
        ("HTML", html, "server_error", 75),
        (
            "torn stream",
            torn(ScriptedFaultKind::Close, FaultPosition::Delta),
            "connection_error",
            75,
        ),
        (
            "reset stream",
            torn(ScriptedFaultKind::Reset, FaultPosition::Events(3)),
            "connection_error",
            75,
        ),
        (
            "reset request",
            torn(ScriptedFaultKind::Reset, FaultPosition::Request),
            "connection_error",
            75,
        ),
        (
            "stream without an end",
            torn(ScriptedFaultKind::End, FaultPosition::Events(4)),
            "connection_error",
            75,
        ),
        (
            "garbage",
            torn(
                ScriptedFaultKind::Insert(b"event: content_block_start\ndata: {{\n\n".to_vec()),
                FaultPosition::Events(1),
            ),
            "bad_response",
            1,
        ),
        ("no HTTP", Scenario::new().raw(*b"SSH-2.0-OpenSSH_9\r\n\r\n"), "bad_response", 1),
    ];
    let others =
        others.map(|(name, scenario, class, exit)| (name.to_owned(), scenario, class, exit));
    statuses.map(status).into_iter().chain(others).collect()
}

#[tokio::test]
async fn n_retries_make_n_plus_one_requests_and_announce_each_wait() {
    let settings = json!({
        "retryFirstDelay": "1ms",
        "retryLongestDelay": "1ms",
        // Another kind of request would break in another way.
        "tornStreamsPerWhole": 255,
    });
    all(retried().into_iter().map(move |(name, scenario, class, exit)| {
        let settings = settings.clone();
        async move {
            let server = serve(scenario.after(AfterLast::RepeatLast));
            let flags = ["--max-retries", "3", "--output-format", "stream-json", "go"];
            let ended = with(RunBuilder::against(&server), &settings).args(flags).run().await;
            assert_eq!(server.requests().len(), 4, "{name}: {ended:?}");
            is_retried_thrice(&name, &ended, class);
            assert_eq!(ended.code, Some(exit), "{name}");
        }
    }))
    .await;
}

/// Three retries, each announced once, on both outputs.
fn is_retried_thrice(name: &str, ended: &FinishedProcess, class: &str) {
    let result = ended.result();
    assert_eq!(result["recovery"]["requests"], 4, "{name}");
    assert_eq!(result["recovery"]["retries_by_class"], json!({ class: 3 }), "{name}");
    let last = if class == "server_overload" { "repeated_529" } else { class };
    assert_eq!(result["api_error_class"], last, "{name}");
    let told = announcements(ended);
    let frames = messages(ended, "api_retry");
    assert_eq!((told.len(), frames.len()), (3, 3), "{name}: {ended:?}");
    for (nth, (line, frame)) in told.iter().zip(frames).enumerate() {
        let nth = nth + 1;
        assert!(line.contains(&format!("({class}, ")), "{name}: {line}");
        assert!(line.contains(&format!("retry {nth} of 3), until ")), "{name}: {line}");
        assert_eq!(frame["error_class"], class, "{name}");
        assert_eq!((&frame["attempt"], &frame["max_retries"]), (&json!(nth), &json!(3)), "{name}");
    }
    assert!(!ended.stderr.lines().any(is_heartbeat), "short waits need no heartbeat: {ended:?}");
    assert_eq!(messages(ended, "heartbeat").len(), 0, "{name}");
}

#[tokio::test]
async fn an_unreachable_server_is_named_and_retried_as_often() {
    let (_taken, address) = dead_end();
    let host = address.to_string();
    let trial = with(
        RunBuilder::at(&format!("http://{host}/?token=hush")),
        &json!({ "retryFirstDelay": "1ms", "retryLongestDelay": "1ms" }),
    );
    let flags = ["--max-retries", "3", "--output-format", "stream-json", "go"];
    let ended = trial.args(flags).run().await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    is_retried_thrice("refused", &ended, "connection_error");
    let why = ended.result()["errors"][0].to_string();
    assert!(why.contains(&host), "{why}");
    assert!(!format!("{ended:?}").contains("hush"), "{ended:?}");
}

#[tokio::test]
async fn the_retry_hint_of_the_server_wins() {
    let told = |status, verdict| Scenario::new().status(status).header("x-should-retry", verdict);
    for status in [400, 403, 404, 413, 422] {
        let server = serve(told(status, "true").after(AfterLast::RepeatLast));
        let ended = hasty(&server).args(["--max-retries", "2", "go"]).run().await;
        assert_eq!(server.requests().len(), 3, "HTTP {status}: {ended:?}");
        assert_eq!(announcements(&ended).len(), 2, "HTTP {status}: {ended:?}");
    }
    for status in [408, 409, 429, 500, 503, 529] {
        let server = serve(told(status, "false"));
        let ended = hasty(&server).args(["go"]).run().await;
        assert_eq!(server.requests().len(), 1, "HTTP {status}: {ended:?}");
        assert_eq!(ended.code, Some(75), "HTTP {status}");
    }
}

#[test]
fn jitter_spreads_the_retries_of_a_hundred_runs() {
    let limits = Limits::default();
    let weight = TokenEstimate { ceiling: 64_000, ..TokenEstimate::FREE };
    let overload = Failure::of(ErrorClass::ServerOverload);
    let returns = |seed: u64| {
        let mut at = Moment::default();
        let step = |run: Run, at, event| run.step(at, event, &limits).expect("it fits").next;
        let mut run = step(Run::new(seed, &limits), at, Event::Begin);
        for _ in 0..5 {
            run = step(step(run, at, Event::Estimated(weight)), at, Event::Failed(overload));
            let Phase::Pausing { until, .. } = run.phase else { panic!("no pause: {run:?}") };
            at = until;
            run = step(run, at, Event::WaitEnded);
        }
        at.as_millis()
    };
    let moments: Vec<u64> = (0..100).map(returns).collect();
    let buckets: BTreeSet<u64> = moments.iter().map(|at| at / 100).collect();
    let crowd = |bucket: &u64| moments.iter().filter(|at| *at / 100 == *bucket).count();
    let densest = buckets.iter().map(crowd).max().unwrap_or_default();
    assert!(buckets.len() > 20 && densest <= 15, "{densest} of 100 in a tenth of a second");
}

// --- exhausted quota --------------------------------------------------------------------------

/// Forms in which a service asks for a retry only hours from now.
fn exhausted() -> Vec<(Scenario, Duration)> {
    let in_two_hours = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(2)).to_string();
    let limited = || Scenario::new().status(429);
    let unified = |reset| limited().header("anthropic-ratelimit-unified-reset", reset);
    let requests = |reset| {
        let limited = limited().header("anthropic-ratelimit-requests-remaining", "0");
        limited.header("anthropic-ratelimit-requests-reset", reset)
    };
    let hours = Duration::from_hours;
    vec![
        (limited().header("retry-after", "7200"), hours(2)),
        (limited().header("retry-after-ms", "7200000"), hours(2)),
        (limited().header("retry-after", "${date+2h}"), hours(2)),
        (limited().header("retry-after", "604800"), hours(7 * 24)),
        (unified("${unix+5h}"), hours(5)),
        (requests(&in_two_hours), hours(2)),
        (Scenario::new().status(529).header("retry-after", "7200"), hours(2)),
    ]
}

#[tokio::test]
async fn an_exhausted_quota_ends_the_run_at_once_and_says_when_to_come_back() {
    for (scenario, wait) in exhausted() {
        let (server, watch) = (serve(scenario.after(AfterLast::RepeatLast)), Stopwatch::start());
        let ended = RunBuilder::against(&server).args(["go"]).run().await;
        is_out_of_quota(&server, &ended, wait, &watch);
    }
}

#[tokio::test]
async fn a_wait_beyond_patience_or_deadline_is_an_exhausted_quota() {
    let limits: [(&str, &[&str]); 3] = [
        ("60", &["--max-duration", "30s"]),
        ("6", &["--max-retry-wait", "5s"]),
        ("601", &["--max-retries", "3"]),
    ];
    for (seconds, flags) in limits {
        let scenario = Scenario::new().status(429).header("retry-after", seconds);
        let (server, watch) = (serve(scenario.after(AfterLast::RepeatLast)), Stopwatch::start());
        let ended = RunBuilder::against(&server).args(flags).args(["go"]).run().await;
        let wait = Duration::from_secs(seconds.parse().expect("a number"));
        is_out_of_quota(&server, &ended, wait, &watch);
    }
    // Unattended runs are more patient, but not without a bound.
    let seven_hours = Scenario::new().status(429).header("retry-after", "25200");
    let (server, watch) = (serve(seven_hours.after(AfterLast::RepeatLast)), Stopwatch::start());
    let ended = RunBuilder::against(&server).env("OUTLAST_UNATTENDED_RETRY", "1").args(["go"]);
    is_out_of_quota(&server, &ended.run().await, Duration::from_hours(7), &watch);
}

fn is_out_of_quota(
    server: &RehearsalServer,
    ended: &FinishedProcess,
    wait: Duration,
    watch: &Stopwatch,
) {
    let result = ended.result();
    assert_eq!((ended.code, server.requests().len()), (Some(75), 1), "{ended:?}");
    assert_eq!(result["terminal_reason"], "model_error");
    assert_eq!(result["api_error_class"], "quota_exhausted");
    assert_eq!(result["retryable"], true);
    assert!(millis(took(&result)) < watch.scaled_bound(millis(2_000)), "{} ms", took(&result));
    assert_eq!(announcements(ended), Vec::<&str>::new());
    let at: jiff::Timestamp =
        result["retry_at"].as_str().expect("a time").parse().expect("an instant");
    let left = at.as_second() - jiff::Timestamp::now().as_second();
    let wait = i64::try_from(wait.as_secs()).expect("small");
    assert!((wait - 240..=wait + 1).contains(&left), "{left} s instead of {wait}: {result}");
    assert!(ended.stderr.contains("It may work again at "), "{}", ended.stderr);
}

#[tokio::test]
async fn the_reported_reset_time_does_not_depend_on_slow_end_hooks() {
    let server = serve(Scenario::new().status(429).header("retry-after", "36000"));
    let hook = json!({ "type": "command", "command": "sleep 3", "timeout": 60 });
    let settings = json!({ "hooks": { "SessionEnd": [{ "hooks": [hook] }] } });
    let ended = with(RunBuilder::against(&server), &settings).args(["go"]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(took(&result) >= 3_000, "the hook was waited for: {result}");
    let at: jiff::Timestamp =
        result["retry_at"].as_str().expect("a time").parse().expect("an instant");
    // The service said it before the hook began.
    let left = at.as_second() - jiff::Timestamp::now().as_second();
    assert!(left <= 36_000 - 2, "{left} s");
}

#[tokio::test]
async fn a_short_limit_is_waited_out_in_full() {
    let limited = || Scenario::new().status(429);
    let cases = [
        (limited().header("retry-after", "1"), 1.0),
        (limited().header("retry-after-ms", "1200"), 1.2),
        (limited().header("anthropic-ratelimit-unified-reset", "${unix+3s}"), 1.9),
        (Scenario::new().status(529).header("retry-after", "1"), 1.0),
        (Scenario::new().status(500).header("retry-after", "1"), 1.0),
    ];
    for (scenario, least) in cases {
        let (server, watch) = (serve(scenario.reply("Through.")), Stopwatch::start());
        let ended = hasty(&server).args(["go"]).run().await;
        assert_eq!(ended.result()["result"], "Through.", "{ended:?}");
        let (gap, most) = (gap(&server, 0, 1.0), (least + 4.0) * watch.slowness());
        assert!((least..most).contains(&gap), "{gap} s instead of {least}");
        assert_eq!(announcements(&ended).len(), 1);
    }
}

#[tokio::test]
async fn a_subscription_limit_ends_the_run_with_its_reset_time() {
    let scenario = Scenario::new().status(429).header("retry-after", "30");
    let server = serve(scenario.after(AfterLast::RepeatLast));
    let trial = with(RunBuilder::against(&server), &json!({ "accountKind": "subscription" }));
    let ended = trial.args(["go"]).run().await;
    let result = ended.result();
    assert_eq!((ended.code, server.requests().len()), (Some(75), 1), "{ended:?}");
    assert_eq!(result["api_error_class"], "rate_limit");
    assert!(result["retry_at"].is_string(), "{result}");
}

// --- a long outage ----------------------------------------------------------------------------

/// Overloads for at least twenty minutes of a run that waits for as long as it takes: half a
/// second, doubled until it is five minutes.
const OUTAGE: u32 = 13;

#[tokio::test]
async fn a_long_overload_ends_the_run_after_the_documented_time() {
    let server = serve(Scenario::new().status(529).times(OUTAGE).reply("never"));
    let flags = ["--time-scale", "50", "--output-format", "stream-json", "go"];
    let ended = RunBuilder::against(&server).args(UNHURRIED).args(flags).run().await;
    let result = ended.result();
    assert_eq!((ended.code, server.requests().len()), (Some(75), 11), "{ended:?}");
    assert_eq!(result["api_error_class"], "repeated_529");
    assert_eq!(announcements(&ended).len(), 10);
    let waited = result["recovery"]["waited_ms"].as_u64().expect("a number");
    // What it means to wait: what a busy machine adds, the run's time shows fifty times enlarged.
    let delays = messages(&ended, "api_retry");
    let meant: u64 = delays.iter().filter_map(|frame| frame["retry_delay_ms"].as_u64()).sum();
    assert!((159_500..200_000).contains(&meant), "{meant} ms of the run's time");
    assert!(waited >= meant, "{waited} ms of {meant}");
}

#[tokio::test]
async fn persistent_mode_waits_out_a_long_outage_with_heartbeats() {
    let variables = [("OUTLAST_UNATTENDED_RETRY", "1"), ("CLAUDE_CODE_UNATTENDED_RETRY", "yes")];
    all(variables.into_iter().map(|(variable, value)| async move {
        let server = serve(Scenario::new().status(529).times(OUTAGE).reply("Through."));
        let flags = ["--time-scale", "100", "--output-format", "stream-json", "go"];
        let trial = RunBuilder::against(&server).env(variable, value).args(UNHURRIED);
        // A probe would end the last of the waits early.
        let trial = with(trial, &json!({ "capacityProbes": false }));
        let watch = Stopwatch::start();
        let ended = trial.args(flags).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!((server.requests().len(), server.probes()), (14, 0));
        let waited = result["recovery"]["waited_ms"].as_u64().expect("a number");
        assert!(waited >= 20 * 60 * 1000, "{waited} ms are no 20 minutes");
        assert!(took(&result) >= waited, "a run takes at least as long as it waits: {result}");
        assert_eq!(announcements(&ended).len(), 13);
        let all = announcements(&ended).iter().all(|line| line.contains("as many as it takes"));
        assert!(all, "{ended:?}");
        beats_steadily(&ended, millis(waited), &watch);
    }))
    .await;
}

/// A sign of life every half minute at the latest, on both outputs. A busy machine makes single
/// ones late, which the run's time shows a hundred times enlarged.
fn beats_steadily(ended: &FinishedProcess, waited: Duration, watch: &Stopwatch) {
    let lines = ended.stderr.lines().filter(|line| is_heartbeat(line)).count();
    let frames = messages(ended, "heartbeat");
    assert_eq!(lines, frames.len());
    let signs = u32::try_from(lines + 13).expect("small");
    assert!(watch.scaled_bound(millis(40_000)) * signs > waited, "{signs} in {waited:?}");
    let mut before = 0;
    for frame in frames.iter().filter(|frame| frame["waiting_for"]["kind"] == "retry") {
        let elapsed = frame["elapsed_ms"].as_u64().expect("a number");
        let silence = if elapsed > before { elapsed - before } else { elapsed };
        let most = watch.scaled_bound(millis(75_000));
        assert!(millis(silence) < most, "{silence} ms of silence: {frame}");
        before = elapsed;
        assert_eq!(frame["waiting_for"]["error_class"], "server_overload");
        assert!(frame["ends_in_ms"].is_u64() && frame["waited_ms"].is_u64(), "{frame}");
    }
}

#[tokio::test]
async fn persistent_mode_keeps_its_time_limit() {
    let server = serve(Scenario::new().status(529).after(AfterLast::RepeatLast));
    let watch = Stopwatch::start();
    let trial = RunBuilder::against(&server).env("OUTLAST_UNATTENDED_RETRY", "on");
    let ended = trial
        .args(UNHURRIED)
        .args(["--time-scale", "100", "--max-duration", "5m", "go"])
        .run()
        .await;
    let result = ended.result();
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(result["terminal_reason"], "deadline");
    assert_eq!(result["api_error_class"], "server_overload");
    // A wait past the limit is not begun, so it ends early; two seconds of the world are 200 here.
    let most = watch.scaled_bound(millis(500_000));
    assert!((millis(100_000)..most).contains(&millis(took(&result))), "{} ms", took(&result));
    assert!(server.requests().len() <= 10, "{}", server.requests().len());
}

// --- empty replies ----------------------------------------------------------------------------

#[tokio::test]
async fn empty_replies_are_retried_three_times_and_never_kept() {
    let silences = [
        Scenario::new().empty().times(4),
        Scenario::new().empty().and_thinking("What was asked of me?").times(4),
        Scenario::new().empty().and_text(" \n ").times(4),
    ];
    for scenario in silences {
        let server = serve(scenario);
        let ended = RunBuilder::against(&server)
            .args(UNHURRIED)
            .args(["--time-scale", "4", "go"])
            .run()
            .await;
        let result = ended.result();
        assert_eq!((ended.code, server.requests().len()), (Some(8), 4), "{ended:?}");
        assert_eq!(result["terminal_reason"], "empty_response");
        assert_eq!(result["api_error_class"], "empty_response");
        assert_eq!(result["num_turns"], 0);
        assert_eq!(result["recovery"]["retries_by_class"], json!({ "empty_response": 3 }));
        let requests = server.requests();
        assert_eq!(requests[0].raw, requests[1].raw, "the same again");
        assert_eq!(requests[2].raw, requests[3].raw, "it is told once");
        let told = requests[2].body["messages"][0]["content"][1]["text"].clone();
        assert_eq!(told, Nudge::EmptyReply.text(), "{told}");
        assert_eq!(requests[2].body["messages"].as_array().map(Vec::len), Some(1));
        for (nth, least) in [0.5, 1.0, 2.0].into_iter().enumerate() {
            assert!(gap(&server, nth, 4.0) >= least, "wait {nth}: {} s", gap(&server, nth, 4.0));
        }
        let told = announcements(&ended);
        assert_eq!(told.len(), 3);
        assert!(told[2].contains("(empty_response, retry 3 of 3)"), "{told:?}");
    }
}

#[tokio::test]
async fn each_wait_is_reported_with_its_own_cause() {
    let server = serve(Scenario::new().status(500).empty().reply("Here I am."));
    let flags = ["--output-format", "stream-json", "go"];
    let ended = hasty(&server).args(flags).run().await;
    let told = announcements(&ended);
    assert_eq!(told.len(), 2, "{ended:?}");
    assert!(told[0].contains("(server_error, HTTP 500, retry 1 of 10)"), "{told:?}");
    assert!(told[1].contains("(empty_response, retry 1 of 3)"), "{told:?}");
    let statuses: Vec<Value> =
        messages(&ended, "api_retry").iter().map(|it| it["error_status"].clone()).collect();
    assert_eq!(statuses, [json!(500), Value::Null]);
}
