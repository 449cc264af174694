//! Checks the tool names in permission rules: a rule with an unknown name never matches.
//!
//! A likely typo in a rule that restricts the run is a hard error; other unknown names are
//! warnings.

use serde_json::Value;

use super::locate::JsonPaths;
use super::{McpServers, ToolRules};
use crate::cli::args::ToolArgs;
use crate::cli::edit_distance::distance;
use crate::cli::usage::UsageError;
use crate::cli::values;
use crate::mcp;
use crate::tools::{AgentDefinition, ToolName, built_in_names, classify_tool_name};

/// The maximum number of names in a warning.
const NAMED_MAX: usize = 8;

/// What is wrong with the name in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadRuleName {
    /// The message after the position and the rule.
    pub(super) why: String,
    /// Whether it is a likely typo of a known name.
    pub(super) is_near: bool,
}

/// Whether a rule restricts the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RulePurpose {
    Restricts,
    Allows,
}

/// Checks the tool name of a rule.
pub(super) fn check_rule_name(rule: &str) -> Option<BadRuleName> {
    let name = match classify_tool_name(rule) {
        ToolName::Known | ToolName::McpServer(_) => return None,
        ToolName::Misspelled(meant) => {
            let why = format!("names no tool; did you mean \"{meant}\"?");
            return Some(BadRuleName { why, is_near: true });
        }
        ToolName::Unknown(name) => name.to_lowercase(),
    };
    let known = built_in_names().into_iter();
    let near = known.map(|tool| (distance(&name, &tool.to_lowercase()), tool)).min();
    let near = near.filter(|(distance, tool)| *distance <= tool.len().div_ceil(4).min(2));
    Some(match near {
        Some((_, tool)) => {
            BadRuleName { why: format!("names no tool; did you mean \"{tool}\"?"), is_near: true }
        }
        None => BadRuleName {
            why: "names no tool of this version of outlast, and has no effect".to_owned(),
            is_near: false,
        },
    })
}

/// Warns about unknown tool names in an untrusted file. Its content is not quoted, and a mistake in
/// it does not end the run.
pub(super) fn untrusted_rule_warning(file: &str, text: &str) -> Option<String> {
    let settings: Value = serde_json::from_str(text).ok()?;
    let mut strange = Vec::new();
    for list in ["deny", "ask"] {
        let rules = settings["permissions"][list].as_array().into_iter().flatten();
        for (index, rule) in rules.enumerate() {
            if rule.as_str().is_some_and(|rule| check_rule_name(rule).is_some()) {
                strange.push((list, index.to_string()));
            }
        }
    }
    let (list, index) = strange.first()?;
    let places = JsonPaths::scan(text);
    let (line, column) = places.start(places.nearest(["permissions", list, index]));
    let more = match strange.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let first = format!("permissions.{list}[{index}]");
    Some(format!("{file}:{line}:{column}: {first}{more} names no tool, and has no effect"))
}

/// Warns about rules of flags with an unknown tool, and about all restricting rules for an MCP
/// server that does not exist.
///
/// # Errors
/// A restricting rule of a flag is a likely typo of a tool name.
pub(super) fn check_run_rules(
    flags: &ToolArgs,
    rules: &ToolRules,
    servers: &McpServers,
) -> Result<Vec<String>, UsageError> {
    let denied =
        check_flag_rules("--disallowedTools", &flags.disallowed_tools, RulePurpose::Restricts)?;
    let allowed = check_flag_rules("--allowedTools", &flags.allowed_tools, RulePurpose::Allows)?;
    Ok([denied, allowed, missing_server_warnings(rules, servers)].concat())
}

/// Warns about unknown tools that agents are given or denied.
pub(super) fn check_agent_tools(agents: &[AgentDefinition]) -> Vec<String> {
    let mut told = Vec::new();
    for agent in agents {
        let given = agent.tools.iter().flatten().map(|rule| ("tools", rule));
        let denied = agent.disallowed_tools.iter().map(|rule| ("disallowedTools", rule));
        for (list, rule) in given.chain(denied) {
            if let Some(BadRuleName { why, .. }) = check_rule_name(rule) {
                told.push(format!("the agent {:?}: \"{rule}\" of {list} {why}", agent.name));
            }
        }
    }
    told.truncate(NAMED_MAX);
    told
}

fn check_flag_rules(
    flag: &str,
    given: &[String],
    purpose: RulePurpose,
) -> Result<Vec<String>, UsageError> {
    let mut told = Vec::new();
    for rule in &values::list(given) {
        let Some(BadRuleName { why, is_near }) = check_rule_name(rule) else { continue };
        let said = format!("{flag}: the rule \"{rule}\" {why}");
        if is_near && purpose == RulePurpose::Restricts {
            return Err(UsageError::new(said));
        }
        told.push(said);
    }
    told.truncate(NAMED_MAX);
    Ok(told)
}

fn missing_server_warnings(rules: &ToolRules, servers: &McpServers) -> Vec<String> {
    let known: Vec<String> =
        servers.servers.iter().map(|server| mcp::tool_name_prefix(&server.name)).collect();
    let lists = [("deny", &rules.deny), ("ask", &rules.ask)];
    let mut told = Vec::new();
    for (list, rule) in
        lists.into_iter().flat_map(|(list, all)| all.iter().map(move |one| (list, one)))
    {
        let ToolName::McpServer(rest) = classify_tool_name(rule) else { continue };
        let (head, is_open) = rest.split_once('*').map_or((rest, false), |(head, _)| (head, true));
        let head = format!("mcp__{head}");
        let fits = |prefix: &String| {
            head.starts_with(prefix.as_str())
                || prefix.trim_end_matches('_') == head.trim_end_matches('_')
                || is_open && prefix.starts_with(&head)
        };
        // A wildcard for the server may match servers that are added later.
        let names_none = is_open && !head["mcp__".len()..].contains("__");
        if names_none || known.iter().any(fits) {
            continue;
        }
        let server = rest.split("__").next().unwrap_or_default();
        let near = servers
            .servers
            .iter()
            .map(|known| (distance(server, &known.name), known))
            .min_by_key(|(far, _)| *far);
        let hint = near.filter(|(far, _)| *far <= 2).map_or(String::new(), |(_, known)| {
            format!(
                "; did you mean \"{}\"?",
                mcp::tool_name_prefix(&known.name).trim_end_matches('_')
            )
        });
        told.push(format!(
            "the {list} rule \"{rule}\" names no MCP server of this run, and has no effect{hint}"
        ));
    }
    told.truncate(NAMED_MAX);
    told
}
