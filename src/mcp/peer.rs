//! The client's end of a connection: matches answers to requests, and handles what a server sends on
//! its own: progress, changed tools, requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::call_error::RequestFault;
use super::rpc::{ClientMessage, METHOD_NOT_FOUND, RpcError, ServerMessage};
use super::transport::{Inbox, ReceivedMessage, Transport};

/// How long to wait for messages to be sent whose loss does no harm.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The identifiers of requests, of all connections: a host may still work on a request of an earlier
/// connection, and refuses another with its identifier.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A connection, shared by all that use it.
#[derive(Clone)]
pub(super) struct Peer(Arc<PeerState>);

struct PeerState {
    transport: Box<dyn Transport>,
    inbox: Inbox,
    /// The folders that the run works in, as the server may ask for them.
    roots: Value,
    open: Mutex<HashMap<u64, OpenRequest>>,
    /// What each request states about the client, once it is connected.
    context: OnceLock<Map<String, Value>>,
    tools_changed: Notify,
}

/// A request without an answer.
struct OpenRequest {
    answer: oneshot::Sender<Result<Value, RequestFault>>,
    progress: Arc<Notify>,
}

/// A request that was sent.
pub(super) struct PendingRequest {
    peer: Peer,
    id: u64,
    answer: oneshot::Receiver<Result<Value, RequestFault>>,
    progress: Arc<Notify>,
    sending: AbortHandle,
}

impl Peer {
    /// Handles what arrives until the connection is closed.
    pub(super) fn start(
        transport: Box<dyn Transport>,
        inbox: Inbox,
        received: mpsc::Receiver<ReceivedMessage>,
        roots: Value,
    ) -> Self {
        let peer = Self(Arc::new(PeerState {
            transport,
            inbox,
            roots,
            open: Mutex::default(),
            context: OnceLock::new(),
            tools_changed: Notify::new(),
        }));
        tokio::spawn(peer.clone().handle_all(received));
        peer
    }

    async fn handle_all(self, mut received: mpsc::Receiver<ReceivedMessage>) {
        loop {
            tokio::select! {
                // What arrived before the end is still handled.
                biased;
                message = received.recv() => match message {
                    Some(received) => self.handle(received.message).await,
                    None => break,
                },
                () = self.closed() => break,
            }
        }
        self.0.inbox.closed.cancel();
        for (_, open) in self.open().drain() {
            let _ = open.answer.send(Err(RequestFault::Closed));
        }
    }

    async fn handle(&self, message: ServerMessage) {
        match message {
            ServerMessage::Response { id, outcome } => {
                let answer = outcome.map_err(RequestFault::Refused);
                match id.as_u64().and_then(|id| self.open().remove(&id)) {
                    // A request that is not awaited any more has no receiver.
                    Some(open) => drop(open.answer.send(answer)),
                    None => self.handle_stray(answer),
                }
            }
            ServerMessage::Notification { method, params } => match method.as_str() {
                "notifications/progress" => {
                    let id = params["progressToken"].as_u64();
                    let open = self.open();
                    if let Some(request) = id.and_then(|id| open.get(&id)) {
                        request.progress.notify_one();
                    }
                }
                "notifications/tools/list_changed" => self.0.tools_changed.notify_one(),
                _ => {}
            },
            ServerMessage::Request { id, method } => {
                let response = ClientMessage::response(&id, self.answer(&method));
                let _ = timeout(SEND_TIMEOUT, self.0.transport.send(response)).await;
            }
        }
    }

    /// Handles an answer that belongs to no request. A server that cannot even say which request it
    /// answers does not understand the first one.
    fn handle_stray(&self, answer: Result<Value, RequestFault>) {
        if self.0.context.get().is_some() {
            return;
        }
        let fault = answer.err().unwrap_or(RequestFault::Mismatch);
        if let Some((_, first)) = self.open().drain().next() {
            let _ = first.answer.send(Err(fault));
        }
    }

    /// Answers a request of the server. An unattended run has no user to ask and no model to offer.
    fn answer(&self, method: &str) -> Result<Value, RpcError> {
        match method {
            "ping" => Ok(json!({})),
            "roots/list" => Ok(json!({ "roots": self.0.roots })),
            _ => {
                let message = format!("the client does not support {method}");
                Err(RpcError { code: METHOD_NOT_FOUND, message })
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, OpenRequest>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what each further request states about the client, and ends the handshake.
    pub(super) fn set_context(&self, context: Map<String, Value>) {
        // It is set once.
        let _ = self.0.context.set(context);
    }

    pub(super) fn transport(&self) -> &dyn Transport {
        self.0.transport.as_ref()
    }

    /// Sends a request; `params` is an object.
    pub(super) fn request(&self, method: &str, mut params: Value) -> PendingRequest {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        if let Some(context) = self.0.context.get() {
            let mut meta = context.clone();
            meta.insert("progressToken".to_owned(), json!(id));
            params["_meta"] = Value::Object(meta);
        }
        let (answer, receiver) = oneshot::channel();
        let progress = Arc::new(Notify::new());
        self.open().insert(id, OpenRequest { answer, progress: Arc::clone(&progress) });
        let sending = self.0.transport.send(ClientMessage::request(id, method, params));
        let peer = self.clone();
        let sending = tokio::spawn(async move {
            let failed = tokio::select! {
                // The transport knows better why the connection ended.
                biased;
                sent = sending => match sent {
                    Err(fault) => Some(RequestFault::Exchange(fault)),
                    // It was sent after the end, when the open requests had been answered.
                    Ok(()) if peer.is_closed() => Some(RequestFault::Closed),
                    Ok(()) => None,
                },
                () = peer.closed() => Some(RequestFault::Closed),
            };
            if let Some(fault) = failed
                && let Some(open) = peer.open().remove(&id)
            {
                let _ = open.answer.send(Err(fault));
            }
        });
        let sending = sending.abort_handle();
        PendingRequest { peer: self.clone(), id, answer: receiver, progress, sending }
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// It did not arrive.
    pub(super) async fn notify(&self, method: &str) -> Result<(), RequestFault> {
        let sending = self.0.transport.send(ClientMessage::notification(method));
        sending.await.map_err(RequestFault::Exchange)
    }

    /// Waits for a notification that the tools have changed.
    pub(super) async fn wait_for_tool_change(&self) {
        self.0.tools_changed.notified().await;
    }

    /// Waits until the connection is gone.
    pub(super) async fn closed(&self) {
        self.0.inbox.closed.cancelled().await;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.inbox.closed.is_cancelled()
    }

    /// Closes the connection; the farewell takes at most `patience`.
    pub(super) async fn close(&self, patience: Duration) {
        let _ = timeout(patience, self.0.transport.close()).await;
        self.0.inbox.closed.cancel();
    }
}

impl PendingRequest {
    /// Waits for the answer. Cancel-safe.
    ///
    /// # Errors
    /// Why there is no result.
    pub(super) async fn answer(&mut self) -> Result<Value, RequestFault> {
        // A connection that ends answers all its requests first.
        (&mut self.answer).await.unwrap_or(Err(RequestFault::Closed))
    }

    /// Notified of each progress. Several notifications count as one until they are consumed.
    pub(super) fn progress(&self) -> Arc<Notify> {
        Arc::clone(&self.progress)
    }

    /// Tells the server that the answer is no longer wanted, without waiting.
    pub(super) fn cancel(self, why: &str) {
        let told = self.peer.transport().send(ClientMessage::cancellation(self.id, why));
        let sending = self.sending.clone();
        tokio::spawn(async move {
            let _ = timeout(SEND_TIMEOUT, told).await;
            // The server does not answer it any more.
            sending.abort();
        });
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.peer.open().remove(&self.id);
    }
}
