//! Resolves the sandbox of commands.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::args::{Profile, RunArgs};
use crate::cli::usage::UsageError;
use crate::config::Config;
use crate::config::flags::SettingFlags;
use crate::config::fold::Fold;
use crate::config::managed::ManagedSettings;
use crate::config::repository::RulePaths;
use crate::text::in_home;
use crate::tools::{DomainLists, Egress, EgressOptions, SandboxSettings};
use crate::types::{PermissionMode, SandboxMode};

/// Resolves the sandbox. `bypassPermissions` switches it off too, unless a flag or file sets its
/// mode.
///
/// # Errors
/// Flags that contradict each other; a protection that cannot be enforced.
pub(super) fn resolve(
    config: &Config,
    (fold, managed): (&Fold, &ManagedSettings),
    args: &RunArgs,
    folders: &RulePaths<'_>,
) -> Result<SandboxSettings, UsageError> {
    let (flags, is_untrusted) = (&args.flags, args.tools.profile == Some(Profile::Untrusted));
    let mode = config.sandbox_mode.unwrap_or_else(|| default_mode(config));
    let is_limited = is_untrusted
        || fold.is_set("sandbox.network.allowedDomains")
        || managed.limits_domains_to_managed();
    let allows_no_host = is_limited && config.allowed_domains.is_empty();
    let no_network = config.sandbox.no_network || allows_no_host;
    let mut egress = None;
    if !no_network {
        let lists = domain_lists(config, fold)?;
        if mode == SandboxMode::Off {
            check_open(lists.is_some(), fold, flags)?;
        } else {
            check_enforceable(config, (fold, managed), lists.is_some())?;
            egress = lists.map(|lists| egress_of(lists, config, fold, folders));
        }
    }
    if mode == SandboxMode::Off && no_network && flags.has("sandbox-network") {
        return Err(UsageError::new(
            "--sandbox-network off needs a sandbox; add --sandbox workspace, read-only or required",
        ));
    }
    Ok(SandboxSettings { mode, no_network, egress, ..config.sandbox.clone() })
}

/// Returns the lists of domains. `None`: both are empty.
fn domain_lists(config: &Config, fold: &Fold) -> Result<Option<DomainLists>, UsageError> {
    let (allowed, denied) = (&config.allowed_domains, &config.denied_domains);
    if allowed.is_empty() && denied.is_empty() {
        return Ok(None);
    }
    DomainLists::parse(allowed, denied).map(Some).map_err(|(key, error)| {
        UsageError::new(format!("{}: \"sandbox.network.{key}\": {error}", origin(fold, key)))
    })
}

/// Rejects lists of domains without a sandbox: they would suggest a protection that does not exist.
/// The user's own flag shows that this is intended.
fn check_open(has_lists: bool, fold: &Fold, flags: &SettingFlags) -> Result<(), UsageError> {
    if !has_lists || flags.has("sandbox") {
        return Ok(());
    }
    let keys = ["allowedDomains", "deniedDomains"].into_iter();
    let key = keys.clone().find(|key| fold.is_set(&format!("sandbox.network.{key}")));
    let key = key.unwrap_or("allowedDomains");
    Err(UsageError::new(format!(
        "{}: \"sandbox.network.{key}\" needs the sandbox, which is off; add --sandbox workspace, or \
         --sandbox off for an open network",
        origin(fold, key)
    )))
}

fn egress_of(lists: DomainLists, config: &Config, fold: &Fold, folders: &RulePaths<'_>) -> Egress {
    let is_set = fold.is_set("sandbox.network.allowAllUnixSockets");
    let path =
        |text: &String| in_home(text, folders.home).unwrap_or_else(|| folders.cwd.join(text));
    let unix_sockets: Vec<PathBuf> = config.allow_unix_sockets.iter().map(path).collect();
    Egress::new(EgressOptions {
        lists,
        allows_binding: config.allow_local_binding,
        allows_all_unix_sockets: is_set && config.allow_all_unix_sockets,
        unix_sockets,
        proxy: Arc::new(|_| None),
    })
}

/// Rejects a protection that cannot be enforced: the user would rely on it.
fn check_enforceable(
    config: &Config,
    (fold, managed): (&Fold, &ManagedSettings),
    has_lists: bool,
) -> Result<(), UsageError> {
    let is_foreign = config.managed_domains_only && !managed.limits_domains_to_managed();
    let narrows = [
        ("allowLocalBinding", !config.allow_local_binding && !has_lists),
        ("allowAllUnixSockets", !config.allow_all_unix_sockets && !has_lists),
        ("allowManagedDomainsOnly", is_foreign),
        ("httpProxyPort", config.http_proxy_port.is_some()),
        ("socksProxyPort", config.socks_proxy_port.is_some()),
    ];
    let Some((key, _)) = narrows.into_iter().find(|(_, narrows)| *narrows) else { return Ok(()) };
    let remedy = match key {
        "allowLocalBinding" | "allowAllUnixSockets" => "add \"allowedDomains\", remove it",
        "allowManagedDomainsOnly" => "move it to the managed settings, remove it",
        _ => "remove it",
    };
    Err(UsageError::new(format!(
        "{}: \"sandbox.network.{key}\" cannot be enforced while commands have this network; \
         {remedy}, or turn the network off with \"sandbox.network.enabled\": false",
        origin(fold, key)
    )))
}

fn origin<'a>(fold: &'a Fold, key: &str) -> &'a str {
    fold.origin(&["sandbox", "network", key]).unwrap_or_default()
}

/// Returns the mode if neither a flag nor a file names one.
pub(super) fn default_mode(config: &Config) -> SandboxMode {
    match config.permissions.mode {
        PermissionMode::BypassPermissions => SandboxMode::Off,
        PermissionMode::Default
        | PermissionMode::AcceptEdits
        | PermissionMode::Plan
        | PermissionMode::DontAsk => SandboxMode::Workspace,
    }
}

/// Returns the warnings about a sandbox that is off.
pub(super) fn warnings(config: &Config, flags: &SettingFlags) -> impl Iterator<Item = String> {
    bypass_warning(config, flags).into_iter().chain(open_network_warning(config, flags))
}

/// Warns that a settings file bypasses permissions and thereby switches the sandbox off, if neither
/// a flag nor a file sets the sandbox. A flag of the user needs no warning.
fn bypass_warning(config: &Config, flags: &SettingFlags) -> Option<String> {
    let is_bypass = config.permissions.mode == PermissionMode::BypassPermissions;
    let by_flag = flags.has("dangerously-skip-permissions") || flags.has("permission-mode");
    (is_bypass && !by_flag && config.sandbox_mode.is_none()).then(|| {
        "with bypassPermissions commands run without a sandbox; --sandbox workspace keeps it, \
         --sandbox off says that this is meant"
            .to_owned()
    })
}

/// Warns that lists of domains have no effect because of the user's flag.
fn open_network_warning(config: &Config, flags: &SettingFlags) -> Option<String> {
    let has_lists = !config.allowed_domains.is_empty() || !config.denied_domains.is_empty();
    let is_off = config.sandbox_mode == Some(SandboxMode::Off) && flags.has("sandbox");
    (has_lists && is_off).then(|| {
        "the network of commands is open: --sandbox off leaves sandbox.network.allowedDomains and \
         deniedDomains without effect"
            .to_owned()
    })
}
