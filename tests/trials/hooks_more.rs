//! Hooks beyond a single call: sessions that go on, compactions, MCP servers, other results, and
//! what is told of them.

use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::spending::{CROWDED, crowding, summaries};
use crate::support::programs::script;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve};

fn one(event: &str, text: &str) -> Value {
    json!({ "hooks": { event: [{ "hooks": [script(text)] }] } })
}

fn trial(server: &RehearsalServer, settings: &Value) -> RunBuilder {
    let settings = settings.to_string();
    let args = ["--settings", &settings, "--output-format", "stream-json", "--verbose"];
    RunBuilder::against(server).args(args)
}

fn told(server: &RehearsalServer, request: usize) -> String {
    server.requests()[request].body["messages"].to_string()
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default()
}

fn short() -> Scenario {
    Scenario::new().reply("In short.")
}

fn warnings(ended: &FinishedProcess) -> String {
    let frames = ended.frames().into_iter().filter(|frame| frame["subtype"] == "informational");
    frames.map(|frame| frame["content"].to_string()).collect()
}

#[tokio::test]
async fn a_run_killed_in_its_stop_hooks_runs_them_again_on_resume() {
    for (then, code, reason) in
        [("exit 0", 0, "completed"), ("echo not yet >&2; exit 2", 9, "stop_hook_blocked")]
    {
        let server = serve(Scenario::new().reply("Done."));
        let first = trial(&server, &one("Stop", "echo $$ > bell; exec sleep 1000"));
        let mut bell = FifoSignal::at(&first.work().join("bell"));
        let running = first.args(["do it"]).start();
        bell.wait_for_line().await;
        running.signal(Signal::SIGKILL);
        let ended = running.end().await;
        let next = serve(Scenario::new().reply("Really done."));
        let settings = one("Stop", &format!("cat >> told; {then}")).to_string();
        let args = ["--settings", &settings, "--output-format", "json", "--continue"];
        let ended = ended.again(&next.base_url()).args(args).run().await;
        let result = ended.result();
        assert_eq!((ended.code, &result["terminal_reason"]), (Some(code), &json!(reason)));
        assert!(read(&ended.work(), "told").contains(r#""last_assistant_message":"Done.""#));
        assert_eq!(next.requests().len(), usize::from(code != 0));
    }
}

#[tokio::test]
async fn a_resume_with_a_higher_limit_allows_further_objections() {
    const LIMIT: &str = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP";
    let server = serve(Scenario::new().reply("Done.").times(4));
    let settings = one("Stop", "echo not yet >&2; exit 2");
    let mut ended = trial(&server, &settings).env(LIMIT, "2").args(["do it"]).run().await;
    let settings = settings.to_string();
    for (limit, requests) in [("2", 2), ("4", 4)] {
        let args = ["--settings", &settings, "--output-format", "json", "--continue"];
        ended = ended.again(&server.base_url()).env(LIMIT, limit).args(args).run().await;
        assert_eq!(ended.result()["terminal_reason"], "stop_hook_blocked");
        assert_eq!(server.requests().len(), requests);
    }
}

#[tokio::test]
async fn stop_hooks_that_already_agreed_do_not_run_again() {
    let server = serve(Scenario::new().reply("Done."));
    let settings = one("Stop", "echo asked >> asked");
    let ended = trial(&server, &settings).args(["do it"]).run().await;
    let settings = settings.to_string();
    let args = ["--settings", &settings, "--output-format", "json", "--continue"];
    let ended = ended.again(&server.base_url()).args(args).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")));
    assert_eq!(read(&ended.work(), "asked"), "asked\n");
}

#[tokio::test]
async fn compaction_hooks_run_once_and_can_prevent_it_or_end_the_run() {
    let rows = [
        ("exit 0", [false, false, true, false].as_slice(), Some(0)),
        ("exit 2", &[false, false, false], Some(0)),
        (r#"echo '{"continue": false, "stopReason": "enough"}'"#, &[false, false], Some(6)),
    ];
    for (then, requests, code) in rows {
        let server = serve(crowding(json!({ "command": "true" })).compactions(short()));
        let settings = one("PreCompact", &format!("cat >> told; {then}")).to_string();
        let trial = RunBuilder::against(&server).args(CROWDED).args(["--settings", &settings]);
        let ended = trial.args(["--log-detail", "do it"]).run().await;
        assert_eq!((ended.code, summaries(&server)), (code, requests.to_vec()), "{then} {ended:?}");
        let text = read(&ended.work(), "told");
        assert_eq!(text.matches(r#""trigger":"auto""#).count(), 1, "{then}: {text}");
        assert_eq!(warnings(&ended).contains("is not compacted"), then == "exit 2", "{then}");
    }
}

#[tokio::test]
async fn session_start_hooks_run_after_a_compaction_and_may_end_the_run() {
    let only = |then: &str| json!({ "hooks": { "SessionStart": [{ "matcher": "compact", "hooks": [script(then)] }] } });
    for (then, code) in [
        ("echo the tide is high", 0),
        (r#"echo '{"continue": false, "stopReason": "low tide"}'"#, 6),
    ] {
        let server = serve(crowding(json!({ "command": "true" })).compactions(short()));
        let settings = only(then).to_string();
        let trial = RunBuilder::against(&server).args(CROWDED).args(["--settings", &settings]);
        let ended = trial.args(["--log-detail", "do it"]).run().await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(server.violations(), [""; 0]);
        if code == 0 {
            assert!(told(&server, 3).contains("the tide is high"), "{}", told(&server, 3));
        } else {
            assert_eq!(server.requests().len(), 3, "{ended:?}");
            assert!(ended.result()["errors"].to_string().contains("low tide"));
        }
    }
}

#[tokio::test]
async fn truncated_hook_output_does_not_reveal_part_of_a_secret() {
    let across = "x".repeat(30_000 - 8) + "test-key-0123456789 and more.";
    let output = json!({ "hookSpecificOutput": {
        "hookEventName": "PostToolUse", "updatedToolOutput": across,
    } });
    let hook = one("PostToolUse", &format!("echo '{output}'"));
    let server = serve(Scenario::new().tool("Bash", json!({ "command": "true" })).reply("Done."));
    let ended = trial(&server, &hook).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result = server.requests()[1].body["messages"][2]["content"][0].to_string();
    assert!(result.len() < 31_000 && result.contains("and more."), "{result}");
    assert!(!result.contains("test-k"), "{result}");
}

#[tokio::test]
async fn a_result_that_a_hook_replaced_stays_replaced_after_a_resume() {
    let hook = one(
        "PostToolUse",
        r#"echo '{"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": "gone"}}'"#,
    );
    let call = json!({ "command": "echo secret" });
    let server = serve(Scenario::new().tool("Bash", call).reply("Done."));
    let ended = trial(&server, &hook).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Who goes on with it hears the same.
    let next = serve(Scenario::new().reply("Went on."));
    let args = ["--output-format", "json", "--continue", "go on"];
    ended.again(&next.base_url()).args(args).run().await;
    for request in [&server.requests()[1], &next.requests()[0]] {
        let result = request.body["messages"][2]["content"][0].to_string();
        assert!(result.contains("gone") && !result.contains("secret"), "{result}");
    }
}

/// A hook that defers each call until the file `decided` exists.
fn deferring() -> Value {
    let mut settings = one(
        "PreToolUse",
        r#"test -e decided || echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse",
            "permissionDecision": "defer", "permissionDecisionReason": "a person decides"}}'"#,
    );
    settings["permissions"] = json!({ "allow": ["Bash(touch *)"] });
    settings
}

#[tokio::test]
async fn a_deferred_call_ends_the_run_and_is_decided_on_after_a_resume() {
    let call = json!({ "command": "touch ran" });
    let server = serve(Scenario::new().tool("Bash", call.clone()));
    let ended = trial(&server, &deferring()).args(["do it"]).run().await;
    let result = ended.result();
    let ends = |result: &Value| {
        let deferred = &result["deferred_tool_use"];
        assert_eq!((&deferred["name"], &deferred["input"]), (&json!("Bash"), &call), "{result}");
        assert_eq!(result["terminal_reason"], "tool_deferred");
        assert_eq!(result["stop_reason"], "tool_deferred");
        let why = result["errors"][0].as_str().expect("an error");
        assert!(why.starts_with("a hook deferred the call of Bash: a person decides"), "{why}");
    };
    assert_eq!(ended.code, Some(6), "{result}");
    ends(&result);
    let work = ended.work();
    let server = serve(Scenario::new().reply("Done."));
    let settings = deferring().to_string();
    let args = ["--settings", &settings, "--output-format", "json", "--continue"];
    let again = ended.again(&server.base_url()).args(args).run().await;
    assert_eq!(again.code, Some(6), "{again:?}");
    ends(&again.result());
    assert!(server.requests().is_empty() && !work.join("ran").exists());
    std::fs::write(work.join("decided"), "").expect("the folder is ours");
    let last = again.again(&server.base_url()).args(args).run().await;
    assert_eq!((last.code, &last.result()["result"]), (Some(0), &json!("Done.")), "{last:?}");
    assert!(work.join("ran").exists());
    let messages = &server.requests()[0].body["messages"];
    assert_eq!(messages[2]["content"][0]["tool_use_id"], messages[1]["content"][0]["id"]);
}

#[tokio::test]
async fn one_of_several_calls_is_not_deferred() {
    let call = json!({ "command": "touch ran" });
    let scenario = Scenario::new().tool("Bash", call.clone()).and_tool("Bash", call).reply("Done.");
    let ended = trial(&serve(scenario), &deferring()).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(warnings(&ended).contains("it is not the only call of its reply"), "{ended:?}");
    assert!(ended.work().join("ran").exists());
}

#[tokio::test]
async fn a_permission_request_triggers_the_notification_hook() {
    let server = serve(Scenario::new().tool("Bash", json!({ "command": "whoami" })).reply("Done."));
    let mut settings = one("Notification", "cat >> told");
    settings["permissions"] = json!({ "deny": ["Bash(whoami)"] });
    settings["hooks"]["Notification"][0]["matcher"] = json!("permission_prompt");
    let ended = trial(&server, &settings).args(["do it"]).run().await;
    let text = read(&ended.work(), "told");
    let told: Value = serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(told["notification_type"], "permission_prompt");
    assert!(told["message"].as_str().is_some_and(|it| it.contains("whoami")), "{told}");
}

#[tokio::test]
async fn a_call_that_is_denied_when_it_starts_counts_as_denied_and_not_as_failed() {
    let scenario = Scenario::new()
        .tool("Read", json!({ "file_path": "link" }))
        .and_tool("Read", json!({ "file_path": "secret" }))
        .reply("Done.");
    let server = serve(scenario);
    let mut settings = one("Notification", "ln -sfn secret link");
    settings["hooks"]["PreToolUse"] = json!([{ "hooks": [script("exit 0")] }]);
    settings["permissions"] = json!({ "deny": ["Read(secret)"] });
    let begun = trial(&server, &settings);
    for name in ["open", "secret"] {
        std::fs::write(begun.work().join(name), name).expect("a file can be written");
    }
    symlink("open", begun.work().join("link")).expect("a link can be made");
    let ended = begun.args(["do it"]).run().await;
    let tools = &ended.result()["tools"];
    assert_eq!((&tools["denied"], &tools["failed"]), (&json!(2), &json!(0)), "{ended:?}");
}

#[tokio::test]
async fn hook_events_are_streamed_when_requested() {
    let hooks = |frames: &[Value]| -> Vec<Value> {
        let is_hook =
            |frame: &&Value| frame["subtype"].as_str().is_some_and(|it| it.starts_with("hook_"));
        frames.iter().filter(is_hook).cloned().collect()
    };
    let mut settings = one("PreToolUse", "echo no >&2; exit 2");
    settings["hooks"]["SessionStart"] = json!([{ "hooks": [script("echo hello")] }]);
    for (flag, count) in [(None, 2), (Some("--include-hook-events"), 4)] {
        let server =
            serve(Scenario::new().tool("Bash", json!({ "command": "true" })).reply("Done."));
        let ended = trial(&server, &settings).args(flag).args(["do it"]).run().await;
        let told = hooks(&ended.frames());
        assert_eq!(told.len(), count, "{told:?}");
        assert_eq!(told[0]["subtype"], "hook_started");
        assert_eq!(
            (&told[1]["subtype"], &told[1]["stdout"]),
            (&json!("hook_response"), &json!("hello\n"))
        );
        assert_eq!(told[0]["hook_id"], told[1]["hook_id"]);
        assert_eq!(told[1]["outcome"], "success");
        if let Some(last) = told.get(3) {
            assert_eq!(last["hook_name"], "PreToolUse:Bash");
            assert_eq!((&last["exit_code"], &last["outcome"]), (&json!(2), &json!("error")));
            assert_eq!(last["stderr"], "no\n");
        }
    }
    let server = serve(Scenario::new());
    let ended = RunBuilder::against(&server).args(["--include-hook-events", "do it"]).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[tokio::test]
async fn an_invalid_hook_matcher_is_reported_with_its_position() {
    let server = serve(Scenario::new());
    let trial = RunBuilder::against(&server).args(["--settings", "mine.json", "do it"]);
    let text = "{\"hooks\": {\"PreToolUse\": [{\"hooks\": [\n  {\"type\": \"command\",\n   \
                \"if\": \"Bash(git\", \"command\": \"true\"}]}]}}";
    std::fs::write(trial.work().join("mine.json"), text).expect("written");
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("mine.json:3:4:"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hooks.PreToolUse[0].hooks[0].if"), "{}", ended.stderr);
}

#[tokio::test]
async fn hooks_can_be_disabled_and_untrusted_ones_never_run() {
    for (settings, args, ran) in [
        (json!({ "disableAllHooks": true }), &[][..], false),
        (json!({}), &["--trust-project"][..], true),
        (json!({}), &[][..], false),
    ] {
        let server = serve(Scenario::new().reply("Done."));
        let trial = trial(&server, &settings).args(args).args(["do it"]);
        let folder = trial.work().join(".claude");
        std::fs::create_dir(&folder).expect("a folder");
        let theirs = one("SessionStart", "touch ran").to_string();
        std::fs::write(folder.join("settings.json"), theirs).expect("written");
        let ended = trial.run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.work().join("ran").exists(), ran, "{settings} {args:?}");
        let ignored = ended.result()["ignored_settings"].to_string();
        assert_eq!(ignored.contains("hooks"), args.is_empty(), "{ignored}");
    }
}

#[tokio::test]
async fn detached_hooks_that_end_with_the_run_do_not_count_as_failed() {
    let server = serve(Scenario::new().reply("Done.").reply("Done."));
    let mut detached = script("echo $$ > pid; exec sleep 1000");
    detached["async"] = json!(true);
    // The run is over in some way; then the last hook gives outlast the time to hear of it.
    let stop = "until [ -s pid ]; do sleep 0.01; done";
    let last = "kill -9 $(cat pid); sleep 0.3";
    let settings = json!({ "hooks": {
        "SessionStart": [{ "hooks": [detached] }],
        "Stop": [{ "hooks": [script(stop)] }],
        "SessionEnd": [{ "hooks": [{ "type": "command", "command": last, "timeout": 30 }] }],
    }});
    let ended = trial(&server, &settings).args(["do it"]).run().await;
    assert_eq!((ended.code, &ended.result()["hooks"]["failed"]), (Some(0), &json!(0)), "{ended:?}");
    assert_eq!(read(&ended.config(), "hooks/.logs/hook-log.jsonl"), "");
}

#[tokio::test]
async fn a_failed_detached_hook_is_logged() {
    let call = json!({ "command": "until [ -e config ] || grep -q crash ../config/hooks/.logs/*; do sleep 0.05; done" });
    let server = serve(Scenario::new().tool("Bash", call).reply("Done."));
    let mut settings = one("UserPromptSubmit", "exit 3");
    settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]["async"] = json!(true);
    let ended = trial(&server, &settings).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(read(&ended.config(), "hooks/.logs/hook-log.jsonl").contains("exit code 3"));
}
