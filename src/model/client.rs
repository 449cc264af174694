//! A client of one endpoint.

use std::sync::{Mutex, PoisonError};

use reqwest::Url;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::recovery::{Ask, Fault, FaultKind, Reach};

use super::answer::{Answer, Progress};
use super::credentials::{Keyring, Secret};
use super::endpoint::{Endpoint, EndpointError, Timers};
use super::exchange::Exchange;
use super::headers::RateLimits;
use super::request::{Prompt, body};
use super::transport::{Transport, read_roots};

/// A client of one endpoint.
#[derive(Debug)]
pub struct Client {
    url: Url,
    headers: HeaderMap,
    keyring: Keyring,
    timers: Timers,
    transport: Transport,
    limits: Mutex<Option<RateLimits>>,
}

impl Client {
    /// Checks the endpoint. Nothing is sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let url = endpoint.url()?;
        let roots = read_roots(&endpoint.ca_files)
            .map_err(|(path, reason)| EndpointError::CaFile { path, reason })?;
        let headers = fixed_headers(&endpoint)?;
        let transport = Transport::new(&url, endpoint.timers.connect, roots, &endpoint.proxies);
        let keyring = Keyring::new(endpoint.credential).ok_or(EndpointError::Credential)?;
        let limits = Mutex::new(None);
        Ok(Self { url, headers, keyring, timers: endpoint.timers, transport, limits })
    }

    /// Makes one attempt at one request. Exactly one request goes out, or none if it cannot be
    /// built. Dropping the future takes the request back.
    ///
    /// # Errors
    /// The facts of the failure. Nothing is retried here.
    pub async fn ask(
        &self,
        prompt: &Prompt<'_>,
        ask: &Ask,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Answer, Box<Fault>> {
        let (request, secret) = self.request(prompt, ask).await.map_err(Box::new)?;
        let bytes = request.body().map_or(0, size);
        let mut exchange = Exchange::begin(&self.timers, ask.mode, bytes, self.way());
        let result = match self.transport.client(ask.connection) {
            Ok(http) => exchange.run(http, request, progress).await,
            Err(detail) => Err(Fault::new(FaultKind::Certificate { detail }, Reach::Nowhere)),
        };
        if let Some(limits) = exchange.rate_limits() {
            *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
        }
        match result {
            Ok(mut answer) => {
                if answer.model.is_empty() {
                    prompt.model.clone_into(&mut answer.model);
                }
                Ok(answer)
            }
            Err(fault) => {
                if fault.status() == Some(401) {
                    self.keyring.reject().await;
                }
                Err(Box::new(scrub(self.blame_proxy(fault), secret.as_ref())))
            }
        }
    }

    /// Fetches the credential anew, if there is a way to. Returns whether another one is in use
    /// now; the same one again would be rejected again.
    pub async fn refresh(&self) -> bool {
        self.keyring.refresh().await
    }

    /// The rate limits, as the last answer that mentioned any told them.
    pub fn rate_limits(&self) -> Option<RateLimits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who is asked, and through whom. Nothing else of the address, which may hold secrets.
    fn way(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default();
        let host = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        match self.transport.proxy() {
            Some(proxy) => format!("{host} through the proxy {proxy}"),
            None => host,
        }
    }

    /// A 407 is a proxy's, and only it can say which: its own words seldom help.
    fn blame_proxy(&self, mut fault: Fault) -> Fault {
        let status = fault.status();
        if let FaultKind::Refused { message, .. } = &mut fault.kind
            && status == Some(407)
            && let Some(proxy) = self.transport.proxy()
        {
            *message = proxy.complaint();
        }
        fault
    }

    async fn request(
        &self,
        prompt: &Prompt<'_>,
        ask: &Ask,
    ) -> Result<(reqwest::Request, Option<Secret>), Fault> {
        let body = body(prompt, ask.cap, ask.mode).map_err(|error| {
            Fault::new(FaultKind::Unsendable { detail: error.to_string() }, Reach::Nowhere)
        })?;
        let mut headers = HeaderMap::new();
        let secret =
            self.keyring.sign(&mut headers).await.map_err(|reason| no_credential(&reason))?;
        headers.extend(self.headers.clone());
        let mut request = reqwest::Request::new(reqwest::Method::POST, self.url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        Ok((request, secret))
    }
}

fn size(body: &reqwest::Body) -> usize {
    body.as_bytes().map_or(0, <[u8]>::len)
}

/// What every request says of itself. The endpoint's own headers have the last word.
fn fixed_headers(endpoint: &Endpoint) -> Result<HeaderMap, EndpointError> {
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
    // Compression on the way would hold events back.
    add(ACCEPT_ENCODING.as_str(), "identity")?;
    add("anthropic-version", &endpoint.anthropic_version)?;
    if !endpoint.betas.is_empty() {
        add("anthropic-beta", &endpoint.betas.join(","))?;
    }
    for (name, value) in &endpoint.extra_headers {
        add(name, value)?;
    }
    Ok(headers)
}

/// A credential that could not be had counts as rejected, though nobody saw it: the cure is the
/// same, and so is the end. Status 200 stands for no status of failure.
fn no_credential(reason: &str) -> Fault {
    let kind = FaultKind::Refused {
        status: 200,
        label: "authentication_error".to_owned(),
        code: "api_key_helper_failed".to_owned(),
        message: format!("the API key helper {reason}"),
    };
    Fault::new(kind, Reach::Nowhere)
}

/// Some services quote the key that they reject.
fn scrub(mut fault: Fault, secret: Option<&Secret>) -> Fault {
    let Some(secret) = secret else { return fault };
    match &mut fault.kind {
        FaultKind::Refused { label, code, message, .. } => {
            for text in [label, code, message] {
                *text = secret.scrub(text);
            }
        }
        FaultKind::Connection { detail }
        | FaultKind::Certificate { detail }
        | FaultKind::TornStream { detail }
        | FaultKind::Nonsense { detail }
        | FaultKind::Unsendable { detail } => *detail = secret.scrub(detail),
        FaultKind::Timeout { .. } => {}
    }
    fault
}
