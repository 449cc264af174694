//! The fold of all sources, the lowest first: it yields each value in force, and its origin.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Bound;

use serde::Serialize;
use serde_json::{Map, Value};

use super::ConfigError;
use super::check::FileValue;
use super::file::ParsedSettings;
use super::flags::FlagValue;
use super::kinds::BypassProhibition;
use super::redact::redacted;
use super::registry::{self, settings};
use super::sandbox_mode;
use super::setting::Setting;
use super::settings::Config;
use super::spans::JsonPaths;
use super::variables::VariableValue;
use crate::hooks::{HookSettings, SkippedHook, project_variables};
use crate::secrets::Variables;

/// The origin of a value that no source sets.
pub const DEFAULT: &str = "default";

/// One value in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EffectiveValue {
    /// The name as in a settings file; dots for members of objects.
    pub name: String,
    pub value: Value,
    /// A flag, a variable, files with lines, or `default`.
    pub origin: String,
}

/// A value and its origin.
#[derive(Clone, Debug)]
struct Folded {
    value: Value,
    origin: String,
}

/// The values of all sources so far.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    /// The values by path. An object is represented by its members, so that each has its own
    /// source.
    values: BTreeMap<Vec<String>, Folded>,
    /// Keys of other tools, with their places.
    pub foreign: Vec<(String, String)>,
    pub hooks: HookSettings,
    pub warnings: Vec<String>,
    /// The last file that forbids `bypassPermissions`, if any.
    pub forbids_bypass: Option<String>,
}

impl Fold {
    /// Merges a file over the values so far: objects are merged, lists are joined, anything else is
    /// replaced.
    pub fn add_file(&mut self, parsed: &ParsedSettings) {
        self.warnings.extend(parsed.warnings.iter().cloned());
        let key = "permissions.disableBypassPermissionsMode";
        if let Some(prohibition) = parsed.get::<Option<BypassProhibition>>(key) {
            self.forbids_bypass = prohibition.map(|_| parsed.name.clone());
        }
        self.add_hooks(parsed, &project_variables(parsed.project.as_deref()));
        let places = JsonPaths::scan(&parsed.text);
        let at = |path: &[&str]| {
            let index = places.nearest(path.iter().copied());
            format!("{}:{}", parsed.name, places.line(index))
        };
        for key in parsed.value.as_object().into_iter().flat_map(Map::keys) {
            if key != "$schema" && !registry::names().any(|name| name == key) {
                self.foreign.push((key.clone(), at(&[key])));
            }
        }
        self.foreign.dedup();
        let below = self.values.get(&path_of("sandbox.mode")).map(|folded| &folded.value);
        let (values, mode_key) = sandbox_mode::unify(parsed.values.clone(), below);
        for FileValue { setting, value } in values {
            // Servers of all sources are merged where they are read.
            if setting.key == "mcpServers" || setting.is_unset_by(&value) {
                continue;
            }
            if value.is_null() {
                self.forget(setting.key);
                continue;
            }
            let mut leaves = Vec::new();
            collect_leaves(setting, setting.path(), value, &mut leaves);
            for (path, value) in leaves {
                let written =
                    if setting.key == "sandbox.mode" { path_of(mode_key) } else { path.clone() };
                let written: Vec<&str> = written.iter().map(String::as_str).collect();
                self.merge(path, value, at(&written));
            }
        }
    }

    /// Adds the hooks of a plugin, with variables of their own. Other keys of the file have no
    /// effect. Warnings about them are left out if there are hooks, since such a file may contain
    /// keys that describe it.
    pub fn add_plugin_hooks(&mut self, parsed: &ParsedSettings, variables: &[(String, String)]) {
        if parsed.value.get("hooks").is_none() {
            self.warnings.extend(parsed.warnings.iter().cloned());
        }
        self.add_hooks(parsed, variables);
    }

    fn add_hooks(&mut self, parsed: &ParsedSettings, variables: &[(String, String)]) {
        let hooks = parsed.value.get("hooks");
        let Some(Ok(hooks)) = hooks.map(|hooks| HookSettings::parse(hooks, &parsed.name)) else {
            return;
        };
        for SkippedHook { place, why, .. } in &hooks.skipped {
            self.warnings.push(format!("{}: {place} has no effect: {why}", parsed.name));
        }
        self.hooks.merge(hooks.with_variables(variables));
    }

    /// Merges a variable over the values so far. `file` is the file that sets the variable, if any.
    pub fn add_variable(&mut self, assigned: VariableValue, file: Option<&str>) {
        let origin = variable_origin(assigned.variable, file);
        self.replace(assigned.setting, assigned.value, &origin);
    }

    /// Merges a flag over the values so far.
    pub fn add_flag(&mut self, assigned: FlagValue) {
        let FlagValue { setting, flag, value } = assigned;
        let origin = format!("--{flag}");
        if !setting.is_joined {
            return self.replace(setting, value, &origin);
        }
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let path = [setting.path(), vec![name]].concat();
                    self.remove(&path);
                    self.insert(setting, path, value, &origin);
                }
            }
            Value::Array(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => self.merge(setting.path(), value, origin),
        }
    }

    /// Replaces the value of a setting.
    pub fn replace(&mut self, setting: &Setting, value: Value, origin: &str) {
        if setting.is_unset_by(&value) {
            return;
        }
        self.remove(&setting.path());
        self.insert(setting, setting.path(), value, origin);
    }

    /// Adds items before those of a list, so that adding them again keeps the order.
    pub fn prepend(&mut self, setting: &Setting, items: Value, origin: &str) {
        let below = self.values.remove(&setting.path());
        self.replace(setting, items, origin);
        if let Some(Folded { value, origin }) = below {
            self.merge(setting.path(), value, origin);
        }
    }

    /// Removes a setting.
    pub fn forget(&mut self, key: &str) {
        self.remove(&path_of(key));
    }

    fn insert(&mut self, setting: &Setting, path: Vec<String>, value: Value, origin: &str) {
        let mut leaves = Vec::new();
        collect_leaves(setting, path, value, &mut leaves);
        for (path, value) in leaves {
            self.merge(path, value, origin.to_owned());
        }
    }

    /// Removes the values at a path and below it.
    fn remove(&mut self, path: &[String]) {
        let within: Vec<_> = self.within(path).map(|(known, _)| known.clone()).collect();
        for known in within {
            self.values.remove(&known);
        }
    }

    fn merge(&mut self, path: Vec<String>, value: Value, origin: String) {
        // An object without members adds none.
        if value.as_object().is_some_and(Map::is_empty) && self.within(&path).next().is_some() {
            return;
        }
        // Values at and below one path exclude each other.
        if self.within(&path).any(|(known, _)| *known != path) {
            self.remove(&path);
        }
        for length in 1..path.len() {
            self.values.remove(&path[..length]);
        }
        let Some(folded) = self.values.get_mut(&path) else {
            self.values.insert(path, Folded { value, origin });
            return;
        };
        match (&mut folded.value, value) {
            (Value::Array(known), Value::Array(more)) => {
                known.extend(more);
                folded.origin = format!("{}, {origin}", folded.origin);
            }
            (known, value) => {
                *known = value;
                folded.origin = origin;
            }
        }
    }

    /// Returns the values at a path and below it.
    fn within<'a>(
        &'a self,
        path: &'a [String],
    ) -> impl Iterator<Item = (&'a Vec<String>, &'a Folded)> {
        let from = self.values.range::<[String], _>((Bound::Included(path), Bound::Unbounded));
        from.take_while(move |(known, _)| known.starts_with(path))
    }

    /// Returns true if any source sets a setting, or a part of it.
    pub fn is_set(&self, key: &str) -> bool {
        self.within(&path_of(key)).next().is_some()
    }

    /// Returns the origin of the value at a path.
    pub fn origin(&self, path: &[&str]) -> Option<&str> {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.values.get(&path).map(|folded| folded.origin.as_str())
    }

    /// Returns the value of a setting so far, or its default. `None`: it has none.
    pub fn value_below(&self, setting: &Setting) -> Option<Value> {
        let default = || Some(setting.default.clone()).filter(|value| !value.is_null());
        self.value(setting).or_else(default)
    }

    /// Returns the value of a setting. `None`: it is not set.
    fn value(&self, setting: &Setting) -> Option<Value> {
        let root = setting.path();
        let mut whole = None;
        for (path, folded) in self.within(&root) {
            let slot = whole.get_or_insert(Value::Null);
            let inner = path.iter().skip(root.len()).fold(slot, |outer, key| {
                if !outer.is_object() {
                    *outer = Value::Object(Map::new());
                }
                &mut outer[key.as_str()]
            });
            *inner = folded.value.clone();
        }
        whole
    }

    /// Returns the settings in force.
    ///
    /// # Errors
    /// A setting does not accept its value, which the sources should have checked.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for setting in settings() {
            if let Some(value) = self.value(setting) {
                config
                    .assign(setting.key, value)
                    .map_err(|error| ConfigError::new(format!("{}: {error}", setting.key)))?;
            }
        }
        Ok(config)
    }

    /// Returns the file that sets a variable, unless it was inherited with this value. `outer` is
    /// the environment that outlast was started with, `all` the one with the additions of files.
    pub fn set_at(&self, name: &str, outer: &Variables, all: &Variables) -> Option<&str> {
        let is_inherited = outer.get(OsStr::new(name)) == all.get(OsStr::new(name));
        self.origin(&["env", name]).filter(|_| !is_inherited)
    }

    /// Returns all values in force, defaults included, with possible secrets redacted. `derived`
    /// are defaults that depend on other settings; `all` is the environment.
    pub fn effective(&self, derived: &[(&str, Value)], all: &Variables) -> Vec<EffectiveValue> {
        let mut effective = Vec::new();
        for setting in settings() {
            let path = setting.path();
            let before = effective.len();
            effective.extend(self.within(&path).map(|(path, folded)| {
                let (name, value) = (shown(path), folded.value.clone());
                let value = redacted(&name, value, all);
                EffectiveValue { name, value, origin: folded.origin.clone() }
            }));
            // Servers are listed one by one.
            let is_listed = setting.form_of.is_none() && setting.key != "mcpServers";
            if effective.len() == before && is_listed {
                let derived = derived.iter().find(|(key, _)| *key == setting.key);
                let value = derived.map_or_else(|| setting.default.clone(), |it| it.1.clone());
                let value = if is_empty(&value) { Value::Null } else { value };
                let (name, origin) = (setting.key.to_owned(), DEFAULT.to_owned());
                effective.push(EffectiveValue { name, value, origin });
            }
        }
        effective
    }
}

/// Formats a variable as the source of a value.
pub fn variable_origin(name: &str, file: Option<&str>) -> String {
    match file {
        Some(file) => format!("env {name}, set at {file}"),
        None => format!("env {name}"),
    }
}

/// Formats a path as a dotted name. A star stands for all models without an entry of their own.
fn shown(path: &[String]) -> String {
    let names = path.iter().map(|name| if name.is_empty() { "*" } else { name.as_str() });
    names.collect::<Vec<_>>().join(".")
}

fn path_of(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

/// Collects the leaves of a value: everything but objects with members. Hooks are one leaf: they
/// are merged where they are read.
fn collect_leaves(
    setting: &Setting,
    path: Vec<String>,
    value: Value,
    leaves: &mut Vec<(Vec<String>, Value)>,
) {
    match value {
        Value::Object(members) if !members.is_empty() && setting.key != "hooks" => {
            for (key, inner) in members {
                collect_leaves(setting, [path.clone(), vec![key]].concat(), inner, leaves);
            }
        }
        Value::Object(_)
        | Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => leaves.push((path, value)),
    }
}
