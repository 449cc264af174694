//! Proxies: which one is taken to where, what it is told, and what its failures are called.

use std::io::{Read, Write};
use std::net::TcpListener;

use outlast::model::{ConnectionTerms, ModelClient, ModelService, Proxies};
use outlast::recovery::{ErrorBody, ErrorClass, FailureStage, Fault, classify};

use super::server::{Server, stream};
use super::{FRESH, STREAMING, ask, endpoint, recorded};
use crate::support::proxy::{HOST, Proxy, ProxyBehavior};
use crate::support::wire::{dead_end, tls};

/// `user:pass word` as the header has it.
const LOGIN: &str = "basic dxnlcjpwyxnzihdvcmq=";
const USER: &str = "user:pass%20word@";

fn proxies(variables: &[(&str, &str)]) -> Proxies {
    let value = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| (*value).to_owned())
    };
    Proxies::from_variables(value)
}

fn manners(wants: Option<&'static str>) -> ProxyBehavior {
    let answer = stream(&recorded("streams/text.sse"));
    ProxyBehavior { wants, answer, refusal: None, hold: None }
}

/// A client of a service that only the proxy at this address can reach.
fn through(scheme: &str, proxy: &str) -> ModelClient {
    let mut endpoint: ModelService = endpoint(&format!("{scheme}://{HOST}"));
    endpoint.connection.proxies = proxies(&[("ALL_PROXY", proxy)]);
    endpoint.connection.ca_files = vec![tls("proxy.pem").into()];
    ModelClient::new(endpoint).expect("the endpoint is right")
}

async fn fault(scheme: &str, proxy: &str) -> Fault {
    ask(&through(scheme, proxy), STREAMING).await.expect_err("no reply can come")
}

#[tokio::test]
async fn a_plain_request_goes_to_the_proxy_with_its_whole_address() {
    let proxy = Proxy::start(manners(Some(LOGIN)));
    let client = through("http", &format!("http://{USER}{}", proxy.address));
    ask(&client, STREAMING).await.expect("a reply");
    let [request] = &proxy.seen()[..] else { panic!("one request: {:?}", proxy.seen()) };
    assert!(request.starts_with("post http://model.test/v1/messages http/1.1\r\n"), "{request}");
    assert!(request.contains("x-api-key: "), "{request}");
}

#[tokio::test]
async fn a_secret_request_goes_through_a_tunnel_and_tells_each_its_own() {
    for asked in [STREAMING, FRESH] {
        let proxy = Proxy::start(manners(Some(LOGIN)));
        let client = through("https", &format!("http://{USER}{}", proxy.address));
        ask(&client, asked).await.expect("a reply");
        let [tunnel, inside] = &proxy.seen()[..] else { panic!("{:?}", proxy.seen()) };
        assert!(tunnel.starts_with("connect model.test:443 http/1.1\r\n"), "{tunnel}");
        assert!(!tunnel.contains("x-api-key"), "the proxy does not learn the key: {tunnel}");
        assert!(inside.starts_with("post /v1/messages http/1.1\r\n"), "{inside}");
        assert!(inside.contains("x-api-key: "), "{inside}");
        assert!(!inside.contains("proxy-authorization"), "nor the service the login: {inside}");
    }
}

#[tokio::test]
async fn a_refused_login_is_final_and_names_the_proxy_and_its_variable() {
    for scheme in ["http", "https"] {
        for (user, words) in [
            ("", "wants a user and password; put them in ALL_PROXY"),
            ("user:wrong-word@", "does not accept the user and password it was given; correct"),
        ] {
            let proxy = Proxy::start(manners(Some(LOGIN)));
            let fault = fault(scheme, &format!("http://{user}{}", proxy.address)).await;
            assert_eq!(classify(&fault).class, ErrorClass::AuthError, "{fault:?}");
            assert_eq!(fault.status(), Some(407), "{fault:?}");
            let wanted = format!("the proxy {} {words}", proxy.address);
            assert!(fault.detail().starts_with(&wanted), "{fault:?}");
            assert!(!format!("{fault:?}").contains("wrong-word"), "{fault:?}");
            assert_eq!(proxy.seen().len(), 1, "one attempt");
        }
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_a_tunnel_is_named_with_its_status() {
    for (refusal, class, status, body) in [
        ("403 Filtered", ErrorClass::AuthError, 403, ErrorBody::Portal),
        ("405 Not for tunnels", ErrorClass::InvalidRequest, 405, ErrorBody::Portal),
        ("503 No such host", ErrorClass::ServerError, 503, ErrorBody::Foreign),
        ("401 Unauthorized", ErrorClass::AuthError, 407, ErrorBody::Foreign),
    ] {
        let proxy = Proxy::start(ProxyBehavior { refusal: Some(refusal), ..manners(None) });
        let client = through("https", &format!("http://{USER}{}", proxy.address));
        let fault = ask(&client, STREAMING).await.expect_err("no tunnel");
        assert_eq!(classify(&fault).class, class, "{fault:?}");
        assert_eq!((fault.status(), fault.body), (Some(status), body), "{fault:?}");
        assert_eq!(fault.stage, FailureStage::Unsent, "{fault:?}");
        let (_, reason) = refusal.split_once(' ').expect("two words");
        let wanted = match status {
            407 => format!(
                "the proxy {} does not accept the user and password it was given; correct them in \
                 ALL_PROXY (HTTP 401: {reason})",
                proxy.address
            ),
            _ => format!(
                "the proxy {}, which ALL_PROXY names, refuses the connection: {reason}",
                proxy.address
            ),
        };
        assert!(fault.detail().starts_with(&wanted), "{fault:?}");
        let seen = proxy.seen();
        assert!(seen.len() == 2 && seen.iter().all(|request| request.contains(LOGIN)), "{seen:?}");
        let probed = client.list_models().await.expect_err("no tunnel");
        assert_eq!(probed.detail(), fault.detail());
    }
}

#[tokio::test]
async fn a_login_that_a_socks_proxy_refuses_is_final() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the client comes");
        let mut piece = [0; 1024];
        for answer in [[5, 2], [1, 1]] {
            assert!(socket.read(&mut piece).expect("a message") > 0);
            socket.write_all(&answer).expect("the client listens");
        }
        let _until_the_client_hangs_up = socket.read(&mut piece);
    });
    let fault = fault("https", &format!("socks5h://{USER}{address}")).await;
    serving.join().expect("the proxy ended well");
    assert_eq!(classify(&fault).class, ErrorClass::AuthError, "{fault:?}");
    let wanted = format!("the proxy {address} does not accept the user and password");
    assert!(fault.detail().starts_with(&wanted), "{fault:?}");
}

#[tokio::test]
async fn a_dead_proxy_is_named_beside_the_host() {
    let (_taken, address) = dead_end();
    for (scheme, port) in [("http", 80), ("https", 443)] {
        let fault = fault(scheme, &format!("http://{USER}{address}")).await;
        assert_eq!(classify(&fault).class, ErrorClass::ConnectionError);
        assert_eq!(fault.stage, FailureStage::Unsent, "{fault:?}");
        let wanted = format!("no connection to model.test:{port} through the proxy {address}: ");
        assert!(fault.detail().starts_with(&wanted), "{fault:?}");
        assert!(fault.detail().to_lowercase().contains("refused"), "{fault:?}");
        assert!(!format!("{fault:?}").contains("word"), "{fault:?}");
    }
}

#[tokio::test]
async fn a_proxy_that_looks_inside_is_trusted_by_its_certificate_alone() {
    let proxy = Proxy::start(manners(None));
    let mut endpoint = endpoint(&format!("https://{HOST}"));
    endpoint.connection.proxies = proxies(&[("https_proxy", &proxy.address.to_string())]);
    let fault = ask(&ModelClient::new(endpoint).expect("it is right"), STREAMING).await;
    let fault = fault.expect_err("the proxy's certificate is not trusted");
    assert_eq!(classify(&fault).class, ErrorClass::SslCertError, "{fault:?}");
    let wanted = format!("model.test:443 through the proxy {}: invalid peer", proxy.address);
    assert!(fault.detail().starts_with(&wanted), "{fault:?}");
}

#[tokio::test]
async fn this_machine_is_reached_without_a_proxy() {
    let server = Server::answering(stream(&recorded("streams/text.sse"))).await;
    let mut endpoint = endpoint(&server.url);
    endpoint.connection.proxies = proxies(&[("ALL_PROXY", "http://127.0.0.1:9")]);
    ask(&ModelClient::new(endpoint).expect("it is right"), STREAMING).await.expect("a reply");
}

/// Which proxy leads to `url`, under these variables.
fn proxy_for(variables: &[(&str, &str)], url: &str) -> Option<String> {
    let url = url.parse().expect("an address");
    let proxy = proxies(variables).proxy_for(&url).expect("they are right");
    proxy.map(|proxy| proxy.to_string())
}

#[test]
fn the_proxy_goes_by_scheme_and_small_letters_come_first() {
    let both = [("HTTP_PROXY", "plain:1"), ("HTTPS_PROXY", "http://me:pw@secret:2")];
    assert_eq!(proxy_for(&both, "http://h.example/x").as_deref(), Some("plain:1"));
    assert_eq!(proxy_for(&both, "https://h.example/x").as_deref(), Some("secret:2"));
    let all = [("ALL_PROXY", "socks5h://all"), ("https_proxy", "small:1"), ("HTTPS_PROXY", "x:2")];
    assert_eq!(proxy_for(&all, "https://h.example").as_deref(), Some("small:1"));
    assert_eq!(proxy_for(&all, "http://h.example").as_deref(), Some("all"));
    assert_eq!(proxy_for(&[("HTTP_PROXY", " ")], "http://h.example"), None);
    let quoted = proxy_for(&[("HTTP_PROXY", "\"http://plain:1\"")], "http://h.example");
    assert_eq!(quoted.as_deref(), Some("plain:1"));
    let cgi = [("HTTP_PROXY", "plain:1"), ("REQUEST_METHOD", "GET")];
    assert_eq!(proxy_for(&cgi, "http://h.example"), None, "a client's header could say that");
}

#[test]
fn exceptions_are_hosts_domains_addresses_and_networks() {
    for (exceptions, url, direct) in [
        ("h.example", "https://h.example", true),
        ("h.example", "https://H.EXAMPLE:8443", true),
        ("h.example", "https://a.h.example", true),
        (".h.example", "https://a.h.example", true),
        ("*.h.example", "https://a.h.example", true),
        ("h.example", "https://ah.example", false),
        ("a.h.example", "https://h.example", false),
        ("other, h.example", "https://h.example", true),
        ("other h.example", "https://h.example", true),
        ("h.example:443", "https://h.example", true),
        ("h.example:8443", "https://h.example", false),
        ("*", "https://h.example", true),
        ("10.0.0.1", "https://10.0.0.1", true),
        ("0.0.1", "https://10.0.0.1", false),
        ("10.0.0.0/8", "https://10.9.8.7", true),
        ("10.0.0.0/8", "https://11.0.0.1", false),
        ("0.0.0.0/0", "https://11.0.0.1", true),
        ("fd00::/8", "https://[fd12::1]", true),
        ("[fd12::1]:443", "https://[fd12::1]", true),
        ("fd12::1", "https://[fd12::1]", true),
        ("fd00::/8", "https://[fe12::1]", false),
        ("h.example.", "https://h.example", true),
        ("h.example", "https://a.h.example.", true),
        ("", "https://h.example", false),
        (".", "https://h.example", false),
        (",.,", "https://h.example", false),
    ] {
        let variables = [("HTTPS_PROXY", "proxy:1"), ("NO_PROXY", exceptions)];
        assert_eq!(proxy_for(&variables, url).is_none(), direct, "{exceptions:?} {url}");
    }
    for url in ["https://localhost:1", "https://127.1.2.3", "https://[::1]"] {
        assert_eq!(proxy_for(&[("ALL_PROXY", "proxy:1")], url), None, "{url}");
    }
}

#[test]
fn a_variable_that_names_no_proxy_is_refused_without_quoting_it_where_it_is_used() {
    let service = endpoint(&format!("https://{HOST}"));
    for value in ["ftp://me:hush@h:1", "http://", "http://h:port", "http://me:hush@h h"] {
        for (variables, is_used) in [
            (vec![("HTTPS_PROXY", value)], true),
            (vec![("ALL_PROXY", value), ("HTTP_PROXY", "proxy:1")], true),
            (vec![("ALL_PROXY", value), ("HTTPS_PROXY", "proxy:1")], false),
            (vec![("HTTP_PROXY", value)], false),
            (vec![("ALL_PROXY", value), ("NO_PROXY", "*")], false),
        ] {
            let proxies = proxies(&variables);
            assert!(!format!("{proxies:?}").contains("hush"), "{proxies:?}");
            let is_secret = proxies.secrets().contains(&"hush".to_owned());
            assert_eq!(is_secret, value.contains("hush") && variables.len() < 3, "{value}");
            let client = ModelClient::new(ModelService {
                connection: ConnectionTerms { proxies, ..ConnectionTerms::default() },
                ..service.clone()
            });
            let error = client.err().map(|error| error.to_string());
            assert_eq!(error.is_some(), is_used, "{variables:?}: {error:?}");
            let error = error.unwrap_or_default();
            assert!(!is_used || error.starts_with("the variable "), "{error}");
            assert!(!is_used || error.contains("_PROXY names no proxy: "), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }
}

/// Desktops write it so.
#[test]
fn a_socks_proxy_without_a_version_is_one_of_version_5_that_resolves_names() {
    let url = format!("https://{HOST}").parse().expect("an address");
    for (value, wanted) in [
        ("socks://127.0.0.1:1080/", "socks5h://127.0.0.1:1080/"),
        ("SOCKS://me:pw@h", "socks5h://me:pw@h"),
    ] {
        let proxy = proxies(&[("all_proxy", value)]).proxy_for(&url);
        let proxy = proxy.expect("it is right").expect("it applies");
        assert_eq!(proxy.url().as_str(), wanted);
    }
}
