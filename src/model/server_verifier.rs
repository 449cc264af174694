//! Verifies certificates of servers where the user names certificates to trust.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use rustls_platform_verifier::Verifier;

/// Trusts the authorities of the system, those that the user names, and a server whose own
/// certificate is one of the named ones: a self-signed certificate is often marked as one of an
/// authority, which a server may not use otherwise.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    named: Vec<CertificateDer<'static>>,
    chains: Arc<dyn ServerCertVerifier>,
}

impl ServerVerifier {
    /// On a host without system authorities, such as a minimal container, uses the authorities that
    /// are part of this program.
    pub(super) fn new(named: &[CertificateDer<'static>]) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        // Tried without the named certificates: with them, it succeeds without system authorities.
        let chains: Arc<dyn ServerCertVerifier> = match Verifier::new(Arc::clone(&provider)) {
            Ok(_) => Arc::new(Verifier::new_with_extra_roots(named.iter().cloned(), provider)?),
            Err(_) => of_program(named, provider)?,
        };
        Ok(Self { named: named.to_vec(), chains })
    }
}

fn of_program(
    named: &[CertificateDer<'static>],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in named {
        roots.add(root.clone())?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| Error::Other(OtherError(Arc::new(error))))
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (name, stapled) = (server_name, ocsp_response);
        let result = self.chains.verify_server_cert(end_entity, intermediates, name, stapled, now);
        // The dates are checked first, so these errors are only about the issuer and the usage.
        let is_about_issuer = matches!(
            result,
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_)
            ))
        );
        if is_about_issuer && self.named.contains(end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        result
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
