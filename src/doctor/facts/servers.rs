//! Test-starts the MCP servers as a run would, and shuts them down.

use std::time::Duration;

use crate::mcp::{ServerReport, Servers};

/// Time limit of their start, even if a run waits longer.
pub const START_MAX: Duration = Duration::from_secs(8);

/// Time limit of their shutdown. Servers that are still running end with the process.
const END_MAX: Duration = Duration::from_millis(1_200);

/// A server after its test start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedServer {
    pub report: ServerReport,
    /// Number of tools that it offers.
    pub tools: usize,
}

/// Starts all servers in parallel and waits for them as long as a run does, up to [`START_MAX`].
/// Nothing is started when offline: a server's program may use the network.
pub async fn try_servers(servers: &Servers, offline: bool, run_wait: Duration) -> Vec<TriedServer> {
    if offline || servers.is_empty() {
        return Vec::new();
    }
    servers.start();
    servers.wait_for_starts(run_wait.min(START_MAX)).await;
    let tried = servers.reports().into_iter().zip(servers.tool_counts());
    let tried = tried.map(|(report, tools)| TriedServer { report, tools }).collect();
    servers.close(END_MAX).await;
    tried
}
