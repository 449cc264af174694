//! The model service's address, credentials and connection settings.

use reqwest::Url;

use crate::process::Supervisor;
use crate::secrets::KnownSecrets;

use super::base_url::EndpointError;
use super::credentials::Credential;
use super::service::{ServiceKind, ServiceUrls};
use super::timers::RequestTimers;
use super::transport::ConnectionTerms;

/// The address of the service, with its credential and connection settings.
#[derive(Clone, Debug)]
pub struct ModelService {
    pub kind: ServiceKind,
    /// The base URL, with or without a path before the path of a request.
    pub base_url: String,
    pub credential: Credential,
    pub anthropic_version: String,
    pub betas: Vec<String>,
    /// True if requests contain cache breakpoints (`cache_control`).
    pub marks_cache: bool,
    /// Headers that are sent with every request; they override the default headers.
    pub extra_headers: Vec<(String, String)>,
    pub timers: RequestTimers,
    pub connection: ConnectionTerms,
    /// Collects the credentials that are fetched during the run, for redaction.
    pub secrets: KnownSecrets,
    /// Starts the `apiKeyHelper` command.
    pub supervisor: Supervisor,
}

impl ModelService {
    /// Creates a service at `base_url`, with defaults for everything else.
    pub fn new(base_url: impl Into<String>, credential: Credential) -> Self {
        Self {
            kind: ServiceKind::default(),
            base_url: base_url.into(),
            credential,
            anthropic_version: "2023-06-01".to_owned(),
            betas: Vec::new(),
            marks_cache: true,
            extra_headers: Vec::new(),
            timers: RequestTimers::default(),
            connection: ConnectionTerms::default(),
            secrets: KnownSecrets::default(),
            supervisor: Supervisor::default(),
        }
    }

    /// The URL of the messages API, or the base URL of another service.
    ///
    /// # Errors
    /// The base URL is invalid.
    pub fn url(&self) -> Result<Url, EndpointError> {
        self.urls().map(|urls| urls.base().clone())
    }

    pub(super) fn urls(&self) -> Result<ServiceUrls, EndpointError> {
        ServiceUrls::new(self.kind.clone(), &self.base_url)
    }
}

/// Host and port. The rest of the address may hold secrets.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
