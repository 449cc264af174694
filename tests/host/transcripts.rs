//! Transcripts of a host's session, copies of them, and exit codes, as other programs read them.

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::driver::HostDriver;
use crate::support::{RunBuilder, serve};

#[tokio::test]
async fn prompts_are_recorded_as_they_were_given() {
    let server = serve(Scenario::new().reply("1").reply("2").reply("3").reply("4"));
    let mut host = HostDriver::start(&server, &["--session-mirror"]);
    host.ask(&json!({ "subtype": "initialize", "title": "Herons" })).await;
    host.prompt("a text").await;
    host.result().await;
    let blocks = json!([{ "type": "text", "text": "one block" }]);
    host.send(&json!({ "type": "user", "message": { "role": "user", "content": blocks } })).await;
    host.result().await;
    // The session is read again for each turn.
    host.prompt("a third one").await;
    host.result().await;
    let earlier = json!({ "role": "user", "content": "earlier" });
    host.send(&json!({ "type": "user", "message": earlier, "shouldQuery": false })).await;
    host.prompt("a last one").await;
    host.result().await;
    let (_, frames) = host.end().await;
    let titles: Vec<&Value> =
        mirrored(&frames).filter_map(|entry| entry.get("customTitle")).collect();
    assert_eq!(titles, ["Herons"], "it is set once");
    let text = |text: &str| json!({ "type": "text", "text": text });
    let both = json!([text("earlier"), text("a last one")]);
    assert_eq!(prompts(&frames), [&json!("a text"), &blocks, &json!("a third one"), &both]);
    let body = &server.requests()[2].body;
    assert_eq!(body["messages"][0]["content"][0]["text"], "a text", "{body}");
}

/// The content of the user's messages that were mirrored.
fn mirrored(frames: &[Value]) -> impl Iterator<Item = &Value> {
    let mirrors = frames.iter().filter(|frame| frame["type"] == "transcript_mirror");
    mirrors.filter_map(|frame| frame["entries"].as_array()).flatten()
}

fn prompts(frames: &[Value]) -> Vec<&Value> {
    mirrored(frames)
        .filter(|entry| entry["type"] == "user")
        .map(|entry| &entry["message"]["content"])
        .collect()
}

#[tokio::test]
async fn the_context_of_hooks_is_recorded_beside_a_prompt_that_is_a_text() {
    let server = serve(Scenario::new().reply("1").reply("2"));
    let hook = json!({ "type": "command", "command": "echo noted" });
    let settings = json!({ "hooks": { "UserPromptSubmit": [{ "hooks": [hook] }] } }).to_string();
    let mut host = HostDriver::start(&server, &["--session-mirror", "--settings", &settings]);
    for prompt in ["a text", "another one"] {
        host.prompt(prompt).await;
        host.result().await;
    }
    let (_, frames) = host.end().await;
    assert_eq!(prompts(&frames), [&json!("a text"), &json!("another one")]);
    // The second turn read the first prompt from the session.
    let first = &server.requests()[1].body["messages"][0]["content"];
    let context = first[1]["text"].as_str().unwrap_or_default();
    assert!(first[0]["text"] == "a text" && context.ends_with("noted"), "{first}");
}

#[tokio::test]
async fn mirrored_sub_agents_carry_their_metadata() {
    let call =
        json!({ "description": "look", "prompt": "Look.", "subagent_type": "general-purpose" });
    let server = serve(Scenario::new().tool("Agent", call).reply("seen").reply("done"));
    let mut host = HostDriver::start(&server, &["--session-mirror"]);
    host.prompt("go").await;
    host.result().await;
    let (_, frames) = host.end().await;
    let of_agent = |frame: &&Value| {
        let path = frame["filePath"].as_str().unwrap_or_default();
        frame["type"] == "transcript_mirror" && path.contains("/subagents/agent-")
    };
    let first = frames.iter().find(of_agent).expect("a sub-agent was mirrored");
    let path = first["filePath"].as_str().unwrap_or_default();
    assert_eq!(std::path::Path::new(path).extension(), Some("jsonl".as_ref()), "{first}");
    let metadata = &first["entries"][0];
    assert_eq!(
        (&metadata["type"], &metadata["agentType"]),
        (&json!("agent_metadata"), &json!("general-purpose"))
    );
    assert!(metadata["toolUseId"].as_str().is_some_and(|id| id.starts_with("toolu")), "{metadata}");
    let prompt = frames.iter().filter(of_agent).filter_map(|it| it["entries"].as_array()).flatten();
    let prompt = prompt.into_iter().find(|entry| entry["type"] == "user");
    assert_eq!(prompt.expect("its prompt")["message"]["content"], "Look.");
}

#[tokio::test]
async fn a_failed_start_ends_with_exit_code_1_in_process_and_result() {
    let server = serve(Scenario::new());
    for flags in
        [&["--no-such-flag"][..], &["--max-turns", "many"], &["--settings", "/nowhere.json"]]
    {
        let host = HostDriver::with(RunBuilder::against(&server), flags);
        let (ended, frames) = host.end().await;
        assert_eq!(ended.code, Some(1), "{flags:?}: {}", ended.stderr);
        let result = frames.iter().rfind(|frame| frame["type"] == "result").expect("a result");
        assert_eq!((&result["exit_code"], &result["is_error"]), (&json!(1), &json!(true)));
    }
    let plain = RunBuilder::against(&server).args(["hi", "--no-such-flag"]).start().end().await;
    assert_eq!(plain.code, Some(2), "without a host: {}", plain.stderr);
}

#[tokio::test]
async fn a_failed_turn_ends_with_exit_code_1() {
    let server = serve(Scenario::new().tool("Glob", json!({ "pattern": "*" })).reply("no"));
    let mut host = HostDriver::start(&server, &["--max-turns", "1"]);
    host.prompt("go").await;
    let result = host.result().await;
    assert_eq!((&result["subtype"], &result["exit_code"]), (&json!("error_max_turns"), &json!(1)));
    assert_eq!(host.end().await.0.code, Some(1));
}
