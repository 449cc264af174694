//! Requests to the token services and metadata servers of clouds.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::time::timeout;

use super::super::fault::{is_temporary, issuer_unreachable, missing_credential};
use super::super::grant::{parse_token_endpoint, url_encoded};
use crate::json;
use crate::model::endpoint::host;
use crate::model::error_body::truncate_message;
use crate::model::fault::{fault_of_response, fault_without_client, fault_without_response};
use crate::model::headers::wall_clock;
use crate::model::proxies::Proxies;
use crate::model::timers::RequestTimers;
use crate::model::transport::HttpTransport;
use crate::process::Supervisor;
use crate::recovery::{ConnectionChoice, ErrorBody, FailureStage, Fault, FaultKind};
use crate::response_body::{BodyError, ResponseBody};
use crate::secrets::KnownSecrets;

/// Timeout of a token service, connecting included.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a metadata server, for all requests together. If there is no such server, requests
/// may stay without an answer.
pub(super) const METADATA_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum size of an answer, in bytes.
const ANSWER_MAX: usize = 256 * 1024;
/// Maximum length of text that is quoted from an error, in bytes.
const QUOTE_MAX: usize = 300;

/// The connection settings for token services.
#[derive(Clone, Debug)]
pub(in super::super) struct TokenHttp {
    pub(in super::super) roots: Vec<CertificateDer<'static>>,
    pub(in super::super) proxies: Proxies,
}

/// The dependencies of fetching a token: HTTP, the supervisor of commands, and the known secrets.
#[derive(Clone, Debug)]
pub(in super::super) struct TokenContext {
    pub(in super::super) http: TokenHttp,
    pub(in super::super) supervisor: Supervisor,
    pub(in super::super) known: KnownSecrets,
}

/// One request to a token service.
#[derive(Debug)]
pub(super) struct TokenCall<'a> {
    /// The name of the service, for messages.
    pub(super) service: &'a str,
    pub(super) request: Request,
    pub(super) limit: Duration,
    /// True for a metadata server, which is on this machine or its host.
    pub(super) is_local: bool,
    /// The advice if the service refuses.
    pub(super) remedy: &'a str,
}

impl<'a> TokenCall<'a> {
    /// A request to a token service at `url`.
    ///
    /// # Errors
    /// Secrets would cross a network unencrypted.
    pub(super) fn new(
        service: &'a str,
        method: Method,
        url: &str,
        remedy: &'a str,
    ) -> Result<Self, Box<Fault>> {
        let Some(url) = parse_token_endpoint(url) else {
            let message =
                format!("the address of {service} is not an https:// address; correct it");
            return Err(missing_credential("invalid_token_endpoint", message));
        };
        let request = Request::new(method, url);
        Ok(Self { service, request, limit: SERVICE_TIMEOUT, is_local: false, remedy })
    }

    /// A request to a metadata server.
    pub(super) fn local(
        service: &'a str,
        method: Method,
        url: &str,
        remedy: &'a str,
    ) -> Result<Self, Box<Fault>> {
        let url = Url::parse(url).map_err(|_| {
            missing_credential("invalid_token_endpoint", format!("{service} has no valid address"))
        })?;
        let request = Request::new(method, url);
        Ok(Self { service, request, limit: METADATA_TIMEOUT, is_local: true, remedy })
    }

    /// Adds a header, unless it cannot be sent: the service then refuses, which is reported.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value)) {
            value.set_sensitive(true);
            self.request.headers_mut().insert(name, value);
        }
        self
    }

    /// Sets the timeout of a token service. A server with HTTPS is reached like other services, if
    /// necessary through a proxy; one with plain HTTP counts as local.
    pub(super) fn with_service_timeout(self) -> Self {
        let is_local = self.request.url().scheme() == "http";
        Self { limit: SERVICE_TIMEOUT, is_local, ..self }
    }

    pub(super) fn form<'b>(self, fields: impl IntoIterator<Item = (&'b str, &'b str)>) -> Self {
        self.body("application/x-www-form-urlencoded; charset=utf-8", url_encoded(fields))
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    fn body(mut self, kind: &'static str, body: String) -> Self {
        self.request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        *self.request.body_mut() = Some(body.into());
        self
    }
}

impl TokenHttp {
    /// Sends a request and returns the body of a successful answer.
    ///
    /// # Errors
    /// The service cannot be reached (temporary), or refuses (permanent).
    pub(super) async fn send(&self, call: TokenCall<'_>) -> Result<Vec<u8>, Box<Fault>> {
        let TokenCall { service, mut request, limit, is_local, remedy } = call;
        let destination = format!("{service} at {}", host(request.url()));
        let none = Proxies::default();
        let proxies = if is_local { &none } else { &self.proxies };
        let timers = RequestTimers { connect: limit, ..RequestTimers::default() };
        let transport = HttpTransport::new(request.url(), timers, self.roots.clone(), proxies);
        let http = transport.client(ConnectionChoice::Fresh);
        let http = http.map_err(|error| fault_without_client(&error))?;
        request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        let exchange = async {
            let sent = http.execute(request).await;
            let response = sent.map_err(|error| unreachable(error, &destination))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut body = Vec::new();
            let read = ResponseBody::new(response).read(&mut body, ANSWER_MAX).await;
            if status.is_success() {
                return read.map(|()| body).map_err(|error| match error {
                    BodyError::Connection(error) => unreachable(error, &destination),
                    BodyError::Compression(error) => {
                        issuer_unreachable(format!("{destination}: {error}"))
                    }
                });
            }
            let mut fault = fault_of_response(status.as_u16(), &headers, &body, wall_clock());
            // STS reports errors in XML, and that it throttles with status 400.
            let text = String::from_utf8_lossy(&body);
            if let FaultKind::Refused { label, message, .. } = &mut fault.kind
                && let Some(code) = xml_text(&text, "Code")
            {
                fault.body = ErrorBody::Api;
                code.clone_into(label);
                xml_text(&text, "Message").unwrap_or(code).clone_into(message);
            }
            if status.is_server_error() || is_temporary(&fault) {
                fault.stage = FailureStage::Unsent;
                if let FaultKind::Refused { message, .. } = &mut fault.kind {
                    *message = truncate_message(format!("{destination} said: {message}"));
                }
                return Err(Box::new(fault));
            }
            let quoted = quote(&body);
            let message =
                format!("{destination} refuses (HTTP {}{quoted}); {remedy}", status.as_u16());
            Err(missing_credential("cloud_identity_refused", message))
        };
        timeout(limit, exchange).await.unwrap_or_else(|_| {
            let seconds = limit.as_secs_f32();
            Err(issuer_unreachable(format!("{destination} did not answer within {seconds} s")))
        })
    }

    /// Like [`send`](Self::send), for an answer in JSON.
    pub(super) async fn send_for_json(&self, call: TokenCall<'_>) -> Result<Value, Box<Fault>> {
        let service = call.service.to_owned();
        let body = self.send(call).await?;
        // Its content is not quoted: it may be a token.
        json::read(&body).map_err(|_| invalid_answer(&service))
    }
}

/// The fault of an answer without the expected content. It may come from a captive portal.
pub(super) fn invalid_answer(service: &str) -> Box<Fault> {
    let detail = format!("the answer of {service} holds no credentials");
    Box::new(Fault::new(FaultKind::InvalidContent { detail }, FailureStage::Unsent))
}

fn unreachable(error: reqwest::Error, destination: &str) -> Box<Fault> {
    let fault = fault_without_response(error, destination, FailureStage::Unsent);
    if matches!(fault.kind, FaultKind::Timeout { .. }) {
        issuer_unreachable(format!("no connection to {destination} in time"))
    } else {
        Box::new(fault)
    }
}

/// The error that a service reports: OAuth, AWS in XML or JSON, Google.
fn quote(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let value: Value = json::read(body).unwrap_or_default();
    let fields = [
        value["error"].as_str(),
        value["error_description"].as_str(),
        value["error"]["message"].as_str(),
        value["message"].as_str(),
        value["Message"].as_str(),
        xml_text(&text, "Code"),
        xml_text(&text, "Message"),
    ];
    let quoted: Vec<&str> =
        fields.into_iter().flatten().filter(|quoted| !quoted.is_empty()).collect();
    let mut quoted = quoted.join(": ");
    quoted.retain(|letter| !letter.is_control());
    quoted.truncate(quoted.floor_char_boundary(QUOTE_MAX));
    if quoted.is_empty() { quoted } else { format!(", {quoted}") }
}

/// The text of the first XML element of this name.
pub(super) fn xml_text<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let start = xml.find(&format!("<{name}>"))? + name.len() + 2;
    let end = start + xml[start..].find(&format!("</{name}>"))?;
    Some(xml[start..end].trim())
}

/// True if the service answered, even with a refusal.
pub(super) fn has_answered(fault: &Fault) -> bool {
    fault.status().is_some() || matches!(fault.kind, FaultKind::Refused { .. })
}
