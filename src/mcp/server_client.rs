//! HTTP requests to a server: with the configured headers and those of its helper or its login,
//! which are renewed when the server refuses them. Redirects are followed within the same origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use reqwest::{Client, Method, Response, StatusCode, Url};

use crate::response_body::{BodyError, ResponseBody, unread_compression};
use crate::secrets::Redactor;
use crate::sse::{SseEvent, SseParser};

use super::call_error::{
    ExchangeFault, classify_client_error, classify_status, connection_broken, describe_challenge,
    describe_missing_scope,
};
use super::environment::{HttpClientFactory, HttpClientFailure};
use super::headers_helper::{HeadersHelper, HelperHeaders, header_map};
use super::oauth::{AccessTokens, BearerToken, OAuthFault, demanded_scope};
use super::rpc::{ClientMessage, ServerMessage};
use super::sanitize::sanitize_start;

/// The largest answer, and the largest event, in bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The largest body of an error that is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The most redirects of one request.
const REDIRECTS_MAX: usize = 5;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The content type of messages.
pub(super) const JSON: &str = "application/json";

/// The content type of streams.
pub(super) const EVENTS: &str = "text/event-stream";

/// The reason that no request can be sent to a server.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("one of its \"headers\" is not a valid HTTP header")]
    Invalid,
    #[error("the header {0:?} of its \"headers\" is the protocol's own")]
    OfProtocol(String),
    #[error("{0}")]
    NoClient(HttpClientFailure),
}

/// Sends requests to a server.
pub(super) struct ServerClient {
    /// Creates further clients.
    http: Arc<HttpClientFactory>,
    /// The client whose connections are reused.
    client: Client,
    /// True once a connection broke before a response. Connections are then no longer reused: some
    /// servers and proxies reset each reused one.
    is_reset: AtomicBool,
    pub(super) url: Url,
    /// The configured headers.
    headers: HeaderMap,
    renewal: Arc<HeaderRenewal>,
    pub(super) redactor: Redactor,
}

/// The source of headers that expire.
pub(super) enum HeaderRenewal {
    None,
    Helper(Box<HeadersHelper>),
    Login(AccessTokens),
}

/// The expiring headers, as of one request.
enum LatestHeaders {
    None,
    Helper(HelperHeaders),
    Login(Option<BearerToken>),
}

/// An answer whose status is not a success.
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) is_json: bool,
    pub(super) body: Vec<u8>,
    retry_after: Option<String>,
}

impl ServerClient {
    pub(super) fn new(
        http: Arc<HttpClientFactory>,
        url: Url,
        headers: &[(String, String)],
        renewal: Arc<HeaderRenewal>,
        redactor: Redactor,
    ) -> Result<Self, HeaderError> {
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = header_map(pairs).ok_or(HeaderError::Invalid)?;
        let own = [SESSION_ID, LAST_EVENT_ID];
        if let Some(name) = own.into_iter().find(|name| headers.contains_key(name)) {
            return Err(HeaderError::OfProtocol(name.as_str().to_owned()));
        }
        let client = http(url.as_str()).map_err(HeaderError::NoClient)?;
        Ok(Self { http, client, is_reset: AtomicBool::new(false), url, headers, renewal, redactor })
    }

    /// A client for the next request.
    fn client(&self) -> Result<Client, ExchangeFault> {
        if !self.is_reset.load(Ordering::Relaxed) {
            return Ok(self.client.clone());
        }
        // A new client has no connections to reuse.
        (self.http)(self.url.as_str()).map_err(|why| ExchangeFault::NotSent(why.to_string()))
    }

    /// Records that a connection broke before a response. Returns true if the request should be
    /// repeated: it can have no effect, and its connection may have been a reused one.
    fn record_reset(&self, error: &reqwest::Error, message: Option<&ClientMessage>) -> bool {
        if !error.is_request() || error.is_connect() || error.is_timeout() {
            return false;
        }
        let is_first = !self.is_reset.swap(true, Ordering::Relaxed);
        is_first && message.is_none_or(ClientMessage::is_repeatable)
    }

    /// Sends a request with the headers of the protocol (`own`) in addition to the user's. A
    /// request that the server redirects, or refuses for its credentials, was not processed, so it
    /// is sent again: at most once with new headers. A request without effect is sent again if its
    /// connection breaks.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        own: &HeaderMap,
        message: Option<&ClientMessage>,
    ) -> Result<Response, ExchangeFault> {
        let body = message.map(|message| message.json.to_string());
        let mut latest = self.renewal.latest().await?;
        let (mut url, mut redirects, mut renewed) = (url.clone(), 0, false);
        loop {
            let request = self.client()?.request(method.clone(), url.clone());
            let request = request.header(ACCEPT_ENCODING, "gzip");
            let request = request.headers(self.headers.clone()).headers(latest.headers()?);
            let request = request.headers(own.clone());
            let request = match &body {
                Some(body) => request.body(body.clone()),
                None => request,
            };
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) if self.record_reset(&error, message) => continue,
                Err(error) => return Err(classify_client_error(&error, &self.redactor)),
            };
            if let Some(next) =
                redirect_target(&response, &url).filter(|_| redirects < REDIRECTS_MAX)
            {
                (url, redirects) = (next, redirects + 1);
                continue;
            }
            if renewed || !needs_login(&response) {
                return Ok(response);
            }
            match self.renewal.renew(&latest, &response).await? {
                Some(headers) => (latest, renewed) = (headers, true),
                None => return Ok(response),
            }
        }
    }

    /// Reads an answer whose status is not a success.
    ///
    /// # Errors
    /// The server requires a login.
    pub(super) async fn read_refusal(&self, response: Response) -> Result<Refusal, ExchangeFault> {
        let status = response.status();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        if needs_login(&response) {
            let challenge = challenge(&response).unwrap_or_default();
            if lacks_scope(&response) {
                let scope = demanded_scope(challenge, &self.url);
                let scope = scope.map(|scope| sanitize_start(&scope, &self.redactor));
                let why = describe_missing_scope(status, scope.as_deref());
                return Err(ExchangeFault::MissingScope(why));
            }
            return Err(ExchangeFault::NeedsAuth(describe_challenge(status, challenge)));
        }
        let retry_after = header(RETRY_AFTER).map(ToOwned::to_owned);
        let is_json = content_type(&response).starts_with(JSON);
        let body = match unread_compression(response.headers()) {
            Some(why) => why.into_bytes(),
            // An incomplete body adds nothing to the status.
            None => read(response, ERROR_BYTES_MAX).await.unwrap_or_default(),
        };
        Ok(Refusal { status, is_json, body, retry_after })
    }

    /// Converts a refusal to a fault of its status.
    pub(super) fn classify_refusal(&self, refusal: &Refusal) -> ExchangeFault {
        let text = refusal.text();
        // The text of a gateway about the server behind it does not help.
        let quoted = if refusal.is_before_begin() { &*text } else { "" };
        classify_status(refusal.status, quoted, refusal.retry_after.as_deref(), &self.redactor)
    }

    /// Like [`Self::classify_refusal`], for a session that the server no longer has.
    pub(super) fn classify_lost_session(&self, refusal: &Refusal) -> ExchangeFault {
        let text = refusal.text();
        let fault = classify_status(refusal.status, &text, None, &self.redactor);
        if let ExchangeFault::Status(_, why) = fault { ExchangeFault::Expired(why) } else { fault }
    }
}

impl HeaderRenewal {
    async fn latest(&self) -> Result<LatestHeaders, ExchangeFault> {
        Ok(match self {
            Self::None => LatestHeaders::None,
            Self::Helper(helper) => {
                let headers = helper.headers().await;
                LatestHeaders::Helper(
                    headers.map_err(|error| ExchangeFault::NotSent(error.to_string()))?,
                )
            }
            Self::Login(tokens) => {
                LatestHeaders::Login(tokens.token().await.map_err(classify_oauth_fault)?)
            }
        })
    }

    /// Obtains headers to replace those that a server refused. `None` if there are no others.
    async fn renew(
        &self,
        refused: &LatestHeaders,
        response: &Response,
    ) -> Result<Option<LatestHeaders>, ExchangeFault> {
        match (self, refused) {
            (Self::Helper(helper), LatestHeaders::Helper(refused)) => {
                let headers = helper.renew(refused.version).await;
                // The helper may print headers when it is asked again, with the next connection.
                let headers = headers.map_err(|error| ExchangeFault::NotSent(error.to_string()))?;
                Ok(Some(LatestHeaders::Helper(headers)))
            }
            (Self::Login(tokens), LatestHeaders::Login(refused)) => {
                let lacks_scope = lacks_scope(response);
                // Another token helps only if the challenge is about the token.
                if response.status() == StatusCode::FORBIDDEN && !lacks_scope {
                    return Ok(None);
                }
                let renewed = tokens.renew(refused.as_ref(), challenge(response)).await;
                let renewed = renewed.map_err(|fault| match fault {
                    // The token is still good for other requests.
                    OAuthFault::Permanent(why) if lacks_scope => ExchangeFault::MissingScope(why),
                    fault @ (OAuthFault::Permanent(_) | OAuthFault::Temporary(_)) => {
                        classify_oauth_fault(fault)
                    }
                })?;
                Ok(renewed.map(|token| LatestHeaders::Login(Some(token))))
            }
            (Self::None | Self::Helper(_) | Self::Login(_), _) => Ok(None),
        }
    }
}

impl LatestHeaders {
    fn headers(&self) -> Result<HeaderMap, ExchangeFault> {
        Ok(match self {
            Self::None | Self::Login(None) => HeaderMap::new(),
            Self::Helper(helper) => helper.headers.clone(),
            Self::Login(Some(token)) => {
                let value = token.header().ok_or_else(|| {
                    let why = "its authorization server gave a token that no header can hold";
                    ExchangeFault::NeedsAuth(why.to_owned())
                })?;
                HeaderMap::from_iter([(AUTHORIZATION, value)])
            }
        })
    }
}

fn classify_oauth_fault(fault: OAuthFault) -> ExchangeFault {
    match fault {
        OAuthFault::Temporary(why) => ExchangeFault::NotSent(why),
        OAuthFault::Permanent(why) => ExchangeFault::NeedsAuth(why),
    }
}

/// The challenge of a refusal that is about bearer tokens, or the first one.
pub(super) fn challenge(response: &Response) -> Option<&str> {
    let all = response.headers().get_all(WWW_AUTHENTICATE);
    let all = || all.iter().filter_map(|value| value.to_str().ok());
    all().find(|text| text.to_lowercase().starts_with("bearer")).or_else(|| all().next())
}

impl Refusal {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns true if the server cannot have begun to process the request. A server that fails may
    /// have begun.
    pub(super) fn is_before_begin(&self) -> bool {
        self.status.is_client_error() && self.status != StatusCode::TOO_MANY_REQUESTS
    }
}

fn needs_login(response: &Response) -> bool {
    let is_challenged = response.headers().contains_key(WWW_AUTHENTICATE);
    match response.status() {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::FORBIDDEN => is_challenged,
        _ => false,
    }
}

/// Returns true if the server demands a scope that the token does not have.
fn lacks_scope(response: &Response) -> bool {
    response.status() == StatusCode::FORBIDDEN
        && challenge(response).is_some_and(|text| text.contains("insufficient_scope"))
}

/// Returns the target of a redirect that keeps the method and the body, if it is on the same
/// server: another server must not get the credentials.
pub(super) fn redirect_target(response: &Response, from: &Url) -> Option<Url> {
    let status = response.status();
    if !matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
        return None;
    }
    let target = from.join(response.headers().get(LOCATION)?.to_str().ok()?).ok()?;
    (target.origin() == from.origin()).then_some(target)
}

/// The content type without its parameters, in lower case.
pub(super) fn content_type(response: &Response) -> String {
    let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = header.and_then(|value| value.split(';').next()).unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// Checks that the body of an answer can be read.
///
/// # Errors
/// The compression of the body is not read.
pub(super) fn check_compression(response: &Response) -> Result<(), ExchangeFault> {
    unread_compression(response.headers())
        .map_or(Ok(()), |why| Err(ExchangeFault::InvalidAnswer(format!("its answer: {why}"))))
}

pub(super) fn too_large() -> ExchangeFault {
    let mib = ANSWER_BYTES_MAX >> 20;
    ExchangeFault::InvalidAnswer(format!("its answer is larger than {mib} MiB"))
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(response: Response, limit: usize) -> Result<Vec<u8>, ExchangeFault> {
    let mut body = Vec::new();
    let read = ResponseBody::new(response).read(&mut body, limit + 1).await;
    if body.len() > limit {
        return Err(too_large());
    }
    read.map_err(|error| broken_body(&error))?;
    Ok(body)
}

/// The fault of a body that breaks off.
fn broken_body(error: &BodyError) -> ExchangeFault {
    match error {
        BodyError::Connection(_) => connection_broken(),
        BodyError::Compression(error) => {
            ExchangeFault::InvalidAnswer(format!("its answer is labelled as gzip, but: {error}"))
        }
    }
}

/// The messages in an event. Some gateways write more before an answer, such as `data:` once more.
pub(super) fn messages_of(event: &SseEvent) -> Vec<ServerMessage> {
    let data = event.data.as_bytes();
    let messages = ServerMessage::parse_all(data);
    if messages.is_empty() {
        ServerMessage::find_answer(data).into_iter().collect()
    } else {
        messages
    }
}

/// The messages in the body of an answer.
pub(super) fn messages_in(body: &[u8]) -> Result<Vec<ServerMessage>, ExchangeFault> {
    let mut messages = ServerMessage::parse_all(body);
    if messages.is_empty() {
        // Some servers label a stream of events as JSON.
        let (mut parser, mut events) = (SseParser::with_limit(ANSWER_BYTES_MAX), Vec::new());
        parser.push(body, &mut events).map_err(|_| too_large())?;
        parser.push(b"\n\n", &mut events).map_err(|_| too_large())?;
        messages = events.iter().flat_map(messages_of).collect();
    }
    if messages.is_empty() {
        messages.extend(ServerMessage::find_answer(body));
    }
    Ok(messages)
}
