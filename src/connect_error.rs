//! Detects causes of failed HTTP connections that no retry removes: TLS, or a proxy. For the
//! services of models and for MCP servers.

use std::error::Error;
use std::io;
use std::iter::successors;

use rustls::{AlertDescription as Alert, Error as Tls, InvalidMessage};

/// The reason why no connection is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectRefusal {
    /// The certificate of the server is not accepted.
    Certificate(String),
    /// The server refuses the TLS handshake, or does not speak TLS.
    Handshake(String),
    /// The proxy demands a login, or a different one.
    ProxyLogin,
    /// The proxy refuses the connection, for a reason that the error does not contain.
    ProxyTunnel,
}

impl ConnectRefusal {
    /// Reads the error of a request. `None`: the cause may be temporary, or is a different one.
    pub fn of(error: &reqwest::Error) -> Option<Self> {
        let is_connect = error.is_connect();
        let mut tls = causes(error).filter_map(|cause| cause.downcast_ref::<Tls>());
        tls.find_map(|cause| tls_refusal(cause, is_connect))
            .or_else(|| is_connect.then(|| proxy_refusal(error)).flatten())
    }
}

fn tls_refusal(error: &Tls, is_connect: bool) -> Option<ConnectRefusal> {
    let is_certificate = matches!(
        error,
        Tls::InvalidCertificate(_)
            | Tls::NoCertificatesPresented
            | Tls::InvalidCertRevocationList(_)
    );
    if is_certificate {
        return Some(ConnectRefusal::Certificate(error.to_string()));
    }
    let why = if let Tls::AlertReceived(alert) = error {
        alert_meaning(*alert, is_connect)?
    } else if is_connect && matches!(error, Tls::PeerIncompatible(_)) {
        NO_COMMON_VERSION
    } else if is_connect && matches!(error, Tls::InvalidMessage(InvalidMessage::InvalidContentType))
    {
        return Some(ConnectRefusal::Handshake(NO_TLS.to_owned()));
    } else {
        return None;
    };
    Some(ConnectRefusal::Handshake(format!("{why} ({error})")))
}

const NO_TLS: &str = "the server speaks no TLS there: plain HTTP, or another port?";
const NO_COMMON_VERSION: &str = "the server has no version or cipher of TLS 1.2 or 1.3 in common";

/// The meaning of an alert, unless it may be temporary. In TLS 1.3 the server judges the
/// certificate of a client after the handshake.
fn alert_meaning(alert: Alert, is_connect: bool) -> Option<&'static str> {
    let is_about_certificate = matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
    );
    if alert == Alert::CertificateRequired {
        Some("the server demands a client certificate (CLAUDE_CODE_CLIENT_CERT)")
    } else if is_about_certificate {
        Some("the server does not accept the client certificate, or demands one")
    } else if is_connect && alert == Alert::HandshakeFailure {
        Some("the server refuses the TLS handshake; it may demand a client certificate")
    } else if is_connect && matches!(alert, Alert::ProtocolVersion | Alert::InsufficientSecurity) {
        Some(NO_COMMON_VERSION)
    } else {
        None
    }
}

/// The HTTP client's error text for a refused tunnel. It has no error code.
pub const REFUSED_TUNNEL: &str = "tunnel error: unsuccessful";

/// Reads the errors of tunnels and of SOCKS, which have no codes.
fn proxy_refusal(error: &reqwest::Error) -> Option<ConnectRefusal> {
    const LOGIN: [&str; 4] = [
        "proxy authorization required",
        "credentials not accepted",
        "server does not support user/pass authentication",
        "server implements authentication incorrectly",
    ];
    let has = |phrase: &str| causes(error).any(|cause| cause.to_string().contains(phrase));
    if LOGIN.into_iter().any(has) {
        Some(ConnectRefusal::ProxyLogin)
    } else {
        has(REFUSED_TUNNEL).then_some(ConnectRefusal::ProxyTunnel)
    }
}

/// The error and all its sources. The inner error of an [`io::Error`] is included, which its
/// `source` would skip.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let beneath = |error: &&'a (dyn Error + 'static)| -> Option<&'a (dyn Error + 'static)> {
        let error: &'a (dyn Error + 'static) = *error;
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    };
    successors(Some(error), beneath)
}
