//! Changes of the servers while runs use them, on behalf of a host. A restarted server has a new
//! task, so that a late end of its last connection changes nothing.

use std::sync::Arc;

use super::config::ServerConfig;
use super::connection::jobs;
use super::server_task::ServerTask;
use super::servers::{Servers, has_enabled_twin};

/// The reason that a server was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerChangeError {
    #[error("there is no MCP server {0:?}")]
    Unknown(String),
    #[error("the MCP server {0:?} is disabled")]
    Disabled(String),
    #[error("another server has the same tool name prefix")]
    SamePrefix,
}

impl Servers {
    /// Returns true if there is a server of this name.
    pub fn has_server(&self, name: &str) -> bool {
        self.members().iter().any(|member| member.config.name == name)
    }

    /// Adds a server, and starts it if the others were started.
    ///
    /// # Errors
    /// Another server has the same name, or one that gives its tools the same names.
    pub fn add(&self, config: ServerConfig) -> Result<(), ServerChangeError> {
        let mut members = self.members.write();
        let is_known = members.iter().any(|known| known.config.name == config.name);
        if is_known || has_enabled_twin(&config, members.iter()) {
            return Err(ServerChangeError::SamePrefix);
        }
        if let Some(around) = &self.around {
            for job in jobs(&config, around) {
                around.supervisor.remember(&job);
            }
        }
        let member = self.new_task(config);
        members.push(Arc::clone(&member));
        drop(members);
        self.start_one(member);
        Ok(())
    }

    /// Ends a server and removes it.
    ///
    /// # Errors
    /// There is no such server.
    pub fn remove(&self, name: &str) -> Result<(), ServerChangeError> {
        let mut members = self.members.write();
        let place = members.iter().position(|member| member.config.name == name);
        let place = place.ok_or_else(|| ServerChangeError::Unknown(name.to_owned()))?;
        members.remove(place).stop.cancel();
        Ok(())
    }

    /// Ends a server, or starts it again.
    ///
    /// # Errors
    /// There is no such server, or an enabled one gives its tools the same names.
    pub fn set_enabled(&self, name: &str, is_enabled: bool) -> Result<(), ServerChangeError> {
        self.replace(name, |config| {
            let is_change = config.disabled == is_enabled;
            is_change.then_some(ServerConfig { disabled: !is_enabled, ..config })
        })
    }

    /// Ends the connection of a server, and connects again.
    ///
    /// # Errors
    /// There is no such server, or it is disabled.
    pub fn reconnect(&self, name: &str) -> Result<(), ServerChangeError> {
        let is_disabled =
            |member: &Arc<ServerTask>| member.config.name == name && member.config.disabled;
        if self.members().iter().any(is_disabled) {
            return Err(ServerChangeError::Disabled(name.to_owned()));
        }
        self.replace(name, Some)
    }

    /// Replaces the task of a server by one with a changed configuration. If `change` returns
    /// `None`, nothing changes.
    fn replace(
        &self,
        name: &str,
        change: impl FnOnce(ServerConfig) -> Option<ServerConfig>,
    ) -> Result<(), ServerChangeError> {
        let mut members = self.members.write();
        let place = members.iter().position(|member| member.config.name == name);
        let place = place.ok_or_else(|| ServerChangeError::Unknown(name.to_owned()))?;
        let Some(config) = change(members[place].config.clone()) else { return Ok(()) };
        let others = members.iter().filter(|member| member.config.name != name);
        if has_enabled_twin(&config, others) {
            return Err(ServerChangeError::SamePrefix);
        }
        let member = self.new_task(config);
        std::mem::replace(&mut members[place], Arc::clone(&member)).stop.cancel();
        drop(members);
        self.start_one(member);
        Ok(())
    }
}
