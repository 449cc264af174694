//! Denied calls are reported, listed and, if configured, end the run. And the permission prompt
//! tool.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use crate::support::python::python;
use crate::support::{FinishedProcess, RunBuilder, serve, with_time_limit};

const ARBITER: &str = "mcp__judge__decide";

fn bash() -> Value {
    json!({ "command": "echo no > file" })
}

/// A call of each kind of tool that no rule allows, and how the run reports it.
fn every_kind() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let deny = |rule| vec!["--disallowed-tools", rule];
    vec![
        ("Bash", bash(), vec![]),
        ("Bash", json!({ "command": "for f in a; do make $f; done" }), vec![]),
        ("Bash", json!({ "command": "ls; rm -rf /" }), vec!["--allowed-tools", "Bash"]),
        ("Bash", json!({ "command": "if ls; then touch x; fi" }), deny("Bash(touch *)")),
        ("Write", json!({ "file_path": "new", "content": "x" }), vec![]),
        ("Edit", json!({ "file_path": "f", "old_string": "a", "new_string": "b" }), vec![]),
        ("Read", json!({ "file_path": "/etc/passwd" }), vec![]),
        ("Read", json!({ "file_path": "f" }), deny("Read(f)")),
        ("Glob", json!({ "pattern": "*", "path": "/etc" }), vec![]),
        ("Grep", json!({ "pattern": "x", "path": "/etc" }), vec![]),
        (ARBITER, json!({}), vec![]),
    ]
}

/// The configuration of a server that answers `answer`, and what it was asked.
fn arbiter(trial: &RunBuilder, answer: &str) -> (String, PathBuf) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arbiter.py");
    let log = trial.work().parent().expect("it is in a folder").join("asked");
    let server = json!({ "command": python(), "args": ["-S", script, answer, log] });
    (json!({ "mcpServers": { "judge": server } }).to_string(), log)
}

fn trial(server: &RehearsalServer) -> RunBuilder {
    let trial = RunBuilder::bare(&server.base_url()).args(["go on"]);
    std::fs::write(trial.work().join("f"), "a").expect("room");
    trial
}

fn denials(ended: &FinishedProcess) -> Vec<(String, Value)> {
    let listed = ended.result()["permission_denials"].as_array().cloned().unwrap_or_default();
    let read = |denial: &Value| {
        assert!(denial["tool_use_id"].is_string(), "{denial}");
        (denial["tool_name"].as_str().unwrap_or_default().to_owned(), denial["tool_input"].clone())
    };
    listed.iter().map(read).collect()
}

#[tokio::test]
async fn a_denial_of_any_tool_ends_the_run_when_configured() {
    for (tool, input, flags) in every_kind() {
        let server = serve(Scenario::new().tool(tool, input.clone()).reply("Done."));
        let trial = trial(&server);
        let (config, _) = arbiter(&trial, "no");
        let flags = flags.into_iter().chain(["--mcp-config", &config, "--on-denied", "fail"]);
        let ended = trial.args(flags.collect::<Vec<_>>()).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(9), "{tool} {input}: {ended:?}");
        assert_eq!(
            (&result["terminal_reason"], &result["is_error"]),
            (&json!("denied"), &json!(true))
        );
        assert_eq!(result["exit_code"], 9, "{result}");
        assert_eq!(denials(&ended), [(tool.to_owned(), input)], "{result}");
        assert!(ended.stderr.contains(&format!("warning: {tool}")), "{ended:?}");
        assert_eq!(server.requests().len(), 1, "nothing is asked after that");
    }
}

#[tokio::test]
async fn a_denial_of_any_tool_is_otherwise_reported_and_listed() {
    for (tool, input, flags) in every_kind() {
        let server = serve(Scenario::new().tool(tool, input.clone()).reply("Done."));
        let trial = trial(&server);
        let (config, _) = arbiter(&trial, "no");
        let ended = trial.args(["--mcp-config", &config]).args(flags).run().await;
        assert_eq!(ended.code, Some(0), "{tool} {input}: {ended:?}");
        assert_eq!(denials(&ended), [(tool.to_owned(), input)], "{ended:?}");
        assert!(ended.stderr.contains(&format!("warning: {tool}")), "{ended:?}");
    }
}

#[tokio::test]
async fn calls_beside_a_run_ending_denial_are_answered_but_not_run() {
    let later = json!({ "command": "touch later" });
    let scenario = Scenario::new().tool("Bash", bash()).and_tool("Bash", later).reply("Done.");
    let server = serve(scenario);
    let flags = ["--allowed-tools", "Bash(touch *)", "--on-denied", "fail"];
    let ended = trial(&server).args(flags).run().await;
    assert_eq!(ended.code, Some(9), "{ended:?}");
    assert!(!ended.work().join("later").exists(), "it was run after all");
    assert_eq!(ended.result()["tools"]["abandoned"], 1, "{ended:?}");
}

/// A run in which a call must be asked about, and what the server was asked.
async fn asked(answer: &str, flags: &[&str]) -> (FinishedProcess, Vec<Value>) {
    let server = serve(Scenario::new().tool("Bash", bash()).reply("Done."));
    let trial = trial(&server);
    let (config, log) = arbiter(&trial, answer);
    let tool = ["--mcp-config", &config, "--permission-prompt-tool", ARBITER];
    let ended = trial.args(tool).args(flags).run().await;
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let asked = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (ended, asked)
}

#[tokio::test]
async fn the_permission_prompt_tool_may_allow_a_call() {
    let (ended, asked) = asked(r#"{"behavior":"allow"}"#, &[]).await;
    assert_eq!((ended.code, denials(&ended).len()), (Some(0), 0), "{ended:?}");
    assert!(ended.work().join("file").exists());
    let [question] = asked.as_slice() else { panic!("it is asked once: {asked:?}") };
    assert_eq!((&question["tool_name"], &question["input"]), (&json!("Bash"), &bash()));
    assert!(question["tool_use_id"].is_string(), "{question}");
}

#[tokio::test]
async fn the_permission_prompt_tool_may_change_a_call() {
    let answer = r#"{"behavior":"allow","updatedInput":{"command":"touch other"}}"#;
    let (ended, _) = asked(answer, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.work().join("other").exists() && !ended.work().join("file").exists());
}

#[tokio::test]
async fn a_changed_call_is_still_subject_to_deny_rules() {
    let odd = [
        (r#"{"behavior":"allow","updatedInput":{"command":"rm -r f"}}"#, "Bash(rm *)"),
        (r#"{"behavior":"allow","updatedInput":{"order":"touch other"}}"#, "does not fit"),
    ];
    for (answer, why) in odd {
        let flags = ["--disallowed-tools", "Bash(rm *)", "--on-denied", "fail"];
        let (ended, _) = asked(answer, &flags).await;
        assert_eq!((ended.code, denials(&ended).len()), (Some(9), 1), "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
        assert!(ended.work().join("f").exists());
    }
}

#[tokio::test]
async fn an_unclear_permission_answer_is_a_denial_and_the_run_continues() {
    let odd = [
        (r#"{"behavior":"deny","message":"not on a Friday"}"#, "not on a Friday"),
        ("perhaps", "has no known format"),
        ("die", "failed"),
        ("fail", "failed: fail"),
    ];
    for (answer, why) in odd {
        let (ended, asked) = asked(answer, &[]).await;
        assert_eq!((ended.code, denials(&ended).len()), (Some(0), 1), "{answer}: {ended:?}");
        assert!(!asked.is_empty() && ended.stderr.contains(why), "{answer}: {ended:?}");
        assert!(!ended.work().join("file").exists());
    }
}

#[tokio::test]
async fn the_permission_prompt_tool_is_not_asked_when_a_rule_decides() {
    let settled: [(&[&str], bool); 4] = [
        (&["--allowed-tools", "Bash"], true),
        (&["--disallowed-tools", "Bash(echo *)"], false),
        (&["--permission-mode", "dontAsk"], false),
        (&["--permission-mode", "plan"], false),
    ];
    for (flags, runs) in settled {
        let (ended, asked) = asked(r#"{"behavior":"allow"}"#, flags).await;
        assert_eq!((ended.code, asked), (Some(0), vec![]), "{flags:?}: {ended:?}");
        assert_eq!(ended.work().join("file").exists(), runs, "{flags:?}");
        assert_eq!(denials(&ended).len(), usize::from(!runs), "{flags:?}");
    }
}

#[tokio::test]
async fn a_missing_permission_prompt_tool_denies_every_call() {
    let (ended, asked) =
        asked(r#"{"behavior":"allow"}"#, &["--permission-prompt-tool", "mcp__judge__other"]).await;
    assert_eq!((ended.code, asked.len(), denials(&ended).len()), (Some(0), 0, 1), "{ended:?}");
    assert!(ended.stderr.contains("has no tool mcp__judge__other"), "{ended:?}");
}

#[tokio::test]
async fn the_permission_prompt_tool_has_the_tool_call_timeout() {
    let server = serve(Scenario::new().tool("Bash", bash()).reply("Done."));
    let trial = trial(&server).env("MCP_TOOL_TIMEOUT", "1500");
    let (config, _) = arbiter(&trial, "hang");
    let settings = json!({ "heartbeatInterval": "300ms" }).to_string();
    let flags = ["--mcp-config", &config, "--permission-prompt-tool", ARBITER];
    let ended = trial.args(flags).args(["--settings", &settings]).run().await;
    assert_eq!((ended.code, denials(&ended).len()), (Some(0), 1), "{ended:?}");
    assert!(ended.stderr.matches(ARBITER).count() >= 2, "a heartbeat and a warning: {ended:?}");
}

#[tokio::test]
async fn an_interrupt_ends_the_wait_for_the_permission_prompt_tool() {
    let server = serve(Scenario::new().tool("Bash", bash()).reply("Done."));
    let trial = trial(&server);
    let (config, log) = arbiter(&trial, "hang");
    let flags = ["--mcp-config", &config, "--permission-prompt-tool", ARBITER];
    let running = trial.args(flags).start();
    with_time_limit("the question", async {
        while !log.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    running.signal(Signal::SIGTERM);
    let ended = running.end().await;
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert_eq!(ended.result()["terminal_reason"], "aborted_tools");
}

#[tokio::test]
async fn only_an_mcp_tool_can_be_the_permission_prompt_tool() {
    for name in ["stdio", "Bash", "mcp__x", "mcp____y"] {
        let server = serve(Scenario::new().reply("Done."));
        let ended = trial(&server).args(["--permission-prompt-tool", name]).run().await;
        assert_eq!((ended.code, server.requests().len()), (Some(2), 0), "{name}: {ended:?}");
    }
}

#[tokio::test]
async fn relative_paths_in_user_rules_resolve_from_the_users_settings() {
    for (rule, denied) in [("Read(/f)", false), ("Read(//f)", false), ("Read(f)", true)] {
        let input = json!({ "file_path": "f" });
        let server = serve(Scenario::new().tool("Read", input).reply("Done."));
        let trial = trial(&server);
        std::fs::create_dir_all(trial.config()).expect("room");
        let settings = json!({ "permissions": { "deny": [rule] } }).to_string();
        std::fs::write(trial.config().join("settings.json"), settings).expect("room");
        let ended = trial.run().await;
        assert_eq!(denials(&ended).len(), usize::from(denied), "{rule}: {ended:?}");
    }
    let input = json!({ "file_path": "../config/x/f" });
    let server = serve(Scenario::new().tool("Read", input).reply("Done."));
    let trial = trial(&server);
    std::fs::create_dir_all(trial.config().join("x")).expect("room");
    std::fs::write(trial.config().join("x/f"), "mine").expect("room");
    let settings = json!({ "permissions": { "allow": ["Read(/x/**)"] } }).to_string();
    std::fs::write(trial.config().join("settings.json"), settings).expect("room");
    let ended = trial.run().await;
    assert_eq!(denials(&ended), [], "it is below the folder of the settings: {ended:?}");
}

#[tokio::test]
async fn repository_settings_may_tighten_but_not_loosen_denial_handling() {
    for (project, user, code) in [("fail", "continue", 9), ("continue", "fail", 9)] {
        let server = serve(Scenario::new().tool("Bash", bash()).reply("Done."));
        let trial = trial(&server);
        let own = trial.config();
        std::fs::create_dir_all(&own).expect("room");
        let settings = |what: &str| json!({ "onDenied": what }).to_string();
        std::fs::write(own.join("settings.json"), settings(user)).expect("room");
        let repository = trial.work().join(".outlast");
        std::fs::create_dir(&repository).expect("room");
        std::fs::write(repository.join("settings.json"), settings(project)).expect("room");
        let ended = trial.run().await;
        assert_eq!(ended.code, Some(code), "{project} {user}: {ended:?}");
    }
}
