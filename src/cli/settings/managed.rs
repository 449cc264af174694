//! Managed settings, written by the administrator of the machine. They outrank everything else: a
//! flag or a variable that contradicts them has no effect.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde_json::Value;

use super::file_settings::FileSettings;
use super::load::{LoadedSettings, ParsedSettings};
use super::provenance::{BY_FLAG, BY_VARIABLE};
use super::table::{self, snake};
use crate::cli::args::{GivenFlags, RunArgs};
use crate::cli::environment::Variables;
use crate::hooks::HookHandler;

/// Where they are, lowest first.
#[cfg(target_os = "macos")]
pub const MANAGED_FILES: [&str; 2] = [
    "/Library/Application Support/ClaudeCode/managed-settings.json",
    "/Library/Application Support/outlast/managed-settings.json",
];
/// Where they are, lowest first.
#[cfg(not(target_os = "macos"))]
pub const MANAGED_FILES: [&str; 2] =
    ["/etc/claude-code/managed-settings.json", "/etc/outlast/managed-settings.json"];

/// The files of this machine.
pub(super) fn files() -> Vec<PathBuf> {
    MANAGED_FILES.iter().map(PathBuf::from).collect()
}

/// The content of the managed files.
#[derive(Clone, Debug, Default)]
pub(super) struct ManagedSettings {
    pub(super) files: Vec<ParsedSettings>,
}

impl ManagedSettings {
    /// Merges them over everything else.
    pub(super) fn merge_over(&self, mut loaded: LoadedSettings) -> LoadedSettings {
        if self.is_true("allowManagedHooksOnly") {
            loaded.drop_hooks();
        }
        if self.is_true("allowManagedPermissionRulesOnly") {
            loaded.drop_allow_rules();
        }
        self.files.iter().cloned().fold(loaded, LoadedSettings::merge_file)
    }

    /// Removes flags and variables for settings that the managed files set.
    pub(super) fn remove_outranked(
        &self,
        args: &mut RunArgs,
        given: &mut GivenFlags,
        variables: &mut Variables,
    ) {
        for file in &self.files {
            let members = file.value.as_object().into_iter().flatten();
            for (key, value) in members {
                self.decide(key, value, args, given, variables);
            }
        }
        if self.is_true("allowManagedPermissionRulesOnly") {
            args.tools.allowed_tools.clear();
            given.remove("allowed_tools");
        }
    }

    fn decide(
        &self,
        key: &str,
        value: &Value,
        args: &mut RunArgs,
        given: &mut GivenFlags,
        variables: &mut Variables,
    ) {
        let names: Vec<String> = match (key, value) {
            ("permissions" | "sandbox", Value::Object(members)) => {
                members.keys().map(|inner| format!("{key}.{inner}")).collect()
            }
            _ => vec![key.to_owned()],
        };
        for name in &names {
            let others = OTHERS.iter().filter(|row| row.0 == name);
            let known = BY_VARIABLE.iter().filter(|row| row.0 == name);
            let known = known.flat_map(|row| row.1.iter().copied());
            // The same file may set it.
            for variable in known.chain(others.clone().map(|row| row.1)) {
                if !self.sets(variable) {
                    variables.remove(OsStr::new(variable));
                }
            }
            for flag in flags(name).chain(others.map(|row| row.2.to_owned())) {
                given.remove(&flag);
            }
            clear_flag(name, args);
            clear_timer_flag(name, args);
        }
    }

    /// Adds the variables of the files, and removes those that are outranked.
    pub(super) fn apply_variables(
        &self,
        args: &RunArgs,
        file: &FileSettings,
        variables: &mut Variables,
    ) -> RunArgs {
        let own = file.env.iter().map(|(name, value)| (name.into(), value.into()));
        variables.extend(own);
        let mut args = args.clone();
        self.remove_outranked(&mut args, &mut GivenFlags::new(), variables);
        args
    }

    /// Selects the hooks that run. Hooks of managed files run even if the user disables hooks.
    pub(super) fn select_hooks(
        &self,
        hooks: Vec<HookHandler>,
        off: Option<bool>,
    ) -> Vec<HookHandler> {
        if off != Some(true) && !self.is_true("allowManagedHooksOnly") {
            return hooks;
        }
        if self.is_true("disableAllHooks") {
            return Vec::new();
        }
        let own = |hook: &HookHandler| self.files.iter().any(|file| file.name == hook.source);
        hooks.into_iter().filter(own).collect()
    }

    fn is_true(&self, key: &str) -> bool {
        let last = self.files.iter().rev().find_map(|file| file.value.get(key));
        last.and_then(Value::as_bool) == Some(true)
    }

    /// Whether a managed file sets a variable.
    pub(super) fn sets(&self, variable: &str) -> bool {
        self.files.iter().any(|file| file.value["env"].get(variable).is_some())
    }
}

/// The variable and the flag of a setting with other names. Either may be empty.
const OTHERS: [(&str, &str, &str); 8] = [
    ("autoCompactEnabled", "DISABLE_AUTO_COMPACT", "no_auto_compact"),
    ("compactAt", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", ""),
    ("fallbackModel", "", "no_fallback"),
    ("maxThinkingTokens", "", "thinking"),
    ("permissions.defaultMode", "", "dangerously_skip_permissions"),
    ("sandbox.enabled", "", "sandbox"),
    ("sandbox.failIfUnavailable", "", "sandbox"),
    ("sharedLimits", "OUTLAST_NO_SHARED_LIMITS", "no_shared_limits"),
];

/// The flags about a setting, as the parser calls them.
fn flags(setting: &str) -> impl Iterator<Item = String> {
    // Lists of rules and folders are concatenated across all sources.
    let joined =
        ["permissions.allow", "permissions.deny", "permissions.additionalDirectories", "passEnv"];
    let joined = joined.contains(&setting);
    let own = table::names().any(|known| known == setting && !joined).then(|| snake(setting));
    let inside = format!("{setting}.");
    let about = move |row: &&(&str, &str)| {
        !joined && (inside.trim_end_matches('.') == row.0 || row.0.starts_with(&inside))
    };
    own.into_iter().chain(BY_FLAG.iter().filter(about).map(|row| row.1.to_owned()))
}

/// Removes a flag.
fn clear_flag(setting: &str, args: &mut RunArgs) {
    let RunArgs { limits, acceptance, model, tools, prompts, .. } = args;
    match setting {
        "agent" => prompts.agent = None,
        "apiKeyHelper" => model.api_key_helper = None,
        "model" => model.model = None,
        "fallbackModel" => {
            model.fallback_model.clear();
            model.no_fallback = false;
        }
        "fallbackReturn" => model.fallback_return = false,
        "fast" => model.fast = false,
        "prices" => model.price.clear(),
        "contextWindow" => model.context_window.clear(),
        "autoCompactEnabled" => model.no_auto_compact = false,
        "maxCompactions" => model.max_compactions = None,
        "maxThinkingTokens" => {
            model.max_thinking_tokens = None;
            model.thinking = None;
        }
        "maxOutputTokens" => model.max_output_tokens = None,
        "maxTurns" => limits.max_turns = None,
        "maxBudgetUsd" => limits.max_budget_usd = None,
        "budgetMode" => limits.budget_mode = None,
        "maxDuration" => limits.max_duration = None,
        "tokenBudget" => limits.token_budget = None,
        "maxRetries" => limits.max_retries = None,
        "maxRetryWait" => limits.max_retry_wait = None,
        "sharedLimits" => limits.no_shared_limits = false,
        "require" => acceptance.require = None,
        "requireTimeout" => acceptance.require_timeout = None,
        "permissions.defaultMode" => {
            tools.permission_mode = None;
            tools.dangerously_skip_permissions = false;
        }
        "sandbox.mode" | "sandbox.enabled" | "sandbox.failIfUnavailable" => tools.sandbox = None,
        "sandbox.network" => tools.sandbox_network = None,
        "childEnv" => tools.child_env = None,
        "onDenied" => tools.on_denied = None,
        _ => {}
    }
}

/// The same for timers.
fn clear_timer_flag(setting: &str, args: &mut RunArgs) {
    let timers = &mut args.timers;
    match setting {
        "connectTimeout" => timers.connect_timeout = None,
        "firstByteTimeout" => timers.first_byte_timeout = None,
        "streamIdleTimeout" => timers.stream_idle_timeout = None,
        "streamProgressTimeout" => timers.stream_progress_timeout = None,
        "replyTimeout" => timers.reply_timeout = None,
        "requestTimeout" => timers.request_timeout = None,
        "deadPathTimeout" => timers.dead_path_timeout = None,
        "stdinTimeout" => timers.stdin_timeout = None,
        _ => {}
    }
}
