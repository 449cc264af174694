//! Trials of history: another model takes over.

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::resume_after_kill::{blocks, messages};
use crate::support::{FinishedProcess, RunBuilder, serve};

const FIRST: &str = "claude-sonnet-5-5";
const SECOND: &str = "claude-opus-5-5";
const THIRD: &str = "claude-haiku-5-5";

fn asked(server: &RehearsalServer) -> Vec<String> {
    server.requests().iter().map(|request| request.model().to_owned()).collect()
}

async fn run(scenario: Scenario, chain: &str) -> (RehearsalServer, FinishedProcess) {
    let server = serve(scenario);
    let ended = RunBuilder::against(&server)
        .args(["--output-format", "stream-json", "--fallback-model", chain, "Do it."])
        .run()
        .await;
    assert_eq!(server.violations(), [""; 0], "{ended:?}");
    (server, ended)
}

fn switches(ended: &FinishedProcess) -> Vec<Value> {
    let frames = ended.frames();
    let switches = frames.iter().filter(|frame| frame["subtype"] == "model_fallback");
    switches.map(|frame| json!([frame["from_model"], frame["to_model"]])).collect()
}

#[tokio::test]
async fn after_three_overloads_the_next_model_continues_the_turn() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo kept" }))
        .and_thinking("Only I may read this.")
        .usage(1000, 100)
        .status(529)
        .times(3)
        .reply("Done by another.")
        .usage(1000, 100);
    let (server, ended) = run(scenario, "opus").await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(asked(&server), [FIRST, FIRST, FIRST, FIRST, SECOND]);
    assert_eq!(switches(&ended), [json!([FIRST, SECOND])], "told once");
    assert_eq!(ended.stderr.matches("switched from").count(), 1, "{ended:?}");
    let usage = result["modelUsage"].as_object().expect("it is there");
    let names: Vec<&String> = usage.keys().collect();
    assert_eq!(names, [FIRST, SECOND]);
    assert_eq!(usage[FIRST]["costUSD"], 0.003);
    assert_eq!(usage[SECOND]["costUSD"], 0.006);
    assert_eq!(result["total_cost_usd"], 0.009);
    assert_eq!(result["recovery"]["strategies"]["model_fallback"], 1, "{result}");
    let requests = server.requests();
    assert_eq!(blocks(&requests[3], "thinking").len(), 1);
    let raw = String::from_utf8_lossy(&requests[4].raw).into_owned();
    assert_eq!(blocks(&requests[4], "thinking").len(), 0);
    assert!(!raw.contains("Only I may") && !raw.contains("signature"), "{raw}");
    assert!(raw.contains("kept"), "the rest of the turn stays");
    assert_eq!(messages(&requests[4]).len(), messages(&requests[3]).len());
}

#[tokio::test]
async fn two_overloads_are_waited_out() {
    let scenario = Scenario::new().status(529).times(2).reply("Done.");
    let (server, ended) = run(scenario, "opus").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(asked(&server), [FIRST, FIRST, FIRST]);
    assert_eq!(switches(&ended), Vec::<Value>::new());
}

#[tokio::test]
async fn a_model_that_does_not_exist_is_replaced_at_once_and_tried_once() {
    let missing = |scenario: Scenario, name: &str| {
        let words = format!("model: {name}");
        scenario.status(404).error("not_found_error", &words, None)
    };
    let scenario = missing(missing(Scenario::new(), FIRST), SECOND)
        .tool("Bash", json!({ "command": "true" }))
        .reply("Done.");
    let (server, ended) = run(scenario, "opus,haiku").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(asked(&server), [FIRST, SECOND, THIRD, THIRD]);
    assert_eq!(switches(&ended), [json!([FIRST, SECOND]), json!([SECOND, THIRD])]);
    assert!(!ended.stderr.contains("high demand"), "that was not why: {ended:?}");
}

#[tokio::test]
async fn when_every_model_fails_the_run_says_so() {
    let scenario = Scenario::new().status(404).times(2);
    let (server, ended) = run(scenario, "opus").await;
    let result = ended.result();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(result["api_error_class"], "invalid_model");
    assert_eq!(asked(&server), [FIRST, SECOND], "each is tried once");
}
