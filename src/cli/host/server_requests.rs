//! Answers the requests of a host that change the MCP servers, which all turns share.

use serde_json::{Map, Value};

use crate::cli::usage::UsageError;
use crate::host::{control_error, control_success};
use crate::messages::{ControlResult, RequestId};

use super::session::HostSession;

impl HostSession {
    /// Replaces the servers that an earlier request has set. Those of settings and flags stay.
    /// Returns the added and removed servers, and the errors of others.
    ///
    /// # Errors
    /// Nothing was changed.
    pub(super) async fn set_servers(
        &mut self,
        mut wanted: Map<String, Value>,
    ) -> Result<ControlResult, UsageError> {
        let servers = self.shared_servers().await?;
        let (mut added, mut removed, mut errors) = (Vec::new(), Vec::new(), Map::new());
        let before = self.args.servers.clone();
        let is_taken = |name: &str| !before.contains_key(name) && servers.has_server(name);
        wanted.retain(|name, _| {
            let is_free = !is_taken(name);
            if !is_free {
                let why = "the settings or the command line have a server of this name";
                errors.insert(name.clone(), why.into());
            }
            is_free
        });
        self.args.set_servers(wanted.clone());
        let settings = match self.settings().await {
            Ok(settings) => settings,
            Err(error) => {
                self.args.set_servers(before);
                return Err(error);
            }
        };
        settings.add_secrets(&self.shared.secrets);
        for (name, entry) in &before {
            if wanted.get(name) != Some(entry) && servers.remove(name).is_ok() {
                removed.push(name.clone());
            }
        }
        for name in wanted.keys().filter(|name| wanted.get(*name) != before.get(*name)) {
            let config = settings.mcp.servers.iter().find(|config| config.name == *name);
            let skipped = settings.mcp.skipped.iter().find(|(skipped, _)| skipped == name);
            let why = match (config, skipped) {
                (Some(config), _) => match servers.add(config.clone()) {
                    Ok(()) => {
                        added.push(name.clone());
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                // The position in a flag has no meaning for the host.
                (None, Some((_, why))) => {
                    why.split_once(": ").map_or(why.as_str(), |(_, why)| why).to_owned()
                }
                (None, None) => "it is left out".to_owned(),
            };
            errors.insert(name.clone(), why.into());
        }
        wanted.retain(|name, _| !errors.contains_key(name));
        self.args.set_servers(wanted);
        Ok(ControlResult::McpServers { added, removed, errors })
    }

    /// Ends a server, or starts it again.
    ///
    /// # Errors
    /// The settings cannot be used, or the server cannot be changed.
    pub(super) async fn toggle_server(
        &mut self,
        name: &str,
        is_enabled: bool,
    ) -> anyhow::Result<ControlResult> {
        self.shared_servers().await?.set_enabled(name, is_enabled)?;
        Ok(ControlResult::Done {})
    }

    /// Connects a server again. The reply, under the id of the request, follows when it is
    /// connected or has failed; the turn continues meanwhile.
    ///
    /// # Errors
    /// The settings cannot be used, or the server cannot be connected.
    pub(super) async fn reconnect_server(
        &mut self,
        id: &RequestId,
        name: &str,
    ) -> anyhow::Result<()> {
        let servers = self.shared_servers().await?;
        servers.reconnect(name)?;
        let (out, id, names) = (self.out.clone(), id.clone(), [name.to_owned()]);
        tokio::spawn(async move {
            out.send_unmasked(match servers.wait_until_connected(&names).await {
                Ok(()) => control_success(&id, ControlResult::Done {}),
                Err(error) => control_error(&id, &error.to_string(), None),
            });
        });
        Ok(())
    }
}
