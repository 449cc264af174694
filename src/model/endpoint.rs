//! Where the service is, and how long to wait for it.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

use crate::process::Supervisor;
use crate::secrets::KnownSecrets;

use super::credentials::Credential;
use super::proxies::Proxies;

/// Where the service is and how to talk to it.
#[derive(Clone, Debug)]
pub struct ModelService {
    /// With or without a path in front of `/v1/messages`.
    pub base_url: String,
    pub credential: Credential,
    pub anthropic_version: String,
    pub betas: Vec<String>,
    /// Sent with every request; they replace what would be sent otherwise.
    pub extra_headers: Vec<(String, String)>,
    pub timers: RequestTimers,
    /// PEM files with certificates to trust beside the system's.
    pub ca_files: Vec<PathBuf>,
    pub proxies: Proxies,
    /// Where the credentials go that are fetched on the way.
    pub secrets: KnownSecrets,
    /// What starts the command that prints a key.
    pub supervisor: Supervisor,
}

impl ModelService {
    /// The service at `base_url`, everything else as usual.
    pub fn new(base_url: impl Into<String>, credential: Credential) -> Self {
        Self {
            base_url: base_url.into(),
            credential,
            anthropic_version: "2023-06-01".to_owned(),
            betas: Vec::new(),
            extra_headers: Vec::new(),
            timers: RequestTimers::default(),
            ca_files: Vec::new(),
            proxies: Proxies::default(),
            secrets: KnownSecrets::default(),
            supervisor: Supervisor::with_own_binary(),
        }
    }

    /// The address that requests go to.
    ///
    /// # Errors
    /// The base URL is none.
    pub fn url(&self) -> Result<Url, EndpointError> {
        BaseUrl::parse(&self.base_url).map(|address| address.messages_url())
    }
}

/// A base URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    url: Url,
}

impl BaseUrl {
    /// Reads one, with or without `/v1/messages` at its end.
    ///
    /// # Errors
    /// It is none, or leads elsewhere than over HTTP.
    pub fn parse(base_url: &str) -> Result<Self, EndpointError> {
        let wrong = |reason: &str| EndpointError::BaseUrl { reason: reason.to_owned() };
        let mut url = Url::parse(base_url.trim()).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("it must begin with http:// or https://"));
        }
        let base = url.path().trim_end_matches('/');
        let base = base.strip_suffix("/messages").unwrap_or(base);
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        url.set_path(&base);
        url.set_fragment(None);
        Ok(Self { url })
    }

    /// Scheme, host and port: who gets to see what is sent there.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The base URL in its one spelling, without user, password and query.
    pub fn base(&self) -> String {
        format!("{}{}", self.origin(), self.url.path().trim_end_matches('/'))
    }

    /// Whether it says more than where to go: a user, a password, a query.
    pub fn has_credentials_or_query(&self) -> bool {
        let user = !self.url.username().is_empty() || self.url.password().is_some();
        user || self.url.query().is_some()
    }

    fn messages_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/v1/messages", self.url.path().trim_end_matches('/')));
        url
    }
}

/// Host and port, and nothing else of an address, which may hold secrets.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// How long each part of a request may take. Real time: no rehearsal makes it pass faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimers {
    /// Name, TCP and TLS.
    pub connect: Duration,
    /// From the start of the attempt to the first byte of the reply's body. A second is added
    /// for every 50 kB that are sent, since the model reads before it writes.
    pub first_byte: Duration,
    /// The longest silence after that.
    pub idle: Duration,
    /// The longest time without content: pings, unknown events and empty deltas are none.
    pub progress: Duration,
    /// The whole of a reply that streams, for every 16,000 tokens that it may have.
    pub reply: Duration,
    /// The whole of a request without streaming.
    pub whole: Duration,
    /// The longest time without any sign of life from the network itself, keep-alive probes
    /// included. It ends a connection that nobody closed: a pulled cable, a rebooted router.
    pub dead_path: Duration,
}

impl Default for RequestTimers {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            first_byte: Duration::from_mins(3),
            idle: Duration::from_mins(2),
            progress: Duration::from_mins(5),
            reply: Duration::from_hours(1),
            whole: Duration::from_mins(10),
            dead_path: Duration::from_secs(55),
        }
    }
}

impl RequestTimers {
    /// The limit for the first byte of an answer to a request of `bytes`.
    pub fn first_byte_for(&self, bytes: usize) -> Duration {
        const BYTES_PER_SECOND: u64 = 50_000;

        self.first_byte.saturating_add(Duration::from_secs(bytes as u64 / BYTES_PER_SECOND))
    }

    /// The limit for the whole of a reply of at most `cap` tokens that streams.
    pub fn reply_for(&self, cap: u32) -> Duration {
        const TOKENS: u32 = 16_000;

        self.reply.saturating_mul(cap.div_ceil(TOKENS).max(1))
    }
}

/// An endpoint that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("the base URL is wrong: {reason}")]
    BaseUrl { reason: String },
    #[error("certificate file {}: {reason}", path.display())]
    CaFile { path: PathBuf, reason: String },
    #[error("header `{name}` has a name or value that cannot be sent")]
    Header { name: String },
    #[error("the credential has characters that cannot be sent in a header")]
    Credential,
}
