//! Servers over HTTP: sessions that are forgotten, logins that are wanted.

use std::path::Path;
use std::process::Stdio;

use outlast::mcp::{ServerAddress, ServerConfig, ServerStatus, Servers};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::{McpFixture, long_timers, python, script, server_environment, words};
use crate::support::with_time_limit;

/// A server over HTTP, and the process that it is.
pub(super) struct Http {
    pub(super) bench: McpFixture,
    pub(super) child: Child,
}

async fn serve(mode: &str, folder: &Path) -> (Child, String) {
    let mut child = Command::new(python())
        .arg("-S")
        .arg(script())
        .args(["http", mode])
        .env("SERVER_LOG", folder.join("log"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python is there");
    let stdout = child.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(stdout).lines();
    let port = with_time_limit("a port", lines.next_line()).await.expect("a line").expect("a port");
    (child, format!("http://127.0.0.1:{port}/mcp"))
}

pub(super) async fn http(mode: &str) -> Http {
    let folder: TempDir = tempfile::tempdir().expect("a folder can be made");
    let (child, url) = serve(mode, folder.path()).await;
    let headers = vec![("Authorization".to_owned(), "Bearer abc".to_owned())];
    let config = ServerConfig {
        name: "test".to_owned(),
        place: ServerAddress::Http { url, headers },
        timeout: None,
        disabled: false,
        trusted: true,
    };
    let servers = Servers::new(vec![config], server_environment(folder.path()), long_timers());
    servers.start();
    Http { bench: McpFixture { servers, folder }, child }
}

#[tokio::test]
async fn a_server_over_http_is_like_any_other() {
    let http = http("well").await;
    let bench = http.bench.ready().await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert!(bench.log().contains("tools/call Bearer abc"), "{}", bench.log());
}

#[tokio::test]
async fn a_forgotten_session_is_renewed_and_the_call_made_once_more() {
    for mode in ["forgets", "says"] {
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
async fn a_server_that_is_down_is_an_error_and_not_the_end() {
    let http = http("well").await;
    let bench = http.bench.ready().await;
    let mut child = http.child;
    child.kill().await.expect("it is ours");
    let cancel = CancellationToken::new();
    let nothing = json!({});
    let call = bench.servers.call("mcp__test__echo", &nothing, &cancel);
    let reply = with_time_limit("an answer", call).await;
    assert!(reply.is_error, "{reply:?}");
}
