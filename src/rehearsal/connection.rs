//! Reads requests from one client connection, and writes responses.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEAD_MAX: usize = 64 * 1024;
/// The largest body that is read: above the service's limit, so that a larger one can be refused.
const BODY_MAX: usize = 64 * 1024 * 1024;

/// A request as received.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    pub(super) method: String,
    pub(super) path: String,
    /// Names in lower case, in the order of the request.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// True if the client keeps the connection open.
    pub(super) keep_alive: bool,
}

impl RecordedRequest {
    /// The value of the first header of that name, which must be in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The path without the query.
    pub(super) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// The error for a client that has disconnected.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientGone;

pub(super) struct ServerConnection {
    pub(super) id: usize,
    stream: TcpStream,
    /// Received bytes that are not parsed yet.
    buffer: Vec<u8>,
}

impl ServerConnection {
    pub(super) fn new(id: usize, stream: TcpStream) -> Self {
        // On failure only latency suffers.
        let _ = stream.set_nodelay(true);
        Self { id, stream, buffer: Vec::new() }
    }

    /// Reads one request. `None` if the client has closed the connection.
    ///
    /// # Errors
    /// The connection failed, or the data is not a request.
    pub(super) async fn read_request(&mut self) -> io::Result<Option<RecordedRequest>> {
        let mut request = loop {
            if let Some(request) = self.parse_head()? {
                break request;
            }
            if self.buffer.len() > HEAD_MAX {
                return Err(invalid("the request: its head is too long"));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(invalid("the request: its head is incomplete"))
                };
            }
        };
        let expectation = request.header("expect").unwrap_or_default();
        if expectation.eq_ignore_ascii_case("100-continue") {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let chunked = request
            .header("transfer-encoding")
            .is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"));
        request.body = if chunked {
            self.read_chunks().await?
        } else {
            match request.header("content-length").map(str::parse) {
                None => Vec::new(),
                Some(Ok(length)) if length <= BODY_MAX => self.take(length).await?,
                Some(_) => return Err(invalid("the request: invalid content-length")),
            }
        };
        Ok(Some(request))
    }

    fn parse_head(&mut self) -> io::Result<Option<RecordedRequest>> {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Request::new(&mut headers);
        let length = match parsed.parse(&self.buffer) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(invalid(&error.to_string())),
        };
        let headers = parsed.headers.iter().map(|header| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        });
        let mut request = RecordedRequest {
            method: parsed.method.unwrap_or_default().to_owned(),
            path: parsed.path.unwrap_or_default().to_owned(),
            headers: headers.collect(),
            body: Vec::new(),
            keep_alive: false,
        };
        let connection = request.header("connection").unwrap_or_default().to_ascii_lowercase();
        request.keep_alive = match parsed.version {
            Some(0) => connection.contains("keep-alive"),
            _ => !connection.contains("close"),
        };
        self.buffer.drain(..length);
        Ok(Some(request))
    }

    async fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| invalid("a chunk without a size"))?;
            if body.len() + size.min(BODY_MAX) > BODY_MAX || size > BODY_MAX {
                return Err(invalid("the request: its body is too long"));
            }
            if size == 0 {
                // Trailers, up to the empty line.
                while !self.take_line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size).await?);
            if !self.take_line().await?.is_empty() {
                return Err(invalid("the request: a chunk exceeds its size"));
            }
        }
    }

    async fn take_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                return Ok(line);
            }
            if self.buffer.len() > HEAD_MAX || self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(invalid("the request: a line has no end"));
            }
        }
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(invalid("the request: its body is incomplete"));
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.stream.write_all(bytes).await.map_err(|_| ClientGone)
    }

    /// Sends nothing for a while. Returns early when the client disconnects.
    pub(super) async fn wait_silently(&mut self, duration: Duration) -> Result<(), ClientGone> {
        if duration.is_zero() {
            return Ok(());
        }
        let sleep = tokio::time::sleep(duration);
        tokio::pin!(sleep);
        while self.buffer.len() <= BODY_MAX {
            tokio::select! {
                () = &mut sleep => return Ok(()),
                read = self.stream.read_buf(&mut self.buffer) => match read {
                    Ok(0) | Err(_) => return Err(ClientGone),
                    Ok(_) => {}
                },
            }
        }
        Err(ClientGone)
    }

    /// Closes the connection with a TCP reset.
    pub(super) fn reset(self) {
        // On failure the client sees an ordinary close, which is a fault too.
        let _ = self.stream.set_zero_linger();
    }

    /// Closes the connection in an orderly way.
    pub(super) async fn close(mut self) {
        let _ = self.stream.shutdown().await;
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cannot read {what}"))
}
