//! The interface to a host: a program that starts outlast and drives it over standard input and
//! output (`--input-format stream-json`).

use std::fmt;
use std::pin::Pin;

use serde_json::Value;

/// Sends control requests to the host: questions that only the host or its user can answer.
pub trait HostChannel: fmt::Debug + Send + Sync {
    /// Sends a request, an object with a `subtype`, and waits for its reply without a time limit.
    /// If the future is dropped earlier, the host is notified that the request is cancelled.
    ///
    /// # Errors
    /// There is no reply, or the host replied with an error.
    fn request(&self, request: Value) -> HostReply<'_>;

    /// Reports that the user has completed the page of an MCP server's question.
    fn elicitation_complete(&self, server: &str, id: &str);
}

/// The future reply to a control request.
pub type HostReply<'a> = Pin<Box<dyn Future<Output = Result<Value, HostError>> + Send + 'a>>;

/// The reason why a control request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Standard input was closed, so that no reply can come.
    #[error("the host has closed standard input, so it cannot reply")]
    Closed,
    /// The request was not sent, for this reason.
    #[error("{0}")]
    NotSent(String),
    /// The host's own error text.
    #[error("{0}")]
    Refused(String),
}
