//! Facts about `--profile untrusted` on this machine.

use crate::tools::{SandboxGaps, SandboxState};

/// The protections of a run with `--profile untrusted`, as far as this machine can enforce them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFacts {
    pub sandbox: SandboxState,
    pub gaps: SandboxGaps,
    /// The reason why commands cannot be restricted to the listed hosts. `None`: they can.
    pub no_egress: Option<String>,
    /// The flags of required limits that the settings do not set.
    pub missing_limits: Vec<&'static str>,
    /// The error for a model whose price is unknown, so that no budget can be enforced. `None`: all
    /// prices are known.
    pub no_price: Option<String>,
}
