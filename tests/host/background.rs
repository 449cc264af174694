//! Background commands of a host's session: results do not wait for them, and they go on between
//! turns.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::process::filters_system_calls;
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::driver::{HostDriver, conversation, wait_for_requests};
use crate::support::{RunBuilder, is_alive, serve};

/// Longer than any test.
const HOUR: Duration = Duration::from_hours(1);

/// Runs until the file `go` appears, and writes its process id to `pid` first.
const WAITS: &str = "echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo built";

fn starts(command: &str) -> Scenario {
    let input = json!({ "command": command, "description": "build", "run_in_background": true });
    Scenario::new().tool("Bash", input).reply("started it")
}

fn is_update(frame: &Value, kind: &str) -> bool {
    frame["subtype"] == kind && frame["task_id"] == "bash_1"
}

#[tokio::test]
async fn a_command_outlives_its_turn_and_its_end_begins_another() {
    let server = serve(starts(WAITS).reply("It is built."));
    let run = RunBuilder::against(&server).env("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1");
    let mut host = HostDriver::with(run, &["--allowed-tools", "Bash"]);
    host.prompt("build it").await;
    let first = host.result().await;
    assert_eq!(first["result"], "started it", "{first}");
    assert_eq!(first["background"][0]["status"], "running", "{first}");
    host.wait_for("idle", |frame| frame["state"] == "idle").await;

    fs::write(host.process.work().join("go"), "").expect("a file");
    let notice = host.wait_for("the notice", |it| is_update(it, "task_notification")).await;
    assert_eq!(notice["status"], "completed", "{notice}");
    assert!(notice["session_id"] == first["session_id"] && notice["uuid"].is_string(), "{notice}");
    let second = host.result().await;
    assert_eq!(second["result"], "It is built.");
    assert_eq!(second["origin"], json!({ "kind": "task-notification" }));
    let body = &server.requests()[2].body;
    assert!(conversation(body).contains("bash_1 (`echo $$ > pid;"), "{body}");
    assert!(!conversation(body).contains("the process"), "it is not lost: {body}");
    let (ended, frames) = host.end().await;
    assert_eq!(ended.code, Some(0));
    let inits = frames.iter().filter(|frame| frame["subtype"] == "init").count();
    assert_eq!(inits, 2, "{frames:#?}");
}

#[tokio::test]
async fn a_turn_about_an_ended_command_that_fails_is_not_tried_again() {
    let server = serve(starts(WAITS).reply("It is built."));
    let run = RunBuilder::against(&server).env("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1");
    let more = run.work().join("more.txt");
    fs::write(&more, "Be brief.").expect("a file");
    let file = more.display().to_string();
    let flags = ["--allowed-tools", "Bash", "--append-system-prompt-file", &file];
    let mut host = HostDriver::with(run, &flags);
    host.prompt("build it").await;
    assert_eq!(host.result().await["result"], "started it");
    host.wait_for("idle", |frame| frame["state"] == "idle").await;

    fs::remove_file(&more).expect("it exists");
    fs::write(host.process.work().join("go"), "").expect("a file");
    assert_eq!(host.result().await["is_error"], true);
    // Each answer is a chance to begin another turn.
    for _ in 0..10 {
        host.ask(&json!({ "subtype": "mcp_status" })).await;
    }
    fs::write(&more, "Be brief.").expect("a file");
    host.prompt("and now?").await;
    let last = host.result().await;
    assert_eq!((&last["result"], &last["origin"]), (&json!("It is built."), &Value::Null));
    let (_, frames) = host.end().await;
    assert_eq!(frames.iter().filter(|frame| frame["type"] == "result").count(), 3, "{frames:#?}");
}

#[tokio::test]
async fn without_states_the_model_learns_of_the_end_with_the_next_prompt() {
    let server = serve(starts(WAITS).reply("It is built."));
    let mut host = HostDriver::start(&server, &["--allowed-tools", "Bash"]);
    host.prompt("build it").await;
    assert_eq!(host.result().await["result"], "started it");
    fs::write(host.process.work().join("go"), "").expect("a file");
    host.wait_for("the notice", |it| is_update(it, "task_notification")).await;
    host.prompt("and now?").await;
    let second = host.result().await;
    assert_eq!(second["result"], "It is built.");
    assert_eq!(second["origin"], Value::Null);
    let body = conversation(&server.requests()[2].body);
    let (news, prompt) = (body.find("with exit code 0"), body.find("and now?"));
    assert!(news.is_some() && news < prompt, "{body}");
    host.end().await;
}

#[tokio::test]
async fn a_command_that_was_started_in_one_turn_is_stopped_in_another() {
    let scenario = starts(WAITS).tool("KillShell", json!({ "shell_id": "bash_1" })).reply("gone");
    let server = serve(scenario);
    let mut host = HostDriver::start(&server, &["--allowed-tools", "Bash"]);
    host.prompt("start").await;
    assert_eq!(host.result().await["result"], "started it");
    host.prompt("stop").await;
    let second = host.result().await;
    assert_eq!(second["result"], "gone");
    assert_eq!(second["background"][0]["status"], "killed", "{second}");
    let told = host.frames.iter().filter(|it| is_update(it, "task_notification")).count();
    assert_eq!(told, 1, "{:#?}", host.frames);
    host.end().await;
}

#[tokio::test]
async fn an_interrupt_that_stops_a_sub_agent_begins_no_turn_about_it() {
    let input = json!({ "description": "look", "prompt": "look", "run_in_background": true,
        "subagent_type": "general-purpose" });
    let late = Scenario::new().tool("Agent", input).reply("late").delay(HOUR);
    let server = serve(late.reply("late").delay(HOUR).reply("Here."));
    let run = RunBuilder::against(&server).env("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1");
    let mut host = HostDriver::with(run, &[]);
    host.prompt("go").await;
    wait_for_requests(&server, 3).await;
    host.ask(&json!({ "subtype": "interrupt" })).await;
    assert_eq!(host.result().await["terminal_reason"], "aborted_streaming");
    // Each answer is a chance to begin another turn.
    for _ in 0..10 {
        host.ask(&json!({ "subtype": "mcp_status" })).await;
    }
    host.prompt("and now?").await;
    let last = host.result().await;
    assert_eq!((&last["result"], &last["origin"]), (&json!("Here."), &Value::Null));
    let body = conversation(&server.requests()[3].body);
    assert!(body.contains("None of those below is running any more"), "{body}");
    host.end().await;
}

/// Waits until a command has written its process id.
async fn pid(host: &HostDriver) -> i32 {
    let path = host.process.work().join("pid");
    loop {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if let (true, Ok(pid)) = (text.ends_with('\n'), text.trim().parse()) {
            return pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn no_command_outlives_the_session() {
    for signal in [None, Some(Signal::SIGTERM)] {
        let server = serve(starts(WAITS));
        let mut host = HostDriver::start(&server, &["--allowed-tools", "Bash"]);
        host.prompt("start").await;
        assert_eq!(host.result().await["result"], "started it");
        let pid = pid(&host).await;
        assert!(is_alive(pid), "it goes on between turns");
        let Some(signal) = signal else {
            let (ended, frames) = host.end().await;
            let notice = frames.iter().find(|it| is_update(it, "task_notification"));
            assert_eq!(notice.expect("a notice")["status"], "stopped");
            assert_eq!(ended.code, Some(0));
            assert!(!is_alive(pid), "the command was left");
            continue;
        };
        host.process.signal(signal);
        let ended = host.process.end().await;
        assert_eq!(ended.code, Some(143), "{}", ended.stderr);
        assert!(!is_alive(pid), "the command was left");
    }
}

/// After the end of its input a host session waits for background commands like a run without a
/// host.
#[tokio::test]
async fn once_input_has_ended_a_result_waits_for_commands() {
    let server = serve(starts(WAITS).delay(Duration::ZERO).reply("It is built."));
    let flags = ["--allowed-tools", "Bash"];
    let mut host = HostDriver::with_prompt_file(RunBuilder::against(&server), &flags, "build it");
    wait_for_requests(&server, 2).await;
    fs::write(host.process.work().join("go"), "").expect("a file");
    let result = host.result().await;
    assert_eq!(result["result"], "started it\n\nIt is built.", "{result}");
    host.end().await;
}

/// A server of the first turn: it tells where it listens, and answers with an address that it looks
/// up through the relay of its turn.
const SERVER: &str = r#"
import os, socket
server, local = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
local.bind("local")
local.listen()
with open("new", "w") as port:
    port.write(str(server.getsockname()[1]))
os.rename("new", "port")
for listener in (server, local):
    made = listener.accept()[0]
    made.sendall(socket.gethostbyname("a.example").encode())
    made.close()
server.accept()
"#;

/// A client of the second turn.
const CLIENT: &str = r#"
import socket
local = socket.socket(socket.AF_UNIX)
for made, to in ((socket.socket(), ("127.0.0.1", int(open("port").read()))), (local, "local")):
    made.connect(to)
    print("reached", made.makefile().read())
try:
    socket.gethostbyname("other.example")
except socket.gaierror:
    print("no other")
"#;

#[tokio::test]
async fn a_server_that_one_turn_started_is_reached_in_another_within_a_list_of_hosts() {
    if !filters_system_calls() {
        return;
    }
    let client = "until [ -e port ]; do sleep 0.02; done; python3 client.py";
    let scenario = starts("python3 server.py").tool("Bash", json!({ "command": client }));
    let server = serve(scenario.reply("reached it").reply("nothing"));
    let settings = r#"{"sandbox": {"network": {"allowedDomains": ["a.example"]}}}"#;
    let run = RunBuilder::bare(&server.base_url());
    let mut host = HostDriver::with(run, &["--allowed-tools", "Bash", "--settings", settings]);
    for (name, text) in [("server.py", SERVER), ("client.py", CLIENT)] {
        fs::write(host.process.work().join(name), text).expect("a file");
    }
    host.prompt("start").await;
    assert_eq!(host.result().await["result"], "started it");
    host.prompt("connect").await;
    let second = host.result().await;
    assert_eq!(second["result"], "reached it", "{second}");
    let body = conversation(&server.requests()[3].body);
    assert_eq!(body.matches("reached 198.18.0.1").count(), 2, "{body}");
    let refused = &second["network_refused"];
    assert_eq!(refused[0]["host"], "other.example", "{refused}");
    host.prompt("and now?").await;
    let third = host.result().await;
    assert_eq!(third["network_refused"], json!([]), "they are those of a turn");
    host.end().await;
}
