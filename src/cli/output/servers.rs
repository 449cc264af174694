//! Serialises MCP servers for results and streams.

use serde_json::{Value, json};

use crate::mcp;

/// Serialises the outcome of all MCP servers.
pub(super) fn servers(tally: &mcp::McpStats) -> Value {
    json!({
        "servers": tally.servers.iter().map(server).collect::<Vec<_>>(),
        "calls": tally.calls,
        "failed": tally.failed,
        "reconnects": tally.reconnects,
    })
}

/// A server, as streams and results show it.
pub(super) fn server(standing: &mcp::ServerReport) -> Value {
    let mut server = json!({ "name": standing.name, "status": standing.status.name() });
    if let Some(why) = &standing.why {
        server["error"] = json!(why);
    }
    server
}
