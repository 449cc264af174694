//! Prompts and added tools of servers, and warnings about servers that do not start or are left
//! out.

use std::time::Duration;

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::McpFixture;
use super::runs::{calls, config, status, succeeded, trial};
use crate::support::stopwatch::Stopwatch;
use crate::support::{RunBuilder, serve};

#[tokio::test]
async fn a_prompt_of_a_server_is_called_like_a_command() {
    let server = serve(Scenario::new().reply("Done."));
    let call = "/mcp__test__re_view 'a b.rs' the loops\nAnd this.";
    let config = config(&["rich"], &json!({}));
    let trial = RunBuilder::against(&server).env("MCP_TIMEOUT", "120000");
    let trial = trial.args([call, "--output-format", "stream-json", "--mcp-config", &config]);
    let ended = trial.run().await;
    succeeded(&ended);
    let prompt = "Review {\"file\": \"a b.rs\", \"focus\": \"the loops\"}\n\nAnd this.";
    assert_eq!(server.requests()[0].body["messages"][0]["content"][0]["text"], prompt);
    let commands = &ended.frames()[0]["slash_commands"];
    assert_eq!(*commands, json!(["mcp__test__re_view", "mcp__test__none", "mcp__test__of_file"]));
}

#[tokio::test]
async fn a_prompt_is_found_by_the_name_that_its_server_gives_it() {
    let bench = McpFixture::of(&["rich"]).ready().await;
    for call in ["mcp__test__of.file", "mcp__test__of_file", "mcp__TEST__Of.File"] {
        let text = bench.servers.prompt(call, &[], &CancellationToken::new()).await;
        assert_eq!(text.expect(call), "Review {}");
    }
}

#[tokio::test]
async fn a_prompt_that_a_server_does_not_have_is_an_error_that_names_the_others() {
    for (mode, call, wanted) in [
        ("rich", "/mcp__test__nope", "there are: mcp__test__re_view, mcp__test__none, mcp__"),
        ("rich", "/mcp__test__none", "it holds no text"),
        ("crash", "/mcp__test__re_view x", "cannot find my config"),
        ("rich", "/mcp__other__x", "unknown command /mcp__other__x"),
    ] {
        let server = serve(Scenario::new().reply("Done."));
        let config = config(&[mode], &json!({}));
        let trial = RunBuilder::against(&server).env("MCP_TIMEOUT", "3000");
        let ended = trial.args([call, "--mcp-config", &config]).run().await;
        assert_ne!(ended.code, Some(0), "{call}: {ended:?}");
        let result = ended.result()["errors"].to_string();
        assert!(result.contains(wanted), "{call}: {result}");
        assert_eq!(server.requests().len(), 0, "{call}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_come_up_costs_seconds() {
    let server = serve(Scenario::new().reply("Done."));
    let config = config(&["never"], &json!({}));
    let began = Stopwatch::start();
    let trial = RunBuilder::against(&server).args(["go", "--mcp-config", &config]);
    let ended = trial.args(["--output-format", "json"]).run().await;
    let result = succeeded(&ended);
    // It would be thirty for one that is required.
    began.assert_within(Duration::from_secs(20), "the end");
    assert_eq!(status(&result["mcp"]["servers"][0]), "pending");
}

#[tokio::test]
async fn tools_that_a_server_adds_are_in_the_next_request() {
    let server = serve(calls("grow", ""));
    succeeded(&trial(&server, &["well"]).run().await);
    let tools: Vec<bool> = server
        .requests()
        .iter()
        .map(|request| request.body["tools"].to_string().contains("mcp__test__grown"))
        .collect();
    assert_eq!(tools, [false, true]);
}

#[tokio::test]
async fn a_tool_of_a_server_is_found_by_its_name_in_other_forms() {
    let names = [
        "functions.mcp__test__echo:0",
        "mcp__test__echo<|channel|>commentary",
        " MCP__test__Echo ",
        "mcp__test__ec-ho",
    ];
    let call = |scenario: Scenario, name: &&str| scenario.tool(name, json!({ "text": "hi" }));
    let server = serve(names.iter().fold(Scenario::new(), call).reply("Done."));
    let trial = trial(&server, &["well"]).args(["--allowedTools", "mcp__test"]);
    succeeded(&trial.run().await);
    let body = server.requests().last().map(|request| request.body["messages"].to_string());
    let body = body.unwrap_or_default();
    assert_eq!(body.matches("echo: hi").count(), names.len(), "{body}");
}

#[tokio::test]
async fn a_required_server_that_is_left_out_is_named_with_the_cause() {
    for required in ["old", "all"] {
        let server = serve(Scenario::new().reply("Done."));
        let config = json!({ "mcpServers": { "old": { "type": "ws", "url": "wss://x" } } });
        let trial = RunBuilder::against(&server).args(["go", "--mcp-required", required]);
        let ended = trial.args(["--mcp-config", &config.to_string()]).run().await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let wanted = "the MCP server \"old\" is left out: --mcp-config:1:";
        let why = "the transport \"ws\" is not supported";
        assert!(ended.stderr.contains(wanted) && ended.stderr.contains(why), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn what_an_entry_says_of_logins_is_obeyed_or_named() {
    let http =
        |oauth: Value| json!({ "type": "http", "url": "http://127.0.0.1:9", "oauth": oauth });
    let client = json!({ "clientId": "x" });
    let mut with_token = http(client.clone());
    with_token["headers"] = json!({ "Authorization": "Bearer x" });
    let table = [
        (
            json!({ "command": "true", "oauth": client }),
            "has no effect: only servers with a \"url\"",
        ),
        (with_token, "has no effect: its \"headers\" or \"headersHelper\" give the token"),
        (http(json!({ "clientID": "x" })), "\"clientID\" in \"oauth\" of the MCP server \"test\""),
        (http(json!("x")), "its \"oauth\" is not an object"),
        (http(json!({ "clientSecret": "x" })), "its \"clientSecret\" needs a \"clientId\""),
        (http(json!({ "callbackPort": 0 })), "its \"callbackPort\" is not a port"),
        (http(json!({ "scopes": 1 })), "its \"scopes\" are neither"),
        (
            http(json!({ "authServerMetadataUrl": "http://x.example" })),
            "is not an https:// address",
        ),
    ];
    for (entry, wanted) in table {
        let server = serve(Scenario::new().reply("Done."));
        let config = json!({ "mcpServers": { "test": entry } }).to_string();
        let ended = RunBuilder::against(&server).args(["go", "--mcp-config", &config]).run().await;
        let warnings = succeeded(&ended)["warnings"].to_string().replace('\\', "");
        assert!(warnings.contains(wanted), "{wanted}: {warnings}");
    }
}

/// The service names a tool only by its position in the request.
#[tokio::test]
async fn a_tool_whose_schema_the_service_refuses_is_left_out() {
    let required = ["--mcp-required", "test"];
    let server = serve(Scenario::new().reply("Done."));
    succeeded(&trial(&server, &["well"]).args(required).run().await);
    let offered = server.requests()[0].body["tools"].as_array().expect("tools").clone();
    let is_echo = |tool: &Value| tool["name"] == "mcp__test__echo";
    let index = offered.iter().position(is_echo).expect("it is offered");
    let refused =
        |message: &str| Scenario::new().status(400).error("invalid_request_error", message, None);
    let refusal = |index| format!("tools.{index}.custom.input_schema: JSON schema is invalid.");
    let refused_at = |index| refused(&refusal(index));
    let server = serve(refused_at(index).reply("Done."));
    let ended = trial(&server, &["well"]).args(required).run().await;
    let result = succeeded(&ended);
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("the tool mcp__test__echo, which is left out"), "{warnings}");
    let sent = server.requests()[1].body["tools"].as_array().expect("tools").clone();
    assert_eq!(sent.len(), offered.len() - 1);
    assert!(!sent.iter().any(is_echo));
    // All that are too many are left out at once.
    let most = offered.len() - 12;
    let too_many = format!("Invalid 'tools': array too long. Expected maximum length {most}.");
    let server = serve(refused(&too_many).reply("Done."));
    succeeded(&trial(&server, &["well"]).args(required).run().await);
    let sent = server.requests()[1].body["tools"].as_array().expect("tools").clone();
    assert_eq!(sent.len(), most);
    // What is not of a server is needed.
    let server = serve(refused_at(0).reply("Done."));
    assert_eq!(trial(&server, &["well"]).args(required).run().await.code, Some(1));
}
