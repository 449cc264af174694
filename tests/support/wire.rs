//! Shared by the servers of the tests: reads a whole request, and shows a certificate.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
};
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

/// An address at which no server listens, and the socket that reserves it meanwhile. A program that
/// is told the port may listen there.
pub(crate) fn dead_end() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("loopback is there");
    socket.set_reuseaddr(true).expect("its port may be shared");
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

/// A session that demands a client certificate, of any authority, and its key.
pub(crate) fn session_demanding_certificate(host: &str) -> ServerConnection {
    session_with(host, &[], Arc::new(AnyCertificate))
}

#[derive(Debug)]
struct AnyCertificate;

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
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
