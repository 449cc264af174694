//! Detects servers that speak only HTTP/2. No retry helps there: outlast speaks HTTP/1.1.

use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::recovery::{FailureStage, Fault, FaultKind};

/// The preface of an HTTP/2 connection with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// The type of the frame that an HTTP/2 server sends first.
const SETTINGS: u8 = 4;
/// Time limit for the answer to a preface.
const TIMEOUT: Duration = Duration::from_secs(2);

/// True if the server at an `http://` address answers in HTTP/2.
pub(super) async fn speaks_http2(url: &Url) -> bool {
    let Some(host) = url.host_str().map(|host| host.trim_matches(['[', ']'])) else { return false };
    let port = url.port_or_known_default().unwrap_or(80);
    let exchange = async {
        let mut socket = TcpStream::connect((host, port)).await?;
        socket.write_all(PREFACE).await?;
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        std::io::Result::Ok(head)
    };
    // A frame begins with its length, type, flags and stream number, which is 0 for the connection.
    match timeout(TIMEOUT, exchange).await {
        Ok(Ok(head)) => head[3] == SETTINGS && head[5..] == [0; 4],
        Ok(Err(_)) | Err(_) => false,
    }
}

/// The fault of a request to a server that speaks only HTTP/2.
pub(super) fn http2_only(server: &str) -> Fault {
    let detail = format!(
        "{server} speaks only HTTP/2, and outlast speaks HTTP/1.1: let the server or a proxy in \
         front of it accept HTTP/1.1"
    );
    Fault::new(FaultKind::Unsendable { detail }, FailureStage::Unsent)
}
