//! Capabilities for the init message: commands, skills, agents, and MCP servers left out.

use crate::messages::{PluginEntry, ServerError};

/// The names of commands, skills and agents.
#[derive(Clone, Debug)]
pub struct Capabilities {
    pub commands: Vec<String>,
    pub skills: Vec<String>,
    pub output_style: String,
    pub plugins: Vec<PluginEntry>,
    /// The names of servers that were left out, each with the reason.
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
    /// Returns the servers that were left out, for hosts.
    pub(super) fn server_errors(&self) -> Vec<ServerError> {
        let error = |(name, why): &(String, String)| ServerError {
            name: name.clone(),
            kind: "invalid_config",
            message: why.clone(),
        };
        self.skipped_servers.iter().map(error).collect()
    }
}
