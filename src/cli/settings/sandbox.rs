//! What is decided about the sandbox of commands.

use clap::ValueEnum;
use serde::Deserialize;
use serde_json::Value;

use super::layer::FileSandbox;
use crate::cli::args::{PermissionMode, SandboxMode, SandboxNetwork, ToolArgs};
use crate::cli::usage::UsageError;
use crate::tools::{self, SandboxSettings};

/// Weighs the flags and the files. Whoever lifts every permission means the sandbox too, unless
/// somebody says otherwise.
///
/// # Errors
/// Flags that contradict each other.
pub(super) fn read(
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
pub(super) fn lifted_by_bypass(
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

/// Writes what a file says in any of the three ways as one: its `mode`. So whoever is laid over
/// another outranks it, however the two spell it.
///
/// `below` is what the files below come to.
pub(super) fn spell_as_mode(below: &Value, file: &mut Value) {
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

/// The key that says the mode in a file, as it was written.
pub(super) fn key_of_mode(file: &Value) -> &'static str {
    let keys = ["mode", "failIfUnavailable", "enabled"];
    keys.into_iter().find(|key| file["sandbox"].get(key).is_some()).unwrap_or("mode")
}

/// Where a file says which sandbox there is to be.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SandboxSource {
    mode: Option<SandboxMode>,
    enabled: Option<bool>,
    fail_if_unavailable: Option<bool>,
}

impl SandboxSource {
    /// What this comes to over what is said below. To switch on what is on already, perhaps a
    /// stricter one, changes nothing.
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
