//! Unknown keys of settings files: those of other tools, of later versions, and typos.

use serde_json::{Value, json};
use strsim::osa_distance;

use crate::hooks::HookEvent;
use crate::json::{is_comment_name, uncommented_name};
use crate::text::shortened;

use super::registry;
use super::spans::JsonPaths;

/// Keys of related tools that outlast ignores.
#[rustfmt::skip]
const FOREIGN: [&str; 38] = [
    "$schema", "attribution", "autoMemoryEnabled", "autoScrollEnabled", "autoUpdates",
    "autoUpdatesChannel", "claudeMdExcludes", "companyAnnouncements", "editorMode",
    "feedbackSurveyRate", "fileSuggestion",
    "forceLoginMethod", "gcpAuthRefresh", "includeCoAuthoredBy", "includeGitInstructions",
    "language", "plansDirectory", "pluginConfigs", "preferredNotifChannel",
    "prefersReducedMotion", "prUrlTemplate", "respectGitignore", "showThinkingSummaries",
    "showTurnDuration", "skillOverrides", "skipDangerousModePermissionPrompt",
    "spinnerTipsEnabled", "spinnerTipsOverride", "spinnerVerbs", "statusLine",
    "subagentStatusLine", "syntaxHighlightingDisabled", "teammateMode",
    "terminalProgressBarEnabled", "theme", "verbose", "voiceEnabled",
    "worktree",
];

/// Ignored keys that would change a run: ignoring them silently would suggest that they apply.
#[rustfmt::skip]
const UNSUPPORTED: [&str; 7] = [
    "claudeMdExcludes", "forceLoginMethod", "gcpAuthRefresh", "language", "respectGitignore",
    "skillOverrides", "worktree",
];

/// Returns true if the value of an unsupported key matches the behaviour of outlast.
fn is_default_behaviour(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("respectGitignore", value) => value == true,
        ("worktree", value) => *value == json!({ "baseRef": "fresh" }) || !is_meaningful(value),
        (_, value) => !is_meaningful(value),
    }
}

/// Keys of the sandbox that related tools have, but outlast does not.
const SANDBOX: [&str; 4] = [
    "sandbox.autoAllowBashIfSandboxed",
    "sandbox.enableWeakerNestedSandbox",
    "sandbox.excludedCommands",
    "sandbox.ignoreViolations",
];

/// Ignored without a warning: the model can never request to run a command outside of the sandbox.
const NEVER_UNSANDBOXED: &str = "sandbox.allowUnsandboxedCommands";

/// The maximum edit distance of a typo.
const TYPO_MAX: usize = 2;

/// In a shorter name, two edits make another word: `tools` is not a typo of `hooks`.
const LONG_NAME: usize = 7;

/// Names that a user may give to lists of rules at the top level, and the setting for that list.
const MISPLACED_RULES: [(&str, &str); 5] = [
    ("deny", "permissions.deny"),
    ("disallowedTools", "permissions.deny"),
    ("ask", "permissions.ask"),
    ("allow", "permissions.allow"),
    ("allowedTools", "permissions.allow"),
];

/// The maximum number of unknown keys that are named; further ones are counted.
const NAMED_MAX: usize = 8;

/// Longer names are cut, in characters.
const NAME_MAX: usize = 64;

/// Returns true if a key belongs to another tool and has no effect here.
pub(super) fn is_foreign(key: &str) -> bool {
    FOREIGN.contains(&key)
}

/// A key of a settings file that is not a setting.
#[derive(Clone, Debug)]
pub(super) struct UnknownKey {
    /// The index of its value.
    pub index: usize,
    /// Its name, after those of the objects that contain it.
    pub path: String,
    pub value: Value,
}

/// The messages about the unknown keys of a settings file.
pub(super) struct UnknownKeys {
    /// Position and message of each key that is a likely typo of a critical one.
    pub mistyped: Vec<(usize, String)>,
    /// A line about other unknown keys, and a line for each key of the sandbox without effect.
    pub warnings: Vec<String>,
    /// A line for each list of rules in a wrong place, and a line about ignored keys of other tools
    /// that would change a run.
    pub relied_on: Vec<String>,
}

/// Returns the message about a list of rules that is not in `permissions`, or about an event that is
/// not in `hooks`.
fn misplaced_rules(name: &str, key: &UnknownKey, places: &JsonPaths<'_>) -> Option<String> {
    let UnknownKey { index, path, value } = key;
    let rules = MISPLACED_RULES.into_iter().find(|(misplaced, _)| misplaced == path);
    let remedy = match rules {
        Some((_, setting)) => format!("the rules belong in \"{setting}\""),
        None => format!("it belongs in \"hooks\", as \"{}\"", HookEvent::from_name(path)?.name()),
    };
    let (line, column) = places.start(*index);
    is_meaningful(value)
        .then(|| format!("{name}:{line}:{column}: \"{path}\" has no effect; {remedy}"))
}

/// Returns one line about keys of other tools that outlast does not act on.
fn unsupported_warning(name: &str, keys: &[UnknownKey], places: &JsonPaths<'_>) -> Option<String> {
    let is_relied_on = |key: &&UnknownKey| {
        UNSUPPORTED.contains(&key.path.as_str()) && !is_default_behaviour(&key.path, &key.value)
    };
    let place = |key: &UnknownKey| {
        let members = key.value.as_object().filter(|_| key.path == "worktree");
        let names = members.map_or_else(
            || vec![format!("\"{}\"", key.path)],
            |members| members.keys().map(|name| format!("\"{}.{name}\"", key.path)).collect(),
        );
        format!("{} (line {})", names.join(", "), places.line(key.index))
    };
    let listed: Vec<String> = keys.iter().filter(is_relied_on).map(place).collect();
    let list = listed.join(", ");
    (!listed.is_empty()).then(|| format!("{name}: outlast does not act on these settings: {list}"))
}

/// Returns true if a key requests a feature of the sandbox that outlast does not have.
fn is_of_the_sandbox(path: &str) -> bool {
    SANDBOX.contains(&path) || path.starts_with("sandbox.network.")
}

/// Judges the unknown keys of a settings file.
pub(super) fn check_unknown(
    name: &str,
    keys: &[UnknownKey],
    places: &JsonPaths<'_>,
) -> UnknownKeys {
    let (mut mistyped, mut others, mut sandbox) = (Vec::new(), Vec::new(), Vec::new());
    let mut misplaced = Vec::new();
    for key in keys {
        let UnknownKey { index, path, value } = key;
        if let Some(warning) = misplaced_rules(name, key, places) {
            misplaced.push(warning);
            continue;
        }
        if is_foreign(path) || path == NEVER_UNSANDBOXED {
            continue;
        }
        let own_name = places.get(*index).map_or("", |place| &*place.key);
        // A key that comments a restriction out is not a misspelling of it.
        let is_comment = is_comment_name(own_name);
        if is_comment && !is_commented_out(path, own_name) {
            continue;
        }
        let near = nearest(path).filter(|_| !is_comment);
        let critical = near.filter(|(_, near)| registry::is_critical(near));
        let mistyped_for = critical.filter(|(distance, _)| *distance <= TYPO_MAX);
        if is_of_the_sandbox(path) && mistyped_for.is_none() {
            if is_meaningful(value) {
                sandbox.push(format!(
                    "{name}: \"{path}\" is not supported by this version of outlast and has no \
                     effect"
                ));
            }
            continue;
        }
        if let Some((_, near)) = mistyped_for {
            let path = shortened(path, NAME_MAX, "...");
            let why = format!("unknown setting \"{path}\"; did you mean \"{near}\"?");
            mistyped.push((*index, why));
        } else {
            others.push((*index, path.clone(), near.map(|(_, near)| near)));
        }
    }
    others.sort_unstable();
    let known = others.iter().take(NAMED_MAX).map(|(at, path, near)| {
        let guess = near.map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
        format!("\"{}\" (line {}{guess})", shortened(path, NAME_MAX, "..."), places.line(*at))
    });
    let more = others.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("{more} more"));
    let list = known.chain(more).collect::<Vec<_>>().join(", ");
    let (settings, have) =
        if others.len() == 1 { ("setting", "has") } else { ("settings", "have") };
    let warnings = format!("{name}: unknown {settings} {have} no effect: {list}");
    let warnings = (!others.is_empty()).then_some(warnings);
    UnknownKeys {
        mistyped,
        warnings: warnings.into_iter().chain(sandbox).collect(),
        relied_on: misplaced.into_iter().chain(unsupported_warning(name, keys, places)).collect(),
    }
}

/// Returns true if a key is a critical setting that was commented out, so that its restriction is
/// not in force.
fn is_commented_out(path: &str, own: &str) -> bool {
    let group = path.strip_suffix(own).unwrap_or_default();
    registry::is_critical(&format!("{group}{}", uncommented_name(own)))
}

/// Returns the known key with the smallest edit distance, if it is a likely typo.
fn nearest(path: &str) -> Option<(usize, &'static str)> {
    let nested = path.contains('.');
    let known = registry::names().filter(|_| !nested);
    let known = known.chain(registry::nested_names().filter(|_| nested));
    let bound = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        if last.len() < LONG_NAME { 1 } else { last.len().div_ceil(4) }
    };
    let like = known.filter(|name| name.len().abs_diff(path.chars().count()) <= bound(name));
    like.map(|name| (osa_distance(&path.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= bound(name))
        .min()
}

/// Returns true if a value requests anything.
fn is_meaningful(value: &Value) -> bool {
    *value != Value::Bool(false) && !is_nothing(value)
}

/// Returns true for `null`, and for an empty text, list or object.
pub(super) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
