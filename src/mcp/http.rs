//! The transport over HTTP ("streamable HTTP"): each message is a POST, whose response holds the
//! answer as JSON or as a stream of events. What the server sends on its own comes in such streams,
//! too, or in one that is opened for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::secrets::Redactor;
use crate::sse::SseParser;
use crate::task;

use super::call_error::{
    ExchangeFault, classify_client_error, classify_status, connection_broken, describe_challenge,
    is_session_lost,
};
use super::request_headers::ArgumentHeaders;
use super::rpc::{ClientMessage, ServerMessage, request_number};
use super::sanitize::sanitize_start;
use super::transport::{Closing, Inbox, Sending, Transport};

/// The most messages that wait to be handled.
pub(super) const WAITING_MAX: usize = 64;

/// The largest answer, and the largest event, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The largest body of an error that is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// How often in a row the attempt to continue a broken stream may fail.
const FAILED_CONTINUATIONS_MAX: u32 = 5;

/// The wait before a stream is continued, unless the server says how long; each further one is twice
/// as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The shortest wait before the stream of an answer is continued, whatever the server says.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// How long to wait for the end of a stream whose answer was received, so that its connection can be
/// used again.
const STREAM_END_WAIT: Duration = Duration::from_secs(1);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The client's end of a connection.
pub(super) struct HttpTransport(Arc<HttpSession>);

struct HttpSession {
    client: Client,
    url: String,
    /// The headers of each request.
    headers: HeaderMap,
    /// The session's identifier, if the server gave one.
    id: OnceLock<HeaderValue>,
    /// The version of the protocol that was agreed on in the handshake.
    version: OnceLock<HeaderValue>,
    /// Whether a stream is open, or about to be, for what the server sends on its own.
    is_listening: AtomicBool,
    arguments: Mutex<ArgumentHeaders>,
    inbox: Inbox,
    mask: Redactor,
}

/// How a stream of events ended.
enum StreamEnd {
    /// The awaited answer came.
    Answered,
    /// The stream ended before, or broke.
    Broken,
}

impl HttpTransport {
    /// # Errors
    /// The name of a header that cannot be set by the user.
    pub(super) fn new(
        client: Client,
        url: &str,
        mut headers: HeaderMap,
        inbox: Inbox,
        mask: Redactor,
    ) -> Result<Self, HeaderName> {
        let own = [ACCEPT, SESSION_ID, LAST_EVENT_ID];
        if let Some(name) = own.into_iter().find(|name| headers.contains_key(name)) {
            return Err(name);
        }
        // Many configurations state it, though every body is JSON.
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Ok(Self(Arc::new(HttpSession {
            client,
            url: url.to_owned(),
            headers,
            id: OnceLock::new(),
            version: OnceLock::new(),
            is_listening: AtomicBool::new(false),
            arguments: Mutex::default(),
            inbox,
            mask,
        })))
    }
}

impl Transport for HttpTransport {
    fn send(&self, message: ClientMessage) -> Sending {
        let session = Arc::clone(&self.0);
        Box::pin(async move { session.post(&message).await })
    }

    fn set_version(&self, version: &str) {
        if let Ok(version) = HeaderValue::from_str(version) {
            // There is one handshake.
            let _ = self.0.version.set(version);
        }
    }

    fn listen(&self) {
        // Without a session, the server does not know whom its messages are for.
        if self.0.id.get().is_none() {
            return;
        }
        let session = Arc::clone(&self.0);
        session.is_listening.store(true, Ordering::Relaxed);
        task::spawn(async move {
            tokio::select! {
                () = session.listen() => {}
                () = session.inbox.closed.cancelled() => {}
            }
            session.is_listening.store(false, Ordering::Relaxed);
        });
    }

    fn set_tools(&self, listed: &[Value]) {
        let headers = ArgumentHeaders::new(listed);
        *self.0.arguments.lock().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    fn close(&self) -> Closing {
        let session = Arc::clone(&self.0);
        Box::pin(async move {
            if session.id.get().is_some() {
                let request = session.request(Method::DELETE, session.headers());
                // The server ends the session by itself if it does not hear of it.
                let _ = request.send().await;
            }
        })
    }
}

impl HttpSession {
    fn request(&self, method: Method, headers: HeaderMap) -> reqwest::RequestBuilder {
        self.client.request(method, &self.url).headers(headers)
    }

    /// The headers of a request, as agreed so far.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(id) = self.id.get() {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(version) = self.version.get() {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        headers
    }

    /// The headers of a message.
    fn message_headers(&self, message: &Value) -> HeaderMap {
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let stated = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        if let Some(version) = stated.as_str().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(PROTOCOL_VERSION, version);
            let arguments = self.arguments.lock().unwrap_or_else(PoisonError::into_inner);
            arguments.add(message, &mut headers);
        }
        headers
    }

    /// Sends a message, and takes the answer in.
    async fn post(&self, message: &ClientMessage) -> Result<(), ExchangeFault> {
        let request = self.request(Method::POST, self.message_headers(&message.json));
        let response = request.body(message.json.to_string()).send().await;
        let response = response.map_err(|error| classify_client_error(&error, &self.mask))?;
        if !response.status().is_success() {
            return self.refused(response, message).await;
        }
        if message.method() == "initialize"
            && let Some(id) = response.headers().get(SESSION_ID)
        {
            // There is one handshake.
            let _ = self.id.set(id.clone());
        }
        let Some(id) = message.id else { return Ok(()) };
        if matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
            && self.is_listening.load(Ordering::Relaxed)
        {
            // Servers may send the answer in the stream that is open for their own messages.
            return Ok(());
        }
        match content_type(&response).as_str() {
            kind if kind.starts_with(JSON) => self.take_json(response, id).await,
            EVENTS => self.take_events(response, id).await,
            "" => Err(ExchangeFault::InvalidAnswer(
                "it answered with content of no type, which is none of the protocol's".to_owned(),
            )),
            other => Err(ExchangeFault::InvalidAnswer(format!(
                "it answered with {}, which is none of the protocol's",
                sanitize_start(other, &self.mask)
            ))),
        }
    }

    /// Classifies a status that is no success. An error of the protocol in the body is the answer.
    async fn refused(
        &self,
        response: Response,
        message: &ClientMessage,
    ) -> Result<(), ExchangeFault> {
        let (status, headers) = (response.status(), response.headers());
        let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let challenge = header(WWW_AUTHENTICATE);
        if status == StatusCode::UNAUTHORIZED
            || status == StatusCode::FORBIDDEN && challenge.is_some()
        {
            let challenge = challenge.unwrap_or_default();
            return Err(ExchangeFault::NeedsAuth(describe_challenge(status, challenge)));
        }
        if status == StatusCode::NOT_FOUND && self.id.get().is_some() {
            return Err(ExchangeFault::Expired);
        }
        let retry_after = header(RETRY_AFTER).map(ToOwned::to_owned);
        let is_json = content_type(&response).starts_with(JSON);
        // A server that fails may have begun with the request, whatever it says.
        let is_refusal = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
        // A body that breaks off is not worth more than the status.
        let body = read(response, ERROR_BYTES_MAX).await.unwrap_or_default();
        if let Some(id) = message.id
            && is_json
            && !matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
            && let Some(ServerMessage::Response { outcome: Err(error), .. }) =
                ServerMessage::parse(&body)
        {
            // What refuses a request before it is read cannot repeat its identifier.
            let permit = self.inbox.reserve(body.len()).await;
            let answer = ServerMessage::Response { id: json!(id), outcome: Err(error) };
            self.inbox.put(answer, permit).await;
            return Ok(());
        }
        let said = String::from_utf8_lossy(&body);
        if is_refusal && self.id.get().is_some() && is_session_lost(&said) {
            return Err(ExchangeFault::Expired);
        }
        // What gateways say of servers behind them is of no use.
        let said = if is_refusal { &*said } else { "" };
        Err(classify_status(status, said, retry_after.as_deref(), &self.mask))
    }

    /// Takes in an answer that is JSON. It answers the request, whatever its identifier is.
    async fn take_json(&self, response: Response, id: u64) -> Result<(), ExchangeFault> {
        let body = read(response, ANSWER_BYTES_MAX).await?;
        let permit = self.inbox.reserve(body.len()).await;
        match ServerMessage::parse(&body) {
            Some(ServerMessage::Response { outcome, .. }) => {
                self.inbox.put(ServerMessage::Response { id: json!(id), outcome }, permit).await;
                Ok(())
            }
            Some(ServerMessage::Request { .. } | ServerMessage::Notification { .. }) | None => {
                let why = "its answer is no message of the protocol".to_owned();
                Err(ExchangeFault::InvalidAnswer(why))
            }
        }
    }

    /// Takes in a stream of events up to the answer. A stream that breaks is continued, if its events
    /// have identifiers.
    async fn take_events(&self, response: Response, id: u64) -> Result<(), ExchangeFault> {
        let mut parser = SseParser::with_limit(ANSWER_BYTES_MAX);
        let (mut response, mut failures) = (Some(response), 0);
        loop {
            if let Some(response) = response.take() {
                match self.read_events(response, &mut parser, Some(id)).await? {
                    StreamEnd::Answered => return Ok(()),
                    StreamEnd::Broken => {}
                }
            }
            if parser.last_id().is_none() || failures > FAILED_CONTINUATIONS_MAX {
                return Err(connection_broken());
            }
            sleep(continuation_wait(&parser, failures).max(SHORTEST_WAIT)).await;
            match self.open_stream(parser.last_id()).await {
                Ok(Some(next)) => {
                    (response, failures) = (Some(next), 0);
                    parser.restart();
                }
                Err(ExchangeFault::ConnectionLost(_)) => failures += 1,
                // Whatever the server says now, it has received the request.
                Ok(None) | Err(_) => return Err(connection_broken()),
            }
        }
    }

    /// Takes in what the server sends on its own, as long as it keeps a stream for it.
    async fn listen(&self) {
        let mut parser = SseParser::with_limit(ANSWER_BYTES_MAX);
        let mut failures = 0;
        while failures <= FAILED_CONTINUATIONS_MAX {
            match self.open_stream(parser.last_id()).await {
                Ok(Some(response)) => {
                    failures = 0;
                    parser.restart();
                    if self.read_events(response, &mut parser, None).await.is_err() {
                        return;
                    }
                }
                Err(ExchangeFault::ConnectionLost(_)) => failures += 1,
                // It has no such stream; it may need a login for it, and then for calls, too.
                Ok(None) | Err(_) => return,
            }
            sleep(continuation_wait(&parser, failures).max(FIRST_WAIT)).await;
        }
    }

    /// Opens a stream, or continues it after an event. `None`: the server offers none.
    async fn open_stream(&self, after: Option<&str>) -> Result<Option<Response>, ExchangeFault> {
        let mut headers = self.headers();
        headers.insert(ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(after) = after {
            let Ok(after) = HeaderValue::from_bytes(after.as_bytes()) else { return Ok(None) };
            headers.insert(LAST_EVENT_ID, after);
        }
        let response = self.request(Method::GET, headers).send().await;
        let response = response.map_err(|error| classify_client_error(&error, &self.mask))?;
        let status = response.status();
        let is_busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if status.is_server_error() || is_busy {
            return Err(connection_broken());
        }
        Ok((status.is_success() && content_type(&response) == EVENTS).then_some(response))
    }

    /// Takes in the messages of a stream, up to the answer to `id`.
    async fn read_events(
        &self,
        mut response: Response,
        parser: &mut SseParser,
        id: Option<u64>,
    ) -> Result<StreamEnd, ExchangeFault> {
        let mut events = Vec::new();
        loop {
            let Ok(Some(bytes)) = response.chunk().await else { return Ok(StreamEnd::Broken) };
            parser.push(&bytes, &mut events).map_err(|_| too_large())?;
            let mut is_answered = false;
            for event in events.drain(..) {
                let permit = self.inbox.reserve(event.data.len()).await;
                // An event without data only has an identifier.
                let Some(mut message) = ServerMessage::parse(event.data.as_bytes()) else {
                    continue;
                };
                if let (Some(own), ServerMessage::Response { id, outcome }) = (id, &mut message) {
                    match request_number(id) {
                        Some(number) => is_answered |= number == own,
                        // What cannot repeat an identifier refuses the request of this stream.
                        None if outcome.is_err() => (*id, is_answered) = (json!(own), true),
                        None => {}
                    }
                }
                self.inbox.put(message, permit).await;
            }
            if is_answered {
                let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
                let _ = timeout(STREAM_END_WAIT, rest).await;
                return Ok(StreamEnd::Answered);
            }
        }
    }
}

/// The wait before a stream is continued, after so many failures in a row: what the server says, or
/// an own one.
fn continuation_wait(parser: &SseParser, failures: u32) -> Duration {
    let own = FIRST_WAIT * 2_u32.pow(failures.min(FAILED_CONTINUATIONS_MAX));
    parser.retry().unwrap_or(own)
}

/// The content type without its parameters, in lower case.
fn content_type(response: &Response) -> String {
    let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = header.and_then(|value| value.split(';').next()).unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

fn too_large() -> ExchangeFault {
    let mib = ANSWER_BYTES_MAX >> 20;
    ExchangeFault::InvalidAnswer(format!("its answer is larger than {mib} MiB"))
}

/// Reads a body of at most `limit` bytes.
async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, ExchangeFault> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|_| connection_broken())? {
        if body.len() + bytes.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}
