//! Trials of fetching pages: the real binary fetches what it may, and nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::json;

use super::outcomes::agrees;
use crate::support::{RunBuilder, serve};

/// A site on loopback: its address, and how often it was asked. Its thread ends with the process.
fn site(answer: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    (address, asked)
}

const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 25\r\n\r\n\
                    <h1>The page</h1>of pages";

/// Asks for a page, then says that it is done.
fn fetches(address: SocketAddr) -> Scenario {
    let url = format!("http://{address}/page");
    Scenario::new().tool("WebFetch", json!({ "url": url, "prompt": "all" })).reply("Done.")
}

const ALLOWED: [&str; 2] = ["--allowedTools", "WebFetch(domain:127.0.0.1)"];
const OPENED: [&str; 2] = ["--settings", r#"{"webFetchPrivateHosts": ["127.0.0.1"]}"#];
const FRAMES: [&str; 3] = ["Do it.", "--output-format", "stream-json"];

#[tokio::test]
async fn an_allowed_page_reaches_the_model() {
    let (address, asked) = site(PAGE);
    let server = serve(fetches(address));
    let trial = RunBuilder::bare(&server.base_url()).args(FRAMES).args(ALLOWED).args(OPENED);
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = ended.tool_results()[0].to_string();
    assert!(told.contains("# The page") && told.contains("of pages"), "{told}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    agrees(&ended);
}

/// A page is asked for by a whole reply only: others hear of it, and a torn reply comes again.
#[tokio::test]
async fn a_discarded_reply_fetches_no_page() {
    let (address, asked) = site(PAGE);
    let url = format!("http://{address}/page");
    let torn = Scenario::new().tool("WebFetch", json!({ "url": url, "prompt": "all" }));
    let server =
        serve(torn.fault(ScriptedFaultKind::Stall, FaultPosition::Events(7)).reply("Done."));
    let trial = RunBuilder::bare(&server.base_url()).args(FRAMES).args(ALLOWED).args(OPENED);
    let ended = trial.args(["--stream-idle-timeout", "2s"]).run().await;
    assert_eq!((ended.code, server.requests().len()), (Some(0), 2), "{ended:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn loopback_is_blocked_and_an_untrusted_repository_cannot_allow_it() {
    let (address, asked) = site(PAGE);
    let server = serve(fetches(address));
    let trial = RunBuilder::bare(&server.base_url()).args(FRAMES).args(ALLOWED);
    std::fs::create_dir(trial.work().join(".claude")).expect("a folder");
    std::fs::write(trial.work().join(".claude/settings.json"), OPENED[1]).expect("a file");
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = &ended.tool_results()[0];
    assert_eq!(told["is_error"], true);
    assert!(told.to_string().contains("127.0.0.1, this machine"), "{told}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert!(ended.stderr.contains("webFetchPrivateHosts"), "{}", ended.stderr);
}
