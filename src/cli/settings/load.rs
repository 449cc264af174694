//! Loads settings files, and merges them by precedence.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::file_settings::FileSettings;
use super::locate::{self, JsonPaths};
use super::sandbox;
use super::validation::{self, ValidSettings};
use crate::cli::usage::UsageError;
use crate::cli::values;
use crate::hooks::{HookSettings, SkippedHook};
use crate::process::file_reads;
use crate::tools::anchor_rule;

/// The maximum size of a settings file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A valid settings file, parsed.
#[derive(Clone, Debug)]
pub(super) struct ParsedSettings {
    /// The file's, for messages.
    pub name: String,
    pub value: Value,
    /// The original text, to locate positions.
    pub text: String,
    /// Warnings about it.
    pub warnings: Vec<String>,
    /// The position of each permission rule, by the rule.
    pub rules: Vec<(String, String)>,
}

impl ParsedSettings {
    /// Keeps the parts of a text that are used.
    pub(super) fn new(name: String, value: Value, text: String) -> Self {
        let rules = rules(&name, &text);
        Self { name, value, text, warnings: Vec::new(), rules }
    }

    pub(super) fn layer(&self) -> FileSettings {
        deserialise(&self.value)
    }

    /// Resolves relative path rules against the folder of the file.
    pub(super) fn anchored(mut self, root: &Path) -> Self {
        for list in RULES {
            let pointer = format!("/permissions/{list}");
            let rules = self.value.pointer_mut(&pointer).and_then(Value::as_array_mut);
            for rule in rules.into_iter().flatten() {
                if let Some(text) = rule.as_str() {
                    *rule = Value::String(anchor_rule(text, root));
                }
            }
        }
        for (rule, _) in &mut self.rules {
            *rule = anchor_rule(rule, root);
        }
        self
    }
}

/// The one effective value of `disableBypassPermissionsMode`.
pub(super) const FORBIDS_BYPASS: &str = "disable";

/// The lists of permission rules.
const RULES: [&str; 3] = ["allow", "ask", "deny"];

/// Returns every permission rule of a text, with its position.
fn rules(name: &str, text: &str) -> Vec<(String, String)> {
    let places = JsonPaths::scan(text);
    let mut found = Vec::new();
    for list in RULES {
        let outer = places.nearest(["permissions", list]);
        for index in places.children(outer).filter(|_| places.path(outer).len() == 2) {
            let written = places.get(index).and_then(|place| text.get(place.value.clone()));
            let rule = written.and_then(|written| serde_json::from_str::<String>(written).ok());
            let (line, column) = places.start(index);
            found.extend(rule.map(|rule| (rule, format!("{name}:{line}:{column}"))));
        }
    }
    found
}

/// The merged settings, with warnings.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedSettings {
    merged: Value,
    pub hooks: HookSettings,
    pub warnings: Vec<String>,
    /// The position of each permission rule, by the rule; the last one wins.
    pub rules: Vec<(String, String)>,
    /// The last file that forbids `bypassPermissions`, if any.
    pub forbids_bypass: Option<String>,
}

impl LoadedSettings {
    /// Merges a file over those before.
    pub(super) fn merge_file(mut self, parsed: ParsedSettings) -> Self {
        let layer = parsed.layer();
        let ParsedSettings { name, mut value, warnings, rules, .. } = parsed;
        self.warnings.extend(warnings);
        self.rules.extend(rules);
        if let Some(word) = &layer.permissions.disable_bypass_permissions_mode {
            self.forbids_bypass = (word == FORBIDS_BYPASS).then(|| name.clone());
        }
        if let Some(hooks) = hooks(&value, &name) {
            for SkippedHook { place, why, .. } in &hooks.skipped {
                self.warnings.push(format!("{name}: {place} has no effect: {why}"));
            }
            self.hooks.merge(hooks);
        }
        for key in layer.sandbox.unsupported() {
            self.warnings.push(format!(
                "{name}: \"sandbox.{key}\" is not supported by this version of outlast and has no \
                 effect"
            ));
        }
        split_lists(&mut value);
        sandbox::normalise_mode(&self.merged, &mut value);
        self.merged = merge(self.merged, value);
        self
    }

    /// Drops all hooks so far.
    pub(super) fn drop_hooks(&mut self) {
        self.hooks = HookSettings::default();
    }

    /// Replaces the value of a dotted name. `null` removes it.
    pub(super) fn replace(&mut self, name: &str, value: &Value) {
        let (members, last) = self.members_above(name);
        members.remove(last);
        if !value.is_null() {
            members.insert(last.to_owned(), value.clone());
        }
    }

    /// Adds items to a list.
    pub(super) fn add(&mut self, name: &str, items: &Value) {
        let (members, last) = self.members_above(name);
        let below = members.remove(last).unwrap_or(Value::Null);
        // The items of the contract come first, so that the order is stable.
        let all = if below.is_null() { items.clone() } else { merge(items.clone(), below) };
        members.insert(last.to_owned(), all);
    }

    fn members_above<'a>(&mut self, name: &'a str) -> (&mut Map<String, Value>, &'a str) {
        let mut outer: Vec<&str> = name.split('.').collect();
        let last = outer.pop().unwrap_or(name);
        let mut value = &mut self.merged;
        for key in outer {
            value = object(value).entry(key).or_insert(Value::Null);
        }
        (object(value), last)
    }

    /// Drops all allow rules so far.
    pub(super) fn drop_allow_rules(&mut self) {
        if let Some(permissions) = self.merged.get_mut("permissions").and_then(Value::as_object_mut)
        {
            permissions.remove("allow");
        }
    }

    /// Returns whether every value has the expected type.
    pub(super) fn is_valid(&self) -> bool {
        self.merged.is_null() || serde_json::from_value::<FileSettings>(self.merged.clone()).is_ok()
    }

    /// Returns the merged settings, typed.
    pub(super) fn layer(&self) -> FileSettings {
        deserialise(&self.merged)
    }
}

/// Returns a value as an object, replacing any other type.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object")
}

fn deserialise(value: &Value) -> FileSettings {
    let value = if value.is_null() { Value::Object(Map::new()) } else { value.clone() };
    serde_json::from_value(value).expect("every file had the right shape, and merging keeps shapes")
}

/// Reads one file. `None`: it is missing. Does not block on a pipe.
///
/// # Errors
/// What is wrong with it, one line each.
pub(super) fn read_file(path: &Path) -> Result<Option<ParsedSettings>, Vec<String>> {
    let shown = path.display().to_string();
    match file_reads::read_regular(path, FILE_BYTES_MAX) {
        Ok(bytes) => parse_bytes(&shown, bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(vec![format!(
            "{shown}: cannot be read: {error}; make it a readable file, or take it away"
        )]),
    }
}

/// Reads what `--settings` names: JSON when it begins like it, otherwise a file, or a pipe, that
/// must be there.
///
/// # Errors
/// What is wrong with it, one line each.
pub(super) fn parse_flag(given: &str) -> Result<ParsedSettings, Vec<String>> {
    if given.trim_start().starts_with('{') {
        return text("--settings", given);
    }
    let bytes = file_reads::read_bounded(Path::new(given), FILE_BYTES_MAX).map_err(|error| {
        vec![format!("{given}: cannot be read: {error}; name a readable settings file")]
    })?;
    parse_bytes(given, bytes)
}

/// Reads the content of a file.
///
/// # Errors
/// What is wrong with it, one line each.
pub(super) fn parse_bytes(name: &str, bytes: Vec<u8>) -> Result<ParsedSettings, Vec<String>> {
    let decoded = utf8(name, bytes).map_err(|error| vec![error.to_string()])?;
    text(name, &decoded)
}

fn text(name: &str, text: &str) -> Result<ParsedSettings, Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let ValidSettings { value, warnings } = validation::check(name, text)?;
    Ok(ParsedSettings { warnings, ..ParsedSettings::new(name.to_owned(), value, text.to_owned()) })
}

pub(super) fn is_meaningful(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// Reads a text.
///
/// # Errors
/// The position of the first invalid byte.
pub(super) fn utf8(name: &str, bytes: Vec<u8>) -> Result<String, UsageError> {
    let wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..at).unwrap_or_default());
        let (line, column) = locate::line_and_column(&before, before.len());
        let what = if wide { "this is UTF-16, and not UTF-8" } else { "not valid UTF-8" };
        UsageError::new(format!("{name}:{line}:{column}: {what}; save the file as UTF-8"))
    })
}

/// Returns the hooks of a valid text.
fn hooks(value: &Value, name: &str) -> Option<HookSettings> {
    value.get("hooks").and_then(|hooks| HookSettings::parse(hooks, name).ok())
}

/// Converts comma-separated texts to lists, which can be merged.
fn split_lists(value: &mut Value) {
    for key in ["fallbackModel", "passEnv", "webFetchPrivateHosts"] {
        let Some(list) = value.get_mut(key) else { continue };
        if let Some(text) = list.as_str() {
            *list = values::list(&[text]).into();
        }
    }
}

/// Merges two values: objects are merged, lists concatenated, anything else replaced.
fn merge(under: Value, over: Value) -> Value {
    match (under, over) {
        (Value::Object(mut under), Value::Object(over)) => {
            for (key, value) in over {
                let below = under.remove(&key).unwrap_or(Value::Null);
                under.insert(key, merge(below, value));
            }
            Value::Object(under)
        }
        (Value::Array(mut under), Value::Array(over)) => {
            under.extend(over);
            Value::Array(under)
        }
        (_, over) => over,
    }
}
