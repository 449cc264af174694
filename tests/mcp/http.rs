//! Servers over HTTP: sessions that are forgotten, logins that are wanted.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use outlast::mcp::{HttpAddress, HttpKind, ServerAddress, ServerConfig, ServerStatus, Servers};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{McpFixture, long_timers, python, script, server_environment, words};
use crate::support::with_time_limit;

/// A server over HTTP, and the process that it is.
pub(super) struct Http {
    pub(super) bench: McpFixture,
    pub(super) child: Child,
    port: String,
}

/// Serves on a port, or on a free one.
async fn serve(mode: &str, folder: &Path, port: Option<&str>) -> (Child, String) {
    let mut child = Command::new(python())
        .arg("-S")
        .arg(script())
        .args(["http", mode])
        .args(port)
        .env("SERVER_LOG", folder.join("log"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python is there");
    let stdout = child.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(stdout).lines();
    let port = with_time_limit("a port", lines.next_line()).await.expect("a line").expect("a port");
    (child, port)
}

/// The configuration of a server at an address, with headers.
pub(super) fn config(url: String, headers: &[(&str, &str)]) -> ServerConfig {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ServerConfig {
        name: "test".to_owned(),
        place: ServerAddress::Http(HttpAddress {
            url,
            headers: headers.iter().map(text).collect(),
            helper: None,
            oauth: None,
            kind: HttpKind::Streamable,
        }),
        timeout: None,
        disabled: false,
        trusted: true,
        policies: Vec::new(),
    }
}

pub(super) async fn http(mode: &str) -> Http {
    http_with(mode, |_, _| {}).await
}

/// The same, at an address that is changed before it is used; the folder is the working directory.
async fn http_with(mode: &str, change: impl FnOnce(&mut HttpAddress, &Path)) -> Http {
    let folder: TempDir = tempfile::tempdir().expect("a folder can be made");
    let (child, port) = serve(mode, folder.path(), None).await;
    let headers = [
        ("Authorization", "Bearer abc\n"),
        ("Content-Type", "application/json"),
        ("Accept", "text/html"),
    ];
    let mut config = config(format!("http://127.0.0.1:{port}/mcp"), &headers);
    if let ServerAddress::Http(address) = &mut config.place {
        change(address, folder.path());
    }
    let servers = Servers::new(vec![config], server_environment(folder.path()), long_timers());
    servers.start();
    Http { bench: McpFixture { servers, folder }, child, port }
}

#[tokio::test]
async fn a_server_over_http_is_like_any_other() {
    // Web servers and gateways send JSON whose type the program does not set as text, or without
    // one. Some servers send events as JSON, or without the line that ends the last one, or JSON as
    // events, and some refuse the notification of the handshake. Some gateways repeat the name of
    // a field, encode messages twice, or begin them with a separator. Some proxies label what they
    // have decompressed as gzip.
    for mode in [
        "well",
        "plain",
        "typeless",
        "octets",
        "labelled",
        "unended",
        "mislabelled",
        "unnotified",
        "repeated",
        "encoded",
        "prefixed",
        "gzip",
        "no-gzip",
    ] {
        let http = http(mode).await;
        let bench = http.bench.ready().await;
        assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi", "{mode}");
        assert!(bench.log().contains("tools/call Bearer abc"), "{}", bench.log());
    }
}

#[tokio::test]
async fn a_server_that_resets_each_kept_connection_is_used_without_them() {
    let http = http("resets").await;
    let bench = http.bench.ready().await;
    for text in ["a", "b"] {
        assert_eq!(words(&bench.call("echo", text).await), format!("echo: {text}"));
    }
    assert_eq!(bench.log().matches("tools/call").count(), 2, "{}", bench.log());
    assert_eq!(bench.servers.stats().reconnects, 0);
}

#[tokio::test]
async fn a_forgotten_session_is_renewed_and_the_call_made_once_more() {
    // In words and with codes of several kinds, and in none that are known.
    for mode in [
        "forgets",
        "says",
        "lost:reinitialize",
        "lost:uninitialized",
        "lost:expired",
        "lost:page",
        "lost:answer",
        "lost:foreign",
    ] {
        let http = http(mode).await;
        let bench = http.bench.ready().await;
        let reply = bench.call("echo", "hi").await;
        assert_eq!(words(&reply), "echo: hi", "{mode}: {}", bench.log());
        let log = bench.log();
        assert_eq!(log.matches("initialize").count() - log.matches("initialized").count(), 2);
        assert_eq!(log.matches("tools/call").count(), 2, "{mode}: {log}");
        assert_eq!(bench.servers.stats().reconnects, 1, "{mode}");
    }
}

#[tokio::test]
async fn an_error_of_a_tool_about_its_own_sessions_is_no_lost_session() {
    let http = http("lost:tool").await;
    let bench = http.bench.ready().await;
    let reply = bench.call("echo", "hi").await;
    assert!(reply.is_error && words(&reply).contains("Session not found: tab 3"), "{reply:?}");
    assert_eq!(bench.log().matches("tools/call").count(), 1, "{}", bench.log());
    assert_eq!(bench.servers.stats().reconnects, 0);
}

#[tokio::test]
async fn redirects_within_the_same_server_are_followed_with_method_and_body() {
    for mode in ["moves:307", "moves:308"] {
        let http = http(mode).await;
        let bench = http.bench.ready().await;
        assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi", "{mode}");
        assert!(bench.log().contains("tools/call Bearer abc"), "{}", bench.log());
    }
    let http = http("moves:around").await;
    http.bench.wait_for_status(ServerStatus::Failed).await;
    let redirects = http.bench.log().matches("initialize").count();
    assert_eq!(redirects, 6, "it does not end: {}", http.bench.log());
}

#[tokio::test]
async fn a_server_of_the_first_version_is_talked_to_over_its_stream() {
    let sse = |address: &mut HttpAddress, _: &Path| address.kind = HttpKind::Sse;
    let http = http_with("sse", sse).await;
    let bench = http.bench.ready().await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert!(bench.log().contains("tools/call Bearer abc"), "{}", bench.log());
    // The second call meets a session that is not known any more.
    assert_eq!(words(&bench.call("echo", "again").await), "echo: again", "{}", bench.log());
    assert_eq!(bench.log().matches("tools/call").count(), 3, "{}", bench.log());
    assert_eq!(bench.servers.stats().reconnects, 1);
    let mut child = http.child;
    child.kill().await.expect("it is ours");
    bench.wait_for_status(ServerStatus::Pending).await;
    // Some servers name the address that they have behind a proxy, name neither the event nor the
    // type of the stream, or answer in the response.
    for mode in ["sse-inside", "sse-unnamed", "sse-direct"] {
        let http = http_with(mode, sse).await;
        let bench = http.bench.ready().await;
        assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi", "{mode}");
    }
}

#[tokio::test]
async fn sessions_that_serve_one_call_each_are_renewed_as_often_as_needed() {
    let sse = |address: &mut HttpAddress, _: &Path| address.kind = HttpKind::Sse;
    let http = http_with("sse-once", sse).await;
    let bench = http.bench.ready().await;
    for _ in 0..8 {
        assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi", "{}", bench.log());
    }
    assert_eq!(bench.servers.stats().reconnects, 7);
}

#[tokio::test]
async fn a_server_that_has_no_such_stream_or_names_another_server_is_told() {
    let sse = |address: &mut HttpAddress, _: &Path| address.kind = HttpKind::Sse;
    for (mode, status, wanted) in [
        ("well", ServerStatus::Failed, "HTTP 405"),
        ("sse-page", ServerStatus::Pending, "it may speak \"type\": \"http\""),
        ("sse-elsewhere", ServerStatus::Pending, "an address of another server"),
        ("login", ServerStatus::NeedsAuth, "it requires a login (HTTP 401)"),
    ] {
        let http = http_with(mode, sse).await;
        let bench = &http.bench;
        bench.servers.wait_for_starts(Duration::from_mins(1)).await;
        let report = bench.servers.reports().remove(0);
        let why = report.why.unwrap_or_default();
        assert_eq!(report.status, status, "{mode}: {why}");
        assert!(why.contains(wanted), "{mode}: {why}");
    }
}

#[tokio::test]
async fn a_headers_helper_gives_the_credentials_and_is_asked_again_at_a_401() {
    // What it leaves in the background holds its output open.
    let command = "sleep 1000 & echo run >> runs; echo \"{\\\"Authorization\\\": \\\"Bearer \
                   token-number-$(wc -l < runs | tr -d ' ')\\\"}\"";
    let http = http_with("tokens", |address, _| address.helper = Some(command.to_owned())).await;
    let bench = http.bench.ready().await;
    for text in ["a", "b", "c"] {
        assert_eq!(words(&bench.call("echo", text).await), format!("echo: {text}"));
    }
    let log = bench.log();
    assert_eq!(log.matches("tools/call Bearer token-number-1").count(), 2, "{log}");
    assert_eq!(log.matches("tools/call Bearer token-number-2").count(), 2, "{log}");
    assert_eq!(bench.servers.stats().reconnects, 0);
}

#[tokio::test]
async fn a_headers_helper_that_fails_once_at_a_401_is_asked_again() {
    let command = "echo run >> runs; run=$(wc -l < runs | tr -d ' '); [ $run != 2 ] || exit 1; \
                   echo \"{\\\"Authorization\\\": \\\"Bearer token-number-$run\\\"}\"";
    let http = http_with("tokens", |address, _| address.helper = Some(command.to_owned())).await;
    let bench = http.bench.ready().await;
    for text in ["a", "b"] {
        assert_eq!(words(&bench.call("echo", text).await), format!("echo: {text}"));
    }
    let log = bench.log();
    assert_eq!(log.matches("tools/call Bearer token-number-3").count(), 1, "{log}");
    assert_eq!(bench.servers.stats().reconnects, 1);
}

#[tokio::test]
async fn a_headers_helper_that_fails_is_named_with_the_reason() {
    for (command, wanted) in [
        ("exit 3", "its \"headersHelper\" failed (exit status: 3)"),
        ("echo token", "its \"headersHelper\" did not print a JSON object of headers"),
        ("echo '{\"A\": 1}'", "did not print a JSON object of headers"),
    ] {
        let helper =
            |address: &mut HttpAddress, _: &Path| address.helper = Some(command.to_owned());
        let http = http_with("tokens", helper).await;
        http.bench.servers.wait_for_starts(Duration::from_mins(1)).await;
        let why = http.bench.servers.reports().remove(0).why.unwrap_or_default();
        assert!(why.contains(wanted), "{command}: {why}");
    }
}

#[tokio::test]
async fn a_server_that_forgets_every_session_is_not_asked_for_ever() {
    let http = http("always").await;
    let bench = http.bench.ready().await;
    let reply = bench.call("echo", "hi").await;
    assert!(reply.is_error && words(&reply).contains("lost its session again"), "{reply:?}");
    assert_eq!(bench.log().matches("tools/call").count(), 2, "{}", bench.log());
}

#[tokio::test]
async fn an_mcp_server_that_requires_a_login_is_contacted_once() {
    let http_closed = http("login").await;
    let closed = &http_closed.bench;
    closed.wait_for_status(ServerStatus::NeedsAuth).await;
    assert!(
        closed
            .servers
            .wait_until_connected(&[])
            .await
            .expect_err("no login")
            .to_string()
            .contains("requires a login")
    );
    assert_eq!(closed.log().lines().count(), 1, "no second attempt: {}", closed.log());
    let http = http("revoked").await;
    let bench = http.bench.ready().await;
    for _ in 0..3 {
        let reply = bench.call("echo", "hi").await;
        assert!(reply.is_error && words(&reply).contains("login"), "{reply:?}");
    }
    assert_eq!(bench.log().matches("tools/call").count(), 1, "{}", bench.log());
    bench.wait_for_status(ServerStatus::NeedsAuth).await;
}

#[tokio::test]
async fn a_call_that_was_not_sent_is_made_after_the_reconnect() {
    // It keeps no connection, so the call finds out that the server is gone.
    let http = http("resets").await;
    let bench = http.bench.ready().await;
    let mut child = http.child;
    child.kill().await.expect("it is ours");
    let again = async {
        bench.wait_for_status(ServerStatus::Pending).await;
        serve("resets", bench.folder.path(), Some(&http.port)).await
    };
    let (reply, _child) = tokio::join!(bench.call("echo", "hi"), again);
    assert_eq!(words(&reply), "echo: hi", "{}", bench.log());
    assert_eq!(bench.log().matches("tools/call").count(), 1, "{}", bench.log());
}

#[tokio::test]
async fn a_server_that_hangs_up_at_an_unknown_method_gets_the_handshake() {
    let http = http("hangs-up").await;
    let bench = http.bench.ready().await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
}

#[tokio::test]
async fn answers_in_streams_are_taken_and_broken_streams_are_continued() {
    for (mode, wanted) in [
        ("streams", "echo: hi"),
        ("batches", "echo: hi"),
        ("batch-streams", "echo: hi"),
        ("breaks", "continued after e1"),
        ("resumes-late", "continued after e1"),
    ] {
        let http = http(mode).await;
        let bench = http.bench.ready().await;
        let reply = bench.call("echo", "hi").await;
        assert_eq!(words(&reply), wanted, "{mode}: {}", bench.log());
        assert_eq!(bench.log().matches("tools/call").count(), 1, "{mode}: it is not repeated");
        assert_eq!(bench.servers.stats().reconnects, 0, "{mode}");
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_continued_is_a_lost_connection() {
    // The second server has forgotten the session, but it may have made the call before.
    for mode in ["never-resumes", "forgets-stream"] {
        let http = http(mode).await;
        let bench = http.bench.ready().await;
        let reply = bench.call("echo", "hi").await;
        let told = words(&reply);
        assert!(reply.is_error && told.contains("the connection broke before it had"), "{told}");
        assert!(told.contains("had an effect is unknown"), "{told}");
        let log = bench.log();
        assert_eq!(log.matches("tools/call").count(), 1, "{mode}: {log}");
        assert_eq!(log.matches("listen e1").count(), 1, "{mode}: {log}");
    }
}

#[tokio::test]
async fn messages_of_a_server_arrive_in_the_stream_that_is_open_for_them() {
    let http = http("announces").await;
    let bench = http.bench.ready().await;
    with_time_limit("the new tool", async {
        while !bench.servers.has_tool("mcp__test__announced") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(bench.log().contains("listen None 2025-11-25"), "{}", bench.log());
    bench.servers.close(Duration::from_secs(10)).await;
    assert!(bench.log().contains("delete s1"), "the session is ended: {}", bench.log());
}

#[tokio::test]
async fn an_error_that_repeats_no_identifier_is_the_answer_to_its_request() {
    for mode in ["no-id", "stream-error"] {
        let http = http(mode).await;
        let bench = http.bench.ready().await;
        let reply = bench.call("echo", "hi").await;
        assert!(reply.is_error && words(&reply).contains("no such argument"), "{reply:?}");
        assert_eq!(bench.servers.stats().reconnects, 0, "{mode}");
    }
}

#[tokio::test]
async fn a_server_without_handshake_gets_the_headers_of_each_request() {
    let http = http("headers").await;
    let bench = http.bench.ready().await;
    let said = words(&bench.call("echo", "hi ö").await);
    assert_eq!(said, "tools/call echo =?base64?aGkgw7Y=?= 2026-07-28");
    assert!(!bench.log().contains("listen"), "it sends nothing on its own: {}", bench.log());
}

#[tokio::test]
async fn a_header_of_the_protocol_cannot_be_set() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let config = config("http://127.0.0.1:9/mcp".to_owned(), &[("Mcp-Session-Id", "s1")]);
    let servers = Servers::new(vec![config], server_environment(folder.path()), long_timers());
    servers.start();
    with_time_limit("the verdict", servers.wait_for_starts(Duration::from_mins(1))).await;
    let report = servers.reports().remove(0);
    let why = "the header \"mcp-session-id\" of its \"headers\" is the protocol's own";
    assert_eq!((report.status, report.why.as_deref()), (ServerStatus::Failed, Some(why)));
}
