//! Test-starts the MCP servers as a run would, and shuts them down.

use std::time::Duration;

use crate::mcp::{ServerReport, Servers};

/// The time limit for their start.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// The time limit for their shutdown. What is left ends with the process.
const END_MAX: Duration = Duration::from_millis(1_200);

/// A server after its test start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedServer {
    pub standing: ServerReport,
    /// How many tools it offers.
    pub tools: usize,
}

/// Starts all servers in parallel. Nothing is started when offline: a server's program may use the
/// network.
pub async fn try_servers(servers: &Servers, offline: bool) -> Vec<TriedServer> {
    if offline || servers.is_empty() {
        return Vec::new();
    }
    servers.start();
    servers.wait_for_first_attempts(PATIENCE).await;
    let tried = servers.reports().into_iter().zip(servers.tool_counts());
    let tried = tried.map(|(standing, tools)| TriedServer { standing, tools }).collect();
    servers.close(END_MAX).await;
    tried
}
