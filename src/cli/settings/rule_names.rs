//! Checks the tool names in the rules of flags and agents, and the servers that rules name.

use std::collections::BTreeMap;

use strsim::osa_distance;

use super::{McpServers, ModelChain};
use crate::cli::args::RunArgs;
use crate::cli::usage::UsageError;
use crate::config::rule_names::{ALLOWS_NOTHING, BadRuleName, check_rule_name};
use crate::config::values;
use crate::hooks::HookHandler;
use crate::mcp;
use crate::tools::{
    AgentDefinition, PermissionSettings, ToolName, WEB_SEARCH, built_in_names, classify_tool_name,
    is_agent_tool, known_names, offered_name,
};

/// The maximum number of names in a warning.
const NAMED_MAX: usize = 8;

/// Purpose of a rule: to restrict the run, or to allow calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RulePurpose {
    Restricts,
    Allows,
}

/// Warns about names of `--tools`, rules of flags, matchers of hooks and aliases with an unknown
/// tool, and about all restricting rules for an MCP server that does not exist.
///
/// # Errors
/// A restricting rule of a flag, or the matcher of a guard, is a likely typo of a tool name.
pub(super) fn check_run_rules(
    args: &RunArgs,
    rules: &PermissionSettings,
    hooks: &[HookHandler],
    servers: &McpServers,
    chain: &ModelChain,
) -> Result<Vec<String>, UsageError> {
    let flags = &args.flags;
    let offered = args.tools.tools.as_deref().map_or_else(Vec::new, |names| offered_tools(names).1);
    let denied = check_flag_rules(
        "--disallowedTools",
        flags.texts("disallowed-tools"),
        RulePurpose::Restricts,
    )?;
    let allowed =
        check_flag_rules("--allowedTools", flags.texts("allowed-tools"), RulePurpose::Allows)?;
    let search = Vec::from_iter(search_warning(args, chain));
    let matchers = check_hook_matchers(hooks)?;
    let aliases = alias_warnings(&args.tools.aliases, servers);
    let missing = missing_server_warnings(rules, servers);
    Ok([offered, denied, allowed, search, matchers, aliases, missing].concat())
}

/// Corrects the capitalization of the names in `toolAliases`. An exact name takes precedence over
/// another spelling of it.
///
/// # Errors
/// A name is a likely typo of a tool, which would run in its own place.
pub(super) fn tool_aliases(
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, UsageError> {
    let corrected = |name: &str| match classify_tool_name(name) {
        ToolName::Misspelled(meant) => meant,
        ToolName::Known | ToolName::McpServer(_) | ToolName::Unknown(_) => name.to_owned(),
    };
    let pair = |(name, target): (&String, &String)| {
        let name = corrected(name);
        match check_rule_name(&name) {
            Some(bad) if bad.is_near => {
                Err(UsageError::new(format!("toolAliases: \"{name}\" {}", bad.why)))
            }
            Some(_) | None => Ok((name, corrected(target))),
        }
    };
    let (exact, others): (Vec<_>, Vec<_>) =
        given.iter().partition(|(name, _)| corrected(name) == **name);
    others.into_iter().chain(exact).map(pair).collect()
}

/// Warns about names in `toolAliases` that no tool has.
fn alias_warnings(aliases: &BTreeMap<String, String>, servers: &McpServers) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, target) in aliases {
        if let ToolName::Unknown(name) = classify_tool_name(name) {
            warnings.push(format!("toolAliases: \"{name}\" names no tool, and has no effect"));
        }
        let hint = match classify_tool_name(target) {
            ToolName::Known | ToolName::Misspelled(_) => continue,
            ToolName::Unknown(_) => String::new(),
            ToolName::McpServer(rest) => match hint_at_server(rest, servers) {
                Some(hint) => hint,
                None => continue,
            },
        };
        warnings.push(format!(
            "toolAliases: \"{target}\" names no tool of this run, so calls of {name} fail{hint}"
        ));
    }
    warnings.truncate(NAMED_MAX);
    warnings
}

/// Warns about matchers of hooks that match no tool, or have a name of none: such a hook never runs
/// for it.
///
/// # Errors
/// The hook is a guard.
fn check_hook_matchers(hooks: &[HookHandler]) -> Result<Vec<String>, UsageError> {
    let mut warnings = Vec::new();
    for hook in hooks {
        let mut mistakes: Vec<String> = hook.named_tools().iter().filter_map(wrong_name).collect();
        if mistakes.is_empty() && hook.matches_no_tool(known_names()) {
            let why = "matches no tool, so its hooks never run; name tools, such as \"Bash|Edit\"";
            mistakes.push(why.to_owned());
        }
        let group = hook.place.split(".hooks[").next().unwrap_or_default();
        for mistake in mistakes {
            let warning = format!("{}: {group}.matcher: {mistake}", hook.source);
            if hook.is_guard() {
                let why = format!("{warning} One of its hooks is a guard (failClosed, onFailure)");
                return Err(UsageError::new(why));
            }
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    warnings.truncate(NAMED_MAX);
    Ok(warnings)
}

/// Describes a name in a matcher that is likely to be meant otherwise.
fn wrong_name(name: &String) -> Option<String> {
    let server = name.strip_prefix("mcp__").filter(|rest| !rest.contains("__"));
    if server.is_some() {
        return Some(format!("\"{name}\" matches no tool of that server; write \"{name}__.*\""));
    }
    let bad = check_rule_name(name).filter(|bad| bad.is_near)?;
    Some(format!("\"{name}\" {}", bad.why))
}

/// Reads the names of `--tools`, and warns about those that offer nothing. A rule in parentheses is
/// ignored: permissions of a tool are set by other flags.
pub(super) fn offered_tools(given: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut names, mut warnings) = (Vec::new(), Vec::new());
    for item in values::list(given) {
        let (name, rule) =
            item.split_once('(').map_or((item.as_str(), None), |(name, rule)| (name, Some(rule)));
        if rule.is_some() {
            warnings.push(format!("--tools: \"{item}\" offers {name} whole; restrict it by --allowedTools and --disallowedTools"));
        }
        // Definitions of agents write all tools so.
        let name = if ["*", "all"].contains(&name) { "default" } else { name };
        match classify_tool_name(name) {
            ToolName::Misspelled(meant) => names.push(meant),
            ToolName::Known if !(is_agent_tool(name) || built_in_names().contains(&name)) => {
                warnings.push(format!("--tools: outlast has no tool {name}; it is left out"));
            }
            ToolName::Unknown("default") | ToolName::Known | ToolName::McpServer(_) => {
                names.push(name.to_owned());
            }
            ToolName::Unknown(_) => {
                let why = check_rule_name(name).map_or(String::new(), |bad| bad.why);
                warnings.push(format!("--tools: \"{name}\" {why}"));
            }
        }
    }
    warnings.truncate(NAMED_MAX);
    (names, warnings)
}

/// Warns about unknown tools in the lists of agents.
pub(super) fn check_agent_tools(agents: &[AgentDefinition]) -> Vec<String> {
    let mut warnings = Vec::new();
    for agent in agents {
        let given = agent.tools.iter().flatten().map(|rule| ("tools", rule));
        let denied = agent.disallowed_tools.iter().map(|rule| ("disallowedTools", rule));
        for (list, rule) in given.chain(denied) {
            if let Some(BadRuleName { why, .. }) = check_rule_name(rule) {
                warnings.push(format!("the agent {:?}: \"{rule}\" of {list} {why}", agent.name));
            }
        }
    }
    warnings.truncate(NAMED_MAX);
    warnings
}

fn check_flag_rules(
    flag: &str,
    given: &[String],
    purpose: RulePurpose,
) -> Result<Vec<String>, UsageError> {
    let mut warnings = Vec::new();
    for rule in &values::list(given) {
        if rule == "*" && purpose == RulePurpose::Allows {
            warnings.push(format!("{flag}: the rule \"*\" {ALLOWS_NOTHING}"));
            continue;
        }
        let Some(BadRuleName { why, is_near }) = check_rule_name(rule) else { continue };
        let warning = format!("{flag}: the rule \"{rule}\" {why}");
        if is_near && purpose == RulePurpose::Restricts {
            return Err(UsageError::new(warning));
        }
        warnings.push(warning);
    }
    warnings.truncate(NAMED_MAX);
    Ok(warnings)
}

/// Warns if flags request web search and the service does not offer it.
fn search_warning(args: &RunArgs, chain: &ModelChain) -> Option<String> {
    let allowed = args.flags.texts("allowed-tools");
    let offered = args.tools.tools.as_deref().unwrap_or_default();
    let named =
        [("--allowedTools", allowed), ("--tools", offered)].into_iter().find(|(_, given)| {
            values::list(given).iter().any(|rule| rule.split('(').next() == Some(WEB_SEARCH))
        });
    let (flag, _) = named.filter(|_| !chain.can_search_web())?;
    Some(format!("{flag}: {WEB_SEARCH} is not offered: the service of the model has no search"))
}

fn missing_server_warnings(rules: &PermissionSettings, servers: &McpServers) -> Vec<String> {
    let lists = [("deny", &rules.deny), ("ask", &rules.ask)];
    let mut warnings = Vec::new();
    for (list, rule) in
        lists.into_iter().flat_map(|(list, all)| all.iter().map(move |one| (list, one)))
    {
        let ToolName::McpServer(rest) = classify_tool_name(rule) else { continue };
        let Some(hint) = hint_at_server(rest, servers) else { continue };
        warnings.push(format!(
            "the {list} rule \"{rule}\" names no MCP server of this run, and has no effect{hint}"
        ));
    }
    warnings.truncate(NAMED_MAX);
    warnings
}

/// If no MCP server of the run has tools of this name (the text after `mcp__`), returns a hint at
/// the server that is probably meant, or an empty text.
fn hint_at_server(rest: &str, servers: &McpServers) -> Option<String> {
    let known: Vec<String> =
        servers.servers.iter().map(|server| mcp::tool_name_prefix(&server.name)).collect();
    let name = offered_name(&format!("mcp__{rest}"));
    let rest = &name["mcp__".len()..];
    let (head, is_open) = rest.split_once('*').map_or((rest, false), |(head, _)| (head, true));
    let head = format!("mcp__{head}");
    let fits = |prefix: &String| {
        head.starts_with(prefix.as_str())
            || prefix.trim_end_matches('_') == head.trim_end_matches('_')
            || is_open && prefix.starts_with(&head)
    };
    // A wildcard for the server may match servers that are added later.
    let may_match_later = is_open && !head["mcp__".len()..].contains("__");
    if may_match_later || known.iter().any(fits) {
        return None;
    }
    let server = rest.split("__").next().unwrap_or_default();
    let near = servers
        .servers
        .iter()
        .map(|known| (osa_distance(server, &known.name), known))
        .min_by_key(|(far, _)| *far);
    Some(near.filter(|(far, _)| *far <= 2).map_or(String::new(), |(_, known)| {
        format!("; did you mean \"{}\"?", mcp::tool_name_prefix(&known.name).trim_end_matches('_'))
    }))
}
