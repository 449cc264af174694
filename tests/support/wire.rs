//! What every server of the tests does: reads a request whole, and shows a certificate.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

/// Head and body of the next request. `None`: the client hung up before it was whole.
pub(crate) async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.split_once("content-length: ");
            let length = length.and_then(|(_, length)| length.lines().next());
            let length: usize = length.unwrap_or("0").parse().ok()?;
            if body.len() >= length {
                return Some(text.into_owned());
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// An address at which no server listens, and the socket that reserves it meanwhile.
pub(crate) fn dead_end() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("loopback is there");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = socket.local_addr().expect("bound");
    (socket, address)
}

/// A file of the tests' own authority.
pub(crate) fn tls(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

/// A session of a server that claims to be `host`. The key in `tests/data/tls` opens nothing else.
pub(crate) fn session_as(host: &str) -> ServerConnection {
    session_offering(host, &[])
}

/// The same, with the application protocols that it accepts, if it names any.
pub(crate) fn session_offering(host: &str, protocols: &[&str]) -> ServerConnection {
    session_with(host, protocols, WebPkiClientVerifier::no_client_auth())
}

/// A session that demands a client certificate of the tests' own authority.
pub(crate) fn session_demanding_certificate(host: &str) -> ServerConnection {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(tls("authority.pem")).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    session_with(host, &[], verifier.expect("it has an authority"))
}

fn session_with(
    host: &str,
    protocols: &[&str],
    clients: Arc<dyn ClientCertVerifier>,
) -> ServerConnection {
    let file = |end| std::fs::read(tls(&format!("{host}.{end}"))).expect("the file is there");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(file("key.der")).expect("a key");
    let chain = vec![CertificateDer::from(file("der"))];
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks them")
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .expect("they belong together");
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    ServerConnection::new(Arc::new(config)).expect("the settings are right")
}
