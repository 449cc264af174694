//! The interface to a host: a program that starts outlast and drives it over standard input and
//! output (`--input-format stream-json`).

use std::fmt;
use std::pin::Pin;

use serde::Serialize;
use serde_json::Value;

/// Sends control requests to the host: questions that only the host or its user can answer.
pub trait HostChannel: fmt::Debug + Send + Sync {
    /// Sends a request, and waits for its reply without a time limit. If the future is dropped
    /// earlier, the host is notified that the request is cancelled.
    ///
    /// # Errors
    /// There is no reply, or the host replied with an error.
    fn request(&self, request: HostRequest) -> HostReply<'_>;

    /// Reports that the user has completed the page of an MCP server's question.
    fn elicitation_complete(&self, server: &str, id: &str);
}

/// A control request to the host, as it is sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub enum HostRequest {
    /// Decide whether a tool call is allowed.
    CanUseTool {
        tool_name: String,
        input: Value,
        tool_use_id: String,
        /// Changes of permissions that the host may offer to the user.
        permission_suggestions: Value,
        decision_reason: String,
        /// The sub-agent that makes the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        agent_id: Option<String>,
    },
    /// Run a hook.
    HookCallback {
        callback_id: String,
        input: Value,
        tool_use_id: String,
    },
    Elicitation(Elicitation),
    /// Pass a message to an MCP server that runs in the host.
    McpMessage {
        server_name: String,
        message: Value,
    },
}

impl HostRequest {
    /// True if the user of the host has to decide.
    pub fn is_question(&self) -> bool {
        match self {
            Self::CanUseTool { .. } | Self::Elicitation(_) => true,
            Self::HookCallback { .. } | Self::McpMessage { .. } => false,
        }
    }
}

/// A question of an MCP server to the user.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Elicitation {
    pub mcp_server_name: String,
    pub message: String,
    #[serde(flatten)]
    pub mode: ElicitationMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The way in which the user answers an [`Elicitation`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ElicitationMode {
    Form {
        #[serde(skip_serializing_if = "Option::is_none")]
        requested_schema: Option<Value>,
        /// The names of the properties, in the order in which they are shown.
        #[serde(skip_serializing_if = "Option::is_none")]
        property_order: Option<Vec<String>>,
    },
    /// On a page that the user opens.
    Url {
        url: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        elicitation_id: Option<String>,
    },
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
