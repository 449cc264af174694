//! Resolves the sandbox of commands.

use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::config::flags::SettingFlags;
use crate::config::fold::Fold;
use crate::tools::SandboxSettings;
use crate::types::{PermissionMode, SandboxMode};

/// Resolves the sandbox. `bypassPermissions` switches it off too, unless a flag or file says
/// otherwise.
///
/// # Errors
/// Flags that contradict each other; a protection that cannot be enforced.
pub(super) fn resolve(
    config: &Config,
    fold: &Fold,
    flags: &SettingFlags,
) -> Result<SandboxSettings, UsageError> {
    let mode = config.sandbox_mode.unwrap_or_else(|| default_mode(config));
    let allows_no_host =
        fold.is_set("sandbox.network.allowedDomains") && config.allowed_domains.0.is_empty();
    let no_network = !config.sandbox_network.0 || allows_no_host;
    if mode != SandboxMode::Off && !no_network {
        check_enforceable(config, fold)?;
    }
    if mode == SandboxMode::Off && no_network && flags.has("sandbox-network") {
        return Err(UsageError::new(
            "--sandbox-network off needs a sandbox; add --sandbox workspace, read-only or required",
        ));
    }
    Ok(SandboxSettings {
        mode,
        no_network,
        allow_write: config.allow_write.0.clone(),
        deny_write: config.deny_write.0.clone(),
        allow_read: config.allow_read.0.clone(),
        deny_read: config.deny_read.0.clone(),
        config_dir: None,
    })
}

/// A protection that is only read would be worse than none.
fn check_enforceable(config: &Config, fold: &Fold) -> Result<(), UsageError> {
    let narrows = [
        ("allowedDomains", !config.allowed_domains.0.is_empty()),
        ("deniedDomains", !config.denied_domains.0.is_empty()),
        ("allowLocalBinding", !config.allow_local_binding),
        ("allowAllUnixSockets", !config.allow_all_unix_sockets),
        ("allowManagedDomainsOnly", config.managed_domains_only),
        ("httpProxyPort", config.http_proxy_port.is_some()),
        ("socksProxyPort", config.socks_proxy_port.is_some()),
    ];
    let Some((key, _)) = narrows.into_iter().find(|(_, narrows)| *narrows) else { return Ok(()) };
    let place = fold.origin(&["sandbox", "network", key]).unwrap_or_default();
    Err(UsageError::new(format!(
        "{place}: \"sandbox.network.{key}\" cannot be enforced while commands have a network; \
         remove it, or turn the network off with \"sandbox.network.enabled\": false"
    )))
}

/// The mode where neither a flag nor a file names one.
pub(super) fn default_mode(config: &Config) -> SandboxMode {
    match config.permission_mode {
        PermissionMode::BypassPermissions => SandboxMode::Off,
        PermissionMode::Default
        | PermissionMode::AcceptEdits
        | PermissionMode::Plan
        | PermissionMode::DontAsk => SandboxMode::Workspace,
    }
}

/// The warning that a settings file bypasses permissions and thereby switches the sandbox off, where
/// neither a flag nor a file says what the sandbox is to be. A flag of the user needs no warning.
pub(super) fn bypass_warning(config: &Config, flags: &SettingFlags) -> Option<String> {
    let is_bypass = config.permission_mode == PermissionMode::BypassPermissions;
    let by_flag = flags.has("dangerously-skip-permissions") || flags.has("permission-mode");
    (is_bypass && !by_flag && config.sandbox_mode.is_none()).then(|| {
        "with bypassPermissions commands run without a sandbox; --sandbox workspace keeps it, \
         --sandbox off says that this is meant"
            .to_owned()
    })
}
