//! What fetching is done with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::Resolve;

/// Makes the client that asks for an address. It looks names up with what it is given, unless a
/// proxy does that.
pub type MakeClient =
    Arc<dyn Fn(&Url, Arc<dyn Resolve>) -> Result<WebClient, String> + Send + Sync>;

/// A client that follows no redirect, and repeats nothing.
#[derive(Clone, Debug)]
pub struct WebClient {
    pub http: reqwest::Client,
    /// Whether a proxy looks names up, so that nobody here sees where they lead.
    pub is_proxied: bool,
}

/// How the web is reached.
#[derive(Clone)]
pub struct WebSettings {
    /// How long a page may take, with all redirects.
    pub timeout: Duration,
    /// Hosts that may be at private addresses: `localhost`, `*.corp.example`, `*`.
    pub private_hosts: Vec<String>,
    pub client: MakeClient,
}

impl fmt::Debug for WebSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WebSettings");
        shown.field("timeout", &self.timeout).field("private_hosts", &self.private_hosts);
        shown.finish_non_exhaustive()
    }
}
