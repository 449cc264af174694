//! The transport over HTTP ("streamable HTTP"): each message is a POST, whose response holds the
//! answer as JSON or as a stream of events. What the server sends on its own comes in such streams,
//! too, or in one that is opened for it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::secrets::Redactor;
use crate::sse::SseParser;

use super::call_error::{
    ExchangeFault, classify_client_error, classify_status, connection_broken, describe_challenge,
    is_session_lost,
};
use super::request_headers::ArgumentHeaders;
use super::rpc::{ClientMessage, ServerMessage};
use super::sanitize::sanitize_start;
use super::transport::{Inbox, Lifecycle, Sending, Transport};

/// The most messages that wait to be handled.
pub(super) const WAITING_MAX: usize = 64;

/// The largest answer, and the largest event, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The largest body of an error that is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// How often a broken stream is continued.
const CONTINUATIONS_MAX: u32 = 5;

/// The wait before a stream is continued, unless the server says how long; each further one is twice
/// as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The shortest such wait, whatever the server says.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// The longest such wait, whatever the server says.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A stream that lasted this long resets the count of continuations.
const STABLE_AFTER: Duration = Duration::from_mins(1);

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
    /// The agreed version of the protocol.
    agreed: OnceLock<(HeaderValue, Lifecycle)>,
    arguments: Mutex<ArgumentHeaders>,
    inbox: Inbox,
    mask: Redactor,
}

/// How a stream of events ended.
enum StreamEnd {
    /// The awaited answer came.
    Answered,
    /// The stream ended before, or broke.
    Broken { had_events: bool },
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
        let own = [ACCEPT, CONTENT_TYPE, SESSION_ID, LAST_EVENT_ID];
        if let Some(name) = own.into_iter().find(|name| headers.contains_key(name)) {
            return Err(name);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Ok(Self(Arc::new(HttpSession {
            client,
            url: url.to_owned(),
            headers,
            id: OnceLock::new(),
            agreed: OnceLock::new(),
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

    fn agree(&self, version: &str, lifecycle: Lifecycle) {
        if let Ok(version) = HeaderValue::from_str(version) {
            // It is agreed on once.
            let _ = self.0.agreed.set((version, lifecycle));
        }
        // Without a handshake, nothing is sent but answers.
        if lifecycle == Lifecycle::Handshake {
            let session = Arc::clone(&self.0);
            tokio::spawn(async move {
                tokio::select! {
                    () = session.listen() => {}
                    () = session.inbox.closed.cancelled() => {}
                }
            });
        }
    }

    fn set_tools(&self, listed: &[Value]) {
        let headers = ArgumentHeaders::new(listed);
        *self.0.arguments.lock().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    fn close(&self) -> Sending {
        let session = Arc::clone(&self.0);
        Box::pin(async move {
            if session.id.get().is_some() {
                let request = session.request(Method::DELETE, session.headers());
                // The server ends the session by itself if it does not hear of it.
                let _ = request.send().await;
            }
            Ok(())
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
        if let Some((version, _)) = self.agreed.get() {
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
        }
        let arguments = self.arguments.lock().unwrap_or_else(PoisonError::into_inner);
        arguments.add(message, &mut headers);
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
            && self.agreed.get().is_some()
        {
            // Servers may send the answer in the stream that is open for their own messages.
            return Ok(());
        }
        match content_type(&response).as_str() {
            JSON => self.take_json(response, id).await,
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
        let is_json = content_type(&response) == JSON;
        // A body that breaks off is not worth more than the status.
        let body = read(response, ERROR_BYTES_MAX).await.unwrap_or_default();
        if let Some(id) = message.id
            && is_json
            && status != StatusCode::FORBIDDEN
            && let Some(ServerMessage::Response { outcome: Err(error), .. }) =
                ServerMessage::parse(&body)
        {
            // What refuses a request before it is read cannot repeat its identifier.
            self.inbox.put(ServerMessage::Response { id: json!(id), outcome: Err(error) }).await;
            return Ok(());
        }
        let said = String::from_utf8_lossy(&body);
        if is_session_lost(&said) {
            return Err(ExchangeFault::Expired);
        }
        Err(classify_status(status, &said, retry_after.as_deref(), &self.mask))
    }

    /// Takes in an answer that is JSON. It answers the request, whatever its identifier is.
    async fn take_json(&self, response: Response, id: u64) -> Result<(), ExchangeFault> {
        let body = read(response, ANSWER_BYTES_MAX).await?;
        match ServerMessage::parse(&body) {
            Some(ServerMessage::Response { outcome, .. }) => {
                self.inbox.put(ServerMessage::Response { id: json!(id), outcome }).await;
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
        let (mut response, mut attempt) = (Some(response), 0);
        loop {
            if let Some(response) = response.take() {
                match self.read_events(response, &mut parser, Some(id)).await? {
                    StreamEnd::Answered => return Ok(()),
                    StreamEnd::Broken { had_events: true } => attempt = 0,
                    StreamEnd::Broken { had_events: false } => {}
                }
            }
            attempt += 1;
            if parser.last_id().is_none() || attempt > CONTINUATIONS_MAX {
                return Err(connection_broken());
            }
            sleep(continuation_wait(&parser, attempt)).await;
            match self.open_stream(parser.last_id()).await {
                Ok(Some(next)) => {
                    response = Some(next);
                    parser.restart();
                }
                Ok(None) => return Err(connection_broken()),
                // The next attempt may be luckier.
                Err(ExchangeFault::ConnectionLost(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Takes in what the server sends on its own, as long as it keeps a stream for it.
    async fn listen(&self) {
        let mut parser = SseParser::with_limit(ANSWER_BYTES_MAX);
        let mut attempt = 0;
        while attempt <= CONTINUATIONS_MAX {
            let since = Instant::now();
            match self.open_stream(parser.last_id()).await {
                Ok(Some(response)) => {
                    parser.restart();
                    match self.read_events(response, &mut parser, None).await {
                        Ok(StreamEnd::Broken { had_events: true }) => attempt = 0,
                        Ok(StreamEnd::Broken { had_events: false } | StreamEnd::Answered) => {}
                        Err(_) => return,
                    }
                }
                // It has no such stream; it may need a login for it, and then for calls, too.
                Ok(None) => return,
                Err(ExchangeFault::ConnectionLost(_)) => {}
                Err(_) => return,
            }
            attempt = if since.elapsed() >= STABLE_AFTER { 1 } else { attempt + 1 };
            sleep(continuation_wait(&parser, attempt)).await;
        }
    }

    /// Opens a stream, or continues it after an event. `None`: the server offers none.
    async fn open_stream(&self, after: Option<&str>) -> Result<Option<Response>, ExchangeFault> {
        let mut headers = self.headers();
        headers.insert(ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(after) = after.and_then(|after| HeaderValue::from_str(after).ok()) {
            headers.insert(LAST_EVENT_ID, after);
        }
        let response = self.request(Method::GET, headers).send().await;
        let response = response.map_err(|error| classify_client_error(&error, &self.mask))?;
        let status = response.status();
        if status.is_server_error() {
            return Err(connection_broken());
        }
        if status == StatusCode::NOT_FOUND && self.id.get().is_some() {
            return Err(ExchangeFault::Expired);
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
        let (mut events, before) = (Vec::new(), parser.last_id().map(ToOwned::to_owned));
        let mut had_events = false;
        loop {
            let Ok(Some(bytes)) = response.chunk().await else {
                had_events |= parser.last_id() != before.as_deref();
                return Ok(StreamEnd::Broken { had_events });
            };
            parser.push(&bytes, &mut events).map_err(|_| too_large())?;
            let mut is_answered = false;
            for event in events.drain(..) {
                // An event without data only has an identifier.
                let Some(message) = ServerMessage::parse(event.data.as_bytes()) else { continue };
                had_events = true;
                is_answered |= id.is_some()
                    && matches!(&message, ServerMessage::Response { id: of, .. } if of.as_u64() == id);
                self.inbox.put(message).await;
            }
            if is_answered {
                let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
                let _ = timeout(STREAM_END_WAIT, rest).await;
                return Ok(StreamEnd::Answered);
            }
        }
    }
}

/// The wait before the given attempt to continue a stream.
fn continuation_wait(parser: &SseParser, attempt: u32) -> Duration {
    let own = FIRST_WAIT * 2_u32.pow(attempt.min(CONTINUATIONS_MAX).saturating_sub(1));
    parser.retry().unwrap_or(own).clamp(SHORTEST_WAIT, LONGEST_WAIT)
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
