//! Starts the MCP servers as a run would, and ends them again.

use std::time::Duration;

use crate::mcp::{Servers, ServerReport};

/// How long their start may take.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// How long their end may take. What is left then ends with the process.
const END_MAX: Duration = Duration::from_millis(1_200);

/// A server after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedServer {
    pub standing: ServerReport,
    /// How many tools it offers.
    pub tools: usize,
}

/// Tries them, side by side. Nothing is started when nobody is to be asked: what a program does
/// once it runs is not ours to say.
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
