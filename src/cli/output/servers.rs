//! Serialises MCP servers for results and streams.

use serde_json::{Value, json};

use crate::mcp;

/// Serialises the outcome of all MCP servers.
pub(super) fn servers(stats: &mcp::McpStats) -> Value {
    json!({
        "servers": stats.servers.iter().map(server).collect::<Vec<_>>(),
        "calls": stats.calls,
        "failed": stats.failed,
        "reconnects": stats.reconnects,
    })
}

/// A server, as streams and results show it.
pub(super) fn server(report: &mcp::ServerReport) -> Value {
    let mut server = json!({ "name": report.name, "status": report.status.name() });
    if let Some(why) = &report.why {
        server["error"] = json!(why);
    }
    server
}
