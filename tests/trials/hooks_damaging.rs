//! Hooks that damage their environment, hang or cannot run, also in sub-agents: one correct result
//! each.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::agents::{of_agent, of_root, requests, task};
use crate::support::programs::{script, write_program};
use crate::support::{RunBuilder, serve};

fn hooks(event: &str, entry: &Value) -> String {
    json!({ "hooks": { event: [{ "hooks": [entry] }] } }).to_string()
}

fn trial(server: &RehearsalServer, settings: &str) -> RunBuilder {
    RunBuilder::against(server).args(["--settings", settings, "--output-format", "json"])
}

/// JSON has no such paths: hooks and the result get them with a replacement character.
#[tokio::test]
async fn hooks_fail_and_are_reported_in_a_folder_whose_name_is_not_utf_8() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = trial(&server, &hooks("SessionStart", &script("cat > read; exit 1")));
    let config = trial.work().join(OsStr::from_bytes(b"c\xff"));
    let ended = trial.config_folder(&config).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let log = ended.result()["hooks"]["log"].clone();
    assert!(log.as_str().is_some_and(|log| log.contains("/c\u{fffd}/")), "{log}");
    let read = std::fs::read_to_string(ended.work().join("read")).expect("the input of the hook");
    assert!(read.contains("/c\u{fffd}/"), "{read}");
}

#[tokio::test]
async fn a_deadline_that_passes_in_a_hook_names_the_hook() {
    let mut slow = script("touch began; exec sleep 1000");
    slow["failClosed"] = json!(true);
    // The hook runs before the deadline passes, however slow the machine is.
    let mut limit = 1;
    let ended = loop {
        limit *= 2;
        let server = serve(Scenario::new().tool("Bash", json!({ "command": "touch made" })));
        let trial = trial(&server, &hooks("PreToolUse", &slow));
        let ended = trial.args(["--max-duration", &format!("{limit}s"), "do it"]).run().await;
        assert_eq!(ended.result()["terminal_reason"], "deadline", "{ended:?}");
        if ended.work().join("began").exists() || limit > 60 {
            break ended;
        }
    };
    let result = ended.result();
    let named = "PreToolUse: touch began; exec sleep 1000";
    assert_eq!(result["hooks"]["cut"], json!([named]), "{result}");
    assert_eq!((&result["hooks"]["ran"], &result["hooks"]["failed"]), (&json!(1), &json!(0)));
    assert!(result["errors"].to_string().contains(named), "{result}");
    assert!(!ended.work().join("made").exists());
}

#[tokio::test]
async fn a_sub_agent_starts_with_the_context_from_its_start_hook() {
    let scenario = Scenario::new()
        .tool("Agent", task("part one"))
        .when(of_root())
        .reply("One is done.")
        .when(of_agent("part one"))
        .reply("All is done.")
        .when(of_root());
    let server = serve(scenario);
    let tell = r#"cat > told; echo '{"hookSpecificOutput": {"hookEventName": "SubagentStart",
        "additionalContext": "mind the gap"}}'"#;
    let ended = trial(&server, &hooks("SubagentStart", &script(tell))).args(["Go."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = std::fs::read_to_string(ended.work().join("told")).expect("it was told");
    let told: Value = serde_json::from_str(&told).expect("one object");
    assert_eq!(told["agent_type"], "general-purpose");
    assert!(told["agent_id"].as_str().is_some_and(|id| !id.is_empty()), "{told}");
    let said = |source: &str| requests(&server, source)[0].body["messages"].to_string();
    assert!(said("agent:").contains("mind the gap") && !said("main").contains("mind the gap"));
}

#[tokio::test]
async fn a_required_hook_that_cannot_run_prevents_the_run() {
    let mut http = json!({ "type": "prompt", "prompt": "may it?" });
    http["failClosed"] = json!(true);
    for (settings, words) in [
        (hooks("PreToolUs", &script("exit 2")), r#"did you mean \"PreToolUse\"?"#),
        (hooks("pretoolus", &script("exit 2")), r#"did you mean \"PreToolUse\"?"#),
        (hooks("PreToolUse", &http), "failClosed"),
    ] {
        let server = serve(Scenario::new().reply("Done."));
        let ended = trial(&server, &settings).args(["do it"]).run().await;
        assert_eq!(ended.code, Some(2), "{settings}: {ended:?}");
        assert!(ended.result()["errors"].to_string().contains(words), "{ended:?}");
        assert_eq!(server.requests().len(), 0);
    }
    let server = serve(Scenario::new().reply("Done."));
    let ended = trial(&server, &hooks("Setup", &script("exit 2"))).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "another tool's event is no mistake: {ended:?}");
    let warnings = ended.result()["warnings"].to_string();
    assert!(warnings.contains("hooks.Setup has no effect"), "{warnings}");
}

#[tokio::test]
async fn a_journal_changed_by_a_hook_is_reported_on_resume() {
    let server =
        serve(Scenario::new().tool("Bash", json!({ "command": "touch made" })).reply("Done."));
    let spoil = r#"path=$(sed 's/.*"transcript_path":"\([^"]*\)".*/\1/'); echo rubbish >> "$path""#;
    let ended = trial(&server, &hooks("PreToolUse", &script(spoil))).args(["do it"]).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    let next = serve(Scenario::new().reply("Again."));
    let args = ["--output-format", "json", "--continue", "go on"];
    let ended = ended.again(&next.base_url()).args(args).run().await;
    let errors = ended.result()["errors"].to_string();
    assert_eq!((ended.code, next.requests().len()), (Some(2), 0), "{ended:?}");
    assert!(errors.contains("damaged") && errors.contains("--to-last-intact"), "{errors}");
}

#[tokio::test]
async fn a_hook_that_removes_the_working_folder_fails_calls_but_not_the_run() {
    let server =
        serve(Scenario::new().tool("Bash", json!({ "command": "echo out" })).reply("Done."));
    let settings = hooks("PreToolUse", &script("rm -rf \"$CLAUDE_PROJECT_DIR\""));
    let ended = trial(&server, &settings).args(["do it"]).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert_eq!(ended.result()["tools"]["failed"], 1, "{ended:?}");
    assert_eq!(server.violations(), [""; 0]);
}

#[tokio::test]
async fn later_commands_see_what_a_hook_exports_and_no_credential() {
    let command =
        "echo \"$GREETING ${ANTHROPIC_AUTH_TOKEN:-none} ${CLAUDE_ENV_FILE:-gone}\" > made";
    let scenario = Scenario::new().tool("Bash", json!({ "command": command })).reply("Done.");
    let server = serve(scenario);
    let export = r#"stat -c %a "$CLAUDE_ENV_FILE" > mode; echo "$CLAUDE_ENV_FILE" > where
        echo 'WHOM="you all"; export GREETING="hello $WHOM"; echo noise' >> "$CLAUDE_ENV_FILE"
        echo 'export ANTHROPIC_AUTH_TOKEN=some-long-token-1234' >> "$CLAUDE_ENV_FILE""#;
    let ended = trial(&server, &hooks("SessionStart", &script(export))).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let read = |name: &str| std::fs::read_to_string(ended.work().join(name)).unwrap_or_default();
    assert_eq!(read("made"), "hello you all none gone\n", "{ended:?}");
    assert_eq!(read("mode"), "600\n");
    let place = read("where");
    assert!(place.len() > 1 && !std::path::Path::new(place.trim()).exists(), "{place}");
    let warnings = ended.result()["warnings"].to_string();
    assert!(warnings.contains("ANTHROPIC_AUTH_TOKEN: no command sees"), "{warnings}");
}

#[tokio::test]
async fn an_exported_variable_that_is_not_utf_8_is_not_set() {
    let command = json!({ "command": "echo \"${BYTES-unset} $TEXT\" > made" });
    let server = serve(Scenario::new().tool("Bash", command).reply("Done."));
    let line = r#"export BYTES=$(printf "a\377b") TEXT=plain"#;
    let export = format!("printf '%s\\n' '{line}' >> \"$CLAUDE_ENV_FILE\"");
    let ended =
        trial(&server, &hooks("SessionStart", &script(&export))).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let made = std::fs::read_to_string(ended.work().join("made")).expect("the command ran");
    assert_eq!(made, "unset plain\n", "{ended:?}");
}

#[tokio::test]
async fn invalid_hook_exports_are_reported_and_otherwise_ignored() {
    let server = serve(Scenario::new().reply("Done."));
    let broken = r#"echo 'export A="never closed' >> "$CLAUDE_ENV_FILE""#;
    let ended = trial(&server, &hooks("SessionStart", &script(broken))).args(["do it"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let warnings = ended.result()["warnings"].to_string();
    assert!(warnings.contains("CLAUDE_ENV_FILE has no effect"), "{warnings}");
}

#[tokio::test]
async fn the_example_hook_of_the_manual_works() {
    let page = include_str!("../../man/outlast-hooks.7.md");
    let blocks: Vec<&str> = page.split("```").collect();
    let block = |kind: &str, word: &str| {
        let found = blocks.iter().find(|block| block.starts_with(kind) && block.contains(word));
        found.unwrap_or_else(|| panic!("no {kind} with {word}"))[kind.len()..].trim_start()
    };
    let (settings, guard) = (block("json", "guard.py"), block("python", "pushing is for people"));
    for (command, denied) in
        [("touch made; git  push", true), ("touch made; git pull || true", false)]
    {
        let scenario = Scenario::new().tool("Bash", json!({ "command": command })).reply("Done.");
        let server = serve(scenario);
        let trial = trial(&server, settings);
        write_program(&trial.work().join("guard.py"), guard);
        let ended = trial.args(["do it"]).run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.work().join("made").exists(), !denied, "{ended:?}");
        let told = server.requests()[1].body["messages"].to_string();
        assert_eq!(told.contains("pushing is for people"), denied, "{told}");
    }
}
