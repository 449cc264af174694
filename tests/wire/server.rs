//! A server that does to its sockets exactly what a test tells it to.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::wire::read_request;

/// One thing to do to a connection.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Reads one whole request.
    Read,
    Send(Vec<u8>),
    /// Does nothing for this time.
    Wait(Duration),
    /// Sends the bytes, over and over, until the client hangs up.
    Repeat(Vec<u8>),
    /// Does nothing until the client hangs up.
    Hang,
    /// Closes with a RST.
    Reset,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub connections: usize,
    /// Head and body of every request.
    pub requests: Vec<String>,
    /// Number of clients that hung up on an [`Act::Hang`].
    pub hung_up: usize,
}

#[derive(Debug)]
pub(super) struct Server {
    pub url: String,
    seen: watch::Receiver<Seen>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    /// Serves connections by their scripts, in order; the last script serves all further ones.
    /// A connection whose script has ended is closed.
    pub(super) async fn start(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (watched, seen) = watch::channel(Seen::default());
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((socket, _)) = listener.accept().await else { return };
                let number = watched.borrow().connections;
                watched.send_modify(|seen| seen.connections += 1);
                let script = scripts[number.min(scripts.len() - 1)].clone();
                connections.spawn(play(socket, script, watched.clone()));
            }
        });
        Self { url, seen, accepting }
    }

    /// Answers every request with these bytes, then closes.
    pub(super) async fn answering(bytes: Vec<u8>) -> Self {
        Self::start(vec![vec![Act::Read, Act::Send(bytes)]]).await
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.borrow().connections
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.seen.borrow().requests.clone()
    }

    /// Waits until it has seen this.
    pub(super) async fn until(&self, what: fn(&Seen) -> bool) {
        let mut seen = self.seen.clone();
        let waiting = tokio::time::timeout(super::PATIENCE, seen.wait_for(what));
        waiting.await.expect("it is seen in time").expect("the server lives");
    }
}

async fn play(mut socket: TcpStream, script: Vec<Act>, seen: watch::Sender<Seen>) {
    for act in script {
        match act {
            Act::Read => match read_request(&mut socket).await {
                Some(request) => seen.send_modify(|seen| seen.requests.push(request)),
                None => return,
            },
            Act::Send(bytes) => {
                if socket.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::Wait(time) => tokio::time::sleep(time).await,
            Act::Repeat(bytes) => {
                // Without a pause, it would keep both processors busy for as long as it is awaited.
                while socket.write_all(&bytes).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Act::Hang => {
                let mut rest = Vec::new();
                let _ = socket.read_to_end(&mut rest).await;
                seen.send_modify(|seen| seen.hung_up += 1);
                return;
            }
            Act::Reset => {
                let _ = socket.set_zero_linger();
                return;
            }
        }
    }
    let _ = socket.shutdown().await;
}

/// An answer with a length.
pub(super) fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status} Some Reason\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(super) const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nrequest-id: req_head\r\n\
    content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// One chunk of a body.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A whole stream, with its end.
pub(super) fn stream(events: &[u8]) -> Vec<u8> {
    [STREAM_HEAD, &chunk(events), b"0\r\n\r\n"].concat()
}

/// The beginning of a stream, and nothing after.
pub(super) fn stream_part(events: &[u8]) -> Vec<u8> {
    [STREAM_HEAD, &chunk(events)].concat()
}
