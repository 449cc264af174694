//! Builds the tools of a run from the settings.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::process::Supervisor;
use crate::secrets::KnownSecrets;
use crate::tools::{BadSettings, LivePermissions, Offered, SandboxSettings, ToolSettings};

use super::egress::upstream_proxy;
use super::host_turn::HostTurn;
use super::prompts::SkillFolder;
use super::session::FoundSession;
use super::settings::Settings;
use super::usage::UsageError;
use super::web;
use crate::config::environment;

/// The settings of the tools, with the folder of long output and the session's id.
pub(super) fn tool_settings(
    settings: &Settings,
    (scratch, session_id): (PathBuf, String),
    secrets: &KnownSecrets,
    supervisor: &Supervisor,
    host: Option<&HostTurn>,
) -> ToolSettings {
    let (config, rules) = (&settings.config, &settings.tools);
    let skills = settings.skill_folders();
    let egress = config.sandbox.egress.as_ref();
    let proxy = upstream_proxy(&settings.endpoint.connection.proxies);
    let session = host.map(|host| host.resources.egress.clone()).unwrap_or_default();
    ToolSettings {
        cwd: settings.cwd.clone(),
        home: environment::home(&settings.variables),
        readable: skills.iter().map(|skill| skill.path.clone()).collect(),
        offered: rules.only.clone().map_or(Offered::All, Offered::Only),
        aliases: rules.aliases.clone(),
        permissions: config.permissions.clone(),
        limits: rules.limits.clone(),
        live: live_permissions(host),
        stops: host.map(|host| host.resources.stops.clone()).unwrap_or_default(),
        kept_commands: host.map(|host| host.resources.commands.clone()),
        history: host.and_then(|host| host.file_history(&scratch)),
        files_read: host.map(|host| host.resources.files_read.clone()).unwrap_or_default(),
        prompt_tool: rules.prompt_tool.clone(),
        commands: config.commands.clone(),
        results: config.results,
        environment: settings.variables.clone().into_iter().collect(),
        credentials: settings.chain.key_variables.clone(),
        secrets: secrets.clone(),
        scratch,
        session_id,
        acceptance: settings.demands.clone(),
        supervisor: supervisor.clone(),
        sandbox: SandboxSettings {
            config_dir: Some(settings.config_dir.clone()),
            makes_config_dir: settings.persist,
            egress: egress.map(|egress| egress.behind(proxy, &session)),
            // The user's own skills may be in folders that are otherwise not readable.
            allow_read: [config.sandbox.allow_read.clone(), SkillFolder::trusted_paths(&skills)]
                .concat(),
            ..config.sandbox.clone()
        },
        web: Some(web::settings(settings)),
        tool_search: config.tool_search,
        web_search: settings.chain.can_search_web(),
    }
}

/// Returns the changes that a host makes to the permissions.
pub(super) fn live_permissions(host: Option<&HostTurn>) -> LivePermissions {
    host.map(|host| host.resources.live.clone()).unwrap_or_default()
}

/// Returns the folder for long output: beside the session, or a temporary one if no session is
/// kept.
pub(super) fn scratch(settings: &Settings, session: &FoundSession) -> PathBuf {
    if settings.persist {
        session.folder().join("tool-results")
    } else {
        temporary_folder(&session.id())
    }
}

/// Returns the temporary folder for long output of a run without a session. It is removed with the
/// run.
pub(super) fn temporary_folder(session_id: &str) -> PathBuf {
    std::env::temp_dir().join(format!("outlast-{session_id}"))
}

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Creates the temporary folder of a run without a session. Its parent is world-writable and its
/// name is predictable: a folder that another user created would let them read and replace its
/// content. If it cannot be created, no output is kept.
///
/// # Errors
/// It exists, and is not private to this user.
pub(super) fn prepare_scratch(settings: &Settings, folder: &Path) -> Result<(), UsageError> {
    if settings.persist {
        return Ok(());
    }
    let _there_or_done_without = DirBuilder::new().mode(0o700).create(folder);
    let Ok(facts) = fs::symlink_metadata(folder) else { return Ok(()) };
    if facts.is_dir() && facts.uid() == geteuid().as_raw() && facts.mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(UsageError::new(format!(
        "{} is not this user's alone, so no output can be kept there; choose another --session-id \
         or TMPDIR",
        folder.display()
    )))
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(super) fn tool_settings_error(error: BadSettings) -> UsageError {
    UsageError::new(match error {
        BadSettings::NoFolder { .. } => format!("{error}; correct --add-dir"),
        BadSettings::Rule { .. } => format!("{error}; correct it in the flags or settings"),
        BadSettings::Sandbox { .. } => format!("{error}; or choose another --sandbox"),
        BadSettings::Web { .. } => error.to_string(),
        BadSettings::Requirement { .. } => format!("{error}; correct --require"),
    })
}
