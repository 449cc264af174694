//! Modes of a run that several layers share, such as permissions and the sandbox. Their names on
//! the command line and in settings files are derived.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The permission mode: it decides on tool calls to which no permission rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[value(rename_all = "camelCase")]
pub enum PermissionMode {
    // The comments are for readers of the code: a doc comment would be printed in the help.
    // Reading inside the working directories, and harmless commands.
    #[default]
    #[value(alias = "manual")]
    #[serde(alias = "manual")]
    Default,
    // Also changing files inside the working directories. Without a classifier of risks, `auto` is
    // this mode.
    #[value(aliases = ["auto", "accept-edits"])]
    #[serde(alias = "auto")]
    AcceptEdits,
    // Like `Default`; calls that change something are denied even if a rule allows them.
    Plan,
    // Like `Default`, but calls that match an ask rule are denied even if the run can ask the user.
    #[value(alias = "dont-ask")]
    DontAsk,
    // All calls that match no deny or ask rule.
    #[value(alias = "bypass-permissions")]
    BypassPermissions,
}

impl PermissionMode {
    /// Returns the mode of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::from_str(name, true).ok()
    }

    /// The name on the command line, in settings files and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::DontAsk => "dontAsk",
            Self::BypassPermissions => "bypassPermissions",
        }
    }

    /// Returns `other`, unless it allows more than this mode.
    #[must_use]
    pub fn restricted_to(self, other: Self) -> Self {
        if other.permissiveness() <= self.permissiveness() { other } else { self }
    }

    fn permissiveness(self) -> u8 {
        match self {
            Self::Plan => 0,
            Self::DontAsk => 1,
            Self::Default => 2,
            Self::AcceptEdits => 3,
            Self::BypassPermissions => 4,
        }
    }
}

/// The sandbox mode: the restrictions on commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Commands have the rights of outlast.
    Off,
    /// Commands may write to the working tree, --add-dir folders, temporary folders and tool
    /// caches.
    #[default]
    Workspace,
    /// Commands may write only to temporary folders.
    ReadOnly,
    /// As workspace; the run does not begin unless the kernel can enforce all of it.
    Required,
    /// As read-only; the run does not begin unless the kernel can enforce all of it.
    #[serde(rename = "read-only,required")]
    #[value(name = "read-only,required")]
    RequiredReadOnly,
}

impl SandboxMode {
    /// True if commands can write to temporary folders only.
    pub fn is_read_only(self) -> bool {
        match self {
            Self::ReadOnly | Self::RequiredReadOnly => true,
            Self::Off | Self::Workspace | Self::Required => false,
        }
    }

    /// True if a run begins only if the kernel can enforce the whole sandbox.
    pub fn is_required(self) -> bool {
        match self {
            Self::Required | Self::RequiredReadOnly => true,
            Self::Off | Self::Workspace | Self::ReadOnly => false,
        }
    }
}

/// The effect of a denied tool call on the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnDenied {
    /// The model is informed, and the run continues.
    #[default]
    Continue,
    /// The run ends.
    Fail,
}

/// The selection of environment variables that commands get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChildEnvironment {
    /// All variables except those that look like secrets.
    #[default]
    Scrub,
    /// All variables except the model's credentials.
    Inherit,
    /// Only variables in `--pass-env`, and those that every command needs.
    Allowlist,
}

/// The kind of account, which decides whether to retry after a 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[value(rename_all = "camelCase")]
pub enum AccountKind {
    ApiKey,
    Enterprise,
    // Its limits last for hours.
    Subscription,
}

/// The thoroughness of a reply in text, tool calls and thinking (`output_config.effort`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    Low,
    Medium,
    High,
    // A session of the reference that asks for `ultracode` has this effort, and further agents.
    #[value(alias = "ultracode")]
    #[serde(alias = "ultracode")]
    Xhigh,
    Max,
}

impl Effort {
    /// Returns the level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::from_str(name.trim(), true).ok()
    }

    /// The name on the command line, in settings files and in requests.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no level is left out of the command line");
        value.get_name().to_owned()
    }

    /// The names of all levels, for messages.
    pub fn names() -> String {
        let names: Vec<String> = Self::value_variants().iter().map(|level| level.name()).collect();
        names.join(", ")
    }
}

/// The form in which the service shows thinking (`thinking.display`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingDisplay {
    Summarized,
    Omitted,
}

/// The mode of tool search, which leaves definitions of MCP tools out of requests until the model
/// searches for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSearchMode {
    Off,
    On,
    /// Only if the definitions would take more than this percentage of the context window.
    Auto(u8),
}

impl ToolSearchMode {
    /// Reads `true`, `false`, `auto` or `auto:N`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "false" | "0" | "no" | "off" => Some(Self::Off),
            "true" | "1" | "yes" | "on" => Some(Self::On),
            "auto" => Some(Self::default()),
            other => {
                let share = other.strip_prefix("auto:")?.parse().ok();
                share.filter(|share| *share <= 100).map(Self::Auto)
            }
        }
    }

    /// True if definitions of `tokens` tokens are deferred in a context window of `window` tokens.
    pub fn defers(self, tokens: u64, window: u64) -> bool {
        match self {
            Self::Off => false,
            Self::On => true,
            Self::Auto(share) => tokens.saturating_mul(100) > window.saturating_mul(share.into()),
        }
    }
}

impl Default for ToolSearchMode {
    fn default() -> Self {
        Self::Auto(10)
    }
}

impl fmt::Display for ToolSearchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("false"),
            Self::On => f.write_str("true"),
            Self::Auto(share) => write!(f, "auto:{share}"),
        }
    }
}

/// The recipient of the question about a call that the rules leave open
/// (`--permission-prompt-tool`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionPrompt {
    /// The host, over standard input and output.
    Host,
    /// A tool of an MCP server, by the name that the model would use.
    Tool(String),
}

impl PermissionPrompt {
    /// The name on the command line.
    pub fn name(&self) -> &str {
        match self {
            Self::Host => "stdio",
            Self::Tool(name) => name,
        }
    }
}
