//! Hostile and careless hooks: each ends in time, with an accurate outcome.

use std::fs;

use outlast::hooks::HookFailureKind::{Crash, InvalidOutput, MatcherFailed, Missing};
use outlast::hooks::{HookContext, HookDecision, HookEvent, HookRuns};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::run::HookFixture;
use crate::support::programs::{script, write_program};
use crate::support::{FifoSignal, with_time_limit};

fn guard(text: &str) -> Value {
    let mut guard = script(text);
    guard["failClosed"] = json!(true);
    guard
}

#[tokio::test]
async fn a_blocking_hook_with_text_before_its_json_denies_the_call() {
    let stage = HookFixture::open();
    let deny = r#"echo loading; echo '{"decision": "block", "reason": "no"}'; echo done"#;
    let verdict = stage.before_bash(&[script(deny)]).await;
    assert_eq!((verdict.denial(), verdict.runs.failures.len()), (Some("no"), 0));
    let cut = r#"printf '{"decision": "block", "reason": "caf\351 \\ud83d \t"}'"#;
    let verdict = stage.before_bash(&[script(cut)]).await;
    assert_eq!(
        (verdict.denial(), verdict.runs.failures.len()),
        (Some("caf\u{fffd} \u{fffd} \t"), 0)
    );
    let allow = r#"echo loading; echo '{"decision": "approve"}'"#;
    let verdict = stage.before_bash(&[guard(allow)]).await;
    assert_eq!(verdict.runs.failures[0].1.kind, InvalidOutput);
    assert!(verdict.denial().is_some_and(|why| why.contains("does not begin with it")));
    let amid = r#"printf 'checking... '; echo '{"decision": "block", "reason": "no"}'"#;
    let verdict = stage.before_bash(&[guard(amid)]).await;
    assert!(verdict.denial().is_some_and(|why| why.contains("in the middle of a line")));
    let late = r#"head -c 10000001 /dev/zero | tr '\0' x; echo; echo '{"decision": "block"}'"#;
    let verdict = stage.before_bash(&[guard(late)]).await;
    assert!(verdict.denial().is_some_and(|why| why.contains("is too long")));
    let fine = stage.before_bash(&[guard("echo all is well")]).await;
    assert_eq!((fine.denial(), fine.runs.failures.len()), (None, 0), "plain text is consent");
}

#[tokio::test]
async fn a_crafted_tool_name_does_not_bypass_a_hook_matcher() {
    let stage = HookFixture::open();
    let hooks = stage.hooks(&json!({ "PreToolUse": [
        { "matcher": "^(a|a)*(?=b)c$", "hooks": [guard("echo no >&2; exit 2"), script("touch ran")] },
    ] }));
    let occasion = |name: &str| HookContext::new(HookEvent::PreToolUse, name, Map::new());
    let cancel = CancellationToken::new();
    let harmless = hooks.run(&occasion("Bash"), &|_| true, &cancel).await;
    assert_eq!(harmless, HookDecision::default());
    let elsewhere = occasion(&"a".repeat(60));
    let verdict = hooks.run(&elsewhere, &|_| true, &cancel).await;
    assert_eq!((verdict.denial(), verdict.runs.ran), (Some("no"), 1), "the guard is asked");
    let kinds: Vec<_> = verdict.runs.failures.iter().map(|(_, mishap)| mishap.kind).collect();
    assert_eq!((kinds, stage.log().count()), (vec![MatcherFailed, MatcherFailed], 2));
    assert!(!stage.cwd().join("ran").exists(), "it is unknown whether it is for that");
}

#[tokio::test]
async fn a_crash_log_that_is_a_pipe_does_not_block() {
    let stage = HookFixture::open();
    let path = stage.log().path().to_path_buf();
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    let entries = [script("exit 1")];
    let reader = FifoSignal::at(&path);
    let heard = with_time_limit("a hook that fails", stage.before_bash(&entries)).await;
    assert_eq!((heard.runs.failures.len(), stage.log().count()), (1, 0));
    drop(reader);
    let unheard = with_time_limit("a hook that fails", stage.before_bash(&entries)).await;
    assert_eq!((unheard.runs.failures.len(), stage.log().count()), (1, 0));
}

#[tokio::test]
async fn blocking_hooks_deny_and_log_when_the_hook_runner_panics() {
    let stage = HookFixture::open();
    let hooks = stage.hooks(&json!({
        "PreToolUse": [{ "hooks": [script("exit 0"), guard("./guard")] }],
        "PostToolUse": [{ "hooks": [guard("./late")] }],
    }));
    let verdict = hooks.decision_after_crash(HookEvent::PreToolUse);
    assert!(verdict.denial().is_some_and(|why| why.contains("./guard") && why.contains("bug")));
    assert_eq!(
        verdict.runs.failures.iter().map(|(_, it)| it.kind).collect::<Vec<_>>(),
        [Crash, Crash]
    );
    assert_eq!(stage.log().count(), 2);
    let late = hooks.decision_after_crash(HookEvent::PostToolUse);
    assert_eq!(late.denial(), None, "what has happened cannot be forbidden");
}

#[tokio::test]
async fn interrupted_hooks_are_named_and_do_not_count_as_failed() {
    let stage = HookFixture::open();
    let slow = "touch began; exec sleep 1000";
    let hooks = stage.hooks(&json!({ "Stop": [{ "hooks": [guard(slow), script("exit 2")] }] }));
    let cancel = CancellationToken::new();
    let occasion = HookContext::new(HookEvent::Stop, "", Map::new());
    let began = stage.cwd().join("began");
    let cut = async {
        while !began.exists() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (verdict, ()) = with_time_limit("hooks that are cut", async {
        tokio::join!(hooks.run(&occasion, &|_| true, &cancel), cut)
    })
    .await;
    let HookDecision { runs, objection, .. } = verdict;
    let HookRuns { ran, cancelled: cut, failures: mishaps } = runs;
    assert_eq!((ran, objection, mishaps.len()), (2, None, 0));
    assert!(cut.contains(&slow.to_owned()), "{cut:?}");
    assert_eq!(stage.log().count(), 0);
}

#[tokio::test]
async fn endless_hook_output_is_cut_off_at_the_timeout() {
    let stage = HookFixture::open();
    let mut endless = guard("exec yes '{'");
    endless["timeout"] = json!(0.5);
    let verdict = with_time_limit("an endless hook", stage.before_bash(&[endless])).await;
    assert!(verdict.denial().is_some_and(|why| why.contains("took too long")));
}

#[tokio::test]
async fn a_hook_command_that_is_no_program_is_reported_as_missing() {
    let stage = HookFixture::open();
    let foreign = stage.cwd().join("foreign");
    write_program(&foreign, "#!/bin/sh\r\nexit 2\r\n");
    let dull = stage.cwd().join("dull");
    fs::write(&dull, "#!/bin/sh\nexit 2\n").expect("written");
    for program in [stage.cwd(), foreign, dull] {
        let name = program.to_string_lossy().into_owned();
        for args in [json!(null), json!([])] {
            let hook = json!({
                "type": "command", "command": name, "args": args, "failClosed": true,
            });
            let verdict = with_time_limit(&name, stage.before_bash(&[hook])).await;
            assert!(verdict.denial().is_some(), "{name} {args}: {verdict:?}");
            assert_eq!(verdict.runs.failures[0].1.kind, Missing, "{name} {args}: {verdict:?}");
        }
    }
}

#[tokio::test]
async fn a_hook_that_kills_its_parent_counts_as_failed() {
    let stage = HookFixture::open();
    for text in ["kill -9 0; sleep 1000", "kill -9 $PPID; exec sleep 1000"] {
        let mut hook = guard(text);
        hook["timeout"] = json!(20);
        let verdict = with_time_limit(text, stage.before_bash(&[hook])).await;
        assert!(verdict.denial().is_some(), "{text}: {verdict:?}");
        let after =
            with_time_limit("another hook", stage.before_bash(&[script("echo no >&2; exit 2")]))
                .await;
        assert_eq!(after.denial(), Some("no"), "the next one runs as ever, after {text}");
    }
}

#[tokio::test]
async fn output_of_two_hundred_hooks_is_collected() {
    let stage = HookFixture::open();
    let mut all: Vec<Value> =
        (0..199).map(|number| script(&format!("exit 0 # {number}"))).collect();
    all.insert(150, guard("echo no >&2; exit 2"));
    let verdict = with_time_limit("two hundred hooks", stage.before_bash(&all)).await;
    assert_eq!(
        (verdict.runs.ran, verdict.denial()),
        (200, Some("no")),
        "{:?}",
        verdict.runs.failures
    );
}

#[tokio::test]
async fn block_decisions_of_non_blocking_events_have_no_effect() {
    let stage = HookFixture::open();
    for event in ["SessionStart", "SubagentStart", "SessionEnd", "StopFailure", "Notification"] {
        let out = r#"echo '{"decision": "block", "reason": "no"}'"#;
        let hooks = [guard(out), guard("echo no >&2; exit 2"), guard("exit 1")];
        let hooks = stage.hooks(&json!({ event: [{ "hooks": hooks }] }));
        let event = HookEvent::from_name(event).expect("an event");
        let occasion = HookContext::new(event, "", Map::new());
        let cancel = CancellationToken::new();
        let verdict = hooks.run(&occasion, &|_| true, &cancel).await;
        assert_eq!((verdict.denial(), verdict.runs.ran), (None, 3), "{event:?}");
        assert_eq!(verdict.runs.failures.len(), 2, "{event:?}: each code but 0 is a failure");
    }
}
