//! Trials.
//! `--max-turns N` means N replies, whatever else happens.

use nix::sys::signal::Signal;
use outlast::recovery::Nudge;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve};

fn listing() -> Value {
    json!({ "pattern": "*" })
}

/// A reply that asks for three tools at once.
fn works(scenario: Scenario, words: &str) -> Scenario {
    let scenario = scenario.tool("Glob", listing()).and_text(words);
    scenario.and_tool("Glob", listing()).and_tool("TodoWrite", json!({ "todos": [] }))
}

async fn run(server: &RehearsalServer, turns: u32) -> FinishedProcess {
    let trial = RunBuilder::against(server).args(["do it", "--max-turns", &turns.to_string()]);
    trial.args(["--time-scale", "100", "--first-byte-timeout", "1h"]).run().await
}

/// The requests, counted from 1, in which the model is told that this is its last reply.
fn told(server: &RehearsalServer) -> Vec<usize> {
    let notices = [Nudge::LastTurn.text(), Nudge::ContinueLast.text()];
    let tells = |body: &Value| {
        let last = body["messages"].as_array().and_then(|all| all.last()).expect("a message");
        last["content"].as_array().expect("blocks").iter().any(|block| {
            block["text"].as_str().is_some_and(|text| notices.iter().any(|it| text.contains(it)))
        })
    };
    let requests = server.requests();
    let tells = (1..).zip(&requests).filter(|(_, request)| tells(&request.body));
    tells.map(|(number, _)| number).collect()
}

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

#[tokio::test]
async fn concurrent_tools_count_as_one_turn() {
    for turns in [1, 2, 4] {
        let words = |number| format!("Step {number}.");
        let steps = (1..=turns).fold(Scenario::new(), |steps, turn| works(steps, &words(turn)));
        let server = serve(steps);
        let ended = run(&server, turns).await;
        let result = out_of_turns(&ended, turns, &words(turns));
        assert_eq!(result["tools"]["calls"], 3 * turns, "the last reply's tools run too");
        asked(&server, turns as usize, &[turns as usize]);
    }
}

#[tokio::test]
async fn an_answer_in_the_last_turn_is_a_success() {
    let server = serve(works(Scenario::new(), "Looking.").reply("Found it."));
    let ended = run(&server, 2).await;
    assert_eq!(agrees(&ended)["num_turns"], 2);
    assert_eq!(ended.result()["result"], "Found it.");
    asked(&server, 2, &[2]);
}

#[tokio::test]
async fn failed_attempts_do_not_count_as_turns() {
    let scenario = works(Scenario::new().status(529).times(2), "One.").empty();
    let server = serve(works(scenario.status(500), "Two."));
    let ended = run(&server, 2).await;
    out_of_turns(&ended, 2, "Two.");
    asked(&server, 6, &[4, 5, 6]);
}

#[tokio::test]
async fn a_repeated_reply_counts_once_and_its_continuation_counts_too() {
    let cut = |scenario: Scenario, words| scenario.reply(words).stop_reason("max_tokens");
    // The first is dropped for a larger limit; the second is kept, and goes on in the third.
    let server = serve(cut(cut(cut(Scenario::new(), "Lost."), "Once upon "), "a time"));
    let ended = run(&server, 2).await;
    out_of_turns(&ended, 2, "Once upon a time");
    asked(&server, 3, &[3]);
}

#[tokio::test]
async fn a_continued_paused_turn_counts() {
    let paused = works(Scenario::new(), "Looking.").reply("Wait.").stop_reason("pause_turn");
    let server = serve(paused);
    let ended = run(&server, 2).await;
    out_of_turns(&ended, 2, "Wait.");
    asked(&server, 2, &[2]);
}

#[tokio::test]
async fn turns_before_a_crash_count_after_resume() {
    // The command waits inside the shell itself, so that nothing outlives both.
    let waits = json!({ "command": "echo here > bell; read -r never < silent" });
    let server = serve(works(Scenario::new(), "One.").tool("Bash", waits).and_text("Two."));
    let trial = RunBuilder::against(&server).args(["do it", "--max-turns", "3"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let _silent = FifoSignal::at(&trial.work().join("silent"));
    let running = trial.start();
    bell.wait_for_line().await;
    running.signal(Signal::SIGKILL);
    let killed = running.end().await;
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
    let waits = json!({ "command": "echo here > bell; read -r never < silent" });
    let server = serve(Scenario::new().tool("Bash", waits).and_text("The last."));
    let trial = RunBuilder::against(&server).args(["do it", "--max-turns", "1"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let _silent = FifoSignal::at(&trial.work().join("silent"));
    let running = trial.start();
    bell.wait_for_line().await;
    running.signal(Signal::SIGKILL);
    let killed = running.end().await;

    let next = serve(Scenario::new());
    let trial = killed.again(&next.base_url()).args(["--continue", "--max-turns", "1"]);
    let ended = trial.run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["num_turns"]), (Some(3), &json!(1)), "{ended:?}");
    assert_eq!(result["partial_result"], "The last.", "what was said before is not lost");
    asked(&next, 0, &[]);
}
