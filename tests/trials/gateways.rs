//! Gateways: a failure is classified correctly in any wording. And summary requests: when they
//! fail, the run continues.

use std::fs;
use std::path::Path;

use outlast::rehearsal::{AfterLast, ReceivedRequest, RehearsalServer, ReplyForm, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use super::requirements::fails_as;
use super::resume_after_kill::blocks;
use super::timeouts::with;
use crate::support::rotation::rotating_part;
use crate::support::{FinishedProcess, RunBuilder, serve};

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

/// A run that tries again at once.
fn hasty(server: &RehearsalServer) -> RunBuilder {
    with(
        RunBuilder::against(server),
        &json!({ "retryFirstDelay": "1ms", "retryLongestDelay": "1ms" }),
    )
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
    for (name, class) in rotating_part(table, 4) {
        let server = serve(plays(Scenario::new(), name).reply("Done."));
        let ended = hasty(&server).args(["Do it."]).run().await;
        let result = agrees(&ended);
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        assert_eq!(result["recovery"]["retries_by_class"], json!({ class: 1 }), "{name}");
        assert_eq!(server.requests().len(), 2, "{name}");
        assert_eq!(server.violations(), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn an_overload_quoted_by_a_gateway_switches_the_model() {
    let (status, body) = recorded("litellm-500-was-529.json");
    let overloaded = || Scenario::new().status(status).body("application/json", &body);
    let server = serve(overloaded().times(3).reply("Done."));
    let chain = ["--model", "sonnet", "--fallback-model", "haiku", "Do it."];
    let ended = hasty(&server).args(chain).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let models: Vec<String> = server.requests().iter().map(|it| it.model().to_owned()).collect();
    assert_eq!(models[2], "claude-sonnet-5-5", "{models:?}");
    assert_eq!(models[3], "claude-haiku-5-5", "{models:?}");

    let server = serve(overloaded().after(AfterLast::RepeatLast));
    let ended = hasty(&server).args(["--max-retries", "2", "Do it."]).run().await;
    let result = fails_as(&ended, 75, "model_error");
    assert_eq!(
        (&result["api_error_class"], &result["api_error_status"]),
        (&json!("repeated_529"), &json!(500))
    );
    assert_eq!(result["retryable"], true);
}

#[tokio::test]
async fn permanent_gateway_errors_are_not_retried_in_any_wording() {
    let table = [
        ("litellm-500-was-401.json", 77, "invalid_api_key"),
        ("litellm-401.json", 77, "invalid_api_key"),
        ("litellm-429-budget.json", 1, "credit_balance_low"),
        ("litellm-400-model.json", 1, "invalid_model"),
        ("bedrock-400-model.json", 1, "invalid_model"),
        ("bedrock-403-access.json", 77, "auth_error"),
        ("llamacpp-401.json", 77, "invalid_api_key"),
        ("llamacpp-400-grammar.json", 1, "invalid_request"),
        ("openai-429-quota.json", 1, "credit_balance_low"),
        ("vertex-404.json", 1, "invalid_model"),
        ("vllm-404.json", 1, "invalid_model"),
    ];
    for (name, code, class) in table {
        let server = serve(plays(Scenario::new(), name).after(AfterLast::RepeatLast));
        let ended = hasty(&server).args(["Do it."]).run().await;
        let result = fails_as(&ended, code, "model_error");
        assert_eq!(result["api_error_class"], class, "{name}");
        assert_eq!(server.requests().len(), 1, "{name}: {ended:?}");
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
            let server = serve(scenario.after(AfterLast::RepeatLast));
            let ended = hasty(&server).args(["--max-retries", "3", "Do it."]).run().await;
            let found = agrees(&ended)["api_error_class"].clone();
            let found = if found == "repeated_529" { json!("server_overload") } else { found };
            assert_eq!(found, class, "{status} {shape}: {ended:?}");
            assert_eq!(server.requests().len(), requests, "{status} {shape}");
        }
    }
}

// --- overflows --------------------------------------------------------------------------------

/// Six long outputs, and a request that holds them all.
fn grown(scenario: Scenario) -> Scenario {
    let command = "echo x >> n; seq -f \"$(wc -l < n): line %g of a long log\" 1 1000";
    scenario.tool("Bash", json!({ "command": command })).times(6)
}

/// What a service says of a window of so many tokens.
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

const OVERFLOWS: [&str; 8] = [
    "litellm-400-llamacpp-context.json",
    "litellm-400-context.json",
    "llamacpp-400-context.json",
    "llamacpp-500-context.json",
    "vllm-400-context.json",
    "vllm-400-output.json",
    "vllm-400-negative.json",
    "bedrock-400-context.json",
];

#[tokio::test]
async fn an_overflow_in_any_wording_is_folded_and_the_run_continues() {
    for name in OVERFLOWS {
        let (status, body) = overflow(name, "65536");
        let scenario = grown(Scenario::new()).status(status).body("application/json", &body);
        let scenario = scenario.reply("6000 lines.").form(ReplyForm::LlamaCpp);
        // Where no window is named, not much is left of it to be safe.
        let server = serve(scenario.compactions(Scenario::new().reply("Six parts, 6000 lines.")));
        let ended = RunBuilder::against(&server).args(["How many lines?"]).run().await;
        let result = agrees(&ended);
        assert_eq!(
            (ended.code, &result["result"]),
            (Some(0), &json!("6000 lines.")),
            "{name}: {ended:?}"
        );
        assert_eq!(result["recovery"]["strategies"]["collapse_drain_retry"], 1, "{name}");
        assert_eq!(
            result["recovery"]["retries_by_class"],
            json!({ "prompt_too_long": 1 }),
            "{name}"
        );
        let requests = server.requests();
        let last = requests.last().expect("there were requests");
        assert!(size(last) < size(&requests[6]) * 2 / 3, "{name}: it became smaller");
        assert!(requests.len() <= 9, "{name}: {}", requests.len());
        let (calls, results) = (blocks(last, "tool_use"), blocks(last, "tool_result"));
        assert_eq!(calls.len(), results.len(), "{name}: every call is answered");
        assert_eq!(server.violations(), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn an_overflow_without_mitigation_ends_with_the_correct_error() {
    for name in ["llamacpp-400-context.json", "vllm-400-output.json", "bedrock-400-context.json"] {
        let (status, body) = overflow(name, "65536");
        let always = |scenario: Scenario| scenario.status(status).body("application/json", &body);
        let scenario = always(grown(Scenario::new()));
        let server = serve(scenario.after(AfterLast::RepeatLast));
        let ended = RunBuilder::against(&server).args(["How many lines?"]).run().await;
        let result = fails_as(&ended, 7, "prompt_too_long");
        assert_eq!(result["api_error_class"], "prompt_too_long", "{name}");
        let why = result["errors"][0].to_string();
        assert!(why.contains("largest: ") && why.contains("tokens"), "{name}: {why}");
        assert!(server.requests().len() < 20, "{name}: {}", server.requests().len());
        assert_eq!(server.violations(), [""; 0], "{name}: no refused request comes again");
    }
}

// --- helper calls -----------------------------------------------------------------------------

/// A conversation that is compacted ahead of need; the summary fails.
async fn without_a_summary(
    name: &str,
    summaries: Scenario,
) -> (RehearsalServer, FinishedProcess, Value) {
    let scenario = grown(Scenario::new()).reply("6000 lines.").compactions(summaries);
    let server = serve(scenario);
    let trial = hasty(&server).args([
        "--settings",
        r#"{"contextWindow": 48000, "retryFirstDelay": "1ms", "retryLongestDelay": "1ms"}"#,
    ]);
    let ended = trial.args(["--max-retries", "1", "How many lines?"]).run().await;
    let result = agrees(&ended);
    assert_eq!(
        (ended.code, &result["result"]),
        (Some(0), &json!("6000 lines.")),
        "{name}: {ended:?}"
    );
    assert_eq!(server.violations(), [""; 0], "{name}");
    (server, ended, result)
}

#[tokio::test]
async fn a_failed_summary_does_not_stop_the_run() {
    let cases = [
        ("refused", Scenario::new().status(400).error("invalid_request_error", "no", None)),
        ("declined", Scenario::new().reply("I will not.").stop_reason("refusal")),
        ("calls a tool", Scenario::new().tool("Bash", json!({ "command": "touch never" }))),
        ("empty", Scenario::new().empty()),
    ];
    for (name, failing) in cases {
        let (server, ended, result) = without_a_summary(name, failing.times(20)).await;
        let forgone = result["recovery"]["strategies"]["compact_skipped"].as_u64();
        assert!(forgone.is_some_and(|times| times >= 1), "{name}: {result}");
        assert_eq!(result["recovery"]["strategies"].get("retry"), None, "{name}");
        assert!(!ended.work().join("never").exists(), "{name}");
        assert!(server.requests().len() <= 7 + 3, "{name}: three times at most");
    }
}

#[tokio::test]
async fn a_summary_that_succeeds_on_retry_is_used() {
    let summaries =
        Scenario::new().status(529).reply("Six parts were read, 1000 lines each.").times(5);
    let (server, _ended, result) = without_a_summary("late", summaries).await;
    assert_eq!(result["recovery"]["strategies"].get("compact_skipped"), None, "{result}");
    let compacted = result["recovery"]["strategies"]["auto_compact"].as_u64();
    assert!(compacted.is_some_and(|times| times >= 1), "{result}");
    let requests = server.requests();
    let last = requests.last().expect("there were some").body["messages"].to_string();
    assert!(last.contains("Six parts were read"), "{last}");
}
