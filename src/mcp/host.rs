//! The transport to a server that runs in the host: each message is a request to the host, and the
//! answer to an MCP request is in the host's reply.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::types::{HostChannel, HostError, HostRequest};

use super::call_error::ExchangeFault;
use super::rpc::{ClientMessage, INTERNAL_ERROR, RpcError, ServerMessage};
use super::transport::{Inbox, Sending, Transport};

/// The most messages of a server that wait to be handled; more are dropped.
pub(super) const WAITING_MAX: usize = 256;

/// The time limit for the host's acknowledgement of a message that has no answer.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's end of a connection.
pub(super) struct HostTransport(Arc<HostServer>);

struct HostServer {
    host: Arc<dyn HostChannel>,
    server: String,
    inbox: Inbox,
}

/// The inbox, for messages that the server sends on its own.
#[derive(Clone)]
pub(super) struct HostInbox(Inbox);

impl HostInbox {
    pub(super) fn new(inbox: &Inbox) -> Self {
        Self(inbox.clone())
    }

    /// Passes a message of the server on to the client: a notification, or a request. Returns true
    /// if it was accepted.
    pub(super) fn deliver(&self, message: Value) -> bool {
        match ServerMessage::from_value(message) {
            Some(
                message @ (ServerMessage::Notification { .. } | ServerMessage::Request { .. }),
            ) => self.0.try_put(message),
            // Answers are in the host's replies.
            Some(ServerMessage::Response { .. }) | None => false,
        }
    }
}

impl HostTransport {
    pub(super) fn new(host: Arc<dyn HostChannel>, server: &str, inbox: Inbox) -> Self {
        Self(Arc::new(HostServer { host, server: server.to_owned(), inbox }))
    }
}

impl HostServer {
    async fn send(&self, message: Value) -> Result<Value, HostError> {
        let request = HostRequest::McpMessage { server_name: self.server.clone(), message };
        let reply = self.host.request(request).await;
        if reply == Err(HostError::Closed) {
            self.inbox.closed.cancel();
        }
        reply
    }

    /// Sends an MCP request, and puts its answer into the inbox. A failure of the host becomes the
    /// server's error.
    async fn exchange(&self, id: u64, message: Value) -> Result<(), ExchangeFault> {
        let answer = match self.send(message).await {
            Ok(mut reply) => {
                let answer = reply.get_mut("mcp_response").map(Value::take);
                parse_answer(answer.unwrap_or_default(), id)
            }
            Err(HostError::Closed) => {
                return Err(ExchangeFault::ConnectionLost(HostError::Closed.to_string()));
            }
            Err(HostError::Refused(why) | HostError::NotSent(why)) => failure(why, id),
        };
        let permit = self.inbox.reserve(0).await;
        self.inbox.put(answer, permit).await;
        Ok(())
    }
}

/// Parses the server's answer to the request `id`. The `id` in the answer is ignored.
fn parse_answer(answer: Value, id: u64) -> ServerMessage {
    match ServerMessage::from_value(answer) {
        Some(ServerMessage::Response { outcome, .. }) => {
            ServerMessage::Response { id: json!(id), outcome }
        }
        Some(ServerMessage::Request { .. } | ServerMessage::Notification { .. }) | None => {
            failure("the host's reply holds no answer of the server".to_owned(), id)
        }
    }
}

fn failure(message: String, id: u64) -> ServerMessage {
    let outcome = Err(RpcError::new(INTERNAL_ERROR, message));
    ServerMessage::Response { id: json!(id), outcome }
}

impl Transport for HostTransport {
    /// Completes once the answer is in the inbox, or once a message without an answer is
    /// acknowledged, so that `tools/list` never overtakes `notifications/initialized`.
    fn send(&self, message: ClientMessage) -> Sending {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            if let Some(id) = message.id {
                return server.exchange(id, message.json).await;
            }
            // A failure is reported neither to the server nor to the caller.
            let _ = tokio::time::timeout(ACK_TIMEOUT, server.send(message.json)).await;
            Ok(())
        })
    }
}
