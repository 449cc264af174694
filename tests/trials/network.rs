//! Corporate proxies and certificates.

use std::sync::mpsc::{Sender, channel};

use serde_json::Value;

use crate::support::proxy::{HOST, Proxy, ProxyBehavior};
use crate::support::wire::{dead_end, tls};
use crate::support::{FinishedProcess, RunBuilder, RunningProcess, with_time_limit};

const LOGIN: &str = "basic bmlnahq6ahvzac1odxno";
const SECRET: &str = "hush-hush";

/// A whole stream in one piece, as a proxy hands it on that has kept it to look inside.
fn answer() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/streams/text.sse");
    let body = std::fs::read(path).expect("it is recorded");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nvia: 1.1 proxy\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

fn proxy(wants: Option<&'static str>) -> Proxy {
    Proxy::start(ProxyBehavior { wants, answer: answer(), refusal: None, hold: None })
}

/// A proxy that keeps every answer until it is told to go on.
fn holding() -> (Proxy, Sender<()>) {
    let (go_on, hold) = channel();
    (
        Proxy::start(ProxyBehavior {
            wants: None,
            answer: answer(),
            refusal: None,
            hold: Some(hold),
        }),
        go_on,
    )
}

/// A run that reaches its service only through the proxy.
fn trial(proxy: &Proxy, login: &str) -> RunBuilder {
    RunBuilder::at(&format!("https://{HOST}"))
        .env("HTTPS_PROXY", &format!("http://{login}{}", proxy.address))
        .args(["--output-format", "json"])
}

fn authority() -> String {
    tls("proxy.pem").display().to_string()
}

#[track_caller]
fn failed(ended: &FinishedProcess, code: i32, class: &str) -> String {
    let result = ended.result();
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(result["api_error_class"], class, "{ended:?}");
    assert!(!format!("{ended:?}").contains(SECRET), "{ended:?}");
    let [Value::String(line)] = &result["errors"].as_array().expect("a list")[..] else {
        panic!("one line: {result}")
    };
    line.clone()
}

/// Every way to name the certificate of a proxy that looks inside.
#[tokio::test]
async fn an_intercepting_proxy_is_trusted_when_its_certificate_is_given() {
    // With the last, the system has no certificates.
    for way in ["--ca-file", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "settings", "SSL_CERT_DIR"] {
        let proxy = proxy(Some(LOGIN));
        let trial = trial(&proxy, "night:hush-hush@");
        let env = serde_json::json!({ "env": { "SSL_CERT_FILE": authority() } }).to_string();
        let trial = match way {
            "--ca-file" => trial.args([way, &authority()]),
            "settings" => trial.args(["--settings", &env]),
            "SSL_CERT_DIR" => trial.env(way, "/nonesuch").args(["--ca-file", &authority()]),
            _ => trial.env(way, &authority()),
        };
        let ended = trial.args(["Say hello."]).run().await;
        assert_eq!(ended.code, Some(0), "{way}: {ended:?}");
        assert_eq!(ended.result()["terminal_reason"], "completed");
        assert!(!format!("{ended:?}").contains(SECRET), "{ended:?}");
        let seen = proxy.seen();
        assert!(seen[0].starts_with("connect model.test:443"), "{seen:?}");
        assert!(seen[1].contains("x-api-key: test-key-0123456789"), "{seen:?}");
    }
}

/// The environment of outlast itself may stand in its settings.
#[tokio::test]
async fn proxy_settings_are_used() {
    let proxy = proxy(None);
    let env = serde_json::json!({ "env": { "https_proxy": proxy.address.to_string() } });
    let ended = RunBuilder::at(&format!("https://{HOST}"))
        .args(["--output-format=json", "--ca-file", &authority()])
        .args(["--settings", &env.to_string(), "Say hello."])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Such proxies hand a stream on when it has ended. Until then there is silence, and heartbeats.
#[tokio::test]
async fn a_stream_buffered_by_a_proxy_is_waited_for_with_heartbeats() {
    let (proxy, go_on) = holding();
    let settings = r#"{"heartbeatInterval": 0.2}"#;
    let mut run: RunningProcess = trial(&proxy, "")
        .args(["--ca-file", &authority(), "--settings", settings, "Say hello."])
        .start();
    run.wait_for_stderr("to answer, ").await;
    run.heard.clear();
    run.wait_for_stderr("to answer, ").await;
    go_on.send(()).expect("the proxy still holds it");
    let ended = run.end().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(result["recovery"]["requests"], 1, "waited for, not asked again: {result}");
    assert!(ended.stderr.contains("waiting for claude-sonnet-5-5 to answer"), "{ended:?}");
}

#[tokio::test]
async fn an_untrusted_certificate_ends_the_run_and_names_its_issuer() {
    let proxy = proxy(None);
    let ended = trial(&proxy, "").args(["Say hello."]).run().await;
    let line = failed(&ended, 1, "ssl_cert_error");
    let way = format!("model.test:443 through the proxy {}", proxy.address);
    for words in [way.as_str(), "UnknownIssuer", "--ca-file"] {
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(ended.result()["recovery"]["requests"], 1);
}

/// A machine without certificates of its own, as bare containers are, has those of the binary.
#[tokio::test]
async fn without_a_system_store_built_in_and_extra_certificates_are_used() {
    let empty = tempfile::tempdir().expect("a scratch folder");
    let bare =
        |proxy: &Proxy| trial(proxy, "").env("SSL_CERT_DIR", &empty.path().display().to_string());
    let ended = bare(&proxy(None)).args(["Say hello."]).run().await;
    let line = failed(&ended, 1, "ssl_cert_error");
    assert!(line.contains("UnknownIssuer"), "TLS works, and does not know the proxy: {line}");
    let ended = bare(&proxy(None)).args(["--ca-file", &authority(), "Say hello."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn rejected_proxy_credentials_are_final_and_name_the_setting() {
    for (login, words) in [("", "wants a user"), ("night:hush-hush2@", "does not accept the user")]
    {
        let proxy = proxy(Some(LOGIN));
        let ended =
            trial(&proxy, login).args(["--ca-file", &authority(), "Say hello."]).run().await;
        let line = failed(&ended, 77, "auth_error");
        let address = format!("the proxy {}", proxy.address);
        for words in ["a proxy on the way", "HTTP 407", &address, words, "HTTPS_PROXY"] {
            assert!(line.contains(words), "{line}");
        }
        assert_eq!(proxy.seen().len(), 1, "one attempt: {:?}", proxy.seen());
    }
}

/// The credential of the service has nothing to do with it.
#[tokio::test]
async fn a_proxy_that_denies_a_host_is_named_as_the_cause() {
    let refusal = Some("403 Filtered");
    let proxy = Proxy::start(ProxyBehavior { wants: None, answer: answer(), refusal, hold: None });
    let ended = trial(&proxy, "").args(["--max-retries=0", "Say hello."]).run().await;
    let line = failed(&ended, 77, "auth_error");
    let address = format!("the proxy {}, which HTTPS_PROXY names", proxy.address);
    for words in ["a proxy on the way refused the request", &address, "Filtered"] {
        assert!(line.contains(words), "{line}");
    }
    assert!(!line.contains("credential"), "{line}");
}

#[tokio::test]
async fn an_unreachable_proxy_is_named() {
    let (_taken, address) = dead_end();
    let ended = RunBuilder::at(&format!("https://{HOST}"))
        .env("HTTPS_PROXY", &format!("http://night:hush-hush@{address}"))
        .args(["--output-format=json", "--max-retries=1", "Say hello."]);
    let ended = with_time_limit("the end", ended.run()).await;
    let line = failed(&ended, 75, "connection_error");
    assert!(line.contains(&format!("model.test:443 through the proxy {address}")), "{line}");
}

#[tokio::test]
async fn proxy_and_certificate_mistakes_are_reported_before_any_request() {
    let proxy = proxy(None);
    for (name, value, words) in [
        ("HTTPS_PROXY", "ftp://night:hush-hush@h", "the variable HTTPS_PROXY names no proxy"),
        (
            "SSL_CERT_FILE",
            "/nonesuch.pem",
            "certificate file /nonesuch.pem (named by SSL_CERT_FILE): No such",
        ),
        ("NODE_EXTRA_CA_CERTS", "/dev/null", "it holds no PEM certificate"),
        ("SSL_CERT_FILE", "/dev/zero", "it is larger than 16384 kB"),
    ] {
        let ended = trial(&proxy, "").env(name, value).args(["Say hello."]).run().await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words) && ended.stderr.lines().count() == 1, "{ended:?}");
        assert!(!format!("{ended:?}").contains(SECRET), "{ended:?}");
    }
    // Node.js only warns.
    for unreadable in ["/nonesuch.pem", "/tmp"] {
        let ended = RunBuilder::bare(&format!("https://{HOST}"))
            .env("NODE_EXTRA_CA_CERTS", unreadable)
            .args(["config", "--json"])
            .run()
            .await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let warning = format!("NODE_EXTRA_CA_CERTS: {unreadable} cannot be read");
        assert!(ended.stdout.contains(&warning), "{ended:?}");
    }
    let ended = trial(&proxy, "").args(["--ca-file=gone.pem", "Say hello."]).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("gone.pem"), "{ended:?}");
    assert_eq!(proxy.seen().len(), 0);
}
