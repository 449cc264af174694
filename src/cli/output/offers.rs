//! What a run offers beside its tools, and what it was asked to offer and cannot.

use serde_json::{Value, json};

/// The names of what there is to call by name.
#[derive(Clone, Debug, Default)]
pub struct Capabilities {
    pub commands: Vec<String>,
    pub skills: Vec<String>,
    /// Servers that were left out: their names, and why.
    pub skipped_servers: Vec<(String, String)>,
}

impl Capabilities {
    /// The servers that were left out, as hosts are told of them.
    pub(super) fn server_errors(&self) -> Vec<Value> {
        let skipped = self.skipped_servers.iter();
        skipped
            .map(|(name, why)| json!({ "name": name, "type": "invalid_config", "message": why }))
            .collect()
    }
}
