//! A client of one endpoint.

pub(super) mod probe;
mod token_count;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Body;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use crate::connect_error::REFUSED_TUNNEL;
use crate::recovery::{
    CallPurpose, ConnectionChoice, EndpointStatus, ErrorBody, ErrorClass, FailureStage, Fault,
    FaultKind, ModelCall, OptionalField, TUNNEL_REFUSED, classify,
};

use super::answer::{ModelReply, StreamProgress};
use super::attempt::Attempt;
use super::base_url::EndpointError;
use super::credentials::{CredentialProvider, Renewal, Secret};
use super::endpoint::{ModelService, host};
use super::error_body::truncate_message;
use super::fault::{fault_without_client, redacted};
use super::headers::{RateLimits, add_beta};
use super::http2::{http2_only, speaks_http2};
use super::interface::{Transport, TransportFuture};
use super::limits::AccountKey;
use super::request::{FAST_BETA, RequestBody, RequestContent};
use super::service::ServiceUrls;
use super::timers::RequestTimers;
use super::transport::{ClientIdentity, HttpTransport, InvalidBundle, read_roots};
use super::tunnel::tunnel_refusal;

/// The endpoints that have answered a request successfully, each with its credential. Clones share
/// the set. An unexpected refusal by a proven endpoint is retried once.
#[derive(Clone, Debug, Default)]
pub struct ProvenEndpoints(Arc<Mutex<HashSet<AccountKey>>>);

/// A client of one endpoint.
#[derive(Debug)]
pub struct ModelClient {
    urls: ServiceUrls,
    headers: HeaderMap,
    credentials: CredentialProvider,
    timers: RequestTimers,
    transport: HttpTransport,
    limits: Mutex<Option<RateLimits>>,
    account: AccountKey,
    proven: ProvenEndpoints,
    /// True if the endpoint refused to count the tokens of a request.
    lacks_token_count: AtomicBool,
    /// True if requests may contain cache breakpoints.
    marks_cache: bool,
    /// The fields that the service refused, by model.
    refused_fields: Mutex<BTreeSet<(String, OptionalField)>>,
}

impl ModelClient {
    /// Validates the endpoint without sending a request.
    ///
    /// # Errors
    /// The invalid setting of the endpoint.
    pub fn new(endpoint: ModelService) -> Result<Self, EndpointError> {
        let urls = endpoint.urls()?;
        let url = urls.base();
        let account = AccountKey::new(&endpoint, url);
        let invalid =
            |bad: InvalidBundle| EndpointError::CaFile { file: bad.file, reason: bad.why };
        let roots = read_roots(&endpoint.connection.ca_files).map_err(invalid)?;
        let identity = endpoint.connection.identity.as_ref().map(ClientIdentity::read);
        let identity = identity.transpose().map_err(invalid)?;
        let headers = fixed_headers(&endpoint)?;
        let (timers, proxies) = (endpoint.timers, endpoint.connection.proxies.clone());
        proxies.proxy_for(url).map_err(EndpointError::Proxy)?;
        let marks_cache = endpoint.marks_cache;
        let credentials =
            CredentialProvider::new(endpoint, &roots).ok_or(EndpointError::Credential)?;
        let transport =
            HttpTransport::new(urls.base(), timers, roots, &proxies).following_redirects();
        let transport = transport.with_identity(identity);
        Ok(Self {
            urls,
            headers,
            credentials,
            timers,
            transport,
            limits: Mutex::default(),
            account,
            proven: ProvenEndpoints::default(),
            lacks_token_count: AtomicBool::new(false),
            marks_cache,
            refused_fields: Mutex::default(),
        })
    }

    /// Shares the set of proven endpoints with other clients.
    #[must_use]
    pub fn sharing(self, proven: &ProvenEndpoints) -> Self {
        Self { proven: proven.clone(), ..self }
    }

    /// Makes one attempt at one request. At most one request is sent; a redirection within the
    /// endpoint's origin is followed. Dropping the future cancels the request.
    ///
    /// # Errors
    /// The facts of the failure. Nothing is retried here.
    pub async fn attempt(
        &self,
        content: &RequestContent<'_>,
        call: &ModelCall,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<ModelReply, Box<Fault>> {
        let (request, secret) = self.request(content, call).await?;
        progress(StreamProgress::Sending);
        let bytes = request.body().and_then(Body::as_bytes).map_or(0, <[u8]>::len);
        let mut attempt = Attempt::begin(&self.timers, call, bytes, self.describe_route());
        let result = match self.http(call.connection) {
            Ok(http) => attempt.run(http, request, progress).await,
            Err(fault) => Err(*fault),
        };
        if let Some(limits) = attempt.rate_limits() {
            *self.limits.lock() = Some(limits);
        }
        match result {
            Ok(mut answer) => {
                self.proven.0.lock().insert(self.account);
                if answer.model.is_empty() {
                    content.model.clone_into(&mut answer.model);
                }
                Ok(answer)
            }
            Err(fault) => {
                let fault = self.explain_other_protocol(fault, call).await;
                let fault = self.explain_tunnel(fault).await;
                // Only the credential can be the cause.
                let class = classify(&fault).class;
                let blamed = matches!(class, ErrorClass::InvalidApiKey | ErrorClass::TokenRevoked);
                if let Some(secret) = secret.as_ref().filter(|_| blamed) {
                    self.credentials.reject(secret).await;
                }
                Err(self.reported(fault, secret.as_ref()))
            }
        }
    }

    /// The identity that the credential belongs to, according to the cloud. `None` if the cloud
    /// does not provide it.
    ///
    /// # Errors
    /// No credential could be fetched, or the cloud refuses it.
    pub async fn caller(&self) -> Result<Option<String>, Box<Fault>> {
        self.credentials.caller().await
    }

    /// The host and the proxy.
    fn describe_route(&self) -> String {
        let host = self.host();
        match self.transport.proxy() {
            Some(proxy) => format!("{host} through the proxy {proxy}"),
            None => host,
        }
    }

    fn http(&self, connection: ConnectionChoice) -> Result<&reqwest::Client, Box<Fault>> {
        self.transport.client(connection).map_err(|error| fault_without_client(&error))
    }

    /// Prepares a fault for reports: names the proxy, and redacts the secret of the request.
    fn reported(&self, fault: Fault, secret: Option<&Secret>) -> Box<Fault> {
        Box::new(redacted(self.attribute_to_proxy(fault), secret))
    }

    /// Attributes a 407 to the proxy and names it: the proxy's own message seldom helps.
    fn attribute_to_proxy(&self, mut fault: Fault) -> Fault {
        let status = fault.status();
        if let FaultKind::Refused { message, code, .. } = &mut fault.kind
            && status == Some(407)
            && code != TUNNEL_REFUSED
            && let Some(proxy) = self.transport.proxy()
        {
            *message = proxy.auth_error_message();
        }
        fault
    }

    /// Replaces the fault of a refused tunnel by the refusal of the proxy. The refusal of a login
    /// is final, like a 407; others may be temporary.
    async fn explain_tunnel(&self, mut fault: Fault) -> Fault {
        let FaultKind::Connection { detail } = &mut fault.kind else { return fault };
        let is_refused = detail.ends_with(REFUSED_TUNNEL);
        let Some(proxy) = self.transport.proxy().filter(|_| is_refused) else { return fault };
        let limit = self.timers.connect;
        let Some(refusal) = tunnel_refusal(proxy, self.urls.base(), limit).await else {
            *detail = proxy.tunnel_error_message(detail);
            return fault;
        };
        let reason = refusal.reason.as_str();
        let (status, body, message) = match refusal.status {
            found @ (401 | 407) => {
                let message = format!("{} (HTTP {found}: {reason})", proxy.auth_error_message());
                (407, ErrorBody::Foreign, message)
            }
            status @ 500.. => (status, ErrorBody::Foreign, proxy.tunnel_error_message(reason)),
            status => (status, ErrorBody::Portal, proxy.tunnel_error_message(reason)),
        };
        let kind = FaultKind::Refused {
            status,
            label: String::new(),
            code: TUNNEL_REFUSED.to_owned(),
            message: truncate_message(message),
        };
        Fault { kind, body, ..fault }
    }

    /// Names HTTP/2 as the cause if an untried server gives no answer in HTTP/1.1 twice.
    async fn explain_other_protocol(&self, fault: Fault, call: &ModelCall) -> Fault {
        let is_unread = fault.stage == FailureStage::FreshConnection
            && fault.timer().is_none()
            && call.attempt == 2;
        let url = self.urls.base();
        let is_direct = url.scheme() == "http" && self.transport.proxy().is_none();
        if is_unread
            && is_direct
            && self.endpoint_status() == EndpointStatus::Untried
            && speaks_http2(url).await
        {
            http2_only(&host(url))
        } else {
            fault
        }
    }

    async fn request(
        &self,
        content: &RequestContent<'_>,
        call: &ModelCall,
    ) -> Result<(reqwest::Request, Option<Secret>), Box<Fault>> {
        let unsendable = |error: serde_json::Error| {
            Fault::new(FaultKind::Unsendable { detail: error.to_string() }, FailureStage::Unsent)
        };
        let fast = content.fast && self.urls.has_fast_mode();
        let content = &RequestContent { fast, ..*content };
        let mut body = RequestBody::new(content, call.cap, call.mode);
        let accepts = |field| self.accepts_field(content.model, field);
        if !accepts(OptionalField::ThinkingByDefault) {
            body.thinking = Some(json!({ "type": "disabled" }));
        }
        body.thinking = body.thinking.filter(|_| accepts(OptionalField::Thinking));
        body.output_config = body.output_config.filter(|_| accepts(OptionalField::Effort));
        if !accepts(OptionalField::SystemBlocks) {
            body.flatten_system();
        } else if accepts(OptionalField::CacheControl) {
            body.mark_cache(content.messages);
        }
        let mut headers = self.headers.clone();
        let source = content.source.and_then(|name| HeaderValue::from_str(name).ok());
        let default_source = HeaderValue::from_static(source_header(call.purpose));
        headers.insert("x-outlast-source", source.unwrap_or(default_source));
        if fast {
            add_beta(&mut headers, FAST_BETA);
        }
        self.urls.adapt(&mut body, &mut headers);
        let url = self.urls.reply(content.model, call.mode);
        let mut request = reqwest::Request::new(reqwest::Method::POST, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(serde_json::to_vec(&body).map_err(unsendable)?.into());
        let secret = self.credentials.sign(&mut request).await?;
        Ok((request, secret))
    }
}

impl Transport for ModelClient {
    fn attempt<'a>(
        &'a self,
        content: &'a RequestContent<'a>,
        call: &'a ModelCall,
        progress: &'a mut (dyn FnMut(StreamProgress) + Send),
    ) -> TransportFuture<'a, Result<ModelReply, Box<Fault>>> {
        Box::pin(self.attempt(content, call, progress))
    }

    fn count_tokens<'a>(
        &'a self,
        content: &'a RequestContent<'a>,
    ) -> TransportFuture<'a, Result<Option<u64>, Box<Fault>>> {
        Box::pin(self.count_tokens(content))
    }

    fn refresh(&self) -> TransportFuture<'_, Renewal> {
        Box::pin(self.credentials.refresh())
    }

    fn finish_renewal(&self, limit: Duration) -> TransportFuture<'_, ()> {
        Box::pin(self.credentials.finish_renewal(limit))
    }

    fn endpoint_status(&self) -> EndpointStatus {
        if self.proven.0.lock().contains(&self.account) {
            EndpointStatus::Proven
        } else {
            EndpointStatus::Untried
        }
    }

    fn host(&self) -> String {
        host(self.urls.base())
    }

    fn accepts_field(&self, model: &str, field: OptionalField) -> bool {
        if field == OptionalField::CacheControl && !self.marks_cache {
            return false;
        }
        let refused = self.refused_fields.lock();
        !refused.contains(&(model.to_owned(), field))
    }

    fn drop_field(&self, model: &str, field: OptionalField) {
        let mut refused = self.refused_fields.lock();
        refused.insert((model.to_owned(), field));
    }

    fn rate_limits(&self) -> Option<RateLimits> {
        self.limits.lock().clone()
    }

    fn limit_of(&self, model: &str) -> String {
        self.account.limit_of(model)
    }
}

/// The version of the Messages API.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The value of the header `x-outlast-source`, which gateways use for accounting.
fn source_header(purpose: CallPurpose) -> &'static str {
    match purpose {
        CallPurpose::Reply => "main",
        CallPurpose::Summary(_) => "compact",
    }
}

/// The headers of every request. The endpoint's own headers take precedence.
fn fixed_headers(endpoint: &ModelService) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &str| {
        let wrong = || EndpointError::Header { name: name.to_owned() };
        let key: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
        headers.insert(key, value);
        Ok(())
    };
    add(CONTENT_TYPE.as_str(), "application/json")?;
    add(ACCEPT.as_str(), "application/json, text/event-stream")?;
    // Compression would delay events.
    add(ACCEPT_ENCODING.as_str(), "identity")?;
    add("anthropic-version", ANTHROPIC_VERSION)?;
    for (name, value) in &endpoint.extra_headers {
        add(name, value)?;
    }
    Ok(headers)
}
