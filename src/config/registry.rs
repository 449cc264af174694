//! The registry of settings. Flags, variables, files, the manual, the JSON Schema, hints and checks
//! read it. The rows are in [`settings`](super::settings).

use std::sync::LazyLock;

use super::setting::Setting;
use super::settings::Config;

/// All settings, in the order in which the manual lists them.
static ROWS: LazyLock<Vec<Setting>> = LazyLock::new(Config::rows);

/// The objects of a file that contain settings: the name, and the allowed value.
const GROUPS: [(&str, &str); 4] = [
    (
        "permissions",
        "an object with \"allow\", \"ask\", \"deny\", \"additionalDirectories\", \"defaultMode\" \
         and \"disableBypassPermissionsMode\"",
    ),
    (
        "sandbox",
        "an object with \"mode\" (\"off\", \"workspace\", \"read-only\" or \"required\"; or \
         \"enabled\" and \"failIfUnavailable\"), \"filesystem\" (lists of paths: \"allowWrite\", \
         \"denyWrite\", \"allowRead\", \"denyRead\"), \"network\" (with \"enabled\"), \
         \"terminals\" and \"capabilities\"",
    ),
    (
        "sandbox.filesystem",
        "an object with \"allowWrite\", \"denyWrite\", \"allowRead\" and \"denyRead\"",
    ),
    ("sandbox.network", "an object with \"enabled\", \"allowedDomains\" and \"deniedDomains\""),
];

/// The groups in which lists of settings show them: the name of each, and its first setting.
const TOPICS: [(&str, &str); 18] = [
    ("Credentials", "apiKeyHelper"),
    ("Model", "model"),
    ("Environment", "env"),
    ("Permissions", "permissions.allow"),
    ("Hooks", "hooks"),
    ("Trust", "trustedProjects"),
    ("MCP servers", "mcpServers"),
    ("Plugins", "enabledPlugins"),
    ("Limits", "maxTurns"),
    ("Acceptance", "require"),
    ("Loops", "loopNoteAt"),
    ("Retries", "maxRetries"),
    ("Timers", "heartbeatInterval"),
    ("Replies and context", "maxOutputTokens"),
    ("Commands and pages", "bashTimeout"),
    ("Sub-agents", "maxAgentDepth"),
    ("Sandbox", "sandbox.mode"),
    ("Sessions", "cleanupPeriodDays"),
];

/// Returns all settings in groups, each with its name, in the order of the manual.
pub fn topics() -> impl Iterator<Item = (&'static str, &'static [Setting])> {
    let place = |key: &str| settings().iter().position(|setting| setting.key == key);
    TOPICS.iter().enumerate().filter_map(move |(index, (name, first))| {
        let next = TOPICS.get(index + 1).and_then(|(_, first)| place(first));
        let end = next.unwrap_or(settings().len());
        Some((*name, settings().get(place(first)?..end)?))
    })
}

/// Returns all settings.
pub fn settings() -> &'static [Setting] {
    &ROWS
}

/// Returns the setting of this key.
pub fn find(key: &str) -> Option<&'static Setting> {
    settings().iter().find(|setting| setting.key == key)
}

/// Returns the names that the top level of a settings file may have.
pub fn names() -> impl Iterator<Item = &'static str> {
    let groups = GROUPS.iter().map(|(name, _)| *name);
    groups.chain(settings().iter().map(|setting| setting.key)).filter(|name| !name.contains('.'))
}

/// Returns true if an object of settings has this name, such as `sandbox.network`.
pub(super) fn is_group(key: &str) -> bool {
    GROUPS.iter().any(|(name, _)| *name == key)
}

/// Returns all names below the top level.
pub(super) fn nested_names() -> impl Iterator<Item = &'static str> {
    let groups = GROUPS.iter().map(|(name, _)| *name);
    groups.chain(settings().iter().map(|setting| setting.key)).filter(|name| name.contains('.'))
}

/// Returns the allowed values of a setting, or of an object of settings.
pub(super) fn takes(key: &str) -> Option<&'static str> {
    let group = || GROUPS.iter().find(|(name, _)| *name == key).map(|(_, takes)| *takes);
    find(key).map(|setting| setting.takes.as_str()).or_else(group)
}

/// Returns true if a mistyped name of this setting, or object of settings, is an error.
pub(super) fn is_critical(key: &str) -> bool {
    ["permissions", "sandbox"].contains(&key) || find(key).is_some_and(|it| it.is_critical)
}
