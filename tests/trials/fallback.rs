//! Trials of history: another model takes over.

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use crate::agent::model_chains::{FIRST, SECOND};
use crate::support::requests::{blocks, messages};
use crate::support::{FinishedProcess, RunBuilder, serve};

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
