//! Unknown keys of settings files: those of other tools, of later versions, and typos.

use std::collections::BTreeMap;

use serde_json::Value;

use super::file_settings::FileSettings;
use super::load::is_meaningful;
use super::locate::JsonPaths;
use super::table;
use crate::cli::edit_distance::distance;

/// Keys of related tools that outlast ignores.
#[rustfmt::skip]
const FOREIGN: [&str; 48] = [
    "$schema", "agent", "alwaysThinkingEnabled", "attribution", "autoMemoryEnabled",
    "autoScrollEnabled", "autoUpdates", "autoUpdatesChannel", "awsAuthRefresh",
    "awsCredentialExport", "claudeMdExcludes", "companyAnnouncements", "disabledMcpjsonServers",
    "editorMode", "effortLevel", "enableAllProjectMcpServers", "enabledMcpjsonServers",
    "enabledPlugins", "extraKnownMarketplaces", "feedbackSurveyRate", "fileSuggestion",
    "forceLoginMethod", "gcpAuthRefresh", "includeCoAuthoredBy", "includeGitInstructions",
    "language", "outputStyle", "plansDirectory", "pluginConfigs", "preferredNotifChannel",
    "prefersReducedMotion", "prUrlTemplate", "respectGitignore", "showThinkingSummaries",
    "showTurnDuration", "skillOverrides", "skipDangerousModePermissionPrompt",
    "spinnerTipsEnabled", "spinnerTipsOverride", "spinnerVerbs", "statusLine",
    "subagentStatusLine", "syntaxHighlightingDisabled", "teammateMode",
    "terminalProgressBarEnabled", "theme", "verbose", "voiceEnabled",
];

/// Ignored keys that would change what a run does: ignoring them silently would suggest that they
/// apply.
#[rustfmt::skip]
const UNSUPPORTED: [&str; 12] = [
    "alwaysThinkingEnabled", "awsAuthRefresh", "awsCredentialExport", "claudeMdExcludes",
    "effortLevel", "enabledPlugins", "forceLoginMethod", "gcpAuthRefresh", "language",
    "outputStyle", "respectGitignore", "skillOverrides",
];

/// Returns whether such a key has a value that matches what outlast does anyway.
fn is_default_behaviour(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("outputStyle", Value::String(style)) => style.trim().eq_ignore_ascii_case("default"),
        ("respectGitignore", value) => value == true,
        (_, value) => !is_meaningful(value),
    }
}

/// Ignored keys that approve MCP servers of a repository.
const APPROVALS: [&str; 3] =
    ["disabledMcpjsonServers", "enableAllProjectMcpServers", "enabledMcpjsonServers"];

/// Keys that restrict a run, or provide its fallbacks. A typo in these keys is a hard error.
const RESTRICTING: [&str; 19] = [
    "budgetMode",
    "childEnv",
    "disableAllHooks",
    "fallbackModel",
    "hooks",
    "maxBudgetUsd",
    "maxDuration",
    "maxTurns",
    "permissions",
    "permissions.ask",
    "permissions.defaultMode",
    "permissions.deny",
    "permissions.disableBypassPermissionsMode",
    "require",
    "sandbox",
    "sandbox.failIfUnavailable",
    "sandbox.filesystem.denyRead",
    "sandbox.filesystem.denyWrite",
    "sandbox.mode",
];

/// Known nested keys, by their path.
const NESTED: [&str; 14] = [
    "permissions.additionalDirectories",
    "permissions.allow",
    "permissions.ask",
    "permissions.defaultMode",
    "permissions.deny",
    "permissions.disableBypassPermissionsMode",
    "sandbox.enabled",
    "sandbox.failIfUnavailable",
    "sandbox.filesystem",
    "sandbox.filesystem.allowRead",
    "sandbox.filesystem.allowWrite",
    "sandbox.filesystem.denyRead",
    "sandbox.filesystem.denyWrite",
    "sandbox.mode",
];

/// The maximum edit distance of a typo.
const TYPO_MAX: usize = 2;

/// More are counted, and not named.
const NAMED_MAX: usize = 8;

/// Longer names are cut, in characters.
const NAME_MAX: usize = 64;

/// Returns whether a key belongs to another tool and has no effect here.
pub(super) fn is_foreign(key: &str) -> bool {
    FOREIGN.contains(&key)
}

/// Whether a key of a file has an effect.
pub(super) fn is_ours(key: &str) -> bool {
    APPROVALS.contains(&key) || table::names().any(|name| name == key)
}

/// The unknown keys of a settings file.
pub(super) struct UnknownKeys {
    /// Position and message of each key that is a likely typo of one of the [`RESTRICTING`].
    pub mistyped: Vec<(usize, String)>,
    /// A line about the others, and one about keys of other tools, if there are any.
    pub told: Vec<String>,
}

/// One line about keys of other tools that outlast does not act on.
fn unsupported_warning(name: &str, layer: &FileSettings, places: &JsonPaths<'_>) -> Option<String> {
    let keys = layer.others.iter();
    let keys = keys.filter(|(key, value)| {
        UNSUPPORTED.contains(&key.as_str()) && !is_default_behaviour(key, value)
    });
    let place = |key: &str| format!("\"{key}\" (line {})", places.line(places.nearest([key])));
    let listed: Vec<String> = keys.map(|(key, _)| place(key)).collect();
    let list = listed.join(", ");
    (!listed.is_empty()).then(|| format!("{name}: outlast does not act on these settings: {list}"))
}

/// Finds the unknown keys of a settings file.
pub(super) fn find_unknown_keys(
    name: &str,
    layer: &FileSettings,
    places: &JsonPaths<'_>,
) -> UnknownKeys {
    let levels: [(&[&str], &BTreeMap<String, Value>); 4] = [
        (&[], &layer.others),
        (&["permissions"], &layer.permissions.others),
        (&["sandbox"], &layer.sandbox.others),
        (&["sandbox", "filesystem"], &layer.sandbox.filesystem.others),
    ];
    let (mut mistyped, mut others) = (Vec::new(), Vec::new());
    for (outer, keys) in levels {
        for key in keys.keys().filter(|key| !outer.is_empty() || !is_foreign(key)) {
            let path: Vec<&str> = outer.iter().copied().chain([key.as_str()]).collect();
            let (at, path) = (places.nearest(path.iter().copied()), path.join("."));
            match nearest(&path) {
                Some((distance, near)) if distance <= TYPO_MAX && RESTRICTING.contains(&near) => {
                    let path = short(&path);
                    let why = format!("unknown setting \"{path}\"; did you mean \"{near}\"?");
                    mistyped.push((at, why));
                }
                near => others.push((at, path, near.map(|(_, near)| near))),
            }
        }
    }
    others.sort();
    let known = others.iter().take(NAMED_MAX).map(|(at, path, near)| {
        let guess = near.map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
        format!("\"{}\" (line {}{guess})", short(path), places.line(*at))
    });
    let more = others.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("{more} more"));
    let list = known.chain(more).collect::<Vec<_>>().join(", ");
    let (settings, have) =
        if others.len() == 1 { ("setting", "has") } else { ("settings", "have") };
    let told = format!("{name}: unknown {settings} {have} no effect: {list}");
    let told = (!others.is_empty()).then_some(told);
    UnknownKeys {
        mistyped,
        told: told.into_iter().chain(unsupported_warning(name, layer, places)).collect(),
    }
}

/// Shortens a name for a message.
fn short(path: &str) -> String {
    let mut letters = path.chars();
    let mut short: String = letters.by_ref().take(NAME_MAX).collect();
    if letters.next().is_some() {
        short.push_str("...");
    }
    short
}

/// Returns the known key with the smallest edit distance, if it is a likely typo.
fn nearest(path: &str) -> Option<(usize, &'static str)> {
    let nested = path.contains('.');
    let known = table::names().filter(|_| !nested).chain(NESTED.into_iter().filter(|_| nested));
    let bound = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        last.len().div_ceil(4).max(1)
    };
    let like = known.filter(|name| name.len().abs_diff(path.chars().count()) <= bound(name));
    like.map(|name| (distance(&path.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= bound(name))
        .min()
}
