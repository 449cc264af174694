//! What is known of a kind of sub-agent: who it is, what it may use, how long it may work.

use super::permission::PermissionMode;

/// A kind of sub-agent, from a file, a flag or built in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentDefinition {
    /// What the model calls it by.
    pub name: String,
    /// When to use it, for the model.
    pub description: String,
    /// Its system prompt.
    pub prompt: String,
    /// The only tools it has. `None`: those of whoever starts it.
    pub tools: Option<Vec<String>>,
    /// Tools that it does not have.
    pub disallowed_tools: Vec<String>,
    /// A model's name or alias. `None`: the model of whoever starts it.
    pub model: Option<String>,
    /// After how many replies it ends.
    pub max_turns: Option<u32>,
    /// What it may do without a rule. Never more than whoever starts it may.
    pub permission_mode: Option<PermissionMode>,
    /// Whether it works in the background unless the call says otherwise.
    pub background: bool,
}
