//! What one hook has said, by its exit code and what it printed. Pure.

use serde_json::Value;

use crate::secrets::Redactor;

use super::event::{HookEvent, ObjectionUse};
use super::output::{has_misplaced_json, parse_output};
use super::release::Opening;

/// No text of a hook is taken further than this, in characters.
const TEXT_MAX: usize = 10_000;

/// The same of what is said about its failure.
const DETAIL_MAX: usize = 300;

/// How a hook's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HookEnd {
    Exited(i32),
    Killed {
        signal: i32,
    },
    /// It took longer than it may, and was ended.
    TimedOut,
    /// It was ended with the run. Nothing was wrong with it.
    Cancelled,
    /// It runs on in the background.
    Released,
    /// Our own code broke down over it.
    Crashed,
    /// Why it could not be started, or followed.
    Failed(String),
}

/// A hook's whole performance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HookRun {
    pub(super) end: HookEnd,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl HookRun {
    /// One of which nothing was heard.
    pub(super) fn of(end: HookEnd) -> Self {
        Self { end, stdout: String::new(), stderr: String::new() }
    }

    /// Whether it asked to run on in the background, so that it has no say. One that did and then
    /// ended at once is treated as one that runs on: which of the two is seen is chance.
    pub(super) fn runs_in_background(&self) -> bool {
        matches!(Opening::classify(self.stdout.as_bytes()), Opening::Release(_))
    }
}

/// What a hook wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HookOutput {
    /// `continue: false`, and why.
    pub(super) stop_run: Option<String>,
    /// It objects, and why.
    pub(super) objection: Option<String>,
    pub(super) permission: Option<(HookPermission, String)>,
    pub(super) input: Option<Value>,
    pub(super) output: Option<Value>,
    /// For the model.
    pub(super) context: Option<String>,
    /// For people.
    pub(super) message: Option<String>,
    pub(super) hides_prompt: bool,
}

impl HookOutput {
    /// The same, with `who` in the place of reasons that the hook did not give.
    #[must_use]
    pub(super) fn with_default_reasons(mut self, who: impl Fn() -> String) -> Self {
        if let Some(why) = self.objection.as_mut().filter(|why| why.trim().is_empty()) {
            *why = format!("{} objects, and does not say why", who());
        }
        if let Some((HookPermission::Deny | HookPermission::Ask, why)) = &mut self.permission
            && why.trim().is_empty()
        {
            *why = format!("{} does not say why", who());
        }
        if let Some(why) = self.stop_run.as_mut().filter(|why| why.trim().is_empty()) {
            *why = format!("{} stops the run, and does not say why", who());
        }
        self
    }
}

/// What a hook says about a tool call. The later one here beats the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPermission {
    Allow,
    Ask,
    Deny,
}

/// Why a hook counts as one that was not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFailure {
    pub kind: HookFailureKind,
    pub detail: String,
}

impl HookFailure {
    /// A mistake of outlast's own, and not the hook's.
    pub(super) fn internal() -> Self {
        let detail = "outlast itself broke down over it, which is a bug of outlast".to_owned();
        Self { kind: HookFailureKind::Crash, detail }
    }

    /// A guard asked to run on in the background, where it can forbid nothing.
    pub(super) fn background_guard() -> Self {
        let detail = "it asks to run on in the background (async), where no guard can forbid \
                      anything";
        Self { kind: HookFailureKind::InvalidOutput, detail: detail.to_owned() }
    }

    /// Nobody can tell whether the hook is for what happened.
    pub(super) fn matcher_failed(why: String) -> Self {
        Self { kind: HookFailureKind::MatcherFailed, detail: why }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookFailureKind {
    /// It ended with a code that means nothing here, or was killed.
    Crash,
    TimedOut,
    /// What it printed is not what a hook prints.
    InvalidOutput,
    /// It could not be started.
    Missing,
    /// Its matcher could not tell whether it is for what happened.
    MatcherFailed,
}

impl HookFailureKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::TimedOut => "timeout",
            Self::InvalidOutput => "rubbish",
            Self::Missing => "missing",
            Self::MatcherFailed => "astray",
        }
    }
}

/// The codes by which a shell says that there is no such program.
const NOT_FOUND: [i32; 2] = [126, 127];

/// Judges what a hook did. What is cut of its words has lost its secrets, by `mask`, before.
///
/// # Errors
/// Why it counts as if it had not been there.
pub(super) fn interpret_result(event: HookEvent, hook: &HookRun, mask: &Redactor) -> Result<HookOutput, HookFailure> {
    let mishap = |kind, what: &str| Err(failure(kind, what, hook, mask));
    let code = match &hook.end {
        HookEnd::Exited(code) => *code,
        HookEnd::Killed { signal } => {
            return mishap(HookFailureKind::Crash, &format!("killed by signal {signal}"));
        }
        HookEnd::Cancelled => return mishap(HookFailureKind::Crash, "was ended with the run"),
        HookEnd::Released => return Ok(HookOutput::default()),
        HookEnd::Crashed => return Err(HookFailure::internal()),
        HookEnd::TimedOut => return mishap(HookFailureKind::TimedOut, "took too long"),
        HookEnd::Failed(why) => return mishap(HookFailureKind::Missing, why),
    };
    // Some programs begin whatever they write with a mark of their encoding.
    let out = hook.stdout.trim_start_matches('\u{feff}').trim();
    let spoken = out.starts_with('{').then(|| parse_output(event, out, mask));
    match (code, spoken) {
        (2, spoken) => {
            let why = || truncate(hook.stderr.trim(), mask);
            Ok(block_decision(event, spoken.and_then(Result::ok), why))
        }
        (_, Some(Ok(say))) => Ok(say),
        (0, Some(Err(why))) => mishap(HookFailureKind::InvalidOutput, &why),
        (0, None) if out.contains(char::REPLACEMENT_CHARACTER) => {
            mishap(HookFailureKind::InvalidOutput, "what it printed is no text")
        }
        (0, None) if has_misplaced_json(event, out) => {
            let why = "what it printed has JSON in it, and does not begin with it";
            mishap(HookFailureKind::InvalidOutput, why)
        }
        (0, None) => {
            let is_heard = event.takes_plain_text() && !out.is_empty();
            Ok(HookOutput { context: is_heard.then(|| truncate(out, mask)), ..HookOutput::default() })
        }
        (code, None | Some(Err(_))) => {
            let missing = NOT_FOUND.contains(&code);
            let kind = if missing { HookFailureKind::Missing } else { HookFailureKind::Crash };
            mishap(kind, &format!("exit code {code}"))
        }
    }
}

/// Exit code 2. No JSON can take it back; it may only say why.
fn block_decision(event: HookEvent, spoken: Option<HookOutput>, written: impl FnOnce() -> String) -> HookOutput {
    let spoken = spoken.unwrap_or_default();
    let denied = spoken.permission.filter(|(permission, _)| *permission == HookPermission::Deny);
    let why = spoken.objection.or(denied.map(|(_, why)| why)).filter(|why| !why.is_empty());
    let why = why.unwrap_or_else(written);
    let heard = event.objection() != ObjectionUse::Ignored;
    HookOutput {
        stop_run: spoken.stop_run,
        objection: heard.then_some(why),
        message: spoken.message,
        ..HookOutput::default()
    }
}

fn failure(kind: HookFailureKind, what: &str, hook: &HookRun, mask: &Redactor) -> HookFailure {
    let first = |text: &str| {
        let text = mask.redact(text.trim());
        text.lines().next().unwrap_or_default().chars().take(DETAIL_MAX).collect::<String>()
    };
    let (what, said) = (first(what), first(&hook.stderr));
    let detail = if said.is_empty() { what } else { format!("{what}: {said}") };
    HookFailure { kind, detail }
}

/// A text that is not too long. Whoever reads it takes the secrets out that are for others; of one
/// that is cut they are all out before: nobody would know a half for what it is.
pub(super) fn truncate(text: &str, mask: &Redactor) -> String {
    if text.chars().nth(TEXT_MAX).is_none() {
        return text.to_owned();
    }
    let text = mask.redact(text);
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{} [… cut after {TEXT_MAX} characters]", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use crate::secrets::KnownSecrets;

    use super::*;

    fn performed(code: i32, out: &str, err: &str) -> HookRun {
        HookRun { end: HookEnd::Exited(code), stdout: out.to_owned(), stderr: err.to_owned() }
    }

    fn judged(event: HookEvent, hook: &HookRun) -> Result<HookOutput, HookFailure> {
        interpret_result(event, hook, &Redactor::new(KnownSecrets::new(["open-sesame-7"])))
    }

    fn said(event: HookEvent, code: i32, out: &str, err: &str) -> HookOutput {
        judged(event, &performed(code, out, err)).unwrap()
    }

    fn failed(event: HookEvent, code: i32, out: &str) -> HookFailureKind {
        judged(event, &performed(code, out, "")).unwrap_err().kind
    }

    #[test]
    fn silence_and_success_want_nothing() {
        for event in HookEvent::ALL {
            assert_eq!(said(event, 0, "", "noise"), HookOutput::default());
            assert_eq!(said(event, 0, "{}", ""), HookOutput::default());
        }
    }

    #[test]
    fn plain_words_reach_the_model_where_a_conversation_begins() {
        for event in HookEvent::ALL {
            let heard = matches!(event, HookEvent::SessionStart | HookEvent::UserPromptSubmit);
            assert_eq!(said(event, 0, " mind the gap\n", "").context.is_some(), heard, "{event:?}");
        }
        let say = said(HookEvent::SessionStart, 0, " mind the gap\n", "");
        assert_eq!(say.context.as_deref(), Some("mind the gap"));
    }

    #[test]
    fn exit_code_two_objects_with_what_stands_on_stderr() {
        for event in HookEvent::ALL {
            let say = said(event, 2, "", "not on a Friday\n");
            let heard = event.objection() != ObjectionUse::Ignored;
            assert_eq!(say.objection.as_deref(), heard.then_some("not on a Friday"), "{event:?}");
        }
    }

    #[test]
    fn what_a_hook_wants_without_a_reason_says_which_hook_it_is() {
        let specific = |decision: &str, why: &str| {
            let specific = format!(
                r#""hookEventName": "PreToolUse", "permissionDecision": "{decision}"{why}"#
            );
            format!(r#"{{"hookSpecificOutput": {{{specific}}}}}"#)
        };
        let event = HookEvent::PreToolUse;
        let rows = [
            (said(event, 2, "", ""), "the guard objects, and does not say why"),
            (said(event, 0, r#"{"decision": "block"}"#, ""), "the guard objects, and does not"),
            (said(event, 0, r#"{"decision": "block", "reason": " "}"#, ""), "the guard objects"),
            (said(event, 0, &specific("deny", ""), ""), "the guard does not say why"),
            (said(event, 0, &specific("ask", ""), ""), "the guard does not say why"),
            (said(event, 0, r#"{"continue": false}"#, ""), "the guard stops the run, and does not"),
            (said(event, 2, "", "no"), "no"),
            (said(event, 0, &specific("deny", r#", "permissionDecisionReason": "no""#), ""), "no"),
        ];
        for (say, wanted) in rows {
            let say = say.with_default_reasons(|| "the guard".to_owned());
            let permission = say.permission.map(|(_, why)| why);
            let words = say.objection.or(permission).or(say.stop_run).unwrap();
            assert!(words.starts_with(wanted), "{words}");
        }
        let allow = said(event, 0, &specific("allow", ""), "").with_default_reasons(|| "the guard".to_owned());
        assert_eq!(allow.permission, Some((HookPermission::Allow, String::new())));
    }

    #[test]
    fn json_cannot_take_exit_code_two_back_but_can_say_why() {
        let allow = r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse",
            "permissionDecision": "allow", "updatedInput": {"command": "true"}}}"#;
        let say = said(HookEvent::PreToolUse, 2, allow, "no");
        assert_eq!(say.objection.as_deref(), Some("no"));
        assert_eq!((say.permission, say.input), (None, None));
        let why = r#"{"decision": "block", "reason": "because"}"#;
        assert_eq!(said(HookEvent::Stop, 2, why, "no").objection.as_deref(), Some("because"));
    }

    #[test]
    fn other_codes_are_crashes_unless_json_decides() {
        let block = r#"{"decision": "block", "reason": "because"}"#;
        assert!(said(HookEvent::PreToolUse, 1, block, "").objection.is_some());
        assert_eq!(failed(HookEvent::PreToolUse, 1, ""), HookFailureKind::Crash);
        assert_eq!(failed(HookEvent::PreToolUse, 1, "{ oops"), HookFailureKind::Crash);
        assert_eq!(failed(HookEvent::PreToolUse, 127, ""), HookFailureKind::Missing);
        assert_eq!(failed(HookEvent::PreToolUse, 126, ""), HookFailureKind::Missing);
        let killed = HookRun {
            end: HookEnd::Killed { signal: 9 },
            stdout: String::new(),
            stderr: "last words\nmore".to_owned(),
        };
        let mishap = judged(HookEvent::Stop, &killed).unwrap_err();
        assert_eq!(mishap.detail, "killed by signal 9: last words");
        let late = HookRun { end: HookEnd::TimedOut, ..killed };
        assert_eq!(judged(HookEvent::Stop, &late).unwrap_err().kind, HookFailureKind::TimedOut);
    }

    #[test]
    fn what_is_no_output_of_a_hook_is_rubbish() {
        for out in [
            "{ oops",
            r#"{"decision": "perhaps"}"#,
            r#"{"decision": 7}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "Stop"}}"#,
            r#"{"hookSpecificOutput": {"permissionDecision": "deny"}}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse",
                "permissionDecision": "never"}}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": "x"}}"#,
        ] {
            assert_eq!(failed(HookEvent::PreToolUse, 0, out), HookFailureKind::InvalidOutput, "{out}");
        }
    }

    #[test]
    fn plain_text_is_consent_unless_json_was_begun_in_it() {
        let deny = r#"{"decision": "block"}"#;
        let rows = [
            ("all is well".to_owned(), false, false),
            ("braces { in } a line".to_owned(), false, false),
            (format!("loading\n{deny}"), true, true),
            (format!("loading\n  {deny}\n"), true, true),
            ("loading\n{ \"decision\": ".to_owned(), true, false),
            ("fn main()\n{\n}".to_owned(), true, false),
            (format!("[{deny}]"), true, false),
            ("[info] all is well".to_owned(), false, false),
        ];
        for (out, guard, start) in rows {
            for (event, rubbish) in
                [(HookEvent::PreToolUse, guard), (HookEvent::SessionStart, start)]
            {
                let is = judged(event, &performed(0, &out, "")).is_err();
                assert_eq!(is, rubbish, "{event:?}: {out}");
            }
        }
        assert!(said(HookEvent::PreToolUse, 0, &format!("\u{feff}{deny}"), "").objection.is_some());
    }

    #[test]
    fn a_hook_says_all_it_wants_in_one_object() {
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
        };
        assert_eq!(said(HookEvent::PreToolUse, 0, out, ""), expected);
    }

    #[test]
    fn long_words_are_cut() {
        let say = said(HookEvent::PreToolUse, 2, "", &"é".repeat(20_000));
        let words = say.objection.unwrap();
        assert!(words.chars().count() < 10_050 && words.ends_with("characters]"));
    }

    #[test]
    fn no_half_of_a_secret_is_left_where_words_are_cut() {
        let across =
            |most: usize| format!("{}open-sesame-7{}", "é".repeat(most - 6), "e".repeat(most));
        let long = across(10_000);
        let texts = [
            said(HookEvent::Stop, 2, "", &long).objection,
            said(HookEvent::SessionStart, 0, &long, "").context,
            said(HookEvent::Stop, 0, &format!(r#"{{"systemMessage": "{long}"}}"#), "").message,
        ];
        let crash = judged(HookEvent::Stop, &performed(1, "", &across(300))).unwrap_err();
        let decision = format!(r#"{{"decision": "{}"}}"#, across(278));
        let rubbish = judged(HookEvent::Stop, &performed(0, &decision, "")).unwrap_err();
        assert_eq!(rubbish.kind, HookFailureKind::InvalidOutput);
        for text in texts.into_iter().flatten().chain([crash.detail, rubbish.detail]) {
            let end: String = text.chars().skip(270).filter(|one| *one != 'é').collect();
            assert!(!text.contains("open") && end.contains("[reda"), "{end}");
        }
        let short = said(HookEvent::Stop, 2, "", "open-sesame-7").objection;
        assert_eq!(short.as_deref(), Some("open-sesame-7"), "whoever reads it takes it out");
    }
}
