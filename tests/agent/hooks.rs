//! Effects of the answers of hooks on a run: on its calls, its prompt and its end.

use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::Scenario;
use outlast::tools::PermissionMode;
use serde_json::{Value, json};

use super::run_fixture::{FinishedRun, RunFixture};
use crate::support::programs::script;

/// One hook of one event.
fn one(event: &str, text: &str) -> Value {
    json!({ event: [{ "hooks": [script(text)] }] })
}

/// A tool call, and an answer.
fn calling(command: &str) -> RunFixture {
    RunFixture::of(Scenario::new().tool("Bash", json!({ "command": command })).reply("Done."))
}

/// Everything that the model is told with the request of this number, counted from 1.
fn said(played: &FinishedRun, number: usize) -> String {
    Value::from(played.messages(number)).to_string()
}

/// The numbers of hooks that ran, failed and blocked.
fn counts(played: &FinishedRun) -> (u32, u32, u32) {
    let hooks = &played.ending.hooks;
    (hooks.ran, hooks.failed, hooks.blocked)
}

// --- calls ------------------------------------------------------------------------------------

#[tokio::test]
async fn a_hook_denial_tells_the_model_its_reason() {
    let hook = one("PreToolUse", "echo not on a Friday >&2; exit 2");
    let played = calling("touch made").hooks(&hook).run().await;
    played.assert_end(StopReason::Completed, "Done.");
    assert!(!played.has("made"));
    let results = played.results();
    assert!(results[0].0 && results[0].1.contains("not on a Friday"), "{results:?}");
    let [denial] = &played.ending.stats.denials[..] else { panic!("one denial") };
    assert_eq!(denial.tool_name, "Bash");
    assert!(denial.reason.contains("not on a Friday"), "{denial:?}");
    assert_eq!(counts(&played), (1, 0, 1));
    assert_eq!(played.ending.stats.tools.denied, 1);
}

#[tokio::test]
async fn a_permission_request_hook_decides_what_no_rule_does() {
    for (decision, made) in [
        (r#"{"behavior": "allow"}"#, true),
        (r#"{"behavior": "deny", "message": "not on a Friday"}"#, false),
    ] {
        let answer = format!(
            r#"echo '{{"hookSpecificOutput": {{"hookEventName": "PermissionRequest",
                "decision": {decision}}}}}'"#
        );
        let fixture = calling("touch made").tools(|settings| {
            settings.permissions.ask = vec!["Bash(touch *)".to_owned()];
        });
        let played = fixture.hooks(&one("PermissionRequest", &answer)).run().await;
        played.assert_end(StopReason::Completed, "Done.");
        assert_eq!(played.has("made"), made, "{:?}", played.results());
        assert_eq!(counts(&played), (1, 0, u32::from(!made)));
    }
}

#[tokio::test]
async fn a_hook_may_allow_an_ask_rule_but_not_override_a_deny_rule() {
    let allow = one(
        "PreToolUse",
        r#"echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse",
            "permissionDecision": "allow"}}'"#,
    );
    let touch = "Bash(touch *)";
    for (deny, hooks, made) in
        [(None, Some(&allow), true), (Some(touch), Some(&allow), false), (None, None, false)]
    {
        let fixture = calling("touch made").tools(|settings| {
            settings.permissions.mode = PermissionMode::Default;
            settings.permissions.deny = deny.map(str::to_owned).into_iter().collect();
        });
        let fixture = if let Some(hooks) = hooks { fixture.hooks(hooks) } else { fixture };
        let played = fixture.run().await;
        let case = (deny, hooks.is_some());
        assert_eq!(played.has("made"), made, "{case:?}");
        assert_eq!(played.ending.stats.denials.len(), usize::from(!made), "{case:?}");
    }
}

#[tokio::test]
async fn an_input_changed_by_a_hook_is_validated_and_permission_checked_again() {
    let change = |input: &str| {
        let output = format!(
            r#"{{"hookSpecificOutput": {{"hookEventName": "PreToolUse", "updatedInput": {input}}}}}"#
        );
        one("PreToolUse", &format!("echo '{output}'"))
    };
    let right = change(r#"{"command": "touch changed"}"#);
    let played = calling("touch asked").hooks(&right).run().await;
    assert_eq!((played.has("asked"), played.has("changed")), (false, true));
    let wrong = change(r#"{"comand": "touch changed"}"#);
    let played = calling("touch asked").hooks(&wrong).run().await;
    assert_eq!((played.has("asked"), played.has("changed")), (false, false));
    assert_eq!(played.ending.stats.tools.failed, 1);
    let denied = calling("touch asked")
        .tools(|settings| settings.permissions.deny = vec!["Bash(touch changed)".to_owned()]);
    let played = denied.hooks(&right).run().await;
    assert_eq!((played.has("asked"), played.has("changed")), (false, false));
    assert_eq!(played.ending.stats.tools.denied, 1);
}

#[tokio::test]
async fn a_tool_hook_can_stop_the_run() {
    for (event, made) in [("PreToolUse", false), ("PostToolUse", true)] {
        let hook = one(event, r#"echo '{"continue": false, "stopReason": "enough"}'"#);
        let played = calling("touch made").hooks(&hook).run().await;
        played.assert_end(StopReason::HookStopped, "");
        assert!(played.ending.hooks.why.as_deref().is_some_and(|why| why.contains("enough")));
        assert_eq!(played.has("made"), made, "{event}");
        assert_eq!(played.server.requests().len(), 1, "{event}");
    }
}

#[tokio::test]
async fn a_hook_can_replace_a_tool_result() {
    let answer = |output: &str| {
        let output = format!(
            r#"{{"hookSpecificOutput": {{"hookEventName": "PostToolUse",
            "updatedToolOutput": {output}}}}}"#
        );
        one("PostToolUse", &format!("echo '{output}'"))
    };
    let shape = r#"{"stdout": "gone", "stderr": "", "interrupted": false, "isImage": false}"#;
    for (output, replaced) in [(shape, true), (r#""gone""#, true), (r#"{"out": "gone"}"#, false)] {
        let played = calling("echo secret").hooks(&answer(output)).run().await;
        played.assert_end(StopReason::Completed, "Done.");
        let result = said(&played, 2);
        let result = result.split("tool_result").nth(1).expect("a result");
        assert_eq!(result.contains("gone"), replaced, "{output}: {result}");
        assert_eq!(result.contains("secret"), !replaced, "{output}: {result}");
        let warnings = played.warnings();
        let refused = warnings.iter().filter(|text| text.contains("updatedToolOutput")).count();
        assert_eq!(refused, usize::from(!replaced), "{output}: {warnings:?}");
    }
}

// --- failures of hooks ------------------------------------------------------------------------

/// A hook that fails is as if it were not there, unless it must not fail.
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
        let hooks = json!({ "PreToolUse": [{ "hooks": [hook.clone()] }] });
        let played = calling("touch made").hooks(&hooks).run().await;
        played.assert_end(StopReason::Completed, "Done.");
        assert!(played.has("made"), "{hook}");
        assert_eq!(counts(&played), (1, 1, 0), "{hook}");
        let path = played.folder.path().join("config/hooks/.logs/hook-log.jsonl");
        assert_eq!(played.ending.hooks.log, Some(path.display().to_string()), "{hook}");
        let log = std::fs::read_to_string(path).expect("it was written");
        let entries: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!((entries.len(), &entries[0]["kind"]), (1, &json!(kind)), "{hook}: {log}");
        let warnings = played.warnings();
        let told = warnings.iter().filter(|text| text.contains("the hook")).count();
        assert_eq!(told, 1, "{hook}: {warnings:?}");
        let mut guard = hook;
        guard["failClosed"] = json!(true);
        let hooks = json!({ "PreToolUse": [{ "hooks": [guard.clone()] }] });
        let played = calling("touch made").hooks(&hooks).run().await;
        assert!(!played.has("made"), "{guard}");
        assert_eq!(played.ending.stats.tools.denied, 1, "{guard}");
    }
}

#[tokio::test]
async fn a_hook_that_kills_its_parent_process_is_as_if_it_were_not_there() {
    let hook = one("PreToolUse", "kill -9 $PPID; sleep 60");
    let played = calling("touch made").hooks(&hook).run().await;
    played.assert_end(StopReason::Completed, "Done.");
    assert!(played.has("made"));
    assert_eq!(counts(&played), (1, 1, 0));
}

#[tokio::test]
async fn fifty_megabytes_of_hook_output_are_no_decision_and_no_context() {
    let loud = one("UserPromptSubmit", "head -c 50000000 /dev/zero | tr '\\0' x; exit 0");
    let played = RunFixture::of(Scenario::new().reply("Done.")).hooks(&loud).run().await;
    played.assert_end(StopReason::Completed, "Done.");
    let told = said(&played, 1);
    assert!(told.len() < 20_000, "{}", told.len());
    assert!(played.warnings().iter().any(|said| said.contains("too long")), "{:?}", played.said);
}

// --- the prompt and the end -------------------------------------------------------------------

#[tokio::test]
async fn hook_context_is_added_to_the_prompt_and_the_results() {
    let say = |event: &str, text: &str| {
        json!([{ "hooks": [script(&format!(
            r#"echo '{{"hookSpecificOutput": {{"hookEventName": "{event}",
            "additionalContext": "{text}"}}}}'"#
        ))] }])
    };
    let hooks = json!({
        "SessionStart": [{ "hooks": [script("echo the tide is high")] }],
        "UserPromptSubmit": say("UserPromptSubmit", "the wind is low"),
        "PreToolUse": say("PreToolUse", "before"),
        "PostToolUseFailure": say("PostToolUseFailure", "after"),
    });
    let played = calling("false").hooks(&hooks).run().await;
    played.assert_end(StopReason::Completed, "Done.");
    assert_eq!(counts(&played), (4, 0, 0));
    let (first, second) = (said(&played, 1), said(&played, 2));
    let start = first.find("the tide is high").expect("the session's hook is heard");
    assert!(first.find("Do it.").is_some_and(|at| at < start), "{first}");
    assert!(first.contains("the wind is low"), "{first}");
    let last = &played.messages(2)[2]["content"];
    assert_eq!(last[0]["type"], "tool_result", "{last}");
    assert!(second.contains("\\n\\nbefore") && second.contains("\\n\\nafter"), "{second}");
}

#[tokio::test]
async fn a_prompt_that_a_hook_rejects_is_never_sent() {
    let hook = one("UserPromptSubmit", "echo no secrets here >&2; exit 2");
    let played = RunFixture::of(Scenario::new().reply("never")).hooks(&hook).run().await;
    played.assert_end(StopReason::HookStopped, "");
    assert!(played.ending.hooks.why.as_deref().is_some_and(|why| why.contains("no secrets here")));
    assert!(played.server.requests().is_empty());
    assert!(!played.ending.has_messages);
}

#[tokio::test]
async fn a_stop_hook_that_always_blocks_is_overruled_and_informed() {
    let block = r#"cat >> told; n=$(wc -l < told); echo "try $n" >&2; exit 2"#;
    let fixture = RunFixture::of(Scenario::new().reply("Done.").times(3));
    let played = fixture.hooks(&one("Stop", block)).run().await;
    played.assert_end(StopReason::StopHookBlocked, "Done.");
    played.assert_asked(3);
    let told = played.file("told");
    let active = |line: &str| line.contains(r#""stop_hook_active":true"#);
    assert_eq!(told.lines().map(active).collect::<Vec<_>>(), [false, true, true]);
    assert!(said(&played, 2).contains("try 1") && said(&played, 3).contains("try 2"));
    assert!(played.ending.hooks.why.as_deref().is_some_and(|why| why.contains("try 3")));
    assert_eq!(counts(&played), (3, 0, 3));
}

#[tokio::test]
async fn the_same_stop_hook_objection_twice_ends_the_run() {
    let object = one("Stop", "echo run the tests >&2; exit 2");
    let played = RunFixture::of(Scenario::new().reply("Done.").times(2)).hooks(&object);
    let played = played.run().await;
    played.assert_end(StopReason::StopHookBlocked, "Done.");
    played.assert_asked(2);
    let well_made = "grep -q 'stop_hook_active\":true' && exit 0; echo run the tests >&2; exit 2";
    let scenario = Scenario::new().reply("Done.").reply("Done, and tested.");
    let played = RunFixture::of(scenario).hooks(&one("Stop", well_made)).run().await;
    played.assert_end(StopReason::Completed, "Done, and tested.");
    assert_eq!(played.strategies(), json!({ "stop_hook_blocking": 1 }));
    played.assert_asked(2);
}

#[tokio::test]
async fn a_service_failure_is_reported_to_hooks_without_changing_the_outcome() {
    let broke = "Your credit balance is too low to access the API";
    for (status, kind, message, class, category) in [
        (400, "invalid_request_error", "no", ErrorClass::InvalidRequest, "invalid_request"),
        (400, "invalid_request_error", broke, ErrorClass::CreditBalanceLow, "billing_error"),
        (401, "authentication_error", "no", ErrorClass::InvalidApiKey, "authentication_failed"),
        (404, "not_found_error", "model: x", ErrorClass::InvalidModel, "model_not_found"),
    ] {
        let hooks = json!({
            "StopFailure": [
                { "matcher": category, "hooks": [script("cat > told; exit 2")] },
                { "matcher": class.name(), "hooks": [script("touch by_class")] },
                { "matcher": "rate_limit", "hooks": [script("touch by_another")] },
            ],
            "Stop": [{ "hooks": [script("touch stopped")] }],
        });
        let scenario = Scenario::new().status(status).error(kind, message, None).times(2);
        let played = RunFixture::of(scenario).hooks(&hooks).run().await;
        played.assert_end(StopReason::ModelError(class), "");
        let told: Value = serde_json::from_str(&played.file("told")).expect("its input");
        assert_eq!(told["error"], category, "{told}");
        assert!(played.has("by_class"), "{class}");
        assert!(!played.has("by_another") && !played.has("stopped"), "{class}");
    }
}

/// Half a report could mean the opposite of the whole.
#[tokio::test]
async fn a_long_text_of_a_hook_is_kept_in_a_file_that_its_beginning_names() {
    let long = "printf 'a%.0s' $(seq 12000); echo the-end";
    let denies = format!("{{ {long}; }} >&2; exit 2");
    for (event, command) in
        [("SessionStart", long), ("UserPromptSubmit", long), ("PreToolUse", &*denies)]
    {
        let played = calling("true").hooks(&one(event, command)).run().await;
        played.assert_end(StopReason::Completed, "Done.");
        let all = said(&played, 2);
        assert!(!all.contains("the-end"), "{event}");
        let (_, place) =
            all.split_once("cut after 10000 characters; the whole text is in ").expect(event);
        let path = place.split(']').next().expect("a path");
        let whole = std::fs::read_to_string(path).expect("it can be read");
        assert!(whole.trim_end().ends_with("the-end") && whole.len() > 12_000, "{event}");
    }
}

/// As the result that it replaces would have been.
#[tokio::test]
async fn a_long_result_of_a_hook_is_cut_as_that_of_a_tool() {
    let hook = r#"printf '{"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": "begin-'; printf 'a%.0s' $(seq 40000); printf -- '-end"}}'"#;
    for (most, is_whole) in [(100_000, true), (20_000, false)] {
        let fixture = calling("true").tools(|settings| settings.results.chars = most);
        let played = fixture.hooks(&one("PostToolUse", hook)).run().await;
        played.assert_end(StopReason::Completed, "Done.");
        let result = &played.results()[0].1;
        assert!(result.contains("begin-") && result.contains("-end"), "{most}");
        assert_eq!(result.chars().count() > 40_000, is_whole, "{most}");
        assert_eq!(result.contains("is left out"), !is_whole, "{most}");
    }
}

/// A hook of each event can end a run that goes on.
#[tokio::test]
async fn a_hook_of_every_event_can_stop_an_active_run() {
    let bash = |command: &str| Scenario::new().tool("Bash", json!({ "command": command }));
    let failing = Scenario::new().status(400).error("invalid_request_error", "no", None);
    let stopped = StopReason::HookStopped;
    let events = [
        ("SessionStart", Scenario::new().reply("Done."), stopped),
        ("UserPromptSubmit", Scenario::new().reply("Done."), stopped),
        ("PreToolUse", bash("touch made").reply("Done."), stopped),
        ("PermissionRequest", bash("id").reply("Done."), stopped),
        ("Notification", bash("whoami").reply("Done."), stopped),
        ("PostToolUse", bash("touch made").reply("Done."), stopped),
        ("PostToolUseFailure", bash("false").reply("Done."), stopped),
        ("Stop", Scenario::new().reply("Done."), StopReason::StopHookPrevented),
        ("StopFailure", failing, StopReason::ModelError(ErrorClass::InvalidRequest)),
        ("SessionEnd", Scenario::new().reply("Done."), StopReason::Completed),
    ];
    for (event, scenario, reason) in events {
        let fixture = RunFixture::of(scenario).tools(|settings| {
            settings.permissions.deny = vec!["Bash(whoami)".to_owned()];
            settings.permissions.ask = vec!["Bash(id)".to_owned()];
        });
        let hook = one(event, r#"echo '{"continue": false, "stopReason": "enough is enough"}'"#);
        let played = fixture.hooks(&hook).run().await;
        assert_eq!(played.ending.reason, reason, "{event}: {:?}", played.trace());
        assert_eq!(played.ending.hooks.ran, 1, "{event}");
        // What is over has ended as it did.
        let is_over = matches!(event, "StopFailure" | "SessionEnd");
        let why = played.ending.hooks.why.as_deref().unwrap_or_default();
        assert!(is_over || why.contains("enough is enough"), "{event}: {why}");
        assert_eq!(played.server.violations(), [""; 0], "{event}");
    }
}
