//! The error of a run whose required server is not available.

use super::state::ServerStatus;

/// The reason that a required server is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequiredServerError {
    #[error(
        "the MCP server {name:?} is required but {}",
        why.as_ref().map_or_else(|| "not configured".to_owned(), |why| format!("left out: {why}"))
    )]
    NotConfigured {
        name: String,
        /// The defect of its entry, if it has an invalid one.
        why: Option<String>,
    },
    #[error(
        "the MCP server {name:?} is required and {}{}",
        state(*status),
        why.as_ref().map_or_else(String::new, |why| format!(": {why}"))
    )]
    NotConnected { name: String, status: ServerStatus, why: Option<String> },
}

fn state(status: ServerStatus) -> &'static str {
    match status {
        ServerStatus::Pending | ServerStatus::Connected => "did not connect in time",
        ServerStatus::NeedsAuth => "requires a login",
        ServerStatus::Failed => "cannot be connected",
        ServerStatus::Disabled => "disabled",
    }
}
