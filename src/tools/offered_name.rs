//! The names by which tools of rules are offered. Pure.

use crate::transcript::is_name_letter;

/// The prefix of MCP tool names.
const MCP: &str = "mcp__";

/// The name by which a tool of a rule is offered: rules may name MCP servers and their tools as
/// these call themselves, with characters that names of tools cannot have.
pub fn offered_name(name: &str) -> String {
    let Some(rest) = name.strip_prefix(MCP) else { return name.to_owned() };
    let letter = |letter: char| if is_name_letter(letter) || letter == '*' { letter } else { '_' };
    format!("{MCP}{}", rest.chars().map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mcp_tool_is_offered_without_special_characters() {
        for (name, wanted) in [
            ("mcp__my.server__get x", "mcp__my_server__get_x"),
            ("mcp__a-b_C__*", "mcp__a-b_C__*"),
            ("mcp__sérver", "mcp__s_rver"),
            ("Read.x", "Read.x"),
        ] {
            assert_eq!(offered_name(name), wanted);
        }
    }
}
