//! Keys of settings files that mean nothing to us: other tools' own, later versions', and typing
//! mistakes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::layer::Layer;
use super::locate::{Place, line_and_column};
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

/// Whether a key belongs to another tool, and means nothing to us.
pub(super) fn is_foreign(key: &str) -> bool {
    FOREIGN.contains(&key)
}

/// Whether a key of a file has an effect.
pub(super) fn is_ours(key: &str) -> bool {
    APPROVALS.contains(&key) || table::names().any(|name| name == key)
}

/// One line about the keys of a text that nobody knows; `None` where there are none.
///
/// # Errors
/// Where, and what: a key is one letter or two away from one of the [`GUARDS`].
pub(super) fn strangers(
    name: &str,
    text: &str,
    layer: &Layer,
    places: &[Place],
) -> Result<Option<String>, String> {
    let levels: [(&str, &BTreeMap<String, Value>); 4] = [
        ("", &layer.others),
        ("permissions.", &layer.permissions.others),
        ("sandbox.", &layer.sandbox.others),
        ("sandbox.filesystem.", &layer.sandbox.filesystem.others),
    ];
    let mut found = Vec::new();
    for (prefix, others) in levels {
        for key in others.keys().filter(|key| !prefix.is_empty() || !is_foreign(key)) {
            let path = format!("{prefix}{key}");
            let at = places.iter().find(|place| place.path.join(".") == path);
            let at = line_and_column(text, at.map_or(0, |place| place.start));
            found.push((at, path));
        }
    }
    found.sort();
    let mut told = Vec::new();
    for ((line, column), path) in &found {
        let near = nearest(path);
        if let Some((distance, near)) = near
            && distance <= TYPO_MAX
            && GUARDS.contains(&near)
        {
            return Err(format!(
                "{name}:{line}:{column}: unknown setting \"{path}\"; did you mean \"{near}\"?"
            ));
        }
        let guess = near.map_or(String::new(), |(_, near)| format!("; did you mean \"{near}\"?"));
        told.push(if guess.is_empty() {
            format!("\"{path}\" (line {line})")
        } else {
            format!("\"{path}\" (line {line}{guess})")
        });
    }
    let more = told.len().saturating_sub(NAMED_MAX);
    told.truncate(NAMED_MAX);
    if more > 0 {
        told.push(format!("{more} more"));
    }
    let plural = if found.len() == 1 { ("setting", "has") } else { ("settings", "have") };
    let line = format!("{name}: unknown {} {} no effect: {}", plural.0, plural.1, told.join(", "));
    Ok((!found.is_empty()).then_some(line))
}

/// The known key that differs least, if it differs little, and by how many letters.
fn nearest(path: &str) -> Option<(usize, &'static str)> {
    let nested = path.contains('.');
    let known = table::names().filter(|_| !nested).chain(INSIDE.into_iter().filter(|_| nested));
    known.map(|name| (distance(&path.to_lowercase(), &name.to_lowercase()), name)).min().filter(
        |(distance, name)| {
            let last = name.rsplit('.').next().unwrap_or(name);
            *distance <= last.len().div_ceil(4).max(1)
        },
    )
}
