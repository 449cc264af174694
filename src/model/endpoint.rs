//! The model service's address, credentials and timeouts.

use std::time::Duration;

use reqwest::Url;

use crate::process::Supervisor;
use crate::secrets::KnownSecrets;

use super::base_url::EndpointError;
use super::credentials::Credential;
use super::proxies::Proxies;
use super::service::{ServiceKind, ServiceUrls};
use super::transport::{CaFile, IdentityFiles};

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
    /// PEM files with certificates to trust besides the system's.
    pub ca_files: Vec<CaFile>,
    /// The certificate for services that demand one.
    pub identity: Option<IdentityFiles>,
    pub proxies: Proxies,
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
            ca_files: Vec::new(),
            identity: None,
            proxies: Proxies::default(),
            secrets: KnownSecrets::default(),
            supervisor: Supervisor::with_own_binary(),
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

/// Timeouts for each part of a request, in real time: a rehearsal's time scale does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimers {
    /// Timeout of DNS, TCP and TLS together.
    pub connect: Duration,
    /// Timeout from the start of the attempt to the first byte of the reply's body. One second is
    /// added for every 50 kB of the request, since the model reads before it writes.
    pub first_byte: Duration,
    /// The longest silence after the first byte.
    pub idle: Duration,
    /// The longest time without content: pings, unknown events and empty deltas do not count.
    pub progress: Duration,
    /// Timeout of a whole streamed reply, for every 16,000 tokens of its output cap.
    pub reply: Duration,
    /// Timeout of a whole request without streaming.
    pub whole: Duration,
    /// The longest time without any packet, keep-alive probes included. It detects dead
    /// connections: a pulled cable, a rebooted router.
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
    /// The first-byte timeout of a request of `bytes`.
    pub fn first_byte_for(&self, bytes: usize) -> Duration {
        const BYTES_PER_SECOND: u64 = 50_000;

        self.first_byte.saturating_add(Duration::from_secs(bytes as u64 / BYTES_PER_SECOND))
    }

    /// The timeout of a whole streamed reply with an output cap of `cap` tokens.
    pub fn reply_for(&self, cap: u32) -> Duration {
        const TOKENS: u32 = 16_000;

        self.reply.saturating_mul(cap.div_ceil(TOKENS).max(1))
    }
}
