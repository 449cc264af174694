//! Every way in which a server can be lost or make no sense, and what is said of it: to people one
//! plain line with the server's name, to the model what it needs to go on.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use outlast::mcp::{McpTimers, ServerStatus};
use serde_json::json;
use tokio::time::Instant;

use super::http::{self, http};
use super::{McpFixture, SECRET, long_timers, unavailable_reason, words};
use crate::support::{is_alive, with_time_limit};

/// Raw error text that must not appear in messages.
const RAW: [&str; 7] =
    ["http://", "secret", "error sending", "Transport", "Client error", "<html>", "reqwest"];

#[track_caller]
fn is_plain(text: &str, of: &str) {
    for raw in RAW {
        assert!(!text.contains(raw), "{of}: {raw} in {text}");
    }
}

#[tokio::test]
async fn a_call_that_http_fails_is_told_in_one_plain_line() {
    // What is answered to the call, what the model is told, whether people are, and how the server
    // stands then.
    let doubt = "had an effect is unknown";
    let table = [
        ("500", vec!["it answered HTTP 500 Internal Server Error", doubt], ServerStatus::Connected),
        ("lost", vec!["it answered HTTP 500", doubt], ServerStatus::Connected),
        ("503", vec!["HTTP 503", "it asks to wait: 7", doubt], ServerStatus::Connected),
        ("429", vec!["HTTP 429"], ServerStatus::Connected),
        ("400", vec!["HTTP 400", "it said: what was that"], ServerStatus::Connected),
        ("403", vec!["HTTP 403", "not from there"], ServerStatus::Connected),
        (
            "307",
            vec!["HTTP 307 Temporary Redirect, which is not followed"],
            ServerStatus::Connected,
        ),
        (
            "401",
            vec!["it requires a login (HTTP 401)", "go on without it"],
            ServerStatus::NeedsAuth,
        ),
        ("oauth", vec!["an OAuth login (HTTP 401)", "go on without it"], ServerStatus::NeedsAuth),
        (
            "scope",
            vec!["the token lacks the scope \"files:write\"", "other calls"],
            ServerStatus::Connected,
        ),
        ("page", vec!["it answered with text/html", doubt], ServerStatus::Connected),
        ("plain", vec!["it answered with text/plain", doubt], ServerStatus::Connected),
        ("words", vec!["not a message of the protocol", doubt], ServerStatus::Connected),
        ("large", vec!["larger than 16 MiB", doubt], ServerStatus::Connected),
        (
            "torn",
            vec!["the connection broke before it had answered", doubt],
            ServerStatus::Connected,
        ),
        ("cut", vec!["the connection broke before it had", doubt], ServerStatus::Connected),
    ];
    for (kind, wanted, status) in table {
        let http = http(&format!("tools/call:{kind}")).await;
        let bench = http.bench.ready().await;
        let reply = bench.call("echo", "hi").await;
        let told = words(&reply);
        assert!(reply.is_error, "{kind}: {told}");
        assert!(wanted.iter().all(|words| told.contains(words)), "{kind}: {told}");
        is_plain(&told, kind);
        bench.wait_for_status(status).await;
        let needs_auth = status == ServerStatus::NeedsAuth;
        let is_unauthorized = needs_auth || kind == "scope";
        let mut news = bench.servers.take_warnings();
        with_time_limit("the news", async {
            while news.is_empty() && (is_unauthorized || told.contains(doubt)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                news = bench.servers.take_warnings();
            }
        })
        .await;
        let news = news.join("\n");
        is_plain(&news, kind);
        assert_eq!(news.contains("\"echo\" failed"), told.contains(doubt), "{kind}: {news}");
        assert_eq!(news.contains("renew the token"), is_unauthorized, "{kind}: {news}");
        // It is not asked again and again, and not at all for nothing.
        let again = bench.call("echo", "hi").await;
        assert!(again.is_error, "{kind}");
        let calls = bench.log().matches("tools/call").count();
        assert_eq!(calls, if needs_auth { 1 } else { 2 }, "{kind}: {}", bench.log());
    }
}

#[tokio::test]
async fn a_start_that_http_fails_is_told_in_one_plain_line() {
    let table = [
        ("500", "it answered HTTP 500", ServerStatus::Pending),
        ("503", "it asks to wait: 7", ServerStatus::Pending),
        ("400", "it said: what was that", ServerStatus::Failed),
        ("403", "not from there", ServerStatus::Failed),
        ("307", "write the address that it leads to into its \"url\"", ServerStatus::Failed),
        (
            "404",
            "it speaks the other transport over HTTP (\"type\": \"http\" or \"sse\")",
            ServerStatus::Failed,
        ),
        ("405", "its \"url\" may be wrong", ServerStatus::Failed),
        ("401", "it requires a login", ServerStatus::NeedsAuth),
        ("oauth", "it requires an OAuth login", ServerStatus::NeedsAuth),
        ("scope", "lacks the scope \"files:write\"", ServerStatus::NeedsAuth),
        ("page", "it answered with text/html", ServerStatus::Pending),
        ("brotli", "the body is compressed with br", ServerStatus::Pending),
        ("words", "not a message of the protocol", ServerStatus::Pending),
        ("detail", "(it said: {\"detail\": \"no such server\"})", ServerStatus::Pending),
        ("event", "an error in place of the answer: upstream timeout", ServerStatus::Pending),
        ("520", "it answered HTTP 520", ServerStatus::Pending),
        ("torn", "the connection broke", ServerStatus::Pending),
        ("cut", "the connection broke", ServerStatus::Pending),
    ];
    for (kind, wanted, status) in table {
        let http = http(&format!("initialize:{kind}")).await;
        let mut news = Vec::new();
        with_time_limit("the first attempt", async {
            while news.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                news = http.bench.servers.take_warnings();
            }
        })
        .await;
        // On a slow machine a second attempt may have failed by now.
        let news = &news[0];
        let (why, standing) = (unavailable_reason(&http.bench), &http.bench.servers.reports()[0]);
        assert!(why.contains(wanted), "{kind}: {why}");
        is_plain(&why, kind);
        assert_eq!(standing.status, status, "{kind}: {why}");
        assert!(news.starts_with("MCP server \"test\": ") && news.contains(wanted), "{news}");
        let next = match status {
            ServerStatus::Pending => "next attempt in 1 s",
            ServerStatus::NeedsAuth => "run cannot log in: renew the token in its \"headers\"",
            ServerStatus::Failed | ServerStatus::Connected | ServerStatus::Disabled => {
                "no further attempts"
            }
        };
        assert!(news.contains(next), "{kind}: {news}");
        assert_eq!(news.lines().count(), 1, "{kind}: {news}");
    }
}

#[tokio::test]
async fn a_secret_that_a_server_shouts_is_hidden_even_where_its_words_are_cut() {
    let shout = format!("{}{SECRET}", "x".repeat(265));
    let bench = McpFixture::of(&["crash", &shout]);
    with_time_limit("the first attempt", bench.servers.wait_for_starts(Duration::from_mins(1)))
        .await;
    let why = unavailable_reason(&bench);
    assert!(why.contains("xxx[redacted]") && !why.contains("correct"), "{why}");
}

#[tokio::test]
async fn a_server_that_is_not_there_any_more_is_told_in_plain_words() {
    let http = http("well").await;
    let bench = http.bench.ready().await;
    let mut child = http.child;
    child.kill().await.expect("it is ours");
    let reply = bench.call("echo", "hi").await;
    let told = words(&reply);
    // The first one, if the end of its connection had not been noticed yet.
    let reasons = ["was lost while the call", "is not connected at the moment"];
    assert!(reply.is_error && reasons.iter().any(|why| told.contains(why)), "{told}");
    is_plain(&told, "down");
    with_time_limit("the news", async {
        while !bench.servers.reports()[0]
            .why
            .as_ref()
            .is_some_and(|why| why.contains("connection refused"))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    is_plain(&bench.servers.take_warnings().join("\n"), "down");
}

#[tokio::test]
async fn a_call_that_is_late_is_told_to_people_too() {
    let timers = McpTimers { call: Duration::from_millis(300), ..McpTimers::default() };
    let bench = McpFixture::with(&["well"], timers, |_, _| {}).ready().await;
    assert!(bench.call("hang", "").await.is_error);
    let news = bench.servers.take_warnings().join("\n");
    let wanted = "MCP server \"test\": the call of \"hang\" failed: did not answer within 0.3 s";
    assert!(news.starts_with(wanted), "{news}");
}

#[tokio::test]
async fn what_is_no_result_is_an_error_and_what_is_odd_is_shown() {
    let bench = McpFixture::of(&["well"]).ready().await;
    for (shape, wanted, is_error) in [
        (json!({ "foo": 1 }), r#"not a result of a call: {"foo":1}"#, true),
        (json!({}), "(the tool returned nothing)", false),
        (json!({ "isError": false, "_meta": {} }), "(the tool returned nothing)", false),
        (json!({ "isError": true }), "(the tool returned nothing)", true),
        (json!({ "content": [] }), "(the tool returned nothing)", false),
        (json!({ "content": [{ "type": "text", "text": "" }] }), "returned nothing", false),
        (json!({ "content": [{ "type": "hologram", "x": 1 }] }), "hologram", false),
        (json!({ "result": { "content": [{ "type": "text", "text": "a" }] } }), "a", false),
        (json!({ "content": [], "error": { "message": "no disk" } }), "no disk", true),
        (json!({ "content": [{ "type": "text", "text": "a" }], "error": "" }), "a", false),
        (json!({ "structuredContent": { "n": 1 } }), r#"{"n":1}"#, false),
        (json!({ "content": [{ "type": "text", "text": "a" }], "isError": "yes" }), "a", true),
        (json!({ "resultType": "input_required", "inputRequests": {} }), "more input", true),
    ] {
        let reply = bench.call("shape", &shape.to_string()).await;
        let told = words(&reply);
        assert!(told.contains(wanted), "{shape}: {told}");
        assert_eq!(reply.is_error, is_error, "{shape}: {told}");
    }
}

#[tokio::test]
async fn unsolicited_mcp_messages_are_ignored() {
    let bench = McpFixture::of(&["well"]).ready().await;
    assert_eq!(words(&bench.call("noise", "").await), "the first");
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert_eq!(bench.log().matches("start ").count(), 1, "it is the same connection");
}

#[tokio::test]
async fn a_late_mcp_response_is_not_matched_to_another_call() {
    let timers = McpTimers { call: Duration::from_millis(300), ..McpTimers::default() };
    let bench = McpFixture::with(&["well"], timers, |_, _| {}).ready().await;
    assert!(bench.call("tardy", "").await.is_error);
    bench.wait_for_log("answered too late").await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
}

#[tokio::test]
async fn endless_mcp_progress_does_not_prevent_the_call_timeout() {
    let call = Duration::from_millis(500);
    let timers = McpTimers { call, call_max: Duration::from_secs(1), ..McpTimers::default() };
    let bench = McpFixture::with(&["well"], timers, |_, _| {}).ready().await;
    let late = bench.call("flood", "").await;
    assert!(words(&late).contains("did not answer within 1."), "{late:?}");
}

#[tokio::test]
async fn a_server_that_is_stopped_in_a_call_is_started_anew_and_not_left_behind() {
    let timers = McpTimers { call: Duration::from_millis(300), ..McpTimers::default() };
    let bench = McpFixture::with(&["well"], timers, |_, _| {}).ready().await;
    assert!(words(&bench.call("stop", "").await).contains("did not answer"));
    bench.wait_for_status(ServerStatus::Pending).await;
    bench.wait_for_status(ServerStatus::Connected).await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    let log = bench.log();
    let pids: Vec<i32> =
        log.lines().filter_map(|line| line.strip_prefix("start ")?.parse().ok()).collect();
    assert_eq!(pids.len(), 2, "{log}");
    with_time_limit("the end of the first", async {
        while is_alive(pids[0]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_asks_and_reads_no_answers_is_started_anew() {
    let bench = McpFixture::of(&["well"]).ready().await;
    let told = words(&bench.call("pester", "").await);
    assert!(told.contains("was lost while the call") || told.contains("hung up"), "{told}");
    let mut news = Vec::new();
    with_time_limit("the news", async {
        while !news.iter().any(|line: &String| line.contains("it does not read its input")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            news.extend(bench.servers.take_warnings());
        }
    })
    .await;
    bench.wait_for_status(ServerStatus::Connected).await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
}

#[tokio::test]
async fn a_storm_of_news_about_tools_neither_starves_calls_nor_is_answered_in_kind() {
    let bench = McpFixture::of(&["storm"]).ready().await;
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    }
    let listings = || bench.log().matches("tools/list\n").count();
    with_time_limit("a further list", async {
        while began.elapsed() < Duration::from_secs(2) || listings() < 2 {
            bench.call("echo", "hi").await;
        }
    })
    .await;
    let listings = listings();
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("a small number");
    assert!(listings <= seconds + 3, "{listings} in {seconds} s");
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_explained_by_how_its_server_stands() {
    let table = [
        (&["well"][..], "has no tool mcp__test__nope; it has: mcp__test__echo, mcp__test__fail"),
        (&["crash"][..], "is not connected yet: it did not start up (its output: cannot find"),
    ];
    for (mode, wanted) in table {
        let bench = McpFixture::of(mode);
        with_time_limit("the first attempt", bench.servers.wait_for_starts(Duration::from_mins(1)))
            .await;
        let told = words(&bench.call("nope", "").await);
        assert!(told.contains(wanted), "{mode:?}: {told}");
        assert_eq!(bench.servers.explain_missing_tool("mcp__other__nope"), None);
        assert_eq!(bench.servers.explain_missing_tool("Bash"), None);
    }
    let closed = http("initialize:401").await;
    closed.bench.wait_for_status(ServerStatus::NeedsAuth).await;
    let told = words(&closed.bench.call("echo", "").await);
    assert!(told.contains("is not connected: it requires a login (HTTP 401), and an"), "{told}");
    let gone = http("initialize:404").await;
    gone.bench.wait_for_status(ServerStatus::Failed).await;
    let told = words(&gone.bench.call("echo", "").await);
    assert!(told.contains("Go on without it") && told.contains("HTTP 404"), "{told}");
    let disabled =
        McpFixture::with(&["well"], McpTimers::default(), |config, _| config.disabled = true);
    assert!(words(&disabled.call("echo", "").await).contains("is disabled"));
}

#[tokio::test]
async fn every_version_of_the_protocol_is_spoken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "none"] {
        let bench = McpFixture::of(&["version", version]).ready().await;
        assert_eq!(words(&bench.call("echo", version).await), format!("echo: {version}"));
    }
    // Some servers refuse the newest version, instead of answering with their own.
    let bench = McpFixture::of(&["supports", "2025-03-26"]).ready().await;
    assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi");
    assert_eq!(bench.log().matches("initialize").count(), 3, "{}", bench.log());
}

#[tokio::test]
async fn answers_in_unusual_forms_are_understood() {
    // Identifiers as text, lists of messages, and behind other output on the line.
    for mode in ["textual", "batches", "noisy"] {
        let bench = McpFixture::of(&[mode]).ready().await;
        assert_eq!(words(&bench.call("echo", "hi").await), "echo: hi", "{mode}");
    }
}

#[tokio::test]
async fn a_server_that_knows_no_handshake_is_talked_to_without() {
    for code in ["-32601", "-32022", "-32020"] {
        let bench = McpFixture::of(&["stateless", code]).ready().await;
        assert_eq!(words(&bench.call("echo", code).await), format!("echo: {code}"));
    }
    let bench = McpFixture::of(&["stateless", "-32603"]);
    with_time_limit("the first attempt", bench.servers.wait_for_starts(Duration::from_mins(1)))
        .await;
    assert!(
        unavailable_reason(&bench).contains("did not start up: there is no handshake"),
        "{}",
        unavailable_reason(&bench)
    );
    assert_eq!(bench.log().matches("server/discover").count(), 0, "{}", bench.log());
}

#[tokio::test]
async fn null_is_an_empty_list_and_cursors_that_lead_nowhere_end_a_list() {
    let bench = McpFixture::of(&["nulls"]).ready().await;
    let names: Vec<String> =
        bench.servers.tool_definitions().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["mcp__test__echo"]);
    assert_eq!(bench.log().matches("tools/list\n").count(), 2, "{}", bench.log());
    assert_eq!(bench.servers.take_warnings(), [""; 0]);
    // So does one that came before. Some servers list tools by their names.
    let bench = McpFixture::of(&["cycle"]).ready().await;
    assert_eq!(bench.servers.tool_definitions().len(), 3);
    assert_eq!(bench.servers.take_warnings(), [""; 0]);
    // An empty cursor ends the list, too.
    let bench = McpFixture::of(&["well"]).ready().await;
    assert_eq!(bench.log().matches("tools/list\n").count(), 1, "{}", bench.log());
}

#[tokio::test]
async fn the_pages_before_one_that_fails_count_and_the_rest_is_told() {
    let bench = McpFixture::of(&["pages"]).ready().await;
    let names: Vec<String> =
        bench.servers.tool_definitions().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let told = bench.servers.take_warnings().join("\n");
    assert!(told.contains("it refuses page 3 of its tools: no such page"), "{told}");
    let bench = McpFixture::of(&["endless"]).ready().await;
    let told = bench.servers.take_warnings().join("\n");
    assert!(told.contains("its list of tools has more than 1000 pages"), "{told}");
    // Some servers write one tool on each page.
    let bench = McpFixture::of(&["ones"]).ready().await;
    assert_eq!(bench.servers.tool_definitions().len(), 100);
    assert_eq!(bench.servers.take_warnings(), [""; 0]);
}

#[tokio::test]
async fn a_server_without_tools_is_connected_all_the_same() {
    let bench = McpFixture::of(&["toolless"]).ready().await;
    let names: Vec<String> =
        bench.servers.tool_definitions().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["ListMcpResources", "ReadMcpResource"]);
}

/// A handshake that the server refuses would be refused again.
#[tokio::test]
async fn a_server_that_speaks_no_tls_is_given_up_at_once_with_the_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let mut piece = [0; 4096];
            // The client hangs up when it likes.
            let _ =
                socket.read(&mut piece).and_then(|_| socket.write_all(b"HTTP/1.1 400 No\r\n\r\n"));
        }
    });
    let bench = McpFixture::with(&[], long_timers(), |config, _| {
        *config = http::config(format!("https://127.0.0.1:{port}/mcp"), &[]);
    });
    bench.wait_for_status(ServerStatus::Failed).await;
    let why = unavailable_reason(&bench);
    assert!(why.contains("TLS: the server speaks no TLS there"), "{why}");
    is_plain(&why, "no TLS");
}
