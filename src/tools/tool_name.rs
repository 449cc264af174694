//! Validates the tool names in permission rules.

use super::catalog::{BuiltinTool, built_in_names, is_agent_tool};
use super::permission::wildcard;

/// Tools of other clients that read the same settings files, and tools that are not always there. A
/// rule for one that is not there has no effect, but is not a typo.
#[rustfmt::skip]
const OTHER_TOOLS: [&str; 37] = [
    "AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterPlanMode", "EnterWorktree",
    "ExitPlanMode", "ExitWorktree", "KillBash", "LS", "LSP", "ListMcpResources",
    "ListMcpResourcesTool", "Monitor", "MultiEdit", "NotebookRead", "PowerShell",
    "PushNotification", "ReadMcpResource", "ReadMcpResourceTool", "RemoteTrigger",
    "ScheduleWakeup", "SendMessage", "Skill", "SlashCommand", "StructuredOutput", "TaskCreate",
    "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TeamCreate", "TeamDelete",
    "TodoRead", "WaitForMcpServers", "Workflow",
];

/// The prefix of MCP tool names.
const MCP: &str = "mcp__";

/// The meaning of the tool name in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolName<'a> {
    /// A built-in tool, or one that is not always there.
    Known,
    /// A tool of an MCP server, or all of them: the text after `mcp__`.
    McpServer(&'a str),
    /// A known name with wrong capitalization or a mistyped prefix; holds the correct name.
    Misspelled(String),
    /// Unknown tool.
    Unknown(&'a str),
}

/// Classifies the tool name in a rule.
pub fn classify_tool_name(rule: &str) -> ToolName<'_> {
    let name = rule.split_once('(').map_or(rule, |(name, _)| name).trim();
    if let Some(rest) = name.strip_prefix(MCP) {
        return ToolName::McpServer(rest);
    }
    let known = || built_in_names().into_iter().chain(OTHER_TOOLS);
    let fits =
        |pattern: &str| is_agent_tool(pattern) || known().any(|tool| wildcard(pattern, tool));
    if fits(name) || wildcard(name, MCP) {
        return ToolName::Known;
    }
    let small = name.to_lowercase();
    let mut names = BuiltinTool::ALL.map(BuiltinTool::name).into_iter().chain(["Agent", "Task"]);
    if let Some(tool) = names.find(|tool| wildcard(&small, &tool.to_lowercase())) {
        return ToolName::Misspelled(tool.to_owned());
    }
    let rest = small.strip_prefix("mcp").and_then(|_| name.get("mcp".len()..));
    match rest.map(|rest| (rest, rest.trim_start_matches(['_', '-', ':', '.']))) {
        Some((rest, server)) if rest.len() > server.len() && !server.is_empty() => {
            ToolName::Misspelled(format!("{MCP}{server}"))
        }
        Some(_) | None => ToolName::Unknown(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_misspelt_or_unknown() {
        let misspelt = |name: &str| ToolName::Misspelled(name.to_owned());
        for (rule, meant) in [
            ("Read(./x)", ToolName::Known),
            (" Bash ( rm * )", ToolName::Known),
            ("*", ToolName::Known),
            ("Glo*", ToolName::Known),
            ("mcp*", ToolName::Known),
            ("Agent(Explore)", ToolName::Known),
            ("Task", ToolName::Known),
            ("NotebookEdit(x)", ToolName::Known),
            ("ReadMcpResource", ToolName::Known),
            ("ReadMcpResourceTool", ToolName::Known),
            ("Notebook*", ToolName::Known),
            ("mcp__srv__x", ToolName::McpServer("srv__x")),
            ("mcp__*", ToolName::McpServer("*")),
            ("bash(curl *)", misspelt("Bash")),
            ("bas*", misspelt("Bash")),
            ("Webfetch(domain:x)", misspelt("WebFetch")),
            ("agent(Explore)", misspelt("Agent")),
            ("mcp_srv__x", misspelt("mcp__srv__x")),
            ("MCP__srv", misspelt("mcp__srv")),
            ("mcp-srv", misspelt("mcp__srv")),
            ("mcp", ToolName::Unknown("mcp")),
            ("Raed(./x)", ToolName::Unknown("Raed")),
            ("Frobnicate", ToolName::Unknown("Frobnicate")),
        ] {
            assert_eq!(classify_tool_name(rule), meant, "{rule}");
        }
    }
}
