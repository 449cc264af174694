//! Trials of structured output: what comes out fits, or the run says that it failed.

use outlast::recovery::Nudge;
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use super::requirements::{asked, fails_as, told};
use super::timeouts::with;
use crate::support::requests::blocks;
use crate::support::{FinishedProcess, RunBuilder, serve};

const ANSWER: &str = "StructuredOutput";

fn schema() -> String {
    json!({
        "type": "object",
        "required": ["count", "names"],
        "additionalProperties": false,
        "properties": {
            "count": { "type": "integer", "minimum": 1 },
            "names": { "type": "array", "items": { "type": "string" } },
        },
    })
    .to_string()
}

fn good() -> Value {
    json!({ "count": 2, "names": ["a", "ü"] })
}

fn bad() -> Value {
    json!({ "count": "two", "names": ["a", 7] })
}

fn trial(server: &RehearsalServer) -> RunBuilder {
    RunBuilder::against(server).args(["--json-schema", &schema(), "Count them."])
}

/// What the model was told of its calls in the last round, as text.
fn results(server: &RehearsalServer, number: usize) -> String {
    let requests = server.requests();
    let results = blocks(&requests[number - 1], "tool_result");
    results.last().expect("a result")["content"].to_string()
}

#[track_caller]
fn delivers(ended: &FinishedProcess, answer: &Value, attempts: u32) -> Value {
    let result = agrees(ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(&result["structured_output"], answer);
    assert_eq!(result["result"], answer.to_string());
    assert_eq!(result["schema_attempts"], attempts);
    result
}

#[tokio::test]
async fn a_schema_violation_is_returned_with_each_path_and_expectation() {
    let server = serve(Scenario::new().tool(ANSWER, bad()).tool(ANSWER, good()));
    let ended = trial(&server).run().await;
    let result = delivers(&ended, &good(), 2);
    assert_eq!(result["recovery"]["strategies"], json!({ "structured_output_retry": 1 }));
    let told = results(&server, 2);
    for part in ["/count", "integer", "/names/1", "string"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    asked(&server, 2);
}

#[tokio::test]
async fn five_invalid_answers_end_the_run_without_a_structured_result() {
    // settings, variable, tries
    for (settings, variable, tries) in
        [(json!({}), None, 5), (json!({ "schemaTries": 2 }), None, 2), (json!({}), Some("3"), 3)]
    {
        let server = serve(Scenario::new().tool(ANSWER, bad()).times(tries));
        let trial = with(trial(&server), &settings);
        let trial = match variable {
            Some(value) => trial.env("MAX_STRUCTURED_OUTPUT_RETRIES", value),
            None => trial,
        };
        let ended = trial.run().await;
        let result = fails_as(&ended, 9, "structured_output_retry_exhausted");
        assert_eq!(result["subtype"], "error_max_structured_output_retries");
        assert_eq!(result["schema_attempts"], tries);
        assert_eq!(result.get("structured_output"), None);
        let why = result["errors"][0].to_string();
        assert!(why.contains(&format!("none of {tries} answers")), "{why}");
        asked(&server, tries as usize);
    }
}

#[tokio::test]
async fn a_text_without_a_structured_answer_gets_a_nudge_and_counts() {
    let server = serve(Scenario::new().reply("There are two.").tool(ANSWER, good()));
    let ended = trial(&server).run().await;
    let result = delivers(&ended, &good(), 1);
    assert_eq!(result["recovery"]["strategies"]["structured_output_retry"], 1);
    assert_eq!(told(&server, 2), Nudge::UseStructuredOutput.text());
    asked(&server, 2);

    let server = serve(Scenario::new().reply("There are two.").times(5));
    let ended = trial(&server).run().await;
    let result = fails_as(&ended, 9, "structured_output_retry_exhausted");
    assert_eq!(result["schema_attempts"], 0, "none was an answer");
    assert!(result["errors"][0].to_string().contains("never called"), "{result}");
    assert_eq!(result["partial_result"], "There are two.");
    asked(&server, 5);
}

#[tokio::test]
async fn a_truncated_structured_answer_does_not_count_as_a_try() {
    let scenario = Scenario::new().tool(ANSWER, good()).cut(12).times(3).tool(ANSWER, good());
    let server = serve(scenario);
    let ended = trial(&server).run().await;
    let result = delivers(&ended, &good(), 1);
    assert_eq!(result["recovery"]["strategies"].get("structured_output_retry"), None);
    asked(&server, 4);

    let scenario = Scenario::new().tool(ANSWER, good()).cut(12).after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let ended = trial(&server).run().await;
    let result = fails_as(&ended, 7, "max_output_tokens");
    assert_eq!(result["schema_attempts"], 0);
    assert_eq!(result.get("structured_output"), None);
}

#[tokio::test]
async fn a_structured_answer_beside_text_and_tools_is_accepted() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "touch made" }))
        .and_text("Here it is.")
        .and_tool(ANSWER, good());
    let server = serve(scenario);
    let ended = trial(&server).run().await;
    delivers(&ended, &good(), 1);
    assert!(ended.work().join("made").exists(), "what stands beside it was done");
    asked(&server, 1);
}

#[tokio::test]
async fn a_structured_answer_beside_a_failed_call_is_requested_again() {
    let later = json!({ "count": 1, "names": [] });
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "exit 1" }))
        .and_tool(ANSWER, good())
        .tool(ANSWER, later.clone());
    let server = serve(scenario);
    let ended = trial(&server).run().await;
    delivers(&ended, &later, 2);
    asked(&server, 2);
}

#[tokio::test]
async fn other_tools_may_run_before_a_structured_answer() {
    let work = (1..=8).fold(Scenario::new(), |scenario, n| {
        scenario.tool("Bash", json!({ "command": format!("echo {n}") }))
    });
    let server = serve(work.tool(ANSWER, good()));
    let ended = trial(&server).run().await;
    delivers(&ended, &good(), 1);
    asked(&server, 9);
}

#[tokio::test]
async fn the_last_turn_allows_one_structured_answer_and_no_retry() {
    let server = serve(Scenario::new().tool(ANSWER, good()));
    let ended = trial(&server).args(["--max-turns", "1"]).run().await;
    delivers(&ended, &good(), 1);
    let server = serve(Scenario::new().tool(ANSWER, bad()));
    let ended = trial(&server).args(["--max-turns", "1"]).run().await;
    let result = fails_as(&ended, 3, "max_turns");
    assert_eq!((&result["schema_attempts"], result.get("structured_output")), (&json!(1), None));
}

#[tokio::test]
async fn a_schema_and_a_requirement_are_both_enforced() {
    let later = json!({ "count": 3, "names": ["c"] });
    let scenario = Scenario::new()
        .tool(ANSWER, good())
        .tool("Bash", json!({ "command": "touch fixed" }))
        .reply("Mended.")
        .tool(ANSWER, later.clone());
    let server = serve(scenario);
    let ended = trial(&server).args(["--require", "test -e fixed"]).run().await;
    let result = delivers(&ended, &later, 2);
    assert_eq!(result["requirement"]["attempts"], 2);
    let wanted = json!({ "requirement_retry": 1, "structured_output_retry": 1 });
    assert_eq!(result["recovery"]["strategies"], wanted);
    assert!(told(&server, 2).contains(Nudge::Unmet.text()), "{}", told(&server, 2));
    assert_eq!(told(&server, 4), Nudge::UseStructuredOutput.text(), "text is still no answer");
    asked(&server, 4);

    let server = serve(Scenario::new().tool(ANSWER, good()).times(4));
    let ended = trial(&server).args(["--require", "false"]).run().await;
    let result = fails_as(&ended, 9, "requirement_failed");
    assert_eq!(result.get("structured_output"), None, "what was not accepted is no output");
    assert_eq!(result["partial_result"], good().to_string());
}

/// The shape is there; asking for more must not cost it.
#[tokio::test]
async fn effort_nudges_do_not_risk_a_structured_answer() {
    let server = serve(Scenario::new().tool(ANSWER, good()).usage(100, 10));
    let trial = with(trial(&server), &json!({ "schemaTries": 1 }));
    let ended = trial.args(["--token-budget", "10k"]).run().await;
    delivers(&ended, &good(), 1);
    asked(&server, 1);
}

#[tokio::test]
async fn every_output_format_has_the_structured_answer() {
    let format = |format: &'static str| async move {
        let server = serve(Scenario::new().tool(ANSWER, bad()).tool(ANSWER, good()));
        trial(&server).args(["--output-format", format]).run().await
    };
    let text = format("text").await;
    assert_eq!((text.code, text.stdout.as_str()), (Some(0), format!("{}\n", good()).as_str()));
    let stream = format("stream-json").await;
    delivers(&stream, &good(), 2);
    let kinds: Vec<String> = stream
        .frames()
        .iter()
        .map(|frame| frame["type"].as_str().unwrap_or("?").to_owned())
        .collect();
    assert_eq!(kinds.last().map(String::as_str), Some("result"), "{kinds:?}");
    let users = stream.frames().into_iter().filter(|frame| frame["type"] == "user");
    let told: String = users.map(|frame| frame.to_string()).collect();
    assert!(told.contains("/count"), "{told}");

    let server = serve(Scenario::new().tool(ANSWER, bad()).times(5));
    let ended = trial(&server).args(["--output-format", "text"]).run().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(9), ""), "{ended:?}");
    assert!(ended.stderr.contains("none of 5 answers"), "{}", ended.stderr);
}
