//! The interface between a connection and the carrier of its messages: the pipes of a program,
//! HTTP, or the host of the run.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::call_error::ExchangeFault;
use super::rpc::{ClientMessage, ServerMessage};

/// The most bytes of messages that wait to be handled. A single longer message is still accepted.
const WAITING_BYTES: u32 = 32 << 20;

pub(super) type Sending = Pin<Box<dyn Future<Output = Result<(), ExchangeFault>> + Send>>;

/// Ends a transport.
pub(super) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Carries messages to a server. The server's messages arrive in an [`Inbox`].
pub(super) trait Transport: Send + Sync {
    /// Sends a message. Messages are sent in the order of the calls where the transport has an
    /// order. The future fails if the message did not arrive, or if an answer can no longer come.
    /// Dropping the future gives up the answer.
    fn send(&self, message: ClientMessage) -> Sending;

    /// Sets the version of the protocol that the server has agreed to in a handshake.
    fn set_version(&self, _version: &str) {}

    /// Starts to receive messages that the server sends on its own, if that takes a request.
    fn listen(&self) {}

    /// Passes the list of the server's tools to the transport.
    fn set_tools(&self, _listed: &[serde_json::Value]) {}

    /// The reason, if outlast closed the connection for what the server did.
    fn closing_reason(&self) -> Option<&'static str> {
        None
    }

    /// Ends the transport after everything was sent. By default, it ends with the inbox.
    fn close(&self) -> Closing {
        Box::pin(ready(()))
    }
}

/// The queue into which a transport puts the messages of a server.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    messages: mpsc::Sender<ReceivedMessage>,
    /// The bytes that may still wait.
    free_bytes: Arc<Semaphore>,
    /// Set when no more messages can arrive. Those that have arrived are still handled.
    pub(super) closed: CancellationToken,
}

/// A message that waits to be handled.
#[derive(Debug)]
pub(super) struct ReceivedMessage {
    pub(super) message: ServerMessage,
    /// The share of the message in the bytes that may wait. Dropping it frees them.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Inbox {
    /// Creates an inbox in which at most `waiting_max` messages wait.
    pub(super) fn new(waiting_max: usize) -> (Self, mpsc::Receiver<ReceivedMessage>) {
        let (messages, received) = mpsc::channel(waiting_max);
        let free_bytes = Arc::new(Semaphore::new(WAITING_BYTES as usize));
        (Self { messages, free_bytes, closed: CancellationToken::new() }, received)
    }

    /// Waits until a message of this size may be queued. Called before the message is parsed, since
    /// the parsed value takes several times as much memory.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(WAITING_BYTES).min(WAITING_BYTES);
        // The semaphore is never closed.
        Arc::clone(&self.free_bytes).acquire_many_owned(bytes).await.ok()
    }

    /// Puts a message into the queue, and waits for a place if necessary. Returns true if the
    /// connection still exists.
    pub(super) async fn put(
        &self,
        message: ServerMessage,
        permit: Option<OwnedSemaphorePermit>,
    ) -> bool {
        self.messages.send(ReceivedMessage { message, _permit: permit }).await.is_ok()
    }

    /// Puts messages that arrived together into the queue. The last one holds the permit of all.
    pub(super) async fn put_all(
        &self,
        mut messages: Vec<ServerMessage>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> bool {
        let Some(last) = messages.pop() else { return true };
        for message in messages {
            if !self.put(message, None).await {
                return false;
            }
        }
        self.put(last, permit).await
    }

    /// Puts a message into the queue, if there is a place for it. Returns true if there was.
    pub(super) fn try_put(&self, message: ServerMessage) -> bool {
        self.messages.try_send(ReceivedMessage { message, _permit: None }).is_ok()
    }
}
