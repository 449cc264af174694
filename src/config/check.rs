//! Validates settings files: reports every mistake, with its position.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use strsim::osa_distance;

use super::model_entry::{ModelEntryList, SMALLEST_WINDOW};
use super::models::{PriceMap, WindowSizes};
use super::registry;
use super::rule_names::{RuleMistake, check_listed_rule, check_rule_name};
use super::setting::Setting;
use super::spans::{self, JsonPaths};
use super::unknown_keys::{self, UnknownKey, UnknownKeys};
use crate::hooks::{BadHook, HookEvent, HookSettings, is_foreign_event};
use crate::json::is_comment_name;
use crate::text::shortened;
use crate::tools::{RuleList, check_rule};

/// The most mistakes, and the most warnings, that are listed. Further mistakes are counted.
const REPORTED_MAX: usize = 20;

/// A valid settings text.
pub(super) struct ValidSettings {
    /// The settings as written.
    pub value: Value,
    /// The values that the text assigns, in canonical form.
    pub values: Vec<FileValue>,
    pub warnings: Vec<String>,
    /// Warnings about keys that have no effect, although the user probably relies on them.
    relied_on: Vec<String>,
}

/// A value that a file assigns to a setting.
#[derive(Clone, Debug)]
pub(super) struct FileValue {
    pub(super) setting: &'static Setting,
    pub(super) value: Value,
}

impl FileValue {
    /// Returns the assignment of `null`, which unsets a setting. Lists and objects are joined with
    /// those of other files, so `null` adds nothing to them.
    fn null(setting: &'static Setting) -> Option<Self> {
        setting.is_unset_by_null().then_some(Self { setting, value: Value::Null })
    }
}

/// Checks a text for syntax, shape, unknown keys, and invalid values.
///
/// # Errors
/// The mistakes, one line each, in the order of the text; at least one.
pub(super) fn check(name: &str, text: &str) -> Result<ValidSettings, Vec<String>> {
    let (mut valid, found) = search(name, text).map_err(|why| vec![why])?;
    valid.warnings.append(&mut valid.relied_on);
    if found.is_empty() { Ok(valid) } else { Err(in_order(name, found)) }
}

/// The mistakes of a file that belongs to another program.
pub enum ForeignMistakes {
    /// The file is not a JSON object.
    Unreadable(String),
    /// At least one of them is in a value that restricts the run: without the value, the run could
    /// do more than its user wants.
    Restricting(Vec<String>),
}

/// Checks a text that was written for another program, perhaps a later version. Invalid values are
/// left out, with a warning for each, so that the others apply.
pub(super) fn check_foreign(name: &str, text: &str) -> Result<ValidSettings, ForeignMistakes> {
    let (mut valid, mut found) = search(name, text).map_err(ForeignMistakes::Unreadable)?;
    let (restricting, others): (Vec<Mistake>, _) =
        found.drain(..).partition(|mistake| mistake.restricts);
    if !restricting.is_empty() {
        return Err(ForeignMistakes::Restricting(in_order(name, restricting)));
    }
    let mut parts: Vec<Vec<String>> =
        others.iter().filter_map(|mistake| mistake.part.clone()).collect();
    // From the last to the first, so that the indices of the others remain valid.
    parts.sort_by_key(|part| part.iter().map(|key| (key.len(), key.clone())).collect::<Vec<_>>());
    parts.dedup();
    for part in parts.iter().rev() {
        remove(&mut valid.value, part);
    }
    if !others.is_empty() {
        valid.values = values_of(&valid.value);
    }
    // Most unknown keys have no meaning here.
    valid.warnings = in_order(name, others)
        .into_iter()
        .map(|why| format!("{why} (this value is not used)"))
        .chain(std::mem::take(&mut valid.relied_on))
        .collect();
    Ok(valid)
}

/// Removes the part of a value at a path.
fn remove(value: &mut Value, path: &[String]) {
    let Some((last, outer)) = path.split_last() else { return };
    let escaped = outer.iter().map(|key| key.replace('~', "~0").replace('/', "~1"));
    let pointer: String = escaped.flat_map(|key| ["/".to_owned(), key]).collect();
    match value.pointer_mut(&pointer) {
        Some(Value::Object(members)) => {
            members.remove(last);
        }
        Some(Value::Array(items)) => {
            let index = last.parse().ok().filter(|index| *index < items.len());
            index.map(|index: usize| items.remove(index));
        }
        Some(_) | None => {}
    }
}

/// Finds all mistakes of a text, and the values that it assigns.
///
/// # Errors
/// The text is not a JSON object.
fn search(name: &str, text: &str) -> Result<(ValidSettings, Vec<Mistake>), String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| syntax_error(name, text, &error))?;
    let places = JsonPaths::scan(text);
    if !value.is_object() {
        let (line, column) = places.value(0);
        return Err(format!("{name}:{line}:{column}: settings are a JSON object; write {{...}}"));
    }
    let mut search = MistakeSearch {
        text,
        places: &places,
        values: Vec::new(),
        unknown: Vec::new(),
        found: Vec::new(),
        notes: Vec::new(),
    };
    search.find_duplicate_keys();
    search.read_group(0, "");
    let unknown = std::mem::take(&mut search.unknown);
    let UnknownKeys { mistyped, warnings, relied_on } =
        unknown_keys::check_unknown(name, &unknown, &places);
    for (index, why) in mistyped {
        let mistake = Mistake { at: places.start(index), why, part: None, restricts: true };
        search.found.push(mistake);
    }
    search.ranges();
    search.rules(&value);
    if let Some(hooks) = value.get("hooks").filter(|hooks| !hooks.is_null()) {
        search.hooks(hooks.clone());
    }
    let note = |((line, column), why)| format!("{name}:{line}:{column}: {why}");
    let notes = search.notes.into_iter().take(REPORTED_MAX).map(note);
    let warnings = warnings.into_iter().chain(notes).collect();
    let valid = ValidSettings { value, values: search.values, warnings, relied_on };
    Ok((valid, search.found))
}

/// A mistake in a text.
struct Mistake {
    /// Line and column.
    at: (usize, usize),
    why: String,
    /// The path of the part that has to be left out. `None`: nothing has to be left out.
    part: Option<Vec<String>>,
    /// True if a run could do more without the value.
    restricts: bool,
}

/// Returns true if the value at a path restricts the run.
fn restricts(path: &[&str]) -> bool {
    match path {
        // Without a mode, the one that grants least besides `plan` applies.
        ["permissions", "defaultMode"] => false,
        ["hooks", event, ..] => HookEvent::from_name(event).is_none_or(HookEvent::can_be_guarded),
        _ => {
            let settings = (1..=path.len()).rev().map(|depth| path[..depth].join("."));
            let setting = settings.into_iter().find_map(|key| registry::find(&key));
            match setting {
                Some(setting) => setting.can_restrict(),
                None => path.first().is_some_and(|key| registry::is_critical(key)),
            }
        }
    }
}

/// Reads the values of a JSON object that was checked in another way. Leaves out invalid ones.
pub(super) fn values_of(value: &Value) -> Vec<FileValue> {
    let mut values = Vec::new();
    for setting in registry::settings() {
        let inner = value.pointer(&format!("/{}", setting.key.replace('.', "/")));
        let Some(inner) = inner else { continue };
        if inner.is_null() {
            values.extend(FileValue::null(setting));
        } else if let Ok(value) = setting.from_json(&inner.to_string()) {
            values.push(FileValue { setting, value });
        }
    }
    values
}

/// Explains a JSON syntax error, with a hint for comments.
pub fn syntax_error(name: &str, text: &str, error: &serde_json::Error) -> String {
    let at = spans::offset(text, error.line(), error.column());
    let (line, column) = spans::line_and_column(text, at);
    let rest = text.get(at..).unwrap_or_default();
    let why = match without_position(error) {
        _ if text.trim().is_empty() => "the file is empty; write {}, or take it away".to_owned(),
        _ if rest.starts_with("//") || rest.starts_with("/*") => {
            "there are no comments in JSON; take this one out".to_owned()
        }
        _ if rest.starts_with('#') => {
            "there are no comments in JSON that begin with #; take this one out".to_owned()
        }
        why if why == "trailing comma" => format!("{why}; take away the comma before it"),
        why => format!("{why}; correct the file"),
    };
    format!("{name}:{line}:{column}: not valid JSON: {why}")
}

/// Returns the message of a `serde_json` error without the position at its end. Terms of the parser
/// are replaced by ordinary words.
pub fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let why = text.split(" at line ").next().unwrap_or_default();
    let found = IN_WORDS.iter().find(|(beginning, _)| why.starts_with(beginning));
    found.map_or(why, |(_, words)| words).to_owned()
}

/// The beginnings of parser messages, each with the text that replaces the message.
const IN_WORDS: [(&str, &str); 7] = [
    (
        "expected ident",
        "expected true, false, null, or a text in double quotes: this word is none of them",
    ),
    (
        "expected value",
        "expected a value: a text in double quotes, a number, true, false, null, [ or {",
    ),
    ("EOF while parsing a string", "the text ends before the closing double quote"),
    ("EOF while parsing an object", "the text ends before the closing }"),
    ("EOF while parsing a list", "the text ends before the closing ]"),
    ("EOF while parsing a value", "the text ends where a value is expected"),
    ("key must be a string", "expected a name in double quotes"),
];

/// Stands for the type of a value that matches neither of two allowed ones.
pub(super) const NEITHER: &str = "something else";

/// A text being searched for mistakes.
struct MistakeSearch<'a> {
    text: &'a str,
    places: &'a JsonPaths<'a>,
    /// The values that the file assigns. An invalid value is reduced to its valid members.
    values: Vec<FileValue>,
    unknown: Vec<UnknownKey>,
    found: Vec<Mistake>,
    /// The warnings: line and column, and the message.
    notes: Vec<((usize, usize), String)>,
}

impl MistakeSearch<'_> {
    /// Adds a mistake in the value at `index`.
    fn add(&mut self, index: usize, at: (usize, usize), why: String) {
        let path = self.places.path(index);
        let part = path.iter().map(|key| (*key).to_owned()).collect();
        self.found.push(Mistake { at, why, part: Some(part), restricts: restricts(&path) });
    }

    fn find_duplicate_keys(&mut self) {
        for (first, again) in &self.places.repeated {
            let path = self.places.path(*again).join(".");
            let line = self.places.line(*first);
            let why = format!(
                "duplicate key \"{path}\", which line {line} has already; make one of the two"
            );
            // The last of the values counts.
            let restricts = restricts(&self.places.path(*again));
            let at = self.places.start(*again);
            self.found.push(Mistake { at, why, part: None, restricts });
        }
    }

    fn text_of(&self, index: usize) -> &str {
        let place = self.places.get(index);
        place.and_then(|place| self.text.get(place.value.clone())).unwrap_or_default()
    }

    /// Reads an object of settings: the whole file, or a part of it whose key is `prefix`.
    fn read_group(&mut self, index: usize, prefix: &str) {
        for child in self.places.children(index).collect::<Vec<_>>() {
            let Some(place) = self.places.get(child) else { continue };
            let key = format!("{prefix}{}", place.key);
            let setting = registry::find(&key);
            let is_known = setting.is_some() || registry::is_group(&key);
            if is_known && self.text_of(child) == "null" {
                // Programs write `null` where there is nothing to set.
                self.values.extend(setting.and_then(FileValue::null));
            } else if let Some(setting) = setting {
                self.read_setting(setting, child);
            } else if !is_known {
                let value = serde_json::from_str(self.text_of(child)).unwrap_or_default();
                self.unknown.push(UnknownKey { index: child, path: key, value });
            } else if self.text_of(child).replace(char::is_whitespace, "") == "[]" {
                // An empty object of a program that cannot tell the two apart.
            } else if let Err(error) = serde_json::from_str::<Map<_, Value>>(self.text_of(child)) {
                let why = format_mistake(&without_position(&error), &key, &key, false);
                self.add(child, self.places.value(child), why);
            } else {
                self.read_group(child, &format!("{key}."));
            }
        }
    }

    fn read_setting(&mut self, setting: &'static Setting, index: usize) {
        let value = setting.from_json(self.text_of(index)).unwrap_or_else(|_| {
            self.find_type_errors(setting, index, index);
            // Its valid members may still be out of range.
            let members = self.places.children(index).filter_map(|child| {
                let key = Value::from(self.places.get(child)?.key.as_str());
                let alone = format!("{{{key}:{}}}", self.text_of(child));
                setting.from_json(&alone).ok()?.as_object().cloned()
            });
            members.flatten().collect::<Map<_, _>>().into()
        });
        self.values.push(FileValue { setting, value });
    }

    /// Finds the innermost values of the wrong type within the value of a setting, at `root`.
    /// Returns true if there are any.
    fn find_type_errors(&mut self, setting: &Setting, root: usize, index: usize) -> bool {
        let value = self.text_of(index).to_owned();
        let Some(why) = self.type_error(setting, root, index, &value) else { return false };
        // A value that does not fit even when emptied is itself wrong.
        let hollow = if value.starts_with('{') { "{}" } else { "[]" };
        let parts = value.starts_with(['{', '[']) && why != NEITHER;
        let is_hollow_wrong = || self.type_error(setting, root, index, hollow);
        let mut found = false;
        if parts && (value == hollow || is_hollow_wrong().as_ref() != Some(&why)) {
            for child in self.places.children(index).collect::<Vec<_>>() {
                found |= self.find_type_errors(setting, root, child);
            }
        }
        if !found {
            let path = self.places.path(index).join(".");
            let complaint = format_mistake(&why, &path, setting.key, setting.is_secret);
            self.add(index, self.places.value(index), complaint);
        }
        true
    }

    /// Returns the type error of a value, read within its otherwise empty parents up to `root`.
    fn type_error(
        &self,
        setting: &Setting,
        root: usize,
        index: usize,
        value: &str,
    ) -> Option<String> {
        let (mut before, mut after) = (String::new(), String::new());
        let mut at = index;
        while at != root {
            let inner = self.places.get(at)?;
            at = inner.parent?;
            let outer = self.places.get(at)?;
            if self.text.as_bytes().get(outer.value.start) == Some(&b'{') {
                before = format!("{{{}:{before}", Value::from(inner.key.as_str()));
                after.push('}');
            } else {
                before.insert(0, '[');
                after.push(']');
            }
        }
        let end = before.len() + value.len();
        let alone = before + value + &after;
        let error = setting.read_complete(&alone).err()?;
        let why = without_position(&error);
        // Errors after the value are about its emptied parents.
        let beside = spans::offset(&alone, error.line(), error.column()) >= end;
        let aside = why.starts_with("missing field") && beside;
        // Duplicates were already reported.
        (!aside && !why.starts_with("duplicate field")).then_some(why)
    }

    /// Finds values with the right type that are invalid.
    fn ranges(&mut self) {
        let mut wrong: Vec<(Vec<String>, String)> = Vec::new();
        for FileValue { setting, value } in &self.values {
            let own = |why: String| (setting.path(), why);
            let of = |model: &str, why| ([setting.path(), vec![model.to_owned()]].concat(), why);
            match setting.key {
                "fallbackModel" => {
                    let list = ModelEntryList::deserialize(value).unwrap_or_default();
                    let again = list.repeated().map(|entry| &entry.model);
                    wrong.extend(again.map(|it| own(format!("has {it:?} twice; name it once"))));
                }
                "contextWindow" => {
                    let why = format!("must be at least {SMALLEST_WINDOW} tokens");
                    let sizes = WindowSizes::deserialize(value).ok();
                    for model in sizes.iter().flat_map(WindowSizes::too_small) {
                        wrong.push(
                            model.map_or_else(|| own(why.clone()), |model| of(model, why.clone())),
                        );
                    }
                }
                "prices" => {
                    let prices = PriceMap::deserialize(value).unwrap_or_default();
                    wrong.extend(prices.unpayable().map(|model| {
                        let what = "has no price in US dollars per million tokens for";
                        of(model, format!("{what} {model:?}"))
                    }));
                }
                _ => {}
            }
        }
        for (path, why) in wrong {
            let at = self.places.nearest(path.iter().map(String::as_str));
            let key = path.first().map_or("", String::as_str);
            self.add(at, self.places.value(at), format!("\"{key}\" {why}"));
        }
    }

    /// Checks the permission rules.
    fn rules(&mut self, value: &Value) {
        for list in [RuleList::Allow, RuleList::Ask, RuleList::Deny] {
            let rules = value.pointer(&format!("/{}", list.key().replace('.', "/")));
            for (index, rule) in rules.and_then(Value::as_array).into_iter().flatten().enumerate() {
                let Some(rule) = rule.as_str() else { continue };
                let Some(RuleMistake { why, is_error }) = check_listed_rule(rule, list) else {
                    continue;
                };
                let index = index.to_string();
                let path = list.key().split('.').chain([index.as_str()]);
                let place = self.places.nearest(path);
                let at = self.places.start(place);
                if is_error {
                    self.add(place, at, why);
                } else {
                    self.notes.push((at, why));
                }
            }
        }
    }

    /// Removes and reports events that are probably mistyped.
    fn events(&mut self, hooks: &mut Value) {
        let Some(events) = hooks.as_object_mut() else { return };
        events.retain(|event, _| {
            let near = HookEvent::ALL.into_iter().map(HookEvent::name);
            let near = near.into_iter().find(|known| is_mistyped(event, known));
            let is_known = HookEvent::from_name(event).is_some() || is_foreign_event(event);
            // An event that was commented out is reported like any other unknown event.
            let is_meant = !is_known && !is_comment_name(event);
            let Some(meant) = near.filter(|_| is_meant) else { return true };
            let place = self.places.nearest(["hooks", event]);
            let why = format!(
                "\"hooks.{event}\": there is no such event; did you mean \"{meant}\"?; see \
                 outlast-hooks(7)"
            );
            self.add(place, self.places.start(place), why);
            false
        });
    }

    /// Parses hooks repeatedly, each time without the parts in which a mistake was found.
    fn hooks(&mut self, mut hooks: Value) {
        self.events(&mut hooks);
        while let Err(BadHook { place, why }) = read_hooks(&hooks) {
            let keys: Vec<&str> = spans::keys(&place).collect();
            let at = self.places.nearest(keys.iter().copied());
            let mut why = why.as_str();
            if why.starts_with("invalid type: string") {
                why = "a text is in the place of something else";
            }
            let why = format!("\"{place}\": {why}; see outlast-hooks(7)");
            let part = self.places.nearest(keys.iter().copied().take(unit_of_hooks(keys.len())));
            self.add(part, self.places.start(at), why);
            if self.found.len() > HOOKS_MAX || !remove_invalid_part(&mut hooks, &keys) {
                break;
            }
        }
    }
}

/// Returns mistakes as lines, in the order of the text.
fn in_order(name: &str, mut found: Vec<Mistake>) -> Vec<String> {
    found.sort_unstable_by(|one, two| (one.at, &one.why).cmp(&(two.at, &two.why)));
    let more = found.len().saturating_sub(REPORTED_MAX);
    let line = |Mistake { at: (line, column), why, .. }| format!("{name}:{line}:{column}: {why}");
    let mut lines: Vec<String> = found.into_iter().take(REPORTED_MAX).map(line).collect();
    if more > 0 {
        lines.push(format!("{name}: {more} more mistakes are not listed; correct these first"));
    }
    lines
}

/// The maximum edit distance of a mistyped event. Known events differ by more.
const EVENT_TYPO_MAX: usize = 2;

/// Returns true if a word is a likely typo of another.
fn is_mistyped(word: &str, meant: &str) -> bool {
    osa_distance(&word.to_lowercase(), &meant.to_lowercase()) <= EVENT_TYPO_MAX
}

/// The search for mistakes in hooks ends after this many: each is found by reading all hooks again.
const HOOKS_MAX: usize = 100;

/// Parses hooks, and checks their permission rules.
fn read_hooks(value: &Value) -> Result<HookSettings, BadHook> {
    let hooks = HookSettings::parse(value, "")?;
    let root = Path::new("/");
    for handler in &hooks.handlers {
        let Some(rule) = &handler.condition else { continue };
        if let Err(why) = check_rule(rule, RuleList::Deny, root, Some(root)) {
            let why = format!("`{rule:.200}` is not a permission rule: {why}");
            return Err(BadHook { place: format!("{}.if", handler.place), why });
        }
        if let Some(bad) = check_rule_name(rule).filter(|bad| bad.is_near) {
            let why = format!("`{rule}` {}", bad.why);
            return Err(BadHook { place: format!("{}.if", handler.place), why });
        }
    }
    Ok(hooks)
}

/// Returns the length of the path to the event, the group or the hook with a mistake, by the length
/// of the path to the mistake.
fn unit_of_hooks(keys: usize) -> usize {
    match keys {
        0..=2 => keys,
        3 | 4 => 3,
        _ => 5,
    }
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
    match hooks.pointer_mut(&pointer(unit_of_hooks(keys.len()))) {
        Some(wrong) if *wrong != harmless => {
            *wrong = harmless;
            true
        }
        Some(_) | None => false,
    }
}

/// The maximum number of characters of a wrong value in a message.
const FOUND_MAX: usize = 100;

/// Formats the mistake at a path in the value of a setting.
fn format_mistake(why: &str, path: &str, key: &str, is_secret: bool) -> String {
    let standard = ["invalid type: ", "invalid value: "];
    let standard = standard.into_iter().find_map(|start| why.strip_prefix(start));
    let mut reason = standard.unwrap_or(why);
    let mut found = reason.split(", expected").next().unwrap_or_default();
    if is_secret && found.starts_with("string") {
        (found, reason) = ("a text", "a text is in the place of something else");
    }
    match registry::takes(key) {
        Some(takes)
            if path == key && !why.starts_with("missing") && !why.starts_with("unknown field") =>
        {
            if standard.is_some() {
                // The nearest finite number to 1e999 has 309 digits.
                let found = shortened(found, FOUND_MAX, "...");
                return format!("\"{path}\" takes {takes}; found {found}");
            }
            // Messages of outlast's own parsers end with the remedy, which `takes` already states.
            let wrong = found.split("; ").next().unwrap_or_default();
            format!("\"{path}\" takes {takes}; {wrong}")
        }
        Some(_) | None => format!("\"{path}\": {reason}; see outlast-settings(5)"),
    }
}
