//! Interprets the result of one hook: its exit code and its output.

use serde::Serialize;
use serde_json::Value;

use crate::secrets::Redactor;
use crate::types::HostError;

use super::background::Opening;
use super::denials::{find_denial, mentions_decision};
use super::echo::repeats;
use super::event::{HookEvent, ObjectionUse};
use super::matcher::MatcherError;
use super::output::{
    HookOutput, HookPermission, InvalidHookOutput, has_misplaced_json, parse_outputs,
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
    /// One of its files has changed since the run began; the change.
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

    /// Returns true if it requested to continue in the background, so that its output has no
    /// effect. A hook that requested it and ended at once is treated equally: which of the two is
    /// observed depends on timing.
    pub(super) fn runs_in_background(&self, input: &Value) -> bool {
        matches!(Opening::of_hook(self.stdout.as_bytes(), input), Opening::Release(_))
    }
}

/// The failure of a hook, which is then ignored unless it is fail-closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFailure {
    pub kind: HookFailureKind,
    pub detail: String,
}

impl HookFailure {
    /// A bug in outlast, for which the hook is not at fault.
    pub(super) fn internal() -> Self {
        let detail = "outlast crashed while handling it, which is a bug in outlast".to_owned();
        Self { kind: HookFailureKind::Crash, detail }
    }

    /// A fail-closed hook requested to run in the background, where it cannot deny anything.
    pub(super) fn background_guard() -> Self {
        let detail = "it asks to run on in the background (async), where no guard can forbid \
                      anything";
        Self { kind: HookFailureKind::InvalidOutput, detail: detail.to_owned() }
    }

    /// It cannot be determined whether the hook applies to what happened.
    pub(super) fn matcher_failed(why: &MatcherError) -> Self {
        Self { kind: HookFailureKind::MatcherFailed, detail: why.to_string() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookFailureKind {
    /// It ended with an exit code that has no meaning for hooks, or was killed.
    Crash,
    #[serde(rename = "timeout")]
    TimedOut,
    /// Its output is not valid hook output.
    InvalidOutput,
    /// It could not be started.
    Missing,
    /// One of its files has changed since the run began.
    Changed,
    /// It runs in a host that was not asked: its input is too long.
    NotSent,
    /// It runs in a host that can no longer reply.
    HostClosed,
    /// Its matcher failed with an error.
    MatcherFailed,
}

/// The exit codes with which a shell reports a missing program.
const NOT_FOUND: [i32; 2] = [126, 127];

/// The exit code with which a shell reports that a signal has ended a program is this number and the
/// number of the signal.
const SIGNAL_BASE: i32 = 128;

/// Converts a hook's result to its decision. `input` is the hook's own input. Secrets are masked by
/// `mask` in texts that are cut.
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
        // A shell that runs the program ends so, too. What was printed before is not all of it.
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
    // Some programs begin their output with a byte order mark.
    let out = hook.stdout.trim_start_matches('\u{feff}').trim();
    let parsed = match out.starts_with('{').then(|| parse_outputs(event, out, redactor)) {
        Some(Ok(says)) if !repeats(&says, input) => Some(Ok(HookOutput::merge(says))),
        other => {
            let other = other.map(|says| says.and(Err(InvalidHookOutput::Echo)));
            find_denial(event, out, redactor).map(Ok).or(other)
        }
    };
    let is_killed = matches!(hook.end, HookEnd::Killed { .. });
    match (code, parsed) {
        (2, parsed) => {
            let why = || hook.stderr.trim().to_owned();
            Ok(block_decision(event, parsed.and_then(Result::ok), why))
        }
        (_, Some(Ok(say))) if !is_killed || say.forbids() => Ok(say),
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

/// Handles exit code 2: it always blocks; JSON output can only add the reason.
fn block_decision(
    event: HookEvent,
    parsed: Option<HookOutput>,
    written: impl FnOnce() -> String,
) -> HookOutput {
    let parsed = parsed.unwrap_or_default();
    let denied = parsed.permission.filter(|(permission, _)| *permission == HookPermission::Deny);
    let why = parsed.objection.or(denied.map(|(_, why)| why)).filter(|why| !why.is_empty());
    let why = why.unwrap_or_else(written);
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
    use serde_json::json;

    use crate::secrets::KnownSecrets;

    use super::*;

    fn performed(code: i32, out: &str, err: &str) -> HookRun {
        let (stdout, stderr) = (out.to_owned(), err.to_owned());
        HookRun { stdout, stderr, ..HookRun::of(HookEnd::Exited(code)) }
    }

    fn judged(event: HookEvent, hook: &HookRun) -> Result<HookOutput, HookFailure> {
        let input = serde_json::json!({ "tool_input": { "command": "ls" } });
        interpret_result(event, hook, &input, &Redactor::new(KnownSecrets::new(["open-sesame-7"])))
    }

    fn result_of(event: HookEvent, code: i32, out: &str, err: &str) -> HookOutput {
        judged(event, &performed(code, out, err)).unwrap()
    }

    fn failed(event: HookEvent, code: i32, out: &str) -> HookFailureKind {
        judged(event, &performed(code, out, "")).unwrap_err().kind
    }

    #[test]
    fn a_silent_successful_hook_decides_nothing() {
        for event in HookEvent::ALL {
            assert_eq!(result_of(event, 0, "", "noise"), HookOutput::default());
            assert_eq!(result_of(event, 0, "{}", ""), HookOutput::default());
        }
    }

    #[test]
    fn plain_hook_output_becomes_context_for_session_start_and_prompt_events_only() {
        for event in HookEvent::ALL {
            let counts = matches!(event, HookEvent::SessionStart | HookEvent::UserPromptSubmit);
            assert_eq!(
                result_of(event, 0, " mind the gap\n", "").context.is_some(),
                counts,
                "{event:?}"
            );
        }
        let say = result_of(HookEvent::SessionStart, 0, " mind the gap\n", "");
        assert_eq!(say.context.as_deref(), Some("mind the gap"));
    }

    #[test]
    fn hook_exit_code_two_blocks_with_stderr_as_the_reason() {
        for event in HookEvent::ALL {
            let say = result_of(event, 2, "", "not on a Friday\n");
            let counts = event.objection() != ObjectionUse::Ignored;
            assert_eq!(say.objection.as_deref(), counts.then_some("not on a Friday"), "{event:?}");
        }
    }

    #[test]
    fn a_hook_decision_without_a_reason_names_the_hook() {
        let specific = |decision: &str, why: &str| {
            let specific = format!(
                r#""hookEventName": "PreToolUse", "permissionDecision": "{decision}"{why}"#
            );
            format!(r#"{{"hookSpecificOutput": {{{specific}}}}}"#)
        };
        let event = HookEvent::PreToolUse;
        let rows = [
            (result_of(event, 2, "", ""), "the guard objects, and gives no reason"),
            (
                result_of(event, 0, r#"{"decision": "block"}"#, ""),
                "the guard objects, and gives no",
            ),
            (
                result_of(event, 0, r#"{"decision": "block", "reason": " "}"#, ""),
                "the guard objects",
            ),
            (result_of(event, 0, &specific("deny", ""), ""), "the guard gives no reason"),
            (result_of(event, 0, &specific("ask", ""), ""), "the guard gives no reason"),
            (
                result_of(event, 0, r#"{"continue": false}"#, ""),
                "the guard stops the run, and gives no",
            ),
            (result_of(event, 2, "", "no"), "no"),
            (
                result_of(event, 0, &specific("deny", r#", "permissionDecisionReason": "no""#), ""),
                "no",
            ),
        ];
        for (say, wanted) in rows {
            let say = say.with_default_reasons(|| "the guard".to_owned());
            let permission = say.permission.map(|(_, why)| why);
            let words = say.objection.or(permission).or(say.stop_run).unwrap();
            assert!(words.starts_with(wanted), "{words}");
        }
        let allow = result_of(event, 0, &specific("allow", ""), "")
            .with_default_reasons(|| "the guard".to_owned());
        assert_eq!(allow.permission, Some((HookPermission::Allow, String::new())));
    }

    #[test]
    fn hook_json_cannot_revoke_exit_code_two_but_can_give_the_reason() {
        let allow = r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse",
            "permissionDecision": "allow", "updatedInput": {"command": "true"}}}"#;
        let say = result_of(HookEvent::PreToolUse, 2, allow, "no");
        assert_eq!(say.objection.as_deref(), Some("no"));
        assert_eq!((say.permission, say.input), (None, None));
        let why = r#"{"decision": "block", "reason": "because"}"#;
        assert_eq!(result_of(HookEvent::Stop, 2, why, "no").objection.as_deref(), Some("because"));
    }

    #[test]
    fn other_hook_exit_codes_are_crashes_unless_json_decides() {
        let block = r#"{"decision": "block", "reason": "because"}"#;
        assert!(result_of(HookEvent::PreToolUse, 1, block, "").objection.is_some());
        assert_eq!(failed(HookEvent::PreToolUse, 1, ""), HookFailureKind::Crash);
        assert_eq!(failed(HookEvent::PreToolUse, 1, "{ oops"), HookFailureKind::Crash);
        assert_eq!(failed(HookEvent::PreToolUse, 127, ""), HookFailureKind::Missing);
        assert_eq!(failed(HookEvent::PreToolUse, 126, ""), HookFailureKind::Missing);
        let stderr = "last words\nmore".to_owned();
        let killed = HookRun { stderr, ..HookRun::of(HookEnd::Killed { signal: 9 }) };
        let failure = judged(HookEvent::Stop, &killed).unwrap_err();
        assert_eq!(failure.detail, "killed by signal 9: last words");
        let denied = HookRun { stdout: block.to_owned(), ..killed.clone() };
        assert!(judged(HookEvent::PreToolUse, &denied).unwrap().objection.is_some());
        let silent = HookRun { stdout: r#"{"systemMessage": "x"}"#.to_owned(), ..killed.clone() };
        let failure = judged(HookEvent::PreToolUse, &silent).unwrap_err();
        assert_eq!(failure.detail, "killed by signal 9: last words");
        let late = HookRun { end: HookEnd::TimedOut, ..killed };
        assert_eq!(judged(HookEvent::Stop, &late).unwrap_err().kind, HookFailureKind::TimedOut);
    }

    #[test]
    fn invalid_hook_output_is_reported_as_rubbish() {
        for out in [
            "{ oops",
            r#"{"decision": "perhaps"}"#,
            r#"{"decision": 7}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "Stop"}}"#,
            r#"{"hookSpecificOutput": {"permissionDecision": "allow"}}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse",
                "permissionDecision": "never"}}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "x"}}"#,
        ] {
            assert_eq!(
                failed(HookEvent::PreToolUse, 0, out),
                HookFailureKind::InvalidOutput,
                "{out}"
            );
        }
    }

    #[test]
    fn plain_hook_output_is_consent_unless_it_contains_the_start_of_json() {
        let deny = r#"{"decision": "block"}"#;
        let rows = [
            ("all is well".to_owned(), false, false),
            ("braces { in } a line".to_owned(), false, false),
            ("loading\n{\"decision\": \"approve\"}".to_owned(), true, true),
            ("loading\n{ \"decision\": ".to_owned(), true, false),
            ("fn main()\n{\n}".to_owned(), true, false),
            ("[{\"decision\": \"approve\"}]".to_owned(), true, false),
            ("caf\u{fffd}".to_owned(), false, false),
            ("[info] all is well".to_owned(), false, false),
            (format!("checking... {deny}"), true, false),
        ];
        for (out, guard, start) in rows {
            for (event, rubbish) in
                [(HookEvent::PreToolUse, guard), (HookEvent::SessionStart, start)]
            {
                let is = judged(event, &performed(0, &out, "")).is_err();
                assert_eq!(is, rubbish, "{event:?}: {out}");
            }
        }
        for out in [format!("\u{feff}{deny}"), format!("loading\n  {deny}\n")] {
            for (event, code) in [
                (HookEvent::PreToolUse, 0),
                (HookEvent::PreToolUse, 1),
                (HookEvent::UserPromptSubmit, 0),
            ] {
                assert!(result_of(event, code, &out, "").objection.is_some(), "{event:?}: {out}");
            }
        }
    }

    #[test]
    fn the_initial_message_of_a_session_start_hook_reaches_the_model() {
        let context = |event: HookEvent, fields: serde_json::Value| {
            let mut specific = json!({ "hookEventName": event.name() });
            let own = specific.as_object_mut().unwrap();
            own.extend(fields.as_object().cloned().unwrap());
            result_of(event, 0, &json!({ "hookSpecificOutput": specific }).to_string(), "").context
        };
        let both = json!({ "initialUserMessage": "Look at a.rs", "additionalContext": "It rains" });
        let text = context(HookEvent::SessionStart, both.clone()).unwrap();
        assert!(
            text.starts_with("It rains\nThe user also asks") && text.ends_with(": Look at a.rs")
        );
        let alone = context(HookEvent::SessionStart, json!({ "initialUserMessage": "Look" }));
        assert!(alone.unwrap().ends_with(": Look"));
        assert_eq!(context(HookEvent::UserPromptSubmit, both).as_deref(), Some("It rains"));
    }

    #[test]
    fn several_hook_objects_add_text_where_plain_text_counts() {
        let added = |event: HookEvent| {
            let name = event.name();
            let specific = json!({ "hookEventName": name, "additionalContext": "mind the gap" });
            json!({ "hookSpecificOutput": specific }).to_string()
        };
        for event in [HookEvent::SessionStart, HookEvent::UserPromptSubmit] {
            let text = added(event);
            for out in [
                format!("{{}}{text}"),
                format!("{{\"type\": \"message\", \"message\": \"hi\"}}\n{text}"),
                format!("{{\"continue\": true, \"suppressOutput\": true}}\n{text}"),
                format!("{text}\n{{\"continue\": true}}"),
            ] {
                let say = result_of(event, 0, &out, "");
                assert_eq!(say.context.as_deref(), Some("mind the gap"), "{event:?}: {out}");
            }
            let twice = result_of(event, 0, &format!("{text}{text}"), "").context;
            assert_eq!(twice.as_deref(), Some("mind the gap\n\nmind the gap"));
            let stop = result_of(event, 0, &format!("{text}{{\"continue\": false}}"), "");
            assert!(stop.stop_run.is_some());
            let input = json!({ "prompt": text });
            let redactor = Redactor::new(KnownSecrets::default());
            let echoed = performed(0, &format!("{{}}{text}"), "");
            assert!(interpret_result(event, &echoed, &input, &redactor).is_err());
            assert_eq!(
                failed(event, 0, &format!("{{}}{text} text")),
                HookFailureKind::InvalidOutput
            );
        }
        let grant = format!("{{}}{}", added(HookEvent::PreToolUse));
        assert_eq!(failed(HookEvent::PreToolUse, 0, &grant), HookFailureKind::InvalidOutput);
    }

    #[test]
    fn plain_hook_output_that_is_cut_is_invalid_where_it_may_deny() {
        let cut = HookRun { is_cut: true, ..performed(0, "xxx", "") };
        for event in HookEvent::ALL {
            assert_eq!(judged(event, &cut).is_err(), event.can_be_guarded(), "{event:?}");
        }
    }

    #[test]
    fn a_hook_that_repeats_its_input_grants_nothing_and_denies() {
        let json = r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse",
            "permissionDecision": "allow", "updatedInput": {"command": "touch RAN"}}}"#;
        let redactor = Redactor::new(KnownSecrets::default());
        let result = |out: &str, code, command: &str| {
            let input = serde_json::json!({ "tool_input": { "command": command } });
            interpret_result(HookEvent::PreToolUse, &performed(code, out, "no"), &input, &redactor)
        };
        let failed = result(json, 0, &format!("echo {json}")).unwrap_err();
        assert!(failed.detail.contains("repeats what the hook was given"), "{}", failed.detail);
        assert!(result(json, 0, "ls").unwrap().permission.is_some());
        assert!(result(&format!("logged\n{json}"), 0, "ls").is_err());
        let deny = json.replace("allow", "deny");
        let denied = result(&deny, 0, &deny).unwrap().permission;
        assert_eq!(denied.map(|(word, _)| word), Some(HookPermission::Deny));
        assert_eq!(result(json, 2, json).unwrap().objection.as_deref(), Some("no"));
        let both = json.replace("{\"hook", "{\"decision\": \"block\", \"hook");
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
            objection: None,
            permission: Some((HookPermission::Deny, "no".to_owned())),
            input: Some(serde_json::json!({ "command": "true" })),
            output: None,
            context: Some("by the way".to_owned()),
            message: Some("hello".to_owned()),
            hides_prompt: false,
            updates: Vec::new(),
        };
        assert_eq!(result_of(HookEvent::PreToolUse, 0, out, ""), expected);
    }

    #[test]
    fn long_hook_texts_are_cut_unless_they_are_for_the_model() {
        let long = "é".repeat(20_000);
        let out = format!(r#"{{"systemMessage": "{long}"}}"#);
        let words = result_of(HookEvent::PreToolUse, 0, &out, "").message.unwrap();
        assert!(words.chars().count() < 10_050 && words.ends_with("characters]"));
        assert_eq!(result_of(HookEvent::PreToolUse, 2, "", &long).objection, Some(long));
    }

    #[test]
    fn a_secret_at_the_cut_of_a_hook_text_is_masked_whole() {
        let across =
            |most: usize| format!("{}open-sesame-7{}", "é".repeat(most - 6), "e".repeat(most));
        let long = across(10_000);
        let out = format!(r#"{{"systemMessage": "{long}"}}"#);
        let message = result_of(HookEvent::Stop, 0, &out, "").message.expect("it has one");
        let crash = judged(HookEvent::Stop, &performed(1, "", &across(300))).unwrap_err();
        let decision = format!(r#"{{"decision": "{}"}}"#, across(278));
        let rubbish = judged(HookEvent::Stop, &performed(0, &decision, "")).unwrap_err();
        assert_eq!(rubbish.kind, HookFailureKind::InvalidOutput);
        for text in [message, crash.detail, rubbish.detail] {
            let end: String = text.chars().skip(270).filter(|one| *one != 'é').collect();
            assert!(!text.contains("open") && end.contains("[reda"), "{end}");
        }
        let short = result_of(HookEvent::Stop, 2, "", "open-sesame-7").objection;
        assert_eq!(short.as_deref(), Some("open-sesame-7"), "readers mask uncut texts");
    }
}
