//! The seam between a connection and the way its messages take: the pipes of a program, HTTP, or the
//! host of the run.

use std::pin::Pin;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::call_error::ExchangeFault;
use super::rpc::{ClientMessage, ServerMessage};

/// What becomes of a message.
pub(super) type Sending = Pin<Box<dyn Future<Output = Result<(), ExchangeFault>> + Send>>;

/// Carries messages to a server. What the server sends arrives in an [`Inbox`].
pub(super) trait Transport: Send + Sync {
    /// Sends a message. Messages are sent in the order of the calls where the way has an order. The
    /// future fails if the message did not arrive, or if an answer can no longer come.
    fn send(&self, message: ClientMessage) -> Sending;

    /// Tells the transport which version of the protocol the server and the client have agreed on.
    /// Without a handshake, each request states it.
    fn agree(&self, _version: &str, _lifecycle: Lifecycle) {}

    /// Tells the transport about the server's tools.
    fn set_tools(&self, _listed: &[serde_json::Value]) {}

    /// Ends the way, once nothing more is to be sent.
    fn close(&self) -> Sending;
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// With an `initialize` handshake, as nearly all servers expect.
    Handshake,
    /// Without one: each request states its protocol version.
    Stateless,
}

/// Where a transport puts what the server sends.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    pub(super) messages: mpsc::Sender<ReceivedMessage>,
    /// Set when nothing more can arrive. What has arrived is still handled.
    pub(super) closed: CancellationToken,
}

/// A message that waits to be handled.
#[derive(Debug)]
pub(super) struct ReceivedMessage {
    pub(super) message: ServerMessage,
    /// Its share of the bytes that may wait.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

impl From<ServerMessage> for ReceivedMessage {
    fn from(message: ServerMessage) -> Self {
        Self { message, _room: None }
    }
}

impl Inbox {
    /// An inbox where at most `waiting_max` messages wait.
    pub(super) fn new(waiting_max: usize) -> (Self, mpsc::Receiver<ReceivedMessage>) {
        let (messages, received) = mpsc::channel(waiting_max);
        (Self { messages, closed: CancellationToken::new() }, received)
    }

    /// Puts a message in, and waits for room.
    pub(super) async fn put(&self, message: ServerMessage) {
        // After the end of the connection, nothing is awaited any more.
        let _ = self.messages.send(message.into()).await;
    }
}
