//! Control requests about what runs, what the conversation holds, and the MCP servers.

use std::time::Duration;

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::driver::HostDriver;
use crate::mcp::script;
use crate::support::python::python;
use crate::support::{FifoSignal, RunBuilder, is_alive, serve, with_time_limit};

/// Longer than any test.
const HOUR: Duration = Duration::from_hours(1);

/// Starts a process outside of the command's group, tells its id, and never ends.
const ENDLESS: &str = "setsid sh -c 'echo $$ > bell; exec sleep 3600'";

fn task_id(started: &Value) -> String {
    started["task_id"].as_str().expect("an id").to_owned()
}

async fn wait_for_subtype(host: &mut HostDriver, subtype: &str) -> Value {
    host.wait_for(subtype, |frame| frame["subtype"] == subtype).await
}

/// Reads the messages about the end of a task that was stopped.
async fn is_stopped(host: &mut HostDriver, id: &str) {
    let updated = wait_for_subtype(host, "task_updated").await;
    assert_eq!(updated["task_id"], id);
    assert_eq!(updated["patch"]["status"], "killed");
    let notification = wait_for_subtype(host, "task_notification").await;
    assert_eq!(
        (&notification["task_id"], &notification["status"]),
        (&json!(id), &json!("stopped"))
    );
}

#[tokio::test]
async fn a_background_command_is_stopped_with_all_its_processes() {
    let call = json!({ "command": ENDLESS, "run_in_background": true });
    let server = serve(Scenario::new().tool("Bash", call).reply("late").delay(HOUR));
    let mut host = HostDriver::start(&server, &[]);
    let mut bell = FifoSignal::at(&host.process.work().join("bell"));
    host.prompt("go").await;
    let id = task_id(&wait_for_subtype(&mut host, "task_started").await);
    let pid = bell.wait_for_line().await.trim().parse().expect("a process id");
    let stop = json!({ "subtype": "stop_task", "task_id": id });
    assert_eq!(host.ask(&stop).await["response"], json!({}));
    is_stopped(&mut host, &id).await;
    let gone = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_time_limit("the end of the command's processes", gone).await;
    let reply = host.ask(&stop).await;
    assert_eq!(reply["subtype"], "error", "it is not running any more: {reply}");
    host.ask(&json!({ "subtype": "interrupt" })).await;
    host.result().await;
    host.end().await;
}

#[tokio::test]
async fn a_sub_agent_is_stopped_and_its_parent_goes_on() {
    for is_background in [true, false] {
        let call = json!({ "description": "look", "prompt": "look", "subagent_type": "general-purpose",
            "run_in_background": is_background });
        let script = Scenario::new().tool("Agent", call).reply("late").delay(HOUR);
        let script =
            if is_background { script.reply("late").delay(HOUR) } else { script.reply("Done.") };
        let server = serve(script);
        let mut host = HostDriver::start(&server, &[]);
        host.prompt("go").await;
        let id = task_id(&wait_for_subtype(&mut host, "task_started").await);
        super::driver::wait_for_requests(&server, 2).await;
        host.ask(&json!({ "subtype": "stop_task", "task_id": id })).await;
        is_stopped(&mut host, &id).await;
        if is_background {
            host.ask(&json!({ "subtype": "interrupt" })).await;
        }
        let result = host.result().await;
        assert_eq!(result["is_error"] == false, !is_background, "{result}");
        host.end().await;
    }
}

#[tokio::test]
async fn the_context_is_reported_before_the_first_turn_and_after_it() {
    let script = Scenario::new().reply(&"word ".repeat(500)).usage(5_000, 600);
    let server = serve(script);
    let mut host = HostDriver::start(&server, &[]);
    let ask = json!({ "subtype": "get_context_usage" });
    let before = host.ask(&ask).await["response"].clone();
    host.prompt("go").await;
    host.result().await;
    let after = host.ask(&ask).await["response"].clone();
    let messages = |usage: &Value| {
        let parts = usage["categories"].as_array().expect("a list").iter();
        let found = parts.clone().find(|part| part["name"] == "Messages").expect("messages");
        found["tokens"].as_u64().expect("a number")
    };
    assert_eq!(messages(&before), 0);
    assert!(messages(&after) > 0, "{after}");
    assert_eq!(
        (&before["apiUsage"], &after["apiUsage"]["output_tokens"]),
        (&Value::Null, &json!(600))
    );
    assert!(after["totalTokens"].as_u64() > before["totalTokens"].as_u64());
    assert_eq!(after["maxTokens"], after["autoCompactThreshold"]);
    host.end().await;
}

#[tokio::test]
async fn the_budget_for_thinking_changes_for_the_turns_to_come() {
    let server = serve(Scenario::new().reply("1").reply("2").reply("3"));
    let mut host = HostDriver::start(
        &server,
        &["--max-thinking-tokens", "2000", "--model", "claude-sonnet-4-5"],
    );
    for tokens in [json!(5_000), json!(0), Value::Null] {
        let request =
            json!({ "subtype": "set_max_thinking_tokens", "max_thinking_tokens": tokens });
        assert_eq!(host.ask(&request).await["subtype"], "success");
        host.prompt("think").await;
        host.result().await;
    }
    let request = json!({ "subtype": "set_max_thinking_tokens", "max_thinking_tokens": 5 });
    assert_eq!(host.ask(&request).await["subtype"], "error", "the least is 1024");
    let bodies = server.requests();
    let budget = |at: usize| bodies[at].body["thinking"]["budget_tokens"].clone();
    assert_eq!((budget(0), budget(1), budget(2)), (json!(5_000), Value::Null, json!(2_000)));
    host.end().await;
}

/// A server with the tool `name`.
pub(super) fn mcp_server(tool: &str) -> Value {
    json!({ "command": python(), "args": ["-S", script(), "named", tool] })
}

/// The status of each server, by name.
async fn statuses(host: &mut HostDriver) -> Vec<(String, String)> {
    let reply = host.ask(&json!({ "subtype": "mcp_status" })).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let servers = reply["response"]["mcpServers"].as_array().expect("a list").clone();
    servers.iter().map(|server| (text(&server["name"]), text(&server["status"]))).collect()
}

/// The names of the MCP tools in a request.
pub(super) fn mcp_tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| tool["name"].as_str());
    names.filter(|name| name.starts_with("mcp__")).map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn servers_of_the_host_replace_each_other_and_those_of_flags_stay() {
    let server = serve(Scenario::new().reply("1").reply("2").reply("3"));
    let flags = json!({ "mcpServers": { "fixed": mcp_server("one") } }).to_string();
    let mut host = HostDriver::start(&server, &["--mcp-config", &flags]);
    let set = |servers: Value| json!({ "subtype": "mcp_set_servers", "servers": servers });
    let wanted =
        json!({ "fixed": mcp_server("no"), "b": mcp_server("two"), "bad": { "args": [] } });
    let reply = host.ask(&set(wanted)).await["response"].clone();
    assert_eq!((&reply["added"], &reply["removed"]), (&json!(["b"]), &json!([])), "{reply}");
    let errors: Vec<&String> = reply["errors"].as_object().expect("an object").keys().collect();
    assert_eq!(errors, ["fixed", "bad"], "{reply}");
    host.prompt("go").await;
    host.result().await;
    let reply = host.ask(&set(json!({ "c": mcp_server("three") }))).await["response"].clone();
    assert_eq!(reply, json!({ "added": ["c"], "removed": ["b"], "errors": {} }));
    let names: Vec<String> = statuses(&mut host).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["fixed", "c"]);
    host.prompt("go").await;
    host.result().await;
    let offered: Vec<Vec<String>> =
        server.requests().iter().map(|request| mcp_tools(&request.body)).collect();
    assert_eq!(offered[0], ["mcp__fixed__one", "mcp__b__two"]);
    assert_eq!(offered[1], ["mcp__fixed__one", "mcp__c__three"]);
    host.end().await;
}

#[tokio::test]
async fn a_server_is_disabled_enabled_and_connected_again() {
    let server = serve(Scenario::new().reply("1").reply("2"));
    let flags = json!({ "mcpServers": { "a": mcp_server("one") } }).to_string();
    let mut host = HostDriver::start(&server, &["--mcp-config", &flags]);
    let toggle = |is_enabled: bool| json!({ "subtype": "mcp_toggle", "serverName": "a", "enabled": is_enabled });
    let reconnect = |name: &str| json!({ "subtype": "mcp_reconnect", "serverName": name });
    assert_eq!(host.ask(&reconnect("a")).await["response"], json!({}));
    assert_eq!(statuses(&mut host).await, [("a".to_owned(), "connected".to_owned())]);
    assert_eq!(host.ask(&toggle(false)).await["response"], json!({}));
    assert_eq!(statuses(&mut host).await, [("a".to_owned(), "disabled".to_owned())]);
    assert_eq!(host.ask(&reconnect("a")).await["subtype"], "error");
    host.prompt("go").await;
    host.result().await;
    host.ask(&toggle(true)).await;
    host.prompt("go").await;
    host.result().await;
    let offered: Vec<Vec<String>> =
        server.requests().iter().map(|request| mcp_tools(&request.body)).collect();
    assert_eq!(offered, [Vec::new(), vec!["mcp__a__one".to_owned()]]);
    assert_eq!(host.ask(&reconnect("other")).await["subtype"], "error");
    host.end().await;
}

/// Sends a prompt with an id, and waits for the result of its turn.
pub(super) async fn prompt_with_id(host: &mut HostDriver, id: &str) {
    host.send(&json!({ "type": "user", "uuid": id,
        "message": { "role": "user", "content": "go" } }))
        .await;
    host.result().await;
}

#[tokio::test]
async fn files_are_restored_as_they_were_before_a_prompt() {
    let write = |path: &str, content: &str| json!({ "file_path": path, "content": content });
    let edit = json!({ "file_path": "old.txt", "old_string": "two", "new_string": "2" });
    let script = Scenario::new().tool("Edit", edit).reply("1");
    let script = script.tool("Write", write("new.txt", "a\n")).reply("2");
    let edit = json!({ "file_path": "new.txt", "old_string": "a", "new_string": "b" });
    let server = serve(script.tool("Edit", edit).reply("3"));
    let run = RunBuilder::against(&server).env("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true");
    let mut host = HostDriver::with(run, &[]);
    let (old, new) = (host.process.work().join("old.txt"), host.process.work().join("new.txt"));
    std::fs::write(&old, "one\ntwo\nthree\n").expect("a file");
    for id in ["p-1", "p-2", "p-3"] {
        prompt_with_id(&mut host, id).await;
    }
    let rewind = |id: &str, is_dry: bool| json!({ "subtype": "rewind_files", "user_message_id": id, "dry_run": is_dry });
    let reply = host.ask(&rewind("p-3", false)).await["response"].clone();
    assert_eq!((&reply["canRewind"], &reply["insertions"]), (&json!(true), &json!(1)), "{reply}");
    assert_eq!(std::fs::read_to_string(&new).expect("it is there"), "a\n");
    let reply = host.ask(&rewind("P-1", true)).await["response"].clone();
    assert_eq!(reply["filesChanged"].as_array().map(Vec::len), Some(2), "{reply}");
    assert_eq!((&reply["insertions"], &reply["deletions"]), (&json!(1), &json!(2)), "{reply}");
    assert!(new.is_file(), "a dry run changes nothing");
    host.ask(&rewind("p-1", false)).await;
    assert_eq!(std::fs::read_to_string(&old).expect("it is there"), "one\ntwo\nthree\n");
    assert!(!new.exists(), "it was not there before the prompt");
    let reply = host.ask(&rewind("p-9", false)).await["response"].clone();
    assert_eq!(reply["canRewind"], false, "{reply}");
    host.end().await;
}

#[tokio::test]
async fn files_are_restored_in_a_session_that_is_resumed_for_that() {
    let write = json!({ "file_path": "made.txt", "content": "x" });
    let server = serve(Scenario::new().reply("0").tool("Write", write).reply("1"));
    let keeps = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING";
    let run = RunBuilder::against(&server).env(keeps, "1");
    let (failing, again, last) = (
        run.in_same_folders(&server).env(keeps, "1"),
        run.in_same_folders(&server).env(keeps, "1"),
        run.in_same_folders(&server),
    );
    let mut host = HostDriver::with(run, &[]);
    let made = host.process.work().join("made.txt");
    // The first prompt changes nothing.
    prompt_with_id(&mut host, "p-0").await;
    prompt_with_id(&mut host, "p-1").await;
    let session = host.frames.last().expect("a result")["session_id"].clone();
    let session = session.as_str().expect("an id").to_owned();
    let first = host.end().await;
    assert!(made.is_file());

    // What cannot be restored is no success.
    let mut host = HostDriver::with(failing, &["--resume", &session]);
    host.prompt("").await;
    assert_eq!(host.next().await.expect("a message")["subtype"], "init");
    let unknown = json!({ "subtype": "rewind_files", "user_message_id": "p-9" });
    assert_eq!(host.ask(&unknown).await["response"]["canRewind"], false);
    assert_eq!(host.result().await["is_error"], true);
    assert_eq!(host.end().await.0.code, Some(1));
    assert!(made.is_file());

    let mut host = HostDriver::with(again, &["--resume", &session]);
    host.prompt("").await;
    assert_eq!(host.next().await.expect("a message")["subtype"], "init");
    let rewind = json!({ "subtype": "rewind_files", "user_message_id": "p-0" });
    assert_eq!(host.ask(&rewind).await["response"]["canRewind"], true);
    assert_eq!(host.result().await["is_error"], false);
    assert_eq!(host.end().await.0.code, Some(0));
    assert!(!made.exists());

    std::fs::write(&made, "later").expect("a file");
    let ended = last.args(["-p", "--resume", &session, "--rewind-files", "p-1"]).run().await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "Restored files: 1\n"),
        "{}",
        ended.stderr
    );
    assert!(!made.exists());
    assert_eq!(server.requests().len(), 3);
    drop(first);
}

#[tokio::test]
async fn no_file_is_restored_through_a_link_or_without_kept_contents() {
    let write = json!({ "file_path": "sub/a.txt", "content": "new" });
    let server = serve(Scenario::new().tool("Write", write).reply("1"));
    let run = RunBuilder::against(&server).env("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true");
    let mut host = HostDriver::with(run, &[]);
    prompt_with_id(&mut host, "p-1").await;
    let outside = tempfile::tempdir().expect("a folder");
    std::fs::write(outside.path().join("a.txt"), "keep").expect("a file");
    let sub = host.process.work().join("sub");
    std::fs::remove_dir_all(&sub).expect("it is there");
    std::os::unix::fs::symlink(outside.path(), &sub).expect("a link");
    let rewind = json!({ "subtype": "rewind_files", "user_message_id": "p-1" });
    let reply = host.ask(&rewind).await["response"].clone();
    assert_eq!(reply["canRewind"], false, "{reply}");
    assert!(outside.path().join("a.txt").is_file());
    host.end().await;

    let server = serve(Scenario::new());
    let mut host = HostDriver::start(&server, &[]);
    assert_eq!(host.ask(&rewind).await["response"]["canRewind"], false);
    host.end().await;
}

/// Answers what outlast asks of the host until a frame of this type comes: its servers, whose tool
/// `hang` never answers, and permissions, which are denied. Returns the tools that were called and
/// those that it was asked about.
async fn answer_until(host: &mut HostDriver, kind: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut called, mut asked) = (Vec::new(), Vec::new());
    loop {
        let frame = host.wait_for("a frame", |_| true).await;
        let request = &frame["request"];
        let message = &request["message"];
        let result = match message["method"].as_str() {
            _ if frame["type"] == kind => return (called, asked),
            None if request["subtype"] == "can_use_tool" => {
                asked.push(request["tool_name"].clone());
                let denied = json!({ "behavior": "deny", "message": "not now" });
                reply_to(host, &frame, &denied).await;
                continue;
            }
            Some("initialize") => json!({ "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" } }),
            Some("tools/list") => {
                let tool =
                    |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
                let tools = ["bash", "asks", "denies", "get(all)", "hang"].map(tool);
                json!({ "tools": tools })
            }
            Some("tools/call") => {
                called.push(message["params"]["name"].clone());
                if message["params"]["name"] == "hang" {
                    continue;
                }
                json!({ "content": [{ "type": "text", "text": "ran in the host" }] })
            }
            Some(_) => json!({}),
            None => continue,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        reply_to(host, &frame, &json!({ "mcp_response": answer })).await;
    }
}

async fn reply_to(host: &mut HostDriver, frame: &Value, response: &Value) {
    let reply =
        json!({ "subtype": "success", "request_id": frame["request_id"], "response": response });
    host.send(&json!({ "type": "control_response", "response": reply })).await;
}

#[tokio::test]
async fn initialize_redirects_tools_and_restricts_those_of_its_servers() {
    let script = Scenario::new()
        .tool("Bash", json!({ "command": "touch here" }))
        .tool("mcp__ws__asks", json!({}))
        .tool("mcp__ws__denies", json!({}))
        .tool("mcp__ws__get_all_", json!({}))
        .tool("mcp__late__hang", json!({}))
        .reply("Done.");
    let server = serve(script);
    let flags = ["--permission-prompt-tool", "stdio", "--allowedTools", "mcp__ws,mcp__late"];
    let mut host = HostDriver::start(&server, &flags);
    let policies = json!([{ "name": "asks", "permission_policy": "always_ask" }, "all",
        { "name": "bash", "permission_policy": "always_allow" }, { "name": "hang" },
        { "name": "denies", "permission_policy": "always_deny" },
        { "name": "get(all)", "permission_policy": "always_deny" }]);
    host.request(&json!({ "subtype": "initialize", "sdkMcpServers": ["ws", "late"],
        "sdkMcpServerConfigs": { "ws": { "tools": policies, "timeout": "soon" },
            "late": { "timeout": 1 } },
        "toolAliases": { "Bash": "mcp__ws__bash", "bash": "Read", "mcp__ws__bash": "Bash", "Glob": "mcp__wz__a" } }))
        .await;
    answer_until(&mut host, "control_response").await;
    host.prompt("go").await;
    let (called, asked) = answer_until(&mut host, "result").await;
    assert_eq!((called, asked), (vec![json!("bash"), json!("hang")], vec![json!("mcp__ws__asks")]));
    assert!(!host.process.work().join("here").exists(), "the command ran here");
    for warning in [
        "\"ws\\\" is not a number of milliseconds above 0",
        "so calls of Glob fail; did you mean \\\"mcp__ws\\\"?",
    ] {
        let is_warned = |frame: &Value| frame["warnings"].to_string().contains(warning);
        assert!(host.frames.iter().any(is_warned), "{:#?}", host.frames.last());
    }
    let last = server.requests().last().expect("a request").body.to_string();
    assert!(last.contains("ran in the host") && last.contains("did not answer within"), "{last}");
    host.end().await;
}

#[tokio::test]
async fn a_tool_of_a_server_of_the_host_may_decide_on_permissions() {
    let server = serve(Scenario::new().tool("Bash", json!({ "command": "rm x" })).reply("Done."));
    let run = RunBuilder::bare(&server.base_url());
    let mut host = HostDriver::with(run, &["--permission-prompt-tool", "mcp__ws__bash"]);
    host.request(&json!({ "subtype": "initialize", "sdkMcpServers": ["ws"] })).await;
    answer_until(&mut host, "control_response").await;
    host.prompt("go").await;
    assert_eq!(answer_until(&mut host, "result").await.0, ["bash"]);
    host.end().await;
}
