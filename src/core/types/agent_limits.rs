//! Limits on the sub-agents of a run.

/// Limits on the number of sub-agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// Maximum number of levels below the run itself.
    pub depth: u8,
    /// Maximum number of sub-agents that work at a time. Others wait for a permit.
    pub live: u32,
    /// Maximum number of sub-agents per session, in total.
    pub total: u32,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self { depth: 3, live: 8, total: 64 }
    }
}
