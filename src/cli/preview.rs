//! A run that is put together and not begun: what is wrong with it shows, and nothing changes.

use std::path::Path;

use uuid::Uuid;

use super::assemble::{facts, servers};
use super::environment::Variables;
use super::settings::{self, Settings};
use super::toolset::{bad_tools, passing_folder, tool_settings};
use super::usage::UsageError;
use crate::cli::args::RunArgs;
use crate::mcp::Servers;
use crate::process::Supervisor;
use crate::secrets::KnownSecrets;
use crate::tools::Toolbox;

/// The settings of such a run, and its servers, none of which is started.
///
/// # Errors
/// Why the run could not begin. That there is no credential is no reason here.
pub(super) fn preview(
    args: &RunArgs,
    variables: &Variables,
    cwd: &Path,
    secrets: &KnownSecrets,
) -> Result<(Settings, Servers), UsageError> {
    let managed = settings::MANAGED_FILES.map(Into::into);
    let settings = settings::resolve_under(&managed, args, variables.clone(), cwd.to_path_buf())?;
    for secret in settings.secrets() {
        secrets.add(&secret);
    }
    for link in &settings.chain.links {
        facts(link, &settings)?;
    }
    let id = Uuid::new_v4().to_string();
    let supervisor = Supervisor::with_own_binary();
    let tools = tool_settings(&settings, (passing_folder(&id), id), secrets, &supervisor);
    let toolbox = Toolbox::new(&tools).map_err(bad_tools)?;
    let servers = servers(&settings, &toolbox, &supervisor);
    Ok((settings, servers))
}
