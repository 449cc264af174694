//! Scenarios with several servers, several scripts and URL placeholders.

use std::fs;

use outlast_rehearsal::{
    AfterLast, Expectation, MAIN, ObservedOutcome, Scenario, ScratchFolder, ScriptLine,
    ServerRules, StepCondition,
};
use serde_json::json;

use super::client::{ask, complaint, respond, respond_to, start, unstreamed};

const COMPACT: &str = "x-outlast-source: compact";

#[tokio::test]
async fn summary_requests_can_have_their_own_script() {
    let summaries = Scenario::new().status(529).reply("In short.");
    let script = Scenario::new().reply("One.").reply("Two.").compactions(summaries);
    let server = start(script);
    let (body, mut said) = (unstreamed(), Vec::new());
    let none: &[&str] = &[];
    for headers in [none, &[COMPACT], &[COMPACT], &["x-outlast-source: main"]] {
        let response = respond_to(&server, &body, headers).await;
        said.push((response.status, response.json()["content"][0]["text"].clone()));
    }
    let spoken = |text: &str| (200, json!(text));
    assert_eq!(said, [spoken("One."), (529, json!(null)), spoken("In short."), spoken("Two.")]);
    let lines: Vec<_> =
        server.requests().iter().map(|request| (request.line, request.step)).collect();
    assert_eq!(
        lines,
        [
            (ScriptLine::Main, Some(0)),
            (ScriptLine::Compaction, Some(0)),
            (ScriptLine::Compaction, Some(1)),
            (ScriptLine::Main, Some(1))
        ]
    );
    assert_eq!(server.unrequested_answers(), 0);
    assert_eq!(respond_to(&server, &body, &[COMPACT]).await.status, 500);
    assert_eq!(server.violations(), ["request 5 came after the end of the script"]);
}

#[tokio::test]
async fn without_their_own_script_summary_requests_use_the_main_one() {
    let compact = StepCondition { source: Some("compact".to_owned()), ..StepCondition::default() };
    let server = start(Scenario::new().reply("In short.").when(compact).reply("One."));
    let body = unstreamed();
    assert_eq!(respond(&server, &body).await.json()["content"][0]["text"], "One.");
    let answer = respond_to(&server, &body, &[COMPACT]).await;
    assert_eq!(answer.json()["content"][0]["text"], "In short.");
}

#[tokio::test]
async fn an_expected_compaction_that_is_missing_fails_the_scenario() {
    let expect = Expectation { compactions: Some(1), refreshes: Some(2), ..Expectation::default() };
    let script = Scenario::new().reply("One.").compactions(Scenario::new().reply("In short."));
    let server = start(script.expect(expect));
    respond(&server, &ask()).await;
    assert_eq!(server.unrequested_answers(), 1);
    let folder = tempfile::tempdir().unwrap();
    let outcome =
        ObservedOutcome { exit: 0, terminal_reason: None, folder: folder.path(), stderr: None };
    assert_eq!(
        server.verify(&outcome),
        [
            "expected 1 requests for compactions, but there were 0",
            "expected 2 tokens granted, but there were 0",
            "one answer of the script was never requested"
        ]
    );
}

#[tokio::test]
async fn fast_mode_requests_can_have_their_own_answers() {
    let fast = StepCondition { fast: Some(true), ..StepCondition::default() };
    let server = start(
        Scenario::new()
            .status(429)
            .header("retry-after", "15")
            .when(fast)
            .reply("Slowly.")
            .when(StepCondition { fast: Some(false), ..StepCondition::default() })
            .reply("Fast.")
            .times(2),
    );
    let (slow, mut body) = (unstreamed(), unstreamed());
    body["speed"] = json!("fast");
    let beta = "anthropic-beta: other-2025-01-01, fast-mode-2026-02-01";
    let busy = respond_to(&server, &body, &[beta]).await;
    assert!(busy.status == 429 && busy.head.contains("retry-after: 15"));
    let slowly = respond(&server, &slow).await.json();
    assert_eq!(slowly["content"][0]["text"], "Slowly.");
    assert!(slowly["usage"].get("speed").is_none());
    let fast = respond_to(&server, &body, &[beta]).await.json();
    assert_eq!(fast["content"][0]["text"], "Fast.");
    assert_eq!(fast["usage"]["speed"], "fast");
    body["stream"] = json!(true);
    let streamed = respond_to(&server, &body, &[beta]).await.events();
    assert_eq!(streamed[0]["message"]["usage"]["speed"], "fast");
    assert!(server.violations().is_empty());
    body["speed"] = json!("ludicrous");
    assert_eq!(respond_to(&server, &body, &[beta]).await.status, 400);
    body["speed"] = json!("fast");
    assert_eq!(complaint(&server, &body).await, "speed: Extra inputs are not permitted");
    assert_eq!(server.violations().len(), 2);
}

#[tokio::test]
async fn every_server_has_its_own_script_and_rules() {
    let rules = ServerRules { require_key: Some("b".to_owned()), ..ServerRules::default() };
    let expect = Expectation { requests: Some(2), ..Expectation::default() };
    let backup = Scenario::new().reply("From B.").after(AfterLast::RepeatLast).rules(rules);
    let server = start(Scenario::new().status(529).server("b", backup.expect(expect)));
    let other = server.other("b").expect("it was said");
    assert!(server.other(MAIN).is_none());
    assert_ne!(server.port(), other.port());
    assert_eq!(respond(&server, &ask()).await.status, 529);
    assert_eq!(respond(other, &ask()).await.status, 401);
    let folder = tempfile::tempdir().unwrap();
    let outcome =
        ObservedOutcome { exit: 0, terminal_reason: None, folder: folder.path(), stderr: None };
    assert_eq!(
        server.verify(&outcome),
        [
            "expected 2 requests to b, but there were 1",
            "one answer of the script was never requested"
        ]
    );
    let mut twisted = ask();
    twisted["max_tokens"] = json!(0);
    assert_eq!(respond_to(other, &twisted, &["x-api-key: b"]).await.status, 400);
    assert_eq!(respond_to(other, &ask(), &["x-api-key: b"]).await.status, 200);
    assert_eq!((server.requests().len(), other.requests().len()), (1, 3));
    assert_eq!(
        server.violations(),
        ["b: request 2: max_tokens: must be an integer greater than 0"]
    );
    assert_eq!(server.unrequested_answers(), 0);
}

#[tokio::test]
async fn server_urls_are_filled_into_arguments_and_files() {
    let scenario = Scenario::new()
        .reply("One.")
        .server("b", Scenario::new().reply("Two."))
        .file(
            "deep/c.json",
            r#"{"a":"{server.main.url}/a","b":"{server.b.url}","c":"${cwd}"}"#,
            0o600,
        )
        .file("plain", "${cwd} {server.} {b}", 0o644);
    let scratch = ScratchFolder::create(&scenario).unwrap();
    let server = start(scenario);
    scratch.fill_in(&server).unwrap();
    let (main, b) = (server.base_url(), server.other("b").unwrap().base_url());
    let filled = server.fill_in("m@{server.b.url} {server.c.url} ${cwd}");
    assert_eq!(filled, format!("m@{b} {{server.c.url}} /scratch"));
    let read = |path: &str| fs::read_to_string(scratch.path().join(path)).unwrap();
    assert_eq!(read("deep/c.json"), format!(r#"{{"a":"{main}/a","b":"{b}","c":"${{cwd}}"}}"#));
    assert_eq!(read("plain"), "${cwd} {server.} {b}");
}

#[tokio::test]
async fn all_servers_shut_down_together() {
    let mut server =
        start(Scenario::new().reply("One.").server("b", Scenario::new().reply("Two.")));
    let port = server.other("b").unwrap().port();
    server.shutdown().await;
    for port in [server.port(), port] {
        let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        assert!(connected.is_err(), "the port is still open");
    }
}
