//! Trials of structured output: what comes out fits, or the run says that it failed. Which answers
//! are accepted is tested in [`agent::structured_answers`](crate::agent).

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::Value;

use super::outcomes::agrees;
use super::requirements::{asked, fails_as};
use crate::agent::structured_answers::{bad, good, schema};
use crate::support::{FinishedProcess, RunBuilder, serve};

const ANSWER: &str = "StructuredOutput";

fn trial(server: &RehearsalServer) -> RunBuilder {
    RunBuilder::against(server).args(["--json-schema", &schema().to_string(), "Count them."])
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
async fn five_invalid_answers_end_the_run_without_a_structured_result() {
    let server = serve(Scenario::new().tool(ANSWER, bad()).times(5));
    let ended = trial(&server).run().await;
    let result = fails_as(&ended, 9, "structured_output_retry_exhausted");
    assert_eq!(result["subtype"], "error_max_structured_output_retries");
    assert_eq!(result["schema_attempts"], 5);
    assert_eq!(result.get("structured_output"), None);
    let why = result["errors"][0].to_string();
    assert!(why.contains("none of 5 answers"), "{why}");
    asked(&server, 5);
}

#[tokio::test]
async fn an_answer_that_a_requirement_refused_is_no_structured_output() {
    let server = serve(Scenario::new().tool(ANSWER, good()).times(4));
    let ended = trial(&server).args(["--require", "false"]).run().await;
    let result = fails_as(&ended, 9, "requirement_failed");
    assert_eq!(result.get("structured_output"), None);
    assert_eq!(result["partial_result"], good().to_string());
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
}
