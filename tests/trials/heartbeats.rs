//! Trials.
//! Heartbeats: a run gives a sign of life every half minute, and never needlessly.

use std::time::SystemTime;

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::timeouts::{
    UNHURRIED, all, announcements, hasty, is_heartbeat, messages, millis, took, with,
};
use crate::support::stopwatch::Stopwatch;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// Seconds of these runs for each second of real time: half a minute takes one.
const SCALE: f64 = 30.0;

fn scaled(server: &RehearsalServer, format: &str) -> RunBuilder {
    let trial = hasty(server).args(UNHURRIED).args(["--time-scale", "30"]);
    trial.args(["--output-format", format, "--heartbeat-file", "alive"])
}

fn heartbeats(ended: &FinishedProcess) -> Vec<&str> {
    ended.stderr.lines().filter(|line| is_heartbeat(line)).collect()
}

/// Seconds of the run's time, as the server plays them.
fn seconds(seconds: u64) -> std::time::Duration {
    millis(seconds * 1_000)
}

/// Things that take 95 seconds and more, and how their heartbeats begin.
fn slow() -> Vec<(&'static str, Scenario, &'static str)> {
    let scenario = || Scenario::new().time_scale(SCALE);
    let words = "word ".repeat(40);
    let bash = json!({ "command": "sleep 3.3" });
    vec![
        ("a slow model", scenario().reply("Done.").delay(seconds(100)), "waiting for "),
        ("a slow stream", scenario().reply(&words).timing(Some(40), seconds(4)), "waiting for "),
        ("a long command", scenario().tool("Bash", bash).reply("Done."), "running Bash: "),
    ]
}

#[tokio::test]
async fn a_slow_model_and_a_long_tool_emit_heartbeats_in_every_mode() {
    let formats = ["json", "text", "stream-json"];
    let cases = formats.into_iter().flat_map(|format| {
        slow().into_iter().map(move |(name, scenario, start)| (name, scenario, start, format))
    });
    all(cases.map(|(name, scenario, start, format)| async move {
        let (server, watch) = (serve(scenario), Stopwatch::start());
        let trial = scaled(&server, format).args(["go"]);
        std::fs::write(trial.work().join("before"), "").expect("it can be written");
        let ended = trial.run().await;
        assert_eq!(ended.code, Some(0), "{name}, {format}: {ended:?}");
        let beats = heartbeats(&ended);
        // None of them comes earlier than half a minute after another.
        let most = watch.elapsed().mul_f64(SCALE).as_secs() / 29;
        let many = u64::try_from(beats.len()).expect("few");
        assert!((2..=most).contains(&many), "{name}, {format}: {}", ended.stderr);
        assert_eq!(beats.len(), ended.stderr.lines().count(), "and nothing else: {}", ended.stderr);
        // What should take no time may take half a minute too, on a busy machine.
        let begins = format!("outlast: {start}");
        let own = beats.iter().filter(|beat| beat.starts_with(&begins)).count();
        assert!(own >= 2, "{name}: {beats:?}");
        let mut before = 0;
        for (nth, beat) in (1..).zip(&beats) {
            // Silence counts from the last sign of life, which may be well before the wait began.
            let since = so_far(beat).saturating_sub(before);
            let most = watch.scaled_bound(seconds(55)).as_secs();
            assert!(since <= most, "{name}, {nth}: {beats:?}");
            before = so_far(beat);
            assert!(beat.contains(", turn ") && beat.ends_with(" spent"), "{name}: {beat}");
        }
        // A busy machine may be late with the first byte, but not with all of them.
        let heard = beats.iter().any(|beat| beat.contains("last byte "));
        assert!(heard || name != "a slow stream", "{name}: {beats:?}");
        if format == "stream-json" {
            let frames = messages(&ended, "heartbeat");
            assert_eq!(frames.len(), beats.len(), "{name}");
            let kind = if start.starts_with("running") { "tool" } else { "model" };
            let own = frames.iter().filter(|frame| frame["waiting_for"]["kind"] == kind);
            assert!(own.filter(|frame| frame["turn"] == 1).count() >= 2, "{frames:?}");
        }
        let (alive, before) = (touched(&ended, "alive"), touched(&ended, "before"));
        let later = alive.duration_since(before).expect("it was touched later");
        assert!(later > millis(1_800), "{name}, {format}: touched only {later:?} after the start");
    }))
    .await;
}

/// The seconds in `..., 1m05s so far, ...`.
fn so_far(line: &str) -> u64 {
    let span = line.split(", ").find_map(|part| part.strip_suffix(" so far")).expect("a time");
    let (minutes, seconds) = span.split_once('m').unwrap_or(("0", span));
    let number = |text: &str| text.trim_end_matches('s').parse::<u64>().expect("a number");
    number(minutes) * 60 + number(seconds)
}

fn touched(ended: &FinishedProcess, name: &str) -> SystemTime {
    let file = std::fs::metadata(ended.work().join(name)).expect("the file is there");
    file.modified().expect("files have a time")
}

#[tokio::test]
async fn many_short_waits_emit_heartbeats_too() {
    let turns = |scenario: Scenario| {
        (0..9).fold(scenario, |scenario, _| {
            scenario.tool("Bash", json!({ "command": "true" })).delay(seconds(14))
        })
    };
    let server = serve(turns(Scenario::new().time_scale(SCALE)).reply("Done."));
    let ended = scaled(&server, "json").args(["go"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // 126 seconds, none of which was waited for longer than fourteen.
    let most = took(&ended.result()) / 30_000;
    let beats = u64::try_from(heartbeats(&ended).len()).expect("few");
    assert!((3..=most).contains(&beats), "{}", ended.stderr);
}

#[tokio::test]
async fn progress_reports_the_money_spent() {
    let wait =
        |turn: u32| json!({ "command": format!("until [ -e heard{turn} ]; do sleep 0.02; done") });
    let scenario = Scenario::new().time_scale(SCALE);
    let scenario = scenario.tool("Bash", wait(1)).usage(100_000, 1_000);
    let scenario = scenario.tool("Bash", wait(2)).usage(100_000, 1_000);
    let scenario = scenario.tool("Bash", json!({ "command": "true" })).usage(100_000, 1_000);
    let server = serve(scenario.status(529).reply("Done."));
    let flags = ["--price", "3/15", "--max-budget-usd", "50", "go"];
    let mut running = scaled(&server, "json").args(flags).start();
    for (turn, spent) in [(1, "$0.3150"), (2, "$0.6300")] {
        running.wait_for_stderr(&format!(" so far, turn {turn}, {spent} spent\n")).await;
        std::fs::write(running.work().join(format!("heard{turn}")), "").expect("a new file");
    }
    let ended = running.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = announcements(&ended);
    assert!(told.len() == 1 && told[0].ends_with(", $0.9450 spent"), "{told:?}");
}

#[tokio::test]
async fn a_run_without_waits_emits_no_heartbeats() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "echo hi" })).reply("Done.");
    for format in ["json", "text", "stream-json"] {
        let server = serve(scenario.clone());
        let ended =
            RunBuilder::against(&server).args(["--output-format", format, "go"]).run().await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{format}");
    }
}

/// The wall clock's time in a line, in seconds of the day.
fn until(line: &str) -> i64 {
    let (_, rest) = line.split_once(", until ").expect("a time");
    let clock = rest.split(',').next().expect("a time").rsplit(' ').next().expect("a time");
    clock.split(':').fold(0, |sum, part| sum * 60 + part.parse::<i64>().expect("a number"))
}

#[tokio::test]
async fn the_wall_clock_is_scaled_with_the_run() {
    const DAY: i64 = 86_400;

    let server = serve(Scenario::new().status(529).times(9).reply("Through."));
    let watch = Stopwatch::start();
    let trial = RunBuilder::against(&server).env("OUTLAST_UNATTENDED_RETRY", "1").args(UNHURRIED);
    // A probe would end the last of the waits early.
    let trial = with(trial, &json!({ "capacityProbes": false }));
    let ended = trial.args(["--time-scale", "60", "go"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut end = None;
    for line in ended.stderr.lines().filter(|line| line.contains(", until ")) {
        if is_heartbeat(line) {
            assert_eq!(Some(until(line)), end, "a heartbeat contradicts its announcement: {line}");
        } else {
            end = Some(until(line));
        }
    }
    let told = announcements(&ended);
    let ends: Vec<i64> = told.iter().map(|line| until(line)).collect();
    let waited: Vec<i64> =
        ends.windows(2).map(|pair| (pair[1] - pair[0]).rem_euclid(DAY)).collect();
    // A wait, a quarter more by jitter, and what a busy machine adds: two seconds are two minutes.
    let more = i64::try_from(watch.scaled_bound(seconds(120)).as_secs()).expect("few");
    for (nth, waited) in (1..).zip(waited) {
        let bare = 1_i64 << (nth - 1);
        assert!(
            (bare - 1..bare * 5 / 4 + more).contains(&waited),
            "wait {nth}: {waited} s: {told:?}"
        );
    }
    let result: Value = ended.result();
    let all = result["recovery"]["waited_ms"].as_u64().expect("a number") / 1_000;
    assert!(all > 255, "{all} s");
}

/// The model is not what the run waits for while a command looks up the key.
#[tokio::test]
async fn the_wait_for_a_key_is_not_a_wait_for_the_model() {
    let server = serve(Scenario::new().reply("Done."));
    let helper = "sleep 1; echo test-key-0123456789";
    let settings = json!({ "heartbeatInterval": 0.2, "apiKeyHelper": helper }).to_string();
    let run = RunBuilder::against(&server).without("ANTHROPIC_API_KEY");
    let ended = run.args(["--settings", &settings, "Say hello."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let first = ended.stderr.lines().find(|line| line.contains(" so far"));
    let first = first.expect("a heartbeat");
    assert!(first.starts_with("outlast: waiting for credentials, "), "{}", ended.stderr);
}
