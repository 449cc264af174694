//! `outlast rehearse`: its list, files, verdicts, and what it leaves behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use nix::sys::signal::Signal;
use outlast::rehearsal::{
    FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind, ServerOptions, builtin_text, list,
};
use serde_json::{Value, json};

use super::binary_fixture::{BinaryFixture, ProcessResult};
use crate::support::RunBuilder;

const EXPECTS: &str = r#"
name = "mine"
summary = "A greeting"
prompt = "Say hello."
[[step]]
text = "Hello."
"#;

/// The last line on standard error. Before it there may be a warning about this machine.
fn last_line(ended: &ProcessResult) -> &str {
    ended.stderr.lines().last().unwrap_or_default()
}

fn rehearse(args: &[&str]) -> ProcessResult {
    BinaryFixture::new().run(&[&["rehearse"], args].concat())
}

/// Rehearses a scenario of these lines after the step.
fn with_expectation(expect: &str, args: &[&str]) -> ProcessResult {
    let world = BinaryFixture::new().file("work/mine.toml", format!("{EXPECTS}{expect}"));
    world.run(&[&["rehearse", "mine.toml"], args].concat())
}

#[test]
fn the_list_has_each_scenario_below_its_group_and_a_form_for_programs() {
    let ended = rehearse(&["--list"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    let line = "  hopeless               exit 75  A permanent 529";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    let (groups, scenarios): (Vec<&str>, Vec<&str>) = ended
        .stdout
        .lines()
        .filter(|line| !line.is_empty())
        .partition(|line| !line.starts_with(' '));
    assert!(groups.len() > 5 && groups[0] == "First steps", "{groups:?}");
    assert_eq!(scenarios.len(), list().len());
    let ended = rehearse(&["--list", "--json"]);
    let whole: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((&whole["type"], &whole["schema_version"]), (&"scenarios".into(), &1.into()));
    let found = whole["scenarios"].as_array().expect("a list");
    assert_eq!(found.len(), list().len());
    for (json, listing) in found.iter().zip(list()) {
        assert_eq!(json["name"], listing.name);
        assert_eq!(
            (&json["group"], &json["exit_code"]),
            (&listing.group.into(), &listing.exit.into())
        );
    }
}

#[test]
fn a_printed_scenario_is_its_file_and_can_be_rehearsed() {
    for listing in list() {
        let text = builtin_text(&listing.name).expect("it is built in");
        let read = Scenario::parse(text, "printed.toml").expect("it is valid");
        assert_eq!(read.name, listing.name);
    }
    let ended = rehearse(&["--print", "hello"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert_eq!(Some(ended.stdout.as_str()), builtin_text("hello"));
    let world = BinaryFixture::new().file("work/own.toml", &ended.stdout);
    let ended = world.run(&["rehearse", "own.toml"]);
    assert_eq!(last_line(&ended), "outlast: rehearsed hello: exit 0, as expected");
    assert_eq!(
        world.run(&["rehearse", "--print", "own.toml"]).stdout,
        builtin_text("hello").unwrap()
    );
}

#[test]
fn a_scenario_is_saved_to_a_new_file_only() {
    let world = BinaryFixture::new();
    let ended = world.run(&["rehearse", "hello", "--save", "own.toml"]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "", ""));
    let saved = fs::read_to_string(world.work().join("own.toml")).expect("a file");
    assert_eq!(Some(saved.as_str()), builtin_text("hello"));
    let ended = world.run(&["rehearse", "outage", "--save", "own.toml"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    assert!(last_line(&ended).contains("--save own.toml: it exists"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(world.work().join("own.toml")).expect("a file"), saved);
}

#[test]
fn a_rehearsal_ends_with_one_line_unless_it_is_quiet() {
    let ended = rehearse(&["hello"]);
    assert_eq!(
        (ended.code, last_line(&ended)),
        (0, "outlast: rehearsed hello: exit 0, as expected")
    );
    let ended = rehearse(&["hello", "--", "--quiet"]);
    assert_eq!((ended.code, ended.stderr.contains("rehearsed")), (0, false), "{ended:?}");
    let ended = with_expectation("", &[]);
    let line = "outlast: rehearsed mine: exit 0; the scenario expects no particular end";
    assert_eq!((ended.code, last_line(&ended)), (0, line));
}

#[test]
fn an_unexpected_end_is_named_and_is_no_internal_error() {
    let expect = "[expect]\nexit = 75\nterminal_reason = \"model_error\"\n";
    let ended = with_expectation(expect, &[]);
    let line = "rehearsal mine: expected exit 75 (model_error), but the run ended with exit 0 \
                (completed)";
    assert_eq!((ended.code, last_line(&ended)), (1, format!("outlast: {line}").as_str()));
    let result = ended.result();
    assert_eq!((&result["exit_code"], &result["is_error"]), (&1.into(), &true.into()));
    assert_eq!(result["terminal_reason"], "rehearsal_failed");
    assert_eq!(result["errors"][0], line);
    // The run may end otherwise with flags of the user.
    let ended = with_expectation(expect, &["--", "--quiet"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ended = with_expectation("[expect]\nrequests = 2\nabsent = [\"mine\"]\n", &[]);
    assert!(
        last_line(&ended).ends_with("mine: expected 2 requests, but there were 1"),
        "{ended:?}"
    );
}

#[test]
fn a_mistake_in_a_scenario_file_is_one_line_with_place_and_remedy() {
    let ended = with_expectation("[expect]\nexitcode = 1\n", &[]);
    assert_eq!(ended.code, 2);
    let line =
        "outlast: mine.toml:8:1: `expect`: unknown field `exitcode`, expected one of `exit`, ";
    assert!(last_line(&ended).starts_with(line), "{}", ended.stderr);
    let ended = with_expectation("status = \"529\"\n", &[]);
    let line =
        "mine.toml:7:10: `step[0].status`: invalid type: string \"529\", expected a whole number";
    assert!(last_line(&ended).contains(line), "{}", ended.stderr);
}

/// Path, time of change and content of everything in a folder.
fn inventory(folder: &Path) -> BTreeMap<String, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let about = fs::symlink_metadata(&path).expect("it is there");
            let content = if about.is_file() { fs::read(&path).expect("ours") } else { Vec::new() };
            let changed = about.modified().expect("the system tells");
            found.insert(path.display().to_string(), (changed, content));
            if about.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

fn set_mode(folder: &Path, mode: u32) {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn rehearsals_leave_the_folders_of_the_user_as_they_were() {
    let hooks = r#"{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
        {"type": "command", "command": "exit 7"}]}]}}"#;
    let command = r#"
name = "home"
summary = "A command writes into its home folder"
prompt = "Write."
args = ["--permission-mode", "bypassPermissions", "--sandbox", "off"]
[[step]]
[[step.tool]]
name = "Bash"
input = { command = "echo x > ~/written && echo y > \"$HOME/.cache-of-it\" && cp ~/written seen" }
[[step]]
text = "Done."
[expect]
exit = 0
files = { seen = "x" }
"#;
    let cases: &[&[&str]] = &[
        &["hello"],
        &["hook-crashes"],
        &["hook-hangs"],
        &["structured-output"],
        &["background-build"],
        &["agent-fails"],
        &["mcp-dies"],
        &["rate-limit"],
        &["login-renewal"],
        &["home.toml"],
        &["hook-crashes", "--", "--setting-sources", "user"],
        &["fix-a-bug", "--", "--output-format", "stream-json"],
    ];
    std::thread::scope(|threads| {
        for args in cases {
            threads.spawn(move || {
                let world = BinaryFixture::new()
                    .with("OUTLAST_CONFIG_DIR", "")
                    .file("home/.outlast/settings.json", hooks)
                    .file("home/.claude/settings.json", "{}")
                    .file("work/home.toml", command);
                let home = world.home();
                let folders = [home.join(".outlast"), home.join(".claude"), home.clone()];
                for folder in &folders {
                    set_mode(folder, 0o555);
                }
                let before = (inventory(&home), inventory(&world.work()));
                let ended = world.run(&[&["rehearse"], *args].concat());
                assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
                let after = (inventory(&home), inventory(&world.work()));
                for folder in &folders {
                    set_mode(folder, 0o755);
                }
                assert_eq!(after, before, "{args:?}");
            });
        }
    });
}

#[tokio::test]
async fn a_signal_ends_a_rehearsal_without_a_verdict() {
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", "long-outage"]);
    let mut running = trial.start();
    running.wait_for_stderr("waiting ").await;
    running.signal(Signal::SIGINT);
    let ended = running.end().await;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_ne!(ended.result()["terminal_reason"], "rehearsal_failed", "{ended:?}");
    let last = ended.stderr.lines().last();
    assert_eq!(last, Some("outlast: rehearsed long-outage: exit 130, interrupted"), "{ended:?}");
}

#[tokio::test]
async fn an_ordinary_http_client_can_read_the_reply() {
    // Fails when another test was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let scenario = Scenario::new()
        .reply("One.")
        .reply("Two.")
        .interrupted(ScriptedFaultKind::Reset, FaultPosition::Events(2))
        .interrupted(ScriptedFaultKind::Close, FaultPosition::Events(2))
        .interrupted(ScriptedFaultKind::Close, FaultPosition::Request);
    let server = RehearsalServer::start(scenario, ServerOptions::default()).unwrap();
    let ask = async |stream: bool| {
        let body = json!({
            "model": "claude-sonnet-4-5",
            "max_tokens": 1000,
            "stream": stream,
            "messages": [{ "role": "user", "content": "Say hello." }],
        });
        let request = client.post(format!("{}/v1/messages", server.base_url()));
        let response = request.header("anthropic-version", "2023-06-01").json(&body).send().await?;
        response.text().await
    };
    assert!(ask(true).await.unwrap().contains("message_stop"));
    assert!(ask(false).await.unwrap().contains("Two."));
    for _ in 0..3 {
        assert!(ask(true).await.is_err());
    }
    assert_eq!(server.requests().len(), 5);
    assert_eq!(server.requests()[1].connection_id, 1, "the connection was kept");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_run_receives_the_server_urls_in_its_arguments_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, SECOND_SERVER).unwrap();
    // Nothing listens on that port: the scenario gives the real URL.
    let trial = RunBuilder::bare("http://127.0.0.1:1").args(["rehearse", path.to_str().unwrap()]);
    let ending = trial.run().await;
    assert_eq!(ending.code, Some(0), "{}", ending.stderr);
}

/// Asks only the second server, whose URL comes in a file's content too.
const SECOND_SERVER: &str = r#"
name = "whole"
summary = "Everything goes to the second server"
prompt = "Do it."
args = ["--append-system-prompt", "{server.main.url} and ${cwd}"]
env = { ANTHROPIC_BASE_URL = "{server.second.url}" }
expect = { exit = 0, requests = 0, files = { note = "http://127.0.0.1:" } }

[files]
note = { content = "{server.second.url}" }

[rules]
require_key = "unused"

[server.second]
requests = 1
step = [{ text = "Done.", when = { contains = " and /" } }]
"#;
