//! The transport over HTTP ("streamable HTTP"): each message is a POST, whose response holds the
//! answer as JSON or as a stream of events. Messages that the server sends on its own come in such
//! streams, too, or in one that is opened for them.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::json;
use crate::response_body::ResponseBody;
use crate::sse::{EventTooLarge, SseEvent, SseParser};

use super::call_error::{ExchangeFault, connection_broken, is_session_error, is_session_lost};
use super::request_headers::ArgumentHeaders;
use super::rpc::{
    ClientMessage, METHOD_NOT_FOUND, RpcError, ServerMessage, describe_invalid, request_number,
};
use super::sanitize::sanitize_start;
use super::server_client::{
    ANSWER_BYTES_MAX, EVENTS, JSON, LAST_EVENT_ID, Refusal, SESSION_ID, ServerClient,
    check_compression, content_type, messages_in, messages_of, read, too_large,
};
use super::transport::{Closing, Inbox, Sending, Transport};

/// The most messages that wait to be handled.
pub(super) const WAITING_MAX: usize = 64;

/// The most consecutive failures to continue a broken stream.
const FAILED_CONTINUATIONS_MAX: u32 = 5;

/// The wait before a stream is continued, unless the server states one; it doubles with each
/// further failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The time after which an empty listening stream counts as held open, not as closed by the server
/// at once.
const HELD_STREAM: Duration = Duration::from_secs(10);

/// The number of empty listening streams in a row up to which the wait is doubled: to a minute.
const EMPTY_STREAMS_MAX: u32 = 7;

/// The shortest wait before the stream of an answer is continued, even if the server states a
/// shorter one.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

/// The wait for the end of a stream whose answer was received, so that its connection can be
/// reused.
const STREAM_END_WAIT: Duration = Duration::from_secs(1);

/// The time limit of the request that finds out whether a server still has the session.
const SESSION_CHECK_TIMEOUT: Duration = Duration::from_secs(5);

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The client's end of a connection.
pub(super) struct HttpTransport(Arc<HttpSession>);

struct HttpSession {
    server: ServerClient,
    /// The session's identifier, if the server gave one.
    id: OnceLock<HeaderValue>,
    /// The version of the protocol that was agreed on in the handshake.
    version: OnceLock<HeaderValue>,
    /// True if a stream for messages that the server sends on its own is open, or about to be.
    is_listening: AtomicBool,
    arguments: Mutex<ArgumentHeaders>,
    inbox: Inbox,
}

/// The end of a stream of events.
enum StreamEnd {
    /// The awaited answer came.
    Answered,
    /// The stream ended or broke before the answer, after this many messages.
    Broken { messages: usize },
}

impl HttpTransport {
    pub(super) fn new(server: ServerClient, inbox: Inbox) -> Self {
        Self(Arc::new(HttpSession {
            server,
            id: OnceLock::new(),
            version: OnceLock::new(),
            is_listening: AtomicBool::new(false),
            arguments: Mutex::default(),
            inbox,
        }))
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
        // Without a session, the server cannot tell which client its messages are for.
        if self.0.id.get().is_none() {
            return;
        }
        let session = Arc::clone(&self.0);
        session.is_listening.store(true, Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::select! {
                () = session.listen() => {}
                () = session.inbox.closed.cancelled() => {}
            }
            session.is_listening.store(false, Ordering::Relaxed);
        });
    }

    fn set_tools(&self, listed: &[Value]) {
        let headers = ArgumentHeaders::new(listed);
        *self.0.arguments.lock() = headers;
    }

    fn close(&self) -> Closing {
        let session = Arc::clone(&self.0);
        Box::pin(async move {
            if session.id.get().is_some() {
                // If this fails, the server ends the session by itself.
                let _ = session.send(Method::DELETE, &session.headers(), None).await;
            }
        })
    }
}

impl HttpSession {
    async fn send(
        &self,
        method: Method,
        headers: &HeaderMap,
        message: Option<&ClientMessage>,
    ) -> Result<Response, ExchangeFault> {
        self.server.send(method, &self.server.url, headers, message).await
    }

    /// The protocol's headers of a request, as agreed so far.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(id) = self.id.get() {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(version) = self.version.get() {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        headers
    }

    fn message_headers(&self, message: &Value) -> HeaderMap {
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let stated = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        if let Some(version) = stated.as_str().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(PROTOCOL_VERSION, version);
            let arguments = self.arguments.lock();
            arguments.add(message, &mut headers);
        }
        headers
    }

    /// Sends a message, and puts the answer into the inbox.
    async fn post(&self, message: &ClientMessage) -> Result<(), ExchangeFault> {
        let headers = self.message_headers(&message.json);
        let response = self.send(Method::POST, &headers, Some(message)).await?;
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
        check_compression(&response)?;
        match content_type(&response).as_str() {
            kind if kind.starts_with(JSON) => self.take_json(response, id).await,
            EVENTS => self.take_events(response, id).await,
            // Web servers and gateways label JSON in many ways if the program sets no type.
            kind => match self.take_json(response, id).await {
                Err(ExchangeFault::InvalidAnswer(_)) => Err(self.foreign_type(kind)),
                taken => taken,
            },
        }
    }

    /// The fault of an answer whose content type the protocol does not have.
    fn foreign_type(&self, kind: &str) -> ExchangeFault {
        let kind = match kind {
            "" => "content of no type".to_owned(),
            kind => sanitize_start(kind, &self.server.redactor),
        };
        let why = format!("it answered with {kind}, which is not a content type of the protocol");
        ExchangeFault::InvalidAnswer(why)
    }

    /// Classifies a status that is not a success. A JSON-RPC error in the body is the answer.
    async fn refused(
        &self,
        response: Response,
        message: &ClientMessage,
    ) -> Result<(), ExchangeFault> {
        let refusal = self.server.read_refusal(response).await?;
        let error = match ServerMessage::parse_all(&refusal.body).pop() {
            Some(ServerMessage::Response { id, outcome: Err(error) }) if refusal.is_json => {
                Some((id, error))
            }
            _ => None,
        };
        let answers = error.as_ref().is_some_and(|(id, _)| request_number(id) == message.id);
        if self.has_lost_session(&refusal, error.as_ref().map(|(_, error)| error))
            || !answers && self.may_be_unknown(&refusal, message) && !self.knows_session().await
        {
            return Err(self.server.classify_lost_session(&refusal));
        }
        if let (Some(id), Some((_, error))) = (message.id, error)
            && !matches!(refusal.status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
        {
            // A server that refuses a request without reading it cannot repeat its identifier.
            let permit = self.inbox.reserve(refusal.body.len()).await;
            let answer = ServerMessage::Response { id: json!(id), outcome: Err(error) };
            self.inbox.put(answer, permit).await;
            return Ok(());
        }
        Err(self.server.classify_refusal(&refusal))
    }

    /// Returns true if a refusal reports that the server no longer has the session. A JSON-RPC
    /// error may say so with any status. Other text of a server error may be about a server behind
    /// it, so it does not count.
    fn has_lost_session(&self, refusal: &Refusal, error: Option<&RpcError>) -> bool {
        let says_so = match error {
            Some(error) => is_session_lost(&error.message),
            None => refusal.is_before_begin() && is_session_lost(&refusal.text()),
        };
        self.id.get().is_some() && (refusal.status == StatusCode::NOT_FOUND || says_so)
    }

    /// Returns true if the session may be the reason of a refusal that does not mention it.
    fn may_be_unknown(&self, refusal: &Refusal, message: &ClientMessage) -> bool {
        self.id.get().is_some()
            && message.id.is_some()
            && refusal.is_before_begin()
            && refusal.status != StatusCode::REQUEST_TIMEOUT
    }

    /// Returns true if the server accepts another request of the session, a ping. Without an
    /// answer, the session is assumed to exist.
    async fn knows_session(&self) -> bool {
        let json = json!({ "jsonrpc": "2.0", "id": "session-check", "method": "ping" });
        let ping = ClientMessage { id: None, json };
        let headers = self.message_headers(&ping.json);
        let check = async {
            let response = self.send(Method::POST, &headers, Some(&ping)).await.ok()?;
            if !response.status().is_client_error() {
                return None;
            }
            let refusal = self.server.read_refusal(response).await.ok()?;
            let is_unsupported = matches!(
                ServerMessage::parse_all(&refusal.body).pop(),
                Some(ServerMessage::Response { outcome: Err(error), .. })
                    if error.code == METHOD_NOT_FOUND
            );
            (refusal.is_before_begin() && !is_unsupported).then_some(())
        };
        !matches!(timeout(SESSION_CHECK_TIMEOUT, check).await, Ok(Some(())))
    }

    /// The fault of an answer that reports that the server no longer has the session.
    fn lost_session(&self, outcome: &Result<Value, RpcError>) -> Option<ExchangeFault> {
        let error = outcome.as_ref().err().filter(|error| is_session_error(error))?;
        self.id.get()?;
        Some(ExchangeFault::Expired(sanitize_start(&error.message, &self.server.redactor)))
    }

    /// Puts a JSON answer into the inbox, and the messages that came with it. A single answer
    /// belongs to the request `id`, regardless of its own identifier.
    async fn take_json(&self, response: Response, id: u64) -> Result<(), ExchangeFault> {
        let body = read(response, ANSWER_BYTES_MAX).await?;
        let permit = self.inbox.reserve(body.len()).await;
        let mut messages = messages_in(&body)?;
        let mut answers: Vec<_> =
            messages.iter_mut().filter_map(ServerMessage::as_answer).collect();
        let own = answers.iter().position(|(own, _)| request_number(own) == Some(id));
        let Some((own, outcome)) = answers.get_mut(own.unwrap_or_default()) else {
            let quoted = sanitize_start(&String::from_utf8_lossy(&body), &self.server.redactor);
            let quoted = Some(quoted).filter(|text| !text.is_empty() && !text.contains('<'));
            let quoted = quoted.map_or(String::new(), |text| format!(" (it said: {text})"));
            return Err(ExchangeFault::InvalidAnswer(describe_invalid(&body) + &quoted));
        };
        if let Some(fault) = self.lost_session(outcome) {
            return Err(fault);
        }
        **own = json!(id);
        self.inbox.put_all(messages, permit).await;
        Ok(())
    }

    /// Puts the messages of a stream of events into the inbox, up to the answer. A stream that
    /// breaks is continued, if its events have identifiers.
    async fn take_events(&self, response: Response, id: u64) -> Result<(), ExchangeFault> {
        let mut parser = SseParser::with_limit(ANSWER_BYTES_MAX);
        let (mut response, mut failures) = (Some(response), 0);
        loop {
            if let Some(response) = response.take() {
                match self.read_events(response, &mut parser, Some(id)).await? {
                    StreamEnd::Answered => return Ok(()),
                    StreamEnd::Broken { .. } => {}
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
                Err(fault) if fault.is_of_connection() => failures += 1,
                // The server has received the request in any case, so its effect is unknown.
                Ok(None) | Err(_) => return Err(connection_broken()),
            }
        }
    }

    /// Receives messages that the server sends on its own, as long as it offers a stream for them.
    async fn listen(&self) {
        let mut parser = SseParser::with_limit(ANSWER_BYTES_MAX);
        let mut backoff = ListeningBackoff::default();
        while backoff.failures <= FAILED_CONTINUATIONS_MAX {
            match self.open_stream(parser.last_id()).await {
                Ok(Some(response)) => {
                    parser.restart();
                    let begun = Instant::now();
                    match self.read_events(response, &mut parser, None).await {
                        Err(_) => return,
                        Ok(StreamEnd::Broken { messages: 0 }) => {
                            backoff.ended_empty(begun.elapsed());
                        }
                        Ok(StreamEnd::Broken { .. } | StreamEnd::Answered) => {
                            backoff = ListeningBackoff::default();
                        }
                    }
                }
                Err(fault) if fault.is_of_connection() => backoff.failures += 1,
                // The server does not offer this stream, or needs a login for it, and then also for
                // calls.
                Ok(None) | Err(_) => return,
            }
            sleep(backoff.wait(&parser)).await;
        }
    }

    /// Opens a stream, or continues it after an event. `None` if the server offers none.
    async fn open_stream(&self, after: Option<&str>) -> Result<Option<Response>, ExchangeFault> {
        let mut headers = self.headers();
        headers.insert(ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(after) = after {
            let Ok(after) = HeaderValue::from_bytes(after.as_bytes()) else { return Ok(None) };
            headers.insert(LAST_EVENT_ID, after);
        }
        let response = self.send(Method::GET, &headers, None).await?;
        let status = response.status();
        let is_busy = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if status.is_server_error() || is_busy {
            return Err(connection_broken());
        }
        Ok((status.is_success() && content_type(&response) == EVENTS).then_some(response))
    }

    /// Puts the messages of a stream into the inbox, up to the answer to `id`.
    async fn read_events(
        &self,
        response: Response,
        parser: &mut SseParser,
        id: Option<u64>,
    ) -> Result<StreamEnd, ExchangeFault> {
        let (mut body, mut events, mut messages) = (ResponseBody::new(response), Vec::new(), 0);
        // A body that is JSON, although it is labelled as events.
        let mut object = Vec::new();
        loop {
            let bytes = body.chunk().await.ok();
            let is_end = !matches!(bytes, Some(Some(_)));
            match bytes {
                Some(Some(bytes)) => {
                    if messages == 0 && (!object.is_empty() || bytes.starts_with(b"{")) {
                        object.extend_from_slice(&bytes);
                    }
                    let pushed = parser.push(&bytes, &mut events);
                    if object.len() > ANSWER_BYTES_MAX {
                        Err(EventTooLarge(ANSWER_BYTES_MAX))
                    } else {
                        pushed
                    }
                }
                // Some servers leave out the line that ends the last event. The event may also be
                // cut, so that the stream is continued at the one before it.
                Some(None) if id.is_some() => {
                    let data = json::decode(&mem::take(&mut object)).into_owned();
                    events.extend(
                        (!data.is_empty()).then(|| SseEvent { data, ..SseEvent::default() }),
                    );
                    parser.clone().push(b"\n\n", &mut events)
                }
                Some(None) | None => Ok(()),
            }
            .map_err(|_| too_large())?;
            let mut is_answered = false;
            for event in events.drain(..) {
                let permit = self.inbox.reserve(event.data.len()).await;
                // An event without data only has an identifier.
                let mut received = messages_of(&event);
                if received.is_empty() && event.event == "error" && id.is_some() {
                    let words = sanitize_start(&event.data, &self.server.redactor);
                    let why = format!("it reported an error in place of the answer: {words}");
                    return Err(ExchangeFault::InvalidAnswer(why));
                }
                let answers = received.iter_mut().filter_map(ServerMessage::as_answer);
                for (answered, outcome) in answers {
                    let Some(own) = id else { break };
                    match request_number(answered) {
                        Some(number) => is_answered |= number == own,
                        // An error without the identifier of a request is about the request of this
                        // stream.
                        None if outcome.is_err() => (*answered, is_answered) = (json!(own), true),
                        None => {}
                    }
                    if let Some(fault) = self.lost_session(outcome).filter(|_| is_answered) {
                        return Err(fault);
                    }
                }
                messages += received.len();
                self.inbox.put_all(received, permit).await;
            }
            if is_answered {
                let rest = async { while let Ok(Some(_)) = body.chunk().await {} };
                let _ = timeout(STREAM_END_WAIT, rest).await;
                return Ok(StreamEnd::Answered);
            }
            if is_end {
                return Ok(StreamEnd::Broken { messages });
            }
        }
    }
}

/// The number of failures in a row to open a listening stream, and of empty streams in a row.
#[derive(Debug, Default)]
struct ListeningBackoff {
    failures: u32,
    empty: u32,
}

impl ListeningBackoff {
    /// Records that a stream without a message ended after that time.
    fn ended_empty(&mut self, lasted: Duration) {
        self.failures = 0;
        self.empty = if lasted < HELD_STREAM { EMPTY_STREAMS_MAX.min(self.empty + 1) } else { 0 };
    }

    /// The wait before the next stream. The server's value can only lengthen it.
    fn wait(&self, parser: &SseParser) -> Duration {
        let shortest = FIRST_WAIT * 2_u32.pow(self.empty.max(1) - 1);
        continuation_wait(parser, self.failures).max(shortest)
    }
}

/// The wait before a stream is continued, after a number of failures in a row: the server's value,
/// or a default.
fn continuation_wait(parser: &SseParser, failures: u32) -> Duration {
    let own = FIRST_WAIT * 2_u32.pow(failures.min(FAILED_CONTINUATIONS_MAX));
    parser.retry().unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_listening_streams_are_opened_less_and_less_often_up_to_a_minute() {
        let (mut backoff, mut parser) = (ListeningBackoff::default(), SseParser::with_limit(100));
        let waits = |backoff: &mut ListeningBackoff, parser: &SseParser, count: usize| {
            let next = |_| {
                backoff.ended_empty(Duration::ZERO);
                backoff.wait(parser).as_secs()
            };
            (0..count).map(next).collect::<Vec<u64>>()
        };
        assert_eq!(waits(&mut backoff, &parser, 9), [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        // A server that holds the stream open for a while works as intended.
        backoff.ended_empty(HELD_STREAM);
        assert_eq!(backoff.wait(&parser).as_secs(), 1);
        // A server may request a longer wait, but not an immediate repetition.
        for (asked, wanted) in [("0", [1, 2, 4]), ("3000", [3, 3, 4])] {
            let line = format!("retry: {asked}\n\n");
            parser.push(line.as_bytes(), &mut Vec::new()).expect("it is short");
            let waits = waits(&mut ListeningBackoff::default(), &parser, 3);
            assert_eq!(waits, wanted, "{asked}");
        }
        let failing = ListeningBackoff { failures: 2, empty: 0 };
        let silent = SseParser::with_limit(100);
        assert_eq!(failing.wait(&silent).as_secs(), 4);
    }
}
