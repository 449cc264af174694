//! Trials.
//! A run that receives a signal ends soon, with a result, and with no process left behind.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
use outlast::rehearsal::{FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::outcomes::agrees;
use crate::support::stopwatch::Stopwatch;
use crate::support::{
    FifoSignal, FinishedProcess, RunBuilder, RunningProcess, is_alive, serve, with_time_limit,
};

/// Longest time from the first signal to the end of a run.
const SOON: Duration = Duration::from_secs(4);

const SIGNALS: [(Signal, i32); 3] = [(SIGINT, 130), (SIGTERM, 143), (SIGHUP, 129)];

/// A command that does not want to end, nor do those that it starts, and rings once it runs: one
/// in its group, one that left it.
const STUBBORN: &str = "trap '' TERM INT HUP; sleep 1000 & one=$!; \
                        setsid sleep 1000 > /dev/null 2>&1 < /dev/null & two=$!; \
                        echo $$ $one $two > bell; wait";

/// Says nothing after a few words.
fn stalled() -> Scenario {
    Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(4))
}

/// Signals, and waits for the end.
async fn stop(running: RunningProcess, signal: Signal) -> FinishedProcess {
    let asked = Stopwatch::start();
    running.signal(signal);
    let ended = running.end().await;
    asked.assert_within(SOON, format_args!("after {signal}: {ended:?}"));
    ended
}

/// The result of a run that was stopped.
#[track_caller]
fn aborted(ended: &FinishedProcess, code: i32, reason: &str) -> Value {
    let result = agrees(ended);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(result["terminal_reason"], reason);
    assert_eq!(result["api_error_class"], "aborted");
    assert_eq!(result["retryable"], false);
    assert_eq!(result["durable"], true);
    result
}

/// Goes on with the session where it ended, first without a word, and then with a new task.
async fn goes_on(ended: FinishedProcess, server: &RehearsalServer, requests: usize) {
    assert_eq!(server.requests().len(), requests, "no request after the signal");
    assert_eq!(server.violations(), Vec::<String>::new());
    let next = serve(Scenario::new().reply("Went on.").reply("And on."));
    let ended = ended.again(&next.base_url()).args(["--continue"]).run().await;
    assert_eq!(ended.result()["result"], "Went on.", "{ended:?}");
    let ended = ended.again(&next.base_url()).args(["--continue", "more"]).run().await;
    assert_eq!(ended.result()["result"], "And on.", "{ended:?}");
    assert_eq!(next.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_signal_while_the_model_streams_ends_the_run_soon() {
    for (signal, code) in SIGNALS {
        let server = serve(stalled());
        let running = RunBuilder::against(&server).args(["do it"]).start();
        with_time_limit("the request", server.wait_for_request(1)).await;
        let ended = stop(running, signal).await;
        let result = aborted(&ended, code, "aborted_streaming");
        assert_eq!(result["num_turns"], 0);
        with_time_limit("the client's leaving", server.wait_for_abort(1)).await;
        goes_on(ended, &server, 1).await;
    }
}

#[tokio::test]
async fn a_signal_while_a_command_runs_leaves_no_process_behind() {
    for (signal, code) in SIGNALS {
        let server = serve(
            Scenario::new()
                .tool("Read", json!({ "file_path": "here.txt" }))
                .and_tool("Bash", json!({ "command": STUBBORN }))
                .and_tool("Bash", json!({ "command": "touch never" })),
        );
        let trial = RunBuilder::against(&server).args(["do it"]);
        std::fs::write(trial.work().join("here.txt"), "something\n").expect("written");
        let mut bell = FifoSignal::at(&trial.work().join("bell"));
        let running = trial.start();
        let rung = bell.wait_for_line().await;
        let ended = stop(running, signal).await;
        let result = aborted(&ended, code, "aborted_tools");
        for pid in rung.split(' ') {
            assert!(!is_alive(pid.parse().expect("a pid")), "{pid} of {rung} after {signal}");
        }
        assert!(!ended.work().join("never").exists(), "nothing starts after the signal");
        assert_eq!((&result["num_turns"], &result["tools"]["abandoned"]), (&json!(1), &json!(2)));
        let journal = ended.config().join("projects");
        let journal = std::fs::read_dir(journal).expect("kept").next().expect("one").expect("read");
        let journal = std::fs::read_dir(journal.path()).expect("kept");
        let journal: Vec<_> = journal.flatten().filter(|entry| entry.path().is_file()).collect();
        let told = std::fs::read_to_string(journal[0].path()).expect("text");
        assert!(told.contains("something"), "what had finished is kept");
        assert!(told.contains("Interrupted by user"), "what had not is answered");
        goes_on(ended, &server, 1).await;
    }
}

#[tokio::test]
async fn a_signal_while_a_retry_is_awaited_ends_the_run_at_once() {
    for (signal, code) in SIGNALS {
        let server = serve(Scenario::new().status(529).header("retry-after", "300"));
        let mut running = RunBuilder::against(&server).args(["do it"]).start();
        running.wait_for_stderr("waiting").await;
        let asked = Stopwatch::start();
        let ended = stop(running, signal).await;
        asked.assert_within(Duration::from_secs(2), "nothing had to be ended");
        let result = aborted(&ended, code, "aborted_streaming");
        assert_eq!(result["recovery"]["requests"], 1);
        goes_on(ended, &server, 1).await;
    }
}

#[tokio::test]
async fn a_signal_before_the_first_request_yields_a_result() {
    let server = serve(Scenario::new());
    let trial = RunBuilder::against(&server).args(["do it", "--settings"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let helper = json!({ "apiKeyHelper": "echo $$ > bell; sleep 1000" });
    let running = trial.args([helper.to_string()]).start();
    let helper = bell.wait_for_line().await;
    let ended = stop(running, SIGTERM).await;
    let result = aborted(&ended, 143, "aborted_streaming");
    assert_eq!(result["num_turns"], 0);
    assert!(!is_alive(helper.parse().expect("a pid")), "the helper has ended too");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_signal_while_the_prompt_is_read_yields_a_result_and_its_file() {
    let server = serve(Scenario::new());
    let often = ["--settings", r#"{"heartbeatInterval": "50ms"}"#];
    let trial = RunBuilder::against(&server).args(often).args(["--result-file", "result.json"]);
    let mut running = trial.stdin(Stdio::piped()).start();
    let _held_open = running.child.stdin.take();
    running.wait_for_stderr("waiting for standard input").await;
    let ended = stop(running, SIGHUP).await;
    let kept = std::fs::read_to_string(ended.work().join("result.json")).expect("it is there");
    assert_eq!((ended.code, &ended.stdout), (Some(129), &kept));
    assert_eq!(agrees(&ended)["session_id"], "");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_second_interrupt_ends_the_run_and_its_commands_at_once() {
    let command = "trap 'echo told > bell' TERM; \
                   (trap '' TERM; exec sleep 1000) & one=$!; \
                   (trap '' TERM; exec setsid sleep 1000 > /dev/null 2>&1 < /dev/null) & two=$!; \
                   echo $$ $one $two > bell; wait; wait; wait";
    let server = serve(Scenario::new().tool("Bash", json!({ "command": command })));
    let trial = RunBuilder::against(&server).args(["do it"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let rung = bell.wait_for_line().await;
    running.signal(SIGINT);
    assert_eq!(bell.wait_for_line().await, "told", "the first one was heard");
    let asked = Stopwatch::start();
    running.signal(SIGINT);
    let ended = running.end().await;
    asked.assert_within(Duration::from_millis(1500), "after the second one");
    aborted(&ended, 130, "aborted_tools");
    // The kernel may still be at it.
    let gone = async {
        while rung.split(' ').any(|pid| is_alive(pid.parse().expect("a pid"))) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_time_limit("the end of its commands", gone).await;
    goes_on(ended, &server, 1).await;
}

#[tokio::test]
async fn a_run_leaves_no_daemon_behind_when_it_succeeds() {
    let daemon = "setsid sh -c 'echo $$ > bell; exec sleep 1000' > /dev/null 2>&1 < /dev/null & \
                  read -r go < gate";
    let server =
        serve(Scenario::new().tool("Bash", json!({ "command": daemon })).reply("It runs."));
    let trial = RunBuilder::against(&server).args(["start it"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let gate = trial.work().join("gate");
    let _gate = FifoSignal::at(&gate);
    let running = trial.start();
    let daemon = bell.wait_for_line().await;
    std::fs::write(gate, "go\n").expect("the command reads it");
    let ended = running.end().await;
    assert_eq!(ended.result()["result"], "It runs.");
    assert!(!is_alive(daemon.parse().expect("a pid")));
}

/// A shell that starts a run, as a CI system's step does, and is killed before it is over.
async fn killed_step(server: &RehearsalServer, variable: (&str, &str)) -> FinishedProcess {
    let trial = RunBuilder::against(server).args(["do it", "--result-file", "result.json"]);
    let step = trial.env(variable.0, variable.1).in_shell("\"$@\" & wait").start();
    with_time_limit("the request", server.wait_for_request(1)).await;
    step.signal(SIGKILL);
    // Its standard output ends with the run.
    let ended = step.end().await;
    assert_eq!(ended.code, None, "the step was killed");
    ended
}

#[tokio::test]
async fn a_ci_job_whose_shell_is_killed_still_ends_with_its_result() {
    for name in ["CI", "GITHUB_ACTIONS"] {
        let server = serve(stalled());
        let ended = killed_step(&server, (name, "true")).await;
        let kept = std::fs::read_to_string(ended.work().join("result.json")).expect("it is there");
        assert_eq!(ended.stdout, kept);
        let result: Value = serde_json::from_str(&kept).expect("one object");
        assert_eq!((&result["exit_code"], &result["is_error"]), (&json!(143), &json!(true)));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn elsewhere_a_run_outlives_its_shell() {
    let slow = Scenario::new().reply("Still here.").delay(Duration::from_secs(1));
    let server = serve(slow);
    let ended = killed_step(&server, ("CI", "false")).await;
    let result: Value = serde_json::from_str(&ended.stdout).expect("one object");
    assert_eq!(result["result"], "Still here.");
}
