//! Reads settings files, and says exactly what is wrong with them.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::layer::Layer;
use super::locate::{self, Place};
use super::{naming, strange, table};
use crate::cli::nearness::distance;
use crate::cli::usage::UsageError;
use crate::hooks::{BadHook, HookEvent, HookSettings, Skipped, is_foreign_event};
use crate::process::reading;
use crate::tools::check_restriction;

/// What is wrong in these is not quoted: it may be a key.
const MAY_BE_SECRET: [&str; 4] = ["apiKeyHelper", "env", "hooks", "mcpServers"];

/// No settings file is larger, in bytes.
const LARGEST: u64 = 1 << 20;

/// One text of settings, without mistakes.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    /// The file's, for messages.
    pub name: String,
    pub value: Value,
    /// As it was written, to find places in it.
    pub text: String,
    /// What should be said about it.
    pub warnings: Vec<String>,
}

impl Parsed {
    pub(super) fn layer(&self) -> Layer {
        typed(&self.value)
    }
}

/// Mistyped no further than this, an event is still the event. All that there are differ by more.
const EVENT_TYPO_MAX: usize = 2;

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
        let Parsed { name, value, warnings, .. } = parsed;
        self.warnings.extend(warnings);
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

    /// Takes away all hooks that were read so far.
    pub(super) fn forget_hooks(&mut self) {
        self.hooks = HookSettings::default();
    }

    /// Takes away all rules so far that allow something.
    pub(super) fn forget_leave(&mut self) {
        if let Some(permissions) = self.merged.get_mut("permissions").and_then(Value::as_object_mut)
        {
            permissions.remove("allow");
        }
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
    match reading::read_bounded(path, LARGEST) {
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
    let bytes = reading::read_bounded(Path::new(given), LARGEST);
    let bytes = bytes.map_err(|error| unreadable(given, &error))?;
    content(given, bytes)
}

/// Reads the content of a file.
pub(super) fn content(name: &str, bytes: Vec<u8>) -> Result<Parsed, UsageError> {
    text(name, &utf8(name, bytes)?)
}

fn text(name: &str, text: &str) -> Result<Parsed, UsageError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (value, warnings) = parse(name, text)?;
    Ok(Parsed { name: name.to_owned(), value, text: text.to_owned(), warnings })
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

/// Checks one text for syntax, shape, unknown keys and rules about no tool, and says what there is
/// to say of these.
fn parse(name: &str, text: &str) -> Result<(Value, Vec<String>), UsageError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let at = locate::offset(text, error.line(), error.column());
        let (line, column) = locate::line_and_column(text, at);
        UsageError::new(format!(
            "{name}:{line}:{column}: not valid JSON: {}",
            no_json(text, &error)
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
    if let Some((first, again)) = locate::repeated(&places) {
        let (line, _) = locate::line_and_column(text, first.start);
        return Err(UsageError::new(format!(
            "{}: duplicate key \"{}\", which line {line} has already; make one of the two",
            here(again.start),
            again.path.join(".")
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
    let strangers = strange::strangers(name, text, &layer, &places).map_err(UsageError::new)?;
    let mut warnings = Vec::from_iter(strangers);
    let misnamed = naming::misnamed(name, text, &layer.permissions, &places);
    warnings.extend(misnamed.map_err(UsageError::new)?);
    if let Err((key, why)) = super::resolve::check(&layer) {
        let at = places.iter().find(|place| place.path.first().is_some_and(|first| first == key));
        return Err(UsageError::new(format!(
            "{}: \"{key}\" {why}",
            here(at.map_or(0, |place| place.value.start))
        )));
    }
    if let Some(Err(bad)) = value.get("hooks").map(|hooks| read_hooks(hooks, name)) {
        let at = locate::named(&places, &bad.place).map_or(0, |place| place.start);
        return Err(UsageError::new(format!(
            "{}: \"{}\": {}; see HOOKS in outlast(1)",
            here(at),
            bad.place,
            bad.why
        )));
    }
    Ok((value, warnings))
}

/// Why a text is no JSON. Comments are what people most often expect of it.
fn no_json(text: &str, error: &serde_json::Error) -> String {
    let at = locate::offset(text, error.line(), error.column());
    let rest = text.get(at..).unwrap_or_default();
    if rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#') {
        return "there are no comments in JSON; take this one out".to_owned();
    }
    match bare(error) {
        why if why == "trailing comma" => format!("{why}; take away the comma before it"),
        why => format!("{why}; correct the file"),
    }
}

/// Reads hooks, and looks at what only the tools know to be wrong.
fn read_hooks(value: &Value, name: &str) -> Result<HookSettings, BadHook> {
    let hooks = HookSettings::read(value, name)?;
    for Skipped { place, .. } in &hooks.skipped {
        let event = place.trim_start_matches("hooks.");
        let near = |known: &HookEvent| is_mistyped(event, known.name());
        let known_elsewhere = is_foreign_event(event);
        if let Some(meant) = HookEvent::ALL.into_iter().find(near).filter(|_| !known_elsewhere) {
            let why = format!("there is no such event; did you mean \"{}\"?", meant.name());
            return Err(BadHook { place: place.clone(), why });
        }
    }
    for handler in &hooks.handlers {
        let Some(rule) = &handler.condition else { continue };
        // Whether it is a rule does not depend on where it is seen from.
        let place = || format!("{}.if", handler.place);
        if let Err(why) = check_restriction(rule, Path::new("/"), None) {
            let why = format!("`{rule}` is no permission rule: {why}");
            return Err(BadHook { place: place(), why });
        }
        if let Some(misnomer) = naming::misnomer(rule).filter(|misnomer| misnomer.is_near) {
            let why = format!("`{rule}` {}", misnomer.why);
            return Err(BadHook { place: place(), why });
        }
    }
    Ok(hooks)
}

/// Whether a word is another one, but for a letter or two and their cases.
fn is_mistyped(word: &str, meant: &str) -> bool {
    distance(&word.to_lowercase(), &meant.to_lowercase()) <= EVENT_TYPO_MAX
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
    let mut found = said.split(", expected").next().unwrap_or_default();
    let mut said = said;
    if MAY_BE_SECRET.contains(&key) && found.starts_with("string") {
        (found, said) = ("a text", "a text is in the place of something else");
    }
    match (table::takes(key), place.map_or(0, |place| place.path.len())) {
        (Some(takes), 1) if !why.starts_with("missing") && !why.starts_with("unknown field") => {
            format!("\"{path}\" takes {takes}; found {found}")
        }
        (Some(_), _) => format!("\"{path}\": {said}; see SETTINGS in outlast(1)"),
        (None, _) => format!("{said}; see SETTINGS in outlast(1)"),
    }
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
