//! The HTTP client beneath: connections, certificates, proxies.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use reqwest::dns::Resolve;
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, Url};
use tower_layer::Layer;
use tower_service::Service;

use crate::process::reading;
use crate::recovery::ConnectionChoice;

use super::endpoint::RequestTimers;
use super::proxies::{Proxies, Proxy, is_loopback};

/// Keep-alive probes that may go unanswered.
const PROBES: u32 = 3;
/// The kernel counts the time between probes in whole seconds.
pub const SHORTEST_PROBING: Duration = Duration::from_secs(11);
/// Servers and middleboxes commonly drop idle connections after a minute.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// Two HTTP clients: one keeps its connections for the next request, the other never does. Each
/// is built when it is first needed, since reading the certificates costs milliseconds.
#[derive(Debug)]
pub(super) struct HttpTransport {
    config: ClientConfig,
    pooled: OnceLock<Result<reqwest::Client, String>>,
    fresh: OnceLock<Result<reqwest::Client, String>>,
}

#[derive(Debug)]
struct ClientConfig {
    timers: RequestTimers,
    extra_roots: Vec<Certificate>,
    /// Whether certificates can play a part at all.
    is_plain_loopback: bool,
    proxy: Option<Proxy>,
    /// Instead of how this machine looks names up.
    names: Option<NameLookup>,
    redirects: Redirects,
}

/// What becomes of an answer that says that the request belongs elsewhere.
#[derive(Clone, Copy, Debug)]
enum Redirects {
    /// It is the answer.
    Returned,
    /// A 307 or 308 within the origin is followed, method and body kept: what the request carries
    /// goes to nobody else. Any other is the answer.
    WithinOrigin,
}

/// The most redirections that are followed for one request.
const REDIRECTS_MAX: usize = 3;

impl Redirects {
    fn policy(self) -> Policy {
        match self {
            Self::Returned => Policy::none(),
            Self::WithinOrigin => Policy::custom(|attempt| {
                let keeps = matches!(attempt.status().as_u16(), 307 | 308);
                let within = attempt
                    .previous()
                    .first()
                    .is_some_and(|first| first.origin() == attempt.url().origin());
                if keeps && within && attempt.previous().len() <= REDIRECTS_MAX {
                    attempt.follow()
                } else {
                    attempt.stop()
                }
            }),
        }
    }
}

/// How names are looked up.
struct NameLookup(Arc<dyn Resolve>);

impl fmt::Debug for NameLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

impl HttpTransport {
    pub(super) fn new(
        url: &Url,
        timers: RequestTimers,
        extra_roots: Vec<Certificate>,
        proxies: &Proxies,
    ) -> Self {
        let plain = is_loopback(url) && url.scheme() == "http";
        let proxy = proxies.proxy_for(url).cloned();
        Self {
            config: ClientConfig {
                timers,
                extra_roots,
                is_plain_loopback: plain,
                proxy,
                names: None,
                redirects: Redirects::Returned,
            },
            pooled: OnceLock::new(),
            fresh: OnceLock::new(),
        }
    }

    /// The same, which follows redirections that stay within the origin and keep the request.
    pub(super) fn following_redirects(mut self) -> Self {
        self.config.redirects = Redirects::WithinOrigin;
        self
    }

    /// The proxy that every request takes.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.config.proxy.as_ref()
    }

    /// The client for a request on this kind of connection.
    ///
    /// # Errors
    /// TLS cannot be set up, and why.
    pub(super) fn client(&self, connection: ConnectionChoice) -> Result<&reqwest::Client, String> {
        let slot = match connection {
            ConnectionChoice::Pooled => &self.pooled,
            ConnectionChoice::Fresh => &self.fresh,
        };
        slot.get_or_init(|| self.config.build(connection)).as_ref().map_err(String::clone)
    }
}

impl ClientConfig {
    fn build(&self, connection: ConnectionChoice) -> Result<reqwest::Client, String> {
        // Whoever came first has installed the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let told = |error: reqwest::Error| format!("no TLS: {error}");
        let proxy = self.proxy.as_ref().map(Proxy::to_reqwest).transpose().map_err(told)?;
        let builder = || {
            // Which proxy to take is known already, and is not looked up again.
            let builder = self.builder(connection).no_proxy();
            proxy.iter().cloned().fold(builder, ClientBuilder::proxy)
        };
        if self.is_plain_loopback {
            return builder().tls_certs_only([]).build().map_err(told);
        }
        match builder().build() {
            Ok(client) if self.extra_roots.is_empty() => Ok(client),
            Ok(_) => builder().tls_certs_merge(self.extra_roots.clone()).build().map_err(told),
            // A host without certificates of its own, as bare containers are.
            Err(_) => {
                let own = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
                let own = own.filter_map(|root| Certificate::from_der(root).ok());
                let roots = own.chain(self.extra_roots.iter().cloned());
                builder().tls_certs_only(roots).build().map_err(told)
            }
        }
    }

    fn builder(&self, connection: ConnectionChoice) -> ClientBuilder {
        let kept = match connection {
            ConnectionChoice::Pooled => usize::MAX,
            ConnectionChoice::Fresh => 0,
        };
        // Silence, and then the probes, come to that time.
        let dead = self.timers.dead_path.max(SHORTEST_PROBING);
        let builder = reqwest::Client::builder()
            .user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")))
            // One attempt is one request: repeating is decided elsewhere.
            .retry(reqwest::retry::never())
            .redirect(self.redirects.policy())
            .connect_timeout(self.timers.connect)
            .pool_max_idle_per_host(kept)
            .pool_idle_timeout(POOL_IDLE)
            .tcp_nodelay(true)
            .tcp_keepalive(dead * 5 / 11)
            .tcp_keepalive_interval(dead * 2 / 11)
            .tcp_keepalive_retries(PROBES)
            .http2_keep_alive_interval(dead * 6 / 11)
            .http2_keep_alive_timeout(dead * 5 / 11)
            .connector_layer(DialLayer);
        let builder = match &self.names {
            Some(NameLookup(names)) => builder.dns_resolver(Arc::clone(names)),
            None => builder,
        };
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
        let builder = builder.tcp_user_timeout(dead);
        builder
    }
}

/// A client for another address than the model's, with the same rules: its proxies, its
/// certificates, one attempt for each request.
///
/// # Errors
/// It is no address, a certificate cannot be read, or TLS cannot be set up.
pub fn http_client(
    url: &str,
    timers: RequestTimers,
    ca_files: &[PathBuf],
    proxies: &Proxies,
) -> Result<reqwest::Client, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let roots = read_roots(ca_files)
        .map_err(|(file, why)| format!("{} cannot be used: {why}", file.display()))?;
    HttpTransport::new(&url, timers, roots, proxies).client(ConnectionChoice::Pooled).cloned()
}

/// A client for any page of the web, with the same rules, that keeps no connection. Names are
/// looked up by `names`, unless a proxy does that: whether one does comes with the client.
///
/// # Errors
/// A certificate cannot be read, or TLS cannot be set up.
pub fn web_client(
    url: &Url,
    timers: RequestTimers,
    ca_files: &[PathBuf],
    proxies: &Proxies,
    names: Arc<dyn Resolve>,
) -> Result<(reqwest::Client, bool), String> {
    let roots = read_roots(ca_files)
        .map_err(|(file, why)| format!("{} cannot be used: {why}", file.display()))?;
    let mut transport = HttpTransport::new(url, timers, roots, proxies);
    let is_proxied = transport.proxy().is_some();
    // The proxy itself may well be on a private network.
    transport.config.names = (!is_proxied).then_some(NameLookup(names));
    Ok((transport.client(ConnectionChoice::Fresh)?.clone(), is_proxied))
}

/// Reads certificates to trust beside the system's.
///
/// # Errors
/// The file, and what is wrong with it.
pub(super) fn read_roots(files: &[PathBuf]) -> Result<Vec<Certificate>, (PathBuf, String)> {
    let mut roots = Vec::new();
    for file in files {
        roots.extend(read_bundle(file).map_err(|reason| (file.clone(), reason))?);
    }
    Ok(roots)
}

fn read_bundle(file: &Path) -> Result<Vec<Certificate>, String> {
    let bytes = reading::read(file).map_err(|error| error.to_string())?;
    let found = Certificate::from_pem_bundle(&bytes).map_err(|error| error.to_string())?;
    if found.is_empty() { Err("it holds no PEM certificate".to_owned()) } else { Ok(found) }
}

tokio::task_local! {
    /// Set when the request that runs in this scope asks for a new connection.
    static DIALLED: Arc<AtomicBool>;
}

/// Whether a request had a connection made for it.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionMade(Arc<AtomicBool>);

impl ConnectionMade {
    /// Runs `request`, and notes whether it dials.
    ///
    /// The connector is called from within the request's own future, or not at all when an idle
    /// connection is at hand: so what is noted here is never another request's dialling.
    pub(super) async fn track<F: Future>(&self, request: F) -> F::Output {
        DIALLED.scope(Arc::clone(&self.0), request).await
    }

    pub(super) fn was_made(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy)]
struct DialLayer;

#[derive(Clone)]
struct DialService<S>(S);

impl<S> Layer<S> for DialLayer {
    type Service = DialService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DialService(inner)
    }
}

impl<S: Service<To>, To> Service<To> for DialService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, to: To) -> Self::Future {
        // Outside of a watched request there is nobody to tell.
        let _ = DIALLED.try_with(|dialled| dialled.store(true, Ordering::Relaxed));
        self.0.call(to)
    }
}
