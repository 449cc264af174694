//! The names by which tools of rules are offered. Pure.

use serde_json::Value;

use crate::transcript::is_name_letter;

use super::input_names::bare;

/// The prefix of MCP tool names.
pub(super) const MCP: &str = "mcp__";

/// Names that tools have in other versions and clients, and the names here. Of several for a tool,
/// hooks may use the first one.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("ListMcpResourcesTool", "ListMcpResources"),
    ("ReadMcpResourceTool", "ReadMcpResource"),
    ("TaskOutput", "BashOutput"),
    ("TaskStop", "KillShell"),
    ("KillBash", "KillShell"),
];

/// Tools of other agents, as [`bare`] writes their names, and the tool here that does the same.
#[rustfmt::skip]
const SIMILAR: [(&str, &[&str]); 9] = [
    ("Bash", &[
        "executebash", "runshellcommand", "shell", "execcommand", "runcommand", "executecommand",
        "runterminalcmd", "runinterminal", "terminal", "localshell", "cmd", "sh", "monitor",
    ]),
    ("BashOutput", &["agentoutputtool"]),
    ("Edit", &[
        "strreplacebasededittool", "strreplaceeditor", "strreplace", "multiedit", "applypatch",
        "applydiff", "editfile", "replaceinfile", "searchreplace", "replace", "update",
    ]),
    ("Read", &["readfile", "readmanyfiles", "view", "viewfile", "openfile", "cat", "notebookread"]),
    ("Write", &["writefile", "writetofile", "createfile", "savefile"]),
    ("Glob", &[
        "ls", "listfiles", "listdir", "listdirectory", "findfiles", "filesearch", "globfilesearch",
    ]),
    ("Grep", &["grepsearch", "searchfiles", "searchfilecontent", "codebasesearch", "ripgrep", "rg"]),
    ("WebFetch", &["fetch", "fetchurl"]),
    ("TodoWrite", &[
        "updateplan", "writetodos", "updatetodolist", "todoread", "taskcreate", "taskupdate",
    ]),
];

/// The tool here that corresponds to a tool of another agent.
pub(super) fn similar_tool(name: &str) -> Option<&'static str> {
    let given = bare(name);
    let similar = SIMILAR.iter().find(|(_, others)| others.contains(&given.as_str()));
    similar.map(|(tool, _)| *tool)
}

/// The name here of a tool that has another name elsewhere.
pub(super) fn name_here(name: &str) -> Option<&'static str> {
    OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, here)| *here)
}

/// The name that a tool has elsewhere, if it is another one.
pub fn other_name(name: &str) -> Option<&'static str> {
    OTHER_NAMES.iter().find(|(_, here)| *here == name).map(|(other, _)| *other)
}

/// The name by which a tool of a rule is offered: rules may name MCP servers and their tools as
/// these call themselves, with characters that names of tools cannot have, and other tools as they
/// are called elsewhere.
pub fn offered_name(name: &str) -> String {
    let Some(rest) = name.strip_prefix(MCP) else {
        return name_here(name).unwrap_or(name).to_owned();
    };
    let letter = |letter: char| if is_name_letter(letter) || letter == '*' { letter } else { '_' };
    format!("{MCP}{}", rest.chars().map(letter).collect::<String>())
}

/// The input of a call of an external tool, for rules about one value of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExternalInput<'a> {
    pub(super) input: &'a Value,
    /// The schema of the tool's input, if it is known.
    pub(super) schema: Option<&'a Value>,
}

/// The names of an external tool, for rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExternalName<'a> {
    /// The name by which it is offered.
    pub(super) offered: &'a str,
    /// The name by which its server calls it, with the server's prefix. `None`: it has no other.
    pub(super) own: Option<&'a str>,
}

impl<'a> ExternalName<'a> {
    /// The names of a tool that has only one.
    pub(super) fn only(offered: &'a str) -> Self {
        Self { offered, own: None }
    }

    /// The name without special characters, by which it would be offered alone.
    pub(super) fn plain(self) -> String {
        let letter = |letter| if is_name_letter(letter) { letter } else { '_' };
        self.own.unwrap_or(self.offered).chars().map(letter).collect()
    }

    /// True if the tool is offered by another name, because another tool has its plain name.
    pub(super) fn is_made_up(self) -> bool {
        self.plain() != self.offered
    }

    /// The name for a rule that allows it.
    pub(super) fn for_rule(self) -> &'a str {
        self.own.filter(|_| self.is_made_up()).unwrap_or(self.offered)
    }
}

/// The name of a server's own tool in a rule, with the prefix by which the server's tools are
/// offered. `None` if it has no special characters.
pub(super) fn own_name_of_rule(rule: &str) -> Option<String> {
    let (server, tool) = rule.strip_prefix(MCP)?.split_once("__")?;
    let server = offered_name(&format!("{MCP}{server}"));
    let own = format!("{server}__{tool}");
    (own != offered_name(&own)).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_may_have_the_own_name_of_a_tool() {
        for (rule, own) in [
            ("mcp__my.server__get x", Some("mcp__my_server__get x")),
            ("mcp__my.server__get_x", None),
            ("mcp__s__a*", None),
            ("Read.x", None),
        ] {
            assert_eq!(own_name_of_rule(rule).as_deref(), own, "{rule}");
        }
    }

    #[test]
    fn a_tool_of_a_rule_is_offered_without_special_characters_and_by_its_name_here() {
        for (name, wanted) in [
            ("mcp__my.server__get x", "mcp__my_server__get_x"),
            ("mcp__a-b_C__*", "mcp__a-b_C__*"),
            ("mcp__sérver", "mcp__s_rver"),
            ("Read.x", "Read.x"),
            ("ReadMcpResourceTool", "ReadMcpResource"),
            ("KillBash", "KillShell"),
        ] {
            assert_eq!(offered_name(name), wanted);
        }
    }
}
