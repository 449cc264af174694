//! Which kinds of agents there are, and what becomes of a run that is to be one of them.

use crate::cli::args::RunArgs;
use crate::cli::environment;
use crate::cli::nearness::distance;
use crate::cli::prompts::{Library, SkillFolder, agents_of_flag};
use crate::cli::usage::UsageError;
use crate::mcp;
use crate::tools::{AgentDefinition, built_in_names, check_restriction};

use super::layer::Layer;
use super::naming::{Misnomer, misnomer};
use super::repository::Paths;
use super::{McpServers, Settings, SystemPrompt, ToolRules};

/// Lays the agents of `--agents` over those of files, and takes the one that the run is to be.
///
/// # Errors
/// A mistake in `--agents`, or there is no agent of the name.
pub(super) fn muster(
    args: &RunArgs,
    file: &Layer,
    library: &mut Library,
) -> Result<Option<AgentDefinition>, UsageError> {
    if let Some(given) = &args.prompts.agents {
        let (agents, warnings) = agents_of_flag(given)?;
        let given = |name: &str| agents.iter().any(|agent| agent.definition.name == name);
        library.agents.retain(|agent| !given(&agent.definition.name));
        library.agents.extend(agents);
        library.warnings.extend(warnings);
    }
    library.preload();
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
        None => "there are none; see AGENTS in outlast(1)".to_owned(),
    };
    Err(UsageError::new(format!("{place}: there is no agent {name:?}: {hint}")))
}

impl Settings {
    /// What the model is told of skills, if it can read them.
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

/// The same flags for a run that is an agent: its model counts where no flag names one.
pub(super) fn dressed(args: &RunArgs, role: Option<&AgentDefinition>) -> RunArgs {
    let mut args = args.clone();
    if let Some(model) = role.and_then(|role| role.model.clone()) {
        args.model.model.get_or_insert(model);
    }
    args
}

/// Gives a run the prompt and the tools of an agent, as far as no flag says otherwise.
///
/// # Errors
/// It has no tool that there is.
pub(super) fn cast(
    role: &AgentDefinition,
    system: &mut SystemPrompt,
    tools: &mut ToolRules,
    servers: &McpServers,
    paths: &Paths<'_>,
) -> Result<(), UsageError> {
    system.role = Some(role.prompt.clone()).filter(|prompt| !prompt.is_empty());
    let no_rule = |rule: &&String| check_restriction(rule, paths.cwd, paths.home).is_err();
    if let Some(bad) = role.disallowed_tools.iter().find(no_rule) {
        return Err(UsageError::new(format!(
            "the agent {:?}: {bad:?} in disallowedTools is no rule; correct it",
            role.name
        )));
    }
    let near = |rule: &&String| misnomer(rule).filter(|misnomer| misnomer.is_near);
    if let Some((rule, Misnomer { why, .. })) =
        role.disallowed_tools.iter().find_map(|rule| Some((rule, near(&rule)?)))
    {
        return Err(UsageError::new(format!(
            "the agent {:?}: {rule:?} in disallowedTools {why}",
            role.name
        )));
    }
    tools.deny.extend(role.disallowed_tools.iter().cloned());
    let Some(wanted) = role.tools.as_ref().filter(|_| tools.only.is_none()) else { return Ok(()) };
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
        let prefix = mcp::prefix(&server.name);
        let whole = prefix.trim_end_matches('_');
        if !wanted.iter().any(|name| name == whole || name.starts_with(&prefix)) {
            tools.deny.push(format!("{prefix}*"));
        }
    }
    Ok(())
}
