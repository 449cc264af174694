//! Settings of the `WebFetch` tool.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::Resolve;

use crate::types::Callback;

/// The error when no HTTP client can be created; its type belongs to the HTTP client's module.
pub type WebClientError = Box<dyn std::error::Error + Send + Sync>;

/// Creates the HTTP client with the given resolver, which is not used behind a proxy.
pub type MakeClient =
    Callback<dyn Fn(&Url, Arc<dyn Resolve>) -> Result<WebClient, WebClientError> + Send + Sync>;

/// An HTTP client that follows no redirects and does not retry.
#[derive(Clone, Debug)]
pub struct WebClient {
    pub http: reqwest::Client,
    /// True if a proxy resolves names, so that addresses cannot be checked here.
    pub is_proxied: bool,
}

/// The limits of fetching pages.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// The time limit for a page, including redirects.
    pub timeout: Duration,
    /// Hosts that may have private addresses: `localhost`, `*.corp.example`, `*`.
    pub private_hosts: Vec<String>,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(1), private_hosts: Vec::new() }
    }
}

#[derive(Clone, Debug)]
pub struct WebSettings {
    pub fetch: FetchSettings,
    pub client: MakeClient,
}
