//! Hooks against the real binary: what each may do, and each way in which one can fail.

use std::path::Path;

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use crate::support::{FifoSignal, FinishedProcess, RunBuilder, is_alive, serve};

fn script(text: &str) -> Value {
    json!({ "type": "command", "command": text })
}

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

/// Everything that the model is told with a request.
fn told(server: &RehearsalServer, request: usize) -> String {
    let requests = server.requests();
    let request = requests.get(request).unwrap_or_else(|| panic!("{} requests", requests.len()));
    request.body["messages"].to_string()
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
async fn a_hook_denial_tells_the_model_its_reason() {
    let server = calling("touch made");
    let ended = run(&server, &one("PreToolUse", "echo not on a Friday >&2; exit 2")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.work().join("made").exists());
    assert!(told(&server, 1).contains("not on a Friday"), "{}", told(&server, 1));
    let result = ended.result();
    assert_eq!(result["permission_denials"][0]["tool_name"], "Bash");
    assert_eq!(result["hooks"]["blocked"], 1);
}

#[tokio::test]
async fn a_hook_may_allow_an_ask_rule_but_not_override_a_deny_rule() {
    let allow = r#"echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse",
        "permissionDecision": "allow"}}'"#;
    for (rules, made) in [(json!({}), true), (json!({ "deny": ["Bash(touch *)"] }), false)] {
        let server = calling("touch made");
        let mut settings = one("PreToolUse", allow);
        settings["permissions"] = rules;
        let ended =
            trial(&server, &settings).args(["--permission-mode", "default", "do it"]).run().await;
        assert_eq!(ended.work().join("made").exists(), made, "{settings} {ended:?}");
    }
    let server = calling("touch made");
    let mode = ["--permission-mode", "default", "do it"];
    let ended = trial(&server, &json!({})).args(mode).run().await;
    assert!(!ended.work().join("made").exists(), "without a hook the call is denied");
}

#[tokio::test]
async fn an_input_changed_by_a_hook_is_validated_and_permission_checked_again() {
    let change = |input: &str| {
        let out = format!(
            r#"{{"hookSpecificOutput": {{"hookEventName": "PreToolUse", "updatedInput": {input}}}}}"#
        );
        one("PreToolUse", &format!("echo '{out}'"))
    };
    let server = calling("touch asked");
    let ended = run(&server, &change(r#"{"command": "touch changed"}"#)).await;
    let made = |name: &str| ended.work().join(name).exists();
    assert_eq!((made("asked"), made("changed")), (false, true), "{ended:?}");
    let server = calling("touch asked");
    let ended = run(&server, &change(r#"{"comand": "touch changed"}"#)).await;
    assert!(!ended.work().join("asked").exists());
    assert_eq!(ended.result()["tools"]["failed"], 1, "{ended:?}");
    let mut settings = change(r#"{"command": "touch changed"}"#);
    settings["permissions"] = json!({ "deny": ["Bash(touch changed)"] });
    let ended = run(&calling("touch asked"), &settings).await;
    assert!(!ended.work().join("changed").exists());
    assert_eq!(ended.result()["tools"]["denied"], 1, "{ended:?}");
}

#[tokio::test]
async fn hook_context_is_added_to_the_prompt_and_the_results() {
    let server = calling("false");
    let say = |event: &str, text: &str| {
        json!([{ "hooks": [script(&format!(
            r#"echo '{{"hookSpecificOutput": {{"hookEventName": "{event}",
            "additionalContext": "{text}"}}}}'"#
        ))] }])
    };
    let settings = json!({ "hooks": {
        "SessionStart": [{ "hooks": [script("echo the tide is high")] }],
        "UserPromptSubmit": say("UserPromptSubmit", "the wind is low"),
        "PreToolUse": say("PreToolUse", "before"),
        "PostToolUseFailure": say("PostToolUseFailure", "after"),
    }});
    let ended = run(&server, &settings).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (first, second) = (told(&server, 0), told(&server, 1));
    let start = first.find("the tide is high").expect("the session's hook is heard");
    assert!(first.find("do it").is_some_and(|at| at < start), "{first}");
    assert!(first.contains("the wind is low"), "{first}");
    let last = &server.requests()[1].body["messages"][2]["content"];
    assert_eq!(last[0]["type"], "tool_result", "{last}");
    assert!(second.contains("\\n\\nbefore") && second.contains("\\n\\nafter"), "{second}");
}

#[tokio::test]
async fn a_prompt_that_a_hook_rejects_is_never_sent() {
    let server = serve(Scenario::new().reply("never"));
    let ended = run(&server, &one("UserPromptSubmit", "echo no secrets here >&2; exit 2")).await;
    let result = ended.result();
    assert_eq!((ended.code, &result["terminal_reason"]), (Some(6), &json!("hook_stopped")));
    assert!(result["errors"][0].as_str().is_some_and(|it| it.contains("no secrets here")));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_tool_hook_can_stop_the_run() {
    for (event, made) in [("PreToolUse", false), ("PostToolUse", true)] {
        let server = calling("touch made");
        let ended =
            run(&server, &one(event, r#"echo '{"continue": false, "stopReason": "enough"}'"#))
                .await;
        let result = ended.result();
        assert_eq!((ended.code, &result["terminal_reason"]), (Some(6), &json!("hook_stopped")));
        assert!(result["errors"][0].as_str().is_some_and(|it| it.contains("enough")), "{result}");
        assert_eq!(ended.work().join("made").exists(), made, "{event}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn every_hook_failure_is_ignored_and_logged() {
    let late = json!({ "type": "command", "command": "sleep 60", "timeout": 0.3 });
    let rows = [
        (script("exit 1"), "crash"),
        (script("kill -9 $$"), "crash"),
        (script("echo '{ oops'"), "invalid_output"),
        (script("no-such-program-of-mine"), "missing"),
        (json!({ "type": "command", "command": "/no/such", "args": [] }), "missing"),
        (late, "timeout"),
    ];
    for (hook, kind) in rows {
        let server = calling("touch made");
        let ended = run(&server, &hooks("PreToolUse", std::slice::from_ref(&hook))).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.work().join("made").exists(), "{hook}");
        let result = ended.result();
        assert_eq!(result["hooks"]["failed"], 1, "{hook}");
        assert!(
            result["hooks"]["log"]
                .as_str()
                .is_some_and(|it| std::path::Path::new(it).extension() == Some("jsonl".as_ref()))
        );
        let crashes = crashes(&ended);
        assert_eq!((crashes.len(), &crashes[0]["kind"]), (1, &json!(kind)), "{hook} {crashes:?}");
        assert_eq!(ended.stderr.matches("warning: the hook").count(), 1, "{}", ended.stderr);
        let mut guard = hook;
        guard["failClosed"] = json!(true);
        let ended = run(&calling("touch made"), &hooks("PreToolUse", &[guard.clone()])).await;
        assert!(!ended.work().join("made").exists(), "{guard}");
    }
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
async fn fifty_megabytes_of_hook_output_are_truncated() {
    let server = calling("touch made");
    let loud = "head -c 50000000 /dev/zero | tr '\\0' x; exit 0";
    let ended = run(&server, &hooks("UserPromptSubmit", &[script(loud)])).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(told(&server, 0).len() < 20_000);
    let server = calling("touch made");
    let ended = run(&server, &one("PreToolUse", "kill -9 $PPID; sleep 60")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.work().join("made").exists());
}

#[tokio::test]
async fn a_stop_hook_that_always_blocks_is_overruled_and_informed() {
    let server = serve(Scenario::new().reply("Done.").reply("Done.").reply("Done."));
    let block = r#"cat >> told; n=$(wc -l < told); echo "try $n" >&2; exit 2"#;
    let ended = run(&server, &one("Stop", block)).await;
    let result = ended.result();
    assert_eq!((ended.code, &result["terminal_reason"]), (Some(9), &json!("stop_hook_blocked")));
    assert_eq!(server.requests().len(), 3);
    let text = read(&ended.work(), "told");
    let active = |line: &str| line.contains(r#""stop_hook_active":true"#);
    assert_eq!(text.lines().map(active).collect::<Vec<_>>(), [false, true, true]);
    assert!(told(&server, 1).contains("try 1") && told(&server, 2).contains("try 2"));
    assert!(result["errors"][0].as_str().is_some_and(|it| it.contains("try 3")), "{result}");
}

#[tokio::test]
async fn the_same_stop_hook_objection_twice_ends_the_run() {
    let server = serve(Scenario::new().reply("Done.").reply("Done."));
    let ended = run(&server, &one("Stop", "echo run the tests >&2; exit 2")).await;
    assert_eq!((ended.code, server.requests().len()), (Some(9), 2), "{ended:?}");
    let server = serve(Scenario::new().reply("Done.").reply("Done, and tested."));
    let well_made = "grep -q 'stop_hook_active\":true' && exit 0; echo run the tests >&2; exit 2";
    let ended = run(&server, &one("Stop", well_made)).await;
    let result = ended.result();
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done, and tested.")));
    assert_eq!(result["recovery"]["strategies"]["stop_hook_blocking"], 1, "{result}");
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
async fn a_service_failure_is_reported_to_hooks_without_changing_the_outcome() {
    let server = serve(Scenario::new().status(400).error("invalid_request_error", "no", None));
    let settings = json!({ "hooks": {
        "StopFailure": [{ "hooks": [script("cat > told; exit 2")] }],
        "Stop": [{ "hooks": [script("touch stopped")] }],
    }});
    let ended = run(&server, &settings).await;
    assert_eq!(ended.result()["terminal_reason"], "model_error", "{ended:?}");
    assert!(read(&ended.work(), "told").contains(r#""error":"invalid_request""#));
    assert!(!ended.work().join("stopped").exists());
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
