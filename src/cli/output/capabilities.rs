//! Capabilities for the init message: commands, skills, agents, and MCP servers left out.

use serde_json::{Value, json};

/// The names of commands, skills and agents.
#[derive(Clone, Debug)]
pub struct Capabilities {
    pub commands: Vec<String>,
    pub skills: Vec<String>,
    pub output_style: String,
    /// Plugins, as the init message has them.
    pub plugins: Vec<Value>,
    /// Servers that were left out: their names, and why.
    pub skipped_servers: Vec<(String, String)>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            commands: Vec::new(),
            skills: Vec::new(),
            plugins: Vec::new(),
            output_style: "default".to_owned(),
            skipped_servers: Vec::new(),
        }
    }
}

impl Capabilities {
    /// Serialises the servers that were left out, for hosts.
    pub(super) fn server_errors(&self) -> Vec<Value> {
        let skipped = self.skipped_servers.iter();
        skipped
            .map(|(name, why)| json!({ "name": name, "type": "invalid_config", "message": why }))
            .collect()
    }
}
