//! Questions of MCP servers to the user of a host.

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::driver::HostDriver;
use crate::mcp::script;
use crate::support::python::python;
use crate::support::{RunBuilder, serve};

/// A model that has the server asked, and ends.
fn asking() -> Scenario {
    Scenario::new().tool("mcp__quiz__ask", json!({ "text": "elicitation/create" })).reply("Done.")
}

/// A host of a run with a server that asks the user.
fn host(server: &RehearsalServer, flags: &[&str]) -> HostDriver {
    let entry = json!({ "command": python(), "args": ["-S", script()] });
    let servers = json!({ "mcpServers": { "quiz": entry } }).to_string();
    let run = RunBuilder::against(server)
        .args(["--mcp-config", &servers, "--allowedTools", "mcp__quiz"])
        .env("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1");
    HostDriver::with(run, flags)
}

async fn question(host: &mut HostDriver) -> Value {
    host.wait_for("a question", |frame| frame["request"]["subtype"] == "elicitation").await
}

fn reply(question: &Value, response: &Value) -> Value {
    json!({ "type": "control_response", "response": {
        "subtype": "success", "request_id": question["request_id"], "response": response } })
}

/// The last request, in which the model reads the server's view of the answer.
fn told(server: &RehearsalServer) -> String {
    server.requests().last().expect("a request").body["messages"].to_string().replace('\\', "")
}

#[tokio::test]
async fn a_question_of_a_server_is_asked_and_its_answer_reaches_the_server() {
    let server = serve(asking());
    let mut host = host(&server, &[]);
    host.prompt("go").await;
    let question = question(&mut host).await;
    let request = &question["request"];
    assert_eq!(
        (&request["mcp_server_name"], &request["message"]),
        (&json!("quiz"), &json!("Sure?"))
    );
    let asks = host.frames.iter().any(|frame| frame["state"] == "requires_action");
    assert!(asks, "{:?}", host.frames);
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    host.send(&reply(&question, &answer)).await;
    host.wait_for("a state", |frame| frame["state"] == "running").await;
    assert_eq!(host.result().await["is_error"], false);
    assert!(told(&server).contains(r#""content": {"name": "Ada"}"#), "{}", told(&server));
    host.end().await;
}

#[tokio::test]
async fn a_host_that_does_not_know_questions_declines() {
    let server = serve(asking());
    let mut host = host(&server, &[]);
    host.prompt("go").await;
    let question = question(&mut host).await;
    let error = "Unsupported control request subtype: elicitation";
    host.send(&json!({ "type": "control_response", "response": {
        "subtype": "error", "request_id": question["request_id"], "error": error } }))
        .await;
    assert_eq!(host.result().await["is_error"], false);
    assert!(told(&server).contains(r#"{"action": "decline"}"#), "{}", told(&server));
    host.end().await;
}

#[tokio::test]
async fn an_interrupt_withdraws_the_question() {
    let server = serve(asking());
    let mut host = host(&server, &[]);
    host.prompt("go").await;
    let question = question(&mut host).await;
    host.request(&json!({ "subtype": "interrupt" })).await;
    host.wait_for("its withdrawal", |frame| {
        frame["type"] == "control_cancel_request" && frame["request_id"] == question["request_id"]
    })
    .await;
    host.result().await;
    host.end().await;
}

#[tokio::test]
async fn without_prompts_no_question_is_asked() {
    let server = serve(asking());
    let mut host = host(&server, &["--permission-prompts", "none"]);
    host.prompt("go").await;
    host.result().await;
    assert!(told(&server).contains(r#"{"action": "decline"}"#), "{}", told(&server));
    let asked = host.frames.iter().any(|frame| frame["request"]["subtype"] == "elicitation");
    assert!(!asked, "{:?}", host.frames);
    host.end().await;
}

#[tokio::test]
async fn a_heartbeat_names_the_server_whose_question_is_open() {
    let server = serve(asking());
    let mut host = host(&server, &["--settings", r#"{"heartbeatInterval":"1s"}"#]);
    host.prompt("go").await;
    let question = question(&mut host).await;
    let beat =
        host.wait_for("a heartbeat", |frame| frame["waiting_for"]["kind"] == "elicitation").await;
    assert_eq!(beat["waiting_for"]["server"], "quiz", "{beat}");
    host.send(&reply(&question, &json!({ "action": "cancel" }))).await;
    host.result().await;
    host.end().await;
}
