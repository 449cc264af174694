//! What is decided about the sandbox of commands.

use super::layer::Sandbox;
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
    file: &Sandbox,
    mode: PermissionMode,
) -> Result<SandboxSettings, UsageError> {
    let bypass = mode == PermissionMode::BypassPermissions;
    let unsaid = if bypass { SandboxMode::Off } else { SandboxMode::Workspace };
    let files = &file.filesystem;
    let mode = flags.sandbox.or_else(|| said(file)).unwrap_or(unsaid);
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

/// What the files say, in either way.
fn said(file: &Sandbox) -> Option<SandboxMode> {
    file.mode.or(match (file.enabled, file.fail_if_unavailable) {
        (Some(false), _) => Some(SandboxMode::Off),
        (_, Some(true)) => Some(SandboxMode::Required),
        (Some(true), _) => Some(SandboxMode::Workspace),
        (None, _) => None,
    })
}
