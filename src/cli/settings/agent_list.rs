//! Loads the agent definitions, and applies the one that the run works as.

use crate::cli::args::{LimitArgs, PermissionMode, RunArgs};
use crate::cli::edit_distance::distance;
use crate::cli::environment;
use crate::cli::prompts::{PromptLibrary, SkillFolder, agents_of_flag};
use crate::cli::usage::UsageError;
use crate::mcp;
use crate::recovery::Limits;
use crate::tools::{self, AgentDefinition, built_in_names, check_restriction};

use super::file_settings::FileSettings;
use super::repository::RulePaths;
use super::rule_names::{BadRuleName, check_rule_name};
use super::{McpServers, Settings, SystemPrompt, ToolRules};

/// Merges the agents of `--agents` over those of files, and returns the one that the run works as.
///
/// # Errors
/// A mistake in `--agents`, or there is no agent of the name.
pub(super) fn load(
    args: &RunArgs,
    file: &FileSettings,
    library: &mut PromptLibrary,
) -> Result<Option<AgentDefinition>, UsageError> {
    define(args, library)?;
    choose(args, file, library)
}

/// The same for a resumed session. Its agent may be gone; the tools and rules are in the contract.
///
/// # Errors
/// A mistake in `--agents`.
pub(super) fn load_for_resume(
    args: &RunArgs,
    file: &FileSettings,
    library: &mut PromptLibrary,
) -> Result<Option<AgentDefinition>, UsageError> {
    define(args, library)?;
    Ok(choose(args, file, library).unwrap_or_else(|error| {
        library.warnings.push(format!("{error}; its tools and rules hold, without its prompt"));
        None
    }))
}

fn define(args: &RunArgs, library: &mut PromptLibrary) -> Result<(), UsageError> {
    if let Some(given) = &args.prompts.agents {
        let (agents, warnings) = agents_of_flag(given)?;
        let given = |name: &str| agents.iter().any(|agent| agent.definition.name == name);
        library.agents.retain(|agent| !given(&agent.definition.name));
        library.agents.extend(agents);
        library.warnings.extend(warnings);
    }
    library.preload();
    Ok(())
}

fn choose(
    args: &RunArgs,
    file: &FileSettings,
    library: &PromptLibrary,
) -> Result<Option<AgentDefinition>, UsageError> {
    let (place, name) = match (&args.prompts.agent, &file.agent) {
        (Some(name), _) => ("--agent", name),
        (None, Some(name)) => ("the setting agent", name),
        (None, None) => return Ok(None),
    };
    let known = library.agents.iter().map(|agent| &agent.definition);
    if let Some(agent) = known.clone().find(|agent| agent.name == name.trim()) {
        return Ok(Some(agent.clone()));
    }
    let near = known.min_by_key(|agent| distance(name, &agent.name));
    let hint = match near {
        Some(near) => format!("the nearest is {:?}", near.name),
        None => "there are none; see outlast-agents(7)".to_owned(),
    };
    Err(UsageError::new(format!("{place}: there is no agent {name:?}: {hint}")))
}

impl Settings {
    /// Returns the list of skills for the model, if it can read them.
    pub(in crate::cli) fn briefing(&self) -> Option<String> {
        let reads = |only: &Vec<String>| only.iter().any(|name| name == "Read");
        self.library.briefing().filter(|_| self.tools.only.as_ref().is_none_or(reads))
    }

    /// Where skills are kept.
    pub(in crate::cli) fn skill_folders(&self) -> Vec<SkillFolder> {
        let home = environment::home(&self.variables);
        self.library.skill_folders(&self.cwd, home.as_deref())
    }
}

/// Applies model and permission mode of the run's agent, unless flags name them. An untrusted agent
/// has none: they were removed when it was read.
pub(super) fn apply(args: &RunArgs, role: Option<&AgentDefinition>) -> RunArgs {
    let mut args = args.clone();
    let Some(role) = role else { return args };
    if let Some(model) = &role.model {
        args.model.model.get_or_insert_with(|| model.clone());
    }
    let tools = &mut args.tools;
    if tools.permission_mode.is_none() && !tools.dangerously_skip_permissions {
        tools.permission_mode = role.permission_mode.map(mode);
    }
    args
}

fn mode(mode: tools::PermissionMode) -> PermissionMode {
    match mode {
        tools::PermissionMode::Default => PermissionMode::Default,
        tools::PermissionMode::AcceptEdits => PermissionMode::AcceptEdits,
        tools::PermissionMode::Plan => PermissionMode::Plan,
        tools::PermissionMode::DontAsk => PermissionMode::DontAsk,
        tools::PermissionMode::BypassPermissions => PermissionMode::BypassPermissions,
    }
}

/// Applies the turn limit of the run's agent, unless a flag sets one. It never exceeds the limit of
/// the settings.
pub(super) fn apply_turn_limit(
    role: Option<&AgentDefinition>,
    flags: &LimitArgs,
    limits: &mut Limits,
) {
    let Some(own) = role.and_then(|role| role.max_turns) else { return };
    if flags.max_turns.is_none() {
        let turns = limits.budgets.turns.map_or(own, |turns| turns.min(own));
        limits.budgets.turns = Some(turns);
    }
}

/// Applies prompt and tools of the run's agent, unless flags say otherwise.
///
/// # Errors
/// None of its tools exists.
pub(super) fn apply_prompt_and_tools(
    role: Option<AgentDefinition>,
    mut system: SystemPrompt,
    mut tools: ToolRules,
    servers: &McpServers,
    paths: &RulePaths<'_>,
) -> Result<(SystemPrompt, ToolRules), UsageError> {
    let Some(role) = role else { return Ok((system, tools)) };
    system.role = Some(role.prompt.clone()).filter(|prompt| !prompt.is_empty());
    let no_rule = |rule: &&String| check_restriction(rule, paths.cwd, paths.home).is_err();
    if let Some(bad) = role.disallowed_tools.iter().find(no_rule) {
        return Err(UsageError::new(format!(
            "the agent {:?}: {bad:?} in disallowedTools is no rule; correct it",
            role.name
        )));
    }
    let near = |rule: &&String| check_rule_name(rule).filter(|misnomer| misnomer.is_near);
    if let Some((rule, BadRuleName { why, .. })) =
        role.disallowed_tools.iter().find_map(|rule| Some((rule, near(&rule)?)))
    {
        return Err(UsageError::new(format!(
            "the agent {:?}: {rule:?} in disallowedTools {why}",
            role.name
        )));
    }
    tools.deny.extend(role.disallowed_tools.iter().cloned());
    let wanted = role.tools.as_ref().filter(|_| tools.only.is_none());
    let Some(wanted) = wanted else { return Ok((system, tools)) };
    let built_in = built_in_names();
    let known = wanted.iter().filter(|name| built_in.contains(&name.as_str()));
    let known: Vec<String> = known.cloned().collect();
    let foreign = |name: &String| name.starts_with("mcp__");
    if known.is_empty() && !wanted.is_empty() && !wanted.iter().any(foreign) {
        return Err(UsageError::new(format!(
            "the agent {:?} has no tool that there is ({}); there are {}",
            role.name,
            wanted.join(", "),
            built_in.join(", ")
        )));
    }
    tools.only = Some(known);
    for server in &servers.servers {
        let prefix = mcp::tool_name_prefix(&server.name);
        let whole = prefix.trim_end_matches('_');
        if !wanted.iter().any(|name| name == whole || name.starts_with(&prefix)) {
            tools.deny.push(format!("{prefix}*"));
        }
    }
    Ok((system, tools))
}
