//! Trials of fetching pages: the real binary fetches what it may, and nothing else.

use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::json;

use super::outcomes::agrees;
use crate::support::responder::{Answer, Responder};
use crate::support::{RunBuilder, serve};

/// A site on loopback with one page.
async fn site() -> Responder {
    let page = "<h1>The page</h1>of pages".to_owned();
    let answer = Answer::with_headers(200, "content-type: text/html\r\n", page);
    Responder::start(move |_, _| Some(answer.clone())).await
}

/// Asks for a page, then says that it is done.
fn fetches(site: &Responder) -> Scenario {
    let url = format!("{}/page", site.url);
    Scenario::new().tool("WebFetch", json!({ "url": url, "prompt": "all" })).reply("Done.")
}

const ALLOWED: [&str; 2] = ["--allowedTools", "WebFetch(domain:127.0.0.1)"];
const OPENED: [&str; 2] = ["--settings", r#"{"webFetchPrivateHosts": ["127.0.0.1"]}"#];
const FRAMES: [&str; 3] = ["Do it.", "--output-format", "stream-json"];

#[tokio::test]
async fn an_allowed_page_reaches_the_model() {
    let site = site().await;
    let server = serve(fetches(&site));
    let trial = RunBuilder::bare(&server.base_url()).args(FRAMES).args(ALLOWED).args(OPENED);
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = ended.tool_results()[0].to_string();
    assert!(told.contains("# The page") && told.contains("of pages"), "{told}");
    assert_eq!(site.requests().len(), 1);
    agrees(&ended);
}

/// A page is asked for by a whole reply only: others hear of it, and a torn reply comes again.
#[tokio::test]
async fn a_discarded_reply_fetches_no_page() {
    let site = site().await;
    let url = format!("{}/page", site.url);
    let torn = Scenario::new().tool("WebFetch", json!({ "url": url, "prompt": "all" }));
    let server =
        serve(torn.fault(ScriptedFaultKind::Stall, FaultPosition::Events(7)).reply("Done."));
    let trial = RunBuilder::bare(&server.base_url()).args(FRAMES).args(ALLOWED).args(OPENED);
    let ended = trial.args(["--stream-idle-timeout", "2s"]).run().await;
    assert_eq!((ended.code, server.requests().len()), (Some(0), 2), "{ended:?}");
    assert_eq!(site.requests().len(), 0);
}

#[tokio::test]
async fn loopback_is_blocked_and_an_untrusted_repository_cannot_allow_it() {
    let site = site().await;
    let server = serve(fetches(&site));
    let trial = RunBuilder::bare(&server.base_url()).args(FRAMES).args(ALLOWED);
    std::fs::create_dir(trial.work().join(".claude")).expect("a folder");
    std::fs::write(trial.work().join(".claude/settings.json"), OPENED[1]).expect("a file");
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = &ended.tool_results()[0];
    assert_eq!(told["is_error"], true);
    assert!(told.to_string().contains("127.0.0.1, this machine"), "{told}");
    assert_eq!(site.requests().len(), 0);
    assert!(ended.stderr.contains("webFetchPrivateHosts"), "{}", ended.stderr);
}
