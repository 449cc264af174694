//! Checks the tool names in permission rules: a rule with an unknown name never matches.
//!
//! A likely typo in a rule that restricts the run is a hard error; other unknown names are
//! warnings.

use std::path::Path;

use serde_json::Value;

use super::spans::JsonPaths;
use crate::tools::{
    RuleList, ToolName, check_rule, classify_tool_name, is_comment_rule, nearest_tool,
};

/// A mistake in the tool name of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRuleName {
    /// The message after the position and the rule.
    pub why: String,
    /// True if the name is a likely typo of a known name.
    pub is_near: bool,
}

/// Returns true if an entry of a list of rules has an effect, or must be reported as a mistake.
pub(super) fn has_effect(rule: &str, list: RuleList) -> bool {
    let root = Path::new("/");
    let is_rule = || list != RuleList::Allow || check_rule(rule, list, root, Some(root)).is_ok();
    !is_comment_rule(rule) && is_rule()
}

/// A mistake in a rule of a settings file.
pub(super) struct RuleMistake {
    pub(super) why: String,
    /// True if the run must not begin, because it could do more than its user wants. Otherwise the
    /// mistake is a warning.
    pub(super) is_error: bool,
}

/// Checks a rule of a list. The syntax of rules does not depend on the folder. `None`: the rule is
/// valid, or a comment.
pub(super) fn check_listed_rule(rule: &str, list: RuleList) -> Option<RuleMistake> {
    if is_comment_rule(rule) {
        return None;
    }
    let key = list.key();
    let root = Path::new("/");
    if let Err(why) = check_rule(rule, list, root, Some(root)) {
        let why = format!("\"{key}\": `{rule:.200}` is not a rule: {why}");
        return Some(match list {
            RuleList::Ask | RuleList::Deny => RuleMistake { why, is_error: true },
            RuleList::Allow => {
                RuleMistake { why: format!("{why}; it has no effect"), is_error: false }
            }
        });
    }
    let named = match (list, rule.trim()) {
        (RuleList::Allow, "*") => Some((ALLOWS_NOTHING.to_owned(), false)),
        (RuleList::Allow, "Bash(:*)") => Some((ALLOWS_NO_COMMAND.to_owned(), false)),
        (RuleList::Allow | RuleList::Ask | RuleList::Deny, _) => {
            check_rule_name(rule).map(|bad| (bad.why, bad.is_near))
        }
    };
    named.map(|(why, is_near)| RuleMistake {
        why: format!("the rule \"{rule}\" of {key} {why}"),
        is_error: is_near && list != RuleList::Allow,
    })
}

/// The message about an allow rule for commands without a name.
const ALLOWS_NO_COMMAND: &str = "allows only the command `:`; write Bash to allow all commands";

/// The message about an allow rule that names all tools.
pub const ALLOWS_NOTHING: &str = "has no effect: name tools, or use the mode bypassPermissions";

/// Checks the tool name of a rule.
pub fn check_rule_name(rule: &str) -> Option<BadRuleName> {
    let meant = match classify_tool_name(rule) {
        ToolName::Known | ToolName::McpServer(_) => return None,
        ToolName::Misspelled(meant) => Some(meant),
        ToolName::Unknown(name) => nearest_tool(name).map(str::to_owned),
    };
    let why = meant.as_ref().map_or_else(
        || "names no tool of this version of outlast, and has no effect".to_owned(),
        |meant| format!("names no tool; did you mean \"{meant}\"?"),
    );
    Some(BadRuleName { why, is_near: meant.is_some() })
}

/// Warns about unknown tool names in an untrusted file. Its content is not quoted, and a mistake in
/// it does not end the run.
pub fn untrusted_rule_warning(file: &str, text: &str) -> Option<String> {
    let settings: Value = serde_json::from_str(text).ok()?;
    let mut unknown = Vec::new();
    for list in ["deny", "ask"] {
        let rules = settings["permissions"][list].as_array().into_iter().flatten();
        for (index, rule) in rules.enumerate() {
            let is_bad = |rule: &str| !is_comment_rule(rule) && check_rule_name(rule).is_some();
            if rule.as_str().is_some_and(is_bad) {
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
