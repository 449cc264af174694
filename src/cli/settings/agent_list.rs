//! Loads the agent definitions, and applies that of the run's agent.

use serde_json::json;
use strsim::osa_distance;

use super::{McpServers, Settings, SystemPrompt, ToolRules};
use crate::cli::args::RunArgs;
use crate::cli::prompts::{PromptLibrary, SkillFolder, agents_of_flag};
use crate::cli::usage::UsageError;
use crate::config::environment;
use crate::config::fold::Fold;
use crate::config::registry;
use crate::config::repository::RulePaths;
use crate::config::rule_names::{BadRuleName, check_rule_name};
use crate::mcp;
use crate::tools::{AgentDefinition, GENERAL_PURPOSE, RuleList, built_in_names, check_rule};

/// Merges the agents of `--agents` over those of files, and returns the run's agent. `agent` is the
/// flag or setting that names it, and its name.
///
/// # Errors
/// A mistake in `--agents`, or no agent has the name.
pub(super) fn load(
    args: &RunArgs,
    agent: Option<(&str, &str)>,
    library: &mut PromptLibrary,
) -> Result<Option<AgentDefinition>, UsageError> {
    define(args, library)?;
    let chosen = choose(agent, library);
    if args.prompts.more_follows && chosen.is_err() {
        return Ok(None);
    }
    chosen.map_err(|error| UsageError::new(format!("{error}{}", library.left_out())))
}

/// Like [`load`], for a resumed session. Its agent may not exist any more; the contract contains
/// the agent's tools and rules.
///
/// # Errors
/// A mistake in `--agents`.
pub(super) fn load_for_resume(
    args: &RunArgs,
    agent: Option<(&str, &str)>,
    library: &mut PromptLibrary,
) -> Result<Option<AgentDefinition>, UsageError> {
    define(args, library)?;
    Ok(choose(agent, library).unwrap_or_else(|error| {
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
    agent: Option<(&str, &str)>,
    library: &PromptLibrary,
) -> Result<Option<AgentDefinition>, UsageError> {
    let Some((place, name)) = agent else { return Ok(None) };
    let known = library.agents.iter().map(|agent| &agent.definition);
    if let Some(agent) = known.clone().find(|agent| agent.name == name.trim()) {
        return Ok(Some(agent.clone()));
    }
    if name.trim() == GENERAL_PURPOSE {
        // The built-in kind has all tools and no further prompt, like a run without an agent.
        return Ok(None);
    }
    let near = known.min_by_key(|agent| osa_distance(name, &agent.name));
    let hint = match near {
        Some(near) => format!("the nearest is {:?}", near.name),
        None => "there are none; see outlast-agents(7)".to_owned(),
    };
    Err(UsageError::new(format!("{place}: there is no agent {name:?}: {hint}")))
}

impl Settings {
    /// Returns the list of skills for the model, if it can read them.
    pub(in crate::cli) fn instructions(&self) -> Option<String> {
        let reads = |only: &Vec<String>| only.iter().any(|name| name == "Read");
        self.library.instructions().filter(|_| self.tools.only.as_ref().is_none_or(reads))
    }

    /// Returns the folders of the skills.
    pub(in crate::cli) fn skill_folders(&self) -> Vec<SkillFolder> {
        let home = environment::home(&self.variables);
        self.library.skill_folders(&self.cwd, home.as_deref())
    }
}

/// Adds the model, the permission mode and the turn limit of the run's agent, as far as it
/// `may_set` them. Those of an untrusted agent were removed when it was read. The turn limit never
/// exceeds `most`.
pub(super) fn add_to(
    fold: &mut Fold,
    role: &AgentDefinition,
    file: &str,
    may_set: impl Fn(&str) -> bool,
    most: Option<u32>,
) {
    let turns = role.max_turns.filter(|own| most.is_none_or(|most| *own < most));
    let values = [
        ("model", role.model.as_ref().map(|model| json!(model))),
        ("effortLevel", role.effort.map(|level| json!(level))),
        ("permissions.defaultMode", role.permission_mode.map(|mode| json!(mode))),
        ("maxTurns", turns.map(|turns| json!(turns))),
    ];
    for (key, value) in values {
        let is_barred = key != "maxTurns" && !may_set(key);
        if let (Some(setting), Some(value), false) = (registry::find(key), value, is_barred) {
            fold.replace(setting, value, &format!("the agent {} ({file})", role.name));
        }
    }
}

/// Applies the prompt and the tools of the run's agent, unless flags outrank them.
///
/// # Errors
/// None of its tools exists.
pub(super) fn apply_prompt_and_tools(
    role: &AgentDefinition,
    system: &mut SystemPrompt,
    (tools, deny): (&mut ToolRules, &mut Vec<String>),
    servers: &McpServers,
    paths: &RulePaths<'_>,
) -> Result<(), UsageError> {
    system.role = Some(role.prompt.clone()).filter(|prompt| !prompt.is_empty());
    let wrong = |what: &str| UsageError::new(format!("the agent {:?}: {what}", role.name));
    let no_rule = |rule: &&String| check_rule(rule, RuleList::Deny, paths.cwd, paths.home).is_err();
    if let Some(bad) = role.disallowed_tools.iter().find(no_rule) {
        return Err(wrong(&format!("{bad:.200?} in disallowedTools is not a rule; correct it")));
    }
    let near = |rule: &&String| check_rule_name(rule).filter(|bad| bad.is_near);
    if let Some((rule, BadRuleName { why, .. })) =
        role.disallowed_tools.iter().find_map(|rule| Some((rule, near(&rule)?)))
    {
        return Err(wrong(&format!("{rule:?} in disallowedTools {why}")));
    }
    deny.extend(role.disallowed_tools.iter().cloned());
    let wanted = role.tools.as_ref().filter(|_| tools.only.is_none());
    let Some(wanted) = wanted else { return Ok(()) };
    let is_bad = |rule: &&String| {
        rule.contains('(') && check_rule(rule, RuleList::Allow, paths.cwd, paths.home).is_err()
    };
    if let Some(bad) = role.tool_rules.iter().find(is_bad) {
        return Err(wrong(&format!("{bad:.200?} in tools is not a rule; correct it")));
    }
    tools.limits.extend(Some(role.tool_rules.clone()).filter(|rules| !rules.is_empty()));
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
            deny.push(format!("{prefix}*"));
        }
    }
    Ok(())
}
