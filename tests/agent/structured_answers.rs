//! Answers with a schema: which are accepted, which are asked for again, and how often.

use outlast::recovery::{Nudge, StopReason};
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::{Value, json};

use super::run_fixture::{FinishedRun, RunFixture};
use crate::support::requests::blocks;

const ANSWER: &str = "StructuredOutput";

pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["count", "names"],
        "additionalProperties": false,
        "properties": {
            "count": { "type": "integer", "minimum": 1 },
            "names": { "type": "array", "items": { "type": "string" } },
        },
    })
}

pub(crate) fn good() -> Value {
    json!({ "count": 2, "names": ["a", "ü"] })
}

pub(crate) fn bad() -> Value {
    json!({ "count": "two", "names": ["a", 7] })
}

/// A run that must answer by the schema.
fn counting(scenario: Scenario) -> RunFixture {
    RunFixture::of(scenario).answering(&schema())
}

/// The run is a success with this answer, after so many answers in so many requests.
#[track_caller]
fn assert_delivers(played: &FinishedRun, answer: &Value, attempts: u32, requests: usize) {
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    assert_eq!(played.ending.acceptance.structured_output.as_ref(), Some(answer));
    assert_eq!(played.ending.acceptance.schema_attempts, Some(attempts));
    played.assert_asked(requests);
}

/// The run fails without an answer, though there were so many.
#[track_caller]
fn assert_fails(played: &FinishedRun, reason: StopReason, attempts: u32, requests: usize) {
    assert_eq!(played.ending.reason, reason, "{:?}", played.trace());
    assert_eq!(played.ending.acceptance.structured_output, None);
    assert_eq!(played.ending.acceptance.schema_attempts, Some(attempts));
    played.assert_asked(requests);
}

#[tokio::test]
async fn a_schema_violation_is_returned_with_each_path_and_expectation() {
    let scenario = Scenario::new().tool(ANSWER, bad()).tool(ANSWER, good());
    let played = counting(scenario).run().await;
    assert_delivers(&played, &good(), 2, 2);
    assert_eq!(played.strategies(), json!({ "structured_output_retry": 1 }));
    let results = blocks(&played.server.requests()[1], "tool_result");
    let told = results.last().expect("a result")["content"].to_string();
    for part in ["/count", "integer", "/names/1", "string"] {
        assert!(told.contains(part), "{part} in {told}");
    }
}

#[tokio::test]
async fn invalid_answers_end_the_run_once_the_tries_are_used_up() {
    for tries in [1, 2, 5] {
        let fixture = counting(Scenario::new().tool(ANSWER, bad()).times(tries.into()));
        let played = fixture.limits(|limits| limits.budgets.schema_tries = tries - 1).run().await;
        let reason = StopReason::StructuredOutputRetryExhausted;
        assert_fails(&played, reason, tries.into(), tries.into());
    }
}

#[tokio::test]
async fn a_text_without_a_structured_answer_gets_a_nudge_and_counts() {
    let scenario = Scenario::new().reply("There are two.").tool(ANSWER, good());
    let played = counting(scenario).run().await;
    assert_delivers(&played, &good(), 1, 2);
    assert_eq!(played.strategies(), json!({ "structured_output_retry": 1 }));
    assert_eq!(played.told(2), Nudge::UseStructuredOutput.text());

    let played = counting(Scenario::new().reply("There are two.").times(5)).run().await;
    // None was an answer.
    assert_fails(&played, StopReason::StructuredOutputRetryExhausted, 0, 5);
    assert_eq!(played.ending.text, "There are two.");
}

/// Models of small local servers often write their answer instead of calling the tool.
#[tokio::test]
async fn json_text_is_a_structured_answer() {
    let json = good().to_string();
    let call = |field: &str, input: &Value| json!({ "name": ANSWER, field: input }).to_string();
    for text in [
        json.clone(),
        format!("\n```json\n{json}\n```\n"),
        format!("There are two:\n\n```\n{json}\n```"),
        call("parameters", &good()),
        call("arguments", &json!(json)),
        format!("```json\n{}\n```", call("input", &good())),
    ] {
        let played = counting(Scenario::new().reply(&text)).run().await;
        assert_delivers(&played, &good(), 1, 1);
    }
    for (schema, text, answer) in [
        (json!({ "type": "integer" }), " 42\n", json!(42)),
        (json!({ "type": "array" }), "```json\n[1]\n```", json!([1])),
        (json!({ "enum": ["yes", "no"] }), r#""yes""#, json!("yes")),
        (json!({ "type": "integer" }), r#"{"answer": 42}"#, json!(42)),
    ] {
        let fixture = RunFixture::of(Scenario::new().reply(text)).answering(&schema);
        assert_delivers(&fixture.run().await, &answer, 1, 1);
    }
    let (begin, end) = json.split_at(9);
    let cut = Scenario::new().reply(begin).stop_reason("max_tokens").times(2);
    assert_delivers(&counting(cut.reply(end)).run().await, &good(), 1, 3);
}

#[tokio::test]
async fn json_text_that_does_not_match_is_returned_with_its_violations() {
    let wrong = bad().to_string();
    let played = counting(Scenario::new().reply(&wrong).tool(ANSWER, good())).run().await;
    assert_delivers(&played, &good(), 2, 2);
    let told = blocks(&played.server.requests()[1], "tool_result");
    assert!(told[0]["content"].to_string().contains("/names/1"), "{told:?}");
}

#[tokio::test]
async fn json_within_a_text_is_no_structured_answer() {
    let block = format!("```json\n{}\n```", good());
    for text in [
        format!("{block}\nis an example."),
        format!("{}\nis an example.", good()),
        format!("```rust\n{}\n```", good()),
        "[1]".to_owned(),
        json!({ "name": "Bash", "input": { "command": "true" } }).to_string(),
    ] {
        let played = counting(Scenario::new().reply(&text).tool(ANSWER, good())).run().await;
        assert_delivers(&played, &good(), 1, 2);
    }
}

#[tokio::test]
async fn a_truncated_structured_answer_does_not_count_as_a_try() {
    let cut = || Scenario::new().tool(ANSWER, good()).cut(12);
    let played = counting(cut().times(3).tool(ANSWER, good())).run().await;
    assert_delivers(&played, &good(), 1, 4);
    assert_eq!(played.strategy("structured_output_retry"), 0);

    let played = counting(cut().after(AfterLast::RepeatLast)).run().await;
    assert_eq!(played.ending.reason, StopReason::MaxOutputTokens);
    assert_eq!(played.ending.acceptance.schema_attempts, Some(0));
    assert_eq!(played.ending.acceptance.structured_output, None);
}

#[tokio::test]
async fn a_structured_answer_beside_text_and_tools_is_accepted() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "touch made" }))
        .and_text("Here it is.")
        .and_tool(ANSWER, good());
    let played = counting(scenario).run().await;
    assert_delivers(&played, &good(), 1, 1);
    assert!(played.has("made"), "what stands beside it was done");
}

#[tokio::test]
async fn a_structured_answer_beside_a_failed_call_is_requested_again() {
    let later = json!({ "count": 1, "names": [] });
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "exit 1" }))
        .and_tool(ANSWER, good())
        .tool(ANSWER, later.clone());
    assert_delivers(&counting(scenario).run().await, &later, 2, 2);
}

#[tokio::test]
async fn other_tools_may_run_before_a_structured_answer() {
    let work = (1..=8).fold(Scenario::new(), |scenario, n| {
        scenario.tool("Bash", json!({ "command": format!("echo {n}") }))
    });
    let played = counting(work.tool(ANSWER, good())).run().await;
    assert_delivers(&played, &good(), 1, 9);
}

#[tokio::test]
async fn the_last_turn_allows_one_structured_answer_and_no_retry() {
    let last = |answer| {
        let fixture = counting(Scenario::new().tool(ANSWER, answer));
        fixture.limits(|limits| limits.budgets.turns = Some(1))
    };
    assert_delivers(&last(good()).run().await, &good(), 1, 1);
    assert_fails(&last(bad()).run().await, StopReason::MaxTurns, 1, 1);
}

#[tokio::test]
async fn a_schema_and_a_requirement_are_both_enforced() {
    let later = json!({ "count": 3, "names": ["c"] });
    let scenario = Scenario::new()
        .tool(ANSWER, good())
        .tool("Bash", json!({ "command": "touch fixed" }))
        .reply("Mended.")
        .tool(ANSWER, later.clone());
    let played = counting(scenario).requiring("test -e fixed").run().await;
    assert_delivers(&played, &later, 2, 4);
    let verified = played.ending.acceptance.requirement.as_ref().expect("it was demanded");
    assert_eq!((verified.attempts, verified.passed), (2, true));
    let wanted = json!({ "requirement_retry": 1, "structured_output_retry": 1 });
    assert_eq!(played.strategies(), wanted);
    assert!(played.told(2).contains(Nudge::Unmet.text()), "{}", played.told(2));
    assert_eq!(played.told(4), Nudge::UseStructuredOutput.text(), "text is still no answer");

    let played = counting(Scenario::new().tool(ANSWER, good()).times(4));
    let played = played.requiring("false").run().await;
    assert_eq!(played.ending.reason, StopReason::RequirementFailed, "{:?}", played.trace());
    assert_eq!(played.ending.acceptance.schema_attempts, Some(4));
    played.assert_asked(4);
}

/// The shape is there; asking for more must not cost it.
#[tokio::test]
async fn effort_nudges_do_not_risk_a_structured_answer() {
    let fixture = counting(Scenario::new().tool(ANSWER, good()).usage(100, 10));
    let fixture = fixture.limits(|limits| {
        limits.budgets.schema_tries = 0;
        limits.effort = Some(10_000);
    });
    assert_delivers(&fixture.run().await, &good(), 1, 1);
}
