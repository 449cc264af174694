//! What one turn has from the host that drives the program.

use std::sync::Arc;

use crate::agent::ContextGauge;
use crate::hooks::HookHandler;
use crate::host::UserPrompt;
use crate::journal::JournalMirror;
use crate::mcp::Servers;
use crate::tools::{LivePermissions, TaskStops};
use crate::types::HostChannel;

use super::output::PipeSender;

/// What a turn has from the host that drives it.
#[derive(Clone)]
pub(super) struct HostTurn {
    pub prompt: UserPrompt,
    pub channel: Arc<dyn HostChannel>,
    /// Hooks that run in the host.
    pub hooks: Vec<HookHandler>,
    /// What the host has changed about permissions.
    pub live: LivePermissions,
    /// The tasks that the host can stop.
    pub stops: TaskStops,
    /// Shows the size of the conversation to the host.
    pub gauge: ContextGauge,
    /// The MCP servers that all turns share.
    pub servers: Option<Arc<Servers>>,
    /// Standard output, which stays open for the next turn.
    pub out: PipeSender,
    /// Whether the session outlives the process.
    pub is_kept: bool,
    /// Copies of the session's journals for the host, if it keeps them too.
    pub mirror: Option<JournalMirror>,
}
