//! Matching of script steps to requests, and the record of requests.

use std::time::Duration;

use outlast_rehearsal::{
    AfterLast, Expectation, ObservedOutcome, Scenario, ScratchFolder, ServerRules, StepCondition,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::client::{PATIENCE, ask, connect, parse, post, read_all, respond, start};

async fn statuses(scenario: Scenario, models: &[&str]) -> Vec<u16> {
    let server = start(scenario);
    let mut statuses = Vec::new();
    for model in models {
        let mut body = ask();
        body["model"] = json!(model);
        statuses.push(respond(&server, &body).await.status);
    }
    statuses
}

#[tokio::test]
async fn steps_are_played_in_order_with_their_repetitions() {
    let scenario = Scenario::new().status(529).times(2).status(500).reply("Done.");
    assert_eq!(statuses(scenario, &["m"; 4]).await, [529, 529, 500, 200]);
}

#[tokio::test]
async fn the_scenario_defines_the_answer_after_its_last_step() {
    let script = || Scenario::new().status(529).reply("Done.");
    let played = |after| statuses(script().after(after), &["m"; 4]);
    assert_eq!(played(AfterLast::Fail).await, [529, 200, 500, 500]);
    assert_eq!(played(AfterLast::RepeatLast).await, [529, 200, 200, 200]);
    assert_eq!(played(AfterLast::Loop).await, [529, 200, 529, 200]);
}

#[tokio::test]
async fn a_request_beyond_the_end_is_a_non_retryable_violation() {
    let server = start(Scenario::new().reply("Done."));
    respond(&server, &ask()).await;
    assert!(server.violations().is_empty());
    let response = respond(&server, &ask()).await;
    assert!(response.head.contains("x-should-retry: false"));
    assert_eq!(server.violations(), ["request 2 came after the end of the script"]);
}

#[tokio::test]
async fn a_step_can_be_restricted_to_one_model() {
    let scenario = Scenario::new()
        .status(529)
        .when_model("first")
        .times(2)
        .reply("Done.")
        .when_model("second*");
    let asked = ["first", "second-2026", "first", "third"];
    assert_eq!(statuses(scenario, &asked).await, [529, 200, 529, 500]);
}

#[tokio::test]
async fn a_step_can_match_on_the_request() {
    let scenario = Scenario::new()
        .status(500)
        .when(StepCondition { contains: Some("goodbye".to_owned()), ..StepCondition::default() })
        .status(503)
        .when(StepCondition { stream: Some(false), ..StepCondition::default() })
        .reply("Hello.");
    let server = start(scenario);
    assert_eq!(respond(&server, &ask()).await.status, 200);
    assert_eq!(server.requests()[0].step, Some(2));
    assert_eq!(server.unrequested_answers(), 2);
}

#[tokio::test]
async fn a_wrong_key_is_refused_without_consuming_a_script_step() {
    let rules = ServerRules { require_key: Some("right".to_owned()), ..ServerRules::default() };
    let server = start(Scenario::new().reply("In.").times(2).rules(rules));
    let mut statuses = Vec::new();
    for header in
        ["x-api-key: wrong", "authorization: Bearer right", "x-api-key: right", "accept: */*"]
    {
        let mut stream = connect(&server).await;
        stream.write_all(&post(&ask(), &[header, "connection: close"])).await.unwrap();
        statuses.push(parse(&read_all(&mut stream).await.0).status);
    }
    assert_eq!(statuses, [401, 200, 200, 401]);
    assert!(server.violations().is_empty());
}

#[tokio::test]
async fn a_model_with_a_small_window_refuses_with_its_limit() {
    let rules = ServerRules {
        context_window: Some(1_000),
        max_output: Some(2_000),
        ..ServerRules::default()
    };
    let server = start(Scenario::new().reply("Fits.").rules(rules));
    let refusal = async |change: fn(&mut Value)| {
        let mut body = ask();
        change(&mut body);
        let response = respond(&server, &body).await;
        assert_eq!(response.status, 400);
        response.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    let long = refusal(|body| body["messages"][0]["content"] = json!("x".repeat(8_000))).await;
    assert!(long.starts_with("prompt is too long: 20"), "{long}");
    let wide = refusal(|body| body["max_tokens"] = json!(2_001)).await;
    assert!(wide.starts_with("max_tokens: 2001 > 2000"), "{wide}");
    assert_eq!(respond(&server, &ask()).await.status, 200);
    assert!(server.violations().is_empty(), "asking for too much breaks no rule");
}

#[tokio::test]
async fn every_request_is_recorded_as_received() {
    let server = start(Scenario::new().status(529).reply("Done."));
    for key in ["one", "two"] {
        let mut stream = connect(&server).await;
        let header = format!("X-Api-Key: {key}");
        stream.write_all(&post(&ask(), &[&header, "connection: close"])).await.unwrap();
        read_all(&mut stream).await;
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].header("x-api-key"), Some("two"));
    assert_eq!(requests[1].model(), "claude-sonnet-4-5");
    assert_eq!(requests[1].body, ask());
    assert_eq!(*requests[1].raw, *ask().to_string().as_bytes());
    assert_eq!((requests[0].connection_id, requests[1].connection_id), (1, 2));
    assert!(requests[0].at < requests[1].at);
    assert_eq!((requests[0].step, requests[1].step), (Some(0), Some(1)));
}

#[tokio::test]
async fn a_test_can_wait_for_a_request() {
    let server = start(Scenario::new().reply("One.").reply("Two."));
    let ask_twice = async {
        respond(&server, &ask()).await;
        let mut second = ask();
        second["model"] = json!("another");
        respond(&server, &second).await;
    };
    let waited = timeout(PATIENCE, async { tokio::join!(server.wait_for_request(2), ask_twice) });
    let (request, ()) = waited.await.expect("the second request is seen");
    assert_eq!(request.model(), "another");
}

#[tokio::test]
async fn a_client_disconnect_during_a_delay_is_recorded() {
    let server = start(Scenario::new().reply("Late.").delay(Duration::from_hours(1)));
    let mut stream = connect(&server).await;
    stream.write_all(&post(&ask(), &[])).await.unwrap();
    timeout(PATIENCE, server.wait_for_request(1)).await.expect("it came");
    drop(stream);
    timeout(PATIENCE, server.wait_for_abort(1)).await.expect("it left");
}

#[tokio::test]
async fn a_verdict_lists_every_unmet_expectation() {
    let expect = Expectation {
        exit: Some(0),
        terminal_reason: Some("completed".to_owned()),
        files: [("there".to_owned(), "wanted".to_owned()), ("lost".to_owned(), String::new())]
            .into(),
        absent: vec!["there".to_owned(), "gone".to_owned()],
        requests: Some(3),
        stderr: vec!["overload".to_owned()],
        ..Expectation::default()
    };
    let scenario = Scenario::new()
        .reply("One.")
        .times(3)
        .file("there", "something else", 0o644)
        .expect(expect);
    let scratch = ScratchFolder::create(&scenario).unwrap();
    let server = start(scenario);
    let good = ObservedOutcome {
        exit: 0,
        terminal_reason: Some("completed"),
        folder: scratch.path(),
        stderr: None,
    };
    let mut twisted = ask();
    twisted["max_tokens"] = json!(0);
    respond(&server, &twisted).await;
    let bad = ObservedOutcome {
        exit: 75,
        terminal_reason: Some("model_error"),
        stderr: Some("nothing"),
        ..good
    };
    let faults = server.verify(&bad).join("\n");
    for fault in [
        "expected exit 0 (completed), but the run ended with exit 75 (model_error)",
        "there does not contain \"wanted\"",
        "lost cannot be read",
        "there exists",
        "expected 3 requests, but there were 1",
        "standard error does not contain \"overload\"",
        "invalid request 1: max_tokens: must be an integer greater than 0",
        "3 answers of the script were never requested",
    ] {
        assert!(faults.contains(fault), "{fault:?} is missing from\n{faults}");
    }
    assert_eq!(faults.lines().count(), 8, "{faults}");

    let scenario = Scenario::new()
        .reply("One.")
        .expect(Expectation { exit: Some(0), ..Expectation::default() });
    let server = start(scenario);
    respond(&server, &ask()).await;
    assert_eq!(server.verify(&good), Vec::<String>::new());
}
