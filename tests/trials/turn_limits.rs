//! Trials.
//! `--max-turns N` means N replies, whatever else happens. What counts as a reply is tested in
//! [`agent::turn_limits`](crate::agent).

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use crate::agent::turn_limits::{told, works};
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve};

#[track_caller]
fn out_of_turns(ended: &FinishedProcess, turns: u32, last_words: &str) -> Value {
    let result = agrees(ended);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(result["subtype"], "error_max_turns");
    assert_eq!(result["terminal_reason"], "max_turns");
    assert_eq!(result["num_turns"], turns);
    assert_eq!(result["partial_result"], last_words);
    let id = result["session_id"].as_str().expect("an id");
    assert_eq!(result["resume"]["session_id"], id);
    result
}

#[track_caller]
fn asked(server: &RehearsalServer, requests: usize, told_in: &[usize]) {
    assert_eq!(server.requests().len(), requests);
    assert_eq!(told(server), told_in);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(server.unrequested_answers(), 0);
}

/// It waits inside the shell itself, so that nothing outlives both.
const WAITS: &str = "echo here > bell; read -r never < silent";

async fn killed_while_waiting(trial: RunBuilder) -> FinishedProcess {
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let _silent = FifoSignal::at(&trial.work().join("silent"));
    let running = trial.start();
    bell.wait_for_line().await;
    running.signal(Signal::SIGKILL);
    running.end().await
}

#[tokio::test]
async fn turns_before_a_crash_count_after_resume() {
    let waits = json!({ "command": WAITS });
    let server = serve(works(Scenario::new(), "One.").tool("Bash", waits).and_text("Two."));
    let trial = RunBuilder::against(&server).args(["do it", "--max-turns", "3"]);
    let killed = killed_while_waiting(trial).await;
    assert_eq!((killed.code, killed.stdout.as_str()), (None, ""));
    asked(&server, 2, &[]);

    let next = serve(works(Scenario::new(), "Three."));
    let trial = killed.again(&next.base_url()).args(["--continue", "--max-turns", "3"]);
    let ended = trial.run().await;
    let result = out_of_turns(&ended, 3, "Three.");
    assert_eq!(result["tools"]["unknown_outcomes"], 1);
    asked(&next, 1, &[1]);
}

#[tokio::test]
async fn no_turn_is_left_when_the_crash_used_the_last_one() {
    let waits = json!({ "command": WAITS });
    let server = serve(Scenario::new().tool("Bash", waits).and_text("The last."));
    let trial = RunBuilder::against(&server).args(["do it", "--max-turns", "1"]);
    let killed = killed_while_waiting(trial).await;

    let next = serve(Scenario::new());
    let trial = killed.again(&next.base_url()).args(["--continue", "--max-turns", "1"]);
    let ended = trial.run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["num_turns"]), (Some(3), &json!(1)), "{ended:?}");
    assert_eq!(result["partial_result"], "The last.", "what was said before is not lost");
    asked(&next, 0, &[]);
}
