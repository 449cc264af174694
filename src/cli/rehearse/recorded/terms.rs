//! Makes the flags of a run from the contract and the limits of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::config::{Setting, registry};
use crate::history::SessionHistory;
use crate::recovery::{Limits, Persistence, StopReason};
use crate::tools::GENERAL_PURPOSE;
use crate::types::PermissionMode;

use super::paths::PathMask;

/// Terms of the contract that a rehearsal takes over as they are.
const KEPT: [&str; 16] = [
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

/// Terms that the rehearsal leaves out, since it replaces them or they are about other folders and
/// programs, each with the description of the omission.
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

/// The flags for the terms of a session. `hooks` are settings of hooks; `requirement` replaces the
/// command of `--require`.
pub(super) fn terms(
    history: &SessionHistory,
    paths: &PathMask<'_>,
    hooks: Option<Value>,
    requirement: &str,
) -> RecordedTerms {
    let mut found = RecordedTerms { servers: vec![String::new()], ..RecordedTerms::default() };
    let mut settings = Map::new();
    let empty = Map::new();
    let terms = history.contract.as_ref().map_or(&empty, |contract| &contract.terms);
    let has_value = |name: &str| {
        terms.get(name).filter(|value| {
            let is_empty = value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(Map::is_empty);
            !value.is_null() && **value != Value::Bool(false) && !is_empty
        })
    };
    for name in KEPT {
        if let Some(value) = has_value(name).filter(|value| !is_default(name, value)) {
            insert(&mut settings, name, paths.hide_in(value));
        }
    }
    add_permissions(&mut settings, history, paths, &mut found.skipped);
    for (name, what) in LEFT_OUT {
        if has_value(name).is_some() {
            found.skipped.push(what.to_owned());
        }
    }
    if has_value("require").is_some() {
        found.has_requirement = true;
        insert(&mut settings, "require", json!(requirement));
    }
    if let Some(limits) = &history.limits {
        add_limits(&mut settings, limits);
    }
    if history.end.is_none_or(|end| end.reason != StopReason::Stalled) {
        // Commands that fail because files are missing look like a loop.
        settings.insert("loopStopAt".to_owned(), json!(0));
    }
    if let Some(hooks) = hooks {
        settings.insert("hooks".to_owned(), hooks);
    }
    let chain = fallback_models(&mut found, has_value("fallbackModel"));
    // Commands of a real run are run again: they must reach nothing but the scratch folder.
    let mut args: Vec<String> =
        ["--sandbox", "required", "--sandbox-network", "off"].map(str::to_owned).to_vec();
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    if !settings.is_empty() {
        let settings = Value::Object(settings);
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

/// The tools that work on files in this process, outside of the sandbox of commands.
const FILE_TOOLS: [&str; 5] = ["Read", "Write", "Edit", "Glob", "Grep"];

/// Adds mode and allow rules, as far as they keep file tools in the scratch folder: the recorded
/// calls may name the user's own files.
fn add_permissions(
    settings: &mut Map<String, Value>,
    history: &SessionHistory,
    paths: &PathMask<'_>,
    skipped: &mut Vec<String>,
) {
    let terms = history.contract.as_ref().map(|contract| &contract.terms);
    let term = |name: &str| terms.and_then(|terms| terms.get(name));
    let mode = term("permissions.defaultMode").and_then(Value::as_str).unwrap_or_default();
    let listed = term("permissions.allow").and_then(Value::as_array).into_iter().flatten();
    let listed: Vec<&str> = listed.filter_map(Value::as_str).collect();
    let mut allow: Vec<String> =
        listed.iter().filter_map(|rule| contained_rule(&paths.hide(rule))).collect();
    let mut mode = mode.to_owned();
    let mut is_narrower = listed.iter().map(|rule| paths.hide(rule)).ne(allow.iter().cloned());
    if mode == PermissionMode::BypassPermissions.name() {
        PermissionMode::AcceptEdits.name().clone_into(&mut mode);
        allow.push("Bash".to_owned());
        is_narrower = true;
    }
    if is_narrower {
        skipped.push(
            "calls of file tools outside of the working folder, and of WebFetch: they \
                        are refused"
                .to_owned(),
        );
    }
    if !mode.is_empty() && !is_default("permissions.defaultMode", &json!(mode)) {
        insert(settings, "permissions.defaultMode", json!(mode));
    }
    if !allow.is_empty() {
        insert(settings, "permissions.allow", json!(allow));
    }
    // A call that is refused only here must not end the run.
    let is_denied = history.end.is_some_and(|end| end.reason == StopReason::Denied);
    let on_denied = term("onDenied").filter(|value| !is_default("onDenied", value));
    if let Some(on_denied) = on_denied.filter(|_| is_denied) {
        insert(settings, "onDenied", on_denied.clone());
    }
}

/// Restricts an allow rule of a file tool to the working folder, which `rule` has as a placeholder.
/// Rules of other tools are kept. `None` for a rule about other folders, and for `WebFetch`.
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

/// Returns true if this value is the default of a setting.
fn is_default(name: &str, value: &Value) -> bool {
    let default = registry::find(name).and_then(Setting::shown_default);
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    default.is_some_and(|default| default == shown)
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

/// Adds the limits of recovery that differ from their defaults.
fn add_limits(settings: &mut Map<String, Value>, limits: &Limits) {
    let usual = Limits::default();
    let time = |span: Duration| json!(humantime::format_duration(span).to_string());
    let (budgets, defaults) = (&limits.budgets, &usual.budgets);
    let often = |times: u32| json!(if times == u32::MAX { 0 } else { times });
    let numbers = [
        ("maxRetries", budgets.retries, defaults.retries),
        ("outputContinuations", budgets.continuations, defaults.continuations),
        ("emptyReplyRetries", budgets.empty_replies, defaults.empty_replies),
        ("pausedTurnResumptions", budgets.resumptions, defaults.resumptions),
        ("overloadsPerFallback", limits.overloads_per_switch, usual.overloads_per_switch),
        ("tornStreamsPerWhole", limits.torn_streams_per_whole, usual.torn_streams_per_whole),
    ];
    let mut add = |name: &str, differs: bool, value: Value| {
        if differs {
            settings.insert(name.to_owned(), value);
        }
    };
    for (name, value, default) in numbers {
        add(name, value != default, json!(value));
    }
    add("maxCompactions", budgets.compactions.is_some(), json!(budgets.compactions));
    add("retryQuota", budgets.bucket != defaults.bucket, json!(budgets.bucket));
    let (backoff, default) = (limits.backoff, usual.backoff);
    add("retryFirstDelay", backoff.first != default.first, time(backoff.first));
    add("retryLongestDelay", backoff.longest != default.longest, time(backoff.longest));
    let persistence = match limits.persistence {
        Persistence::Off => Value::Null,
        Persistence::Capacity => json!("on"),
        Persistence::All => json!("all"),
    };
    add("unattendedRetry", !persistence.is_null(), persistence);
    let wait = limits.max_retry_wait;
    add("maxRetryWait", wait != limits.persistence.max_retry_wait(), time(wait));
    let capacity = limits.longest_capacity_wait;
    add("unattendedLongestDelay", capacity != usual.longest_capacity_wait, time(capacity));
    add("capacityProbes", limits.probe_interval.is_none(), json!(false));
    add("overloadLimit", limits.overload_limit.is_some(), json!(limits.overload_limit));
    add("loopNoteAt", limits.loops.soft != usual.loops.soft, often(limits.loops.soft));
    add("loopStopAt", limits.loops.hard != usual.loops.hard, often(limits.loops.hard));
    let most = limits.background.most;
    add("backgroundWait", most != usual.background.most, time(most));
    add("autoCompactEnabled", !limits.auto_compact, json!(false));
    add("compactHeadroom", limits.headroom != usual.headroom, json!(limits.headroom));
    let part = limits.compact_at.map(|part| f64::from(part) / 1_000.0);
    add("compactAt", part.is_some(), json!(part));
    let caps = (limits.caps, usual.caps);
    // Without an escalation, the user has set the cap.
    let is_set = caps.0.first != caps.1.first || budgets.escalations == 0;
    add("maxOutputTokens", is_set, json!(caps.0.first));
    add("escalatedOutputTokens", caps.0.escalated != caps.1.escalated, json!(caps.0.escalated));
    add("wholeOutputTokens", caps.0.whole != caps.1.whole, json!(caps.0.whole));
    add("minOutputTokens", caps.0.floor != caps.1.floor, json!(caps.0.floor));
    add("fast", limits.fast.is_some(), json!(true));
}

/// Returns the further models as entries of `--fallback-model`, each address and cloud as a server
/// of the scenario, which has the Messages API.
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

/// Definitions that replace the kinds of sub-agents that are not built in. `None` if there are
/// none.
fn agents(history: &SessionHistory) -> Option<Value> {
    let kinds: BTreeSet<&str> =
        history.agents.iter().map(|it| it.meta.agent_type.as_str()).collect();
    let mut agents = Map::new();
    for kind in kinds.into_iter().filter(|kind| *kind != GENERAL_PURPOSE) {
        let agent = json!({ "description": "Recorded.", "prompt": "Its prompt is not recorded." });
        agents.insert(kind.to_owned(), agent);
    }
    (!agents.is_empty()).then_some(Value::Object(agents))
}

#[cfg(test)]
mod tests {
    use super::*;

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
