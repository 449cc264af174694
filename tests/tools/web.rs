//! Fetching pages from working and faulty servers.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use outlast::model::{ConnectionTerms, Proxies, RequestTimers, web_client};
use outlast::tools::{
    DomainLists, Effect, Egress, EgressOptions, FetchSettings, MakeClient, PermissionMode,
    SandboxMode, ToolOutcome, ToolRefusal, ToolSettings, WebClient, WebSettings,
};
use outlast::types::Callback;
use rustls::StreamOwned;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, assert_fails_with, call, text};
use super::web_server::{Answer, Site, page, response};
use crate::support::wire::session_as;

/// Time limit for a page that arrives.
pub(crate) const LONG: Duration = Duration::from_secs(50);
/// And one that is not.
const SHORT: Duration = Duration::from_secs(3);

pub(crate) fn web(timeout: Duration, private_hosts: &[&str]) -> WebSettings {
    web_by(Proxies::default(), timeout, private_hosts)
}

fn web_by(proxies: Proxies, timeout: Duration, private_hosts: &[&str]) -> WebSettings {
    let terms = ConnectionTerms { proxies, ..ConnectionTerms::default() };
    let client: MakeClient = Callback(Arc::new(move |url, names| {
        let made = web_client(url, RequestTimers::default(), &terms, names);
        made.map(|(http, is_proxied)| WebClient { http, is_proxied }).map_err(Into::into)
    }));
    let private_hosts = private_hosts.iter().map(ToString::to_string).collect();
    WebSettings { fetch: FetchSettings { timeout, private_hosts }, client }
}

/// Everything is allowed, and this machine may be fetched from.
fn bench() -> Bench {
    bench_with(LONG, &["127.0.0.1"])
}

pub(crate) fn bench_with(timeout: Duration, private_hosts: &[&str]) -> Bench {
    Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.web = Some(web(timeout, private_hosts));
    })
}

async fn fetch(bench: &Bench, url: &str) -> ToolOutcome {
    bench.run("WebFetch", json!({ "url": url, "prompt": "what is it?" })).await
}

#[tokio::test]
async fn a_fetched_page_becomes_markdown_with_a_warning_and_sends_no_secrets() {
    let html = "<html><head><title>Doc</title></head><body><h1>Hi</h1>\
                <p>A <a href='/x'>link</a>.</p><script>steal()</script></body></html>";
    let site = Site::start(move |_| page("text/html\r\nset-cookie: id=1", html)).await;
    let bench = bench();
    let url = site.url("/a?b#c");
    let outcome = fetch(&bench, &url).await;
    assert!(!outcome.is_error, "{outcome:?}");
    let shown = text(&outcome);
    for part in ["HTTP 200", "Title: Doc", "untrusted content", "# Hi", "A [link](/x)."] {
        assert!(shown.contains(part), "no {part:?} in:\n{shown}");
    }
    assert!(!shown.contains("steal"), "{shown}");
    assert_eq!(outcome.detail["code"], 200);
    fetch(&bench, &url).await;
    let seen = site.seen();
    assert_eq!(seen.len(), 2);
    for request in seen {
        let request = request.to_ascii_lowercase();
        assert!(request.starts_with("get /a?b http/1.1"), "{request}");
        assert!(request.contains("user-agent: outlast/"), "{request}");
        for name in ["cookie", "authorization", "x-api-key", "referer"] {
            assert!(!request.contains(&format!("{name}:")), "{request}");
        }
    }
}

#[tokio::test]
async fn private_addresses_are_not_fetched_unless_allowed() {
    let site = Site::start(|_| page("text/plain", "inside")).await;
    let port = site.port();
    let guarded = bench_with(LONG, &["elsewhere.example"]);
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
    {
        let outcome = fetch(&guarded, &format!("http://{host}:{port}/")).await;
        assert_fails_with(&outcome, "webFetchPrivateHosts");
    }
    assert!(site.seen().is_empty(), "{:?}", site.seen());
    let open = bench_with(LONG, &["localhost"]);
    let outcome = fetch(&open, &format!("http://localhost:{port}/")).await;
    assert!(text(&outcome).contains("inside"), "{outcome:?}");
    assert_fails_with(&fetch(&open, &site.url("/")).await, "webFetchPrivateHosts");
    assert_eq!(site.seen().len(), 1);
}

#[tokio::test]
async fn behind_a_proxy_only_literal_private_addresses_are_refused() {
    let proxy = Site::start(|_| page("text/plain", "by proxy")).await;
    let named = proxy.url("/");
    let read = |name: &str| (name == "http_proxy").then(|| named.clone());
    let proxies = Proxies::from_variables(read);
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.web = Some(web_by(proxies, LONG, &[]));
    });
    let outcome = fetch(&bench, "http://docs.example/a").await;
    assert!(text(&outcome).ends_with("by proxy"), "{outcome:?}");
    for host in ["10.0.0.7", "169.254.169.254", "0xa9fea9fe", "x.localhost", "localhost."] {
        assert_fails_with(&fetch(&bench, &format!("http://{host}/")).await, "webFetchPrivateHosts");
    }
    assert_eq!(proxy.seen().len(), 1);
    assert!(proxy.seen()[0].starts_with("GET http://docs.example/a HTTP/1.1"));
}

#[tokio::test]
async fn a_denied_address_is_not_fetched_by_a_name_that_leads_to_it() {
    let site = Site::start(|_| page("text/plain", "reached")).await;
    let url = site.url("/").replace("127.0.0.1", "localhost");
    let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    for (denied, is_reached) in [("127.0.0.1", false), ("192.0.2.7", true)] {
        let lists = DomainLists::parse(std::slice::from_ref(&host), &[denied.to_owned()]);
        let egress = Egress::new(EgressOptions::new(lists.expect("good lists")));
        let bench = Bench::with(|settings| {
            settings.permissions.mode = PermissionMode::BypassPermissions;
            settings.sandbox.mode = SandboxMode::Off;
            settings.sandbox.egress = Some(egress);
            settings.web = Some(web(LONG, &["localhost"]));
        });
        let outcome = fetch(&bench, &url).await;
        if is_reached {
            assert!(text(&outcome).ends_with("reached"), "{outcome:?}");
        } else {
            assert_fails_with(&outcome, "which is in sandbox.network.deniedDomains");
        }
    }
    assert_eq!(site.seen().len(), 1);
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_site_and_reported_for_others() {
    let site = Site::start(|request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        match path {
            "/relative" => response("302 Found", "location: end\r\n", ""),
            "/latin" => Answer::Whole(
                b"HTTP/1.1 302 X\r\nlocation: /caf\xe9\r\ncontent-length: 0\r\n\r\n".to_vec(),
            ),
            "/caf%E9" => page("text/plain", "arrived there"),
            "/end" => page("text/plain", "arrived"),
            "/away" => response("301 Moved", "location: http://localhost:1/x\r\n", ""),
            "/port" => response("307 X", "location: http://127.0.0.1:1/\r\n", ""),
            "/file" => response("302 X", "location: file:///etc/passwd\r\n", ""),
            "/login" => response("302 X", "location: http://a:b@127.0.0.1/\r\n", ""),
            "/nowhere" => response("302 X", "content-type: text/plain\r\n", "no place"),
            _ => response("302 Found", "location: /round\r\n", ""),
        }
    })
    .await;
    let bench = bench();
    let outcome = fetch(&bench, &site.url("/relative")).await;
    assert!(text(&outcome).contains("arrived"), "{outcome:?}");
    assert!(text(&outcome).starts_with(&site.url("/end")), "{outcome:?}");
    assert!(text(&fetch(&bench, &site.url("/latin")).await).contains("arrived there"));
    let away = fetch(&bench, &site.url("/away")).await;
    assert_fails_with(&away, "leads to another site (HTTP 301): http://localhost:1/x");
    assert_fails_with(&fetch(&bench, &site.url("/port")).await, "another site");
    assert_fails_with(&fetch(&bench, &site.url("/file")).await, "only http and https");
    assert_fails_with(&fetch(&bench, &site.url("/login")).await, "user name or password");
    assert_fails_with(&fetch(&bench, &site.url("/nowhere")).await, "HTTP 302");
    let before = site.seen().len();
    assert_fails_with(&fetch(&bench, &site.url("/round")).await, "more than 8 redirects");
    assert_eq!(site.seen().len() - before, 9);
}

#[tokio::test]
async fn a_silent_slow_or_endless_server_times_out() {
    let bench = bench_with(SHORT, &["127.0.0.1"]);
    let silent = Site::start(|_| Answer::Held(Vec::new())).await;
    assert_fails_with(&fetch(&bench, &silent.url("/")).await, "did not answer within 3s");
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc".to_vec();
    let slow = Site::start(move |_| Answer::Held(head.clone())).await;
    let outcome = fetch(&bench, &slow.url("/")).await;
    assert_fails_with(&outcome, "did not end within 3s; 3 bytes of it had come");
    let patient = bench_with(LONG, &["127.0.0.1"]);
    let again = b"x-more: and more\r\n".repeat(100);
    let endless =
        Site::start(move |_| Answer::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), again.clone()));
    assert_fails_with(&fetch(&patient, &endless.await.url("/")).await, "could not be fetched");
}

#[tokio::test]
async fn cancelling_a_fetch_closes_the_connection_at_once() {
    let site = Site::start(|_| Answer::Held(Vec::new())).await;
    let (bench, cancel) = (bench(), CancellationToken::new());
    let input = json!({ "url": site.url("/") });
    let stopping = async {
        site.is_asked().await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(bench.run_until("WebFetch", input, cancel.clone()), stopping);
    assert_fails_with(&outcome, "Interrupted");
    site.is_left().await;
}

#[tokio::test]
async fn an_endless_page_is_truncated() {
    let bench = bench();
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nbeginning ".to_vec();
    let again = b"and so on ".repeat(10_000);
    let site = Site::start(move |_| Answer::Endless(head.clone(), again.clone())).await;
    let outcome = fetch(&bench, &site.url("/")).await;
    let shown = text(&outcome);
    assert!(!outcome.is_error, "{shown}");
    for part in ["beginning", "only its first 10 MB were read", "all of it is in"] {
        assert!(shown.contains(part), "no {part:?} in:\n{}", &shown[..500]);
    }
    assert!(shown.chars().count() < 31_000);
    assert_eq!(outcome.detail["bytes"], 10 << 20);
}

#[tokio::test]
async fn a_page_that_is_large_after_decompression_is_truncated() {
    let packed = bomb(200_000);
    assert!(packed.len() < 400_000);
    let headers = "content-type: text/plain\r\ncontent-encoding: gzip\r\n";
    let site = Site::start(move |_| response("200 OK", headers, &packed)).await;
    let outcome = fetch(&bench(), &site.url("/")).await;
    assert_eq!(outcome.detail["bytes"], 10 << 20, "{}", &text(&outcome)[..300]);
}

/// A packed file that unpacks to so many times 258 letters: one letter, and matches of it.
fn bomb(matches: usize) -> Vec<u8> {
    let (mut bytes, mut filled) = (vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], 0);
    let mut push = |bits: &str| {
        for bit in bits.bytes() {
            if filled % 8 == 0 {
                bytes.push(0);
            }
            let last = bytes.last_mut().expect("one was pushed");
            *last |= (bit - b'0') << (filled % 8);
            filled += 1;
        }
    };
    // The last block, with fixed codes; the letter a; then length 258, distance 1.
    push("110");
    push("10010001");
    (0..matches).for_each(|_| push("1100010100000"));
    bytes
}

#[tokio::test]
async fn compressed_pages_are_unpacked_or_refused_by_the_name_of_their_form() {
    let bench = bench();
    let gzip = |text: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text).expect("a vector takes all");
        packed.finish().expect("a vector takes all")
    };
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(b"needle").expect("a vector takes all");
    let zlib = zlib.finish().expect("a vector takes all");
    let bare = zlib[2..zlib.len() - 4].to_vec();
    for (form, body) in [
        ("gzip", gzip(b"needle")),
        ("GZIP", gzip(b"needle")),
        ("x-gzip", gzip(b"needle")),
        ("gzip", b"needle".to_vec()),
        ("gzip", [gzip(b"nee"), gzip(b"dle")].concat()),
        ("identity, gzip", gzip(b"needle")),
        ("utf-8, gzip", gzip(b"needle")),
        ("utf-8", b"needle".to_vec()),
        ("deflate", zlib),
        ("deflate", bare),
        ("identity", b"needle".to_vec()),
    ] {
        let headers = format!("content-type: text/plain\r\ncontent-encoding: {form}\r\n");
        let site = Site::start(move |_| response("200 OK", &headers, &body)).await;
        let shown = fetch(&bench, &site.url("/")).await;
        assert!(text(&shown).ends_with("\n\nneedle"), "{form}: {shown:?}");
        assert!(site.seen()[0].contains("accept-encoding: gzip\r\n"), "{:?}", site.seen());
    }
    for (form, wanted) in [
        ("br", "packed in a form that is not read (br)"),
        ("zstd, gzip", "packed in a form that is not read (zstd)"),
        ("gzip, gzip", "packed more than once (gzip, gzip)"),
        ("gzip\r\ncontent-encoding: gzip", "packed more than once (gzip, gzip)"),
        ("deflate, gzip, gzip", "packed more than once (deflate, gzip)"),
    ] {
        let (headers, body) = (format!("content-encoding: {form}\r\n"), gzip(b"needle"));
        let site = Site::start(move |_| response("200 OK", &headers, &body)).await;
        assert_fails_with(&fetch(&bench, &site.url("/")).await, wanted);
    }
    let site = Site::start(|_| response("404 X", "content-encoding: br\r\n", "x")).await;
    assert_fails_with(&fetch(&bench, &site.url("/")).await, "HTTP 404");
    let site = Site::start(|_| response("200 OK", "content-encoding: gzip\r\n", "")).await;
    assert!(text(&fetch(&bench, &site.url("/")).await).ends_with("(The page has no text.)\n\n"));
}

#[tokio::test]
async fn a_page_that_leads_on_by_itself_names_where() {
    let bench = bench();
    for (headers, body, wanted) in [
        ("", "<meta http-equiv=Refresh content='0; url=/en/'>", "Fetch: {}/en/\n"),
        ("refresh: 0; url=en/\r\n", "", "Fetch: {}/en/\n"),
        ("", "<p>a</p><meta http-equiv=refresh content=300>", "\n\na"),
        (
            "",
            "<p>a</p><meta http-equiv=refresh content='1;url=/'><iframe src=/x></iframe>",
            "\n\na",
        ),
        (
            "",
            "<frameset><frame src=/nav><frame src='en/'></frameset>",
            "frames. Fetch: {}/nav {}/en/",
        ),
        ("", "<div><iframe src=//a.example/></iframe></div>", "Fetch: http://a.example/\n"),
        (
            "",
            "<meta http-equiv=refresh content='0;url=javascript:x'>",
            "(The page has no text.)\n\n",
        ),
    ] {
        let headers = format!("content-type: text/html\r\n{headers}");
        let site = Site::start(move |_| response("200 OK", &headers, body)).await;
        let shown = fetch(&bench, &site.url("/")).await;
        let wanted = wanted.replace("{}", &site.url(""));
        assert!(text(&shown).contains(&wanted), "{body}: {shown:?}");
        assert_eq!(wanted.contains("Fetch"), text(&shown).contains("Fetch"), "{body}: {shown:?}");
    }
}

#[tokio::test]
async fn a_truncated_or_corrupt_page_is_an_error() {
    let bench = bench();
    let short = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc".to_vec();
    let site = Site::start(move |_| Answer::Whole(short.clone())).await;
    let outcome = fetch(&bench, &site.url("/")).await;
    assert_fails_with(&outcome, "broke off after 3 bytes: it ended too early");
    let site =
        Site::start(|_| response("200 OK", "content-encoding: gzip\r\n", "\x1fno gzip")).await;
    assert_fails_with(&fetch(&bench, &site.url("/")).await, "cannot be unpacked");
    let site = Site::start(|_| Answer::Whole(b"220 mail.example ESMTP\r\n".to_vec())).await;
    assert_fails_with(&fetch(&bench, &site.url("/")).await, "could not be fetched");
}

#[tokio::test]
async fn an_untrusted_certificate_is_rejected() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.expect("a connection");
            // A client that rejects the certificate hangs up.
            let _ = StreamOwned::new(session_as("model.test"), socket).read(&mut [0; 1024]);
        }
    });
    let outcome = fetch(&bench(), &format!("https://{address}/")).await;
    assert_fails_with(&outcome, "no connection (invalid peer certificate");
}

#[tokio::test]
async fn an_http_error_shows_its_status_body_and_retry_after() {
    let bench = bench();
    let long = format!("<p>No such page. Try <b>/b</b>.</p>{}", "<p>more</p>".repeat(5000));
    let site =
        Site::start(move |_| response("404 Not Found", "content-type: text/html\r\n", &long));
    let outcome = fetch(&bench, &site.await.url("/a")).await;
    assert_fails_with(&outcome, "HTTP 404 Not Found");
    assert_fails_with(&outcome, "No such page. Try **/b**.");
    assert!(text(&outcome).len() < 3000);
    let site = Site::start(|_| response("429 Too Many Requests", "retry-after: 120\r\n", "")).await;
    assert_fails_with(&fetch(&bench, &site.url("/")).await, "(retry-after: 120)");
    let zip = Site::start(|_| response("500 X", "content-type: application/zip\r\n", "PK")).await;
    assert_fails_with(&fetch(&bench, &zip.url("/")).await, "HTTP 500 Internal Server Error");
}

#[tokio::test]
async fn a_binary_page_is_refused_or_saved_for_read() {
    let bench = bench();
    let site = Site::start(|_| page("application/zip", "PK\u{3}\u{4}")).await;
    assert_fails_with(&fetch(&bench, &site.url("/")).await, "it is application/zip, 4 bytes");
    let site = Site::start(|_| page("text/plain", "a\0b\0c")).await;
    let shown = text(&fetch(&bench, &site.url("/")).await);
    assert!(!shown.contains("a\0b"), "{shown:?}");
    let site = Site::start(|_| page("application/pdf", "%PDF-1.7 and so on")).await;
    let shown = text(&fetch(&bench, &site.url("/")).await);
    let (_, path) = shown.split_once("Read it at ").expect("it is kept");
    assert_eq!(std::fs::read(path.trim()).unwrap(), b"%PDF-1.7 and so on");
    let latin = b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=iso-8859-1\r\n\r\ncaf\xe9";
    let site = Site::start(move |_| Answer::Whole(latin.to_vec())).await;
    assert!(text(&fetch(&bench, &site.url("/")).await).contains("café"));
    let site = Site::start(|_| page("application/json", "{\"a\": [1, 2]}")).await;
    assert!(text(&fetch(&bench, &site.url("/")).await).ends_with("{\"a\": [1, 2]}"));
}

#[tokio::test]
async fn an_invalid_url_is_rejected_before_any_request() {
    let bench = bench();
    for (url, part) in [
        ("example", "https://example.com/page"),
        ("file:///etc/passwd", "only http and https"),
        ("https://me:pw@example.com/", "user name or password"),
        ("", "InputValidationError"),
    ] {
        assert_fails_with(&fetch(&bench, url).await, part);
    }
}

/// The decision of a bench with these rules about a call.
fn admitted(url: &str, arrange: impl FnOnce(&mut ToolSettings)) -> Result<(), String> {
    let bench = Bench::with(|settings| {
        settings.web = Some(web(LONG, &[]));
        arrange(settings);
    });
    match bench.toolbox.admit(&call("WebFetch", json!({ "url": url }))) {
        Ok(_) => Ok(()),
        Err(ToolRefusal::Denied { reason, .. }) => Err(reason),
        Err(ToolRefusal::Invalid(outcome)) => panic!("{outcome:?}"),
    }
}

#[test]
fn a_host_needs_an_allow_rule_in_every_mode_but_bypass() {
    let url = "https://docs.example.com/a";
    for mode in [
        PermissionMode::Default,
        PermissionMode::AcceptEdits,
        PermissionMode::Plan,
        PermissionMode::DontAsk,
    ] {
        let refused = admitted(url, |settings| settings.permissions.mode = mode).unwrap_err();
        assert!(refused.contains("'WebFetch(domain:docs.example.com)'"), "{refused}");
        for rule in ["WebFetch", "WebFetch(domain:*.example.com)", "WebFetch(domain:*)"] {
            let by_rule = admitted(url, |settings| {
                settings.permissions.mode = mode;
                settings.permissions.allow = vec![rule.to_owned()];
            });
            assert_eq!(by_rule, Ok(()), "{rule}");
        }
    }
    let bypass =
        |settings: &mut ToolSettings| settings.permissions.mode = PermissionMode::BypassPermissions;
    assert_eq!(admitted(url, bypass), Ok(()));
}

#[test]
fn host_rules_apply_to_every_notation_of_a_url() {
    let allows = |rule: &str, url: &str| {
        admitted(url, |settings| settings.permissions.allow = vec![rule.to_owned()]).is_ok()
    };
    let good = "WebFetch(domain:good.com)";
    assert!(allows(good, "HTTP://GOOD.com.:8080/x?y=evil.com"));
    for url in ["https://good.com.evil.com/", "https://evil.com/@good.com", "https://a.good.com"] {
        assert!(!allows(good, url), "{url}");
    }
    for url in ["https://bad.com", "https://BAD.COM./", "https://b%61d.com/"] {
        let denied = admitted(url, |settings| {
            settings.permissions.mode = PermissionMode::BypassPermissions;
            settings.permissions.deny = vec!["WebFetch(domain:bad.com)".to_owned()];
        });
        assert!(denied.unwrap_err().contains("denied to WebFetch by the rule"), "{url}");
        let asked = admitted(url, |settings| {
            settings.permissions.allow = vec!["WebFetch".to_owned()];
            settings.permissions.ask = vec!["WebFetch(domain:bad.com)".to_owned()];
        });
        assert!(asked.unwrap_err().contains("must be asked about"), "{url}");
    }
}

#[test]
fn without_network_access_fetch_is_not_offered() {
    let offers =
        |bench: &Bench| bench.toolbox.definitions().iter().any(|tool| tool.name == "WebFetch");
    assert!(offers(&bench()));
    let closed = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.web = Some(web(LONG, &["*"]));
        settings.sandbox.no_network = true;
    });
    assert!(!offers(&closed));
    let fetch = call("WebFetch", json!({ "url": "https://example.com/" }));
    let refused = closed.toolbox.admit(&fetch).unwrap_err();
    assert!(
        matches!(&refused, ToolRefusal::Denied { reason, .. } if reason.contains("no network"))
    );
    assert_eq!(closed.toolbox.effect(&fetch.name), Effect::Network);
}
