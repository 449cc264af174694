//! Hooks that a host runs on request.

use std::sync::Arc;
use std::time::Duration;

use outlast::hooks::HookFailureKind::{
    self, Crash, HostClosed, InvalidOutput, Missing, NotSent, TimedOut,
};
use outlast::hooks::{
    HookContext, HookDecision, HookEnvironment, HookEvent, HookPermission, Hooks, callbacks,
};
use outlast::types::{HostChannel, HostError};
use serde_json::{Map, Value, json};
use tokio::sync::{Barrier, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::run::{HookFixture, no_effect};
use crate::support::host::{ScriptedHost, at_once, never};
use crate::support::with_time_limit;

fn hooks_of(stage: &HookFixture, hooks: &Value, host: Option<Arc<dyn HostChannel>>) -> Hooks {
    let (handlers, warnings) = callbacks(hooks).expect("these are right");
    assert_eq!(warnings, [""; 0]);
    Hooks::new(handlers, HookEnvironment { host, ..stage.environment() })
}

fn occasion(event: HookEvent, subject: &str, fields: &Value) -> HookContext {
    let fields = fields.as_object().cloned().unwrap_or_default();
    HookContext::new(event, subject, fields)
}

async fn run(hooks: &Hooks, event: HookEvent) -> HookDecision {
    let subject = if event == HookEvent::PreToolUse { "Bash" } else { "" };
    let occasion = occasion(event, subject, &json!({}));
    with_time_limit("the hooks", hooks.run(&occasion, &|_| true, &CancellationToken::new())).await
}

/// The decision of one callback for an event, by the host's reply.
async fn decision(
    event: HookEvent,
    on_failure: &str,
    reply: Result<Value, HostError>,
) -> HookDecision {
    let stage = HookFixture::open();
    let host = ScriptedHost::new(move |_| at_once(reply.clone()));
    let group = json!({ "matcher": null, "hookCallbackIds": ["hook_0"], "onFailure": on_failure });
    run(&hooks_of(&stage, &json!({ event.name(): [group] }), Some(host)), event).await
}

fn failures(decision: &HookDecision) -> Vec<HookFailureKind> {
    decision.runs.failures.iter().map(|(_, failure)| failure.kind).collect()
}

#[test]
fn callbacks_that_never_run_are_warned_of() {
    let group = json!([{ "matcher": "Bash", "hookCallbackIds": ["hook_0", "hook_1"] }]);
    let names = ["PreToolUse", "SessionStart", "SessionEnd", "PostToolBatch", "Misspelt"];
    let mut hooks = Map::from_iter(names.map(|name| (name.to_owned(), group.clone())));
    hooks.insert("Setup".to_owned(), json!([]));
    hooks.insert("Stop".to_owned(), Value::Null);
    let (handlers, warnings) = callbacks(&Value::Object(hooks)).expect("it is right");
    let events: Vec<HookEvent> = handlers.iter().map(|handler| handler.event).collect();
    assert_eq!(events, [HookEvent::PreToolUse; 2]);
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    for name in &names[1..] {
        let about = format!("the host's callbacks for {name} never run: ");
        assert!(warnings.iter().any(|line| line.starts_with(&about)), "{name}: {warnings:?}");
    }
    let (handlers, warnings) = callbacks(&Value::Null).expect("it is right");
    assert!(handlers.is_empty() && warnings.is_empty());
}

#[test]
fn an_invalid_callback_is_an_error_with_its_place() {
    let group = |key: &str, value: Value| {
        let mut group = json!({ "hookCallbackIds": ["hook_0"] });
        group[key] = value;
        json!({ "Stop": [group] })
    };
    let rows = [
        (json!(["x"]), "hooks: must be an object"),
        (json!({ "Stop": "x" }), "hooks.Stop: must be a list"),
        (json!({ "Stop": [{}] }), "hooks.Stop[0]: missing field `hookCallbackIds`"),
        (group("hookCallbackIds", json!([7])), "hooks.Stop[0]: "),
        (group("matcher", json!("a(")), "hooks.Stop[0].matcher: "),
        (group("timeout", json!(0)), "hooks.Stop[0].timeout: "),
        (group("timeout", json!(-1)), "hooks.Stop[0].timeout: "),
        (group("onFailure", json!("panic")), "hooks.Stop[0]: unknown variant `panic`"),
    ];
    for (hooks, wanted) in rows {
        let error = callbacks(&hooks).expect_err("it is wrong").to_string();
        assert!(error.starts_with(wanted), "{hooks}: {error}");
    }
}

#[tokio::test]
async fn a_callback_receives_the_input_of_a_hook_and_the_call() {
    let stage = HookFixture::open();
    let host = ScriptedHost::new(|_| at_once(Ok(json!({}))));
    let hooks = json!({
        "PreToolUse": [
            { "matcher": "Bash", "hookCallbackIds": ["hook_0"] },
            { "matcher": "Write", "hookCallbackIds": ["hook_1"] },
        ],
        "UserPromptSubmit": [{ "hookCallbackIds": ["hook_2"] }],
    });
    let hooks = hooks_of(&stage, &hooks, Some(host.clone()));
    let fields = json!({ "tool_name": "Bash", "tool_use_id": "toolu_7" });
    let (call, cancel) =
        (occasion(HookEvent::PreToolUse, "Bash", &fields), CancellationToken::new());
    let verdict = hooks.run(&call, &|_| true, &cancel).await;
    assert_eq!(verdict, no_effect());
    for _ in 0..2 {
        run(&hooks, HookEvent::UserPromptSubmit).await;
    }
    let requests = host.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    let wanted = json!({
        "subtype": "hook_callback",
        "callback_id": "hook_0",
        "tool_use_id": "toolu_7",
        "input": {
            "session_id": "the-session",
            "transcript_path": stage.cwd().join("journal.jsonl"),
            "cwd": stage.cwd(),
            "hook_event_name": "PreToolUse",
            "permission_mode": "default",
            "tool_name": "Bash",
            "tool_use_id": "toolu_7",
        },
    });
    assert_eq!(requests[0], wanted);
    let ids: Vec<&str> =
        requests[1..].iter().filter_map(|request| request["tool_use_id"].as_str()).collect();
    assert!(ids.iter().all(|id| id.len() == 36) && ids[0] != ids[1], "{ids:?}");
}

#[tokio::test]
async fn all_callbacks_of_an_event_run_at_once_and_their_output_is_merged() {
    let stage = HookFixture::open();
    let meeting = Arc::new(Barrier::new(3));
    let host = ScriptedHost::new(move |request| {
        let meeting = Arc::clone(&meeting);
        Box::pin(async move {
            meeting.wait().await;
            let decision = match request["callback_id"].as_str() {
                Some("hook_0") => json!({ "permissionDecision": "allow" }),
                Some("hook_1") => json!({
                    "permissionDecision": "deny",
                    "permissionDecisionReason": "not on a Friday",
                }),
                _ => json!({ "updatedInput": { "command": "true" } }),
            };
            let mut output = json!({ "hookSpecificOutput": decision });
            output["hookSpecificOutput"]["hookEventName"] = json!("PreToolUse");
            Ok(output)
        })
    });
    let groups = json!({ "PreToolUse": [
        { "matcher": "Bash", "hookCallbackIds": ["hook_0", "hook_1"] },
        { "hookCallbackIds": ["hook_2"] },
    ] });
    let verdict = run(&hooks_of(&stage, &groups, Some(host)), HookEvent::PreToolUse).await;
    assert_eq!(verdict.permission, Some((HookPermission::Deny, "not on a Friday".to_owned())));
    assert_eq!(verdict.input, Some(json!({ "command": "true" })));
    assert_eq!((verdict.runs.ran, verdict.runs.failures.len()), (3, 0));
}

#[tokio::test]
async fn a_reply_without_content_is_no_opinion() {
    let replies =
        [json!({}), Value::Null, json!(""), json!({ "async": true, "decision": "block" })];
    for reply in replies {
        for event in [HookEvent::PreToolUse, HookEvent::UserPromptSubmit] {
            let verdict = decision(event, "block", Ok(reply.clone())).await;
            assert_eq!(verdict, no_effect(), "{reply}");
        }
    }
}

#[tokio::test]
async fn a_failed_callback_is_ignored_unless_it_blocks_on_failure() {
    let other = json!({ "hookSpecificOutput": {
        "hookEventName": "PostToolUse", "permissionDecision": "allow",
    } });
    let rows = [
        (Err(HostError::Refused("KeyError: 'x'".to_owned())), Crash, "KeyError: 'x'"),
        (Err(HostError::Refused(" ".to_owned())), Crash, "the host reports an error without a"),
        (Ok(other), InvalidOutput, "hookEventName is \"PostToolUse\""),
        (Ok(json!({ "decision": "perhaps" })), InvalidOutput, "unknown decision"),
        (Ok(json!("deny")), InvalidOutput, "its reply is not an object"),
        (Ok(json!([{ "decision": "block" }])), InvalidOutput, "its reply is not an object"),
    ];
    for (reply, kind, detail) in rows {
        let verdict = decision(HookEvent::PreToolUse, "continue", reply.clone()).await;
        assert_eq!(failures(&verdict), [kind], "{reply:?}");
        let (line, failure) = &verdict.runs.failures[0];
        assert_eq!(line, "callback hook_0");
        assert!(failure.detail.starts_with(detail), "{failure:?}");
        assert_eq!((verdict.denial(), &verdict.permission), (None, &None), "{reply:?}");
        let verdict = decision(HookEvent::PreToolUse, "block", reply).await;
        assert_eq!(failures(&verdict), [kind]);
        let why = verdict.denial().unwrap_or_default();
        assert!(why.contains("callback hook_0") && why.contains("is denied"), "{why:?}");
    }
}

#[tokio::test]
async fn a_callback_of_a_host_that_cannot_reply_denies_what_it_could_forbid() {
    for (event, denies) in [
        (HookEvent::PreToolUse, true),
        (HookEvent::UserPromptSubmit, true),
        (HookEvent::PostToolUse, false),
    ] {
        let long = || HostError::NotSent("it is too long".to_owned());
        for (error, kind) in [(HostError::Closed, HostClosed), (long(), NotSent)] {
            let verdict = decision(event, "continue", Err(error)).await;
            assert_eq!(failures(&verdict), [kind], "{event:?}");
            assert_eq!(verdict.denial().is_some(), denies, "{event:?}");
        }
    }
}

#[tokio::test]
async fn a_denial_of_a_callback_without_a_reason_names_the_host() {
    let verdict =
        decision(HookEvent::PreToolUse, "continue", Ok(json!({ "decision": "block" }))).await;
    let why = verdict.denial().unwrap_or_default();
    let place = "the hook `callback hook_0` (the host: hooks.PreToolUse[0].hookCallbackIds[0])";
    assert!(why.starts_with(place), "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_takes_too_long_blocks_calls_and_prompts_only() {
    let events = [
        (HookEvent::PreToolUse, true),
        (HookEvent::UserPromptSubmit, true),
        (HookEvent::PostToolUse, false),
        (HookEvent::Stop, false),
    ];
    for (event, blocks) in events {
        for (timeout, seconds) in [(json!({}), 60.0), (json!({ "timeout": 1.5 }), 1.5)] {
            let (stage, host) = (HookFixture::open(), ScriptedHost::new(|_| never()));
            let mut group = timeout;
            group["hookCallbackIds"] = json!(["hook_0"]);
            let hooks = hooks_of(&stage, &json!({ event.name(): [group] }), Some(host.clone()));
            let began = Instant::now();
            let verdict = run(&hooks, event).await;
            let waited = began.elapsed().as_secs_f64();
            assert!((seconds..seconds + 0.1).contains(&waited), "{event:?}: {waited}");
            assert_eq!(failures(&verdict), [TimedOut]);
            assert_eq!(verdict.denial().is_some(), blocks, "{event:?}");
            assert_eq!(host.cancelled(), host.requests(), "the host is told");
        }
    }
}

#[tokio::test]
async fn a_cancelled_event_drops_its_callbacks() {
    let stage = HookFixture::open();
    let host = ScriptedHost::new(|_| never());
    let hooks = hooks_of(
        &stage,
        &json!({ "Stop": [{ "hookCallbackIds": ["hook_0"] }] }),
        Some(host.clone()),
    );
    let (cancel, stop) = (CancellationToken::new(), occasion(HookEvent::Stop, "", &json!({})));
    let cut = async {
        host.wait_until("the request", |host| !host.requests().is_empty()).await;
        cancel.cancel();
    };
    let running = async { tokio::join!(hooks.run(&stop, &|_| true, &cancel), cut) };
    let (verdict, ()) = with_time_limit("the end of the callback", running).await;
    assert_eq!(verdict.runs.cancelled, ["callback hook_0"]);
    assert_eq!((verdict.runs.failures.len(), host.cancelled().len()), (0, 1));
}

#[tokio::test]
async fn a_callback_sends_no_progress_and_needs_a_host() {
    let stage = HookFixture::open();
    let (sender, mut progress) = mpsc::unbounded_channel();
    let groups = json!({ "PreToolUse": [{ "hookCallbackIds": ["hook_0"] }] });
    let hooks = hooks_of(&stage, &groups, None).with_progress(sender);
    let verdict = run(&hooks, HookEvent::PreToolUse).await;
    assert_eq!(failures(&verdict), [Missing]);
    assert_eq!(verdict.runs.failures[0].1.detail, "no host drives this run");
    assert!(progress.try_recv().is_err());
}

#[tokio::test]
async fn a_callback_runs_for_subagents_and_names_them() {
    let stage = HookFixture::open();
    let host = ScriptedHost::new(|_| at_once(Ok(json!({}))));
    let groups = json!({ "SubagentStop": [{ "hookCallbackIds": ["hook_0"], "timeout": 5 }] });
    let hooks = hooks_of(&stage, &groups, Some(host.clone()));
    let theirs = hooks.for_agent("agent-7", "Explore", "/sessions/agent-7.jsonl".into());
    assert_eq!(run(&theirs, HookEvent::SubagentStop).await.runs.ran, 1);
    assert_eq!(host.requests()[0]["input"]["agent_id"], "agent-7");
    let limits: Vec<Duration> =
        callbacks(&groups).expect("right").0.iter().map(|handler| handler.timeout).collect();
    assert_eq!(limits, [Duration::from_secs(5)]);
}
