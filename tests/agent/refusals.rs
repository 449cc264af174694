//! Refusals that teach something about the service, or that are doubtful: asked once more.

use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::{
    AfterLast, FaultPosition, ReceivedRequest, Scenario, ScriptedFaultKind, ServerRules,
};
use outlast::types::Effort;
use serde_json::{Value, json};

use super::run_fixture::{FinishedRun, RunFixture};

fn caps(played: &FinishedRun) -> Vec<Value> {
    played.server.requests().iter().map(|request| request.body["max_tokens"].clone()).collect()
}

fn limited_to(max_output: u64, scenario: Scenario) -> Scenario {
    scenario.rules(ServerRules { max_output: Some(max_output), ..ServerRules::default() })
}

#[tokio::test]
async fn an_output_limit_is_learned_from_its_refusal_and_the_reply_comes_in_pieces() {
    let scenario = Scenario::new()
        .reply("one, ")
        .stop_reason("max_tokens")
        .reply("one, ")
        .stop_reason("max_tokens")
        .reply("two, ")
        .stop_reason("max_tokens")
        .reply("three");
    let played = RunFixture::of(limited_to(8_192, scenario)).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.text, "one, two, three");
    assert_eq!(caps(&played), [8_192, 64_000, 8_192, 8_192, 8_192]);
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn an_output_limit_below_the_first_cap_is_kept_for_the_model() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "echo" })).reply("Done.");
    let played = RunFixture::of(limited_to(4_096, scenario)).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(caps(&played), [8_192, 4_096, 4_096]);
}

#[tokio::test]
async fn a_cap_that_is_refused_without_a_limit_is_halved() {
    let refusal = "max_tokens is too large";
    let scenario = Scenario::new();
    let scenario = scenario.status(400).error("invalid_request_error", refusal, None);
    let scenario = scenario.reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(caps(&played), [8_192, 4_096]);
}

#[tokio::test]
async fn refused_cache_marks_are_left_out_from_then_on() {
    let refusal = "messages.0.content.0.text.cache_control: Extra inputs are not permitted";
    let scenario = Scenario::new()
        .status(400)
        .error("invalid_request_error", refusal, None)
        .tool("Bash", json!({ "command": "echo" }))
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let requests = played.server.requests();
    let marks = |raw: &[u8]| String::from_utf8_lossy(raw).matches("cache_control").count();
    let marks: Vec<usize> = requests.iter().map(|request| marks(&request.raw)).collect();
    assert!(marks[0] > 0, "{marks:?}");
    assert_eq!(marks[1..], [0, 0]);
}

#[tokio::test]
async fn a_service_that_takes_system_prompts_as_strings_only_gets_a_string_from_then_on() {
    let scenario = Scenario::new()
        .status(400)
        .error("invalid_request_error", "system: Input should be a valid string", None)
        .tool("Bash", json!({ "command": "echo" }))
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let requests = played.server.requests();
    let texts = requests[0].body["system"][0]["text"].clone();
    assert!(texts.is_string(), "{texts}");
    for request in &requests[1..] {
        assert_eq!(request.body["system"], texts);
        assert!(!request.body.to_string().contains("cache_control"));
    }
}

/// Streaming is given up for the rest of the run, also if a request without it breaks.
#[tokio::test]
async fn a_service_that_refuses_streaming_is_asked_without_it_from_then_on() {
    let refusal = "This model doesn't support tool use in streaming mode.";
    let scenario = Scenario::new()
        .status(400)
        .error("invalid_request_error", refusal, None)
        .tool("Bash", json!({ "command": "echo" }))
        .reply("Done.")
        .fault(ScriptedFaultKind::Reset, FaultPosition::Request)
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let streams = |request: &ReceivedRequest| request.body["stream"].clone();
    let streams: Vec<Value> = played.server.requests().iter().map(streams).collect();
    assert_eq!(streams, [true, false, false, false]);
    // Where nothing else is left, the refusal is final.
    let refused = Scenario::new().status(400).error("invalid_request_error", refusal, None);
    let played = RunFixture::of(refused.after(AfterLast::RepeatLast)).run().await;
    let end = StopReason::ModelError(ErrorClass::InvalidRequest);
    assert_eq!((played.ending.reason, played.server.requests().len()), (end, 2));
}

/// Each field is given up once, and stays away; the other one stays.
#[tokio::test]
async fn a_service_that_refuses_effort_or_thinking_is_asked_without_it_from_then_on() {
    let refuse = |scenario: Scenario, message: &str| {
        scenario.status(400).error("invalid_request_error", message, None)
    };
    let effort = "output_config: Extra inputs are not permitted";
    let thinking = "thinking: Extra inputs are not permitted";
    for (first, second) in [(effort, thinking), (thinking, effort)] {
        let scenario = refuse(refuse(Scenario::new(), first), second)
            .tool("Bash", json!({ "command": "true" }))
            .reply("Done.");
        let mut play = RunFixture::of(scenario);
        play.setup.reasoning.effort = Some(Effort::High);
        let played = play.run().await;
        assert_eq!(played.ending.reason, StopReason::Completed, "{first}");
        let fields: Vec<(bool, bool)> = played
            .server
            .requests()
            .iter()
            .map(|one| (one.body["thinking"].is_object(), one.body["output_config"].is_object()))
            .collect();
        let kept = (first == effort, first == thinking);
        assert_eq!(fields, [(true, true), kept, (false, false), (false, false)], "{first}");
    }
}

/// The first field that the message names was not sent.
#[tokio::test]
async fn a_refusal_that_names_a_field_which_was_not_sent_costs_the_other() {
    let refusal = "effort: not supported, as is thinking";
    let scenario =
        Scenario::new().status(400).error("invalid_request_error", refusal, None).reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let requests = played.server.requests();
    let has_thinking = |at: usize| requests[at].body["thinking"].is_object();
    assert!(requests[0].body["output_config"].is_null(), "no effort is asked for");
    assert_eq!((requests.len(), has_thinking(0), has_thinking(1)), (2, true, false));
}

/// Each is repeated once; a second refusal in a row is final.
#[tokio::test]
async fn a_refusal_that_is_contradicted_is_doubted_once() {
    let worked = || Scenario::new().tool("Bash", json!({ "command": "echo" }));
    let refusals = [
        (413, "request_too_large", "Request exceeds the maximum size", StopReason::PromptTooLong),
        (
            401,
            "authentication_error",
            "invalid x-api-key",
            StopReason::ModelError(ErrorClass::InvalidApiKey),
        ),
        (403, "permission_error", "not allowed", StopReason::ModelError(ErrorClass::AuthError)),
        (404, "not_found_error", "model: x", StopReason::ModelError(ErrorClass::InvalidModel)),
        (
            400,
            "invalid_request_error",
            "thinking: Extra inputs are not permitted",
            StopReason::ModelError(ErrorClass::InvalidRequest),
        ),
        (
            400,
            "invalid_request_error",
            "node 7 could not read the request",
            StopReason::ModelError(ErrorClass::InvalidRequest),
        ),
    ];
    for (status, kind, message, end) in refusals {
        let refused = |scenario: Scenario| scenario.status(status).error(kind, message, None);
        let played = RunFixture::of(refused(worked()).reply("Done.")).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed, "{status}");
        assert_eq!(played.server.requests().len(), 3, "{status}");
        let twice = refused(worked()).after(AfterLast::RepeatLast);
        let played = RunFixture::of(twice).run().await;
        assert_eq!(played.ending.reason, end, "{status}");
        assert_eq!(played.server.requests().len(), 3, "{status} {message}: doubted once");
    }
    // Neither the key nor the model has ever worked.
    for (status, kind, message, end) in &refusals[1..4] {
        let rejected = Scenario::new().status(*status).error(kind, message, None);
        let played = RunFixture::of(rejected.reply("Done.")).run().await;
        assert_eq!(played.ending.reason, *end, "{status}");
    }
}

/// A portal before the first good answer; a page at a wrong address is not one.
#[tokio::test]
async fn a_portal_before_the_first_answer_is_waited_out() {
    let page = "<html><title>Log in</title></html>";
    let portal = |status| {
        let scenario = Scenario::new().status(status).body("text/html", page);
        scenario.header("location", "http://portal.test/login").times(2).reply("Done.")
    };
    for status in [302, 303, 307, 401, 403] {
        let played = RunFixture::of(portal(status)).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed, "{status}");
    }
    for status in [301, 308, 404] {
        let played = RunFixture::of(portal(status)).run().await;
        assert_ne!(played.ending.reason, StopReason::Completed, "{status}");
        assert_eq!(played.server.requests().len(), 1, "{status}: wrong for good");
    }
}
