//! Dry run: builds a run without starting it, to find errors without changing anything.

use std::path::Path;

use uuid::Uuid;

use super::assemble::{servers, user_programs};
use super::chosen_session;
use super::model_facts::model_facts;
use super::settings::{self, Settings};
use super::tool_setup::{temporary_folder, tool_settings, tool_settings_error};
use super::usage::UsageError;
use crate::cli::args::RunArgs;
use crate::config::environment::Variables;
use crate::config::managed;
use crate::mcp::Servers;
use crate::model::Credential;
use crate::process::Supervisor;
use crate::secrets::KnownSecrets;
use crate::tools::{SandboxGaps, SandboxMode, ToolSettings, Toolbox};

/// A run that was built and not started.
pub(super) struct DryRun {
    pub(super) settings: Settings,
    pub(super) servers: Servers,
    pub(super) sandbox_gaps: SandboxGaps,
    /// True if a key helper runs inside the sandbox of commands.
    pub(super) helper_is_confined: bool,
}

/// Builds a run, with its MCP servers, and starts none of its parts.
///
/// # Errors
/// The reason why the run could not begin. A missing credential is not an error here.
pub(super) fn dry_run(
    args: &RunArgs,
    variables: &Variables,
    cwd: &Path,
    secrets: &KnownSecrets,
) -> Result<DryRun, UsageError> {
    let (settings, tools) = resolve_tools(args, variables, cwd, secrets)?;
    check_prices(&settings)?;
    let toolbox = Toolbox::new(&tools).map_err(tool_settings_error)?;
    let servers = servers(&settings, &toolbox, &tools.supervisor, None);
    let helper_is_confined = confines_helper(&settings, &toolbox);
    let sandbox_gaps = toolbox.sandbox_gaps().clone();
    Ok(DryRun { settings, servers, sandbox_gaps, helper_is_confined })
}

fn confines_helper(settings: &Settings, toolbox: &Toolbox) -> bool {
    let programs = user_programs(settings, toolbox);
    let is_confined = |credential: &Credential| {
        let Credential::Helper(command) = credential else { return false };
        programs.confines(&command.job())
    };
    let mut credentials = settings.chain.endpoints.iter().map(|endpoint| &endpoint.credential);
    settings.config.sandbox.mode != SandboxMode::Off && credentials.any(is_confined)
}

/// Checks that a price is known for each model, if there is a budget.
///
/// # Errors
/// There is a model without a price.
pub(super) fn check_prices(settings: &Settings) -> Result<(), UsageError> {
    settings.chain.links.iter().try_for_each(|link| model_facts(link, settings).map(drop))
}

/// Resolves the settings of a run and those of its tools.
///
/// # Errors
/// The reason why the run could not begin.
pub(super) fn resolve_tools(
    args: &RunArgs,
    variables: &Variables,
    cwd: &Path,
    secrets: &KnownSecrets,
) -> Result<(Settings, ToolSettings), UsageError> {
    chosen_session::check(args)?;
    let managed = managed::files();
    let settings = settings::resolve_with_managed(&managed, args, variables, cwd.to_path_buf())?;
    settings.add_secrets(secrets);
    let id = Uuid::new_v4().to_string();
    let folder_and_id = (temporary_folder(&id), id);
    let tools = tool_settings(&settings, folder_and_id, secrets, &Supervisor::default(), None);
    Ok((settings, tools))
}
