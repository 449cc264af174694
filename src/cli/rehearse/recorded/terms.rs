//! Makes the flags of a run from the contract and the limits of a session.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::config::kinds::Fraction;
use crate::config::{Config, registry};
use crate::history::{AgentHistory, SessionHistory};
use crate::recovery::{Limits, StopReason};
use crate::tools::GENERAL_PURPOSE;
use crate::types::PermissionMode;

use super::paths::PathMask;

/// Terms of the contract that a rehearsal takes over unchanged.
const UNCHANGED: [&str; 16] = [
    "model",
    "fallbackReturn",
    "contextWindow",
    "prices",
    "maxTurns",
    "maxBudgetUsd",
    "budgetMode",
    "maxDuration",
    "tokenBudget",
    "requireTimeout",
    "requireRetries",
    "schemaTries",
    "permissions.ask",
    "permissions.deny",
    "maxAgentDepth",
    "maxAgents",
];

/// Terms that the rehearsal leaves out, each with the description of the omission: it replaces
/// them, or they concern other folders and programs.
const LEFT_OUT: [(&str, &str); 8] = [
    ("agent", "the agent that the run was given: its prompt and rules"),
    ("permissions.additionalDirectories", "folders beside the working folder"),
    ("permissionPromptTool", "the tool that was asked for permission"),
    ("passEnv", "variables of the run for its commands"),
    ("mcpRequired", "required MCP servers"),
    ("webFetchPrivateHosts", "hosts that WebFetch may reach"),
    ("sandbox.filesystem.denyWrite", "paths that commands may not write to"),
    ("sandbox.filesystem.denyRead", "paths that commands may not read"),
];

/// The flags of a run, and the terms that they do not contain.
#[derive(Debug, Default)]
pub(super) struct RecordedTerms {
    pub(super) args: Vec<String>,
    pub(super) skipped: Vec<String>,
    /// The name of the server that each model of the chain is at; empty for the main one.
    pub(super) servers: Vec<String>,
    /// Variables for the keys of further models.
    pub(super) env: BTreeMap<String, String>,
    /// True if a command decided on acceptance.
    pub(super) has_requirement: bool,
}

/// Makes the flags for the terms of a session. `hooks` are settings of hooks; `requirement`
/// replaces the command of `--require`.
pub(super) fn terms(
    history: &SessionHistory,
    paths: &PathMask<'_>,
    hooks: Option<Value>,
    requirement: &str,
) -> RecordedTerms {
    let mut found = RecordedTerms { servers: vec![String::new()], ..RecordedTerms::default() };
    let mut config = history.limits.map(config).unwrap_or_default();
    let empty = Map::new();
    let terms = history.contract.as_ref().map_or(&empty, |contract| &contract.terms);
    let has_value = |name: &str| {
        terms.get(name).filter(|value| {
            let is_empty = value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(Map::is_empty);
            !value.is_null() && **value != Value::Bool(false) && !is_empty
        })
    };
    // A call that is denied only in the rehearsal must not end the run.
    let is_denied = history.end.as_ref().is_some_and(|end| end.reason == StopReason::Denied);
    for name in UNCHANGED.into_iter().chain(is_denied.then_some("onDenied")) {
        if let Some(value) = has_value(name)
            && let Err(error) = config.assign(name, paths.hide_in(value))
        {
            found.skipped.push(format!("{name}: {error}"));
        }
    }
    set_permissions(&mut config, history, paths, &mut found.skipped);
    for (name, what) in LEFT_OUT {
        if has_value(name).is_some() {
            found.skipped.push(what.to_owned());
        }
    }
    if has_value("require").is_some() {
        found.has_requirement = true;
        config.require = Some(requirement.to_owned());
    }
    if history.end.as_ref().is_none_or(|end| end.reason != StopReason::Stalled) {
        // Commands that fail because files are missing look like a loop.
        config.limits.loops.hard = u32::MAX;
    }
    config.hooks = hooks;
    let chain = fallback_models(&mut found, has_value("fallbackModel"));
    // Commands of a real run are run again: they may reach only the scratch folder.
    let mut args: Vec<String> =
        ["--sandbox", "required", "--sandbox-network", "off"].map(str::to_owned).to_vec();
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    let settings = changed_settings(&config);
    if !settings.is_empty() {
        add("--settings", serde_json::to_string_pretty(&settings).unwrap_or_default());
    }
    if let Some(schema) = has_value("jsonSchema") {
        add("--json-schema", schema.to_string());
    }
    if let Some(Value::Array(tools)) = terms.get("tools") {
        let names: Vec<&str> = tools.iter().filter_map(Value::as_str).collect();
        add("--tools", names.join(","));
    }
    if let Some(agents) = agents(history) {
        add("--agents", agents.to_string());
        found.skipped.push("prompts and rules of the kinds of sub-agents".to_owned());
    }
    if !chain.is_empty() {
        add("--fallback-model", chain.join(","));
    }
    found.args = args;
    found
}

/// Tools that work on files in this process, outside of the sandbox of commands.
const FILE_TOOLS: [&str; 5] = ["Read", "Write", "Edit", "Glob", "Grep"];

/// Sets mode and allow rules, as far as they keep file tools in the scratch folder: the recorded
/// calls may name the user's own files.
fn set_permissions(
    config: &mut Config,
    history: &SessionHistory,
    paths: &PathMask<'_>,
    skipped: &mut Vec<String>,
) {
    let terms = history.contract.as_ref().map(|contract| &contract.terms);
    let term = |name: &str| terms.and_then(|terms| terms.get(name));
    let mode = term("permissions.defaultMode").and_then(Value::as_str);
    let mut mode = mode.and_then(PermissionMode::parse).unwrap_or_default();
    let listed = term("permissions.allow").and_then(Value::as_array).into_iter().flatten();
    let listed: Vec<&str> = listed.filter_map(Value::as_str).collect();
    let mut allow: Vec<String> =
        listed.iter().filter_map(|rule| contained_rule(&paths.hide(rule))).collect();
    let mut is_narrower = listed.iter().map(|rule| paths.hide(rule)).ne(allow.iter().cloned());
    if mode == PermissionMode::BypassPermissions {
        mode = PermissionMode::AcceptEdits;
        allow.push("Bash".to_owned());
        is_narrower = true;
    }
    if is_narrower {
        let what = "calls of file tools outside of the working folder, and of WebFetch: they are \
                    refused";
        skipped.push(what.to_owned());
    }
    config.permissions.mode = mode;
    config.permissions.allow = allow;
}

/// Restricts an allow rule of a file tool to the working folder, which is a placeholder in `rule`.
/// Rules of other tools are unchanged. `None`: the rule is about other folders, or `WebFetch`.
fn contained_rule(rule: &str) -> Option<String> {
    let (tool, spec) = rule.split_once('(').unwrap_or((rule, ""));
    let (tool, spec) = (tool.trim(), spec.trim_end_matches(')').trim());
    if tool == "WebFetch" {
        return None;
    }
    if !FILE_TOOLS.contains(&tool) {
        return Some(rule.to_owned());
    }
    if matches!(spec, "" | "*" | "**") {
        return Some(format!("{tool}(./**)"));
    }
    let climbs = spec.split('/').any(|part| part == "..");
    let is_outside = spec.starts_with("//") || climbs;
    (!is_outside).then(|| rule.to_owned())
}

/// Returns the settings that differ from their defaults, as in a settings file.
fn changed_settings(config: &Config) -> Map<String, Value> {
    let usual = Config::default();
    let mut settings = Map::new();
    for setting in registry::settings() {
        let value = config.value(setting.key);
        if value != usual.value(setting.key) {
            insert(&mut settings, setting.key, value);
        }
    }
    settings
}

/// Sets a setting, whose name may lead through objects.
fn insert(settings: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            settings.insert(name.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = settings.entry(first.to_owned()).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// Returns the settings from which the limits of a run were made.
fn config(limits: Limits) -> Config {
    let usual = Limits::default();
    // Without an escalation, the user has set the cap.
    let is_set = limits.caps.first != usual.caps.first || limits.budgets.escalations == 0;
    let (cap, wait) = (limits.caps.first, limits.max_retry_wait);
    let part = |part| Fraction::new(f64::from(part) / 1_000.0).ok();
    Config {
        fast: limits.fast.is_some(),
        max_retry_wait: (wait != limits.persistence.max_retry_wait()).then_some(wait),
        capacity_probes: limits.probe_interval.is_some(),
        max_output_tokens: is_set.then_some(cap),
        compact_at: limits.compact_at.and_then(part),
        limits: Limits { probe_interval: limits.probe_interval.or(usual.probe_interval), ..limits },
        ..Config::default()
    }
}

/// Returns the further models as entries of `--fallback-model`. Each address or cloud becomes a
/// server of the scenario, with the Messages API.
fn fallback_models(found: &mut RecordedTerms, models: Option<&Value>) -> Vec<String> {
    let mut addresses: Vec<&str> = Vec::new();
    let mut chain = Vec::new();
    for model in models.and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| model.get(name).and_then(Value::as_str);
        let Some(name) = text("model") else { continue };
        let server = text("baseUrl").or_else(|| text("service")).map(|address| {
            let known = addresses.iter().position(|one| *one == address);
            let index = known.unwrap_or_else(|| {
                addresses.push(address);
                addresses.len() - 1
            });
            format!("other-{}", index + 1)
        });
        let place = server.as_ref().map(|server| format!("@{{server.{server}.url}}"));
        let keys = [("apiKeyEnv", "#"), ("authTokenEnv", "#bearer:")];
        let key = keys.into_iter().find_map(|(kind, mark)| Some((text(kind)?, mark)));
        if let Some((variable, _)) = key {
            found.env.insert(variable.to_owned(), "key-of-the-rehearsal".to_owned());
        }
        let key = key.map(|(variable, mark)| format!("{mark}{variable}"));
        chain.push(format!("{name}{}{}", place.unwrap_or_default(), key.unwrap_or_default()));
        found.servers.push(server.unwrap_or_default());
    }
    chain
}

/// Makes definitions that replace the kinds of sub-agents that are not built in, with their own
/// numbers of turns. `None`: there are none.
fn agents(history: &SessionHistory) -> Option<Value> {
    let turns_of = |history: &SessionHistory| history.limits?.budgets.turns;
    let mut agents = Map::new();
    for AgentHistory { meta, history: own } in &history.agents {
        let parent = history
            .agents
            .iter()
            .find(|it| meta.parent_agent_id.as_ref() == Some(&it.meta.agent_id));
        let inherited = turns_of(parent.map_or(history, |parent| &parent.history));
        // A lower number than that of its parent is from its definition.
        let turns = turns_of(own).filter(|turns| inherited.is_none_or(|of_all| *turns < of_all));
        if turns.is_none() && meta.agent_type == GENERAL_PURPOSE {
            continue;
        }
        let agent = json!({ "description": "Recorded.", "prompt": "Its prompt is not recorded." });
        let agent = agents.entry(meta.agent_type.clone()).or_insert(agent);
        if let Some(turns) = turns {
            agent["maxTurns"] = turns.into();
        }
    }
    (!agents.is_empty()).then_some(Value::Object(agents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_the_settings_that_they_were_made_from() {
        let given = json!({
            "loopNoteAt": 0, "maxRetries": 3, "retryFirstDelay": "2s", "retryQuota": 7,
            "unattendedRetry": "all", "overloadLimit": 2, "strictStopReasons": true,
            "minOutputTokens": 2048, "autoCompactEnabled": false, "maxCompactions": 0,
        });
        let mut recorded = Config::default();
        for (key, value) in given.as_object().expect("an object") {
            recorded.assign(key, value.clone()).expect(key);
        }
        recorded.limits.max_retry_wait = recorded.limits.persistence.max_retry_wait();
        assert_eq!(json!(changed_settings(&config(recorded.limits))), given);
        let limits = Limits { probe_interval: None, compact_at: Some(250), ..Limits::default() };
        let wanted = json!({ "capacityProbes": false, "compactAt": 0.25 });
        assert_eq!(json!(changed_settings(&config(limits))), wanted);
    }

    #[test]
    fn allow_rules_keep_file_tools_in_the_working_folder() {
        let rules = [
            ("Bash(make *)", Some("Bash(make *)")),
            ("mcp__a__b", Some("mcp__a__b")),
            ("Write", Some("Write(./**)")),
            ("Edit(*)", Some("Edit(./**)")),
            ("Read(src/**)", Some("Read(src/**)")),
            ("Edit(/${cwd}/src/**)", Some("Edit(/${cwd}/src/**)")),
            ("Edit(~/notes/**)", Some("Edit(~/notes/**)")),
            ("Edit(//home/u/docs/**)", None),
            ("Write(../docs/**)", None),
            ("Write(a/../../docs)", None),
            ("WebFetch(domain:a.example)", None),
        ];
        for (rule, contained) in rules {
            assert_eq!(contained_rule(rule).as_deref(), contained, "{rule}");
        }
    }
}
