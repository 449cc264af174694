//! State that the turns of a host share, state that `/clear` ends, and changes during a turn.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::driver::{HostDriver, conversation, wait_for_requests};
use super::requests::{mcp_server, mcp_tools, prompt_with_id};
use crate::support::{RunBuilder, serve};

async fn prompt(host: &mut HostDriver, text: &str) -> Value {
    host.prompt(text).await;
    host.result().await
}

/// Begins a new conversation by a prompt with this id.
async fn clear_with_id(host: &mut HostDriver, id: &str) {
    let message = json!({ "role": "user", "content": "/clear" });
    host.send(&json!({ "type": "user", "uuid": id, "message": message })).await;
    host.result().await;
}

/// The sum of the costs by model.
fn cost_by_model(result: &Value) -> f64 {
    let models = result["modelUsage"].as_object().expect("an object").values();
    models.map(|usage| usage["costUSD"].as_f64().expect("a cost")).sum()
}

#[tokio::test]
async fn a_budget_holds_for_all_prompts_until_a_new_conversation_begins() {
    let reply = |script: Scenario, text: &str| script.reply(text).usage(30_000, 10);
    let server =
        serve(["1", "2", "3", "4"].iter().fold(Scenario::new(), |it, text| reply(it, text)));
    let mut host = HostDriver::start(&server, &["--max-budget-usd", "0.1"]);
    for text in ["one", "two"] {
        assert_eq!(prompt(&mut host, text).await["subtype"], "success");
    }
    let spent = prompt(&mut host, "three").await;
    assert_eq!(spent["terminal_reason"], "budget_exhausted", "{spent}");
    assert_eq!(server.requests().len(), 2, "there is no request without money");
    let why = spent["errors"][0].as_str().expect("a reason");
    assert!(why.contains("by this prompt and those before it"), "{why}");
    let amount = spent["budget"]["spent_usd"].as_f64().expect("an amount");
    assert!(amount > 0.1 && (amount - cost_by_model(&spent)).abs() < 1e-6, "{spent}");
    assert_eq!(spent["budget"]["ceiling_usd"], 0.1);

    host.send(&json!({ "type": "user", "shouldQuery": false,
        "message": { "role": "user", "content": "the word is cormorant" } }))
        .await;
    prompt(&mut host, "/clear").await;
    let usage = host.ask(&json!({ "subtype": "get_context_usage" })).await["response"].clone();
    let parts = usage["categories"].as_array().expect("a list");
    let messages = parts.iter().find(|part| part["name"] == "Messages").expect("messages");
    assert_eq!((&messages["tokens"], &usage["apiUsage"]), (&json!(0), &Value::Null), "{usage}");
    let fresh = prompt(&mut host, "which word?").await;
    assert_eq!(fresh["subtype"], "success", "{fresh}");
    let total = fresh["total_cost_usd"].as_f64().expect("a cost");
    assert!((total - cost_by_model(&fresh)).abs() < 1e-6, "{fresh}");
    let third = conversation(&server.requests()[2].body);
    assert!(!third.contains("cormorant"), "it belongs to the earlier conversation: {third}");
    host.end().await;
}

#[tokio::test]
async fn a_file_that_an_earlier_prompt_has_read_can_be_overwritten_until_the_conversation_ends() {
    let write = |text: &str| json!({ "file_path": "a.txt", "content": text });
    let script = Scenario::new()
        .tool("Read", json!({ "file_path": "a.txt" }))
        .reply("1")
        .tool("Write", write("two"))
        .reply("2")
        .tool("Write", write("three"))
        .reply("3");
    let server = serve(script);
    let mut host = HostDriver::start(&server, &[]);
    let file = host.process.work().join("a.txt");
    fs::write(&file, "one").expect("a file");
    for text in ["read", "write", "/clear", "write again"] {
        prompt(&mut host, text).await;
    }
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "two");
    let sent = conversation(&server.requests()[5].body);
    assert!(sent.contains("has not been read yet"), "{sent}");
    host.end().await;
}

#[tokio::test]
async fn files_from_before_a_new_conversation_are_restored_all_or_none() {
    let edit = |path: &str| json!({ "file_path": path, "old_string": "old", "new_string": "new" });
    let script = Scenario::new().tool("Edit", edit("a.sh")).reply("1");
    let server = serve(script.tool("Edit", edit("b.txt")).reply("2"));
    let run = RunBuilder::against(&server).env("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true");
    let mut host = HostDriver::with(run, &[]);
    let (a, b) = (host.process.work().join("a.sh"), host.process.work().join("b.txt"));
    for file in [&a, &b] {
        fs::write(file, "old").expect("a file");
    }
    fs::set_permissions(&a, fs::Permissions::from_mode(0o755)).expect("its owner sets it");
    prompt_with_id(&mut host, "p-1").await;
    clear_with_id(&mut host, "p-clear").await;
    prompt_with_id(&mut host, "p-2").await;
    let rewind = |id: &str| json!({ "subtype": "rewind_files", "user_message_id": id });
    let since_clear = host.ask(&rewind("p-clear")).await["response"].clone();
    assert_eq!(since_clear["filesChanged"], json!([b]), "{since_clear}");
    fs::write(&b, "new").expect("a file");
    let rewind = rewind("p-1");
    // A folder in the place of the last file keeps all from being restored.
    fs::remove_file(&b).expect("it is there");
    fs::create_dir(&b).expect("a folder");
    let reply = host.ask(&rewind).await["response"].clone();
    assert_eq!(reply["canRewind"], false, "{reply}");
    assert!(
        reply["error"].as_str().is_some_and(|it| it.contains("nothing was changed")),
        "{reply}"
    );
    assert_eq!(fs::read_to_string(&a).expect("it is there"), "new");

    fs::remove_dir(&b).expect("it is empty");
    fs::remove_file(&a).expect("it is there");
    let reply = host.ask(&rewind).await["response"].clone();
    assert_eq!(reply["canRewind"], true, "{reply}");
    for file in [&a, &b] {
        assert_eq!(fs::read_to_string(file).expect("it is there"), "old");
    }
    assert_eq!(fs::metadata(&a).expect("it is there").mode() & 0o777, 0o755);
    host.end().await;
}

/// Waits for the next question about a permission.
async fn permission_question(host: &mut HostDriver) -> Value {
    host.wait_for("a question", |frame| frame["request"]["subtype"] == "can_use_tool").await
}

/// Allows the call of a question, with changes of permissions.
async fn allow(host: &mut HostDriver, question: &Value, changes: &Value) {
    let input = &question["request"]["input"];
    let answer =
        json!({ "behavior": "allow", "updatedInput": input, "updatedPermissions": changes });
    reply(host, question, &answer).await;
}

async fn reply(host: &mut HostDriver, request: &Value, response: &Value) {
    host.send(&json!({ "type": "control_response", "response": {
        "subtype": "success", "request_id": request["request_id"], "response": response } }))
        .await;
}

/// Waits for the next hook before a tool, and returns the mode in its input.
async fn hook_mode(host: &mut HostDriver) -> Value {
    let hook =
        host.wait_for("a hook", |frame| frame["request"]["subtype"] == "hook_callback").await;
    reply(host, &hook, &json!({})).await;
    hook["request"]["input"]["permission_mode"].clone()
}

#[tokio::test]
async fn a_mode_that_comes_with_an_answer_is_told_to_hooks_messages_and_later_turns() {
    let write = |path: &str| json!({ "file_path": path, "content": "x" });
    let script = Scenario::new().tool("Write", write("a")).tool("Write", write("b")).reply("1");
    let server = serve(script.reply("2"));
    let run = RunBuilder::bare(&server.base_url());
    let mut host = HostDriver::with(run, &["--permission-prompt-tool", "stdio"]);
    let hooks = json!({ "PreToolUse": [{ "matcher": null, "hookCallbackIds": ["h"] }] });
    host.ask(&json!({ "subtype": "initialize", "hooks": hooks })).await;
    host.prompt("write").await;
    assert_eq!(hook_mode(&mut host).await, "default");
    let set = json!([{ "type": "setMode", "mode": "acceptEdits", "destination": "session" }]);
    let question = permission_question(&mut host).await;
    allow(&mut host, &question, &set).await;
    let status = host.wait_for("the new mode", |frame| frame["subtype"] == "status").await;
    assert_eq!(status["permissionMode"], "acceptEdits", "{status}");
    assert_eq!(hook_mode(&mut host).await, "acceptEdits");
    host.result().await;
    host.prompt("again").await;
    let init = host.wait_for("init", |frame| frame["subtype"] == "init").await;
    assert_eq!(init["permissionMode"], "acceptEdits", "{init}");
    host.result().await;
    host.end().await;
}

#[tokio::test]
async fn a_denial_that_ends_the_turn_is_in_its_result() {
    for (command, rule) in [("touch a", json!("touch a")), ("rm build/*.o", Value::Null)] {
        let server = serve(Scenario::new().tool("Bash", json!({ "command": command })));
        let run = RunBuilder::bare(&server.base_url());
        let mut host = HostDriver::with(run, &["--permission-prompt-tool", "stdio"]);
        host.prompt("go").await;
        let question = permission_question(&mut host).await;
        let suggestions = &question["request"]["permission_suggestions"];
        assert_eq!(suggestions[0]["rules"][0]["ruleContent"], rule, "{suggestions}");
        let answer = json!({ "behavior": "deny", "message": "not here", "interrupt": true });
        reply(&mut host, &question, &answer).await;
        let denial = host.result().await["permission_denials"][0].clone();
        assert_eq!(denial["tool_input"]["command"], command, "{denial}");
        assert!(denial["reason"].to_string().contains("not here"), "{denial}");
        host.end().await;
    }
}

#[tokio::test]
async fn a_folder_that_comes_with_an_answer_is_a_working_folder_of_this_and_later_turns() {
    let outside = tempfile::tempdir().expect("a temporary folder");
    let read = |name: &str| json!({ "file_path": outside.path().join(name) });
    for name in ["a", "b", "c", "d"] {
        fs::write(outside.path().join(name), "text").expect("a file");
    }
    let script = Scenario::new().tool("Read", read("a")).tool("Read", read("b")).reply("1");
    let script = script.tool("Read", read("c")).reply("2");
    let change = json!({ "file_path": "new", "content": "text" });
    let server = serve(script.tool("Write", change).tool("Read", read("d")).reply("3"));
    let run = RunBuilder::bare(&server.base_url());
    let mut host = HostDriver::with(run, &["--permission-prompt-tool", "stdio"]);
    host.prompt("read").await;
    let question = permission_question(&mut host).await;
    let folders = json!([outside.path()]);
    let add = json!({ "type": "addDirectories", "directories": folders, "destination": "session" });
    allow(&mut host, &question, &json!([add])).await;
    // No further question is asked.
    assert_eq!(host.result().await["result"], "1");
    assert_eq!(prompt(&mut host, "again").await["permission_denials"], json!([]));
    // It can be removed in a later turn than that in which it was added, for the rest of the turn.
    host.prompt("write").await;
    let question = permission_question(&mut host).await;
    let remove = json!({ "type": "removeDirectories", "directories": folders });
    allow(&mut host, &question, &json!([remove])).await;
    let question = permission_question(&mut host).await;
    assert_eq!(question["request"]["tool_name"], "Read", "{question}");
    allow(&mut host, &question, &json!([])).await;
    assert_eq!(host.result().await["result"], "3");
    host.end().await;
}

#[tokio::test]
async fn servers_that_a_host_sets_in_mid_turn_are_offered_from_the_next_request_on() {
    let touch = || json!({ "command": "touch made" });
    let script = Scenario::new().tool("Bash", touch()).tool("Bash", touch()).reply("Done.");
    let server = serve(script);
    let run = RunBuilder::bare(&server.base_url()).args(["--sandbox", "off"]);
    let mut host = HostDriver::with(run, &["--permission-prompt-tool", "stdio"]);
    host.prompt("go").await;
    let set = |servers: Value| json!({ "subtype": "mcp_set_servers", "servers": servers });
    let question = permission_question(&mut host).await;
    let mut denied = mcp_server("two");
    denied["tools"] = json!([{ "name": "two", "permission_policy": "always_deny" }]);
    let reply = host.ask(&set(json!({ "y": denied, "z": mcp_server("one") }))).await;
    assert_eq!(reply["response"]["added"], json!(["y", "z"]), "{reply}");
    // The answer comes when it is connected.
    for name in ["y", "z"] {
        host.ask(&json!({ "subtype": "mcp_reconnect", "serverName": name })).await;
    }
    allow(&mut host, &question, &json!([])).await;
    let question = permission_question(&mut host).await;
    host.ask(&set(json!({}))).await;
    allow(&mut host, &question, &json!([])).await;
    assert_eq!(host.result().await["result"], "Done.");
    let offered: Vec<_> = server.requests().iter().map(|it| mcp_tools(&it.body)).collect();
    assert_eq!(offered, [vec![], vec!["mcp__z__one".to_owned()], vec![]]);
    host.end().await;
}

/// The SDKs take any message after an error result for a crash.
#[tokio::test]
async fn no_message_follows_an_error_result_at_the_end_of_the_input() {
    let call = json!({ "command": "sleep 3600", "run_in_background": true });
    let server = serve(Scenario::new().tool("Bash", call));
    let end = json!([{ "hooks": [{ "type": "command", "command": "exit 1" }] }]);
    let settings = json!({ "hooks": { "SessionEnd": end } }).to_string();
    let flags = ["--max-turns", "1", "--settings", &settings];
    let mut host = HostDriver::start(&server, &flags);
    host.prompt("go").await;
    let (ended, frames) = host.end().await;
    let last = frames.last().expect("a result");
    assert_eq!((&last["type"], &last["subtype"]), (&json!("result"), &json!("error_max_turns")));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("SessionEnd"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_prompt_that_an_earlier_process_has_received_is_neither_added_nor_answered_twice() {
    let stall = |script: Scenario| script.fault(ScriptedFaultKind::Stall, FaultPosition::Request);
    let script = stall(Scenario::new().reply("First.").reply("This reply is lost."));
    let server = serve(script.reply("Second.").reply("Third.").reply("4").reply("5"));
    let ids = [1, 2, 3, 4].map(|n| format!("AAAAAAAA-0000-4000-8000-00000000000{n}"));
    let send = async |host: &mut HostDriver, n: usize| {
        let message = json!({ "role": "user", "content": format!("prompt {n}") });
        host.send(&json!({ "type": "user", "uuid": ids[n - 1], "message": message })).await;
    };
    let run = RunBuilder::against(&server);
    let [second, third] = [0; 2].map(|_| run.in_same_folders(&server));
    let mut host = HostDriver::with(run, &[]);
    send(&mut host, 1).await;
    let session = host.result().await["session_id"].as_str().expect("an id").to_owned();
    send(&mut host, 2).await;
    wait_for_requests(&server, 2).await;
    host.process.child.start_kill().expect("it can be killed");
    let first = host.end().await;

    let mut host = HostDriver::with(second, &["--resume", &session]);
    for n in [1, 2, 2, 3] {
        send(&mut host, n).await;
    }
    let continued = host.result().await;
    assert_eq!((&continued["result"], &continued["num_turns"]), (&json!("Second."), &json!(1)));
    assert_eq!(continued["user_message_uuid"], ids[1]);
    assert_eq!(host.result().await["result"], "Third.");
    assert_eq!(results(&host.end().await.1), 2);

    let mut host = HostDriver::with(third, &["--resume", &session]);
    send(&mut host, 3).await;
    assert_eq!(host.result().await["result"], "Third.", "its result may not have arrived");
    for _ in 0..2 {
        let message = json!({ "role": "user", "content": "prompt 4" });
        host.send(&json!({ "type": "user", "uuid": "", "message": message })).await;
        host.result().await;
    }
    host.end().await;
    let bodies: Vec<String> =
        server.requests().iter().map(|request| conversation(&request.body)).collect();
    let count = |text: &str, of: &str| text.matches(of).count();
    assert_eq!(bodies.len(), 6, "the result of an answered prompt needs no request");
    for (at, wanted) in [(2, [1, 1, 0]), (3, [1, 1, 1]), (4, [1, 1, 1])] {
        let counts = [1, 2, 3].map(|n| count(&bodies[at], &format!("prompt {n}")));
        assert_eq!(counts, wanted, "{}", bodies[at]);
    }
    assert!(bodies[5].contains("First.") && bodies[5].contains("Second."), "{}", bodies[5]);
    drop(first);
}

fn results(frames: &[Value]) -> usize {
    frames.iter().filter(|frame| frame["type"] == "result").count()
}

/// A command that is confined could otherwise start any program with the next prompt.
#[tokio::test]
async fn what_commands_write_into_trusted_files_has_no_effect_in_the_session() {
    let hooks = |command: &str| {
        json!({ "hooks": { "UserPromptSubmit": [{ "hooks": [
            { "type": "command", "command": command }] }] } })
    };
    let written = hooks("touch written");
    // Servers start in the working folder.
    let servers = json!({ "mcpServers": { "x": { "command": "touch", "args": ["written"] } } });
    let write = format!(
        "for file in .mcp.json kit/.mcp.json servers.json; do echo '{servers}' > $file; done; \
         mkdir -p .outlast .claude/agents; for file in .claude/settings.json .outlast/settings.json \
         .claude/settings.local.json kit/hooks/hooks.json given.json; do echo '{written}' > $file; \
         done; printf -- '---\\nname: x\\ndescription: d\\nmodel: other\\n---\\nbe x\\n' > \
         .claude/agents/x.md"
    );
    let command = json!({ "command": write });
    let server = serve(Scenario::new().tool("Bash", command).reply("One.").reply("Two."));
    let run = RunBuilder::against(&server);
    let work = run.work().clone();
    for folder in [".claude", "kit/hooks", "kit/.claude-plugin"] {
        fs::create_dir_all(work.join(folder)).expect("a folder");
    }
    let manifest = json!({ "name": "kit" });
    fs::write(work.join("kit/.claude-plugin/plugin.json"), manifest.to_string()).expect("a file");
    for (file, mark) in
        [(".claude/settings.json", "a"), ("kit/hooks/hooks.json", "b"), ("given.json", "c")]
    {
        let first = hooks(&format!("echo {mark} >> log"));
        fs::write(work.join(file), first.to_string()).expect("a file");
    }
    fs::write(work.join("servers.json"), r#"{"mcpServers": {}}"#).expect("a file");
    let flags = ["--plugin-dir", "kit", "--settings", "given.json", "--allowedTools", "Bash"];
    let flags = [&flags[..], &["--mcp-config", "servers.json"]].concat();
    let mut host = HostDriver::with(run, &flags);
    let first = prompt(&mut host, "one").await;
    assert_eq!(first["result"], "One.", "{first}");
    assert!(!first["warnings"].to_string().contains("was changed"), "{first}");
    let second = prompt(&mut host, "two").await;
    assert_eq!(second["result"], "Two.", "{second}");
    let warnings = second["warnings"].to_string();
    let files = ["settings.json", "settings.local.json", "\"the plugin in ", "given.json"];
    let servers = ["/.mcp.json was changed", "servers of the plugin in ", "servers.json was"];
    for file in files.iter().chain(&servers) {
        assert!(warnings.contains(file), "{file}: {warnings}");
    }
    assert!(!work.join("written").exists());
    let is_reported =
        |frame: &Value| frame.to_string().contains("it was written after the session");
    assert!(host.frames.iter().any(is_reported), "the agent: {:#?}", host.frames);
    let mut log: Vec<char> =
        fs::read_to_string(work.join("log")).expect("a file").chars().collect();
    log.retain(|mark| !mark.is_whitespace());
    log.sort_unstable();
    assert_eq!(
        log,
        ['a', 'a', 'b', 'b', 'c', 'c'],
        "the hooks that were there run for each prompt"
    );
    host.end().await;
}
