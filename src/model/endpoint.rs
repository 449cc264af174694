//! The model service's address, credentials and connection settings.

use std::fmt;

use reqwest::Url;

use crate::process::Supervisor;
use crate::secrets::KnownSecrets;

use super::base_url::{BaseUrl, EndpointError};
use super::credentials::Credential;
use super::service::{ServiceKind, ServiceUrls};
use super::timers::RequestTimers;
use super::transport::ConnectionTerms;

/// The address of the service, with its credential and connection settings.
#[derive(Clone)]
pub struct ModelService {
    pub kind: ServiceKind,
    /// The base URL, with or without a path before the path of a request.
    pub base_url: String,
    pub credential: Credential,
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

    /// Returns the secret parts of user and password in the address.
    pub fn login_secrets(&self) -> Vec<String> {
        BaseUrl::parse(&self.base_url).map(|address| address.secrets()).unwrap_or_default()
    }

    /// Returns the kind of a cloud's credential, and its source. `None`: the credential is one of
    /// the Messages API.
    pub fn cloud_credential(&self) -> Option<(&'static str, String)> {
        match &self.credential {
            Credential::Cloud(identity) => Some((identity.kind(), identity.source())),
            Credential::FoundryKey(_) => {
                Some(("API key", "the variable ANTHROPIC_FOUNDRY_API_KEY".to_owned()))
            }
            Credential::Bearer(_) if self.kind.is_cloud() => {
                Some(("bearer token", "the variable AWS_BEARER_TOKEN_BEDROCK".to_owned()))
            }
            Credential::ApiKey(_)
            | Credential::Bearer(_)
            | Credential::OAuthToken(_)
            | Credential::Helper(_)
            | Credential::OAuth { .. }
            | Credential::None => None,
        }
    }

    pub(super) fn urls(&self) -> Result<ServiceUrls, EndpointError> {
        ServiceUrls::new(self.kind.clone(), &self.base_url)
    }
}

impl fmt::Debug for ModelService {
    /// Shows headers by name only: their values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = BaseUrl::parse(&self.base_url).map(|address| address.origin());
        let headers: Vec<&str> = self.extra_headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ModelService")
            .field("kind", &self.kind)
            .field("origin", &origin)
            .field("credential", &self.credential)
            .field("headers", &headers)
            .field("proxies", &self.connection.proxies)
            .finish_non_exhaustive()
    }
}

/// Host and port. The rest of the address may hold secrets.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
