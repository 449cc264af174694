//! Which tools, sources or reasons a hook is for.

use fancy_regex::{Regex, RegexBuilder};

/// How far a pattern may go astray before it is given up.
const BACKTRACKS_MAX: usize = 100_000;

/// The `matcher` of a group of hooks.
#[derive(Clone, Debug)]
pub(super) enum HookMatcher {
    All,
    /// Any of these, exactly.
    Names(Vec<String>),
    /// Whatever contains a match.
    Pattern(Box<Regex>),
}

impl HookMatcher {
    /// Reads a matcher: empty or `*` for all; names with `|` or `,` between them; anything else is a
    /// regular expression, which matches anywhere.
    ///
    /// # Errors
    /// Why the expression is none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let is_name = |one: char| one.is_ascii_alphanumeric() || "_- ,|".contains(one);
        if text.is_empty() || text == "*" {
            Ok(Self::All)
        } else if text.chars().all(is_name) {
            let names = text.split(['|', ',']).map(str::trim).filter(|name| !name.is_empty());
            Ok(Self::Names(names.map(str::to_owned).collect()))
        } else {
            let built = RegexBuilder::new(text).backtrack_limit(BACKTRACKS_MAX).build();
            built
                .map(|regex| Self::Pattern(Box::new(regex)))
                .map_err(|error| format!("is no regular expression: {error}"))
        }
    }

    /// Whether it is for `subject`.
    ///
    /// # Errors
    /// Why nobody can tell: whoever chose the subject may have led the pattern astray.
    pub(super) fn matches(&self, subject: &str) -> Result<bool, String> {
        match self {
            Self::All => Ok(true),
            Self::Names(names) => Ok(names.iter().any(|name| name == subject)),
            Self::Pattern(regex) => regex
                .is_match(subject)
                .map_err(|error| format!("its matcher cannot tell whether it matches: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matcher_is_a_list_of_names_or_a_pattern_that_matches_anywhere() {
        let rows = [
            ("", "Bash", true),
            ("*", "Bash", true),
            ("Bash", "Bash", true),
            ("Bash", "BashOutput", false),
            ("bash", "Bash", false),
            ("Edit|Write", "Write", true),
            ("Edit, Write", "Write", true),
            ("Edit|Write", "MultiEdit", false),
            ("mcp__srv", "mcp__srv__tool", false),
            ("mcp__srv__.*", "mcp__srv__tool", true),
            ("^Edit$", "MultiEdit", false),
            ("Edit.?", "MultiEdit", true),
            ("^(?!Bash).*$", "Bash", false),
            ("^(?!Bash).*$", "Write", true),
        ];
        for (matcher, subject, matches) in rows {
            let parsed = HookMatcher::parse(matcher).unwrap();
            assert_eq!(parsed.matches(subject), Ok(matches), "{matcher:?} and {subject:?}");
        }
        assert!(HookMatcher::parse("mcp__(").is_err());
    }

    #[test]
    fn of_a_pattern_that_explodes_nobody_can_tell() {
        let evil = HookMatcher::parse("^(a|a)*(?=b)c$").unwrap();
        assert!(evil.matches(&"a".repeat(60)).is_err());
    }
}
