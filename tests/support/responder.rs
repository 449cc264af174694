//! A server that answers each request by a function: token services, metadata servers of clouds,
//! collectors.

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::wire::read_request;
use super::with_time_limit;

/// The answer to a request. Each header ends with its line.
#[derive(Clone)]
pub(crate) struct Answer {
    status: u16,
    headers: String,
    body: String,
}

impl Answer {
    pub(crate) fn with_headers(status: u16, headers: &str, body: String) -> Self {
        Self { status, headers: headers.to_owned(), body }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::with_headers(status, "content-type: application/json\r\n", body.to_string())
    }
}

impl From<(u16, String)> for Answer {
    fn from((status, body): (u16, String)) -> Self {
        Self::with_headers(status, "", body)
    }
}

/// The answer to the head and body of a request, which is counted from 1. `None`: no answer.
type Handler = dyn Fn(usize, &str) -> Option<Answer> + Send + Sync;

/// A server on loopback. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Head and body of every request.
    seen: watch::Sender<Vec<String>>,
    /// The beginning of requests whose answers wait.
    held: watch::Sender<Option<&'static str>>,
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Responder {
    pub(crate) async fn start<A: Into<Answer>>(
        answer: impl Fn(usize, &str) -> Option<A> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::<Shared>::default();
        let all = Arc::clone(&shared);
        let answer: Arc<Handler> =
            Arc::new(move |number, request| answer(number, request).map(Into::into));
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket, Arc::clone(&all), Arc::clone(&answer)));
            }
        });
        Self { url, shared, accepting }
    }

    /// Head and body of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.seen.borrow().clone()
    }

    /// Waits until the requests are these.
    pub(crate) async fn wait_for(&self, what: &str, is_seen: impl FnMut(&Vec<String>) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        with_time_limit(what, seen.wait_for(is_seen)).await.expect("the server lives");
    }

    /// Lets every further request that begins like this wait for its answer. What is not answered
    /// has no effect.
    pub(crate) fn hold(&self, beginning: &'static str) {
        self.shared.held.send_replace(Some(beginning));
    }

    pub(crate) fn release(&self) {
        self.shared.held.send_replace(None);
    }
}

async fn serve(mut socket: TcpStream, shared: Arc<Shared>, answer: Arc<Handler>) {
    let Some(request) = read_request(&mut socket).await else { return };
    let mut number = 0;
    shared.seen.send_modify(|seen| {
        seen.push(request.clone());
        number = seen.len();
    });
    let mut gate = shared.held.subscribe();
    let mut one = [0];
    tokio::select! {
        biased;
        free = gate.wait_for(|held| held.is_none_or(|held| !request.starts_with(held))) => {
            drop(free.expect("the server lives"));
        }
        // The client has closed the connection.
        _ = socket.read(&mut one) => return,
    }
    let Some(Answer { status, headers, body }) = answer(number, &request) else {
        return std::future::pending().await;
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Status\r\n{headers}content-length: {length}\r\n");
    let whole = format!("{head}connection: close\r\n\r\n{body}");
    // The client may have given up.
    let _ = socket.write_all(whole.as_bytes()).await;
    let _ = socket.shutdown().await;
}
