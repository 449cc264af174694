//! Provenance: where each value in force comes from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Value, json};

use super::load::ParsedSettings;
use super::locate::JsonPaths;
use super::normalise;
use super::redact::redacted;
use super::sandbox;
use super::table::{settings, snake};
use super::unknown_keys::is_ours;
use super::{DEFAULTS, EndpointSettings, McpServers};
use crate::cli::args::{GivenFlags, PermissionMode, RunArgs};
use crate::cli::environment::Variables;
use crate::cli::prompts::NamedAgent;
use crate::cli::timestamps::format_duration;
use crate::cli::values;
use crate::model::BaseUrl;
use crate::recovery::{AccountKind, Limits};
use crate::tools;

/// One value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveValue {
    /// The name as in a settings file; dots for members of objects.
    pub name: String,
    pub value: Value,
    /// A flag, a variable, files with lines, or `default`.
    pub origin: String,
}

/// Settings that a variable can set too, and the variables, highest precedence first.
pub(super) const BY_VARIABLE: [(&str, &[&str]); 15] = [
    ("model", &["ANTHROPIC_MODEL"]),
    ("oauthEndpoint", &["OUTLAST_OAUTH_ENDPOINT"]),
    ("oauthClientId", &["OUTLAST_OAUTH_CLIENT_ID"]),
    ("requestTimeout", &["API_TIMEOUT_MS"]),
    ("bashTimeout", &["BASH_DEFAULT_TIMEOUT_MS"]),
    ("bashMaxTimeout", &["BASH_MAX_TIMEOUT_MS"]),
    ("backgroundWait", &["CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS"]),
    ("maxToolResultChars", &["BASH_MAX_OUTPUT_LENGTH"]),
    ("maxOutputTokens", &["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]),
    ("maxRetries", &["CLAUDE_CODE_MAX_RETRIES"]),
    ("maxTurns", &["CLAUDE_CODE_MAX_TURNS"]),
    ("streamIdleTimeout", &["CLAUDE_STREAM_IDLE_TIMEOUT_MS"]),
    ("schemaTries", &["MAX_STRUCTURED_OUTPUT_RETRIES"]),
    ("maxThinkingTokens", &["MAX_THINKING_TOKENS"]),
    (
        "unattendedRetry",
        &["OUTLAST_UNATTENDED_RETRY", "CLAUDE_CODE_UNATTENDED_RETRY", "CLAUDE_CODE_RETRY_WATCHDOG"],
    ),
];

/// Flags with other names than their settings, as the parser calls them.
pub(super) const BY_FLAG: [(&str, &str); 9] = [
    ("prices", "price"),
    ("permissions.allow", "allowed_tools"),
    ("permissions.deny", "disallowed_tools"),
    ("permissions.defaultMode", "permission_mode"),
    ("permissions.additionalDirectories", "add_dir"),
    ("sandbox.mode", "sandbox"),
    ("sandbox.network.enabled", "sandbox_network"),
    ("caFiles", "ca_file"),
    ("tools", "tools"),
];

#[derive(Clone, Debug, Default)]
pub(super) struct Provenance {
    values: BTreeMap<String, (Value, String)>,
    foreign: Vec<(String, String)>,
}

impl Provenance {
    /// Merges the values of a file over those of earlier files.
    pub(super) fn add_file(&mut self, parsed: &ParsedSettings) {
        let places = JsonPaths::scan(&parsed.text);
        let origin = |path: &[String]| {
            let index = match path {
                [outer, inner] if outer == "sandbox" && inner == "mode" => {
                    let key = sandbox::key_of_mode(&parsed.value);
                    places.nearest(["sandbox", key])
                }
                _ => places.nearest(path.iter().map(String::as_str)),
            };
            format!("{}:{}", parsed.name, places.line(index))
        };
        let below = self.values.get("sandbox.mode").map(|(mode, _)| mode);
        let mut value = parsed.value.clone();
        sandbox::normalise_mode(&json!({ "sandbox": { "mode": below } }), &mut value);
        let mut leaves = Vec::new();
        collect_leaves(&value, &mut Vec::new(), &mut leaves);
        for (path, value) in leaves {
            let origin = origin(&path);
            if path.first().is_some_and(|key| key == "mcpServers") {
                // Lists of all sources are concatenated.
            } else if path.first().is_some_and(|key| !is_ours(key)) {
                self.foreign.push((path[..1].join("."), origin));
            } else {
                self.merge(&path.join("."), value.clone(), origin);
            }
        }
    }

    /// Adds the MCP servers, each with its source.
    pub(super) fn add_servers(&mut self, mcp: McpServers) {
        for (name, server) in mcp.shown {
            let origin = mcp.places.get(&name).cloned().unwrap_or_default();
            self.replace(&format!("mcpServers.{name}"), server, origin);
        }
    }

    fn merge(&mut self, name: &str, value: Value, origin: String) {
        let inside = format!("{name}.");
        let below = self.values.range(inside.clone()..);
        let below: Vec<String> = below
            .map(|(known, _)| known.clone())
            .take_while(|known| known.starts_with(&inside))
            .collect();
        let above = name.match_indices('.').map(|(end, _)| name[..end].to_owned());
        for known in below.into_iter().chain(above) {
            self.values.remove(&known);
        }
        let Some((known, from)) = self.values.get_mut(name) else {
            self.values.insert(name.to_owned(), (value, origin));
            return;
        };
        match (known, value) {
            (Value::Array(known), Value::Array(more)) => {
                known.extend(more);
                *from = format!("{from}, {origin}");
            }
            (known, value) => (*known, *from) = (value, origin),
        }
    }

    /// Merges the variables over the files. `outer` is the environment that outlast was started
    /// with.
    pub(super) fn add_environment(&mut self, outer: &Variables, all: &Variables) {
        let text = |name: &str| {
            let text = all.get(OsStr::new(name))?.to_str()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        for (setting, names) in BY_VARIABLE {
            let said = names.iter().find_map(|name| Some((*name, text(name)?)));
            if let Some((name, text)) = said {
                let origin = self.of_variable(name, outer, all);
                self.replace(setting, parse_variable(name, &text), origin);
            }
        }
        let yes = |text: &str| ["1", "true", "yes", "on"].contains(&&*text.to_ascii_lowercase());
        if text("DISABLE_AUTO_COMPACT").is_some_and(|text| yes(&text)) {
            let origin = self.of_variable("DISABLE_AUTO_COMPACT", outer, all);
            self.replace("autoCompactEnabled", false.into(), origin);
        }
        if text("OUTLAST_NO_SHARED_LIMITS").is_some_and(|text| yes(&text)) {
            let origin = self.of_variable("OUTLAST_NO_SHARED_LIMITS", outer, all);
            self.replace("sharedLimits", false.into(), origin);
        }
        let per_cent = text("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE");
        if let Some(part) = per_cent.and_then(|text| values::per_cent(&text).ok()) {
            let origin = self.of_variable("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", outer, all);
            self.replace("compactAt", part.into(), origin);
        }
        for (name, variable) in [("baseUrl", "ANTHROPIC_BASE_URL"), ("configDir", CONFIG[0])] {
            let variable = if name == "configDir" {
                CONFIG.into_iter().find(|name| text(name).is_some())
            } else {
                text(variable).map(|_| variable)
            };
            let origin = variable.map(|variable| self.of_variable(variable, outer, all));
            self.replace(name, Value::Null, origin.unwrap_or_else(|| DEFAULT.to_owned()));
        }
    }

    /// Formats a variable as provenance, with the file that sets it, if any.
    fn of_variable(&self, name: &str, outer: &Variables, all: &Variables) -> String {
        match self.set_at(name, outer, all) {
            Some(file) => format!("env {name}, set at {file}"),
            None => format!("env {name}"),
        }
    }

    /// Returns the file that sets a variable, unless it was inherited with this value.
    pub(super) fn set_at(&self, name: &str, outer: &Variables, all: &Variables) -> Option<&str> {
        let own = outer.get(OsStr::new(name)) == all.get(OsStr::new(name));
        self.place_of(&format!("env.{name}")).filter(|_| !own)
    }

    /// Where a value of this name comes from.
    pub(super) fn place_of(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(_, origin)| origin.as_str())
    }

    fn replace(&mut self, name: &str, value: Value, origin: String) {
        self.values.insert(name.to_owned(), (value, origin));
    }

    /// Merges the flags over everything else.
    pub(super) fn add_flags(&mut self, given: &GivenFlags) {
        for setting in settings() {
            self.flag(setting.name, &snake(setting.name), given);
        }
        for (setting, flag) in BY_FLAG {
            self.flag(setting, flag, given);
        }
        for (flag, setting, value) in [
            ("no_fallback", "fallbackModel", Value::Array(Vec::new())),
            ("no_auto_compact", "autoCompactEnabled", false.into()),
            ("no_shared_limits", "sharedLimits", false.into()),
            ("dangerously_skip_permissions", "permissions.defaultMode", "bypassPermissions".into()),
        ] {
            if given.contains_key(flag) {
                self.replace(setting, value, named(flag));
            }
        }
        let thinking = given.get("thinking").and_then(|modes| modes.last());
        let tokens = match thinking.map(String::as_str) {
            Some("disabled") => Some(0),
            Some(_) if !self.is_set("maxThinkingTokens") => Some(DEFAULTS.thinking),
            Some(_) | None => None,
        };
        if let Some(tokens) = tokens {
            self.replace("maxThinkingTokens", tokens.into(), named("thinking"));
        }
    }

    fn flag(&mut self, setting: &str, flag: &str, given: &GivenFlags) {
        let Some(texts) = given.get(flag).filter(|_| setting != "sandbox") else { return };
        let list = |texts: &[String]| Value::from(values::list(texts));
        let value = match (setting, texts.as_slice()) {
            ("fast" | "fallbackReturn", _) => true.into(),
            ("sandbox.network.enabled", [one]) => (one != "off").into(),
            ("permissions.allow" | "permissions.deny" | "passEnv" | "tools", texts) => list(texts),
            (_, [one]) if setting != "fallbackModel" => one.as_str().into(),
            (_, texts) => list(texts),
        };
        // Lists of flags are added to those of files.
        let adds = setting.starts_with("permissions.") || setting == "passEnv";
        if adds && value.is_array() {
            self.merge(setting, value, named(flag));
        } else {
            self.replace(setting, value, named(flag));
        }
    }

    pub(super) fn take_unsupported(&mut self) -> Vec<(String, String)> {
        self.foreign.dedup();
        std::mem::take(&mut self.foreign)
    }

    /// Merges the settings of the agent that the run works as, as far as `args` and `limits` use
    /// them; flags outrank them.
    pub(super) fn add_role(&mut self, role: &NamedAgent, args: &RunArgs, limits: &Limits) {
        let NamedAgent { definition: role, file, .. } = role;
        let origin = format!("the agent {} ({file})", role.name);
        let mode = role.permission_mode.map(tools::PermissionMode::name);
        if let Some(model) =
            role.model.as_ref().filter(|own| args.model.model.as_ref() == Some(own))
        {
            self.replace("model", model.as_str().into(), origin.clone());
        }
        if mode.is_some() && mode == args.tools.permission_mode.map(PermissionMode::name) {
            self.replace("permissions.defaultMode", mode.into(), origin.clone());
        }
        if role.max_turns.is_some() && role.max_turns == limits.budgets.turns {
            self.replace("maxTurns", role.max_turns.into(), origin);
        }
    }

    /// Returns all values in force, defaults included, without what may be secret.
    pub(super) fn effective(
        mut self,
        endpoint: &EndpointSettings,
        limits: &Limits,
        config_dir: &Path,
        credentials: &[(&'static str, String)],
        all: &Variables,
    ) -> Vec<EffectiveValue> {
        let url = BaseUrl::parse(&endpoint.base_url).map(|address| address.base());
        let url = url.unwrap_or_else(|_| "(no address)".to_owned());
        let config = config_dir.display().to_string();
        for (name, value) in [("baseUrl", url), ("configDir", config)] {
            let origin = self.values.get(name).map(|(_, origin)| origin.clone());
            self.replace(name, value.into(), origin.unwrap_or_else(|| DEFAULT.to_owned()));
        }
        let credential = credentials.first().map(|(kind, source)| (*kind, source.clone()));
        let (kind, source) = credential.unwrap_or(("none", DEFAULT.to_owned()));
        self.replace("credential", format!("{kind} (not shown)").into(), source);
        self.derive(limits);
        for setting in settings() {
            if !self.is_set(setting.name) {
                let value = normalise::default(setting.name, &setting.default);
                self.replace(setting.name, value, DEFAULT.to_owned());
            }
        }
        let shown = |(name, (value, origin)): (String, (Value, String))| {
            let value = redacted(&name, normalise::normalised(&name, value), all);
            EffectiveValue { name, value, origin }
        };
        self.values.into_iter().map(shown).collect()
    }

    /// Returns whether a setting, or a part of it, is set by any source.
    fn is_set(&self, name: &str) -> bool {
        let inside = format!("{name}.");
        let next = self.values.range(inside.clone()..).next();
        self.values.contains_key(name) || next.is_some_and(|(next, _)| next.starts_with(&inside))
    }

    /// Adds the defaults that depend on something else.
    fn derive(&mut self, limits: &Limits) {
        if !self.is_set("permissions.defaultMode") {
            self.replace("permissions.defaultMode", "default".into(), DEFAULT.to_owned());
        }
        let mode = self.values.get("permissions.defaultMode");
        let bypass = mode.is_some_and(|(mode, _)| mode == "bypassPermissions");
        if !self.is_set("sandbox.mode") {
            let fence = if bypass { "off" } else { "workspace" };
            self.replace("sandbox.mode", fence.into(), DEFAULT.to_owned());
        }
        let account = match limits.account {
            AccountKind::ApiKey => "apiKey",
            AccountKind::Enterprise => "enterprise",
            AccountKind::Subscription => "subscription",
        };
        for (name, value) in [
            ("accountKind", account.to_owned()),
            ("maxRetryWait", normalise::duration(limits.max_retry_wait)),
        ] {
            if !self.is_set(name) {
                self.replace(name, value.into(), DEFAULT.to_owned());
            }
        }
    }
}

const DEFAULT: &str = "default";

const CONFIG: [&str; 2] = ["OUTLAST_CONFIG_DIR", "CLAUDE_CONFIG_DIR"];

/// The leaves of a value: whatever is no object, or an empty one.
fn collect_leaves<'a>(
    value: &'a Value,
    path: &mut Vec<String>,
    leaves: &mut Vec<(Vec<String>, &'a Value)>,
) {
    match value {
        // Hooks are listed by doctor, and are not shown as settings.
        Value::Object(members) if !members.is_empty() && path.first().is_none_or(is_setting) => {
            for (key, inner) in members {
                path.push(key.clone());
                collect_leaves(inner, path, leaves);
                path.pop();
            }
        }
        Value::Object(_)
        | Value::Array(_)
        | Value::String(_)
        | Value::Number(_)
        | Value::Bool(_)
        | Value::Null => leaves.push((path.clone(), value)),
    }
}

fn is_setting(key: &String) -> bool {
    key != "hooks" && key != "mcpServers" && is_ours(key)
}

/// Parses the text of a variable.
fn parse_variable(name: &str, text: &str) -> Value {
    match (name.ends_with("_MS"), values::millis(text)) {
        (true, Ok(duration)) => format_duration(duration).into(),
        (true, Err(_)) | (false, _) => text.into(),
    }
}

fn named(flag: &str) -> String {
    format!("--{}", flag.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::environment::VARIABLES;

    #[test]
    fn provenance_tables_name_existing_flags_and_variables() {
        let command = crate::cli::args::command();
        let ids: Vec<&str> = command.get_arguments().map(|one| one.get_id().as_str()).collect();
        for (setting, flag) in BY_FLAG {
            assert!(ids.contains(&flag), "{setting}: {flag}");
        }
        for (setting, names) in BY_VARIABLE {
            assert!(settings().iter().any(|known| known.name == setting), "{setting}");
            for name in names {
                assert!(VARIABLES.iter().any(|(known, _)| known == name), "{name}");
            }
        }
    }
}
