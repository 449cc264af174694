//! A server that answers each request by a function: token services and metadata servers of clouds.

use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::wire::read_request;

/// Status and body for the head and body of a request, which is counted from 1. `None`: no answer.
type Answer = dyn Fn(usize, &str) -> Option<(u16, String)> + Send + Sync;

/// A server on loopback. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Responder {
    pub(crate) async fn start(
        answer: impl Fn(usize, &str) -> Option<(u16, String)> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (requests, answer): (_, Arc<Answer>) = (Arc::clone(&seen), Arc::new(answer));
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket, Arc::clone(&requests), Arc::clone(&answer)));
            }
        });
        Self { url, seen, accepting }
    }

    /// Head and body of every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().expect("no thread panicked").clone()
    }
}

async fn serve(mut socket: TcpStream, seen: Arc<Mutex<Vec<String>>>, answer: Arc<Answer>) {
    let Some(request) = read_request(&mut socket).await else { return };
    let number = {
        let mut seen = seen.lock().expect("no thread panicked");
        seen.push(request.clone());
        seen.len()
    };
    match answer(number, &request) {
        Some((status, body)) => {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\n");
            let whole = format!("{head}connection: close\r\n\r\n{body}");
            // The client may have given up.
            let _ = socket.write_all(whole.as_bytes()).await;
        }
        None => std::future::pending().await,
    }
}
