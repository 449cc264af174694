//! Trials.
//! Cancelled jobs of a CI system: it signals only the step's shell. Its signals are sent here in
//! their order, without its pauses.

use std::process::Stdio;

use nix::sys::signal::Signal::{self, SIGINT, SIGKILL, SIGTERM};
use outlast::rehearsal::{FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use serde_json::Value;

use crate::support::{FinishedProcess, RunBuilder, serve, with_time_limit};

/// The pauses between them are 7.5 and 2.5 seconds.
const SEQUENCE: [Signal; 2] = [SIGINT, SIGTERM];

/// A step that is cancelled in the middle of a request.
async fn cancelled(step: &str, signals: &[Signal]) -> (FinishedProcess, RehearsalServer) {
    let server =
        serve(Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(4)));
    let trial = RunBuilder::against(&server).args(["do it", "--result-file", "result.json"]);
    std::fs::write(trial.work().join("step.sh"), step).expect("a new file");
    let trial = trial.env("GITHUB_ACTIONS", "true").env("CI", "true").stdin(Stdio::null());
    let runner = trial.in_shell("exec setsid bash -e -o pipefail step.sh \"$@\"").start();
    with_time_limit("the request", server.wait_for_request(1)).await;
    for signal in signals {
        runner.signal(*signal);
    }
    // Standard output ends with the last who holds it.
    (runner.end().await, server)
}

fn kept(ended: &FinishedProcess) -> Value {
    let text = std::fs::read_to_string(ended.work().join("result.json")).expect("it is there");
    serde_json::from_str(&text).expect("one object")
}

#[tokio::test]
async fn a_cancelled_step_leaves_its_result_whatever_its_shell_does() {
    let cases: [(&str, &str, &[Signal], i64); 4] = [
        ("plain", "\"$@\"\n", &SEQUENCE, 143),
        ("in a pipeline", "\"$@\" | cat\n", &SEQUENCE, 143),
        ("exec", "exec \"$@\"\n", &SEQUENCE[..1], 130),
        ("killed at once", "\"$@\"\n", &[SIGKILL], 143),
    ];
    for (name, step, signals, code) in cases {
        let (ended, server) = cancelled(step, signals).await;
        let kept = kept(&ended);
        assert_eq!(kept["exit_code"], code, "{name}: {ended:?}");
        assert_eq!(kept["terminal_reason"], "aborted_streaming", "{name}");
        let told: Value = serde_json::from_str(&ended.stdout).expect("one object");
        assert_eq!(told, kept, "{name}");
        assert_eq!(server.requests().len(), 1, "{name}: nothing is sent afterwards");
    }
}
