//! Trials.
//! Time limits: `--max-duration` is kept whatever goes wrong.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use outlast::rehearsal::{AfterLast, FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::timeouts::{all, hasty, millis, took, with};
use crate::support::stopwatch::Stopwatch;
use crate::support::{FinishedProcess, RunBuilder, is_alive, serve, with_time_limit};

/// Most time that a run may take beyond `--max-duration`.
const SLACK: Duration = Duration::from_secs(2);

/// Additional time that a loaded machine may take to start a process.
const START: Duration = Duration::from_secs(3);

type Make = fn(RunBuilder) -> RunBuilder;

/// Faults that never end by themselves, and how the run meets them.
fn endless() -> Vec<(&'static str, Scenario, Make)> {
    let plain: Make = |trial| trial;
    let persistent: Make = |trial| trial.env("OUTLAST_UNATTENDED_RETRY", "all");
    let helper: Make =
        |trial| with(trial, &json!({ "apiKeyHelper": "sleep 1000 & echo $$ $! > pids; wait" }));
    let bash = |command: &str| Scenario::new().tool("Bash", json!({ "command": command }));
    let pings = ScriptedFaultKind::Pings { every: millis(50) };
    let cases = [
        (
            "black hole",
            Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Request),
            plain,
        ),
        (
            "black hole at accept",
            Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Accept),
            plain,
        ),
        (
            "stalled stream",
            Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Delta),
            plain,
        ),
        ("pings only", Scenario::new().interrupted(pings, FaultPosition::Events(1)), plain),
        ("drip", Scenario::new().reply(&"x ".repeat(900)).timing(Some(1), millis(10)), plain),
        ("overload", Scenario::new().status(529), plain),
        ("overload, persistent", Scenario::new().status(529), persistent),
        ("server error, persistent", Scenario::new().status(500), persistent),
        (
            "resets",
            Scenario::new().interrupted(ScriptedFaultKind::Reset, FaultPosition::Delta),
            persistent,
        ),
        ("slow error", Scenario::new().status(500).delay(millis(60_000)), plain),
        ("tool loop", bash("date +%s%N"), plain),
        ("hung tool", bash("echo $$ > pids; sleep 1000 & echo $! >> pids; wait"), plain),
        (
            "stubborn tool",
            bash(
                "trap '' TERM; echo $$ > pids; (sleep 1000; sleep 1000) & echo $! >> pids; \
                  while :; do sleep 1000; done",
            ),
            plain,
        ),
        ("escaped tool", bash("setsid sh -c 'echo $$ > pids; exec sleep 1000' & wait"), plain),
        ("hung key helper", Scenario::new().reply("never"), helper),
    ];
    let repeat = |(name, scenario, make): (_, Scenario, _)| {
        (name, scenario.after(AfterLast::RepeatLast), make)
    };
    cases.into_iter().map(repeat).collect()
}

#[tokio::test]
async fn the_time_limit_is_kept_for_every_fault() {
    all(endless().into_iter().map(|(name, scenario, make)| ends_in_time(name, scenario, make)))
        .await;
}

async fn ends_in_time(name: &'static str, scenario: Scenario, make: Make) {
    for seconds in [1, 4, 16] {
        // On a busy machine, the time may be over before there is a session.
        if ends_within(seconds, name, scenario.clone(), make).await {
            return;
        }
    }
    panic!("{name}: no session was begun");
}

/// Runs with a time limit. Returns whether there was a session, which then has been resumed.
async fn ends_within(seconds: u64, name: &'static str, scenario: Scenario, make: Make) -> bool {
    let server = serve(scenario);
    let duration = format!("{seconds}s");
    let persists =
        RunBuilder::against(&server).args(["--max-duration", &duration, "--max-retries", "100"]);
    let limit = Duration::from_secs(seconds);
    let begun = Stopwatch::start();
    let ended = make(persists).args(["go"]).run().await;
    begun.assert_within(limit + SLACK + START, name);
    let result = ended.result();
    assert_eq!(ended.code, Some(5), "{name}: {ended:?}");
    assert_eq!(result["terminal_reason"], "deadline", "{name}");
    assert_eq!(
        (&result["is_error"], &result["subtype"]),
        (&json!(true), &json!("error_during_execution"))
    );
    let begun_wait = !pids(&ended.work()).is_empty();
    if let Some(wait) = named_wait(name).filter(|_| begun_wait) {
        let message = format!("time ran out while waiting for {wait}");
        assert!(result["errors"][0].as_str().is_some_and(|it| it.contains(&message)), "{result}");
    }
    let most = begun.scaled_bound(limit + SLACK);
    assert!(millis(took(&result)) <= most, "{name}: {} ms", took(&result));
    assert_eq!(server.violations(), Vec::<String>::new(), "{name}");
    for pid in pids(&ended.work()) {
        with_time_limit(&format!("{name}: the end of process {pid}"), gone(pid)).await;
    }
    let has_session = result["session_id"] != "";
    if has_session {
        resumes(name, &result, ended).await;
    }
    has_session
}

/// The session goes on where its time ran out.
async fn resumes(name: &str, result: &Value, ended: FinishedProcess) {
    let id = result["session_id"].as_str().expect("an id");
    assert_eq!(result["resume"]["session_id"], id, "{name}");
    let server = serve(Scenario::new().reply("Finished."));
    let again = ended
        .again(&server.base_url())
        .args(["--resume", id, "--max-duration", "10m", "go on"])
        .run()
        .await;
    assert_eq!(again.code, Some(0), "{name}: {again:?}");
    assert_eq!(again.result()["result"], "Finished.", "{name}");
    assert_eq!(server.violations(), Vec::<String>::new(), "{name}");
}

/// The wait that the message of a case names once its process runs.
fn named_wait(name: &str) -> Option<&'static str> {
    match name {
        "hung tool" | "stubborn tool" | "escaped tool" => Some("Bash"),
        "hung key helper" => Some("credentials"),
        _ => None,
    }
}

fn pids(work: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(work.join("pids")).unwrap_or_default();
    text.split_whitespace().map(|word| word.parse().expect("a process id")).collect()
}

/// Waits until a process has ended: what was killed still takes a moment to die.
async fn gone(pid: i32) {
    while is_alive(pid) {
        tokio::time::sleep(millis(10)).await;
    }
}

#[tokio::test]
async fn the_deadline_applies_while_standard_input_is_read() {
    let server = serve(Scenario::new().reply("never"));
    let flags = ["--max-duration", "1s", "--stdin", "go"];
    let mut running = RunBuilder::against(&server).stdin(Stdio::piped()).args(flags).start();
    let open = running.child.stdin.take();
    let begun = Stopwatch::start();
    let ended = running.end().await;
    drop(open);
    begun.assert_within(millis(1_000) + SLACK + START, "the end");
    assert_eq!((ended.code, server.requests().len()), (Some(5), 0), "{ended:?}");
    assert_eq!(ended.result()["terminal_reason"], "deadline");
    assert!(ended.stderr.contains("standard input"), "{}", ended.stderr);
}

#[tokio::test]
async fn the_wrap_up_nudge_is_sent_once_and_not_early() {
    let bash =
        |scenario: Scenario, command: &str| scenario.tool("Bash", json!({ "command": command }));
    let usual = outlast::config::Config::default().wrap_up_at;
    assert_eq!(usual, outlast::config::kinds::Fraction::NINE_TENTHS);
    // Moved, so that a busy machine has time left after it.
    let early = json!({ "wrapUpAt": 0.1 });
    let server =
        serve(bash(bash(bash(Scenario::new(), "true"), "sleep 6.2"), "true").reply("Done."));
    let trial = with(RunBuilder::against(&server), &early).args(["--max-duration", "1m", "go"]);
    let ended = trial.run().await;
    assert_eq!(ended.result()["result"], "Done.", "{ended:?}");
    let told: Vec<usize> = server
        .requests()
        .iter()
        .map(|request| {
            let text = request.body["messages"].to_string();
            text.matches(outlast::recovery::Nudge::WrapUp.text()).count()
        })
        .collect();
    assert_eq!(told, [0, 0, 1, 1], "told once, and it stays in the conversation");
}

#[tokio::test]
async fn text_received_before_the_deadline_is_kept() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "sleep 1000" }))
        .and_text("Half of the work is done.");
    let server = serve(scenario);
    // Until then the command must run, even on a busy machine.
    let ended = hasty(&server).args(["--max-duration", "6s", "go"]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(result["partial_result"], "Half of the work is done.");
    assert_eq!(result["tools"]["abandoned"], 1);
}

#[tokio::test]
async fn a_recovered_failure_is_not_blamed_for_a_later_deadline() {
    let scenario = Scenario::new().status(529).tool("Bash", json!({ "command": "sleep 1000" }));
    let server = serve(scenario);
    // Until then the command must run, even on a busy machine.
    let ended = hasty(&server).args(["--max-duration", "6s", "go"]).run().await;
    let result = ended.result();
    assert_eq!(result["terminal_reason"], "deadline", "{ended:?}");
    assert_eq!(result["api_error_class"], Value::Null);
    assert_eq!(result["api_error_status"], Value::Null);
    assert!(!result["errors"][0].to_string().contains("529"), "{result}");
}
