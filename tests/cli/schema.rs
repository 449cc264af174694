//! `--json-schema`, from the flag to the first request, and from the answer to the result.

use outlast::agent::RunOutcome;
use outlast::cli::acceptance::schema_not_met;
use outlast::recovery::StopReason;
use outlast::rehearsal::Scenario;
use outlast::tools::Acceptance;
use serde_json::{Value, json};

use super::binary_fixture::BinaryFixture;
use super::results::{object, outcome};
use super::settings::resolve;
use crate::support::{RunBuilder, serve};

/// The first request of a run with the schema as a flag.
async fn first_request(trial: impl Fn(RunBuilder) -> RunBuilder) -> Value {
    let server = serve(Scenario::new().reply("No."));
    let trial = trial(RunBuilder::against(&server)).args(["--max-turns", "1", "Do it."]);
    let ended = trial.run().await;
    let requests = server.requests();
    assert!(!requests.is_empty(), "{ended:?}");
    requests[0].body.clone()
}

fn answer_tool(body: &Value) -> &Value {
    let tools = body["tools"].as_array().expect("tools");
    let tool = tools.last().expect("a tool");
    assert_eq!(tool["name"], "StructuredOutput", "the tool that ends it all comes last: {body}");
    tool
}

#[tokio::test]
async fn every_way_to_give_a_schema_reaches_the_model() {
    let schema = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } } });
    let text = schema.to_string();
    let inline = format!("--json-schema={text}");
    let file = |name: &'static str| {
        let text = format!("\u{feff}\n{text}\n");
        move |trial: RunBuilder| {
            std::fs::write(trial.work().join("shape.json"), &text).expect("a new file");
            trial.args(["--json-schema", name])
        }
    };
    let ways: Vec<Box<dyn Fn(RunBuilder) -> RunBuilder>> = vec![
        Box::new(|trial: RunBuilder| trial.args(["--json-schema", text.as_str()])),
        Box::new(|trial: RunBuilder| trial.args([inline.as_str()])),
        Box::new(|trial: RunBuilder| trial.args(["--jsonSchema", text.as_str()])),
        Box::new(file("shape.json")),
        Box::new(file("@shape.json")),
        Box::new(file("./shape.json")),
    ];
    for (number, way) in ways.iter().enumerate() {
        let body = first_request(way).await;
        assert_eq!(answer_tool(&body)["input_schema"], schema, "way {number}");
        let system = body["system"].to_string();
        assert!(system.contains("by calling StructuredOutput"), "way {number}: {system}");
    }
}

#[tokio::test]
async fn the_answer_tool_and_its_instruction_survive_custom_tools_and_prompts() {
    let body = first_request(|trial| {
        trial.args([
            "--json-schema",
            r#"{"type":"array"}"#,
            "--tools",
            "",
            "--system-prompt",
            "Be.",
        ])
    })
    .await;
    let answer = &answer_tool(&body)["input_schema"]["properties"]["answer"];
    assert_eq!(answer, &json!({ "type": "array" }));
    assert_eq!(body["tools"].as_array().map(Vec::len), Some(1));
    let system = body["system"].to_string();
    assert!(system.contains("Be.\\n\\nGive the final answer by calling"), "{system}");
}

#[tokio::test]
async fn without_a_schema_the_request_mentions_none() {
    let body = first_request(|trial| trial).await;
    assert!(!body.to_string().contains("StructuredOutput"), "{body}");
}

#[test]
fn an_unusable_schema_is_reported_in_one_line_with_its_position() {
    let large = format!("{{\"enum\": [\"{}\"]}}", "x".repeat(200_000));
    let endless = "[".repeat(1000);
    let remote = r#"{"items": {"$ref": "https://example.com/x.json"}}"#;
    // what is given, what the line holds
    let cases: &[(&str, &[&str])] = &[
        ("", &["--json-schema is empty", "give a JSON Schema"]),
        ("{\"type\": \"object\",,}", &["--json-schema:1:19: not valid JSON", "correct it"]),
        (
            "{\n \"type\":\n  \"objekt\"}",
            &["--json-schema:3:3: /type: the value is not one of [\"array\"", "\"objekt\""],
        ),
        (
            r#"{"properties": {"a/b": {"minLength": -1}}}"#,
            &["--json-schema:1:38: /properties/a~1b/minLength: the value is less", "-1"],
        ),
        ("[1]", &["--json-schema:1:1: the schema: a JSON Schema is an object"]),
        ("\"x\"", &["--json-schema:1:1: the schema: a JSON Schema is an object"]),
        ("null", &["--json-schema:1:1: the schema: a JSON Schema is an object"]),
        ("{\"name\": \"Ada\"}", &["--json-schema:1:1:", "no keyword of JSON Schema"]),
        (remote, &["--json-schema:1:20: /items/$ref:", "fetches none", "#/$defs/NAME"]),
        ("large.json", &["large.json:1:1: the schema", "at most 131072", "make it smaller"]),
        (&endless, &["--json-schema:1:", "recursion limit"]),
        ("gone.json", &["--json-schema gone.json: cannot be read: No such file", "the name of"]),
        ("@gone.json", &["--json-schema gone.json: cannot be read"]),
        (".", &["--json-schema .: cannot be read"]),
        ("/dev/zero", &["--json-schema /dev/zero: cannot be read: it is larger than 512 kB"]),
        ("bad.json", &["bad.json:2:9: not valid JSON", "correct the file"]),
        ("@odd.json", &["odd.json:1:10: not valid UTF-8"]),
    ];
    for (given, parts) in cases {
        let world = BinaryFixture::new()
            .file("work/large.json", &large)
            .file("work/bad.json", "{\n \"type\":}")
            .file("work/odd.json", b"{\"type\": \xff}");
        let before = world.inventory();
        let ended = world.run(&["--json-schema", given, "hi"]);
        let line = ended.line();
        for part in *parts {
            assert!(line.contains(part), "{part:?} in {line:?}");
        }
        assert_eq!(ended.code, 2, "{ended:?}");
        assert_eq!(ended.result()["errors"][0], line.trim_start_matches("outlast: "));
        assert_eq!(world.inventory(), before, "{given}");
    }
}

#[test]
fn a_schema_may_come_from_a_pipe() {
    let world = BinaryFixture::new();
    // It is read, and found wanting.
    let ended = world.run_with_input(&["--json-schema", "/dev/stdin"], b"{\"type\": 3}");
    assert!(ended.line().contains("/dev/stdin:1:10: /type: "), "{ended:?}");
}

#[test]
fn schema_retries_come_from_the_variable_then_the_file() {
    let name = "MAX_STRUCTURED_OUTPUT_RETRIES";
    // variable, settings file, tries
    let table = [
        (None, "{}", 5),
        (None, r#"{"schemaTries": 2}"#, 2),
        (Some("7"), r#"{"schemaTries": 2}"#, 8),
        (Some("0"), "{}", 1),
    ];
    for (variable, file, tries) in table {
        let variables: Vec<(&str, &str)> =
            variable.map(|value| (name, value)).into_iter().collect();
        let settings = resolve(&["hi"], &variables, file).expect("good settings");
        assert_eq!(settings.config.schema_tries, tries, "{variable:?} {file}");
    }
    let error = resolve(&["hi"], &[(name, "many")], "{}").expect_err("no number");
    assert!(error.contains(name) && error.contains("\"many\""), "{error}");
    let error = resolve(&["hi"], &[], r#"{"schemaTries": 0}"#).expect_err("none is too few");
    assert!(error.contains("\"schemaTries\" takes a whole number from 1 to 255"), "{error}");
}

fn answered(reason: StopReason, answer: Option<Value>, attempts: Option<u32>) -> RunOutcome {
    let acceptance = Acceptance {
        structured_output: answer,
        schema_attempts: attempts,
        ..Acceptance::default()
    };
    RunOutcome { acceptance, ..outcome(reason) }
}

#[test]
fn the_result_holds_the_structured_answer_and_its_text() {
    let answer = json!({ "z": 1, "a": [null, "ü"] });
    let result = object(&answered(StopReason::Completed, Some(answer.clone()), Some(2)));
    assert_eq!(result["structured_output"], answer);
    assert_eq!(result["result"], r#"{"z":1,"a":[null,"ü"]}"#);
    assert_eq!(result["schema_attempts"], 2);
    assert_eq!(result["subtype"], "success");
}

#[test]
fn a_run_that_failed_has_no_structured_output() {
    let answer = json!({ "ok": true });
    let result = object(&answered(StopReason::MaxTurns, Some(answer), Some(1)));
    assert_eq!(result.get("structured_output"), None, "{result}");
    assert_eq!(result.get("result"), None, "{result}");
    assert_eq!(result["partial_result"], r#"{"ok":true}"#);
    assert_eq!(result["schema_attempts"], 1);
}

#[test]
fn without_a_schema_the_result_has_no_schema_fields() {
    let result = object(&outcome(StopReason::Completed));
    assert_eq!(result["result"], "Fixed the parser; all 12 tests pass.");
    for name in ["structured_output", "schema_attempts", "requirement"] {
        assert_eq!(result.get(name), None, "{result}");
    }
}

#[test]
fn a_missing_answer_and_an_invalid_answer_are_reported_differently() {
    let told = |attempts| schema_not_met(&answered(StopReason::MaxTurns, None, attempts)).0;
    assert!(told(Some(0)).contains("never called"));
    assert!(told(Some(1)).contains("the one answer did not fit"));
    assert!(told(Some(5)).contains("none of 5 answers"));
}
