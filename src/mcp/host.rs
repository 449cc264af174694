//! The transport to a server that runs in the host (PROTOCOL 4.13): each message is a request to
//! the host, and the answer to an MCP request is in the host's reply.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::types::{HostChannel, HostError};

/// The most messages of a server that wait to be handled; more are dropped.
const WAITING_MAX: usize = 256;

/// How long the host has to acknowledge a message that has no answer.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);

/// The identifiers of each connection begin this far after those of the one before. The host may
/// still work on a request of an earlier connection, and refuses another with its identifier.
const IDS_OF_A_CONNECTION: u64 = 1 << 32;

/// How many connections there were.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// A message from the server.
type ServerMessage = RxJsonRpcMessage<RoleClient>;

/// The client's end of a connection.
pub(super) struct HostTransport {
    route: HostRoute,
    /// The MCP requests that the host has not answered, with their identifiers.
    requests: JoinSet<(NumberOrString, ServerMessage)>,
    unanswered: HashMap<NumberOrString, AbortHandle>,
    /// Messages that the server sends on its own.
    incoming: mpsc::Receiver<ServerMessage>,
}

/// What outlives the transport: the way for the server's own messages, and whether the host is lost.
#[derive(Clone)]
pub(super) struct HostInbox {
    messages: mpsc::Sender<ServerMessage>,
    is_lost: Arc<AtomicBool>,
}

/// The way to the server.
#[derive(Clone)]
struct HostRoute {
    host: Arc<dyn HostChannel>,
    server: String,
    is_lost: Arc<AtomicBool>,
    /// What is added to the identifiers of requests.
    first_id: u64,
}

impl HostInbox {
    /// Passes a message of the server on to the client: a notification, or a request. Returns
    /// whether it was accepted.
    pub(super) fn deliver(&self, message: Value) -> bool {
        match serde_json::from_value::<ServerMessage>(message) {
            Ok(message @ (JsonRpcMessage::Notification(_) | JsonRpcMessage::Request(_))) => {
                self.messages.try_send(message).is_ok()
            }
            // Answers are in the host's replies.
            Ok(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) | Err(_) => false,
        }
    }

    /// Whether the host cannot be reached any more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

impl HostTransport {
    pub(super) fn new(host: Arc<dyn HostChannel>, server: &str) -> (Self, HostInbox) {
        let (messages, incoming) = mpsc::channel(WAITING_MAX);
        let is_lost = Arc::new(AtomicBool::new(false));
        let inbox = HostInbox { messages, is_lost: Arc::clone(&is_lost) };
        let first_id = CONNECTIONS.fetch_add(1, Ordering::Relaxed) * IDS_OF_A_CONNECTION;
        let route = HostRoute { host, server: server.to_owned(), is_lost, first_id };
        let (requests, unanswered) = (JoinSet::new(), HashMap::new());
        (Self { route, requests, unanswered, incoming }, inbox)
    }
}

impl HostRoute {
    /// Makes an identifier of this connection one of all connections.
    fn renumber(&self, id: &mut Value) {
        if let Some(number) = id.as_u64() {
            *id = json!(number.saturating_add(self.first_id));
        }
    }

    async fn send(&self, message: Value) -> Result<Value, HostError> {
        let request = json!({
            "subtype": "mcp_message",
            "server_name": self.server,
            "message": message,
        });
        let reply = self.host.request(request).await;
        if reply == Err(HostError::Closed) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        reply
    }

    /// Sends an MCP request. A failure of the host becomes the server's error.
    async fn exchange(self, id: NumberOrString, message: Value) -> (NumberOrString, ServerMessage) {
        let answer = match self.send(message).await {
            Ok(mut reply) => {
                let answer = reply.get_mut("mcp_response").map(Value::take);
                parse_answer(answer.unwrap_or_default(), &id)
            }
            Err(error) => failure(error.to_string(), &id),
        };
        (id, answer)
    }
}

/// Parses the server's answer. The request that it belongs to is known, whatever its `id` is.
fn parse_answer(mut answer: Value, id: &NumberOrString) -> ServerMessage {
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("id".to_owned(), id.clone().into_json_value());
    }
    match serde_json::from_value(answer) {
        Ok(answer @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))) => answer,
        Ok(JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_)) | Err(_) => {
            failure("the host's reply holds no answer of the server".to_owned(), id)
        }
    }
}

fn failure(why: String, id: &NumberOrString) -> ServerMessage {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
    JsonRpcMessage::error(error, Some(id.clone()))
}

/// The identifier of the request that a message cancels.
fn cancelled_request(message: &TxJsonRpcMessage<RoleClient>) -> Option<NumberOrString> {
    if let JsonRpcMessage::Notification(message) = message
        && let ClientNotification::CancelledNotification(cancelled) = &message.notification
    {
        return cancelled.params.request_id.clone();
    }
    None
}

impl Transport<RoleClient> for HostTransport {
    type Error = Infallible;

    /// Returns once a message without an answer is acknowledged, so that `tools/list` never
    /// overtakes `notifications/initialized`.
    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let cancelled = cancelled_request(&message).and_then(|id| self.unanswered.remove(&id));
        // Every message of the library can be written as JSON.
        let mut json = serde_json::to_value(&message).unwrap_or_default();
        let route = self.route.clone();
        if cancelled_request(&message).is_some() {
            route.renumber(&mut json["params"]["requestId"]);
        }
        let rest = match message {
            JsonRpcMessage::Request(request) => {
                let id = request.id;
                route.renumber(&mut json["id"]);
                let exchange = route.exchange(id.clone(), json);
                self.unanswered.insert(id, self.requests.spawn(exchange));
                None
            }
            JsonRpcMessage::Notification(_)
            | JsonRpcMessage::Response(_)
            | JsonRpcMessage::Error(_) => Some((route, json)),
        };
        async move {
            if let Some((route, json)) = rest {
                // The server learns nothing from a failure, and neither does the caller.
                let _ = tokio::time::timeout(ACK_TIMEOUT, route.send(json)).await;
            }
            // A server does not answer a cancelled request.
            if let Some(request) = cancelled {
                request.abort();
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerMessage> {
        loop {
            let is_over = self.requests.is_empty() && self.route.is_lost.load(Ordering::Relaxed);
            if is_over {
                return None;
            }
            tokio::select! {
                Some(message) = self.incoming.recv() => return Some(message),
                Some(done) = self.requests.join_next() => {
                    // A request without a result was cancelled.
                    if let Ok((id, answer)) = done {
                        self.unanswered.remove(&id);
                        return Some(answer);
                    }
                }
                else => return None,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.requests.abort_all();
        Ok(())
    }
}
