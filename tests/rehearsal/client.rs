//! A raw TCP client for the rehearsal server.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use outlast_rehearsal::{RehearsalServer, Scenario, ServerOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Far beyond what any of these tests needs.
pub(super) const PATIENCE: Duration = Duration::from_mins(4);

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// In an orderly way.
    Closed,
    Reset,
}

pub(super) fn start(scenario: Scenario) -> RehearsalServer {
    let options =
        ServerOptions { cwd: Some(PathBuf::from("/scratch")), ..ServerOptions::default() };
    RehearsalServer::start(scenario, options).expect("a free port on loopback")
}

/// A request that the service accepts.
pub(super) fn ask() -> Value {
    json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "stream": true,
        "tools": [{ "name": "Bash", "input_schema": { "type": "object" } }],
        "messages": [{ "role": "user", "content": "Say hello." }],
    })
}

pub(super) fn unstreamed() -> Value {
    let mut body = ask();
    body["stream"] = json!(false);
    body
}

/// A request on the wire, with further header lines.
pub(super) fn post(body: &Value, headers: &[&str]) -> Vec<u8> {
    let body = body.to_string();
    let more = headers.iter().flat_map(|line| [*line, "\r\n"]).collect::<String>();
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: loopback\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\n{more}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(super) async fn connect(server: &RehearsalServer) -> TcpStream {
    TcpStream::connect(("127.0.0.1", server.port())).await.expect("the server listens")
}

/// Reads until the connection ends.
pub(super) async fn read_all(stream: &mut TcpStream) -> (String, End) {
    let mut bytes = Vec::new();
    let end = loop {
        let read = timeout(PATIENCE, stream.read_buf(&mut bytes)).await.expect("the end comes");
        match read {
            Ok(0) => break End::Closed,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break End::Reset,
            Err(error) => panic!("{error}"),
        }
    };
    (String::from_utf8_lossy(&bytes).into_owned(), end)
}

/// Reads until `marker` has come.
pub(super) async fn read_until(stream: &mut TcpStream, marker: &str) -> String {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(marker) {
        let read = timeout(PATIENCE, stream.read_buf(&mut bytes)).await.expect("more comes");
        assert_ne!(read.expect("readable"), 0, "ended before {marker:?}: {bytes:?}");
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// Sends one request on a connection of its own and reads everything that comes.
pub(super) async fn exchange(server: &RehearsalServer, body: &Value) -> (String, End) {
    let mut stream = connect(server).await;
    stream.write_all(&post(body, &["connection: close"])).await.expect("writable");
    read_all(&mut stream).await
}

/// A response, taken apart.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Response {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("the body is JSON")
    }

    /// The data of each event.
    pub(super) fn events(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("data is JSON")).collect()
    }

    pub(super) fn event_names(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
    }
}

/// Takes a whole response apart; its chunks are joined.
pub(super) fn parse(wire: &str) -> Response {
    let (head, rest) = wire.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = if head.contains("transfer-encoding: chunked") {
        let mut body = String::new();
        let mut rest = rest;
        while let Some((size, after)) = rest.split_once("\r\n") {
            let size = usize::from_str_radix(size, 16).expect("a chunk size");
            body.push_str(&after[..size]);
            rest = &after[size + 2..];
        }
        body
    } else {
        rest.to_owned()
    };
    Response { status, head: head.to_owned(), body }
}

pub(super) async fn respond(server: &RehearsalServer, body: &Value) -> Response {
    parse(&exchange(server, body).await.0)
}

/// As [`respond`], with further header lines.
pub(super) async fn respond_to(
    server: &RehearsalServer,
    body: &Value,
    headers: &[&str],
) -> Response {
    let mut stream = connect(server).await;
    let headers = [headers, &["connection: close"]].concat();
    stream.write_all(&post(body, &headers)).await.expect("writable");
    parse(&read_all(&mut stream).await.0)
}

/// The error message of a response, which must be a 400.
pub(super) async fn complaint(server: &RehearsalServer, body: &Value) -> String {
    let response = respond(server, body).await;
    assert_eq!(response.status, 400, "{}", response.body);
    assert!(response.head.contains("x-should-retry: false"), "{}", response.head);
    response.json()["error"]["message"].as_str().expect("a message").to_owned()
}
