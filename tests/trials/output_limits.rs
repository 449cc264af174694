//! Replies that hit the output limit, and replies that do not.

use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::resume_after_kill::{blocks, messages};
use crate::support::{FinishedProcess, RunBuilder, serve};

fn caps(server: &RehearsalServer) -> Vec<u64> {
    let cap = |request: &outlast::rehearsal::ReceivedRequest| request.body["max_tokens"].as_u64();
    server.requests().iter().filter_map(cap).collect()
}

async fn run(scenario: Scenario) -> (RehearsalServer, FinishedProcess) {
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["Write it all down."]).run().await;
    assert_eq!(server.violations(), [""; 0]);
    (server, ended)
}

/// One retry with a larger cap, three continuations, and the final error.
#[track_caller]
fn assert_exhausted(server: &RehearsalServer, ended: &FinishedProcess) -> Value {
    let result = ended.result();
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(result["terminal_reason"], "max_output_tokens");
    assert_eq!(result["is_error"], true);
    assert_eq!(caps(server), [8_192, 64_000, 64_000, 64_000, 64_000]);
    let strategies = &result["recovery"]["strategies"];
    assert_eq!(strategies["max_output_tokens_escalate"], 1, "{result}");
    assert_eq!(strategies["max_output_tokens_recovery"], 3, "{result}");
    result
}

#[tokio::test]
async fn a_tool_call_that_is_always_truncated_never_runs_and_ends_the_run() {
    let input = json!({ "command": "echo ran >> log; echo and this is a long command" });
    let scenario = Scenario::new().tool("Bash", input).cut(30).after(AfterLast::RepeatLast);
    let (server, ended) = run(scenario).await;
    let result = assert_exhausted(&server, &ended);
    assert!(!ended.work().join("log").exists(), "half a command is no command");
    assert_eq!(result["tools"]["calls"], 0);
    let last = server.requests().pop().expect("there were requests");
    assert_eq!(blocks(&last, "tool_use"), Vec::<Value>::new());
    assert!(last.body["messages"].to_string().contains("it was not run"), "{:?}", last.body);
}

/// What was cut may parse: a read-only call even starts while the reply streams.
#[tokio::test]
async fn a_tool_call_closed_by_the_output_limit_is_discarded() {
    let scenario = Scenario::new()
        .tool("Write", json!({ "file_path": "half", "content": "Half of" }))
        .stop_reason("max_tokens")
        .times(2)
        .tool("Grep", json!({ "pattern": "." }))
        .stop_reason("max_tokens")
        .reply("I give up.");
    let (_server, ended) = run(scenario).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.work().join("half").exists());
    assert_eq!(ended.result()["tools"]["calls"], 0);
}

#[tokio::test]
async fn text_that_is_always_truncated_ends_the_run_with_all_text_received() {
    let scenario = Scenario::new()
        .reply("lost ")
        .stop_reason("max_tokens")
        .reply("one ")
        .stop_reason("max_tokens")
        .reply("two ")
        .stop_reason("max_tokens")
        .reply("three ")
        .stop_reason("max_tokens")
        .reply("four")
        .stop_reason("max_tokens");
    let (server, ended) = run(scenario).await;
    let result = assert_exhausted(&server, &ended);
    assert_eq!(result["partial_result"], "one two three four");
    assert!(!result["errors"].to_string().contains("one two"), "an error is not an answer");
}

#[tokio::test]
async fn thinking_that_is_always_truncated_is_not_kept_in_the_history() {
    let scenario = Scenario::new()
        .empty()
        .and_thinking("And another thing.")
        .stop_reason("max_tokens")
        .after(AfterLast::RepeatLast);
    let (server, ended) = run(scenario).await;
    assert_exhausted(&server, &ended);
    let last = server.requests().pop().expect("there were requests");
    assert_eq!(messages(&last).len(), 1, "nothing but the user's words: {:?}", last.body);
}

#[tokio::test]
async fn a_continued_text_is_one_result() {
    let scenario = Scenario::new()
        .reply("One two th")
        .stop_reason("max_tokens")
        .reply("One two thr")
        .stop_reason("max_tokens")
        .reply("ee four ")
        .stop_reason("max_tokens")
        .reply("five.");
    let (server, ended) = run(scenario).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.result()["result"], "One two three four five.");
    assert_eq!(caps(&server), [8_192, 64_000, 64_000, 64_000]);
    let second = server.requests().remove(1);
    assert_eq!(messages(&second).len(), 1, "the larger try is the same request again");
    let args = ["report", "latest", "--format", "json"];
    let report = ended.again_bare(&server.base_url()).args(args).run().await;
    let report: Value = serde_json::from_str(&report.stdout).expect("a report");
    assert_eq!(report["sessions"][0]["answer"], "One two three four five.", "{report}");
}

/// A turn that ends normally gives the next one all its tries back.
#[tokio::test]
async fn every_turn_has_its_own_truncation_budget() {
    let cut = |scenario: Scenario| scenario.reply("More. ").stop_reason("max_tokens").times(4);
    let turn = |scenario: Scenario| cut(scenario).tool("Bash", json!({ "command": "true" }));
    let scenario = cut(turn(turn(Scenario::new()))).reply("Enough.");
    let (server, ended) = run(scenario).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let one_turn = [8_192, 64_000, 64_000, 64_000, 64_000];
    assert_eq!(caps(&server), one_turn.repeat(3));
    let result = ended.result();
    assert_eq!(result["result"], "More. More. More. Enough.", "only of the last turn");
    assert_eq!(result["recovery"]["strategies"]["max_output_tokens_escalate"], 3);
    assert_eq!(result["recovery"]["strategies"]["max_output_tokens_recovery"], 9);
}

/// A finished model gets no continuation or nudge.
#[tokio::test]
async fn a_final_answer_ends_the_run_without_a_nudge() {
    let stops = ["end_turn", "stop_sequence"];
    for stop in stops {
        let scenario = Scenario::new()
            .tool("Bash", json!({ "command": "true" }))
            .and_text("On it.")
            .reply("That is all there is to say.")
            .stop_reason(stop);
        let (server, ended) = run(scenario).await;
        assert_eq!(ended.code, Some(0), "{stop}: {ended:?}");
        assert_eq!(ended.result()["recovery"]["strategies"], json!({}), "{stop}");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{stop}");
        let texts: Vec<Value> = messages(&requests[1])
            .iter()
            .filter(|message| message["role"] == "user")
            .flat_map(|message| message["content"].as_array().cloned().unwrap_or_default())
            .filter(|block| block["type"] == "text")
            .map(|block| block["text"].clone())
            .collect();
        assert_eq!(texts, ["Write it all down."], "{stop}: the model hears the user and its tools");
    }
}
