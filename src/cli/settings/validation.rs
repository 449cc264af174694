//! Validates settings files: reports every mistake, with its position.

use std::path::Path;

use serde_json::{Value, json};

use super::file_settings::FileSettings;
use super::locate::{self, JsonPaths};
use super::rule_names::{self, BadRuleName};
use super::unknown_keys::{self, UnknownKeys};
use super::{ranges, table};
use crate::cli::edit_distance::distance;
use crate::hooks::{BadHook, HookEvent, HookSettings, is_foreign_event};
use crate::tools::{check_allowance, check_restriction};

/// Further mistakes are only counted.
const TOLD_MAX: usize = 20;

/// Values of these settings are not quoted in errors: they may hold secrets.
const MAY_BE_SECRET: [&str; 4] = ["apiKeyHelper", "env", "hooks", "mcpServers"];

/// A valid settings text.
pub(super) struct ValidSettings {
    pub value: Value,
    /// Warnings about it.
    pub warnings: Vec<String>,
}

/// Checks a text for syntax, shape, unknown keys, and values that make no sense.
///
/// # Errors
/// What is wrong, one line each, in the order of the text. Never none.
pub(super) fn check(name: &str, text: &str) -> Result<ValidSettings, Vec<String>> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| vec![syntax_error(name, text, &error)])?;
    let places = JsonPaths::scan(text);
    if !value.is_object() {
        let (line, column) = places.value(0);
        return Err(vec![format!(
            "{name}:{line}:{column}: settings are a JSON object; write {{...}}"
        )]);
    }
    let mut search = MistakeSearch {
        text,
        places: &places,
        type_errors: Vec::new(),
        found: Vec::new(),
        remarks: Vec::new(),
    };
    search.find_duplicate_keys();
    search.find_type_errors(0);
    let layer = search.layer(&value);
    let UnknownKeys { mistyped, told } = unknown_keys::find_unknown_keys(name, &layer, &places);
    for (index, why) in mistyped {
        search.found.push((places.start(index), why));
    }
    search.ranges(&layer);
    search.rules(&value);
    if let Some(hooks) = value.get("hooks") {
        search.hooks(hooks.clone());
    }
    let remarks = std::mem::take(&mut search.remarks).into_iter();
    let remark = |((line, column), why)| format!("{name}:{line}:{column}: {why}");
    let remarks = remarks.take(TOLD_MAX).map(remark);
    match search.sorted_mistakes(name) {
        mistakes if mistakes.is_empty() => {
            Ok(ValidSettings { value, warnings: told.into_iter().chain(remarks).collect() })
        }
        mistakes => Err(mistakes),
    }
}

/// Explains a JSON syntax error, with a hint for comments.
pub(super) fn syntax_error(name: &str, text: &str, error: &serde_json::Error) -> String {
    let at = locate::offset(text, error.line(), error.column());
    let (line, column) = locate::line_and_column(text, at);
    let rest = text.get(at..).unwrap_or_default();
    let why = match without_position(error) {
        _ if text.trim().is_empty() => "the file is empty; write {}, or take it away".to_owned(),
        _ if rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#') => {
            "there are no comments in JSON; take this one out".to_owned()
        }
        why if why == "trailing comma" => format!("{why}; take away the comma before it"),
        why => format!("{why}; correct the file"),
    };
    format!("{name}:{line}:{column}: not valid JSON: {why}")
}

/// An error of `serde_json` without the position at its end.
pub(super) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Stands for the type of a value that matches neither of two allowed ones.
pub(super) const NEITHER: &str = "something else";

/// A text being searched for mistakes.
struct MistakeSearch<'a> {
    text: &'a str,
    places: &'a JsonPaths<'a>,
    /// Values of the wrong type.
    type_errors: Vec<usize>,
    /// Line and column, and what is wrong there.
    found: Vec<((usize, usize), String)>,
    /// The same for warnings.
    remarks: Vec<((usize, usize), String)>,
}

impl MistakeSearch<'_> {
    fn find_duplicate_keys(&mut self) {
        for (first, again) in &self.places.repeated {
            let path = self.places.path(*again).join(".");
            let line = self.places.line(*first);
            let why = format!(
                "duplicate key \"{path}\", which line {line} has already; make one of the two"
            );
            self.found.push((self.places.start(*again), why));
        }
    }

    /// Finds the innermost values of the wrong type.
    fn find_type_errors(&mut self, index: usize) {
        let Some(place) = self.places.get(index) else { return };
        let value = self.text.get(place.value.clone()).unwrap_or_default();
        let Some(why) = self.type_error(index, value) else { return };
        let before = self.type_errors.len();
        // A value that does not fit even when emptied is itself wrong.
        let hollow = if value.starts_with('{') { "{}" } else { "[]" };
        let parts = value.starts_with(['{', '[']) && (index == 0 || why != NEITHER);
        if parts && (value == hollow || self.type_error(index, hollow).as_ref() != Some(&why)) {
            for child in self.places.children(index) {
                self.find_type_errors(child);
            }
        }
        if self.type_errors.len() == before {
            self.type_errors.push(index);
            let complaint = format_mistake(&why, &self.places.path(index));
            self.found.push((self.places.value(index), complaint));
        }
    }

    /// Returns the type error of a value, parsed within its otherwise empty parents.
    fn type_error(&self, index: usize, value: &str) -> Option<String> {
        let (mut before, mut after) = (String::new(), String::new());
        let mut inner = self.places.get(index)?;
        while let Some(outer) = inner.parent.and_then(|outer| self.places.get(outer)) {
            if self.text.as_bytes().get(outer.value.start) == Some(&b'{') {
                before = format!("{{{}:{before}", Value::from(inner.key.as_str()));
                after.push('}');
            } else {
                before.insert(0, '[');
                after.push(']');
            }
            inner = outer;
        }
        let end = before.len() + value.len();
        let alone = before + value + &after;
        let error = serde_json::from_str::<FileSettings>(&alone).err()?;
        let why = without_position(&error);
        // Errors after it are about its emptied parents.
        let beside = locate::offset(&alone, error.line(), error.column()) >= end;
        let aside = why.starts_with("missing field") && beside;
        // Duplicates were already reported.
        (!aside && !why.starts_with("duplicate field")).then_some(why)
    }

    /// Returns the settings without the wrongly typed values.
    fn layer(&self, value: &Value) -> FileSettings {
        let mut rest = value.clone();
        for index in self.type_errors.iter().rev() {
            let mut path = self.places.path(*index);
            // The rest of what it is deeper within may not stand without it.
            path.truncate(2);
            let Some((key, outer)) = path.split_last() else { return FileSettings::default() };
            let outer = outer.iter().try_fold(&mut rest, |value, key| match value {
                Value::Object(members) => members.get_mut(*key),
                Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            });
            match outer {
                Some(Value::Object(members)) => drop(members.remove(*key)),
                Some(Value::Array(items)) => {
                    let index = key.parse().ok().filter(|index| *index < items.len());
                    drop(index.map(|index: usize| items.remove(index)));
                }
                Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {
                }
            }
        }
        serde_json::from_value(rest).unwrap_or_default()
    }

    fn ranges(&mut self, layer: &FileSettings) {
        for (path, why) in ranges::out_of_range(layer) {
            let at = self.places.nearest(path.iter().map(String::as_str));
            let key = path.first().map_or("", String::as_str);
            self.found.push((self.places.value(at), format!("\"{key}\" {why}")));
        }
    }

    /// The syntax of a rule does not depend on its folder.
    fn rules(&mut self, value: &Value) {
        let root = Path::new("/");
        for list in ["allow", "ask", "deny"] {
            let rules = value.pointer(&format!("/permissions/{list}")).and_then(Value::as_array);
            for (index, rule) in rules.into_iter().flatten().enumerate() {
                let Some(rule) = rule.as_str() else { continue };
                let read = if list == "allow" { check_allowance } else { check_restriction };
                let index = index.to_string();
                let at = self.places.start(self.places.nearest(["permissions", list, &index]));
                if let Err(why) = read(rule, root, Some(root)) {
                    let why = format!("\"permissions.{list}\": `{rule}` is no rule: {why}");
                    self.found.push((at, why));
                } else if let Some(BadRuleName { why, is_near }) = rule_names::check_rule_name(rule)
                {
                    let why = format!("the rule \"{rule}\" of permissions.{list} {why}");
                    // A typo in a rule that restricts the run is a hard error.
                    let restricts = list != "allow";
                    let told =
                        if is_near && restricts { &mut self.found } else { &mut self.remarks };
                    told.push((at, why));
                }
            }
        }
    }

    /// Removes and reports events that are probably mistyped.
    fn events(&mut self, hooks: &mut Value) {
        let Some(events) = hooks.as_object_mut() else { return };
        events.retain(|event, _| {
            let known = HookEvent::ALL.into_iter().map(HookEvent::name);
            let near = known.clone().find(|known| is_mistyped(event, known));
            let is_known = known.clone().any(|known| known == event) || is_foreign_event(event);
            let Some(meant) = near.filter(|_| !is_known) else { return true };
            let at = self.places.start(self.places.nearest(["hooks", event]));
            let why = format!(
                "\"hooks.{event}\": there is no such event; did you mean \"{meant}\"?; see \
                 outlast-hooks(7)"
            );
            self.found.push((at, why));
            false
        });
    }

    /// Parses hooks repeatedly, each time without the mistakes found so far.
    fn hooks(&mut self, mut hooks: Value) {
        self.events(&mut hooks);
        while let Err(BadHook { place, why }) = read_hooks(&hooks) {
            let keys: Vec<&str> = locate::keys(&place).collect();
            let at = self.places.nearest(keys.iter().copied());
            let mut why = why.as_str();
            if why.starts_with("invalid type: string") {
                why = "a text is in the place of something else";
            }
            let why = format!("\"{place}\": {why}; see outlast-hooks(7)");
            self.found.push((self.places.start(at), why));
            if self.found.len() > HOOKS_MAX || !remove_invalid_part(&mut hooks, &keys) {
                break;
            }
        }
    }

    /// Returns all mistakes in the order of the text.
    fn sorted_mistakes(mut self, name: &str) -> Vec<String> {
        self.found.sort();
        let more = self.found.len().saturating_sub(TOLD_MAX);
        let line = |((line, column), why)| format!("{name}:{line}:{column}: {why}");
        let mut told: Vec<String> = self.found.into_iter().take(TOLD_MAX).map(line).collect();
        if more > 0 {
            told.push(format!("{name}: {more} more mistakes are not listed; correct these first"));
        }
        told
    }
}

/// The maximum edit distance of a mistyped event. Known events differ by more.
const EVENT_TYPO_MAX: usize = 2;

/// Returns whether a word is a likely typo of another.
fn is_mistyped(word: &str, meant: &str) -> bool {
    distance(&word.to_lowercase(), &meant.to_lowercase()) <= EVENT_TYPO_MAX
}

/// Mistakes in hooks beyond these are not looked for: each is found by reading all hooks again.
const HOOKS_MAX: usize = 100;

/// Parses hooks, and checks their permission rules.
fn read_hooks(value: &Value) -> Result<HookSettings, BadHook> {
    let hooks = HookSettings::parse(value, "")?;
    let root = Path::new("/");
    for handler in &hooks.handlers {
        let Some(rule) = &handler.condition else { continue };
        if let Err(why) = check_restriction(rule, root, Some(root)) {
            let why = format!("`{rule}` is no permission rule: {why}");
            return Err(BadHook { place: format!("{}.if", handler.place), why });
        }
        if let Some(misnomer) =
            rule_names::check_rule_name(rule).filter(|misnomer| misnomer.is_near)
        {
            let why = format!("`{rule}` {}", misnomer.why);
            return Err(BadHook { place: format!("{}.if", handler.place), why });
        }
    }
    Ok(hooks)
}

/// Removes an invalid part of hooks, so that the rest can be parsed. `false`: nothing to remove.
fn remove_invalid_part(hooks: &mut Value, keys: &[&str]) -> bool {
    let pointer = |depth: usize| format!("/{}", keys[1..depth].join("/"));
    let harmless = match keys.len() {
        0 | 1 => return false,
        2 => json!([]),
        3 | 4 => json!({ "hooks": [] }),
        _ => json!({ "type": "command", "command": "true" }),
    };
    let depth = match keys.len() {
        2 => 2,
        3 | 4 => 3,
        _ => 5,
    };
    match hooks.pointer_mut(&pointer(depth)) {
        Some(wrong) if *wrong != harmless => {
            *wrong = harmless;
            true
        }
        Some(_) | None => false,
    }
}

/// Formats the mistake at this path.
fn format_mistake(why: &str, path: &[&str]) -> String {
    let (name, key) = (path.join("."), path.first().copied().unwrap_or_default());
    let said = why.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
    let mut found = said.split(", expected").next().unwrap_or_default();
    let mut said = said;
    if MAY_BE_SECRET.contains(&key) && found.starts_with("string") {
        (found, said) = ("a text", "a text is in the place of something else");
    }
    match (table::takes(key), path.len()) {
        (Some(takes), 1) if !why.starts_with("missing") && !why.starts_with("unknown field") => {
            format!("\"{name}\" takes {takes}; found {found}")
        }
        (Some(_), _) => format!("\"{name}\": {said}; see outlast-settings(5)"),
        (None, _) => format!("{said}; see outlast-settings(5)"),
    }
}
