//! Setup and cleanup of a toolbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::agents::is_agent_tool;
use super::catalog::BuiltinTool;
use super::environment::CommandEnv;
use super::permission::{Permissions, RuleList};
use super::sandbox::{Sandbox, SandboxContext, SandboxState};
use super::settings::{BadSettings, Offered, ToolSettings};
use super::toolbox::Toolbox;
use crate::types::{OnDenied, PermissionMode};

impl Toolbox {
    /// Names of variables that are hidden from commands because they are, or look like, secrets.
    pub fn dropped_variables(&self) -> &[String] {
        self.tools.shell.dropped()
    }

    /// The effective sandbox of commands.
    pub fn sandbox(&self) -> &SandboxState {
        self.tools.shell.sandbox().state()
    }

    /// Why the sandbox is weaker than requested, if it is. One line for a warning.
    pub fn sandbox_warning(&self) -> Option<&str> {
        self.tools.shell.sandbox().warning()
    }

    /// What happens to the run when a call is denied.
    pub fn on_denied(&self) -> OnDenied {
        self.settings.on_denied
    }

    /// The tool that decides permission prompts. `None` if the mode forbids prompts.
    pub fn prompt_tool(&self) -> Option<&str> {
        let tool = self.settings.prompt_tool.as_deref();
        tool.filter(|_| self.settings.mode != PermissionMode::DontAsk)
    }

    /// Prepares the sandbox and the supervisor for the first command. Blocks briefly.
    pub fn prepare(&self) {
        self.tools.shell.supervisor().start_supervisor();
    }

    /// Kills every process started in this run that is still running, in any process group. Does
    /// nothing for a sub-agent, whose processes are not distinguishable: they end with the run.
    pub async fn kill_remaining_processes(&self) {
        if !self.is_root {
            return;
        }
        let supervisor = self.tools.shell.supervisor().clone();
        // The call has its own time limit.
        let _ = tokio::task::spawn_blocking(move || supervisor.close()).await;
    }

    /// Like [`Self::kill_remaining_processes`], outside async code. Blocks for at most a second.
    pub fn kill_remaining_processes_blocking(&self) {
        self.tools.shell.supervisor().close();
    }
}

/// `roots` begins with the working directory.
pub(super) fn sandbox(
    settings: &ToolSettings,
    roots: &[PathBuf],
    home: Option<&Path>,
) -> Result<Arc<Sandbox>, BadSettings> {
    let around = SandboxContext {
        cwd: roots.first().unwrap_or(&settings.cwd),
        home,
        folders: roots.get(1..).unwrap_or_default(),
        scratch: &settings.scratch,
        environment: &settings.environment,
    };
    let made = Sandbox::new(&settings.sandbox, &around);
    made.map(Arc::new).map_err(|why| BadSettings::Sandbox { why })
}

/// The requested tools.
pub(super) fn offered_tools(wanted: &Offered) -> Result<Vec<BuiltinTool>, BadSettings> {
    let Offered::Only(names) = wanted else { return Ok(BuiltinTool::ALL.to_vec()) };
    let strange = |name: &&String| BuiltinTool::named(name).is_none() && !is_agent_tool(name);
    if let Some(name) = names.iter().find(strange) {
        let known = BuiltinTool::ALL.map(BuiltinTool::name).join(", ");
        return Err(BadSettings::Tool { name: name.clone(), known });
    }
    let listed = |tool: BuiltinTool| names.iter().any(|name| name == tool.name());
    let wanted = |tool: &BuiltinTool| listed(tool.belongs_to().unwrap_or(*tool));
    Ok(BuiltinTool::ALL.into_iter().filter(wanted).collect())
}

/// The permission rules and the mode.
pub(super) fn build_permissions(
    settings: &ToolSettings,
    cwd: &Path,
    home: Option<&Path>,
) -> Result<Permissions, BadSettings> {
    let lists = [
        (RuleList::Deny, settings.deny.as_slice()),
        (RuleList::Ask, settings.ask.as_slice()),
        (RuleList::Allow, settings.allow.as_slice()),
    ];
    Permissions::new(settings.mode, lists, cwd, home)
        .map_err(|bad| BadSettings::Rule { rule: bad.rule, why: bad.why })
}

/// The tools that no rule removes entirely.
pub(super) fn not_removed_by_rules(
    offered: &[BuiltinTool],
    permissions: &Permissions,
) -> Vec<BuiltinTool> {
    let stays = |tool: BuiltinTool| !permissions.removes(tool);
    let both = |tool: &BuiltinTool| stays(*tool) && tool.belongs_to().is_none_or(stays);
    offered.iter().copied().filter(both).collect()
}

/// The environment of commands.
pub(super) fn environment(settings: &ToolSettings) -> CommandEnv {
    CommandEnv::for_children(
        &settings.environment,
        settings.child_environment,
        &settings.pass_env,
        &settings.credentials,
        &settings.session_id,
    )
}
