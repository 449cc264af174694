//! Creates the parts of a toolbox from its settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::background::BackgroundTasks;
use super::catalog::BuiltinTool;
use super::environment::CommandEnv;
use super::permission::{Permissions, RuleList};
use super::sandbox::{Sandbox, SandboxContext};
use super::settings::{BadSettings, Offered, ToolSettings};

/// Creates the sandbox. `roots` begins with the working directory.
pub(super) fn sandbox(
    settings: &ToolSettings,
    roots: &[PathBuf],
    home: Option<&Path>,
    permissions: &Permissions,
) -> Result<Arc<Sandbox>, BadSettings> {
    let (cwd, folders) = roots.split_first().unwrap_or((&settings.cwd, &[]));
    let mut context = SandboxContext::new(cwd, home, &settings.scratch, &settings.environment);
    (context.folders, context.rules) = (folders, permissions.denied_paths());
    let sandbox = Sandbox::new(&settings.sandbox, &context)
        .and_then(|sandbox| sandbox.verify_egress(&settings.supervisor).map(|()| sandbox));
    sandbox.map(Arc::new).map_err(|why| BadSettings::Sandbox { why })
}

/// The requested built-in tools. Other names are ignored.
pub(super) fn offered_tools(wanted: &Offered) -> Vec<BuiltinTool> {
    let wanted = |tool: &BuiltinTool| *tool == BuiltinTool::ToolSearch || wanted.includes(*tool);
    BuiltinTool::ALL.into_iter().filter(wanted).collect()
}

/// The permission rules and the mode.
pub(super) fn build_permissions(
    settings: &ToolSettings,
    cwd: &Path,
    home: Option<&Path>,
) -> Result<Permissions, BadSettings> {
    let lists = [
        (RuleList::Deny, settings.permissions.deny.as_slice()),
        (RuleList::Ask, settings.permissions.ask.as_slice()),
        (RuleList::Allow, settings.permissions.allow.as_slice()),
    ];
    Permissions::new(settings.permissions.mode, lists, cwd, home)
        .and_then(|permissions| permissions.with_limits(&settings.limits))
        .map(|permissions| permissions.with_live(settings.live.clone()))
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
        settings.commands.child_environment,
        &settings.commands.pass_env,
        &settings.credentials,
        &settings.session_id,
    )
}

/// The table of background tasks: of this run, or shared with the runs before and after it.
pub(super) fn background_tasks(settings: &ToolSettings) -> Arc<BackgroundTasks> {
    match &settings.kept_commands {
        Some(kept) => kept.for_next_run(),
        None => BackgroundTasks::new(settings.stops.clone()),
    }
}
