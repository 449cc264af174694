//! Hooks against the real binary: what they are told, and what is reported of them. What their
//! answers do to a run is tested in [`agent::hooks`](crate::agent).

use std::path::Path;

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use crate::support::programs::script;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, is_alive, serve};

fn hooks(event: &str, entries: &[Value]) -> Value {
    json!({ "hooks": { event: [{ "hooks": entries }] } })
}

fn one(event: &str, text: &str) -> Value {
    hooks(event, &[script(text)])
}

/// A trial with these settings, and a result on standard output.
fn trial(server: &RehearsalServer, settings: &Value) -> RunBuilder {
    let settings = settings.to_string();
    let args = ["--settings", &settings, "--output-format", "stream-json", "--verbose"];
    RunBuilder::against(server).args(args)
}

async fn run(server: &RehearsalServer, settings: &Value) -> FinishedProcess {
    trial(server, settings).args(["do it"]).run().await
}

/// A tool call, and an answer.
fn calling(command: &str) -> RehearsalServer {
    serve(Scenario::new().tool("Bash", json!({ "command": command })).reply("Done."))
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default()
}

/// The lines of the crash log.
fn crashes(ended: &FinishedProcess) -> Vec<Value> {
    let log = read(&ended.config(), "hooks/.logs/hook-log.jsonl");
    log.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

#[tokio::test]
async fn hooks_receive_every_event_and_no_credentials() {
    let server = calling("echo out; touch made");
    let record = r#"cat >> told; echo "$ANTHROPIC_API_KEY$CLAUDE_PROJECT_DIR$CLAUDECODE" >> env"#;
    let events =
        ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"];
    let groups = events.map(|event| (event.to_owned(), json!([{ "hooks": [script(record)] }])));
    let settings = json!({ "hooks": serde_json::Map::from_iter(groups) });
    let ended = run(&server, &settings).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = read(&ended.work(), "told");
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = told.iter().filter_map(|one| one["hook_event_name"].as_str()).collect();
    assert_eq!(names, events);
    assert_eq!(told[0]["source"], "startup");
    assert_eq!(told[1]["prompt"], "do it");
    assert_eq!(told[2]["tool_input"]["command"], "echo out; touch made");
    assert_eq!(told[3]["tool_response"]["stdout"], "out\n");
    assert_eq!(
        (&told[4]["stop_hook_active"], &told[5]["reason"]),
        (&json!(false), &json!("other"))
    );
    assert_eq!(told[4]["last_assistant_message"], "Done.");
    let transcript = told[4]["transcript_path"].as_str().unwrap_or_default();
    assert!(Path::new(transcript).is_file(), "{transcript}");
    let env = read(&ended.work(), "env");
    assert!(!env.contains("test-key"), "{env}");
    assert!(env.lines().all(|line| line.ends_with("/work1")), "{env}");
    let result = ended.result();
    assert!(result["hooks"]["waited_ms"].as_u64().is_some_and(|waited| waited > 0), "{result}");
    let mut counts = result["hooks"].clone();
    counts["waited_ms"] = json!(0);
    let expected = json!({ "ran": 6, "failed": 0, "blocked": 0, "waited_ms": 0, "log": null });
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn a_hook_failure_is_a_warning_and_is_logged() {
    let server = calling("touch made");
    let ended = run(&server, &one("PreToolUse", "exit 1")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.work().join("made").exists());
    let result = ended.result();
    assert_eq!(result["hooks"]["failed"], 1);
    let log = result["hooks"]["log"].as_str().unwrap_or_default();
    assert!(log.ends_with("hooks/.logs/hook-log.jsonl"), "{log}");
    let crashes = crashes(&ended);
    assert_eq!((crashes.len(), &crashes[0]["kind"]), (1, &json!("crash")), "{crashes:?}");
    assert_eq!(ended.stderr.matches("warning: the hook").count(), 1, "{}", ended.stderr);
}

#[tokio::test]
async fn earlier_hook_failures_are_reported_at_the_next_session_start() {
    let server = serve(Scenario::new().reply("Done.").reply("Done."));
    let first = run(&server, &one("Stop", "exit 1")).await;
    let args = ["--output-format", "json", "again"];
    let second = first.again(&server.base_url()).args(args).run().await;
    assert!(second.stderr.contains("hooks have failed once"), "{}", second.stderr);
    assert!(second.result()["hooks"]["log"].is_string());
}

#[tokio::test]
async fn an_interrupt_ends_a_hook_at_once_and_end_hooks_still_run() {
    let server = calling("touch made");
    let trial = RunBuilder::against(&server);
    let bell = trial.work().join("bell");
    let settings = json!({ "hooks": {
        "PreToolUse": [{ "hooks": [script("echo $$ > bell; exec sleep 600")] }],
        "SessionEnd": [{ "hooks": [script("touch last")] }],
    }});
    let settings = settings.to_string();
    let mut bell = FifoSignal::at(&bell);
    let args = ["--settings", &settings, "--output-format", "json", "do it"];
    let running = trial.args(args).start();
    let hook: i32 = bell.wait_for_line().await.trim().parse().expect("a process id");
    running.signal(Signal::SIGTERM);
    let ended = running.end().await;
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert_eq!(ended.result()["hooks"]["failed"], 0, "nothing was wrong with it");
    assert!(!is_alive(hook) && ended.work().join("last").exists());
    assert!(!ended.work().join("made").exists() && crashes(&ended).is_empty());
}

#[tokio::test]
async fn hooks_that_start_outlast_do_not_recurse_forever() {
    let server = serve(Scenario::new().reply("Done."));
    for (depth, code) in [("1", 0), ("2", 2)] {
        let trial = RunBuilder::against(&server).env("OUTLAST_HOOK_DEPTH", depth);
        let ended = trial.args(["--max-turns", "3", "do it"]).run().await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
    let server = serve(Scenario::new().reply("Done."));
    let ended = run(&server, &one("Stop", "echo $OUTLAST_HOOK_DEPTH > depth")).await;
    assert_eq!(read(&ended.work(), "depth").trim(), "1");
}

#[tokio::test]
async fn memory_files_are_loaded_and_listed_unless_disabled() {
    let cases: [(&[&str], &str, bool); 4] = [
        (&[], "0", true),
        (&["--system-prompt", "Mine."], "0", true),
        (&["--no-memory"], "0", false),
        (&[], "1", false),
    ];
    for (flags, off, wanted) in cases {
        let server = serve(Scenario::new().reply("Done."));
        let trial = RunBuilder::against(&server).env("CLAUDE_CODE_DISABLE_CLAUDE_MDS", off);
        std::fs::write(trial.work().join("CLAUDE.md"), "Whistle while you work.").unwrap();
        let trial = trial.args(["--output-format", "stream-json", "--verbose"]).args(flags);
        let ended = trial.args(["do it"]).run().await;
        let system = server.requests()[0].body["system"].to_string();
        assert_eq!(system.contains("Whistle while you work."), wanted, "{flags:?} {system}");
        let init = ended.frames().into_iter().find(|frame| frame["subtype"] == "init").unwrap();
        let files = init["memory_files"].to_string();
        assert_eq!(files.contains("work/CLAUDE.md"), wanted, "{flags:?} {files}");
    }
}
