//! Interprets the result of one hook: its exit code and its output.

use std::sync::Arc;

use serde_json::Value;

use crate::process::file_reads::unblocked;
use crate::secrets::Redactor;
use crate::types::HostError;

use super::background::Opening;
use super::denials::{find_denial, mentions_decision};
use super::echo::repeats;
use super::event::{HookEvent, ObjectionUse};
use super::failure::{HookFailure, HookFailureKind};
use super::output::{
    HookOutput, HookPermission, InvalidHookOutput, has_misplaced_json, parse_outputs, truncate,
};

/// The most characters of the description of a hook's failure.
const DETAIL_MAX: usize = 300;

/// The end of a hook's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HookEnd {
    Exited(i32),
    Killed {
        signal: i32,
    },
    /// It exceeded its timeout and was ended.
    TimedOut,
    /// It was ended because the run was cancelled. The hook itself is not at fault.
    Cancelled,
    /// It continues in the background.
    Released,
    /// A bug in outlast itself: its task panicked.
    Crashed,
    /// It could not be started or waited for, for this reason.
    Failed(String),
    /// One of its files has changed since the run began, or could not be checked; the reason.
    ProgramChanged(String),
    /// The host did not run its callback to the end, for this reason.
    NoReply(String),
    /// The host was not asked to run its callback, for this reason.
    NotSent(String),
    /// The host has closed standard input, so that it cannot reply.
    HostClosed,
    /// The host's reply is not an object.
    InvalidReply,
}

/// The complete result of one hook process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HookRun {
    pub(super) end: HookEnd,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// True if only the beginning of the output was kept.
    pub(super) is_cut: bool,
}

impl HookRun {
    /// A result without any output.
    pub(super) fn of(end: HookEnd) -> Self {
        Self { end, stdout: String::new(), stderr: String::new(), is_cut: false }
    }

    /// The standard output without blanks around it. Some programs begin it with a byte order mark.
    fn trimmed_output(&self) -> &str {
        self.stdout.trim_start_matches('\u{feff}').trim()
    }

    /// Returns true if it requested to continue in the background, so that its output has no
    /// effect. A hook that requested it and ended at once is treated equally: which of the two is
    /// observed depends on timing.
    pub(super) fn runs_in_background(&self, input: &Value) -> bool {
        matches!(Opening::of_hook(self.stdout.as_bytes(), input), Opening::Release(_))
    }
}

/// The exit codes with which a shell reports a missing program.
const NOT_FOUND: [i32; 2] = [126, 127];

/// The exit code with which a shell reports that a signal has ended a program is this number and
/// the number of the signal.
const SIGNAL_BASE: i32 = 128;

/// Returns whether a hook continues in the background, and its decision. Reads the files that the
/// input names if the output is JSON, on a thread that a file system may block.
pub(super) async fn interpret(
    event: HookEvent,
    hook: HookRun,
    input: Arc<Value>,
    redactor: Arc<Redactor>,
) -> (bool, Result<HookOutput, HookFailure>) {
    // Other output grants nothing, and is not compared with files. Its interpretation has no time
    // limit: it takes long if there is much of it and the machine is overloaded.
    if !hook.trimmed_output().starts_with('{') {
        return (false, interpret_result(event, &hook, &input, &redactor));
    }
    let hook = Arc::new(hook);
    let (same, masks) = (Arc::clone(&hook), Arc::clone(&redactor));
    let interpreted = unblocked(move || {
        let output = interpret_result(event, &same, &input, &masks);
        (same.runs_in_background(&input), output)
    });
    interpreted.await.unwrap_or_else(|error| {
        let prohibition = prohibition(event, &hook, &redactor);
        (false, prohibition.ok_or_else(|| HookFailure::unread_files(&error)))
    })
}

/// Returns the prohibition in a hook's result, which counts whatever the files contain.
fn prohibition(event: HookEvent, hook: &HookRun, redactor: &Redactor) -> Option<HookOutput> {
    if !matches!(hook.end, HookEnd::Exited(_) | HookEnd::Killed { .. }) {
        return None;
    }
    let denial = find_denial(event, hook.trimmed_output(), redactor);
    let is_block = hook.end == HookEnd::Exited(2);
    if is_block { Some(block_decision(event, denial, hook, redactor)) } else { denial }
}

/// Converts a hook's result to its decision. `input` is the hook's own input. Secrets are redacted
/// in texts that are cut.
///
/// # Errors
/// The hook counts as failed.
pub(super) fn interpret_result(
    event: HookEvent,
    hook: &HookRun,
    input: &Value,
    redactor: &Redactor,
) -> Result<HookOutput, HookFailure> {
    let failure = |kind, what: &str| Err(failure(kind, what, hook, redactor));
    let code = match &hook.end {
        HookEnd::Exited(code) => *code,
        // A shell reports a signal as 128 + n, too. The output is incomplete.
        HookEnd::Killed { signal } => SIGNAL_BASE + signal,
        HookEnd::Cancelled => return failure(HookFailureKind::Crash, "was ended with the run"),
        HookEnd::Released => return Ok(HookOutput::default()),
        HookEnd::Crashed => return Err(HookFailure::internal()),
        HookEnd::TimedOut => return failure(HookFailureKind::TimedOut, "took too long"),
        HookEnd::Failed(why) => return failure(HookFailureKind::Missing, why),
        HookEnd::ProgramChanged(why) => return failure(HookFailureKind::Changed, why),
        HookEnd::NoReply(why) => return failure(HookFailureKind::Crash, why),
        HookEnd::NotSent(why) => {
            let why = format!("the input is too long for the host's hook: {why}");
            return failure(HookFailureKind::NotSent, &why);
        }
        HookEnd::HostClosed => {
            return failure(HookFailureKind::HostClosed, &HostError::Closed.to_string());
        }
        HookEnd::InvalidReply => {
            return failure(HookFailureKind::InvalidOutput, "its reply is not an object");
        }
    };
    let out = hook.trimmed_output();
    let parsed = match out.starts_with('{').then(|| parse_outputs(event, out, redactor)) {
        Some(Ok(outputs)) if !repeats(&outputs, input) => Some(Ok(HookOutput::merge(outputs))),
        other => {
            let other = other.map(|outputs| outputs.and(Err(InvalidHookOutput::Echo)));
            find_denial(event, out, redactor).map(Ok).or(other)
        }
    };
    let is_killed = matches!(hook.end, HookEnd::Killed { .. });
    match (code, parsed) {
        // Where nothing can be objected to, it is the code of a failure, as of `make`.
        (2, parsed) if event.objection() != ObjectionUse::Ignored || event.can_be_guarded() => {
            Ok(block_decision(event, parsed.and_then(Result::ok), hook, redactor))
        }
        (_, Some(Ok(output))) if !is_killed || output.forbids() => Ok(output),
        (0, Some(Err(why))) => failure(HookFailureKind::InvalidOutput, &why.to_string()),
        (0, None) if has_misplaced_json(event, out) => {
            let why = "what it printed has JSON in it, and does not begin with it";
            failure(HookFailureKind::InvalidOutput, why)
        }
        (0, None) if mentions_decision(event, out) => {
            let why = "what it printed has a decision in the middle of a line";
            failure(HookFailureKind::InvalidOutput, why)
        }
        (0, None) if hook.is_cut && event.can_be_guarded() => {
            let why = "its output is too long, so that the end of it is not read";
            failure(HookFailureKind::InvalidOutput, why)
        }
        (0, None) => {
            let is_used = event.takes_plain_text() && !out.is_empty();
            Ok(HookOutput { context: is_used.then(|| out.to_owned()), ..HookOutput::default() })
        }
        (code, None | Some(Ok(_) | Err(_))) => {
            let missing = NOT_FOUND.contains(&code);
            let kind = if missing { HookFailureKind::Missing } else { HookFailureKind::Crash };
            let signal = is_killed.then(|| format!("killed by signal {}", code - SIGNAL_BASE));
            failure(kind, &signal.unwrap_or_else(|| format!("exit code {code}")))
        }
    }
}

/// Handles exit code 2: it always blocks; output can only add the reason, in JSON or as plain text.
fn block_decision(
    event: HookEvent,
    parsed: Option<HookOutput>,
    hook: &HookRun,
    redactor: &Redactor,
) -> HookOutput {
    let parsed = parsed.unwrap_or_default();
    let denied = parsed.permission.filter(|(permission, _)| *permission == HookPermission::Deny);
    let why = parsed.objection.or(denied.map(|(_, why)| why)).filter(|why| !why.is_empty());
    let why = why.unwrap_or_else(|| match (hook.stderr.trim(), hook.trimmed_output()) {
        ("", out) if !out.starts_with('{') => truncate(out, redactor),
        (text, _) => text.to_owned(),
    });
    let counts = event.objection() != ObjectionUse::Ignored;
    HookOutput {
        stop_run: parsed.stop_run,
        objection: counts.then_some(why),
        message: parsed.message,
        ..HookOutput::default()
    }
}

fn failure(kind: HookFailureKind, what: &str, hook: &HookRun, redactor: &Redactor) -> HookFailure {
    let first = |text: &str| {
        let text = redactor.redact(text.trim());
        text.lines().next().unwrap_or_default().chars().take(DETAIL_MAX).collect::<String>()
    };
    let (what, stderr_line) = (first(what), first(&hook.stderr));
    let detail = if stderr_line.is_empty() { what } else { format!("{what}: {stderr_line}") };
    HookFailure { kind, detail }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use crate::secrets::KnownSecrets;

    use super::*;

    const DENY: &str = r#"{"decision": "block", "reason": "because"}"#;

    fn exited(code: i32, out: &str, err: &str) -> HookRun {
        let (stdout, stderr) = (out.to_owned(), err.to_owned());
        HookRun { stdout, stderr, ..HookRun::of(HookEnd::Exited(code)) }
    }

    fn interpret(event: HookEvent, hook: &HookRun) -> Result<HookOutput, HookFailure> {
        let input = json!({ "tool_input": { "command": "ls" } });
        interpret_result(event, hook, &input, &Redactor::new(KnownSecrets::new(["open-sesame-7"])))
    }

    fn output(event: HookEvent, code: i32, out: &str, err: &str) -> HookOutput {
        interpret(event, &exited(code, out, err)).unwrap()
    }

    fn failed(event: HookEvent, code: i32, out: &str) -> HookFailureKind {
        interpret(event, &exited(code, out, "")).unwrap_err().kind
    }

    /// Returns hook output with the specific fields of an event.
    fn specific(event: HookEvent, fields: &Value) -> String {
        let mut specific = json!({ "hookEventName": event.name() });
        specific.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        json!({ "hookSpecificOutput": specific }).to_string()
    }

    /// A file system that hangs must not stop the thread that writes heartbeats.
    #[test]
    fn the_files_that_a_call_names_are_read_on_a_thread_of_their_own() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().start_paused(true);
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        let interpret = |code, out, err| {
            let redactor = Arc::new(Redactor::new(KnownSecrets::default()));
            let hook = exited(code, out, err);
            tokio::spawn(super::interpret(HookEvent::PreToolUse, hook, Arc::default(), redactor))
        };
        runtime.build().unwrap().block_on(async {
            let hung = tokio::task::spawn_blocking(move || is_free.recv());
            let rows = [
                (2, "", Some(true)),
                (0, "as plain text", Some(false)),
                (0, DENY, Some(true)),
                (0, "{}", None),
            ];
            for (code, out, forbids) in rows {
                let interpreted = interpret(code, out, "no");
                for _ in 0..30 {
                    tokio::time::advance(Duration::from_secs(1)).await;
                }
                assert!(interpreted.is_finished(), "{out}");
                let (_, decided) = interpreted.await.unwrap();
                assert_eq!(decided.ok().map(|output| output.forbids()), forbids, "{out}");
            }
            let interpreted = interpret(0, "{}", "");
            tokio::task::yield_now().await;
            assert!(!interpreted.is_finished());
            drop(free);
            assert_eq!(interpreted.await.unwrap(), (false, Ok(HookOutput::default())));
            hung.await.unwrap().unwrap_err();
        });
    }

    #[test]
    fn a_silent_successful_hook_decides_nothing() {
        for event in HookEvent::ALL {
            assert_eq!(output(event, 0, "", "noise"), HookOutput::default());
            assert_eq!(output(event, 0, "{}", ""), HookOutput::default());
        }
    }

    #[test]
    fn plain_hook_output_becomes_context_for_session_start_and_prompt_events_only() {
        for event in HookEvent::ALL {
            let counts = matches!(event, HookEvent::SessionStart | HookEvent::UserPromptSubmit);
            let context = output(event, 0, " mind the gap\n", "").context;
            assert_eq!(context.as_deref(), counts.then_some("mind the gap"), "{event:?}");
        }
    }

    #[test]
    fn hook_exit_code_two_blocks_with_stderr_as_the_reason() {
        for event in HookEvent::ALL {
            let hook = exited(2, "", "not on a Friday\n");
            if event.objection() == ObjectionUse::Ignored && !event.can_be_guarded() {
                let failure = interpret(event, &hook).expect_err("nothing can be objected to");
                assert_eq!(failure.detail, "exit code 2: not on a Friday", "{event:?}");
                continue;
            }
            let objection = interpret(event, &hook).unwrap().objection;
            let counts = event.objection() != ObjectionUse::Ignored;
            assert_eq!(objection.as_deref(), counts.then_some("not on a Friday"), "{event:?}");
        }
    }

    #[test]
    fn a_hook_decision_without_a_reason_names_the_hook() {
        let event = HookEvent::PreToolUse;
        let decision = |word: &str| specific(event, &json!({ "permissionDecision": word }));
        let fields = json!({ "permissionDecision": "deny", "permissionDecisionReason": "no" });
        let named = |out: &str, code, err| {
            output(event, code, out, err).with_default_reasons(|| "the guard".to_owned())
        };
        for (code, out, err, wanted) in [
            (2, "", "", "the guard objects, and gives no reason"),
            (0, r#"{"decision": "block"}"#, "", "the guard objects, and gives no reason"),
            (0, r#"{"decision": "block", "reason": " "}"#, "", "the guard objects"),
            (0, &*decision("deny"), "", "the guard gives no reason"),
            (0, &*decision("ask"), "", "the guard gives no reason"),
            (0, r#"{"continue": false}"#, "", "the guard stops the run, and gives no reason"),
            (2, "yes", "no", "no"),
            (2, "not now", " ", "not now"),
            (2, "{\"continue\": true}", "", "the guard objects"),
            (0, &*specific(event, &fields), "", "no"),
        ] {
            let output = named(out, code, err);
            let permission = output.permission.map(|(_, why)| why);
            let why = output.objection.or(permission).or(output.stop_run).unwrap();
            assert!(why.starts_with(wanted), "{why}");
        }
        let allow = named(&decision("allow"), 0, "");
        assert_eq!(allow.permission, Some((HookPermission::Allow, String::new())));
    }

    #[test]
    fn hook_json_cannot_revoke_exit_code_two_but_can_give_the_reason() {
        let event = HookEvent::PreToolUse;
        let input = json!({ "command": "true" });
        let allow = json!({ "permissionDecision": "allow", "updatedInput": input });
        let denied = output(event, 2, &specific(event, &allow), "no");
        assert_eq!(denied.objection.as_deref(), Some("no"));
        assert_eq!((denied.permission, denied.input), (None, None));
        assert_eq!(output(HookEvent::Stop, 2, DENY, "no").objection.as_deref(), Some("because"));
    }

    #[test]
    fn other_hook_exit_codes_are_crashes_unless_json_decides() {
        let event = HookEvent::PreToolUse;
        assert!(output(event, 1, DENY, "").objection.is_some());
        assert_eq!(failed(event, 1, ""), HookFailureKind::Crash);
        assert_eq!(failed(event, 1, "{ oops"), HookFailureKind::Crash);
        assert_eq!(failed(event, 127, ""), HookFailureKind::Missing);
        assert_eq!(failed(event, 126, ""), HookFailureKind::Missing);
        let stderr = "last words\nmore".to_owned();
        let killed = HookRun { stderr, ..HookRun::of(HookEnd::Killed { signal: 9 }) };
        let silent = HookRun { stdout: r#"{"systemMessage": "x"}"#.to_owned(), ..killed.clone() };
        for hook in [&killed, &silent] {
            let failure = interpret(event, hook).unwrap_err();
            assert_eq!(failure.detail, "killed by signal 9: last words");
        }
        let denied = HookRun { stdout: DENY.to_owned(), ..killed.clone() };
        assert!(interpret(event, &denied).unwrap().objection.is_some());
        let late = HookRun { end: HookEnd::TimedOut, ..killed };
        assert_eq!(interpret(event, &late).unwrap_err().kind, HookFailureKind::TimedOut);
    }

    #[test]
    fn invalid_hook_output_is_a_failure() {
        for out in [
            "{ oops",
            r#"{"decision": "perhaps"}"#,
            r#"{"decision": 7}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "Stop"}}"#,
            r#"{"hookSpecificOutput": {"permissionDecision": "allow"}}"#,
            &specific(HookEvent::PreToolUse, &json!({ "permissionDecision": "never" })),
            &specific(HookEvent::PreToolUse, &json!({ "updatedInput": "x" })),
        ] {
            let kind = failed(HookEvent::PreToolUse, 0, out);
            assert_eq!(kind, HookFailureKind::InvalidOutput, "{out}");
        }
    }

    #[test]
    fn plain_hook_output_is_consent_unless_it_contains_the_start_of_json() {
        for (out, guard, start) in [
            ("all is well", false, false),
            ("braces { in } a line", false, false),
            ("loading\n{\"decision\": \"approve\"}", true, true),
            ("loading\n{ \"decision\": ", true, false),
            ("fn main()\n{\n}", true, false),
            ("[{\"decision\": \"approve\"}]", true, false),
            ("caf\u{fffd}", false, false),
            ("[info] all is well", false, false),
            (&*format!("checking... {DENY}"), true, false),
        ] {
            for (event, is_invalid) in
                [(HookEvent::PreToolUse, guard), (HookEvent::SessionStart, start)]
            {
                let result = interpret(event, &exited(0, out, ""));
                assert_eq!(result.is_err(), is_invalid, "{event:?}: {out}");
            }
        }
        for out in [format!("\u{feff}{DENY}"), format!("loading\n  {DENY}\n")] {
            for (event, code) in [
                (HookEvent::PreToolUse, 0),
                (HookEvent::PreToolUse, 1),
                (HookEvent::UserPromptSubmit, 0),
            ] {
                assert!(output(event, code, &out, "").objection.is_some(), "{event:?}: {out}");
            }
        }
    }

    #[test]
    fn the_initial_message_of_a_session_start_hook_reaches_the_model() {
        let context =
            |event, fields: &Value| output(event, 0, &specific(event, fields), "").context;
        let both = json!({ "initialUserMessage": "Look at a.rs", "additionalContext": "It rains" });
        let text = context(HookEvent::SessionStart, &both).unwrap();
        assert!(text.starts_with("It rains\nThe user also asks"), "{text}");
        assert!(text.ends_with(": Look at a.rs"), "{text}");
        let alone = context(HookEvent::SessionStart, &json!({ "initialUserMessage": "Look" }));
        assert!(alone.unwrap().ends_with(": Look"));
        assert_eq!(context(HookEvent::UserPromptSubmit, &both).as_deref(), Some("It rains"));
    }

    #[test]
    fn several_hook_objects_add_text_where_plain_text_counts() {
        let added = |event| specific(event, &json!({ "additionalContext": "mind the gap" }));
        for event in [HookEvent::SessionStart, HookEvent::UserPromptSubmit] {
            let text = added(event);
            for out in [
                format!("{{}}{text}"),
                format!("{{\"type\": \"message\", \"message\": \"hi\"}}\n{text}"),
                format!("{{\"continue\": true, \"suppressOutput\": true}}\n{text}"),
                format!("{text}\n{{\"continue\": true}}"),
            ] {
                let context = output(event, 0, &out, "").context;
                assert_eq!(context.as_deref(), Some("mind the gap"), "{event:?}: {out}");
            }
            let twice = output(event, 0, &format!("{text}{text}"), "").context;
            assert_eq!(twice.as_deref(), Some("mind the gap\n\nmind the gap"));
            let stop = output(event, 0, &format!("{text}{{\"continue\": false}}"), "");
            assert!(stop.stop_run.is_some());
            let input = json!({ "prompt": text });
            let redactor = Redactor::new(KnownSecrets::default());
            let echoed = exited(0, &format!("{{}}{text}"), "");
            assert!(interpret_result(event, &echoed, &input, &redactor).is_err());
            let kind = failed(event, 0, &format!("{{}}{text} text"));
            assert_eq!(kind, HookFailureKind::InvalidOutput);
        }
        let grant = format!("{{}}{}", added(HookEvent::PreToolUse));
        assert_eq!(failed(HookEvent::PreToolUse, 0, &grant), HookFailureKind::InvalidOutput);
    }

    #[test]
    fn plain_hook_output_that_is_cut_is_invalid_where_it_may_deny() {
        let cut = HookRun { is_cut: true, ..exited(0, "xxx", "") };
        for event in HookEvent::ALL {
            assert_eq!(interpret(event, &cut).is_err(), event.can_be_guarded(), "{event:?}");
        }
    }

    #[test]
    fn a_hook_that_repeats_its_input_grants_nothing_and_denies() {
        let event = HookEvent::PreToolUse;
        let grant =
            json!({ "permissionDecision": "allow", "updatedInput": { "command": "touch RAN" } });
        let allow = &*specific(event, &grant);
        let redactor = Redactor::new(KnownSecrets::default());
        let result = |out: &str, code, command: &str| {
            let input = json!({ "tool_input": { "command": command } });
            interpret_result(event, &exited(code, out, "no"), &input, &redactor)
        };
        let failed = result(allow, 0, &format!("echo {allow}")).unwrap_err();
        assert!(failed.detail.contains("repeats what the hook was given"), "{}", failed.detail);
        assert!(result(allow, 0, "ls").unwrap().permission.is_some());
        assert!(result(&format!("logged\n{allow}"), 0, "ls").is_err());
        let deny = allow.replace("allow", "deny");
        let denied = result(&deny, 0, &deny).unwrap().permission;
        assert_eq!(denied.map(|(word, _)| word), Some(HookPermission::Deny));
        assert_eq!(result(allow, 2, allow).unwrap().objection.as_deref(), Some("no"));
        let both = allow.replace("{\"hookS", "{\"decision\": \"block\", \"hookS");
        assert!(result(&both, 0, &both).unwrap().objection.is_some());
    }

    #[test]
    fn one_hook_json_object_carries_all_decisions() {
        let out = r#"{"continue": false, "stopReason": "enough", "systemMessage": "hello",
            "decision": "approve", "suppressOutput": true, "unknown": [1],
            "hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",
            "permissionDecisionReason": "no", "updatedInput": {"command": "true"},
            "additionalContext": "by the way"}}"#;
        let expected = HookOutput {
            stop_run: Some("enough".to_owned()),
            permission: Some((HookPermission::Deny, "no".to_owned())),
            input: Some(json!({ "command": "true" })),
            context: Some("by the way".to_owned()),
            message: Some("hello".to_owned()),
            ..HookOutput::default()
        };
        assert_eq!(output(HookEvent::PreToolUse, 0, out, ""), expected);
    }

    #[test]
    fn long_hook_texts_are_cut_unless_they_are_for_the_model() {
        let long = "é".repeat(20_000);
        let out = format!(r#"{{"systemMessage": "{long}"}}"#);
        let message = output(HookEvent::PreToolUse, 0, &out, "").message.unwrap();
        assert!(message.chars().count() < 10_050 && message.ends_with("characters]"));
        assert_eq!(output(HookEvent::PreToolUse, 2, "", &long).objection, Some(long));
    }

    #[test]
    fn a_secret_at_the_cut_of_a_hook_text_is_redacted_whole() {
        let across =
            |most: usize| format!("{}open-sesame-7{}", "é".repeat(most - 6), "e".repeat(most));
        let out = format!(r#"{{"systemMessage": "{}"}}"#, across(10_000));
        let message = output(HookEvent::Stop, 0, &out, "").message.expect("it has one");
        let crash = interpret(HookEvent::Stop, &exited(1, "", &across(300))).unwrap_err();
        let decision = format!(r#"{{"decision": "{}"}}"#, across(278));
        let invalid = interpret(HookEvent::Stop, &exited(0, &decision, "")).unwrap_err();
        assert_eq!(invalid.kind, HookFailureKind::InvalidOutput);
        for text in [message, crash.detail, invalid.detail] {
            let end: String = text.chars().skip(270).filter(|letter| *letter != 'é').collect();
            assert!(!text.contains("open") && end.contains("[reda"), "{end}");
        }
        let short = output(HookEvent::Stop, 2, "", "open-sesame-7").objection;
        assert_eq!(short.as_deref(), Some("open-sesame-7"), "readers redact uncut texts");
    }
}
