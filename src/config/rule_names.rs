//! Checks the tool names in permission rules: a rule with an unknown name never matches.
//!
//! A likely typo in a rule that restricts the run is a hard error; other unknown names are
//! warnings.

use serde_json::Value;
use strsim::osa_distance;

use super::spans::JsonPaths;
use crate::tools::{ToolName, built_in_names, classify_tool_name};

/// A mistake in the tool name of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRuleName {
    /// The message after the position and the rule.
    pub why: String,
    /// True if it is a likely typo of a known name.
    pub is_near: bool,
}

/// The message about an allow rule that names all tools.
pub const ALLOWS_NOTHING: &str = "has no effect: name tools, or use the mode bypassPermissions";

/// Checks the tool name of a rule.
pub fn check_rule_name(rule: &str) -> Option<BadRuleName> {
    let name = match classify_tool_name(rule) {
        ToolName::Known | ToolName::McpServer(_) => return None,
        ToolName::Misspelled(meant) => {
            let why = format!("names no tool; did you mean \"{meant}\"?");
            return Some(BadRuleName { why, is_near: true });
        }
        ToolName::Unknown(name) => name.to_lowercase(),
    };
    let known = built_in_names().into_iter();
    let near = known.map(|tool| (osa_distance(&name, &tool.to_lowercase()), tool)).min();
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
pub fn untrusted_rule_warning(file: &str, text: &str) -> Option<String> {
    let settings: Value = serde_json::from_str(text).ok()?;
    let mut unknown = Vec::new();
    for list in ["deny", "ask"] {
        let rules = settings["permissions"][list].as_array().into_iter().flatten();
        for (index, rule) in rules.enumerate() {
            if rule.as_str().is_some_and(|rule| check_rule_name(rule).is_some()) {
                unknown.push((list, index.to_string()));
            }
        }
    }
    let (list, index) = unknown.first()?;
    let places = JsonPaths::scan(text);
    let (line, column) = places.start(places.nearest(["permissions", list, index]));
    let more = match unknown.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let first = format!("permissions.{list}[{index}]");
    Some(format!("{file}:{line}:{column}: {first}{more} names no tool, and has no effect"))
}
