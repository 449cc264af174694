//! Hooks that run: real programs, good and bad.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast::hooks::HookFailureKind::{self, Crash, InvalidOutput, Missing};
use outlast::hooks::{
    CrashLog, HookContext, HookDecision, HookEnvironment, HookEvent, HookPermission, HookRuns,
    HookSettings, Hooks,
};
use outlast::secrets::KnownSecrets;
use outlast::types::{Callback, PermissionMode};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::programs::script;
use crate::support::python::search_path;
use crate::support::stopwatch::Stopwatch;
use crate::support::{FifoSignal, is_alive, supervisor, with_time_limit};

/// A folder for hooks to work in.
pub(super) struct HookFixture {
    folder: TempDir,
}

impl HookFixture {
    pub(super) fn open() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder can be made") }
    }

    pub(super) fn cwd(&self) -> PathBuf {
        self.folder.path().to_path_buf()
    }

    pub(super) fn log(&self) -> CrashLog {
        CrashLog::in_folder(&self.folder.path().join("config"))
    }

    pub(super) fn hooks(&self, value: &Value) -> Hooks {
        self.hooks_with_secrets(value, KnownSecrets::default())
    }

    fn hooks_with_secrets(&self, value: &Value, secrets: KnownSecrets) -> Hooks {
        let settings = HookSettings::parse(value, "settings.json").expect("these are right");
        let environment = HookEnvironment { secrets, ..self.environment() };
        Hooks::new(settings.handlers, environment)
    }

    /// The environment of hooks.
    pub(super) fn environment(&self) -> HookEnvironment {
        HookEnvironment {
            session_id: "the-session".to_owned(),
            transcript: self.folder.path().join("journal.jsonl"),
            cwd: self.cwd(),
            effort: None,
            permission_mode: Callback(Arc::new(PermissionMode::default)),
            environment: vec![("PATH".into(), search_path().into())],
            log: self.log(),
            state_folder: self.folder.path().join("state"),
            secrets: KnownSecrets::default(),
            shell: "/bin/sh".into(),
            supervisor: supervisor(),
            host: None,
        }
    }

    /// Tells hooks for every tool of a call of Bash.
    pub(super) async fn before_bash(&self, entries: &[Value]) -> HookDecision {
        let hooks = self.hooks(&json!({ "PreToolUse": [{ "hooks": entries }] }));
        run_hooks(&hooks, HookEvent::PreToolUse, "Bash").await
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

/// The decision of one hook that has no effect.
pub(super) fn no_effect() -> HookDecision {
    let runs = HookRuns { ran: 1, ..HookRuns::default() };
    HookDecision { runs, ..HookDecision::default() }
}

#[tokio::test]
async fn a_matcher_may_use_either_name_of_a_subject() {
    for (matcher, subject, alias, runs) in [
        ("Task", "Agent", Some("Task"), true),
        ("^Task$", "Agent", Some("Task"), true),
        ("Agent", "Agent", Some("Task"), true),
        ("Bash", "Agent", Some("Task"), false),
        ("Task", "Agent", None, false),
    ] {
        let stage = HookFixture::open();
        let hooks = [script("touch ran")];
        let hooks = stage.hooks(&json!({ "PreToolUse": [{ "matcher": matcher, "hooks": hooks }] }));
        let (event, subject, fields) = (HookEvent::PreToolUse, subject.to_owned(), Map::new());
        let occasion = HookContext { event, subject, alias, fields };
        hooks.run(&occasion, &|_| true, &CancellationToken::new()).await;
        assert_eq!(stage.cwd().join("ran").exists(), runs, "{matcher} and {alias:?}");
    }
}

async fn run_hooks(hooks: &Hooks, event: HookEvent, subject: &str) -> HookDecision {
    let fields = Map::from_iter([("tool_name".to_owned(), json!(subject))]);
    let occasion = HookContext::new(event, subject, fields);
    hooks.run(&occasion, &|rule| rule == "Bash(git *)", &CancellationToken::new()).await
}

#[tokio::test]
async fn a_hook_receives_the_event_and_the_working_folder() {
    let stage = HookFixture::open();
    stage.before_bash(&[script("cat > told; pwd -P > place")]).await;
    let told: Value = serde_json::from_str(&stage.read("told")).expect("one JSON object");
    assert_eq!(told["session_id"], "the-session");
    assert_eq!(told["hook_event_name"], "PreToolUse");
    assert_eq!(told["tool_name"], "Bash");
    assert_eq!(told["permission_mode"], "default");
    assert_eq!(told["cwd"].as_str(), stage.cwd().to_str());
    assert!(told["transcript_path"].as_str().is_some_and(|path| path.ends_with("journal.jsonl")));
    assert_eq!(stage.read("place").trim(), stage.cwd().canonicalize().unwrap().to_str().unwrap());
}

#[tokio::test]
async fn only_hooks_that_match_run() {
    let stage = HookFixture::open();
    let mut with_rule = script("echo rule >> ran");
    with_rule["if"] = json!("Bash(git *)");
    let mut other_rule = script("echo other >> ran");
    other_rule["if"] = json!("Bash(npm *)");
    let hooks = stage.hooks(&json!({
        "PreToolUse": [
            { "matcher": "Bash", "hooks": [script("echo name >> ran")] },
            { "matcher": "Write", "hooks": [script("echo write >> ran")] },
            { "hooks": [with_rule, other_rule] },
        ],
        "PostToolUse": [{ "hooks": [script("echo after >> ran")] }],
    }));
    run_hooks(&hooks, HookEvent::PreToolUse, "Bash").await;
    let ran = stage.read("ran");
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["name", "rule"]);
    assert!(hooks.has_hooks_for(HookEvent::PostToolUse) && !hooks.has_hooks_for(HookEvent::Stop));
}

#[tokio::test]
async fn hooks_run_in_parallel_and_their_output_is_merged() {
    let stage = HookFixture::open();
    // Each waits until the other one is there too.
    let meet = |mine: &str, other: &str, then: &str| {
        script(&format!("touch {mine}; until [ -e {other} ]; do sleep 0.01; done; {then}"))
    };
    let allow = r#"echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse",
        "permissionDecision": "allow", "updatedInput": {"command": "true"}}}'"#;
    let pair = [meet("one", "two", allow), meet("two", "one", "echo no >&2; exit 2")];
    let verdict = with_time_limit("their meeting", stage.before_bash(&pair)).await;
    assert_eq!(verdict.denial(), Some("no"));
    assert_eq!(verdict.permission, Some((HookPermission::Allow, String::new())));
    assert_eq!(verdict.input, Some(json!({ "command": "true" })));
}

#[tokio::test]
async fn a_failed_non_blocking_hook_is_logged_and_ignored() {
    let stage = HookFixture::open();
    let verdict = stage
        .before_bash(&[
            script("echo broken >&2; exit 1"),
            script("kill -9 $$"),
            script("echo '{ rubbish'"),
            script("/no/such/program"),
            json!({ "type": "command", "command": "/no/such/program", "args": [] }),
        ])
        .await;
    let kinds: Vec<HookFailureKind> =
        verdict.runs.failures.iter().map(|(_, mishap)| mishap.kind).collect();
    assert_eq!(kinds, [Crash, Crash, InvalidOutput, Missing, Missing]);
    assert_eq!((verdict.denial(), &verdict.permission, &verdict.halt), (None, &None, &None));
    let log = stage.log();
    assert_eq!(log.count(), 5);
    let lines = fs::read_to_string(log.path()).expect("a log");
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["event"], &first["kind"]), (&json!("PreToolUse"), &json!("crash")));
    assert_eq!(first["detail"], "exit code 1: broken");
    assert_eq!(first["session_id"], "the-session");
    assert_eq!(first["source"], "settings.json");
    let mode = fs::metadata(log.path()).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn the_crash_log_shows_no_known_secret() {
    let stage = HookFixture::open();
    let failing = script("echo 'no login with correct-horse-battery' >&2; exit 1");
    let value = json!({ "PreToolUse": [{ "hooks": [failing] }] });
    let hooks = stage.hooks_with_secrets(&value, KnownSecrets::new(["correct-horse-battery"]));
    run_hooks(&hooks, HookEvent::PreToolUse, "Bash").await;
    let log = fs::read_to_string(stage.log().path()).expect("a log");
    assert!(log.contains("no login with") && !log.contains("correct-horse-battery"), "{log}");
}

#[tokio::test]
async fn a_failed_blocking_hook_denies_the_call() {
    let stage = HookFixture::open();
    for failing in ["exit 1", "echo '{ rubbish'", r"printf '{\0'", "kill -9 $$", "/no/such/program"]
    {
        let mut guard = script(failing);
        guard["failClosed"] = json!(true);
        let verdict = stage.before_bash(&[guard]).await;
        let why = verdict.denial().unwrap_or_default();
        assert!(why.contains("is denied") && why.contains(failing), "{failing}: {why:?}");
    }
    let mut fine = script("exit 0");
    fine["failClosed"] = json!(true);
    assert_eq!(stage.before_bash(&[fine]).await.denial(), None);
}

#[tokio::test]
async fn a_hung_hook_is_killed_with_its_child_processes() {
    let stage = HookFixture::open();
    let mut hangs = script(
        "trap '' TERM; setsid sleep 1000 & echo $! > child; echo $$ > leader; wait; sleep 1000",
    );
    // By then it must ignore the signal, even on a busy machine.
    hangs["timeout"] = json!(3);
    hangs["failClosed"] = json!(true);
    let began = Stopwatch::start();
    let verdict = stage.before_bash(&[hangs]).await;
    began.assert_within(Duration::from_secs(8), "the end of the hook");
    assert_eq!(verdict.runs.failures[0].1.kind, HookFailureKind::TimedOut);
    assert!(verdict.denial().is_some());
    for name in ["child", "leader"] {
        let pid: i32 = stage.read(name).trim().parse().expect("a pid");
        let gone = async {
            while is_alive(pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        with_time_limit(name, gone).await;
    }
}

#[tokio::test]
async fn a_run_that_ends_does_not_wait_for_its_hooks() {
    let stage = HookFixture::open();
    let hooks = stage.hooks(&json!({ "Stop": [{ "hooks": [script("sleep 1000")] }] }));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let occasion = HookContext::new(HookEvent::Stop, "", Map::new());
    let began = Stopwatch::start();
    hooks.run(&occasion, &|_| true, &cancel).await;
    began.assert_within(Duration::from_secs(5), "the end of the hooks");
}

#[tokio::test]
async fn endless_output_and_unread_input_of_a_hook_do_no_harm() {
    let stage = HookFixture::open();
    // More than a pipe holds, both ways.
    let fields = Map::from_iter([("tool_input".to_owned(), json!("x".repeat(1 << 20)))]);
    let hooks = stage.hooks(&json!({ "PreToolUse": [{ "hooks": [
        script("exec 0<&-; head -c 5000000 /dev/zero | tr '\\0' 'y'; exit 2"),
        script("cat > /dev/null; echo heard >&2; exit 2"),
    ] }] }));
    let occasion = HookContext::new(HookEvent::PreToolUse, "Bash", fields);
    let verdict = hooks.run(&occasion, &|_| true, &CancellationToken::new()).await;
    let why = verdict.denial().unwrap_or_default();
    assert!(why.contains("heard") && why.len() < 30_000, "{} bytes", why.len());
}

#[tokio::test]
async fn hook_output_counts_even_if_a_child_process_keeps_the_pipe_open() {
    let stage = HookFixture::open();
    let began = Stopwatch::start();
    let verdict = stage.before_bash(&[script("sleep 1000 & echo no >&2; exit 2")]).await;
    assert_eq!(verdict.denial(), Some("no"));
    began.assert_within(Duration::from_secs(10), "the end of the hook");
}

#[tokio::test]
async fn a_denial_that_a_filter_passes_on_after_the_end_of_the_hook_counts() {
    let stage = HookFixture::open();
    // A filter reads from a pipe.
    let late = "sleep 1000 | (while kill -0 $$ 2>/dev/null; do sleep 0.01; done; ";
    let json = r#"echo '{"decision": "block", "reason": "no"}'"#;
    let mut by_bash =
        script(r#"exec > >(sed s/yes/no/); echo '{"decision": "block", "reason": "yes"}'"#);
    by_bash["shell"] = json!("/bin/bash");
    let entries = [
        script(&format!("{late}{json}) &")),
        script(&format!("{late}echo no >&2) & exit 2")),
        by_bash,
    ];
    for entry in entries {
        let verdict = stage.before_bash(std::slice::from_ref(&entry)).await;
        assert_eq!(verdict.denial(), Some("no"), "{entry}: {verdict:?}");
    }
}

/// Each would take its part of the 2 seconds that a filter has.
#[tokio::test]
async fn a_hook_that_prints_nothing_ends_although_a_background_process_holds_its_output() {
    let stage = HookFixture::open();
    let began = Stopwatch::start();
    for _ in 0..8 {
        assert_eq!(stage.before_bash(&[script("sleep 1000 &")]).await.denial(), None);
    }
    began.assert_within(Duration::from_secs(10), "the end of the hooks");
}

#[tokio::test]
async fn what_a_hook_starts_in_the_background_runs_on() {
    let stage = HookFixture::open();
    // The first holds no pipe of the hook; the second writes to one that is no longer read.
    for (name, redirection) in [("one", ">/dev/null 2>&1"), ("two", "")] {
        let service =
            format!("(until [ -e go-{name} ]; do sleep 0.01; done; echo on; touch done-{name})");
        let hook =
            format!("setsid sh -c '{service}' </dev/null {redirection} & echo no >&2; exit 2");
        // Without them, their supervisor ends.
        let hooks = stage.hooks(&json!({ "PreToolUse": [{ "hooks": [script(&hook)] }] }));
        let verdict = run_hooks(&hooks, HookEvent::PreToolUse, "Bash").await;
        assert_eq!(verdict.denial(), Some("no"));
        fs::write(stage.cwd().join(format!("go-{name}")), "").expect("written");
        let finished = async {
            while !stage.cwd().join(format!("done-{name}")).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        with_time_limit(name, finished).await;
    }
}

#[tokio::test]
async fn hook_output_counts_even_if_it_is_delivered_late() {
    let stage = HookFixture::open();
    let mut bell = FifoSignal::at(&stage.cwd().join("bell"));
    let mut guard = script("echo $$ > bell; until [ -e go ]; do sleep 0.01; done");
    guard["failClosed"] = json!(true);
    let entries = [guard];
    let slow = async {
        let hook = bell.wait_for_line().await;
        let pipe = format!("/proc/{hook}/fd/1");
        // For a moment the bell is the standard output of the shell.
        let is_pipe =
            || fs::read_link(&pipe).is_ok_and(|it| it.to_string_lossy().starts_with("pipe:"));
        while !is_pipe() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut pipe = fs::OpenOptions::new().write(true).open(&pipe).expect("its pipe");
        fs::write(stage.cwd().join("go"), "").expect("written");
        while is_alive(hook.parse().expect("a pid")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        pipe.write_all(br#"{"decision": "block", "reason": "no"}"#).expect("the pipe has a reader");
    };
    let (verdict, ()) =
        with_time_limit("the hook", async { tokio::join!(stage.before_bash(&entries), slow) })
            .await;
    assert_eq!(verdict.denial(), Some("no"), "{verdict:?}");
}

#[tokio::test]
async fn the_run_does_not_wait_for_an_async_hook() {
    let stage = HookFixture::open();
    let mut detached = script("until [ -e go ]; do sleep 0.01; done; touch done; exit 2");
    detached["async"] = json!(true);
    let verdict = stage.before_bash(&[detached]).await;
    assert_eq!(verdict, HookDecision::default());
    fs::write(stage.cwd().join("go"), "").expect("written");
    let finished = async {
        while !stage.cwd().join("done").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_time_limit("what it does by itself", finished).await;
}

#[tokio::test]
async fn a_background_hook_keeps_running_and_its_decision_is_ignored() {
    let stage = HookFixture::open();
    let rest = "until [ -e go ]; do sleep 0.01; done; echo $1 >> done; echo no >&2; exit 2";
    let runs_on = |opening: &str| {
        json!({ "type": "command", "command": "/bin/sh", "timeout": 200,
            "args": ["-c", format!("printf '{opening}'; {rest}"), "sh", opening] })
    };
    let openings = [
        r#"{"async":true}\\n"#,
        r#"{"async": true}"#,
        r#"{"async":true,"asyncTimeout":99000}\\n{"#,
    ];
    for opening in openings {
        let _ = fs::remove_file(stage.cwd().join("go"));
        let entries = [runs_on(opening)];
        let verdict = with_time_limit("the hook's opening", stage.before_bash(&entries)).await;
        assert_eq!(verdict, no_effect(), "{opening}");
        assert!(!stage.cwd().join("done").exists(), "{opening}: it is not over");
        fs::write(stage.cwd().join("go"), "").expect("written");
        let finished = async {
            while !stage.cwd().join("done").exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        with_time_limit("what it does by itself", finished).await;
        fs::remove_file(stage.cwd().join("done")).expect("it was just there");
    }
    assert_eq!(stage.log().count(), 0);
}

#[tokio::test]
async fn a_blocking_hook_that_goes_to_the_background_denies_the_call() {
    let stage = HookFixture::open();
    let asks = r#"echo '{"async":true}'"#;
    for then in ["exit 0", "exit 1", "sleep 1000"] {
        let plain = script(&format!("{asks}; {then}"));
        let verdict = stage.before_bash(std::slice::from_ref(&plain)).await;
        assert_eq!((verdict.denial(), &verdict.halt), (None, &None), "{then}");
        let mut guard = plain;
        guard["failClosed"] = json!(true);
        let verdict = stage.before_bash(&[guard]).await;
        let why = verdict.denial().unwrap_or_default();
        assert!(why.contains("is denied") && why.contains("(async)"), "{then}: {why:?}");
    }
}

#[tokio::test]
async fn a_denial_without_a_reason_names_the_hook_and_its_place() {
    let stage = HookFixture::open();
    let deny = r#"echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse",
        "permissionDecision": "deny"}}'"#;
    for denies in ["exit 2", r#"echo '{"decision": "block"}'"#, deny] {
        let verdict = stage.before_bash(&[script("exit 0"), script(denies)]).await;
        let why = verdict.denial().unwrap_or_default().to_owned();
        let place = "(settings.json: hooks.PreToolUse[0].hooks[1])";
        assert!(why.contains(&denies[..5]) && why.contains(place), "{denies}: {why:?}");
        assert!(why.contains("gives no reason"), "{why:?}");
    }
}

#[tokio::test]
async fn a_subagent_runs_subagent_stop_hooks_and_no_session_hooks() {
    let stage = HookFixture::open();
    let groups = HookEvent::ALL.map(|event| {
        (
            event.name().to_owned(),
            json!([{ "hooks": [script("cat >> told; echo no >&2; exit 2")] }]),
        )
    });
    let hooks = stage.hooks(&Value::Object(Map::from_iter(groups)));
    assert_eq!(hooks.stop_event(), HookEvent::Stop);
    let theirs = hooks.for_agent("agent-7", "Explore", "/sessions/agent-7.jsonl".into());
    assert_eq!(
        (theirs.stop_event(), theirs.agent_type()),
        (HookEvent::SubagentStop, Some("Explore"))
    );
    for event in HookEvent::ALL {
        let own = matches!(
            event,
            HookEvent::SessionStart
                | HookEvent::UserPromptSubmit
                | HookEvent::Stop
                | HookEvent::StopFailure
                | HookEvent::SessionEnd
        );
        assert_eq!(theirs.has_hooks_for(event), !own, "{event:?}");
        assert_eq!(
            run_hooks(&theirs, event, "Explore").await.runs.ran,
            u32::from(!own),
            "{event:?}"
        );
    }
    let text = stage.read("told");
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(told.iter().all(|one| one["agent_id"] == "agent-7" && one["agent_type"] == "Explore"));
    let with_transcript = told.iter().filter(|one| one["agent_transcript_path"].is_string());
    assert_eq!(with_transcript.count(), 1);
}

#[tokio::test]
async fn subagent_stop_hooks_match_the_agent_type() {
    let stage = HookFixture::open();
    let hooks = stage.hooks(&json!({ "SubagentStop": [
        { "matcher": "Explore", "hooks": [script("cat >> told; echo look again >&2; exit 2")] },
        { "matcher": "Plan", "hooks": [script("echo wrong >&2; exit 2")] },
    ] }));
    let fields = json!({ "last_assistant_message": "Found it.", "stop_hook_active": true });
    let fields = fields.as_object().cloned().unwrap_or_default();
    let occasion = HookContext::new(HookEvent::SubagentStop, "Explore", fields);
    let theirs = hooks.for_agent("agent-7", "Explore", "/sessions/agent-7.jsonl".into());
    let verdict = theirs.run(&occasion, &|_| true, &CancellationToken::new()).await;
    assert_eq!((verdict.runs.ran, verdict.objection.as_deref()), (1, Some("look again")));
    let told: Value = serde_json::from_str(&stage.read("told")).expect("one object");
    assert_eq!(told["last_assistant_message"], "Found it.");
    assert_eq!((&told["stop_hook_active"], &told["agent_id"]), (&json!(true), &json!("agent-7")));
}
