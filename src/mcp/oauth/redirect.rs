//! The address on this machine to which the authorization server sends the user's browser back.

use std::io;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATH: &str = "/callback";

const HEAD_BYTES_MAX: usize = 16 << 10;

pub(super) struct RedirectListener {
    listener: TcpListener,
    pub(super) address: Url,
}

/// The outcome of the login, from the request of the redirected browser.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirected {
    /// The whole address, with the code.
    Granted(Url),
    /// The authorization server's error.
    Refused(String),
}

impl RedirectListener {
    /// Listens at a port; without one, at any that is free.
    pub(super) async fn bind(port: Option<u16>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await?;
        let port = listener.local_addr()?.port();
        let address = Url::parse(&format!("http://localhost:{port}{PATH}"));
        Ok(Self { listener, address: address.map_err(io::Error::other)? })
    }

    /// Waits for the browser. Requests without the `state` of this login change nothing.
    pub(super) async fn receive(&self, state: &str) -> io::Result<Redirected> {
        loop {
            let (mut browser, _) = self.listener.accept().await?;
            // Browsers open connections in advance, and may send nothing in them.
            let answered = async {
                let target = read_target(&mut browser).await?;
                let found = self.classify(&target, state);
                let text = match &found {
                    Some(Redirected::Granted(_)) => "You can close this page.",
                    Some(Redirected::Refused(_)) => "The login was refused.",
                    None => "This is not part of the login.",
                };
                answer(&mut browser, found.is_some(), text).await;
                found
            };
            if let Ok(Some(found)) = tokio::time::timeout(BROWSER_TIMEOUT, answered).await {
                return Ok(found);
            }
        }
    }

    fn classify(&self, target: &str, state: &str) -> Option<Redirected> {
        let url = self.address.join(target).ok()?;
        let value = |name: &str| {
            let mut pairs = url.query_pairs();
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        if url.path() != PATH || value("state").as_deref() != Some(state) {
            return None;
        }
        match (value("code"), value("error")) {
            (Some(_), None) => Some(Redirected::Granted(url)),
            (_, Some(error)) => {
                let description =
                    value("error_description").map(|description| format!(": {description}"));
                Some(Redirected::Refused(error + &description.unwrap_or_default()))
            }
            (None, None) => None,
        }
    }
}

/// The time limit of one request of the browser.
const BROWSER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Reads the head of a request, and returns its target.
async fn read_target(browser: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = browser.read_buf(&mut head).await.ok()?;
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return None;
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(&head).ok()?;
    request.path.map(ToOwned::to_owned)
}

async fn answer(browser: &mut TcpStream, is_known: bool, text: &str) {
    let status = if is_known { "200 OK" } else { "404 Not Found" };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\
         \r\n\r\n{text}",
        text.len()
    );
    // The browser may have closed the connection; the login continues.
    let _ = browser.write_all(answer.as_bytes()).await;
    let _ = browser.shutdown().await;
}
