//! The JSON output of a hook. Pure.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::json;
use crate::secrets::Redactor;
use crate::text::shortened;

use super::event::{HookEvent, ObjectionUse};

/// The most characters of a text of a hook. Its objections and its context are not cut here: they
/// are for the model, which can read the rest in a file.
pub const TEXT_MAX: usize = 10_000;

/// The most objects of an output, and positions of a text at which JSON is searched for.
const ANSWERS_MAX: usize = 100;

/// The words that deny. Only the first two are documented; a script that writes another one means
/// to deny all the same.
pub(super) const DENIALS: [&str; 8] =
    ["deny", "block", "denied", "blocked", "reject", "rejected", "disallow", "no"];

/// The words and numbers that scripts write for `false`.
pub(super) const FALSE: [&str; 3] = ["false", "no", "0"];

/// The decision that a hook returned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HookOutput {
    /// The reason given with `continue: false`.
    pub(super) stop_run: Option<String>,
    /// The reason for its objection.
    pub(super) objection: Option<String>,
    pub(super) permission: Option<(HookPermission, String)>,
    pub(super) input: Option<Value>,
    pub(super) output: Option<Value>,
    /// Text for the model.
    pub(super) context: Option<String>,
    /// A message for the user.
    pub(super) message: Option<String>,
    pub(super) hides_prompt: bool,
    /// Changes of permissions, as a `PermissionRequest` hook wrote them.
    pub(super) updates: Vec<Value>,
}

impl HookOutput {
    /// Returns true if it allows, changes or adds something.
    pub(super) fn grants(&self) -> bool {
        let allows =
            self.permission.as_ref().is_some_and(|(word, _)| *word == HookPermission::Allow);
        let changes = self.input.is_some() || self.output.is_some() || !self.updates.is_empty();
        allows || changes || self.context.is_some()
    }

    /// Returns true if it denies, objects or ends the run.
    pub(super) fn forbids(&self) -> bool {
        let denies =
            self.permission.as_ref().is_some_and(|(word, _)| *word == HookPermission::Deny);
        denies || self.objection.is_some() || self.stop_run.is_some()
    }

    /// Joins the objects of one output. After the first, only their prohibitions and texts count.
    pub(super) fn merge(outputs: Vec<Self>) -> Self {
        let joined = |first: Option<String>, second: Option<String>| match (first, second) {
            (Some(first), Some(second)) => Some(format!("{first}\n\n{second}")),
            (first, second) => first.or(second),
        };
        let merge = |mut all: Self, mut output: Self| {
            all.context = joined(all.context.take(), output.context.take());
            all.message = joined(all.message.take(), output.message.take());
            all.hides_prompt |= output.hides_prompt;
            all.restrict(output);
            all
        };
        outputs.into_iter().reduce(merge).unwrap_or_default()
    }

    /// Adds the prohibitions of another output, and none of its grants.
    pub(super) fn restrict(&mut self, other: Self) {
        let strict = other.permission.filter(|(word, _)| *word > HookPermission::Allow);
        if strict.as_ref().map(|(word, _)| *word) > self.permission.as_ref().map(|(word, _)| *word)
        {
            self.permission = strict;
        }
        self.objection = self.objection.take().or(other.objection);
        self.stop_run = self.stop_run.take().or(other.stop_run);
    }

    /// Fills in reasons that the hook did not give; `who` names the hook.
    #[must_use]
    pub(super) fn with_default_reasons(mut self, who: impl Fn() -> String) -> Self {
        if let Some(why) = self.objection.as_mut().filter(|why| why.trim().is_empty()) {
            *why = format!("{} objects, and gives no reason", who());
        }
        if let Some((HookPermission::Deny | HookPermission::Defer | HookPermission::Ask, why)) =
            &mut self.permission
            && why.trim().is_empty()
        {
            *why = format!("{} gives no reason", who());
        }
        if let Some(why) = self.stop_run.as_mut().filter(|why| why.trim().is_empty()) {
            *why = format!("{} stops the run, and gives no reason", who());
        }
        self
    }
}

/// A hook's decision about a tool call. Later variants override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPermission {
    Allow,
    Ask,
    /// The run ends before the call, which is decided on when the session is resumed.
    Defer,
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookJson {
    #[serde(default, rename = "continue", alias = "continue_", deserialize_with = "flag")]
    continues: Option<bool>,
    stop_reason: Option<String>,
    system_message: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    suppress_original_prompt: bool,
    #[serde(rename = "hookSpecificOutput")]
    specific: Option<HookSpecificOutput>,
    // As scripts in Python write it. It can only restrict: an echo of the input is recognized by
    // the exact words of grants.
    #[serde(rename = "hook_specific_output")]
    snake_case: Option<Value>,
    // These belong in `hookSpecificOutput`. Here they can only restrict.
    permission_decision: Option<Value>,
    permission_decision_reason: Option<Value>,
    permission: Option<Value>,
    behavior: Option<Value>,
    message: Option<Value>,
    // The reasons for `permission` in hooks that are written for Cursor.
    agent_message: Option<Value>,
    #[serde(rename = "agent_message")]
    snake_agent_message: Option<Value>,
    user_message: Option<Value>,
    #[serde(rename = "user_message")]
    snake_user_message: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookSpecificOutput {
    hook_event_name: String,
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    updated_input: Option<Value>,
    #[serde(rename = "updated_input")]
    misspelled_input: Option<IgnoredAny>,
    updated_tool_output: Option<Value>,
    #[serde(rename = "updatedMCPToolOutput")]
    updated_mcp_tool_output: Option<Value>,
    additional_context: Option<String>,
    /// A message of the user that is sent with the first prompt.
    initial_user_message: Option<String>,
    #[serde(default)]
    suppress_original_prompt: bool,
    decision: Option<RequestDecision>,
}

/// The decision of a `PermissionRequest` hook.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestDecision {
    behavior: String,
    updated_input: Option<Value>,
    #[serde(default)]
    updated_permissions: Vec<Value>,
    message: Option<String>,
    #[serde(default)]
    interrupt: bool,
}

/// The reason that JSON is not valid hook output.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidHookOutput {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("unknown decision {0:?}")]
    Decision(String),
    #[error("hookEventName is {named:?}, and the event is {:?}", event.name())]
    OtherEvent { named: String, event: HookEvent },
    #[error("unknown permissionDecision {0:?}")]
    Permission(String),
    #[error("unknown behavior {0:?}")]
    Behavior(String),
    #[error("updatedInput is not an object")]
    Input,
    #[error("it repeats what the hook was given, so that it grants nothing")]
    Echo,
}

/// Parses the JSON output of a hook, which is one object. Events that take plain text take several
/// objects, too, as tools print one each.
///
/// # Errors
/// It is not valid hook output.
pub(super) fn parse_outputs(
    event: HookEvent,
    text: &str,
    redactor: &Redactor,
) -> Result<Vec<HookOutput>, InvalidHookOutput> {
    let whole = parse_output(event, text, redactor);
    match event.takes_plain_text().then(|| objects(text)).flatten() {
        Some(objects) if whole.is_err() => {
            objects.into_iter().map(|object| parse_output(event, object, redactor)).collect()
        }
        Some(_) | None => whole.map(|output| vec![output]),
    }
}

/// Splits text that is nothing but JSON objects. `None`: it is something else.
fn objects(text: &str) -> Option<Vec<&str>> {
    let (mut rest, mut objects) = (text.trim_end(), Vec::new());
    while rest.starts_with('{') && objects.len() < ANSWERS_MAX {
        let (object, further) = rest.split_at_checked(json::value_end(rest)?)?;
        objects.push(object);
        rest = further.trim_start();
    }
    rest.is_empty().then_some(objects)
}

/// Parses one object of the output of a hook.
///
/// # Errors
/// It is not valid hook output.
pub(super) fn parse_output(
    event: HookEvent,
    text: &str,
    redactor: &Redactor,
) -> Result<HookOutput, InvalidHookOutput> {
    let clipped = |text: &str| truncate(text, redactor);
    let given: HookJson = json::read_str(text)?;
    let reason = given.reason.as_deref().map(&clipped);
    let mut output = HookOutput {
        stop_run: (given.continues == Some(false))
            .then(|| given.stop_reason.as_deref().map(&clipped).unwrap_or_default()),
        message: given.system_message.as_deref().map(&clipped),
        hides_prompt: given.suppress_original_prompt,
        ..HookOutput::default()
    };
    if given.has_misspelled_input() {
        let text = output.message.take().map(|text| format!("{text}\n")).unwrap_or_default();
        output.message = Some(format!("{text}{MISSPELLED_INPUT}"));
    }
    let misplaced = given.misplaced_restriction(event, clipped);
    match (given.decision.as_deref().map(decision_word).as_deref(), event) {
        (None, _) => {}
        (Some("approve" | "allow"), HookEvent::PreToolUse) => {
            output.permission = Some((HookPermission::Allow, reason.unwrap_or_default()));
        }
        (Some("approve"), _) => {}
        (Some("deny"), _) if event.objection() == ObjectionUse::Ignored => {}
        (Some("deny"), _) => {
            output.objection = Some(given.reason.clone().unwrap_or_default());
        }
        (Some(other), _) => return Err(InvalidHookOutput::Decision(other.to_owned())),
    }
    if let Some(specific) = given.specific {
        specific.apply_to(&mut output, event, clipped)?;
    }
    output.restrict(HookOutput { permission: misplaced, ..HookOutput::default() });
    Ok(output)
}

/// Reads a flag, which shell scripts write as a text.
fn flag<'de, D: Deserializer<'de>>(source: D) -> Result<Option<bool>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected true or false")]
    enum Written {
        Flag(bool),
        Number(f64),
        Text(String),
    }
    let flag = match Option::<Written>::deserialize(source)? {
        None => return Ok(None),
        Some(Written::Flag(flag)) => flag,
        Some(Written::Number(number)) => word_of_flag(&number.to_string())?,
        Some(Written::Text(text)) => word_of_flag(&text)?,
    };
    Ok(Some(flag))
}

fn word_of_flag<E: serde::de::Error>(text: &str) -> Result<bool, E> {
    let word = text.trim().to_ascii_lowercase();
    if FALSE.contains(&&*word) {
        return Ok(false);
    }
    word.parse().map_err(|_| E::custom(format!("{text:?} is neither true nor false")))
}

/// A decision in the form that is compared. Restrictions may be written in any case. Grants may
/// not: an echo of the input is recognized by their exact words.
fn decision_word(written: &str) -> Cow<'_, str> {
    let word = written.trim().to_ascii_lowercase();
    match &*word {
        "allow" | "approve" => written.into(),
        denial if DENIALS.contains(&denial) => "deny".into(),
        _ => word.into(),
    }
}

/// The warning about an input in snake case. It is not applied: such an object can only restrict.
const MISSPELLED_INPUT: &str =
    "updated_input of a hook has no effect: it is written updatedInput, in hookSpecificOutput";

impl HookJson {
    fn has_misspelled_input(&self) -> bool {
        let specific = self.specific.as_ref();
        let snake_case = self.snake_case.as_ref();
        specific.is_some_and(|it| it.misspelled_input.is_some())
            || snake_case.is_some_and(|it| it.get("updated_input").is_some())
    }

    /// The strictest restriction of a tool call in a place that belongs to another event, or to
    /// none.
    fn misplaced_restriction(
        &self,
        event: HookEvent,
        clipped: impl Fn(&str) -> String,
    ) -> Option<(HookPermission, String)> {
        if !matches!(event, HookEvent::PreToolUse | HookEvent::PermissionRequest) {
            return None;
        }
        let text = |value: &Option<Value>| value.as_ref()?.as_str().map(ToOwned::to_owned);
        let nested = self.specific.as_ref().and_then(|specific| specific.decision.as_ref());
        let in_snake_case = |key: &str| text(&self.snake_case.as_ref()?.get(key).cloned());
        let cursor_reasons = [
            &self.agent_message,
            &self.snake_agent_message,
            &self.user_message,
            &self.snake_user_message,
        ];
        let places = [
            (text(&self.permission_decision), text(&self.permission_decision_reason)),
            (text(&self.permission), cursor_reasons.into_iter().find_map(text)),
            (text(&self.behavior), text(&self.message)),
            (in_snake_case("permission_decision"), in_snake_case("permission_decision_reason")),
            nested.map_or((None, None), |it| (Some(it.behavior.clone()), it.message.clone())),
        ];
        let restrictions = places.into_iter().filter_map(|(written, why)| {
            let permission = match (&*decision_word(&written?), event) {
                ("deny", _) => HookPermission::Deny,
                ("defer", HookEvent::PreToolUse) => HookPermission::Defer,
                ("ask", HookEvent::PreToolUse) => HookPermission::Ask,
                _ => return None,
            };
            let why = why.or_else(|| self.reason.clone()).unwrap_or_default();
            Some((permission, clipped(&why)))
        });
        restrictions.max_by_key(|(permission, _)| *permission)
    }
}

/// Introduces the initial message of the user, which is sent among the context that hooks add.
const INITIAL_MESSAGE: &str = "The user also asks, before the rest of the prompt: ";

impl HookSpecificOutput {
    fn apply_to(
        self,
        output: &mut HookOutput,
        event: HookEvent,
        clipped: impl Fn(&str) -> String,
    ) -> Result<(), InvalidHookOutput> {
        if self.hook_event_name != event.name() {
            return Err(InvalidHookOutput::OtherEvent { named: self.hook_event_name, event });
        }
        let why = self.permission_decision_reason.as_deref().map(&clipped).unwrap_or_default();
        let permission = match self.permission_decision.as_deref().map(decision_word).as_deref() {
            None => None,
            Some("allow") => Some(HookPermission::Allow),
            Some("ask") => Some(HookPermission::Ask),
            Some("defer") => Some(HookPermission::Defer),
            Some("deny") => Some(HookPermission::Deny),
            Some(other) => return Err(InvalidHookOutput::Permission(other.to_owned())),
        };
        if let Some(permission) = permission {
            output.permission = Some((permission, why));
        }
        output.input = self.updated_input;
        if let Some(decision) = self.decision.filter(|_| event == HookEvent::PermissionRequest) {
            decision.apply_to(output, &clipped)?;
        }
        if output.input.as_ref().is_some_and(|input| !input.is_object()) {
            return Err(InvalidHookOutput::Input);
        }
        output.output = self.updated_tool_output.or(self.updated_mcp_tool_output);
        let message = self.initial_user_message.filter(|_| event == HookEvent::SessionStart);
        let message = message.filter(|message| !message.trim().is_empty());
        let message = message.map(|text| format!("{INITIAL_MESSAGE}{text}"));
        let texts = [self.additional_context, message]
            .into_iter()
            .flatten()
            .filter(|text| !text.trim().is_empty());
        output.context = texts.reduce(|context, message| format!("{context}\n{message}"));
        output.hides_prompt |= self.suppress_original_prompt;
        Ok(())
    }
}

impl RequestDecision {
    fn apply_to(
        self,
        output: &mut HookOutput,
        clipped: impl Fn(&str) -> String,
    ) -> Result<(), InvalidHookOutput> {
        let permission = match &*decision_word(&self.behavior) {
            "allow" => HookPermission::Allow,
            "deny" => HookPermission::Deny,
            other => return Err(InvalidHookOutput::Behavior(other.to_owned())),
        };
        let why = self.message.as_deref().map(clipped).unwrap_or_default();
        if permission == HookPermission::Deny && self.interrupt {
            output.stop_run = Some(why.clone());
        }
        output.permission = Some((permission, why));
        output.input = self.updated_input;
        output.updates = self.updated_permissions;
        Ok(())
    }
}

/// Returns true if plain text contains misplaced JSON: the JSON of a program that prints a line of
/// its own before it is not a decision. For events with plain text output, only hook JSON counts.
pub(super) fn has_misplaced_json(event: HookEvent, out: &str) -> bool {
    let text_counts = event.takes_plain_text();
    let is_answer = |text: &str| {
        let value = json::read_str::<Value>(text).unwrap_or_default();
        ["continue", "decision", "hookSpecificOutput"].iter().any(|key| value.get(key).is_some())
    };
    let lines = out.match_indices('\n').map(|(end, _)| out[end..].trim_start());
    let mut begun = lines.filter(|rest| rest.starts_with('{'));
    let list = out.starts_with('[') && json::read_str::<Value>(out).is_ok();
    if text_counts {
        begun.take(ANSWERS_MAX).any(is_answer)
    } else {
        list || begun.next().is_some()
    }
}

/// Cuts a text that is too long. Secrets are masked before a cut, since half a secret could not be
/// recognised later; an uncut text is masked by its readers.
pub(super) fn truncate(text: &str, redactor: &Redactor) -> String {
    if text.chars().nth(TEXT_MAX).is_none() {
        return text.to_owned();
    }
    let cut_note = format!(" [… cut after {TEXT_MAX} characters]");
    shortened(&redactor.redact(text), TEXT_MAX, &cut_note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::KnownSecrets;

    #[test]
    fn an_input_in_snake_case_has_no_effect_and_is_named() {
        let redactor = Redactor::new(KnownSecrets::default());
        for (fields, is_named) in [
            (r#""hookSpecificOutput": {"hookEventName": "PreToolUse", "updated_input": {}}"#, true),
            (r#""hook_specific_output": {"updated_input": {"command": "x"}}"#, true),
            (r#""hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {}}"#, false),
        ] {
            let out = format!("{{\"systemMessage\": \"hello\", {fields}}}");
            let output = parse_output(HookEvent::PreToolUse, &out, &redactor).expect(fields);
            let message = output.message.expect("a message");
            assert!(message.starts_with("hello"), "{message}");
            assert_eq!(message.contains("updated_input of a hook has no effect"), is_named);
            assert_eq!(output.input.is_none(), is_named, "{fields}");
        }
    }
}
