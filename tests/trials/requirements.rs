//! `--require`: a command decides when the work is done, not the model. What the model is told of it
//! is tested in [`agent::requirements`](crate::agent).

use std::fs;
use std::io::Write;
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::recovery::Nudge;
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use super::timeouts::{is_heartbeat, millis, took, with};
use crate::support::requests::messages;
use crate::support::stopwatch::Stopwatch;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, RunningProcess, is_alive, serve};

/// Says that it is done, and does nothing.
fn claims(times: u32) -> Scenario {
    Scenario::new().reply("Done.").times(times)
}

fn requiring(server: &RehearsalServer, command: &str) -> RunBuilder {
    RunBuilder::against(server).args(["--require", command])
}

/// The words of a request's last message.
pub(super) fn told(server: &RehearsalServer, number: usize) -> String {
    let requests = server.requests();
    let all = messages(&requests[number - 1]);
    let last = all.last().expect("a message");
    assert_eq!(last["role"], "user", "{last}");
    let texts = last["content"].as_array().expect("blocks").iter();
    texts.filter_map(|block| block["text"].as_str()).collect()
}

#[track_caller]
pub(super) fn asked(server: &RehearsalServer, requests: usize) {
    assert_eq!(server.requests().len(), requests);
    assert_eq!(server.violations(), [""; 0]);
    assert_eq!(server.unrequested_answers(), 0);
}

#[track_caller]
pub(super) fn fails_as(ended: &FinishedProcess, code: i32, reason: &str) -> Value {
    let result = agrees(ended);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(result["terminal_reason"], reason, "{result}");
    result
}

// --- a command that must pass -----------------------------------------------------------------

/// The check is real, and so is what mends it.
#[tokio::test]
async fn a_failed_requirement_returns_its_output_and_the_model_fixes_it() {
    let scenario = claims(1)
        .tool("Write", json!({ "file_path": "answer.txt", "content": "42\n" }))
        .reply("Now it is.");
    let server = serve(scenario);
    let check = "echo \"found: $(cat answer.txt 2>&1)\"; grep -qx 42 answer.txt 2>/dev/null";
    let ended = requiring(&server, check).args(["Do it."]).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Now it is.")), "{ended:?}");
    assert_eq!(result["requirement"]["attempts"], 2);
    assert_eq!(result["requirement"]["passed"], true);
    assert_eq!(result["recovery"]["strategies"], json!({ "requirement_retry": 1 }));
    let told = told(&server, 2);
    assert!(told.starts_with(Nudge::Unmet.text()), "{told}");
    for part in [check, "ended with exit code", "found: cat: answer.txt: No such file"] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
    asked(&server, 3);
}

#[tokio::test]
async fn a_requirement_may_fail_three_times_before_the_run_ends() {
    let server = serve(claims(4));
    let ended = requiring(&server, "echo x >> runs; exit 7").args(["Do it."]).run().await;
    let result = fails_as(&ended, 9, "requirement_failed");
    assert_eq!(result["requirement"]["attempts"], 4);
    assert_eq!(result["requirement"]["passed"], false);
    assert_eq!(result["requirement"]["exit_code"], 7);
    assert_eq!(result["partial_result"], "Done.");
    assert_eq!(result["retryable"], false);
    let why = result["errors"][0].to_string();
    assert!(why.contains("echo x >> runs; exit 7") && why.contains("exit code 7"), "{why}");
    let ran = fs::read_to_string(ended.work().join("runs")).expect("it ran");
    assert_eq!(ran.lines().count(), 4);
    asked(&server, 4);
}

#[tokio::test]
async fn the_last_twenty_lines_of_a_failed_check_are_in_the_result_and_on_standard_error() {
    let server = serve(claims(1));
    let trial = requiring(&server, "seq 1 30; exit 7");
    let ended = with(trial, &json!({ "requireRetries": 0 })).args(["Do it."]).run().await;
    let result = fails_as(&ended, 9, "requirement_failed");
    let lines: Vec<String> = (11..=30).map(|number| number.to_string()).collect();
    assert_eq!(result["requirement"]["output"], lines.join("\n"));
    let shown = ended.stderr.lines().filter_map(|line| line.strip_prefix("outlast: | "));
    assert_eq!(shown.collect::<Vec<_>>(), lines, "{}", ended.stderr);
}

/// No process lives whose id a command wrote down.
#[track_caller]
fn assert_none_left(ended: &FinishedProcess, what: &str) {
    let pids = fs::read_to_string(ended.work().join("pids")).unwrap_or_default();
    for pid in pids.split_whitespace() {
        assert!(!is_alive(pid.parse().expect("a pid")), "{what}: {pid} lives");
    }
}

/// Does not want to end, nor do those that it starts: one in its group, one that left it.
const STUBBORN: &str = "trap '' TERM INT HUP; sleep 1000 & one=$!; \
                        setsid sleep 1000 > /dev/null 2>&1 < /dev/null & two=$!; \
                        echo $$ $one $two > pids; echo here > bell; wait; \
                        while :; do sleep 1000; done";

/// A run whose command of `--require` has begun.
async fn checking(trial: RunBuilder) -> RunningProcess {
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    bell.wait_for_line().await;
    running
}

#[tokio::test]
async fn a_signal_during_a_requirement_leaves_one_result_and_no_process() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let server = serve(claims(1));
        let running = checking(requiring(&server, STUBBORN).args(["Do it."])).await;
        let asked_at = Stopwatch::start();
        running.signal(signal);
        let ended = running.end().await;
        asked_at.assert_within(Duration::from_secs(4), signal);
        let result = fails_as(&ended, code, "aborted_tools");
        let requirement = &result["requirement"];
        assert_eq!((&requirement["passed"], &requirement["attempts"]), (&json!(false), &json!(1)));
        assert_eq!(result["partial_result"], "Done.");
        assert_none_left(&ended, "a signal");
        asked(&server, 1);
    }
}

#[tokio::test]
async fn the_deadline_applies_during_a_requirement() {
    let server = serve(claims(1));
    let watch = Stopwatch::start();
    // By then the check has begun, even on a busy machine.
    let trial = requiring(&server, STUBBORN).args(["--max-duration", "6s", "Do it."]);
    let ended = checking(trial).await.end().await;
    let result = fails_as(&ended, 5, "deadline");
    let most = watch.scaled_bound(millis(8_000));
    assert!((millis(6_000)..most).contains(&millis(took(&result))), "{result}");
    assert_eq!(result["requirement"]["attempts"], 1, "it was begun");
    assert_none_left(&ended, "the deadline");
    asked(&server, 1);
}

/// Waits until the test opens the gate.
const GATED: &str = "echo x >> runs; echo here > bell; read -r word < gate";

fn open_gate(folder: &std::path::Path) {
    let gate = fs::OpenOptions::new().read(true).write(true).open(folder.join("gate"));
    writeln!(gate.expect("it is there"), "go").expect("it has a reader");
}

#[tokio::test]
async fn a_long_requirement_check_emits_heartbeats() {
    let server = serve(claims(1));
    let trial = with(requiring(&server, GATED), &json!({ "heartbeatInterval": "50ms" }));
    let _gate = FifoSignal::at(&trial.work().join("gate"));
    let mut running = checking(trial.args(["Do it."])).await;
    running.wait_for_stderr("running --require").await;
    open_gate(&running.work());
    let ended = running.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let tells = |line: &&str| is_heartbeat(line) && line.contains("--require");
    let beat = ended.stderr.lines().find(tells).expect("a heartbeat");
    assert!(beat.contains("turn 1"), "{beat}");
}

/// The printed resume command works without further arguments.
#[tokio::test]
async fn an_interrupted_requirement_check_is_repeated_without_a_request() {
    for cut in [Some(Signal::SIGKILL), Some(Signal::SIGTERM), None] {
        let server = serve(claims(1).usage(1000, 100));
        let trial = requiring(&server, GATED);
        let _gate = FifoSignal::at(&trial.work().join("gate"));
        let trial = if cut.is_none() { trial.args(["--max-duration", "6s"]) } else { trial };
        let running = checking(trial.args(["Do it."])).await;
        if let Some(signal) = cut {
            running.signal(signal);
        }
        let ended = running.end().await;
        assert_eq!(ended.code, cut.map_or(Some(5), |it| (it == Signal::SIGTERM).then_some(143)));
        let next = serve(Scenario::new().after(AfterLast::Fail));
        let check = "echo y >> runs; test -e fixed || { echo missing; exit 1; }";
        fs::write(ended.work().join("fixed"), "").expect("written");
        let again = ended.again(&next.base_url()).args(["--continue", "--require", check]);
        // Time that was used up stays used up until a flag gives more.
        let more: &[&str] = if cut.is_none() { &["--max-duration", "10m"] } else { &[] };
        let ended = again.args(more).run().await;
        let result = agrees(&ended);
        assert_eq!(
            (ended.code, &result["result"]),
            (Some(0), &json!("Done.")),
            "{cut:?}: {ended:?}"
        );
        assert_eq!(
            (&result["num_turns"], &result["requirement"]["passed"]),
            (&json!(1), &json!(true))
        );
        assert!(result["total_cost_usd"].as_f64().is_some_and(|cost| cost > 0.0), "{result}");
        assert_eq!(fs::read_to_string(ended.work().join("runs")).expect("it ran"), "x\ny\n");
        asked(&next, 0);
        let once_more = ended.again(&next.base_url()).args(["--continue", "--require", check]);
        let ended = once_more.run().await;
        // Who asks again is told again, and what is demanded is checked again.
        assert_eq!(
            (ended.code, &ended.result()["result"]),
            (Some(0), &json!("Done.")),
            "{ended:?}"
        );
        asked(&next, 0);
    }
}

async fn killed_while_checked() -> FinishedProcess {
    let server = serve(claims(1));
    let trial = requiring(&server, GATED);
    let _gate = FifoSignal::at(&trial.work().join("gate"));
    let running = checking(trial.args(["Do it."])).await;
    running.signal(Signal::SIGKILL);
    running.end().await
}

#[tokio::test]
async fn a_repeated_requirement_check_that_fails_goes_back_to_the_model() {
    let ended = killed_while_checked().await;
    let next =
        serve(Scenario::new().tool("Bash", json!({ "command": "touch fixed" })).reply("Yes."));
    let again = ended.again(&next.base_url());
    let ended = again.args(["--continue", "--require", "test -e fixed"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(agrees(&ended)["requirement"]["attempts"], 2);
    assert!(told(&next, 1).starts_with(Nudge::Unmet.text()));
    asked(&next, 2);
}

#[tokio::test]
async fn a_new_prompt_precedes_an_interrupted_requirement_check() {
    let ended = killed_while_checked().await;
    let next = serve(Scenario::new().reply("That too."));
    let again = ended.again(&next.base_url());
    let ended = again.args(["--continue", "--require", "true", "And that."]).run().await;
    assert_eq!((ended.code, &agrees(&ended)["result"]), (Some(0), &json!("That too.")));
    assert!(told(&next, 1).contains("And that."));
    asked(&next, 1);
}

// --- effort -----------------------------------------------------------------------------------
