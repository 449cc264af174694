//! Builds the HTTP clients: connections, certificates, proxies.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::Resolve;
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Identity, Url};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tower::util::MapFutureLayer;

use crate::json;
use crate::process::{file_reads, limit_to_raise};
use crate::recovery::ConnectionChoice;

use super::proxies::{BadProxy, Proxies, Proxy, is_loopback};
use super::server_verifier::ServerVerifier;
use super::timers::RequestTimers;

/// Number of keep-alive probes that may go unanswered.
const PROBES: u32 = 3;

/// The name of outlast in requests.
pub const USER_AGENT: &str = concat!("outlast/", env!("CARGO_PKG_VERSION"));

/// The shortest dead-path timeout: the kernel measures the time between probes in whole seconds.
pub const SHORTEST_PROBING: Duration = Duration::from_secs(11);
/// Maximum idle time of a pooled connection: servers and middleboxes commonly drop idle connections
/// after a minute.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// Maximum number of headers of a response: chains of proxies add many. Their total size is limited
/// as well, by the HTTP client.
const HEADERS_MAX: usize = 1_000;

/// Two HTTP clients: one with a connection pool, one that uses a new connection for each request.
/// Each is built on first use, since loading the certificates takes milliseconds.
#[derive(Debug)]
pub(super) struct HttpTransport {
    config: ClientConfig,
    pooled: OnceLock<Result<reqwest::Client, HttpClientError>>,
    fresh: OnceLock<Result<reqwest::Client, HttpClientError>>,
}

/// The reason why an HTTP client cannot be built.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HttpClientError {
    #[error("{0}")]
    InvalidUrl(String),
    #[error(transparent)]
    Certificate(#[from] InvalidBundle),
    #[error(transparent)]
    Proxy(#[from] BadProxy),
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// A file with certificates to trust besides the system's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaFile {
    pub path: PathBuf,
    /// The variable that names it, if one does.
    pub variable: Option<&'static str>,
}

impl From<PathBuf> for CaFile {
    fn from(path: PathBuf) -> Self {
        Self { path, variable: None }
    }
}

impl Display for CaFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.path.display())?;
        self.variable.map_or(Ok(()), |name| write!(out, " (named by {name})"))
    }
}

/// The files of the client certificate, for services that demand one, and of its key. One file may
/// hold both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    pub certificate: CaFile,
    pub key: CaFile,
}

/// The proxies of connections, and the certificates that they trust and present.
#[derive(Clone, Debug, Default)]
pub struct ConnectionTerms {
    /// PEM files with certificates to trust besides the system's.
    pub ca_files: Vec<CaFile>,
    /// The certificate for services that demand one.
    pub identity: Option<IdentityFiles>,
    pub proxies: Proxies,
}

/// A client certificate with its chain, and its key.
#[derive(Debug)]
pub(super) struct ClientIdentity {
    /// Both as PEM.
    pem: Vec<u8>,
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientIdentity {
    pub(super) fn read(files: &IdentityFiles) -> Result<Self, InvalidBundle> {
        let certificates = read_bundle(&files.certificate)?;
        let invalid = |why: &dyn Display| InvalidBundle::new(&files.key, why);
        let mut pem = read_pem(&files.key)?;
        if pem.contains(ENCRYPTED) {
            return Err(invalid(
                &"its key is encrypted, and keys with a passphrase are not supported; \
                write one without: openssl pkey -in FILE -out PLAIN",
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| invalid(&format!("it holds no PEM key: {error}")))?;
        if files.key.path != files.certificate.path {
            pem.push('\n');
            pem.push_str(&read_pem(&files.certificate)?);
        }
        Ok(Self { pem: pem.into_bytes(), certificates, key })
    }
}

/// A word of the PEM headers of encrypted keys, old and new.
const ENCRYPTED: &str = "ENCRYPTED";

/// A file of certificates that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{file} cannot be used: {why}")]
pub struct InvalidBundle {
    pub(super) file: CaFile,
    pub(super) why: String,
}

impl InvalidBundle {
    fn unreadable(file: &CaFile, error: &io::Error) -> Self {
        let advice = limit_to_raise(error).map_or(String::new(), |advice| format!("; {advice}"));
        Self::new(file, &format!("{error}{advice}"))
    }

    fn new(file: &CaFile, why: &dyn Display) -> Self {
        Self { file: file.clone(), why: why.to_string() }
    }
}

#[derive(Debug)]
struct ClientConfig {
    timers: RequestTimers,
    identity: Option<ClientIdentity>,
    extra_roots: Vec<CertificateDer<'static>>,
    /// True if the connection is plain HTTP on loopback, which needs no certificates.
    is_plain_loopback: bool,
    proxy: Result<Option<Proxy>, BadProxy>,
    /// Replaces the system's name lookup.
    names: Option<NameLookup>,
    redirects: Redirects,
}

/// The handling of redirections.
#[derive(Clone, Copy, Debug)]
enum Redirects {
    /// The redirection is returned as the response.
    Returned,
    /// A 307 or 308 within the origin is followed, keeping method and body, so that no other origin
    /// receives the request. Any other redirection is returned as the response.
    WithinOrigin,
}

/// Maximum number of redirections per request.
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
        extra_roots: Vec<CertificateDer<'static>>,
        proxies: &Proxies,
    ) -> Self {
        let plain = is_loopback(url) && url.scheme() == "http";
        let proxy = proxies.proxy_for(url);
        Self {
            config: ClientConfig {
                timers,
                identity: None,
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

    /// Returns a transport that shows this certificate to servers that demand one.
    pub(super) fn with_identity(mut self, identity: Option<ClientIdentity>) -> Self {
        self.config.identity = identity;
        self
    }

    /// Returns a transport that follows 307 and 308 redirections within the origin.
    pub(super) fn following_redirects(mut self) -> Self {
        self.config.redirects = Redirects::WithinOrigin;
        self
    }

    /// The proxy in use.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.config.proxy.as_ref().ok()?.as_ref()
    }

    /// Returns the client for this kind of connection.
    pub(super) fn client(
        &self,
        connection: ConnectionChoice,
    ) -> Result<&reqwest::Client, HttpClientError> {
        let slot = match connection {
            ConnectionChoice::Pooled => &self.pooled,
            ConnectionChoice::Fresh => &self.fresh,
        };
        slot.get_or_init(|| self.config.build(connection)).as_ref().map_err(HttpClientError::clone)
    }
}

impl ClientConfig {
    fn build(&self, connection: ConnectionChoice) -> Result<reqwest::Client, HttpClientError> {
        // An error means that the same provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls_error = |error: reqwest::Error| HttpClientError::Tls(error.to_string());
        let proxy = self.proxy.as_ref().map_err(BadProxy::clone)?.as_ref();
        let proxy = proxy
            .map(|proxy| reqwest::Proxy::all(proxy.url().clone()))
            .transpose()
            .map_err(tls_error)?;
        let builder = || {
            // The proxy was selected already; the client must not select one itself.
            let builder = self.builder(connection).no_proxy();
            proxy.iter().cloned().fold(builder, ClientBuilder::proxy)
        };
        let identity = self.identity.as_ref().map(|identity| Identity::from_pem(&identity.pem));
        let identity = identity.transpose().map_err(tls_error)?;
        let with_identity = || identity.iter().cloned().fold(builder(), ClientBuilder::identity);
        if self.is_plain_loopback {
            return builder().tls_certs_only([]).build().map_err(tls_error);
        }
        if self.extra_roots.is_empty()
            && let Ok(client) = with_identity().build()
        {
            return Ok(client);
        }
        let tls = self.tls().map_err(|error| HttpClientError::Tls(error.to_string()))?;
        builder().tls_backend_preconfigured(tls).build().map_err(tls_error)
    }

    /// TLS with the certificates that the user names, or on a host without system certificates.
    fn tls(&self) -> Result<rustls::ClientConfig, rustls::Error> {
        let verifier = Arc::new(ServerVerifier::new(&self.extra_roots)?);
        let config = rustls::ClientConfig::builder();
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(ClientIdentity { certificates, key, .. }) => {
                config.with_client_auth_cert(certificates.clone(), key.clone_key())?
            }
        };
        // The same offer as reqwest's: a server that speaks only HTTP/2 refuses the handshake.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn builder(&self, connection: ConnectionChoice) -> ClientBuilder {
        let idle_max = match connection {
            ConnectionChoice::Pooled => usize::MAX,
            ConnectionChoice::Fresh => 0,
        };
        // The idle time and the probes add up to the dead-path timeout.
        let dead = self.timers.dead_path.max(SHORTEST_PROBING);
        let builder = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            // One attempt is one request: retries are decided elsewhere.
            .retry(reqwest::retry::never())
            .redirect(self.redirects.policy())
            .connect_timeout(self.timers.connect)
            .pool_max_idle_per_host(idle_max)
            .pool_idle_timeout(POOL_IDLE)
            .tcp_nodelay(true)
            .tcp_keepalive(dead * 5 / 11)
            .tcp_keepalive_interval(dead * 2 / 11)
            .tcp_keepalive_retries(PROBES)
            .http1_max_headers(HEADERS_MAX)
            // Headers as old proxies write them, which other clients accept.
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_ignore_invalid_headers_in_responses(true)
            .connector_layer(MapFutureLayer::new(record_dial));
        let builder = match &self.names {
            Some(NameLookup(names)) => builder.dns_resolver(Arc::clone(names)),
            None => builder,
        };
        // See `ResponseBody`.
        builder.no_gzip().tcp_user_timeout(dead)
    }
}

/// Builds a client for an address other than the model's, with the same proxies and certificates
/// and without retries, which does not decompress bodies.
///
/// # Errors
/// The address is invalid, a certificate cannot be read, or TLS cannot be set up.
pub fn http_client(
    url: &str,
    timers: RequestTimers,
    terms: &ConnectionTerms,
) -> Result<reqwest::Client, HttpClientError> {
    let url = Url::parse(url).map_err(|error| HttpClientError::InvalidUrl(error.to_string()))?;
    let roots = read_roots(&terms.ca_files)?;
    let transport = HttpTransport::new(&url, timers, roots, &terms.proxies);
    let identity = terms.identity.as_ref().map(ClientIdentity::read).transpose()?;
    transport.with_identity(identity).client(ConnectionChoice::Pooled).cloned()
}

/// Builds a client for web pages, with the same rules and without a connection pool or a
/// certificate of its own. `names` resolves host names, unless a proxy does. The returned flag is
/// true if a proxy is used.
///
/// # Errors
/// A certificate cannot be read, or TLS cannot be set up.
pub fn web_client(
    url: &Url,
    timers: RequestTimers,
    terms: &ConnectionTerms,
    names: Arc<dyn Resolve>,
) -> Result<(reqwest::Client, bool), HttpClientError> {
    let roots = read_roots(&terms.ca_files)?;
    let mut transport = HttpTransport::new(url, timers, roots, &terms.proxies);
    let is_proxied = transport.proxy().is_some();
    // The proxy itself may be on a private network.
    transport.config.names = (!is_proxied).then_some(NameLookup(names));
    Ok((transport.client(ConnectionChoice::Fresh)?.clone(), is_proxied))
}

/// Reads certificates to trust besides the system's.
pub(super) fn read_roots(files: &[CaFile]) -> Result<Vec<CertificateDer<'static>>, InvalidBundle> {
    let mut roots = Vec::new();
    for file in files {
        roots.extend(read_bundle(file)?);
    }
    Ok(roots)
}

/// The largest certificate file that is read: many times that of all public authorities.
const BUNDLE_BYTES_MAX: u64 = 16 << 20;

/// Reads a PEM file, which may begin with a byte order mark, and may use the old label of
/// certificates.
fn read_pem(file: &CaFile) -> Result<String, InvalidBundle> {
    let bytes = file_reads::read_bounded(&file.path, BUNDLE_BYTES_MAX)
        .map_err(|error| InvalidBundle::unreadable(file, &error))?;
    let text = json::decode(&bytes);
    Ok(text.trim_start_matches('\u{feff}').replace("X509 CERTIFICATE-----", "CERTIFICATE-----"))
}

fn read_bundle(file: &CaFile) -> Result<Vec<CertificateDer<'static>>, InvalidBundle> {
    let invalid = |why: &dyn Display| InvalidBundle::new(file, why);
    let pem = read_pem(file)?;
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| invalid(&error))?;
    if found.is_empty() { Err(invalid(&"it holds no PEM certificate")) } else { Ok(found) }
}

tokio::task_local! {
    /// Set when the request that runs in this scope has opened a connection, or tried to.
    static DIALLED: Arc<AtomicBool>;
}

/// A flag that is set if a request opens a connection, or tries to.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionMade(Arc<AtomicBool>);

impl ConnectionMade {
    /// Runs `request`, and records whether it opens a connection.
    ///
    /// The connector runs inside the request's own future, so another request's connection is never
    /// recorded here. If an idle connection becomes available before the new one is open, the
    /// request uses that, and the new one is completed outside of this scope, for other requests.
    pub(super) async fn track<F: Future>(&self, request: F) -> F::Output {
        DIALLED.scope(Arc::clone(&self.0), request).await
    }

    pub(super) fn was_made(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Opens a connection, and sets the flag of the request that it is for at its end, once the dial
/// was polled: it is open, it failed, or it was given up with the request.
async fn record_dial<F: Future>(dial: F) -> F::Output {
    let _end = DialEnd;
    dial.await
}

struct DialEnd;

impl Drop for DialEnd {
    fn drop(&mut self) {
        // Outside of a tracked request, there is no flag.
        let _ = DIALLED.try_with(|dialled| dialled.store(true, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::net::{Ipv4Addr, SocketAddr};

    use reqwest::dns::{Addrs, Name, Resolving};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn a_lack_of_open_files_is_not_blamed_on_the_certificate_file() {
        let file = CaFile::from(PathBuf::from("ca.pem"));
        let too_many = io::Error::from_raw_os_error(nix::errno::Errno::EMFILE as i32);
        let why = InvalidBundle::unreadable(&file, &too_many).why;
        assert!(why.contains("Too many open files") && why.contains("ulimit -n"), "{why}");
    }

    /// Finds the loopback address once. Every other look-up never ends.
    #[derive(Default)]
    struct OneLookUp {
        was_asked: AtomicBool,
        asked_again: Notify,
    }

    impl Resolve for OneLookUp {
        fn resolve(&self, _name: Name) -> Resolving {
            if self.was_asked.swap(true, Ordering::Relaxed) {
                self.asked_again.notify_one();
                return Box::pin(future::pending());
            }
            let loopback: Addrs =
                Box::new([SocketAddr::from((Ipv4Addr::LOCALHOST, 0))].into_iter());
            Box::pin(future::ready(Ok(loopback)))
        }
    }

    async fn read_head(stream: &mut TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
    }

    #[tokio::test]
    async fn a_request_that_gets_an_idle_connection_while_it_opens_one_has_made_none() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let url = Url::parse(&format!("http://service.test:{port}/")).expect("a URL");
        let proxies = Proxies::default();
        let timers = RequestTimers::default();
        let mut transport = HttpTransport::new(&url, timers, Vec::new(), &proxies);
        let names = Arc::new(OneLookUp::default());
        transport.config.names = Some(NameLookup(Arc::clone(&names) as Arc<dyn Resolve>));
        // It needs no certificates.
        transport.config.is_plain_loopback = true;
        let http = transport.client(ConnectionChoice::Pooled).expect("a client");
        let [first, second] = [(); 2].map(|()| ConnectionMade::default());
        let answers = async {
            let send = || http.get(url.clone()).send();
            let both = tokio::join!(first.track(send()), second.track(send()));
            (both.0.map(drop).is_ok(), both.1.map(drop).is_ok())
        };
        let service = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            read_head(&mut stream).await;
            names.asked_again.notified().await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).await.expect("it is open");
            // The second request comes on the same connection, which the server then closes.
            read_head(&mut stream).await;
        };
        let (sent, ()) = tokio::join!(answers, service);
        assert_eq!(sent, (true, false));
        assert_eq!((first.was_made(), second.was_made()), (true, false));
    }
}
