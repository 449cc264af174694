//! Dry run: builds a run without starting it, to find errors without changing anything.

use std::path::Path;

use uuid::Uuid;

use super::assemble::servers;
use super::model_facts::model_facts;
use super::settings::{self, Settings};
use super::tool_setup::{temporary_folder, tool_settings, tool_settings_error};
use super::usage::UsageError;
use crate::cli::args::RunArgs;
use crate::config::environment::Variables;
use crate::config::managed;
use crate::mcp::Servers;
use crate::process::Supervisor;
use crate::secrets::KnownSecrets;
use crate::tools::Toolbox;

/// Returns the settings of the run, and its MCP servers, not started.
///
/// # Errors
/// Why the run could not begin. A missing credential is not an error here.
pub(super) fn dry_run(
    args: &RunArgs,
    variables: &Variables,
    cwd: &Path,
    secrets: &KnownSecrets,
) -> Result<(Settings, Servers), UsageError> {
    let managed = managed::files();
    let settings = settings::resolve_with_managed(&managed, args, variables, cwd.to_path_buf())?;
    for secret in settings.secrets() {
        secrets.add(&secret);
    }
    for link in &settings.chain.links {
        model_facts(link, &settings)?;
    }
    let id = Uuid::new_v4().to_string();
    let supervisor = Supervisor::with_own_binary();
    let tools = tool_settings(&settings, (temporary_folder(&id), id), secrets, &supervisor);
    let toolbox = Toolbox::new(&tools).map_err(tool_settings_error)?;
    let servers = servers(&settings, &toolbox, &supervisor, None);
    Ok((settings, servers))
}
