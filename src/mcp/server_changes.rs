//! Changes of the servers while runs use them, on behalf of a host. A restarted server has a new
//! task, so that a late end of its last connection changes nothing.

use std::sync::Arc;

use super::config::ServerConfig;
use super::connection::remember_job;
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
    /// Another server has the same name or, if enabled, the same tool name prefix.
    pub fn add(&self, config: ServerConfig) -> Result<(), ServerChangeError> {
        let mut members = self.members.write();
        let is_known = members.iter().any(|known| known.config.name == config.name);
        if is_known || has_enabled_twin(&config, members.iter()) {
            return Err(ServerChangeError::SamePrefix);
        }
        if let Some(environment) = &self.environment {
            remember_job(&config, environment);
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
        let index = index_of(name, &members)?;
        members.remove(index).stop.cancel();
        Ok(())
    }

    /// Ends a server, or starts it again.
    ///
    /// # Errors
    /// There is no such server, or another enabled one has the same tool name prefix.
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
        let index = index_of(name, &members)?;
        let Some(config) = change(members[index].config.clone()) else { return Ok(()) };
        let others = members.iter().filter(|member| member.config.name != name);
        if has_enabled_twin(&config, others) {
            return Err(ServerChangeError::SamePrefix);
        }
        let member = self.new_task(config);
        std::mem::replace(&mut members[index], Arc::clone(&member)).stop.cancel();
        drop(members);
        self.start_one(member);
        Ok(())
    }
}

fn index_of(name: &str, members: &[Arc<ServerTask>]) -> Result<usize, ServerChangeError> {
    let index = members.iter().position(|member| member.config.name == name);
    index.ok_or_else(|| ServerChangeError::Unknown(name.to_owned()))
}
