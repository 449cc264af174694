//! MCP servers with the real binary: whatever a server does, the run ends well and reports
//! its outcome accurately.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::{python, script};
use crate::support::stopwatch::Stopwatch;
use crate::support::{
    FinishedProcess, RunBuilder, RunningProcess, is_alive, serve, with_time_limit,
};

/// A configuration of one server named `test`.
pub(super) fn config(arguments: &[&str], more: &Value) -> String {
    let script = script().display().to_string();
    let arguments: Vec<&str> = ["-S", script.as_str()].iter().chain(arguments).copied().collect();
    let mut entry = json!({ "command": python(), "args": arguments });
    entry.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    json!({ "mcpServers": { "test": entry } }).to_string()
}

pub(super) fn trial(server: &RehearsalServer, arguments: &[&str]) -> RunBuilder {
    // A busy machine takes longer to start a server than a run waits for one.
    RunBuilder::against(server)
        .env("MCP_TIMEOUT", "120000")
        .args(["go", "--output-format", "stream-json", "--mcp-config"])
        .args([config(arguments, &json!({}))])
}

pub(super) fn calls(tool: &str, text: &str) -> Scenario {
    let name = format!("mcp__test__{tool}");
    Scenario::new().tool(&name, json!({ "text": text })).reply("Done.")
}

/// The last request to the model, as text.
pub(super) fn told(server: &RehearsalServer) -> String {
    let body = server.requests().last().map(|request| request.body.clone()).unwrap_or_default();
    body["messages"].as_array().and_then(|all| all.last()).map(Value::to_string).unwrap_or_default()
}

fn tools_of(frame: &Value) -> Vec<&str> {
    frame["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(super) fn status(frame: &Value) -> &str {
    frame["status"].as_str().unwrap_or_default()
}

#[track_caller]
pub(super) fn succeeded(ended: &FinishedProcess) -> Value {
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    result
}

#[tokio::test]
async fn a_model_uses_a_servers_tool_and_the_result_counts_it() {
    let server = serve(calls("echo", "hello"));
    let ended = trial(&server, &["well"]).run().await;
    let result = succeeded(&ended);
    assert!(told(&server).contains("echo: hello"), "{}", told(&server));
    let init = &ended.frames()[0];
    assert_eq!(init["mcp_servers"], json!([{ "name": "test", "status": "connected" }]));
    assert!(tools_of(init).contains(&"mcp__test__echo"), "{init}");
    let wanted = json!({
        "servers": [{ "name": "test", "status": "connected" }],
        "calls": 1, "failed": 0, "reconnects": 0,
    });
    assert_eq!(result["mcp"], wanted);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_mcp_tool_needs_a_permission_rule() {
    let table: [(&[&str], bool); 10] = [
        (&[], false),
        (&["--permission-mode", "acceptEdits"], false),
        (&["--allowedTools", "mcp__test"], true),
        (&["--allowedTools", "mcp__test__echo"], true),
        (&["--allowedTools", "mcp__test__e*"], true),
        (&["--allowedTools", "mcp__*", "mcp__other"], false),
        (&["--allowedTools", "mcp__test__*"], true),
        (&["--allowedTools", "mcp__test", "--disallowedTools", "mcp__test__*"], false),
        // It says itself that it only reads, and is the user's own server.
        (&["--allowedTools", "mcp__test", "--permission-mode", "plan"], true),
        (&["--permission-mode", "plan"], false),
    ];
    for (flags, wanted) in table {
        let server = serve(calls("echo", "hello"));
        let trial = RunBuilder::bare(&server.base_url());
        let trial = trial.args(["go", "--mcp-config", &config(&["well"], &json!({}))]).args(flags);
        let ended = trial.run().await;
        let result = succeeded(&ended);
        assert_eq!(told(&server).contains("echo: hello"), wanted, "{flags:?}: {}", told(&server));
        let denied = result["permission_denials"].as_array().map_or(0, Vec::len);
        assert_eq!(denied, usize::from(!wanted), "{flags:?}");
    }
}

/// The names of servers and tools may have the letters between them.
#[tokio::test]
async fn a_rule_for_a_server_is_no_rule_for_one_whose_name_begins_alike() {
    for (rule, wanted) in [
        ("mcp__test", false),
        ("mcp__test__*", false),
        ("mcp__test__two", true),
        ("mcp__test__two__*", true),
    ] {
        let call = Scenario::new().tool("mcp__test__two__echo", json!({ "text": "hello" }));
        let server = serve(call.reply("Done."));
        let one: Value = serde_json::from_str(&config(&["well"], &json!({}))).expect("JSON");
        let own = &one["mcpServers"]["test"];
        let config = json!({ "mcpServers": { "test": own, "test__two": own } }).to_string();
        let trial = RunBuilder::bare(&server.base_url()).args(["go", "--mcp-config", &config]);
        let ended = trial.args(["--allowedTools", rule]).run().await;
        succeeded(&ended);
        assert_eq!(told(&server).contains("echo: hello"), wanted, "{rule}: {}", told(&server));
    }
}

#[tokio::test]
async fn a_rule_may_name_a_tool_as_its_server_does() {
    for (flags, wanted) in [
        (&["--allowedTools", "mcp__test__get.x"][..], true),
        (&["--allowedTools", "mcp__test", "--disallowedTools", "mcp__test__get.x"], false),
    ] {
        let call = Scenario::new().tool("mcp__test__get_x", json!({ "text": "hello" }));
        let server = serve(call.reply("Done."));
        let config = config(&["named", "get.x"], &json!({}));
        let trial = RunBuilder::bare(&server.base_url()).args(["go", "--mcp-config", &config]);
        succeeded(&trial.args(flags).run().await);
        assert_eq!(told(&server).contains("echo: hello"), wanted, "{flags:?}: {}", told(&server));
    }
}

/// Settings with a hook of `PreToolUse`, and one that notes what was told afterwards.
fn hooked(matcher: &str, says: &str) -> String {
    let says =
        format!(r#"echo '{{"hookSpecificOutput": {{"hookEventName": "PreToolUse", {says}}}}}'"#);
    let hook = |text: &str| json!([{ "type": "command", "command": text }]);
    json!({ "hooks": {
        "PreToolUse": [{ "matcher": matcher, "hooks": hook(&says) }],
        "PostToolUse": [{ "matcher": matcher, "hooks": hook("cat >> told") }],
    } })
    .to_string()
}

#[tokio::test]
async fn hooks_allow_deny_and_change_calls_of_servers() {
    let allow = r#""permissionDecision": "allow""#;
    let changed = r#""permissionDecision": "allow", "updatedInput": {"text": "changed"}"#;
    // The schema says otherwise, but the server takes it.
    let misfit = r#""permissionDecision": "allow", "updatedInput": {"text": 7}"#;
    let (deny, ask) = (r#""permissionDecision": "deny""#, r#""permissionDecision": "ask""#);
    let denied = &["--disallowedTools", "mcp__other", "mcp__test__fail"][..];
    let rows: [(&str, &str, &[&str], Option<&str>); 11] = [
        ("mcp__test__echo", allow, &[], Some("echo: hello")),
        ("mcp__test__.*", allow, denied, Some("echo: hello")),
        ("*", allow, &[], Some("echo: hello")),
        ("mcp__test", allow, &[], None),
        ("Bash", allow, &[], None),
        // It only reads, so says a server of the user's.
        ("*", allow, &["--permission-mode", "plan"], Some("echo: hello")),
        ("*", allow, &["--settings-deny"], None),
        ("*", changed, &[], Some("echo: changed")),
        ("*", misfit, &[], Some("echo: 7")),
        ("*", deny, &["--allowedTools", "mcp__test"], None),
        ("*", ask, &["--allowedTools", "mcp__test"], None),
    ];
    for (matcher, says, flags, wanted) in rows {
        let server = serve(calls("echo", "hello"));
        let mut settings: Value =
            serde_json::from_str(&hooked(matcher, says)).expect("it was just made");
        let by_rule = flags == ["--settings-deny"];
        if by_rule {
            settings["permissions"] = json!({ "ask": ["mcp__test__echo"] });
        }
        let trial = RunBuilder::bare(&server.base_url())
            .args(["go", "--mcp-config", &config(&["well"], &json!({}))])
            .args(["--settings", &settings.to_string()])
            .args(if by_rule { &[][..] } else { flags });
        let ended = trial.run().await;
        succeeded(&ended);
        let text = told(&server);
        let ran = text.contains("echo: ");
        assert_eq!(ran, wanted.is_some(), "{matcher} {says} {flags:?}: {text}");
        assert!(wanted.is_none_or(|wanted| text.contains(wanted)), "{matcher} {says}: {text}");
        let after = std::fs::read_to_string(ended.work().join("told")).unwrap_or_default();
        assert_eq!(after.contains("mcp__test__echo"), wanted.is_some(), "{matcher} {says}");
    }
}

#[tokio::test]
async fn an_input_is_repaired_by_the_schema_and_only_the_server_refuses_it() {
    for (input, wanted) in [
        (json!({ "count": "3" }), json!({ "count": 3, "scale": "css" })),
        (json!({ "scale": "print", "more": 1 }), json!({ "more": 1, "scale": "print" })),
        (json!({ "count": "three" }), json!({ "count": "three", "scale": "css" })),
    ] {
        let server = serve(Scenario::new().tool("mcp__test__typed", input).reply("Done."));
        succeeded(&trial(&server, &["typed"]).run().await);
        let told = told(&server).replace('\\', "");
        let given = told.split("given: ").nth(1).and_then(|it| it.split_inclusive('}').next());
        let given: Value = serde_json::from_str(given.expect("the server got it")).expect("JSON");
        assert_eq!(given, wanted);
    }
}

#[tokio::test]
async fn a_tool_name_in_other_case_names_the_built_in_tool_and_is_judged_by_its_rules() {
    for (flags, wanted) in [
        (&["--allowedTools", "Bash"][..], true),
        (&["--allowedTools", "Bash", "--disallowedTools", "Bash(echo *)"], false),
    ] {
        let server =
            serve(Scenario::new().tool("bash", json!({ "command": "echo o''k" })).reply("Done."));
        let trial = RunBuilder::bare(&server.base_url()).args(["go"]).args(flags);
        succeeded(&trial.run().await);
        assert_eq!(told(&server).contains("\"ok"), wanted, "{flags:?}: {}", told(&server));
    }
}

#[tokio::test]
async fn what_changes_something_is_not_used_while_planning() {
    let flags = ["--allowedTools", "mcp__test", "--permission-mode", "plan"];
    let server = serve(calls("env", "HOME"));
    let trial = RunBuilder::bare(&server.base_url());
    let allowing = hooked("*", r#""permissionDecision": "allow""#);
    let trial = trial.args(["go", "--mcp-config", &config(&["well"], &json!({}))]).args(flags);
    succeeded(&trial.args(["--settings", &allowing]).run().await);
    assert!(told(&server).contains("the run only plans"), "{}", told(&server));
    // A repository's server is not believed.
    let server = serve(calls("echo", "hello"));
    let trial = RunBuilder::bare(&server.base_url()).args(["go", "--trust-project"]).args(flags);
    let file = trial.work().join(".mcp.json");
    std::fs::write(file, config(&["well"], &json!({}))).expect("a file");
    succeeded(&trial.run().await);
    assert!(told(&server).contains("the run only plans"), "{}", told(&server));
}

#[tokio::test]
async fn mcp_resources_need_permission_to_be_read_but_not_to_be_listed() {
    for (flags, wanted) in [(&[][..], false), (&["--allowedTools", "mcp__test"], true)] {
        let scenario = Scenario::new()
            .tool("ListMcpResources", json!({}))
            .tool("ReadMcpResource", json!({ "server": "test", "uri": "x://notes" }))
            .reply("Done.");
        let server = serve(scenario);
        let trial = RunBuilder::bare(&server.base_url());
        let config = config(&["rich"], &json!({}));
        let ended = trial.args(["go", "--mcp-config", &config]).args(flags).run().await;
        let result = succeeded(&ended);
        assert_eq!(told(&server).contains("read it"), wanted, "{flags:?}: {}", told(&server));
        let denials = result["permission_denials"].as_array().map_or(0, Vec::len);
        assert_eq!(denials, usize::from(!wanted), "{result}");
        let system = server.requests()[0].body["system"].to_string();
        assert!(system.contains("Echo first."), "{system}");
    }
}

#[tokio::test]
async fn mcp_resources_are_denied_by_either_name_of_their_tools_and_with_their_server() {
    for (rule, lists, reads) in [
        ("ReadMcpResourceTool", true, false),
        ("ReadMcpResource", true, false),
        ("ListMcpResourcesTool", false, true),
        ("mcp__test", false, false),
        ("WebFetch", true, true),
    ] {
        let scenario = Scenario::new()
            .tool("ListMcpResourcesTool", json!({}))
            .tool("ReadMcpResourceTool", json!({ "uri": "x://notes" }))
            .reply("Done.");
        let server = serve(scenario);
        let config = config(&["rich"], &json!({}));
        let trial = RunBuilder::bare(&server.base_url())
            .args(["go", "--mcp-config", &config, "--allowedTools", "mcp__test"])
            .args(["--disallowedTools", rule]);
        let ended = trial.run().await;
        succeeded(&ended);
        let told: String = server.requests().iter().map(|it| it.body.to_string()).collect();
        assert_eq!(told.contains("x://{id}"), lists, "{rule}: {told}");
        assert_eq!(told.contains("read it"), reads, "{rule}: {told}");
        assert!(!ended.stderr.contains("no effect"), "{rule}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn a_picture_that_the_service_would_refuse_is_saved_instead() {
    for (which, wanted) in [("good", true), ("odd", true), ("bad", false)] {
        let server = serve(calls("picture", which));
        succeeded(&trial(&server, &["well"]).run().await);
        let told = told(&server);
        assert_eq!(told.contains("\"image/png\""), wanted, "{which}: {told}");
        assert_eq!(told.contains("the picture is damaged"), !wanted, "{which}: {told}");
    }
}

#[tokio::test]
async fn a_denied_mcp_tool_is_not_offered_to_the_model() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = trial(&server, &["well"]).args(["--disallowedTools", "mcp__test__e*"]);
    let ended = trial.run().await;
    succeeded(&ended);
    let frames = ended.frames();
    let tools = tools_of(&frames[0]);
    assert!(tools.contains(&"mcp__test__fail") && !tools.contains(&"mcp__test__echo"), "{tools:?}");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_does_not_end_the_run() {
    let server = serve(calls("die", ""));
    let ended = trial(&server, &["well"]).run().await;
    let result = succeeded(&ended);
    assert!(told(&server).contains("effect is unknown"), "{}", told(&server));
    assert_eq!((&result["mcp"]["calls"], &result["mcp"]["failed"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_dead_mcp_server_is_reported_and_delays_the_run_by_one_restart_only() {
    let server = serve(Scenario::new().reply("Done."));
    let ended = trial(&server, &["crash"]).run().await;
    let result = succeeded(&ended);
    let init = &ended.frames()[0];
    assert_eq!(status(&init["mcp_servers"][0]), "pending", "{init}");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("cannot find my config"), "{warnings}");
    assert!(!warnings.contains("next attempt in 4 s"), "{warnings}");
    assert_ne!(status(&result["mcp"]["servers"][0]), "connected");
}

#[tokio::test]
async fn a_server_that_starts_at_the_second_attempt_has_its_tools_in_the_first_request() {
    let server = serve(Scenario::new().reply("Done."));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mark = folder.path().join("mark").display().to_string();
    let ended = trial(&server, &["crash-once", &mark]).run().await;
    let result = succeeded(&ended);
    let init = &ended.frames()[0];
    assert_eq!(status(&init["mcp_servers"][0]), "connected", "{init}");
    assert!(tools_of(init).contains(&"mcp__test__echo"), "{init}");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("cannot find my config"), "{warnings}");
    assert!(!warnings.contains("the run begins without"), "{warnings}");
}

#[tokio::test]
async fn the_first_request_waits_no_longer_than_mcp_timeout() {
    let server = serve(Scenario::new().reply("Done."));
    let began = Stopwatch::start();
    let ended = trial(&server, &["never"]).env("MCP_TIMEOUT", "700").run().await;
    let result = succeeded(&ended);
    began.assert_within(Duration::from_secs(20), "the end");
    assert_eq!(status(&ended.frames()[0]["mcp_servers"][0]), "pending");
    let warnings = result["warnings"].to_string();
    let wanted = "the run begins without MCP servers that are still starting (test)";
    assert!(warnings.contains(wanted), "{warnings}");
}

#[tokio::test]
async fn a_slow_start_is_waited_for_and_its_tools_are_in_the_first_request() {
    let server = serve(calls("echo", "hello"));
    let trial = RunBuilder::against(&server);
    let gate = trial.work().join("gate");
    let config = config(&["late", &gate.display().to_string()], &json!({}));
    let trial = trial.args(["go", "--output-format", "stream-json", "--mcp-config", &config]);
    let mut running = trial.env("MCP_TIMEOUT", "200000").start();
    running.wait_for_stderr("waiting for MCP servers (test), ").await;
    running.wait_for_stderr("left until the run begins without them").await;
    assert_eq!(server.requests().len(), 0, "nothing is asked before the servers are there");
    std::fs::write(&gate, "").expect("a file can be written");
    let ended = running.end().await;
    succeeded(&ended);
    let init = ended.frames().into_iter().find(|frame| frame["subtype"] == "init");
    assert_eq!(status(&init.expect("an init message")["mcp_servers"][0]), "connected");
    let first = server.requests()[0].body.clone();
    assert!(first["tools"].to_string().contains("mcp__test__echo"), "{first}");
    assert!(!first["system"].to_string().contains("still starting"), "{first}");
    assert!(told(&server).contains("echo: hello"), "{}", told(&server));
    let names_it = |frame: &Value| {
        frame["subtype"] == "heartbeat" && frame.to_string().contains("\"servers\":\"test\"")
    };
    assert!(ended.frames().iter().any(names_it), "{ended:?}");
}

#[tokio::test]
async fn a_late_servers_tools_join_at_the_next_turn_and_the_model_is_told() {
    // The model opens the gate, and goes on when the server's tools have come. The start goes on
    // for much longer than the run waits for it.
    let command = "touch gate; until [ \"$(grep -c tools/list log)\" -ge 2 ]; do sleep 0.05; done";
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": command, "description": "Open" }))
        .tool("mcp__test__echo", json!({ "text": "late" }))
        .reply("Done.");
    let server = serve(scenario);
    let trial = RunBuilder::against(&server);
    let (gate, log) = (trial.work().join("gate"), trial.work().join("log"));
    let log = json!({ "env": { "SERVER_LOG": log } });
    let config = config(&["late", &gate.display().to_string()], &log);
    let trial = trial.args(["go", "--output-format", "stream-json", "--mcp-config", &config]);
    let ended = trial.env("MCP_TIMEOUT", "1").run().await;
    let result = succeeded(&ended);
    assert!(told(&server).contains("echo: late"), "{}", told(&server));
    assert_eq!(status(&ended.frames()[0]["mcp_servers"][0]), "pending");
    assert_eq!(status(&result["mcp"]["servers"][0]), "connected");
    assert_eq!(result["mcp"]["reconnects"], 0, "its one start was not cut short");
    let bodies: Vec<Value> = server.requests().iter().map(|request| request.body.clone()).collect();
    let system = bodies[0]["system"].to_string();
    assert!(system.contains("- test: its tools' names begin with mcp__test__"), "{system}");
    let news = "MCP server \\\"test\\\" is connected now.";
    let knows = |body: &Value, part: &str| body.to_string().contains(part);
    let joined: Vec<bool> = bodies.iter().map(|body| knows(body, news)).collect();
    assert_eq!(joined, [false, true, true]);
    let last = bodies[2]["messages"].to_string();
    assert_eq!(last.matches(news).count(), 1, "it is told once: {last}");
    let offered: Vec<bool> =
        bodies.iter().map(|body| knows(&body["tools"], "mcp__test__echo")).collect();
    assert_eq!(offered, [false, true, true]);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_required_server_that_cannot_be_had_ends_it_before_it_begins() {
    let tool = ["--permission-prompt-tool", "mcp__test__go"];
    for flags in [["--mcp-required", "all"], ["--mcp-required", "test"], tool] {
        let server = serve(Scenario::new().reply("Done."));
        let trial = trial(&server, &["never"]).args(flags);
        let ended = trial.env("MCP_TIMEOUT", "700").run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(result["terminal_reason"], "mcp_unavailable");
        assert!(result["errors"][0].to_string().contains("required"), "{result}");
        assert_eq!(server.requests().len(), 0);
    }
    let server = serve(Scenario::new().reply("Done."));
    succeeded(&trial(&server, &["well"]).args(["--mcp-required=all"]).run().await);
    for flags in [["--mcp-required", "other"], ["--permission-prompt-tool", "mcp__other__go"]] {
        let server = serve(Scenario::new().reply("Done."));
        let ended = trial(&server, &["well"]).args(flags).run().await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(flags[1]) && ended.stderr.contains("there are test"));
        assert_eq!(server.requests().len(), 0);
    }
}

#[tokio::test]
async fn the_wait_for_required_servers_is_told_of_and_keeps_to_the_deadline() {
    let server = serve(Scenario::new().reply("Done."));
    let settings = json!({ "heartbeatInterval": "300ms" }).to_string();
    let flags = ["--mcp-required", "all", "--max-duration", "4s", "--settings", &settings];
    let ended = trial(&server, &["never"]).args(flags).run().await;
    assert!(ended.stderr.contains("waiting for required MCP servers (test)"), "{}", ended.stderr);
    let result = ended.result();
    assert_eq!(result["terminal_reason"], "deadline", "{result}");
    assert!(result["errors"][0].to_string().contains("(test)"), "{result}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_long_result_is_cut_and_saved_whole() {
    let server = serve(calls("big", ""));
    let ended = trial(&server, &["well"]).run().await;
    succeeded(&ended);
    let told = told(&server);
    assert!(told.len() < 40_000 && told.contains("begin") && told.contains("end"), "{told}");
    let path = told.split("all of it is in ").nth(1).and_then(|rest| rest.split(' ').next());
    let saved = std::fs::read(path.expect("a path")).expect("it is kept with the session");
    assert_eq!(saved.len(), 200_008);
}

#[tokio::test]
async fn what_a_model_cannot_be_shown_is_saved_for_it() {
    let server = serve(calls("data", ""));
    let ended = trial(&server, &["well"]).run().await;
    succeeded(&ended);
    let told = told(&server);
    let path = told.split(" bytes, is in ").nth(1).and_then(|rest| rest.split(']').next());
    let saved = std::fs::read(path.unwrap_or_else(|| panic!("a path in {told}")));
    assert_eq!(saved.expect("it is kept"), b"\x00\x01binary");
}

/// Waits for the processes that a stubborn server lists, and returns them.
async fn listed(pids: &Path) -> Vec<i32> {
    with_time_limit("the processes", async {
        loop {
            let text = std::fs::read_to_string(pids).unwrap_or_default();
            let listed: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            if listed.len() == 2 {
                break listed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_server_that_will_not_die_does_not_keep_the_process() {
    let server = serve(calls("echo", "hi"));
    let trial = RunBuilder::against(&server);
    let pids = trial.work().join("pids");
    let config = config(&["stubborn", &pids.display().to_string()], &json!({}));
    let watch = Stopwatch::start();
    let ended = trial.args(["go", "--mcp-config", &config]).run().await;
    let result = succeeded(&ended);
    let took = Duration::from_millis(result["duration_ms"].as_u64().expect("a number"));
    assert!(took < watch.scaled_bound(Duration::from_secs(25)), "{took:?}");
    for pid in listed(&pids).await {
        assert!(!is_alive(pid), "{pid} survived");
    }
}

async fn hangs(running: &mut RunningProcess) {
    let log = running.work().join("log");
    with_time_limit("the call", async {
        while !std::fs::read_to_string(&log).unwrap_or_default().contains("call hang") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_interrupt_ends_a_run_that_waits_for_a_server() {
    let server = serve(calls("hang", ""));
    let trial = RunBuilder::against(&server);
    let log = json!({ "env": { "SERVER_LOG": trial.work().join("log") } });
    let config = config(&["well"], &log);
    let mut running = trial.args(["go", "--mcp-config", &config]).start();
    hangs(&mut running).await;
    let began = Stopwatch::start();
    running.signal(Signal::SIGTERM);
    let ended = running.end().await;
    began.assert_within(Duration::from_secs(4), "the end");
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert_eq!(ended.result()["terminal_reason"], "aborted_tools");
    assert_eq!(server.requests().len(), 1, "no request after the signal");
}

#[tokio::test]
async fn a_call_has_a_limit_and_a_heartbeat() {
    let server = serve(calls("hang", ""));
    let settings = json!({ "heartbeatInterval": "300ms" }).to_string();
    let trial = trial(&server, &["well"]).args(["--settings", &settings]);
    let ended = trial.env("MCP_TOOL_TIMEOUT", "1500").run().await;
    succeeded(&ended);
    assert!(told(&server).contains("did not answer within 1.5"), "{}", told(&server));
    assert!(ended.stderr.contains("mcp__test__hang"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_repositorys_servers_start_only_where_it_is_trusted() {
    for (flags, wanted) in [
        (&[][..], json!([])),
        (&["--trust-project"], json!(["test"])),
        (&["--trust-project", "--strict-mcp-config"], json!([])),
        (&["--trust-project", "--setting-sources", "user"], json!([])),
    ] {
        let server = serve(Scenario::new().reply("Done."));
        let trial = RunBuilder::against(&server).args(["go", "--output-format", "stream-json"]);
        let file = trial.work().join(".mcp.json");
        std::fs::write(file, config(&["well"], &json!({}))).expect("a file");
        let ended = trial.args(flags).run().await;
        succeeded(&ended);
        let init = &ended.frames()[0];
        let servers = init["mcp_servers"].as_array().expect("a list");
        let names: Vec<&Value> = servers.iter().map(|one| &one["name"]).collect();
        assert_eq!(json!(names), wanted, "{flags:?}");
    }
}

#[tokio::test]
async fn settings_name_servers_and_switch_those_of_a_repository_off() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::against(&server).args(["go", "--output-format", "stream-json"]);
    let file = trial.work().join(".mcp.json");
    std::fs::write(file, config(&["well"], &json!({}))).expect("a file");
    let own: Value = serde_json::from_str(&config(&["well"], &json!({}))).expect("JSON");
    let settings = json!({
        "mcpServers": { "own": own["mcpServers"]["test"], "bad": { "command": 7 } },
        "disabledMcpjsonServers": ["test"],
    });
    let ended = trial.args(["--trust-project", "--settings", &settings.to_string()]).run().await;
    let result = succeeded(&ended);
    let init = &ended.frames()[0]["mcp_servers"];
    let wanted = json!([
        { "name": "own", "status": "connected" }, { "name": "test", "status": "disabled" },
    ]);
    assert_eq!(init, &wanted);
    assert!(result["warnings"].to_string().contains("\\\"bad\\\" is left out"), "{result}");
}

#[tokio::test]
async fn a_configuration_that_is_none_is_a_mistake_with_its_place() {
    let server = serve(Scenario::new().reply("Done."));
    for (given, wanted) in [
        ("{\"mcpServers\":\n [}", "--mcp-config:2:3: not valid JSON"),
        ("{\"mcpServers\": [1]}", "--mcp-config:1:16: \"mcpServers\" takes"),
        ("no/such/file.json", "no/such/file.json: cannot be read"),
    ] {
        let ended = RunBuilder::against(&server).args(["go", "--mcp-config", given]).run().await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let errors = ended.result()["errors"].to_string().replace("\\\"", "\"");
        assert!(errors.contains(wanted), "{errors}");
    }
    assert_eq!(server.requests().len(), 0);
}
