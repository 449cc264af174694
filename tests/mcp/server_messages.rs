//! Messages about MCP servers from the real binary: required servers that are awaited, what was left
//! out, and what a resumed session still requires.

use std::time::Duration;

use outlast::rehearsal::Scenario;
use serde_json::json;

use super::runs::{calls, succeeded, told, trial};
use super::{python, script};
use crate::support::stopwatch::Stopwatch;
use crate::support::{RunBuilder, serve};

#[tokio::test]
async fn waiting_for_a_required_mcp_server_is_reported_with_name_and_time_limit() {
    let server = serve(Scenario::new().reply("Done."));
    let began = Stopwatch::start();
    let trial = trial(&server, &["never"]).args(["--mcp-required", "test"]);
    let ended = trial.env("MCP_TIMEOUT", "4000").run().await;
    assert_eq!(ended.result()["terminal_reason"], "mcp_unavailable", "{ended:?}");
    // After two seconds, or later on a busy machine.
    let (_, told) = ended.stderr.split_once("waiting for required MCP servers (test), ").unwrap();
    assert!(told.contains("s so far, "), "{}", ended.stderr);
    began.assert_within(Duration::from_secs(30), "the end");
}

#[tokio::test]
async fn what_a_session_requires_is_carried_over_when_it_is_resumed() {
    let id = "7e57c0de-0000-4000-8000-000000000001";
    let server = serve(Scenario::new().reply("Done.").reply("Again.").reply("More."));
    let first = trial(&server, &["well"]).args(["--mcp-required", "test", "--session-id", id]);
    let mut ended = first.run().await;
    succeeded(&ended);
    let resume = ["more", "--resume", id, "--output-format", "stream-json"];
    for (flags, wanted) in [
        (&["--mcp-config", "{}"][..], "mcp_unavailable"),
        (&["--mcp-required", "none"], "completed"),
        // It was taken back for good.
        (&[], "completed"),
    ] {
        ended = ended.again(&server.base_url()).args(resume).args(flags).run().await;
        let result = ended.result();
        assert_eq!(result["terminal_reason"], wanted, "{flags:?}: {result}");
        let names_it = result["errors"].to_string().contains("\\\"test\\\" is required");
        assert_eq!(names_it, wanted == "mcp_unavailable", "{result}");
    }
}

#[tokio::test]
async fn what_is_left_out_of_a_configuration_is_told_with_its_place() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::against(&server);
    let file = trial.work().join("servers.json");
    let text = r#"{ "mcpServers": {
      "socket": { "type": "ws", "url": "wss://example.com" },
      "bare": { "url": "https://example.com/mcp" },
      "unset": { "command": "true", "args": ["${NOWHERE}", "${NOWHERE:-there}"], "disabled": true }
    } }"#;
    std::fs::write(&file, text).expect("a file");
    let trial = trial.args(["go", "--output-format", "stream-json", "--mcp-config"]).args([&file]);
    let ended = trial.run().await;
    let result = succeeded(&ended);
    let warnings = result["warnings"].to_string();
    let init = &ended.frames()[0];
    let errors = init["mcp_server_errors"].as_array().expect("a list");
    for (name, line, wanted) in [
        ("socket", 2, "the transport \"ws\" is not supported"),
        ("bare", 3, "not \"type\": \"http\""),
    ] {
        let error = errors.iter().find(|error| error["name"] == name).expect(name);
        let message = error["message"].as_str().expect("text");
        assert!(message.contains(&format!("servers.json:{line}:")), "{message}");
        assert!(message.contains(wanted), "{message}");
        assert!(ended.stderr.contains(&format!("the MCP server \"{name}\" is left out")));
        assert!(warnings.contains(name), "{warnings}");
    }
    assert_eq!(errors.len(), 2, "{errors:?}");
    let unset = "names the variable NOWHERE, which is not set: it stays as it is written";
    assert!(ended.stderr.contains(unset), "{}", ended.stderr);
}

#[tokio::test]
async fn a_model_that_calls_a_tool_of_a_server_that_is_not_there_is_told_how_it_stands() {
    for (mode, flags, wanted) in [
        ("crash", &[][..], "is not connected yet: it did not start up"),
        ("well", &["--disallowedTools", "mcp__test"], "denied"),
    ] {
        let server = serve(calls("echo", "hi"));
        succeeded(&trial(&server, &[mode]).args(flags).run().await);
        let told = told(&server);
        assert!(told.contains(wanted), "{mode}: {told}");
    }
    let server = serve(calls("nope", "hi"));
    succeeded(&trial(&server, &["well"]).run().await);
    assert!(told(&server).contains("has no tool mcp__test__nope; it has: mcp__test__echo"));
}

#[tokio::test]
async fn how_much_of_a_result_is_shown_can_be_set() {
    let server = serve(calls("big", ""));
    let trial = trial(&server, &["well"]).env("MAX_MCP_OUTPUT_TOKENS", "100");
    succeeded(&trial.run().await);
    let told = told(&server);
    assert!(told.len() < 1_500 && told.contains("all of it is in"), "{told}");
}

#[tokio::test]
async fn a_late_call_is_told_on_standard_error_and_in_the_result() {
    let server = serve(calls("hang", ""));
    let ended = trial(&server, &["well"]).env("MCP_TOOL_TIMEOUT", "700").run().await;
    let result = succeeded(&ended);
    let wanted = "the call of \"hang\" failed: did not answer within 0.7 s";
    assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
    assert!(result["warnings"].to_string().replace('\\', "").contains(wanted), "{result}");
}

#[tokio::test]
async fn two_servers_that_would_have_a_tool_of_one_name_do_not_spoil_the_request() {
    let server = serve(Scenario::new().reply("Done."));
    let entry =
        |name: &str| json!({ "command": python(), "args": ["-S", script(), "named", name] });
    let servers = json!({ "mcpServers": { "a": entry("b__c"), "a__b": entry("c") } });
    let trial = RunBuilder::against(&server).args(["go", "--mcp-required=all", "--mcp-config"]);
    let ended = trial.args([servers.to_string()]).run().await;
    succeeded(&ended);
    let tools = server.requests()[0].body["tools"].clone();
    let names =
        tools.as_array().into_iter().flatten().filter(|tool| tool["name"] == "mcp__a__b__c");
    assert_eq!(names.count(), 1, "{tools}");
    assert!(ended.stderr.contains("another server has a tool of that"), "{}", ended.stderr);
}
