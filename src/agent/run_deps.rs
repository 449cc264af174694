//! The dependencies that all agents of a run share.

use std::sync::Arc;

use crate::hooks::Hooks;
use crate::mcp::Servers;
use crate::model::limits::SharedLimits;
use crate::recovery::Money;
use crate::secrets::KnownSecrets;
use crate::types::HostChannel;

use super::clock::Clock;
use super::delegate::AgentRegistry;
use super::housekeeping::Housekeeping;
use super::session_lifecycle::SessionLifecycle;
use super::shared_ledger::SharedLedger;

/// The dependencies that a run shares with its sub-agents at every depth. Built once, from the
/// setup of the run.
pub(super) struct RunDeps {
    pub(super) registry: AgentRegistry,
    pub(super) ledger: SharedLedger,
    pub(super) servers: Arc<Servers>,
    /// True if the servers stay open at the end of the run.
    pub(super) keep_servers: bool,
    /// The start and the end of the session, if other runs of the process share them.
    pub(super) lifecycle: Option<SessionLifecycle>,
    /// Answers questions about permissions.
    pub(super) host: Option<Arc<dyn HostChannel>>,
    /// The hooks of the run. Those of a sub-agent are derived from them.
    pub(super) hooks: Option<Hooks>,
    pub(super) secrets: KnownSecrets,
    pub(super) clock: Clock,
    pub(super) stop_after: Option<Money>,
    /// The rate limits that are known on this host. Each agent has its own state.
    pub(super) shared_limits: Option<SharedLimits>,
    pub(super) housekeeping: Housekeeping,
}
