//! Trials of how sub-agents end: stopped with the run, cut off by a kill, waited for in the
//! background.

use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::recovery::Nudge;
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::json;

use super::agents::{in_background, of_agent, of_root, requests, results, task};
use super::outcomes::agrees;
use super::requirements::{asked, fails_as, told};
use super::timeouts::{messages, with};
use crate::support::stopwatch::Stopwatch;
use crate::support::{FifoSignal, RunBuilder, is_alive, serve};

/// Rings with its id, and never ends.
const STUCK: &str = "echo $$ > bell; exec sleep 1000";

fn pid(rung: &str) -> i32 {
    rung.trim().parse().expect("a process rings with its id")
}

#[tokio::test]
async fn a_signal_to_the_root_ends_every_descendant_and_no_request_follows() {
    let scenario = Scenario::new()
        .tool("Agent", task("outer"))
        .and_tool("Agent", task("asks for ever"))
        .when(of_root())
        .tool("Agent", task("inner"))
        .when(of_agent("outer"))
        .tool("Bash", json!({ "command": STUCK }))
        .when(of_agent("inner"))
        .tool("Bash", json!({ "command": "true" }))
        .when(of_agent("asks for ever"))
        .delay(Duration::from_millis(50))
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let settings = json!({ "loopNoteAt": 0, "loopStopAt": 0 });
    let trial = with(RunBuilder::against(&server), &settings).args(["Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let inner = pid(&bell.wait_for_line().await);
    let began = Stopwatch::start();
    running.signal(Signal::SIGTERM);
    let ended = running.end().await;
    began.assert_within(Duration::from_secs(3), "the end of them all");
    let count = server.requests().len();
    let result = fails_as(&ended, 143, "aborted_tools");
    assert!(!is_alive(inner));
    let agents = result["agents"].as_array().expect("agents");
    assert_eq!(agents.len(), 3, "{result}");
    assert!(agents.iter().all(|agent| agent["status"] == "stopped"), "{result}");
    assert_eq!(server.requests().len(), count, "nothing follows");
}

#[tokio::test]
async fn the_deadline_applies_to_agents() {
    let scenario = Scenario::new()
        .tool("Agent", task("slow"))
        .when(of_root())
        .reply("Too late.")
        .when(of_agent("slow"))
        .delay(Duration::from_mins(5));
    let server = serve(scenario);
    let began = Stopwatch::start();
    let ended = RunBuilder::against(&server).args(["--max-duration", "6s", "Go."]).run().await;
    let result = fails_as(&ended, 5, "deadline");
    began.assert_within(Duration::from_secs(9), "the end");
    assert_eq!(result["agents"][0]["reason"], "deadline", "{result}");
}

#[tokio::test]
async fn a_background_agent_is_waited_for_and_its_report_delivered() {
    let scenario = Scenario::new()
        .tool("Agent", in_background("late"))
        .when(of_root())
        .reply("It works.")
        .when(of_root())
        .reply("I found the answer.")
        .when(of_agent("late"))
        .delay(Duration::from_secs(3))
        .reply("All is known.")
        .when(of_root());
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["--output-format", "stream-json", "Go."]);
    let ended = trial.run().await;
    let result = agrees(&ended);
    assert_eq!(
        (ended.code, &result["result"]),
        (Some(0), &json!("It works.\n\nAll is known.")),
        "{ended:?}"
    );
    asked(&server, 4);
    let words = told(&server, 4);
    assert!(words.starts_with(Nudge::WorkEnded.text()), "{words}");
    assert!(words.contains("a1 (agent general-purpose, `a part`) ended after"), "{words}");
    assert!(words.contains("  I found the answer."), "{words}");
    let task = &result["background"][0];
    assert_eq!((&task["id"], &task["kind"]), (&json!("a1"), &json!("agent")));
    assert_eq!(result["agents"][0]["background"], true);
    let started = messages(&ended, "task_started");
    assert_eq!((started.len(), &started[0]["is_backgrounded"]), (1, &json!(true)));
}

#[tokio::test]
async fn a_background_agent_that_does_not_end_is_stopped_and_named() {
    let scenario = Scenario::new()
        .tool("Agent", in_background("never"))
        .when(of_root())
        .reply("It works.")
        .when(of_root())
        .times(2)
        .reply("Never.")
        .when(of_agent("never"))
        .delay(Duration::from_mins(5));
    let server = serve(scenario);
    let trial =
        with(RunBuilder::against(&server), &json!({ "backgroundWait": "4s" })).args(["Go."]);
    let ended = trial.run().await;
    let result = fails_as(&ended, 9, "background_pending");
    assert!(result["errors"][0].as_str().is_some_and(|why| why.contains("a1")), "{result}");
    assert_eq!(result["background"][0]["status"], "cut");
    assert_eq!(result["agents"][0]["status"], "stopped");
}

#[tokio::test]
async fn a_background_agent_is_stopped_by_its_id() {
    let scenario = Scenario::new()
        .tool("Agent", in_background("never"))
        .when(of_root())
        .tool("KillShell", json!({ "shell_id": "a1" }))
        .when(of_root())
        .reply("Never.")
        .when(of_agent("never"))
        .delay(Duration::from_mins(5))
        .times(100)
        .reply("Stopped.")
        .when(of_root());
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["Go."]).run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Stopped.")), "{ended:?}");
    assert_eq!(result["background"][0]["status"], "killed");
}

#[tokio::test]
async fn after_a_kill_the_agents_finished_work_and_spend_are_known() {
    let scenario = Scenario::new()
        .tool("Agent", task("the part"))
        .usage(1_000, 100)
        .when(of_root())
        .tool("Bash", json!({ "command": "echo done > finished" }))
        .and_text("The first half is done.")
        .usage(1_000, 1_000)
        .when(of_agent("the part"))
        .tool("Bash", json!({ "command": STUCK }))
        .usage(1_000, 1_000)
        .when(of_agent("the part"));
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["--max-budget-usd", "5", "Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let stuck = pid(&bell.wait_for_line().await);
    running.signal(Signal::SIGKILL);
    let ended = running.end().await;
    assert_eq!(ended.code, None);
    let next = serve(Scenario::new().reply("I see.").usage(1_000, 100));
    let again = ended.again(&next.base_url());
    let ended = again.args(["--max-budget-usd", "5", "--continue"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = requests(&next, "main").pop().expect("it asked");
    let [(text, is_error)] = &results(&last)[..] else { panic!("one result") };
    assert!(*is_error, "{text}");
    for part in ["outcome unknown", "agent a1", "Bash: echo done", "The first half is done."] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("Bash: echo $$"), "what did not end is not finished: {text}");
    assert!(text.contains(&format!("Bash `{STUCK}` was running when it ended")), "{text}");
    let usage = result["modelUsage"].as_object().expect("models");
    let output: u64 = usage.values().filter_map(|line| line["outputTokens"].as_u64()).sum();
    assert_eq!(output, 100 + 1_000 + 1_000 + 100, "{result}");
    assert_eq!(result["num_turns"], 2);
    assert!(!is_alive(stuck));
}

/// The secret lies across the place where what is shown of each of these texts ends.
#[tokio::test]
async fn a_failed_agent_does_not_reveal_part_of_a_secret() {
    let key = "test-key-0123456789";
    let across = |room: usize| format!("{}{key} and more.", "x".repeat(room - 8));
    let scenario = Scenario::new()
        .tool("Agent", task("the part"))
        .when(of_root())
        .tool("Bash", json!({ "command": "true" }))
        .and_text(&across(4_000))
        .when(of_agent("the part"))
        .status(401)
        .error("authentication_error", &across(300 - "HTTP 401, ".len()), None)
        .times(2)
        .when(of_agent("the part"))
        .reply("I see.")
        .when(of_root());
    let server = serve(scenario);
    let ended =
        RunBuilder::against(&server).args(["--output-format", "stream-json", "Go."]).run().await;
    let result = agrees(&ended);
    assert_eq!(result["agents"][0]["status"], "failed", "{result}");
    let told = requests(&server, "main").pop().expect("it asked").body.to_string();
    assert!(told.contains("xxxx") && result["agents"][0]["error"].to_string().contains("xxxx"));
    for text in [&told, &ended.stdout, &ended.stderr] {
        let place = text.find("test-k").map(|at| &text[at.saturating_sub(100)..]);
        assert_eq!(place, None);
    }
    let id = result["session_id"].as_str().expect("an id");
    let again = ended.again(&server.base_url()).args(["--resume", id]);
    let again = again.args(["--output-format", "json"]).run().await.result();
    assert_eq!(again["agents"], result["agents"], "the record of the agent is the same");
    assert_ne!(again["agents"][0]["requests"], 0);
}
