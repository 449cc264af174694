//! Resolves the sandbox of commands.

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::Value;

use super::file_settings::FileSandbox;
use crate::cli::args::{PermissionMode, SandboxMode, SandboxNetwork, ToolArgs};
use crate::cli::usage::UsageError;
use crate::tools::{self, SandboxSettings};

/// Resolves flags and files. `bypassPermissions` switches the sandbox off too, unless a flag or
/// file says otherwise.
///
/// # Errors
/// Flags that contradict each other.
pub(super) fn resolve(
    flags: &ToolArgs,
    file: &FileSandbox,
    mode: PermissionMode,
) -> Result<SandboxSettings, UsageError> {
    let bypass = mode == PermissionMode::BypassPermissions;
    let unsaid = if bypass { SandboxMode::Off } else { SandboxMode::Workspace };
    let files = &file.filesystem;
    let mode = flags.sandbox.or(file.mode).unwrap_or(unsaid);
    if mode == SandboxMode::Off && flags.sandbox_network == Some(SandboxNetwork::Off) {
        return Err(UsageError::new(
            "--sandbox-network off needs a sandbox; add --sandbox workspace, read-only or required",
        ));
    }
    Ok(SandboxSettings {
        mode: match mode {
            SandboxMode::Off => tools::SandboxMode::Off,
            SandboxMode::Workspace => tools::SandboxMode::Workspace,
            SandboxMode::ReadOnly => tools::SandboxMode::ReadOnly,
            SandboxMode::Required => tools::SandboxMode::Required,
        },
        no_network: match flags.sandbox_network {
            Some(network) => network == SandboxNetwork::Off,
            None => file.network.enabled == Some(false),
        },
        allow_write: files.allow_write.clone(),
        deny_write: files.deny_write.clone(),
        allow_read: files.allow_read.clone(),
        deny_read: files.deny_read.clone(),
        config_dir: None,
    })
}

/// The warning that bypassing permissions switched the sandbox off, where neither a flag nor a file
/// says what the sandbox is to be.
pub(super) fn bypass_warning(
    flags: &ToolArgs,
    file: &FileSandbox,
    mode: PermissionMode,
) -> Option<String> {
    let is_said = flags.sandbox.is_some() || file.mode.is_some();
    (mode == PermissionMode::BypassPermissions && !is_said).then(|| {
        "with bypassPermissions commands run without a sandbox; --sandbox workspace keeps it, \
         --sandbox off says that this is meant"
            .to_owned()
    })
}

/// Converts the three forms of the setting to one, `mode`, so that a file outranks another
/// regardless of the form.
///
/// `below` is the merged value of the files below.
pub(super) fn normalise_mode(below: &Value, file: &mut Value) {
    let below = below["sandbox"].get("mode").and_then(|mode| SandboxMode::deserialize(mode).ok());
    let Some(members) = file.get_mut("sandbox").and_then(Value::as_object_mut) else { return };
    let said = SandboxSource::deserialize(&Value::Object(members.clone())).unwrap_or_default();
    members.remove("enabled");
    members.remove("failIfUnavailable");
    if let Some(mode) = said.over(below) {
        let value = mode.to_possible_value().expect("no mode is skipped");
        members.insert("mode".to_owned(), value.get_name().into());
    }
}

/// Returns the key that sets the mode in a file.
pub(super) fn key_of_mode(file: &Value) -> &'static str {
    let keys = ["mode", "failIfUnavailable", "enabled"];
    keys.into_iter().find(|key| file["sandbox"].get(key).is_some()).unwrap_or("mode")
}

/// The three forms of the sandbox mode in a file.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SandboxSource {
    mode: Option<SandboxMode>,
    enabled: Option<bool>,
    fail_if_unavailable: Option<bool>,
}

impl SandboxSource {
    /// Returns the mode, given the one below. `enabled` does not change a sandbox that is on
    /// already, which may be a stricter one.
    fn over(&self, below: Option<SandboxMode>) -> Option<SandboxMode> {
        let on = below.filter(|mode| *mode != SandboxMode::Off);
        let yielding = on.filter(|mode| *mode != SandboxMode::Required);
        self.mode.or(match (self.enabled, self.fail_if_unavailable) {
            (Some(false), _) => Some(SandboxMode::Off),
            (_, Some(true)) => Some(SandboxMode::Required),
            (Some(true), None) => on.or(Some(SandboxMode::Workspace)),
            (Some(true), Some(false)) => yielding.or(Some(SandboxMode::Workspace)),
            (None, Some(false)) if on != yielding => Some(SandboxMode::Workspace),
            (None, Some(false) | None) => None,
        })
    }
}
