//! The upstream proxy of the relay for network access of commands.

use std::sync::Arc;

use crate::model::Proxies;
use crate::tools::{ChooseProxy, ProxyScheme, UpstreamProxy};

/// Chooses the proxy by the variables of outlast's own environment.
pub(super) fn upstream_proxy(proxies: &Proxies) -> ChooseProxy {
    let proxies = proxies.clone();
    Arc::new(move |url| {
        // An invalid address is an error only for requests of outlast itself.
        let proxy = proxies.proxy_for(url).ok()??;
        let url = proxy.url();
        let decoded = |text: &str| {
            percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
        };
        let login = (!url.username().is_empty())
            .then(|| (decoded(url.username()), decoded(url.password().unwrap_or_default())));
        let (scheme, usual) = match url.scheme() {
            "http" => (ProxyScheme::Http, 80),
            "socks5" | "socks5h" => (ProxyScheme::Socks5, 1080),
            _ => (ProxyScheme::Other, 443),
        };
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(UpstreamProxy { scheme, host, port: url.port().unwrap_or(usual), login })
    })
}
