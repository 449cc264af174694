//! Gateways: a failure is classified correctly in any wording. And summary requests: when they
//! fail, the run continues.

use std::fs;
use std::path::Path;

use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::{AfterLast, ReceivedRequest, ReplyForm, Scenario};
use serde_json::json;

use super::run_fixture::{FinishedRun, RunFixture};
use crate::support::requests::blocks;

/// A body that a gateway sent, and the status it came with.
fn recorded(name: &str) -> (u16, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bodies").join(name);
    let status = name.split('-').nth(1).expect("its second word").trim_end_matches(".json");
    (status.parse().expect("a status"), fs::read_to_string(path).expect("it was recorded"))
}

/// Answers with it.
fn plays(scenario: Scenario, name: &str) -> Scenario {
    let (status, body) = recorded(name);
    let scenario = scenario.status(status).body("application/json", &body);
    match name {
        "bedrock-400-rate.json" => {
            scenario.header("x-amzn-errortype", "ThrottlingException:http://internal.amazon.com/")
        }
        _ => scenario,
    }
}

/// The class of the failure that a run ended with.
fn class_of(played: &FinishedRun) -> Option<ErrorClass> {
    played.ending.failure.as_ref().map(|failure| failure.class)
}

/// True if a run ended with this class of error, or completed without any.
fn ended_with(played: &FinishedRun, class: Option<&str>) -> bool {
    let is_so = match class {
        None => played.ending.reason == StopReason::Completed,
        Some(_) => matches!(played.ending.reason, StopReason::ModelError(_)),
    };
    is_so && class_of(played).map(ErrorClass::name) == class
}

#[tokio::test]
async fn transient_gateway_errors_are_retried_in_any_wording() {
    let table = [
        ("litellm-500-was-529.json", "server_overload"),
        ("litellm-500-bedrock-throttle.json", "rate_limit"),
        ("litellm-500-vertex-throttle.json", "rate_limit"),
        ("litellm-429-bedrock.json", "rate_limit"),
        ("litellm-429-vertex.json", "rate_limit"),
        ("litellm-502-html.json", "server_error"),
        ("bedrock-400-rate.json", "rate_limit"),
        ("bedrock-429.json", "rate_limit"),
        ("bedrock-429-tokens.json", "rate_limit"),
        ("bedrock-429-not-ready.json", "rate_limit"),
        ("bedrock-503.json", "server_error"),
        ("vertex-429-quota.json", "rate_limit"),
        ("ccr-529.json", "server_overload"),
        ("llamacpp-503.json", "server_error"),
        ("openrouter-502.json", "server_error"),
        ("portkey-529.json", "server_overload"),
    ];
    for (name, class) in table {
        let played = RunFixture::of(plays(Scenario::new(), name).reply("Done.")).run().await;
        assert!(ended_with(&played, None), "{name}: {:?}", played.trace());
        assert_eq!(played.retries(), json!({ class: 1 }), "{name}");
        assert_eq!(played.server.requests().len(), 2, "{name}");
        assert_eq!(played.server.violations(), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn permanent_gateway_errors_are_not_retried_in_any_wording() {
    let table = [
        ("litellm-500-was-401.json", "invalid_api_key"),
        ("litellm-401.json", "invalid_api_key"),
        ("litellm-429-budget.json", "credit_balance_low"),
        ("litellm-400-model.json", "invalid_model"),
        ("bedrock-400-model.json", "invalid_model"),
        ("bedrock-403-access.json", "auth_error"),
        ("llamacpp-401.json", "invalid_api_key"),
        ("llamacpp-400-grammar.json", "invalid_request"),
        ("openai-429-quota.json", "credit_balance_low"),
        ("vertex-404.json", "invalid_model"),
        ("vllm-404.json", "invalid_model"),
    ];
    for (name, class) in table {
        let scenario = plays(Scenario::new(), name).after(AfterLast::RepeatLast);
        let played = RunFixture::of(scenario).run().await;
        assert!(ended_with(&played, Some(class)), "{name}: {:?}", played.ending.reason);
        assert_eq!(played.server.requests().len(), 1, "{name}: {:?}", played.trace());
    }
}

#[tokio::test]
async fn an_unknown_error_body_is_classified_by_its_status() {
    let shapes =
        ["", "{}", "[]", "null", "\"no\"", "{\"error\":[[]]}", "{\"x\":{\"error\":1}}", "\u{0}"];
    let statuses =
        [(418, "invalid_request", 1), (500, "server_error", 4), (529, "server_overload", 4)];
    for shape in shapes {
        for (status, class, requests) in statuses {
            let scenario = Scenario::new().status(status).body("application/json", shape);
            let fixture = RunFixture::of(scenario.after(AfterLast::RepeatLast));
            let played = fixture.limits(|limits| limits.budgets.retries = 3).run().await;
            let end = (played.ending.reason, class_of(&played));
            assert!(ended_with(&played, Some(class)), "{status} {shape}: {end:?}");
            assert_eq!(played.server.requests().len(), requests, "{status} {shape}");
        }
    }
}

// --- overflows --------------------------------------------------------------------------------

/// Six long outputs, and a request that holds them all.
fn grown(scenario: Scenario) -> Scenario {
    let command = "echo x >> n; seq -f \"$(wc -l < n): line %g of a long log\" 1 1000";
    scenario.tool("Bash", json!({ "command": command })).times(6)
}

/// The error body of a service for a context window of this many tokens.
fn overflow(name: &str, window: &str) -> (u16, String) {
    let (status, body) = recorded(name);
    let body = ["1024", "8192", "4096", "2048"]
        .iter()
        .fold(body, |body, small| body.replace(small, window));
    (status, body)
}

fn size(request: &ReceivedRequest) -> usize {
    request.body["messages"].to_string().len()
}

#[tokio::test]
async fn an_overflow_in_any_wording_is_folded_and_the_run_continues() {
    for name in [
        "litellm-400-llamacpp-context.json",
        "litellm-400-context.json",
        "llamacpp-400-context.json",
        "llamacpp-500-context.json",
        "vllm-400-context.json",
        "vllm-400-output.json",
        "vllm-400-negative.json",
        "bedrock-400-context.json",
    ] {
        let (status, body) = overflow(name, "65536");
        let scenario = grown(Scenario::new()).status(status).body("application/json", &body);
        let scenario = scenario.reply("6000 lines.").form(ReplyForm::LlamaCpp);
        // Where no window is named, not much is left of it to be safe.
        let scenario = scenario.compactions(Scenario::new().reply("Six parts, 6000 lines."));
        let played = RunFixture::of(scenario).run().await;
        assert!(ended_with(&played, None), "{name}: {:?}", played.trace());
        assert_eq!(played.ending.text, "6000 lines.", "{name}");
        assert_eq!(played.strategies()["collapse_drain_retry"], 1, "{name}");
        assert_eq!(played.retries(), json!({ "prompt_too_long": 1 }), "{name}");
        let requests = played.server.requests();
        let last = requests.last().expect("there were requests");
        assert!(size(last) < size(&requests[6]) * 2 / 3, "{name}: it became smaller");
        assert!(requests.len() <= 9, "{name}: {}", requests.len());
        let (calls, results) = (blocks(last, "tool_use").len(), blocks(last, "tool_result").len());
        assert_eq!(calls, results, "{name}: every call is answered");
        assert_eq!(played.server.violations(), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn an_overflow_without_mitigation_ends_with_the_correct_error() {
    for name in ["llamacpp-400-context.json", "vllm-400-output.json", "bedrock-400-context.json"] {
        let (status, body) = overflow(name, "65536");
        let scenario = grown(Scenario::new()).status(status).body("application/json", &body);
        let played = RunFixture::of(scenario.after(AfterLast::RepeatLast)).run().await;
        assert_eq!(played.ending.reason, StopReason::PromptTooLong, "{name}: {:?}", played.trace());
        assert_eq!(class_of(&played), Some(ErrorClass::PromptTooLong), "{name}");
        assert!(!played.ending.contributors.is_empty(), "{name}");
        let requests = played.server.requests().len();
        assert!(requests <= 20, "{name}: {requests}");
        assert_eq!(played.server.violations(), [""; 0], "{name}: no refused request comes again");
    }
}

// --- helper calls -----------------------------------------------------------------------------

/// A conversation that is compacted ahead of need, with these replies to requests for summaries.
async fn compacted(name: &str, summaries: Scenario) -> FinishedRun {
    let scenario = grown(Scenario::new()).reply("6000 lines.").compactions(summaries);
    let fixture = RunFixture::of(scenario).limits(|limits| limits.budgets.retries = 1);
    let played = fixture.window(48_000).run().await;
    assert!(ended_with(&played, None), "{name}: {:?}", played.trace());
    assert_eq!(played.ending.text, "6000 lines.", "{name}");
    assert_eq!(played.server.violations(), [""; 0], "{name}");
    played
}

#[tokio::test]
async fn a_failed_summary_does_not_stop_the_run() {
    let cases = [
        ("refused", Scenario::new().status(400).error("invalid_request_error", "no", None)),
        ("declined", Scenario::new().reply("I will not.").stop_reason("refusal")),
        ("calls a tool", Scenario::new().tool("Bash", json!({ "command": "touch never" }))),
        ("calls a tool in its text", Scenario::new().reply("<invoke name=\"Bash\"></invoke>")),
        ("empty", Scenario::new().empty()),
    ];
    for (name, failing) in cases {
        let played = compacted(name, failing.times(20)).await;
        let strategies = played.strategies();
        let forgone = strategies["compact_skipped"].as_u64();
        assert!(forgone.is_some_and(|times| times >= 1), "{name}: {strategies}");
        let warned = played.warnings().iter().filter(|it| it.contains("several summaries")).count();
        assert_eq!(warned, usize::from(forgone == Some(3)), "{name}: {strategies}");
        assert_eq!(strategies.get("retry"), None, "{name}");
        assert!(!played.folder.path().join("never").exists(), "{name}");
        assert!(played.server.requests().len() <= 7 + 3, "{name}: three times at most");
    }
}

/// A refusal by the model is not accepted as a summary.
#[tokio::test]
async fn an_overflow_without_a_usable_summary_is_cut_with_a_warning() {
    let declined = Scenario::new().reply("I will not.").stop_reason("refusal").times(20);
    let (status, body) = overflow("vllm-400-context.json", "65536");
    let scenario = grown(Scenario::new()).status(status).body("application/json", &body).times(2);
    let scenario = scenario.reply("6000 lines.").compactions(declined);
    let played = RunFixture::of(scenario).run().await;
    assert!(ended_with(&played, None), "{:?}", played.trace());
    assert_eq!(played.strategy("compact_unsummarised"), 1, "{:?}", played.trace());
    let last = played.server.requests().pop().expect("there were requests").body.to_string();
    assert!(last.contains("No summary could be made") && !last.contains("I will not."), "{last}");
    let warned = "the model gave no summary of the older messages, which were removed without one";
    assert_eq!(played.warnings(), [warned]);
}

#[tokio::test]
async fn a_summary_that_succeeds_on_retry_is_used() {
    let summaries =
        Scenario::new().status(529).reply("Six parts were read, 1000 lines each.").times(5);
    let played = compacted("late", summaries).await;
    let strategies = played.strategies();
    assert_eq!(strategies.get("compact_skipped"), None, "{strategies}");
    let summarized = strategies["auto_compact"].as_u64();
    assert!(summarized.is_some_and(|times| times >= 1), "{strategies}");
    let requests = played.server.requests();
    let last = requests.last().expect("there were some").body["messages"].to_string();
    assert!(last.contains("Six parts were read"), "{last}");
}
