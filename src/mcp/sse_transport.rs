//! The transport of the first version of the protocol over HTTP ("HTTP+SSE"): one stream of events,
//! which first names the address for messages and then contains all messages of the server.

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use tokio::sync::watch;

use crate::response_body::ResponseBody;
use crate::sse::{SseEvent, SseParser};

use super::call_error::{ExchangeFault, connection_broken, is_session_lost};
use super::rpc::ClientMessage;
use super::server_client::{
    ANSWER_BYTES_MAX, EVENTS, JSON, ServerClient, check_compression, content_type, messages_in,
    messages_of, read, too_large,
};
use super::transport::{Inbox, Sending, Transport};

/// The client's end of a connection.
pub(super) struct SseTransport {
    stream: Arc<EventStream>,
    /// The address for messages, once the server has named it, or the fault that prevents it.
    endpoint: watch::Receiver<Option<Result<Url, ExchangeFault>>>,
}

/// The stream with the messages of the server.
struct EventStream {
    server: ServerClient,
    inbox: Inbox,
}

impl SseTransport {
    /// Opens the stream. It is closed with the inbox.
    pub(super) fn start(server: ServerClient, inbox: Inbox) -> Self {
        let (named, endpoint) = watch::channel(None);
        let stream = Arc::new(EventStream { server, inbox });
        let reading = Arc::clone(&stream);
        tokio::spawn(async move {
            let failed = tokio::select! {
                failed = reading.read(&named) => failed,
                () = reading.inbox.closed.cancelled() => connection_broken(),
            };
            named.send_if_modified(|endpoint| {
                let is_unnamed = endpoint.is_none();
                if is_unnamed {
                    *endpoint = Some(Err(failed));
                }
                is_unnamed
            });
            // Without an address, the first request fails with the reason, not with the end of the
            // connection.
            if matches!(&*named.borrow(), Some(Ok(_))) {
                reading.inbox.closed.cancel();
            }
        });
        Self { stream, endpoint }
    }
}

impl EventStream {
    /// Puts the server's messages into the inbox. Returns the fault that ended the stream.
    async fn read(
        &self,
        named: &watch::Sender<Option<Result<Url, ExchangeFault>>>,
    ) -> ExchangeFault {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(EVENTS));
        let response = self.server.send(Method::GET, &self.server.url, &headers, None).await;
        let response = match response {
            Ok(response) if response.status().is_success() => response,
            Ok(response) => match self.server.read_refusal(response).await {
                Ok(refusal) => return self.server.classify_refusal(&refusal),
                Err(fault) => return fault,
            },
            Err(fault) => return fault,
        };
        if let Err(fault) = check_compression(&response) {
            return fault;
        }
        // Some servers label the stream as text, or not at all.
        if ![EVENTS, "text/plain", ""].contains(&content_type(&response).as_str()) {
            let why = "it did not answer with a stream of events, as \"type\": \"sse\" requires: it \
                       may speak \"type\": \"http\"";
            return ExchangeFault::InvalidAnswer(why.to_owned());
        }
        let (mut parser, mut events) = (SseParser::with_limit(ANSWER_BYTES_MAX), Vec::new());
        let mut body = ResponseBody::new(response);
        loop {
            let Ok(Some(bytes)) = body.chunk().await else { return connection_broken() };
            if parser.push(&bytes, &mut events).is_err() {
                return too_large();
            }
            for event in events.drain(..) {
                let is_address = event.event.is_empty() && event.data.starts_with('/');
                if event.event == "endpoint" || named.borrow().is_none() && is_address {
                    let Some(url) = self.endpoint(&event) else {
                        let why = "it named an address of another server for messages";
                        return ExchangeFault::InvalidAnswer(why.to_owned());
                    };
                    named.send_replace(Some(Ok(url)));
                    continue;
                }
                let permit = self.inbox.reserve(event.data.len()).await;
                let messages = messages_of(&event);
                if !self.inbox.put_all(messages, permit).await {
                    return connection_broken();
                }
            }
        }
    }

    /// The address that an event names, if it is on the same server: another one must not get the
    /// credentials. A server behind a proxy may name the host and scheme that it has there.
    fn endpoint(&self, event: &SseEvent) -> Option<Url> {
        let own = &self.server.url;
        let named = own.join(event.data.trim()).ok()?;
        if named.origin() == own.origin() {
            return Some(named);
        }
        let mut url = own.clone();
        url.set_path(named.path());
        url.set_query(named.query());
        (named.host() == own.host() || is_of_this_host(&named)).then_some(url)
    }

    /// Sends a message. The answer comes in the stream or, from some servers, in the response.
    async fn post(&self, url: &Url, message: &ClientMessage) -> Result<(), ExchangeFault> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let response = self.server.send(Method::POST, url, &headers, Some(message)).await?;
        if response.status() == StatusCode::OK && message.id.is_some() {
            // It has no answer if it breaks.
            let body = read(response, ANSWER_BYTES_MAX).await.unwrap_or_default();
            let permit = self.inbox.reserve(body.len()).await;
            let mut answers = messages_in(&body)?;
            answers.retain_mut(|answer| answer.as_answer().is_some());
            self.inbox.put_all(answers, permit).await;
            return Ok(());
        }
        if response.status().is_success() {
            return Ok(());
        }
        let refusal = self.server.read_refusal(response).await?;
        let is_lost = refusal.status == StatusCode::NOT_FOUND
            || refusal.is_before_begin() && is_session_lost(&refusal.text());
        // The address names the session.
        Err(if is_lost && message.method() != "initialize" {
            self.server.classify_lost_session(&refusal)
        } else {
            self.server.classify_refusal(&refusal)
        })
    }
}

/// True for addresses that have a meaning only on the server's own host.
fn is_of_this_host(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    address.map_or(host == "localhost", |it| it.is_loopback() || it.is_unspecified())
}

impl Transport for SseTransport {
    fn send(&self, message: ClientMessage) -> Sending {
        let (stream, mut endpoint) = (Arc::clone(&self.stream), self.endpoint.clone());
        Box::pin(async move {
            let named = endpoint.wait_for(Option::is_some).await.map(|named| named.clone());
            match named {
                Ok(Some(Ok(url))) => stream.post(&url, &message).await,
                Ok(Some(Err(fault))) => Err(fault),
                Ok(None) | Err(_) => Err(connection_broken()),
            }
        })
    }
}
