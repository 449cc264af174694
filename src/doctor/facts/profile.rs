//! Facts about `--profile untrusted` on this machine.

use crate::tools::{SandboxGaps, SandboxState};

/// The protections of a run with `--profile untrusted`, as this machine can hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFacts {
    pub sandbox: SandboxState,
    pub gaps: SandboxGaps,
    /// The reason why commands cannot be held to the listed hosts.
    pub no_egress: Option<String>,
    /// The flags of limits that the settings do not set.
    pub missing_limits: Vec<&'static str>,
    /// The model without a price, with which no budget can be kept.
    pub no_price: Option<String>,
}
