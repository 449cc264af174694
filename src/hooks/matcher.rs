//! Hook matchers: the tools, sources or reasons that a hook applies to.

use fancy_regex::{Regex, RegexBuilder};

/// The backtracking limit of a pattern.
const BACKTRACKS_MAX: usize = 100_000;

/// The reason that a matcher is invalid or has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MatcherError {
    #[error("is not a regular expression: {0}; name tools, such as \"Bash|Edit\"")]
    Invalid(String),
    #[error("its matcher failed: {0}")]
    Failed(String),
}

/// The `matcher` of a group of hooks.
#[derive(Clone, Debug)]
pub(super) enum HookMatcher {
    All,
    /// Any of these, exactly.
    Names(Vec<String>),
    /// Anything that contains a match.
    Pattern(Box<Regex>),
}

impl HookMatcher {
    /// Parses a matcher: empty or `*` for all; names separated by `|` or `,`; anything else is a
    /// regular expression, which matches anywhere.
    ///
    /// # Errors
    /// The regular expression is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, MatcherError> {
        let is_name = |char: char| char.is_ascii_alphanumeric() || "_- ,|".contains(char);
        if text.is_empty() || text == "*" {
            Ok(Self::All)
        } else if text.chars().all(is_name) {
            let names = text.split(['|', ',']).map(str::trim).filter(|name| !name.is_empty());
            Ok(Self::Names(names.map(str::to_owned).collect()))
        } else {
            let built = RegexBuilder::new(text).backtrack_limit(BACKTRACKS_MAX).build();
            built
                .map(|regex| Self::Pattern(Box::new(regex)))
                .map_err(|error| MatcherError::Invalid(error.to_string()))
        }
    }

    /// Returns true if a pattern has the form of a permission rule, such as `Bash(git *)`. No name
    /// of a tool has a blank or a colon, and a `|` separates alternatives.
    pub(super) fn is_like_rule(&self) -> bool {
        let Self::Pattern(regex) = self else { return false };
        let rule = regex.as_str().strip_suffix(')').and_then(|text| text.split_once('('));
        rule.is_some_and(|(tool, call)| {
            let is_name = !tool.is_empty() && tool.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_name && !call.starts_with('?') && call.contains([' ', ':']) && !call.contains('|')
        })
    }

    /// Returns true if it certainly matches no tool of an MCP server: it is a list of other names, or
    /// of servers without a tool, or a pattern with a sign that no name has, as in `/Bash/`, `!Edit`.
    pub(super) fn excludes_mcp(&self) -> bool {
        let is_mcp_tool =
            |name: &String| name.strip_prefix("mcp__").is_some_and(|rest| rest.contains("__"));
        match self {
            Self::All => false,
            Self::Names(names) => !names.iter().any(is_mcp_tool),
            Self::Pattern(regex) => regex.as_str().replace("(?!", "").contains(['/', '!', '"']),
        }
    }

    /// Returns true if `other` matches the same subjects in the same form.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) => true,
            (Self::Names(names), Self::Names(others)) => names == others,
            (Self::Pattern(regex), Self::Pattern(other)) => regex.as_str() == other.as_str(),
            (Self::All | Self::Names(_) | Self::Pattern(_), _) => false,
        }
    }

    /// Returns true if it matches one of the names of a subject.
    ///
    /// # Errors
    /// It matches none, and failed for one of them.
    pub(super) fn matches_any<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<bool, MatcherError> {
        let mut outcome = Ok(false);
        for name in names {
            match self.matches(name) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => outcome = Err(why),
            }
        }
        outcome
    }

    /// Returns true if it matches `subject`.
    ///
    /// # Errors
    /// The pattern exceeded its backtracking limit; the subject may be chosen to cause that.
    fn matches(&self, subject: &str) -> Result<bool, MatcherError> {
        match self {
            Self::All => Ok(true),
            Self::Names(names) => Ok(names.iter().any(|name| name == subject)),
            Self::Pattern(regex) => {
                regex.is_match(subject).map_err(|error| MatcherError::Failed(error.to_string()))
            }
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
    fn a_matcher_that_reads_like_a_permission_rule_is_recognized() {
        for (matcher, is_rule) in [
            ("Bash(git push *)", true),
            ("Bash(rm:*)", true),
            ("Bash", false),
            ("Edit|Write, Bash", false),
            ("Bash(Output|)", false),
            ("Bash( x|Output)", false),
            ("Bash(?:Output)", false),
            ("mcp__(a|b)__x", false),
        ] {
            let parsed = HookMatcher::parse(matcher).unwrap();
            assert_eq!(parsed.is_like_rule(), is_rule, "{matcher}");
        }
    }

    #[test]
    fn a_matcher_pattern_that_backtracks_too_much_is_an_error() {
        let evil = HookMatcher::parse("^(a|a)*(?=b)c$").unwrap();
        assert!(evil.matches(&"a".repeat(60)).is_err());
    }
}
