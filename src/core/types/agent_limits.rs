//! How many sub-agents a run may have.

/// Limits on the number of sub-agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// Levels below the run itself.
    pub depth: u8,
    /// Working at a time. Others wait for a permit.
    pub live: u32,
    /// Per session, in total.
    pub total: u32,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self { depth: 3, live: 8, total: 64 }
    }
}
