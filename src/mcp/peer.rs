//! The client's end of a connection: matches answers to requests, and handles messages that a
//! server sends on its own: progress, changed tools, requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::call_error::RequestFault;
use super::elicitation::{self, Elicitor};
use super::rpc::{ClientMessage, METHOD_NOT_FOUND, RpcError, ServerMessage, request_number};
use super::transport::{Inbox, ReceivedMessage, Transport};

/// The time limit for sending a cancellation, whose loss does no harm, and for the withdrawal of
/// questions.
const CANCELLATION_TIMEOUT: Duration = Duration::from_secs(1);

/// The time limit for sending the response to a request of the server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The wait for the acknowledgement of a notification. A server that acknowledges none may still
/// answer requests.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of responses that wait to be sent. Further requests are not answered.
const RESPONSES_MAX: usize = 16;

/// The time for which the sending of a request continues when it is no longer awaited: the rest of
/// its answer is read, so that the transport can reuse the connection.
const UNAWAITED_MAX: Duration = Duration::from_secs(1);

/// The name of messages of this module in the log of `--debug`.
const LOG_TARGET: &str = "outlast::mcp";

/// The next identifier of a request, for all connections: a host may still work on a request of an
/// earlier connection, and refuses another with its identifier.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A connection, shared by all that use it.
#[derive(Clone)]
pub(super) struct Peer(Arc<PeerState>);

struct PeerState {
    transport: Box<dyn Transport>,
    inbox: Inbox,
    /// The folders that the run works in, for servers that request them.
    roots: Value,
    elicitor: Arc<Elicitor>,
    unanswered: Mutex<HashMap<u64, AnswerSlot>>,
    /// The information about the client that each request contains; set during the handshake.
    context: OnceLock<Map<String, Value>>,
    /// True once the server has answered the first request.
    is_connected: AtomicBool,
    responses: mpsc::Sender<ClientMessage>,
    tools_changed: Notify,
    /// The number of notifications that the tools have changed.
    tool_changes: AtomicU64,
}

/// The channels for the answer to a request and for its progress.
struct AnswerSlot {
    answer: oneshot::Sender<Result<Value, RequestFault>>,
    progress: Arc<Notify>,
    /// True if the model or the user waits for the answer: not for the lists of a new connection.
    is_call: bool,
}

/// A request that was sent.
pub(super) struct PendingRequest {
    peer: Peer,
    id: u64,
    answer: oneshot::Receiver<Result<Value, RequestFault>>,
    progress: Arc<Notify>,
    sending: AbortHandle,
    /// Informs the sending task when the request is no longer awaited.
    _awaited: DropGuard,
}

impl Peer {
    /// Starts to handle incoming messages, until the connection is closed.
    pub(super) fn start(
        transport: Box<dyn Transport>,
        inbox: Inbox,
        received: mpsc::Receiver<ReceivedMessage>,
        roots: Value,
        elicitor: Arc<Elicitor>,
    ) -> Self {
        let (responses, queued) = mpsc::channel(RESPONSES_MAX);
        let peer = Self(Arc::new(PeerState {
            transport,
            inbox,
            roots,
            elicitor,
            unanswered: Mutex::default(),
            context: OnceLock::new(),
            is_connected: AtomicBool::new(false),
            responses,
            tools_changed: Notify::new(),
            tool_changes: AtomicU64::new(0),
        }));
        tokio::spawn(peer.clone().handle_all(received));
        tokio::spawn(peer.clone().respond(queued));
        peer
    }

    async fn handle_all(self, mut received: mpsc::Receiver<ReceivedMessage>) {
        loop {
            tokio::select! {
                // Messages that arrived before the end are still handled.
                biased;
                message = received.recv() => match message {
                    Some(received) => self.handle(received.message),
                    None => break,
                },
                () = self.closed() => break,
            }
        }
        self.0.inbox.closed.cancel();
        for (_, slot) in self.0.unanswered.lock().drain() {
            let _ = slot.answer.send(Err(self.closed_fault()));
        }
        self.0.elicitor.withdraw_without_call();
    }

    /// Sends the responses to requests of the server: a server that is slow to take them delays
    /// nothing else.
    async fn respond(self, mut queued: mpsc::Receiver<ClientMessage>) {
        let send_all = async {
            while let Some(response) = queued.recv().await {
                let _ = timeout(RESPONSE_TIMEOUT, self.0.transport.send(response)).await;
            }
        };
        tokio::select! {
            () = send_all => {}
            () = self.closed() => {}
        }
    }

    fn handle(&self, message: ServerMessage) {
        match message {
            ServerMessage::Response { id, outcome } => {
                let error = outcome.as_ref().err().map(|error| error.code);
                tracing::debug!(target: LOG_TARGET, %id, error, "response");
                let answer = outcome.map_err(RequestFault::Refused);
                match request_number(&id).and_then(|id| self.0.unanswered.lock().remove(&id)) {
                    // A request that is no longer awaited has no receiver.
                    Some(slot) => drop(slot.answer.send(answer)),
                    None => self.handle_unmatched(&id, answer),
                }
            }
            ServerMessage::Notification { method, params } => match method.as_str() {
                "notifications/progress" => {
                    let id = request_number(&params["progressToken"]);
                    tracing::debug!(target: LOG_TARGET, id, "progress");
                    let unanswered = self.0.unanswered.lock();
                    let slot = match id {
                        Some(id) => unanswered.get(&id),
                        None => only_call(&unanswered),
                    };
                    if let Some(slot) = slot {
                        slot.progress.notify_one();
                    }
                }
                "notifications/tools/list_changed" => {
                    self.0.tool_changes.fetch_add(1, Ordering::Relaxed);
                    self.0.tools_changed.notify_one();
                }
                "notifications/cancelled" => self.0.elicitor.withdraw(&params["requestId"]),
                "notifications/elicitation/complete" => {
                    if let Some(id) = params["elicitationId"].as_str() {
                        self.0.elicitor.complete(id);
                    }
                }
                _ => {}
            },
            ServerMessage::Request { id, method, params } => match method.as_str() {
                "elicitation/create" => self.elicit(id, &params),
                _ => self.respond_with(&id, self.answer(&method)),
            },
        }
    }

    fn respond_with(&self, id: &Value, outcome: Result<Value, RpcError>) {
        // A server that does not take its responses gets no more of them.
        let _ = self.0.responses.try_send(ClientMessage::response(id, outcome));
    }

    /// Passes a question of the server to the host. A question belongs to a request in progress,
    /// and is cancelled if there is none. The end of the question counts as progress of all open
    /// requests.
    fn elicit(&self, id: Value, params: &Value) {
        let request = match self.0.elicitor.read(params) {
            Ok(request) => request,
            Err(error) => return self.respond_with(&id, Err(error)),
        };
        let unanswered = self.0.unanswered.lock();
        let open = || self.0.elicitor.open(Some(id.clone()), request);
        let question = if unanswered.is_empty() { None } else { open() };
        // Locked until here, so that the last request cannot end before its question is opened.
        drop(unanswered);
        let Some(question) = question else {
            return self.respond_with(&id, Ok(elicitation::cancel()));
        };
        let peer = self.clone();
        tokio::spawn(async move {
            if let Some(answer) = question.answer().await {
                peer.respond_with(&id, Ok(answer));
            }
            for slot in peer.0.unanswered.lock().values() {
                slot.progress.notify_one();
            }
        });
    }

    /// Handles an answer that belongs to no request. During the handshake, it is taken as the
    /// answer to the first request, which the server did not understand. Later, an error without an
    /// identifier belongs to the open call, if there is exactly one, which the server could not
    /// read.
    fn handle_unmatched(&self, id: &Value, answer: Result<Value, RequestFault>) {
        if self.0.is_connected.load(Ordering::Relaxed) {
            let is_about_call = matches!(
                &answer,
                // Such an error may be about a notification that the server does not know.
                Err(RequestFault::Refused(error)) if error.code != METHOD_NOT_FOUND
            );
            let mut unanswered = self.0.unanswered.lock();
            let is_only = unanswered.len() == 1 && unanswered.values().all(|slot| slot.is_call);
            if id.is_null() && is_about_call && is_only {
                for (_, slot) in unanswered.drain() {
                    let _ = slot.answer.send(answer.clone());
                }
            }
            return;
        }
        let fault = answer.err().unwrap_or(RequestFault::Mismatch);
        if let Some((_, first)) = self.0.unanswered.lock().drain().next() {
            let _ = first.answer.send(Err(fault));
        }
    }

    /// Answers a request of the server. A run has no model to offer: no sampling.
    fn answer(&self, method: &str) -> Result<Value, RpcError> {
        match method {
            "ping" => Ok(json!({})),
            "roots/list" => Ok(self.roots()),
            _ => {
                let message = format!("the client does not support {method}");
                Err(RpcError::new(METHOD_NOT_FOUND, message))
            }
        }
    }

    /// Sets the information about the client that each further request contains.
    pub(super) fn set_context(&self, context: Map<String, Value>) {
        // There is one handshake.
        let _ = self.0.context.set(context);
    }

    /// Records that the server has answered the first request.
    pub(super) fn set_connected(&self) {
        self.0.is_connected.store(true, Ordering::Relaxed);
    }

    /// The folders that the run works in, in the form of an answer to `roots/list`.
    pub(super) fn roots(&self) -> Value {
        json!({ "roots": self.0.roots })
    }

    pub(super) fn elicitor(&self) -> &Arc<Elicitor> {
        &self.0.elicitor
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
        tracing::debug!(target: LOG_TARGET, id, method, "request");
        let (answer, receiver) = oneshot::channel();
        let progress = Arc::new(Notify::new());
        let is_call = ["tools/call", "resources/read", "prompts/get"].contains(&method);
        let slot = AnswerSlot { answer, progress: Arc::clone(&progress), is_call };
        self.0.unanswered.lock().insert(id, slot);
        let unawaited = CancellationToken::new();
        let awaited = unawaited.clone().drop_guard();
        let sending = self.0.transport.send(ClientMessage::request(id, method, params));
        let peer = self.clone();
        let sending = tokio::spawn(async move {
            let failed = tokio::select! {
                // The transport has the more precise reason for the end of the connection.
                biased;
                sent = sending => match sent {
                    Err(fault) => Some(RequestFault::Exchange(fault)),
                    // The request was sent after the open requests had been answered at the end.
                    Ok(()) if peer.is_closed() => Some(peer.closed_fault()),
                    Ok(()) => None,
                },
                () = peer.closed() => Some(peer.closed_fault()),
                () = async { unawaited.cancelled().await; sleep(UNAWAITED_MAX).await } => None,
            };
            if let Some(fault) = failed
                && let Some(slot) = peer.0.unanswered.lock().remove(&id)
            {
                let _ = slot.answer.send(Err(fault));
            }
        });
        let (peer, sending) = (self.clone(), sending.abort_handle());
        PendingRequest { peer, id, answer: receiver, progress, sending, _awaited: awaited }
    }

    /// Sends a notification. If the server does not acknowledge it in time, it is sent beside what
    /// follows.
    pub(super) async fn notify(&self, method: &str) -> Result<(), RequestFault> {
        let sending = self.0.transport.send(ClientMessage::notification(method));
        let peer = self.clone();
        let sending = tokio::spawn(async move {
            tokio::select! {
                biased;
                sent = sending => sent.map_err(RequestFault::Exchange),
                () = peer.closed() => Err(peer.closed_fault()),
            }
        });
        match timeout(NOTIFICATION_TIMEOUT, sending).await {
            Ok(Ok(sent)) => sent,
            // It panicked, or takes longer.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Waits for a notification that the tools have changed.
    pub(super) async fn wait_for_tool_change(&self) {
        self.0.tools_changed.notified().await;
    }

    /// The number of notifications that the tools have changed.
    pub(super) fn tool_changes(&self) -> u64 {
        self.0.tool_changes.load(Ordering::Relaxed)
    }

    /// The fault of a request on a connection that has ended.
    fn closed_fault(&self) -> RequestFault {
        RequestFault::Closed(self.transport().closing_reason())
    }

    /// Waits until the connection is gone.
    pub(super) async fn closed(&self) {
        self.0.inbox.closed.cancelled().await;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.inbox.closed.is_cancelled()
    }

    /// Closes the connection; the end of the session takes at most `limit`.
    pub(super) async fn close(&self, limit: Duration) {
        let _ = timeout(limit, self.0.transport.close()).await;
        self.0.inbox.closed.cancel();
    }
}

/// The open call, if there is exactly one: progress without the token of a request is about it.
fn only_call(unanswered: &HashMap<u64, AnswerSlot>) -> Option<&AnswerSlot> {
    let mut calls = unanswered.values().filter(|slot| slot.is_call);
    let call = calls.next()?;
    calls.next().is_none().then_some(call)
}

impl PendingRequest {
    /// Waits for the answer. Cancel-safe.
    pub(super) async fn answer(&mut self) -> Result<Value, RequestFault> {
        // A connection that ends answers all its requests first.
        (&mut self.answer).await.unwrap_or_else(|_| Err(self.peer.closed_fault()))
    }

    /// Returns the handle that is notified of each progress. Several notifications count as one
    /// until they are consumed.
    pub(super) fn progress(&self) -> Arc<Notify> {
        Arc::clone(&self.progress)
    }

    /// Notifies the server that the answer is no longer needed, without waiting. Returns once the
    /// questions that belonged to the request are withdrawn from the host.
    pub(super) async fn cancel(self, why: &str) {
        let cancellation = self.peer.transport().send(ClientMessage::cancellation(self.id, why));
        let sending = self.sending.clone();
        tokio::spawn(async move {
            let _ = timeout(CANCELLATION_TIMEOUT, cancellation).await;
            // The server no longer answers it.
            sending.abort();
        });
        let peer = self.peer.clone();
        drop(self);
        if peer.0.unanswered.lock().is_empty() {
            let _ = timeout(CANCELLATION_TIMEOUT, peer.0.elicitor.withdrawn()).await;
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let mut unanswered = self.peer.0.unanswered.lock();
        unanswered.remove(&self.id);
        if unanswered.is_empty() {
            drop(unanswered);
            self.peer.0.elicitor.withdraw_without_call();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::transport::Sending;
    use super::*;

    /// A transport that never sends anything. Counts the messages that were given up.
    #[derive(Default)]
    struct StuckTransport(Arc<AtomicU64>);

    struct Count(Arc<AtomicU64>);

    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Transport for StuckTransport {
        fn send(&self, _message: ClientMessage) -> Sending {
            let given_up = Count(Arc::clone(&self.0));
            Box::pin(async move {
                let _given_up = given_up;
                std::future::pending().await
            })
        }
    }

    fn stuck() -> (Peer, Inbox, Arc<AtomicU64>) {
        let (inbox, received) = Inbox::new(8);
        let transport = StuckTransport::default();
        let given_up = Arc::clone(&transport.0);
        let elicitor = Arc::new(Elicitor::new(None, "test", Duration::MAX));
        let peer = Peer::start(Box::new(transport), inbox.clone(), received, json!([]), elicitor);
        (peer, inbox, given_up)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_awaited_any_more_is_given_up() {
        let (peer, _inbox, given_up) = stuck();
        drop(peer.request("tools/list", json!({})));
        sleep(UNAWAITED_MAX + Duration::from_millis(1)).await;
        assert_eq!(given_up.load(Ordering::Relaxed), 1);
        let request = peer.request("tools/list", json!({}));
        sleep(Duration::from_hours(1)).await;
        assert_eq!(given_up.load(Ordering::Relaxed), 1, "it is still awaited");
        request.cancel("out of time").await;
        sleep(CANCELLATION_TIMEOUT + Duration::from_millis(1)).await;
        assert_eq!(given_up.load(Ordering::Relaxed), 3, "with the cancellation");
    }

    #[tokio::test(start_paused = true)]
    async fn a_notification_that_is_not_acknowledged_is_sent_beside_what_follows() {
        let (peer, inbox, given_up) = stuck();
        let began = Instant::now();
        assert_eq!(peer.notify("notifications/initialized").await, Ok(()));
        assert_eq!(began.elapsed(), NOTIFICATION_TIMEOUT);
        sleep(Duration::from_hours(1)).await;
        assert_eq!(given_up.load(Ordering::Relaxed), 0, "it is still being sent");
        inbox.closed.cancel();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(given_up.load(Ordering::Relaxed), 1);
        let closed = Err(RequestFault::Closed(None));
        assert_eq!(peer.notify("notifications/initialized").await, closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_no_responses_delays_no_answer() {
        let (peer, inbox, _) = stuck();
        let mut request = peer.request("tools/list", json!({}));
        for _ in 0..2 * RESPONSES_MAX {
            let (id, method, params) = (json!("x"), "ping".to_owned(), Value::Null);
            let ping = ServerMessage::Request { id, method, params };
            let permit = inbox.reserve(10).await;
            assert!(inbox.put(ping, permit).await);
        }
        let answer = ServerMessage::Response { id: json!(request.id), outcome: Ok(json!({})) };
        let (permit, began) = (inbox.reserve(10).await, Instant::now());
        assert!(inbox.put(answer, permit).await);
        assert_eq!(request.answer().await, Ok(json!({})));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_connection_answers_every_request() {
        let (peer, inbox, _) = stuck();
        let mut before = peer.request("tools/list", json!({}));
        inbox.closed.cancel();
        assert_eq!(before.answer().await, Err(RequestFault::Closed(None)));
        let mut after = peer.request("tools/list", json!({}));
        assert_eq!(after.answer().await, Err(RequestFault::Closed(None)));
    }
}
