//! The outside as commands behind a list of hosts see it.

use std::sync::{Arc, Mutex, PoisonError};

use outlast::process::filters_system_calls;
use outlast::tools::{
    DomainLists, Egress, EgressOptions, ProxyScheme, ToolSettings, UpstreamProxy,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::tools::sandbox::SandboxFixture;

/// A proxy that is all hosts, and records the requests.
pub(super) struct RecordingProxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    server: AbortHandle,
}

impl RecordingProxy {
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let known = Arc::clone(&heads);
        let serve = async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&known)));
            }
        };
        Self { port, heads, server: tokio::spawn(serve).abort_handle() }
    }

    /// The heads of requests so far.
    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A sandbox whose commands reach these hosts, all of them through this proxy.
    pub(super) fn fixture(&self, allowed: &[&str], denied: &[&str]) -> Option<SandboxFixture> {
        self.fixture_with(allowed, denied, |_| {})
    }

    pub(super) fn fixture_with(
        &self,
        allowed: &[&str],
        denied: &[&str],
        change: impl FnOnce(&mut EgressOptions),
    ) -> Option<SandboxFixture> {
        let egress = self.egress(allowed, denied, change);
        let arrange = |settings: &mut ToolSettings| settings.sandbox.egress = Some(egress);
        match SandboxFixture::try_with(|settings, _| arrange(settings)) {
            Ok(fixture) => Some(fixture),
            Err((why, _)) => {
                assert!(!filters_system_calls(), "it can be held here: {why}");
                None
            }
        }
    }

    pub(super) fn egress(
        &self,
        allowed: &[&str],
        denied: &[&str],
        change: impl FnOnce(&mut EgressOptions),
    ) -> Egress {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let proxy = UpstreamProxy {
            scheme: ProxyScheme::Http,
            host: "127.0.0.1".to_owned(),
            port: self.port,
            login: None,
        };
        let lists = DomainLists::parse(&texts(allowed), &texts(denied)).expect("good lists");
        let mut options = EgressOptions {
            allows_binding: true,
            proxy: Arc::new(move |_| Some(proxy.clone())),
            ..EgressOptions::new(lists)
        };
        change(&mut options);
        Egress::new(options)
    }
}

impl Drop for RecordingProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers a request: a greeting behind CONNECT, otherwise the head that was received.
async fn answer(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
    let answer = match head.split(' ').collect::<Vec<_>>()[..] {
        ["CONNECT", to, ..] => format!("HTTP/1.1 200 OK\r\n\r\nhello from {to}\n"),
        _ => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()),
    };
    // A client that is gone needs no answer.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A port of another program, which commands must not reach.
pub(super) struct UnlistedPort {
    pub(super) port: u16,
    listener: std::net::TcpListener,
}

impl UnlistedPort {
    pub(super) fn open() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it is ours");
        Self { port: listener.local_addr().expect("it is bound").port(), listener }
    }

    pub(super) fn was_reached(&self) -> bool {
        self.listener.accept().is_ok()
    }
}
