//! The lists of permission rules, and the errors of texts that are not rules.

use serde::Deserialize;

use super::super::domain::InvalidHost;
use super::super::glob_limits::OversizedGlob;

/// The list that a rule belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleList {
    Allow,
    Ask,
    Deny,
}

impl RuleList {
    /// The setting with the rules of this list.
    pub fn key(self) -> &'static str {
        match self {
            Self::Allow => "permissions.allow",
            Self::Ask => "permissions.ask",
            Self::Deny => "permissions.deny",
        }
    }
}

/// The reason that a text is not a permission rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("its parenthesis is not closed")]
    Unclosed,
    #[error("it names no tool")]
    NoTool,
    #[error("`{0}` is not a tool name")]
    ToolName(String),
    #[error("write it like WebFetch(domain:example.com)")]
    NoDomain,
    #[error("{tool} rules take no pattern")]
    TakesNoPattern { tool: String },
    #[error(transparent)]
    Host(#[from] InvalidHost),
    #[error("there is no home folder")]
    NoHome,
    #[error("a path pattern cannot begin with `!` or `#`")]
    PatternStart,
    #[error("in a path pattern `..` can only come first")]
    ParentInside,
    #[error(transparent)]
    Oversized(#[from] OversizedGlob),
    #[error("its path pattern is wrong: {0}")]
    Pattern(String),
}
