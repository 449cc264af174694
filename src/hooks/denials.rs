//! Finds denials in the output of a hook that is not one valid object. Pure.
//!
//! A denial counts on any line of the output, and even in malformed JSON. Nothing else counts
//! there: a line may repeat the hook's own input. In the middle of a line, even a denial may be a
//! quotation, so there the output is invalid.

use console::strip_ansi_codes;
use serde::de::IgnoredAny;

use crate::json;
use crate::secrets::Redactor;

use super::event::{HookEvent, ObjectionUse};
use super::output::{DENIALS, FALSE, HookOutput, parse_output, truncate};

/// The most failed searches for an object over several lines.
const MISSES_MAX: usize = 100;

/// The keys of decisions.
const KEYS: [&str; 5] =
    ["permissionDecision", "permission_decision", "permission", "decision", "behavior"];

/// The keys of objects with decisions.
const DECIDING: [&str; 3] = ["hookSpecificOutput", "permissionDecision", "decision"];

/// The quotes around keys and values: Python prints a dictionary with single ones.
const QUOTES: [char; 2] = ['"', '\''];

/// Characters that no display shows.
const INVISIBLE: [char; 6] = ['\0', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}'];

/// The characters around the objects of a list.
const LIST: [char; 3] = ['[', ',', ']'];

/// Returns the prohibitions in the output of a hook. `None` if there are none.
pub(super) fn find_denial(event: HookEvent, out: &str, redactor: &Redactor) -> Option<HookOutput> {
    let encoded = json::read_str::<String>(out).ok();
    let out = encoded.as_deref().unwrap_or(out);
    denial_in(event, out, redactor).or_else(|| denial_in(event, &as_displayed(out), redactor))
}

/// The output without terminal sequences and invisible characters, such as the second bytes of
/// UTF-16 without a byte order mark. Carriage returns become line ends: an object may follow a
/// progress display.
fn as_displayed(out: &str) -> String {
    strip_ansi_codes(out).replace(INVISIBLE, "").replace('\r', "\n")
}

/// Returns true if output that is not JSON mentions a decision in the middle of a line. For events
/// that take plain text, only prohibitions are decisions.
pub(super) fn mentions_decision(event: HookEvent, out: &str) -> bool {
    let is_false =
        |value: &str| FALSE.into_iter().any(|no| value.starts_with(no) || is_quoted(value, no));
    let stops = || values_of(out, "continue").any(is_false);
    let decides = || DECIDING.into_iter().any(|key| values_of(out, key).next().is_some());
    event.can_be_guarded() && (denies(out) || stops() || !event.takes_plain_text() && decides())
}

fn denial_in(event: HookEvent, out: &str, redactor: &Redactor) -> Option<HookOutput> {
    let mut found = HookOutput::default();
    let (mut rest, mut misses) = (out, 0);
    while let Some(text) = next_object(rest) {
        let line = text.lines().next().unwrap_or_default();
        let is_whole = |text: &str| json::read_str::<IgnoredAny>(text).is_ok();
        let mut object = line;
        if !is_whole(line) && misses < MISSES_MAX {
            match json::value_end(text).and_then(|end| text.get(..end)) {
                Some(longer) if is_whole(longer) => object = longer,
                Some(_) | None => misses += 1,
            }
        }
        found.restrict(denial_of(event, object, redactor));
        rest = &text[object.len()..];
    }
    (found != HookOutput::default()).then_some(found)
}

/// The rest of a text from the first line on that begins an object, or a list with one.
fn next_object(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|char: char| char.is_whitespace() || LIST.contains(&char));
        if rest.starts_with('{') {
            return Some(rest);
        }
        rest = &rest[rest.find('\n')?..];
    }
}

/// The prohibitions in one object.
fn denial_of(event: HookEvent, object: &str, redactor: &Redactor) -> HookOutput {
    match parse_output(event, object, redactor) {
        Ok(output) => output,
        Err(why) if denies(object) && event.objection() != ObjectionUse::Ignored => {
            let why = format!("it denies by invalid output ({why}): {object}");
            HookOutput { objection: Some(truncate(&why, redactor)), ..HookOutput::default() }
        }
        Err(_) => HookOutput::default(),
    }
}

/// Returns true if text that is not valid output plainly denies.
fn denies(text: &str) -> bool {
    let mut values = KEYS.into_iter().flat_map(|key| values_of(text, key));
    values.any(|value| DENIALS.into_iter().any(|denial| is_quoted(value, denial)))
}

/// Returns true if a text begins with this word in quotes, in any case and with blanks around it.
fn is_quoted(text: &str, word: &str) -> bool {
    let Some(quote) = text.chars().next().filter(|first| QUOTES.contains(first)) else {
        return false;
    };
    let quoted = text[1..].split_once(quote).map(|(quoted, _)| format!("\"{quoted}\""));
    let value = quoted.and_then(|quoted| json::read_str::<String>(&quoted).ok());
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case(word))
}

/// The text after each occurrence of a key with its colon, anywhere in a text.
fn values_of<'a>(text: &'a str, key: &'static str) -> impl Iterator<Item = &'a str> {
    text.match_indices(key).filter_map(move |(index, _)| {
        let rest = text[index + key.len()..].trim_start().strip_prefix(QUOTES)?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    })
}

#[cfg(test)]
mod tests {
    use super::super::output::HookPermission;
    use super::*;
    use crate::secrets::KnownSecrets;

    fn found(event: HookEvent, out: &str) -> Option<HookOutput> {
        find_denial(event, out, &Redactor::new(KnownSecrets::new(["open-sesame-7"])))
    }

    fn specific(decision: &str) -> String {
        format!(
            r#"{{"hookSpecificOutput": {{"hookEventName": "PreToolUse",
                "permissionDecision": "{decision}", "updatedInput": {{"command": "x"}},
                "additionalContext": "c", "permissionDecisionReason": "why"}}}}"#
        )
    }

    #[test]
    fn a_denial_counts_on_whatever_line_of_the_output_it_stands() {
        let block = r#"{"decision": "block", "reason": "no"}"#;
        let deny = specific("deny");
        let one_line = deny.replace('\n', " ");
        let unclosed = "{\"a\": [\n".repeat(1_000);
        for out in [
            block.to_owned(),
            format!("loading\n{block}"),
            format!("{block}\nall done"),
            format!("{{\"level\": \"info\"}}\r\n  {block}\r\n"),
            format!("{}\n{block}", r#"{"decision": "approve"}"#),
            format!("{block}\n{}", specific("allow")),
            format!("text {{\n{{ oops\n{deny}\n}}"),
            format!("{{\n\"unclosed\n{one_line}"),
            format!("{unclosed}{block}"),
            format!("{unclosed}{one_line}"),
            deny.clone(),
            specific("DENY"),
            specific("Deny"),
            specific(" deny\\n"),
            specific("denied"),
            specific("Reject"),
            specific("rejected"),
            specific("disallow"),
            specific("blocked"),
            specific("no"),
            block.replace("block", "reject"),
            block.replace("block", "denied"),
            block.replace("block", "Block"),
            format!("[{block}]"),
            format!("loading\n[\n{{\"decision\": \"approve\"}}, {deny}\n]"),
            format!("\u{1b}[0m\u{1b}[K{block}\u{1b}[0m"),
            format!("working |\rworking /\r{one_line}"),
            format!("\0{block}"),
            format!("loading\n\u{200b}{block}"),
            // UTF-16 without a byte order mark.
            block.chars().flat_map(|one| [one, '\0']).collect(),
            one_line.chars().flat_map(|one| ['\0', one]).collect(),
            // In places that belong to other events, or to none.
            r#"{"permissionDecision": "deny", "permissionDecisionReason": "no"}"#.to_owned(),
            r#"{"permissionDecision": "Deny", "reason": "no"}"#.to_owned(),
            r#"{"decision": "approve", "behavior": "deny", "message": "no"}"#.to_owned(),
            r#"{"permission": "deny", "userMessage": "no"}"#.to_owned(),
            r#"{"permission": "deny", "agent_message": "no", "user_message": "x"}"#.to_owned(),
            r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse",
                "decision": {"behavior": "deny", "message": "no"}}}"#
                .to_owned(),
            r#"{"hook_specific_output": {"hook_event_name": "PreToolUse",
                "permission_decision": "deny", "permission_decision_reason": "no"}}"#
                .to_owned(),
            // JSON in the text of JSON.
            serde_json::json!(block).to_string(),
            serde_json::json!(deny).to_string(),
        ] {
            let output = found(HookEvent::PreToolUse, &out).expect(&out);
            let denied = output.permission.as_ref().is_some_and(|(word, why)| {
                *word == HookPermission::Deny && ["no", "why"].contains(&why.as_str())
            });
            assert!(output.objection.as_deref() == Some("no") || denied, "{out}: {output:?}");
            assert_eq!((output.input, output.context), (None, None), "{out}");
        }
    }

    #[test]
    fn nothing_but_a_denial_counts_on_a_line() {
        for out in [
            "working\n{\"decision\": \"approve\"}".to_owned(),
            format!("working\n{}", specific("allow")),
            "a {\"decision\": \"block\"}".to_owned(),
            "{ \"decision\": \"blocks\"".to_owned(),
            "{ decision: block }".to_owned(),
            "[INFO] {\"decision\": \"block\"}".to_owned(),
            r#"[{"decision": "approve"}]"#.to_owned(),
            // It repeats its input.
            r#"{"tool_input": {"permissionDecision": "deny", "behavior": "deny"}}"#.to_owned(),
            r#"{"permissionDecision": "allow", "behavior": "allow", "message": 7}"#.to_owned(),
            r#"{"permissionDecision": ["deny"]}"#.to_owned(),
        ] {
            assert_eq!(found(HookEvent::PreToolUse, &out), None, "{out}");
        }
        for word in ["ask", "defer"] {
            let output =
                found(HookEvent::PreToolUse, &format!("x\n{}", specific(word))).expect(word);
            assert!(output.permission.is_some_and(|(found, _)| found > HookPermission::Allow));
        }
        for word in ["false", "0", "\"false\"", "\"False \"", "\"No\"", "\"0\""] {
            let out = format!("x\n{{\"continue\": {word}, \"stopReason\": \"late\"}}");
            let stop = found(HookEvent::Stop, &out);
            assert_eq!(stop.and_then(|output| output.stop_run).as_deref(), Some("late"), "{out}");
        }
        assert_eq!(found(HookEvent::Stop, "x\n{\"continue\": \"never\"}"), None);
        assert_eq!(found(HookEvent::Stop, "x\n{\"continue\": 1}"), None);
    }

    #[test]
    fn a_decision_in_the_middle_of_a_line_is_mentioned() {
        for (out, call, prompt) in [
            ("checking... {\"decision\": \"block\"}", true, true),
            ("Result: {\"decision\" : \"Deny\", \"reason\": \"use of \"rm\"\"}", true, true),
            ("x {\"continue\":false,\"stopReason\":\"r\"}", true, true),
            ("[INFO] {\"decision\": \"approve\"}", true, false),
            ("x {\"hookSpecificOutput\": {", true, false),
            ("x {\"continue\": \" False\"", true, true),
            ("x {\"continue\": 0}", true, true),
            ("x {\"decision\": \" deny\\n\"", true, true),
            ("x {\"permission\": \"deny\"", true, true),
            ("x {\"continue\": true}", false, false),
            ("x {\"continue\": \"true\"}", false, false),
            ("the decision: \"block\"", false, false),
            (r#"{\"decision\": \"block\"}"#, false, false),
        ] {
            assert_eq!(mentions_decision(HookEvent::PreToolUse, out), call, "{out}");
            assert_eq!(mentions_decision(HookEvent::UserPromptSubmit, out), prompt, "{out}");
            for event in [HookEvent::PostToolUse, HookEvent::SessionStart] {
                assert!(!mentions_decision(event, out), "nothing can be denied: {out}");
            }
        }
    }

    #[test]
    fn a_denial_counts_even_in_invalid_output() {
        for out in [
            r#"{"decision": "block", "reason": "use of "rm""}"#,
            r#"{"decision":"deny","reason":["a","b"]}"#,
            r#"{"hookSpecificOutput": {"permissionDecision": "deny"}}"#,
            r#"{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision" :  "deny""#,
            "{\"decision\": \"block\", \"reason\": \"cut \\x\"}",
            "{\"decision\": \"BLOCK\", \"reason\": \"cut \\x\"}",
            "{\"decision\": \" block \", \"reason\": \"cut \\x\"}",
            "{\"permission\": \"deny\", \"reason\": \"cut \\x\"}",
            // A dictionary that Python prints.
            "{'hookSpecificOutput': {'hookEventName': 'PreToolUse', 'permissionDecision': 'deny'}}",
            "{'decision': 'block', 'reason': \"don't\"}",
        ] {
            let output = found(HookEvent::PreToolUse, &format!("one\n{out}\ntwo")).expect(out);
            let why = output.objection.expect(out);
            assert!(why.contains("invalid output") && why.contains(&out[..20]), "{why}");
            assert_eq!(found(HookEvent::SessionEnd, out), None);
        }
    }
}
