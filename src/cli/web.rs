//! HTTP clients of the web tools and of MCP servers.

use std::sync::Arc;
use std::time::Duration;

use crate::mcp::HttpClientFactory;
use crate::model::{self, ModelService, RequestTimers};
use crate::tools::{MakeClient, WebClient, WebSettings};
use crate::types::Callback;

use super::settings::Settings;

/// Returns the settings for fetching pages: TLS and proxies as for the model's client, without its
/// credentials.
pub(super) fn settings(settings: &Settings) -> WebSettings {
    let first = &settings.endpoint;
    let terms = first.connection.clone();
    let RequestTimers { connect, dead_path, .. } = first.timers;
    let connect = connect.min(WEB_CONNECT);
    let timers = RequestTimers { connect, dead_path, ..RequestTimers::default() };
    let client: MakeClient = Callback(Arc::new(move |url, names| {
        let made = model::web_client(url, timers, &terms, names);
        made.map(|(http, is_proxied)| WebClient { http, is_proxied }).map_err(Into::into)
    }));
    WebSettings { fetch: settings.config.fetch.clone(), client }
}

/// The connect timeout for web pages; short, since the model can try another page.
const WEB_CONNECT: Duration = Duration::from_secs(10);

/// Returns the factory of clients for MCP servers, with the TLS and proxy settings of an endpoint.
pub(super) fn http_clients(endpoint: &ModelService) -> Arc<HttpClientFactory> {
    let terms = endpoint.connection.clone();
    let RequestTimers { connect, dead_path, .. } = endpoint.timers;
    Arc::new(move |url: &str| {
        let timers = RequestTimers { connect, dead_path, ..RequestTimers::default() };
        model::http_client(url, timers, &terms).map_err(Into::into)
    })
}
