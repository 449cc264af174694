//! TLS certificate verification and additional authorities.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread::JoinHandle;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use outlast::model::{CaFile, IdentityFiles, ModelClient, ModelService};
use outlast::recovery::{ErrorClass, FailureStage, ModelCall, classify};
use rustls::{ServerConnection, StreamOwned};

use super::server::stream;
use super::{FRESH, STREAMING, ask, data, endpoint, recorded};
use crate::support::wire::{session_as, session_demanding_certificate, session_offering};

/// Serves one TLS connection, whether or not a request comes over it.
pub(super) fn serve_once(reply: Vec<u8>) -> (String, JoinHandle<()>) {
    serve_session(session_as("localhost"), reply)
}

fn serve_session(session: ServerConnection, reply: Vec<u8>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = listener.local_addr().expect("bound").port();
    let serving = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("the client comes");
        let mut tls = StreamOwned::new(session, socket);
        let mut request = vec![0; 64 * 1024];
        if tls.read(&mut request).is_ok_and(|count| count > 0) {
            let _ = tls.write_all(&reply);
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    (format!("https://localhost:{port}"), serving)
}

async fn class_of(
    asked: ModelCall,
    set: fn(&mut ModelService),
) -> Option<(ErrorClass, FailureStage)> {
    let (url, serving) = serve_once(stream(&recorded("streams/text.sse")));
    let mut endpoint = endpoint(&url);
    set(&mut endpoint);
    let result = ask(&ModelClient::new(endpoint).expect("the endpoint is right"), asked).await;
    serving.join().expect("the server ended well");
    result.err().map(|fault| (classify(&fault).class, fault.stage))
}

fn trust_the_test_authority(endpoint: &mut ModelService) {
    endpoint.connection.ca_files = vec![data("tls/authority.pem").into()];
}

#[tokio::test]
async fn an_unknown_authority_is_a_certificate_error() {
    for asked in [STREAMING, FRESH] {
        let expected = (ErrorClass::SslCertError, FailureStage::Unsent);
        assert_eq!(class_of(asked, |_| {}).await, Some(expected));
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_a_certificate_error() {
    let expected = (ErrorClass::SslCertError, FailureStage::Unsent);
    let found = class_of(STREAMING, |endpoint| {
        trust_the_test_authority(endpoint);
        endpoint.base_url = endpoint.base_url.replace("localhost", "[::ffff:127.0.0.1]");
    });
    assert_eq!(found.await, Some(expected));
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_beside_the_others() {
    for asked in [STREAMING, FRESH] {
        assert_eq!(class_of(asked, trust_the_test_authority).await, None);
    }
}

/// A self-signed certificate is one of an authority, which may not serve. The user names it.
#[tokio::test]
async fn a_server_is_trusted_by_its_own_certificate_for_its_own_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = BASE64_STANDARD.encode(std::fs::read(data("tls/self-signed.der")).expect("a file"));
    let path = folder.path().join("own.pem");
    // As editors and older programs write it.
    let label = "X509 CERTIFICATE";
    let pem = format!("\u{feff}-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
    std::fs::write(&path, pem).expect("written");
    for (host, ca_file, works) in [
        ("localhost", path.clone(), true),
        ("[::ffff:127.0.0.1]", path, false),
        ("localhost", data("tls/authority.pem"), false),
    ] {
        let session = session_as("self-signed");
        let (url, serving) = serve_session(session, stream(&recorded("streams/text.sse")));
        let mut endpoint = endpoint(&url.replace("localhost", host));
        endpoint.connection.ca_files = vec![ca_file.clone().into()];
        let client = ModelClient::new(endpoint).expect("the endpoint is right");
        let class = ask(&client, STREAMING).await.err().map(|fault| classify(&fault).class);
        serving.join().expect("the server ended well");
        let wanted = (!works).then_some(ErrorClass::SslCertError);
        assert_eq!(class, wanted, "{host} {ca_file:?}");
    }
}

#[tokio::test]
async fn a_server_that_demands_a_client_certificate_gets_that_of_the_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let pem = |label: &str, name: &str| {
        let text = BASE64_STANDARD.encode(std::fs::read(data(name)).expect("a file"));
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    };
    let certificate = pem("CERTIFICATE", "tls/localhost.der");
    let key = pem("PRIVATE KEY", "tls/localhost.key.der");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        CaFile::from(path)
    };
    let both = write("both.pem", &(certificate.clone() + &key));
    let (certificate, key) = (write("one.pem", &certificate), write("one.key", &key));
    let encrypted = write("encrypted.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n");
    let files = |certificate: &CaFile, key: &CaFile| {
        Some(IdentityFiles { certificate: certificate.clone(), key: key.clone() })
    };
    let client = |url: &str, identity: Option<IdentityFiles>| {
        let mut endpoint = endpoint(url);
        trust_the_test_authority(&mut endpoint);
        endpoint.connection.identity = identity;
        ModelClient::new(endpoint)
    };
    for (identity, works) in
        [(files(&certificate, &key), true), (files(&both, &both), true), (None, false)]
    {
        let session = session_demanding_certificate("localhost");
        let (url, serving) = serve_session(session, stream(&recorded("streams/text.sse")));
        let answer = ask(&client(&url, identity).expect("the endpoint is right"), STREAMING).await;
        serving.join().expect("the server ended well");
        assert_eq!(answer.is_ok(), works, "{:?}", answer.err());
        let hint = "demands a client certificate (CLAUDE_CODE_CLIENT_CERT)";
        assert!(answer.err().is_none_or(|fault| fault.detail().contains(hint)));
    }
    for (key, why) in [(&encrypted, "encrypted"), (&certificate, "holds no PEM key")] {
        let error = client("https://localhost:1", files(&certificate, key)).expect_err("unusable");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Answers the first message of a client with `answer`, and reads until it hangs up.
fn serve_bytes(answer: Vec<u8>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = listener.local_addr().expect("bound").port();
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the client comes");
        let mut piece = [0; 8 * 1024];
        assert!(socket.read(&mut piece).expect("a message") > 0);
        socket.write_all(&answer).expect("the client listens");
        let _ = socket.shutdown(Shutdown::Write);
        while socket.read(&mut piece).is_ok_and(|count| count > 0) {}
    });
    (format!("https://localhost:{port}"), serving)
}

#[tokio::test]
async fn a_handshake_that_no_retry_mends_is_told_from_a_broken_connection() {
    let alert = |code: u8| vec![21, 3, 3, 0, 2, 2, code];
    let final_class = ErrorClass::SslCertError;
    for (answer, class, words) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), final_class, "speaks no TLS there"),
        (b"SSH-2.0-server\r\n".to_vec(), final_class, "speaks no TLS there"),
        (alert(40), final_class, "it may demand a client certificate"),
        (alert(116), final_class, "demands a client certificate (CLAUDE_CODE_CLIENT_CERT)"),
        (alert(42), final_class, "does not accept the client certificate, or demands one"),
        (alert(48), final_class, "does not accept the client certificate, or demands one"),
        (alert(70), final_class, "no version or cipher of TLS 1.2 or 1.3 in common"),
        (alert(71), final_class, "no version or cipher of TLS 1.2 or 1.3 in common"),
        (alert(80), ErrorClass::ConnectionError, "InternalError"),
        (Vec::new(), ErrorClass::ConnectionError, "no connection to localhost"),
    ] {
        let (url, serving) = serve_bytes(answer);
        let client = ModelClient::new(endpoint(&url)).expect("the endpoint is right");
        let fault = ask(&client, STREAMING).await.expect_err("no handshake");
        serving.join().expect("the server ended well");
        assert_eq!(classify(&fault).class, class, "{fault:?}");
        assert_eq!(fault.stage, FailureStage::Unsent, "{fault:?}");
        assert!(fault.detail().contains(words), "{words}: {fault:?}");
    }
}

/// No retry changes what the server accepts.
#[tokio::test]
async fn a_tls_server_that_accepts_only_http_2_is_named_at_once() {
    let (url, serving) = serve_session(session_offering("localhost", &["h2"]), Vec::new());
    let mut endpoint = endpoint(&url);
    trust_the_test_authority(&mut endpoint);
    let client = ModelClient::new(endpoint).expect("the endpoint is right");
    let fault = ask(&client, STREAMING).await.expect_err("no common protocol");
    serving.join().expect("the server ended well");
    assert_eq!(classify(&fault).class, ErrorClass::InvalidRequest, "{fault:?}");
    assert!(fault.detail().contains("speaks only HTTP/2"), "{fault:?}");
}
