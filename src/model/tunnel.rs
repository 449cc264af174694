//! Finds out why a proxy refuses a tunnel. The HTTP client reports the status only of a 407.

use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::endpoint::host;
use super::fault::body_text;
use super::proxies::{Proxy, encoded_login};

/// Maximum size of the head of an answer, in bytes.
const HEAD_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 100;

/// The answer of a proxy that refuses a tunnel.
#[derive(Debug)]
pub(super) struct TunnelRefusal {
    pub(super) status: u16,
    /// Its reason phrase, or the text of its page.
    pub(super) reason: String,
}

/// Requests a tunnel to `url` once more, within `limit`. `None`: the proxy opens it this time, does
/// not answer, or is itself reached by TLS or SOCKS.
pub(super) async fn tunnel_refusal(
    proxy: &Proxy,
    url: &Url,
    limit: Duration,
) -> Option<TunnelRefusal> {
    if proxy.url().scheme() != "http" {
        return None;
    }
    let answer = timeout(limit, request_tunnel(proxy, url)).await.ok()?.ok()?;
    parse(&answer).filter(|refusal| !(200..300).contains(&refusal.status))
}

async fn request_tunnel(proxy: &Proxy, url: &Url) -> std::io::Result<Vec<u8>> {
    let address = proxy.url();
    let name = address.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = address.port_or_known_default().unwrap_or(80);
    let mut socket = TcpStream::connect((name, port)).await?;
    let to = host(url);
    let login = encoded_login(address);
    let login = login.map(|login| format!("Proxy-Authorization: Basic {login}\r\n"));
    let login = login.unwrap_or_default();
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{login}\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while answer.len() < HEAD_MAX && parse(&answer).is_none() {
        if socket.read_buf(&mut answer).await? == 0 {
            break;
        }
    }
    Ok(answer)
}

/// Parses an answer. `None`: its head is not complete.
fn parse(answer: &[u8]) -> Option<TunnelRefusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(answer).ok()? else { return None };
    let reason = response.reason.unwrap_or_default().trim();
    let reason = if reason.is_empty() { body_text(&answer[length..]) } else { reason.to_owned() };
    Some(TunnelRefusal { status: response.code?, reason })
}
