//! A scripted HTTP server on loopback, which can also send faulty responses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::with_time_limit;

/// The response of the server.
#[derive(Clone)]
pub(crate) enum Answer {
    /// This, and then the end of the connection.
    Whole(Vec<u8>),
    /// This, and then nothing for as long as the client stays.
    Held(Vec<u8>),
    /// The first once, and the second again and again.
    Endless(Vec<u8>, Vec<u8>),
}

/// A good answer.
pub(crate) fn page(kind: &str, body: impl AsRef<[u8]>) -> Answer {
    response("200 OK", &format!("content-type: {kind}\r\n"), body)
}

/// An answer. Each header ends with its line.
pub(crate) fn response(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    Answer::Whole([head.as_bytes(), body].concat())
}

/// A site that listens for as long as the test's runtime runs.
pub(crate) struct Site {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    asked: Arc<Notify>,
    left: Arc<Notify>,
}

impl Site {
    pub(crate) async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let site = Self {
            address: listener.local_addr().expect("bound"),
            seen: Arc::default(),
            asked: Arc::default(),
            left: Arc::default(),
        };
        let (seen, asked, left) =
            (Arc::clone(&site.seen), Arc::clone(&site.asked), Arc::clone(&site.left));
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (seen, asked, left) =
                    (Arc::clone(&seen), Arc::clone(&asked), Arc::clone(&left));
                let answer = Arc::clone(&answer);
                tokio::spawn(async move {
                    let Some(request) = head(&mut socket).await else { return };
                    let answer = answer(&request);
                    seen.lock().expect("no thread panics while it holds the lock").push(request);
                    asked.notify_one();
                    // A client that hangs up has its reasons.
                    let _ = give(&mut socket, answer).await;
                    left.notify_one();
                });
            }
        });
        site
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The heads of all requests so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no thread panics while it holds the lock").clone()
    }

    /// Waits for a request.
    pub(crate) async fn is_asked(&self) {
        with_time_limit("a request", self.asked.notified()).await;
    }

    /// Waits for the end of a connection.
    pub(crate) async fn is_left(&self) {
        with_time_limit("the end of the connection", self.left.notified()).await;
    }
}

async fn head(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

async fn give(socket: &mut TcpStream, answer: Answer) -> std::io::Result<()> {
    match answer {
        Answer::Whole(bytes) => {
            socket.write_all(&bytes).await?;
            socket.shutdown().await
        }
        Answer::Held(bytes) => {
            socket.write_all(&bytes).await?;
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.map(drop)
        }
        Answer::Endless(first, again) => {
            socket.write_all(&first).await?;
            loop {
                socket.write_all(&again).await?;
            }
        }
    }
}
