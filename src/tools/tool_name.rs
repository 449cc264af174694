//! Validates the tool names in permission rules.

use strsim::osa_distance;

use super::catalog::{BuiltinTool, built_in_names, is_agent_tool};
use super::offered_name::MCP;
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
    let fits =
        |pattern: &str| is_agent_tool(pattern) || known_names().any(|tool| wildcard(pattern, tool));
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

/// The names of the built-in tools and of those of similar programs.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    built_in_names().into_iter().chain(OTHER_TOOLS).chain(["Agent", "Task"])
}

/// The built-in tool that a misspelt name probably means.
pub fn nearest_tool(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let known = built_in_names().into_iter();
    let near = known.map(|tool| (osa_distance(&name, &tool.to_lowercase()), tool)).min();
    near.filter(|(distance, tool)| *distance <= tool.len().div_ceil(4).min(2)).map(|(_, tool)| tool)
}

/// The signs with which headings in a list end.
const HEADING_ENDS: [char; 7] = ['-', '=', '#', '*', '~', '_', '+'];

/// Signs with which paths, commands and quoted texts begin.
const PATH_STARTS: [char; 8] = ['/', '~', '.', '$', '!', '\'', '"', '`'];

/// True if an entry of a list of rules is a comment, which JSON does not have: `// Git`, `=== MCP
/// ===`. Not a comment: an entry with a rule after another sign, as in `- Bash(rm *)`, and one that
/// looks like a path or a command, such as `~/.ssh`, which may be meant to be denied.
pub fn is_comment_rule(entry: &str) -> bool {
    let entry = entry.trim();
    let name = entry.split('(').next().unwrap_or_default();
    let is_pattern = !name.contains(char::is_whitespace) && name.contains(['*', '_']);
    if entry.is_empty() || has_mark(entry) {
        return true;
    }
    let may_be_rule = |letter: char| letter.is_alphanumeric() || letter == '(';
    if entry.starts_with(may_be_rule) || is_pattern || is_like_a_path(entry) {
        return false;
    }
    let rest = entry.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let marks = entry[..entry.len() - rest.len()].trim_end();
    let is_end = |letter: char| HEADING_ENDS.contains(&letter) && marks.contains(letter);
    let is_heading = marks.chars().nth(1).is_some() && entry.ends_with(is_end);
    is_heading || !is_like_a_rule(rest)
}

/// True if an entry begins as comments do in other languages, and is not a path.
fn has_mark(entry: &str) -> bool {
    if let Some(rest) = entry.strip_prefix("//") {
        let word = rest.split(char::is_whitespace).next().unwrap_or_default();
        let is_line = word.chars().all(|letter| letter != '*' && HEADING_ENDS.contains(&letter));
        let is_word = word.starts_with(char::is_alphabetic) && !word.contains(['/', '*']);
        return is_line || is_word;
    }
    if let Some(rest) = entry.strip_prefix("/*") {
        return rest.starts_with(char::is_whitespace) || rest.ends_with("*/");
    }
    entry.starts_with('#') || entry.starts_with("<!--")
}

/// True if an entry begins like a path, like a command, or like an item of a list with either.
fn is_like_a_path(entry: &str) -> bool {
    let item = entry.strip_prefix(['-', '*']).and_then(|rest| rest.chars().next());
    let is_item = item.is_some_and(|letter| !HEADING_ENDS.contains(&letter) || letter == '~');
    entry.starts_with(PATH_STARTS) || is_item
}

/// True if a text begins with a likely name of a tool, or looks like a rule.
fn is_like_a_rule(text: &str) -> bool {
    let end = text.find(|letter: char| !(letter.is_alphanumeric() || "_-*".contains(letter)));
    let name = &text[..end.unwrap_or(text.len())];
    match classify_tool_name(name) {
        ToolName::Known | ToolName::Misspelled(_) | ToolName::McpServer(_) => true,
        ToolName::Unknown(name) => {
            text[name.len()..].starts_with('(') || nearest_tool(name).is_some()
        }
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

    #[test]
    fn an_entry_of_a_list_is_a_comment_or_may_be_meant_as_a_rule() {
        for (entry, expected) in [
            ("", true),
            ("  ", true),
            ("// Git", true),
            ("//Bash(rm *)", true),
            ("# read only", true),
            ("/* rules */", true),
            ("//====================", true),
            ("=== MCP ===", true),
            ("=== Bash (dangerous) ===", true),
            ("--- 1. Search (Grep Family) ---", true),
            ("*** Git ***", true),
            ("\u{1f4c1} Files", true),
            ("//", true),
            ("//Bash(x)", true),
            ("# ask", true),
            ("<!-- Git -->", true),
            ("/* end */", true),
            ("/* Git", true),
            ("--- Search (Grep) ---", true),
            ("- Git -", false),
            ("~/.ssh", false),
            ("/etc/passwd", false),
            ("./secrets", false),
            ("$HOME/.ssh", false),
            ("\"~/.ssh\"", false),
            ("/**/.env", false),
            ("//etc/**", false),
            ("///etc", false),
            ("//*.pem", false),
            ("!rm -rf *", false),
            ("- rm -rf *", false),
            ("-rm -rf *", false),
            ("* rm", false),
            ("- ~/.ssh", false),
            ("-/etc", false),
            ("-Raed(x)", false),
            ("'Bash(rm *)", false),
            ("Bash(rm *)", false),
            ("*", false),
            ("***", false),
            ("*_x", false),
            ("mcp__a", false),
            ("rm -rf *", false),
            ("Dangerous commands", false),
            ("- Bash(rm *)", false),
            ("-- Bash(rm *)", false),
            ("!Bash(rm *)", false),
            ("\"Bash(rm *)\"", false),
            ("'bash(rm *)", false),
            ("`Read(.env)`", false),
            ("/Read(.env)", false),
            ("@mcp__a", false),
            ("- mcp_a", false),
            ("(Bash)", false),
            ("- Raed", false),
            ("!Frobnicate(x)", false),
            ("-- Bash *", false),
            ("* Bash", false),
        ] {
            assert_eq!(is_comment_rule(entry), expected, "{entry}");
        }
    }
}
