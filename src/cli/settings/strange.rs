//! Keys of settings files that mean nothing to us: other tools' own, later versions', and typing
//! mistakes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::layer::FileSettings;
use super::load::says_something;
use super::locate::JsonPaths;
use super::table;
use crate::cli::nearness::distance;

/// Keys of the same family of tools that mean nothing to us, and do no harm when left alone.
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

/// Of those, the ones that would change what a run does, or how it may ask the service: to leave
/// them out without a word would let people take them for obeyed.
#[rustfmt::skip]
const UNHEEDED: [&str; 12] = [
    "alwaysThinkingEnabled", "awsAuthRefresh", "awsCredentialExport", "claudeMdExcludes",
    "effortLevel", "enabledPlugins", "forceLoginMethod", "gcpAuthRefresh", "language",
    "outputStyle", "respectGitignore", "skillOverrides",
];

/// What such a key says where it asks for nothing that outlast does not do anyway.
fn is_usual(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("outputStyle", Value::String(style)) => style.trim().eq_ignore_ascii_case("default"),
        ("respectGitignore", value) => value == true,
        (_, value) => !says_something(value),
    }
}

/// Of those, the ones that say which servers of a repository are wanted.
const APPROVALS: [&str; 3] =
    ["disabledMcpjsonServers", "enableAllProjectMcpServers", "enabledMcpjsonServers"];

/// Keys that hold a run back, or that it falls back to. Whoever mistypes one must not get a run
/// without it.
const GUARDS: [&str; 19] = [
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

/// Keys inside of settings, by the way that leads there.
const INSIDE: [&str; 14] = [
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

/// Mistyped no further than this, a word is still the word.
const TYPO_MAX: usize = 2;

/// More are counted, and not named.
const NAMED_MAX: usize = 8;

/// Longer names are cut, in characters.
const NAME_MAX: usize = 64;

/// Whether a key belongs to another tool, and means nothing to us.
pub(super) fn is_foreign(key: &str) -> bool {
    FOREIGN.contains(&key)
}

/// Whether a key of a file has an effect.
pub(super) fn is_ours(key: &str) -> bool {
    APPROVALS.contains(&key) || table::names().any(|name| name == key)
}

/// The keys of a text that nobody knows.
pub(super) struct UnknownKeys {
    /// Where, and what: a key is one letter or two away from one of the [`GUARDS`].
    pub mistyped: Vec<(usize, String)>,
    /// A line about the others, and one about keys of other tools, if there are any.
    pub told: Vec<String>,
}

/// One line about keys of other tools that outlast does not act on.
fn unheeded(name: &str, layer: &FileSettings, places: &JsonPaths<'_>) -> Option<String> {
    let keys = layer.others.iter();
    let keys =
        keys.filter(|(key, value)| UNHEEDED.contains(&key.as_str()) && !is_usual(key, value));
    let place = |key: &str| format!("\"{key}\" (line {})", places.line(places.nearest([key])));
    let listed: Vec<String> = keys.map(|(key, _)| place(key)).collect();
    let list = listed.join(", ");
    (!listed.is_empty()).then(|| format!("{name}: outlast does not act on these settings: {list}"))
}

/// Looks for them.
pub(super) fn strangers(name: &str, layer: &FileSettings, places: &JsonPaths<'_>) -> UnknownKeys {
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
                Some((distance, near)) if distance <= TYPO_MAX && GUARDS.contains(&near) => {
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
    UnknownKeys { mistyped, told: told.into_iter().chain(unheeded(name, layer, places)).collect() }
}

/// A name as a line can hold it.
fn short(path: &str) -> String {
    let mut letters = path.chars();
    let mut short: String = letters.by_ref().take(NAME_MAX).collect();
    if letters.next().is_some() {
        short.push_str("...");
    }
    short
}

/// The known key that differs least, if it differs little, and by how many letters.
fn nearest(path: &str) -> Option<(usize, &'static str)> {
    let nested = path.contains('.');
    let known = table::names().filter(|_| !nested).chain(INSIDE.into_iter().filter(|_| nested));
    let bound = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        last.len().div_ceil(4).max(1)
    };
    let like = known.filter(|name| name.len().abs_diff(path.chars().count()) <= bound(name));
    like.map(|name| (distance(&path.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= bound(name))
        .min()
}
