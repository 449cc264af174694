//! The permission that a call of an external tool needs.

/// A restriction of the calls of an external tool, by the configuration of its source. The stricter
/// one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolPolicy {
    /// The host is asked before each call, whatever is allowed.
    Ask,
    Deny,
}

/// The permission that a call of an external tool, such as one of an MCP server, needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallPermission {
    /// None, unless a rule denies the tool.
    NotNeeded,
    /// An allow rule that matches this name.
    Rule {
        name: String,
        /// The name that the server gives to the tool, with the server's prefix, if it is known.
        own: Option<String>,
        /// The prefix of the names of all tools of its server.
        server: String,
        /// True if a server that the user trusts declares the tool read-only.
        reads_only: bool,
    },
}
