//! Reads settings files, and says exactly what is wrong with them.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::layer::Layer;
use super::locate::{self, Place};
use super::table;
use crate::cli::usage::UsageError;
use crate::hooks::{HookSettings, Skipped};
use crate::process::reading;

/// Keys of the same family of tools that mean nothing to us, and do no harm when left alone.
const FOREIGN: [&str; 13] = [
    "$schema",
    "attribution",
    "claudeMdExcludes",
    "cleanupPeriodDays",
    "disabledMcpjsonServers",
    "effortLevel",
    "enableAllProjectMcpServers",
    "enabledMcpjsonServers",
    "includeCoAuthoredBy",
    "outputStyle",
    "respectGitignore",
    "spinnerTipsEnabled",
    "statusLine",
];

/// One text of settings, without mistakes.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    /// The file's, for messages.
    pub name: String,
    pub value: Value,
}

impl Parsed {
    pub(super) fn layer(&self) -> Layer {
        typed(&self.value)
    }
}

/// Settings that were read: the merged values, and what should be said about them.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded {
    merged: Value,
    pub hooks: HookSettings,
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Lays one text over what was read so far.
    pub(super) fn lay(mut self, parsed: Parsed) -> Self {
        let layer = parsed.layer();
        let Parsed { name, value } = parsed;
        if let Some(hooks) = hooks(&value, &name) {
            for Skipped { place, why, .. } in &hooks.skipped {
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
        // A server is one thing: of two entries the later one counts, all of it.
        if let (Some(Value::Object(known)), Some(Value::Object(servers))) =
            (self.merged.get_mut("mcpServers"), value.get("mcpServers"))
        {
            known.retain(|name, _| !servers.contains_key(name));
        }
        self.merged = merge(self.merged, value);
        self
    }

    /// What all files come to.
    pub(super) fn layer(&self) -> Layer {
        typed(&self.merged)
    }
}

fn typed(value: &Value) -> Layer {
    let value = if value.is_null() { Value::Object(Map::new()) } else { value.clone() };
    serde_json::from_value(value).expect("every file had the right shape, and merging keeps shapes")
}

/// Reads one file. A missing one says nothing.
pub(super) fn file(path: &Path) -> Result<Option<Parsed>, UsageError> {
    let shown = path.display().to_string();
    match reading::read(path) {
        Ok(bytes) => content(&shown, bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(unreadable(&shown, &error)),
    }
}

/// Reads what `--settings` names: JSON when it begins like it, otherwise a file that must be
/// there.
pub(super) fn flag(given: &str) -> Result<Parsed, UsageError> {
    if given.trim_start().starts_with('{') {
        return text("--settings", given);
    }
    let bytes = reading::read(Path::new(given)).map_err(|error| unreadable(given, &error))?;
    content(given, bytes)
}

/// Reads the content of a file.
pub(super) fn content(name: &str, bytes: Vec<u8>) -> Result<Parsed, UsageError> {
    text(name, &utf8(name, bytes)?)
}

fn text(name: &str, text: &str) -> Result<Parsed, UsageError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok(Parsed { name: name.to_owned(), value: parse(name, text)? })
}

/// Whether a key belongs to another tool, and means nothing to us.
pub(super) fn is_foreign(key: &str) -> bool {
    FOREIGN.contains(&key)
}

pub(super) fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn unreadable(name: &str, error: &io::Error) -> UsageError {
    UsageError::new(format!("{name}: cannot be read: {error}; name a readable settings file"))
}

pub(super) fn utf8(name: &str, bytes: Vec<u8>) -> Result<String, UsageError> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..at).unwrap_or_default());
        let (line, column) = locate::line_and_column(&before, before.len());
        UsageError::new(format!("{name}:{line}:{column}: not valid UTF-8; save the file as UTF-8"))
    })
}

/// Checks one text for syntax, shape and unknown keys.
fn parse(name: &str, text: &str) -> Result<Value, UsageError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let at = locate::offset(text, error.line(), error.column());
        let (line, column) = locate::line_and_column(text, at);
        UsageError::new(format!(
            "{name}:{line}:{column}: not valid JSON: {}; correct the file",
            bare(&error)
        ))
    })?;
    let places = locate::places(text);
    let here = |at: usize| {
        let (line, column) = locate::line_and_column(text, at);
        format!("{name}:{line}:{column}")
    };
    if !value.is_object() {
        let at = places.first().map_or(0, |place| place.value.start);
        return Err(UsageError::new(format!(
            "{}: settings are a JSON object; write {{...}}",
            here(at)
        )));
    }
    let layer: Layer = serde_json::from_str(text).map_err(|error| {
        let at = locate::offset(text, error.line(), error.column());
        let place = locate::at(&places, at);
        UsageError::new(format!(
            "{}: {}",
            here(place.map_or(at, |place| place.value.start)),
            complaint(&bare(&error), place)
        ))
    })?;
    if let Some(place) = places.iter().find(
        |place| matches!(&place.path[..], [key] if layer.others.contains_key(key) && !is_foreign(key)),
    ) {
        let key = place.path.first().map_or("", String::as_str);
        return Err(UsageError::new(format!("{}: {}", here(place.start), unknown(key))));
    }
    if let Err((key, why)) = super::resolve::check(&layer) {
        let at = places.iter().find(|place| place.path.first().is_some_and(|first| first == key));
        return Err(UsageError::new(format!(
            "{}: \"{key}\" {why}",
            here(at.map_or(0, |place| place.value.start))
        )));
    }
    if let Some(Err(bad)) = value.get("hooks").map(|hooks| HookSettings::read(hooks, name)) {
        let at = locate::named(&places, &bad.place).map_or(0, |place| place.start);
        return Err(UsageError::new(format!(
            "{}: \"{}\": {}; see HOOKS in outlast(1)",
            here(at),
            bad.place,
            bad.why
        )));
    }
    Ok(value)
}

/// The hooks of one text, which was found without mistakes.
fn hooks(value: &Value, name: &str) -> Option<HookSettings> {
    value.get("hooks").and_then(|hooks| HookSettings::read(hooks, name).ok())
}

/// An error of `serde_json` without the position at its end.
pub(super) fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn complaint(why: &str, place: Option<&Place>) -> String {
    let path = place.map(|place| place.path.join(".")).unwrap_or_default();
    let key = place.and_then(|place| place.path.first()).map_or("", String::as_str);
    let said = why.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
    let found = said.split(", expected").next().unwrap_or_default();
    match (table::takes(key), place.map_or(0, |place| place.path.len())) {
        (Some(takes), 1) if !why.starts_with("missing") && !why.starts_with("unknown field") => {
            format!("\"{path}\" takes {takes}; found {found}")
        }
        (Some(_), _) => format!("\"{path}\": {said}; see SETTINGS in outlast(1)"),
        (None, _) => format!("{said}; see SETTINGS in outlast(1)"),
    }
}

fn unknown(key: &str) -> String {
    match nearest(key) {
        Some(near) => format!("unknown setting \"{key}\"; did you mean \"{near}\"?"),
        None => format!("unknown setting \"{key}\"; remove it, or see SETTINGS in outlast(1)"),
    }
}

/// The known key that differs least, if it differs little.
fn nearest(key: &str) -> Option<&'static str> {
    table::names()
        .map(|name| (distance(&key.to_lowercase(), &name.to_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len() / 3)
        .map(|(_, name)| name)
}

/// How many letters must be added, dropped or changed to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            let cost = (diagonal + usize::from(x != *y)).min(left + 1).min(above + 1);
            diagonal = above;
            row[j] = left;
            left = cost;
        }
        row[b.len()] = left;
    }
    row[b.len()]
}

/// Lays one value over another: objects merge, lists are joined, anything else is replaced.
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
