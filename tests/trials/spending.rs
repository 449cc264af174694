//! The budget where recoveries spend it: summaries, other models, lost attempts.

use outlast::rehearsal::{
    AfterLast, FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptStep,
    ScriptedFaultKind, ScriptedReply, ScriptedToolCall, ScriptedUsage, StepAnswer,
};
use serde_json::{Value, json};

use super::timeouts::hasty;
use crate::agent::model_chains::{FIRST, SECOND};
use crate::support::{FinishedProcess, RunBuilder, serve};

/// A window that the second reply of [`crowding`] fills by half.
pub(super) const CROWDED: [&str; 2] =
    ["--context-window=sonnet=20000", "--output-format=stream-json"];

/// Two rounds of tools, after which the conversation is due to be compacted, and an answer.
pub(super) fn crowding(second: Value) -> Scenario {
    let much = json!({ "command": "seq -w 1 4000" });
    Scenario::new()
        .tool("Bash", much)
        .usage(4_000, 100)
        .tool("Bash", second)
        .usage(9_990, 100)
        .reply("Done.")
        .usage(3_000, 100)
}

/// Which requests were for a summary.
pub(super) fn summaries(server: &RehearsalServer) -> Vec<bool> {
    let is_summary =
        |request: &ReceivedRequest| request.header("x-outlast-source") == Some("compact");
    server.requests().iter().map(is_summary).collect()
}

fn quick() -> Value {
    json!({ "command": "true" })
}

fn dollars(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn strategies(ended: &FinishedProcess) -> Value {
    ended.result()["recovery"]["strategies"].clone()
}

/// A summary is paid for like everything else, and from the same budget.
#[tokio::test]
async fn a_summary_is_paid_for_from_the_same_budget() {
    let summary = Scenario::new().reply("What was done so far.").usage(7_000, 300);
    let server = serve(crowding(quick()).compactions(summary));
    let ended = hasty(&server).args(CROWDED).args(["--max-budget-usd=1", "Do it."]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(summaries(&server), [false, false, true, false], "{ended:?}");
    assert_eq!(strategies(&ended), json!({ "auto_compact": 1 }));
    // At 2 dollars in and 10 out.
    let micros = f64::from(2 * (4_000 + 9_990 + 7_000 + 3_000) + 10 * (100 + 100 + 300 + 100));
    let cost = dollars(&result["total_cost_usd"]);
    assert!((cost - micros / 1e6).abs() < 1e-9, "{cost}, and not {micros} millionths");
    assert_eq!(result["budget"]["spent_usd"], result["total_cost_usd"]);
    assert_eq!(result["usage"]["input_tokens"], 4_000 + 9_990 + 7_000 + 3_000);
    assert_eq!(result["modelUsage"][FIRST]["outputTokens"], 600);
    assert_eq!(result["num_turns"], 3, "a summary is no turn");
}

/// The last money is for the task: what can be done without a summary is.
#[tokio::test]
async fn a_budget_too_small_for_a_summary_goes_on_without_one() {
    let much = json!({ "command": "seq -w 1 5800" });
    let script = Scenario::new()
        .tool("Bash", much)
        .usage(1_000, 50)
        .tool("Bash", quick())
        .usage(5_000, 500)
        .reply("Done.")
        .usage(9_000, 50);
    let never = Scenario::new().reply("Never.");
    let server = serve(script.compactions(never));
    let window = ["--context-window=sonnet=24000", "--settings", "{\"compactAt\":0.2}"];
    let trial = RunBuilder::against(&server).args(window).args(["--output-format=stream-json"]);
    let ended = trial.args(["--max-budget-usd=0.043", "Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(summaries(&server), [false; 3]);
    assert_eq!(strategies(&ended), json!({ "auto_compact": 1, "compact_skipped": 1 }));
    assert!(dollars(&ended.result()["budget"]["spent_usd"]) <= 0.043);
}

/// Uses up every token of output that it is given, and calls a tool.
fn greedy(scenario: Scenario) -> Scenario {
    let tool = ScriptedToolCall { name: "Bash".to_owned(), input: quick(), id: None, cut: None };
    let usage = ScriptedUsage { output_tokens: Some(u64::MAX), ..ScriptedUsage::default() };
    scenario.step(ScriptStep::new(StepAnswer::Reply(ScriptedReply {
        tools: vec![tool],
        usage,
        ..ScriptedReply::default()
    })))
}

/// The next model has prices of its own. What is left is measured by those.
#[tokio::test]
async fn a_more_expensive_model_does_not_raise_the_budget() {
    let mut ends = Vec::new();
    for ceiling in ["0.15", "0.20", "0.25", "0.30", "0.40"] {
        let first = greedy(Scenario::new()).when_model(FIRST).status(529).when_model(FIRST);
        let server = serve(greedy(first.times(3)).when_model(SECOND).after(AfterLast::RepeatLast));
        let flags = ["--fallback-model=opus", "--output-format=stream-json", "--max-budget-usd"];
        let price = ["--price", &format!("{SECOND}=8/40")];
        let ended = hasty(&server).args(price).args(flags).args([ceiling, "Do it."]).run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(4), "{ceiling}: {ended:?}");
        assert_eq!(strategies(&ended)["model_fallback"], 1, "{ceiling}");
        let limit: f64 = ceiling.parse().expect("a number");
        let spent = dollars(&result["budget"]["spent_usd"]);
        assert!(spent <= limit, "{spent} of {ceiling}: {result}");
        let asked = server.requests().len() - 4;
        ends.push((asked, spent));
        let parts = result["modelUsage"].as_object().expect("it is there").values();
        let sum: f64 = parts.map(|part| dollars(&part["costUSD"])).sum();
        assert!((sum - dollars(&result["total_cost_usd"])).abs() < 1e-9, "{result}");
    }
    let asked: Vec<usize> = ends.iter().map(|&(asked, _)| asked).collect();
    assert_eq!(asked.first(), Some(&0), "too dear to be asked at all: {ends:?}");
    assert!(asked[1..].iter().all(|&asked| asked > 0), "{ends:?}");
    // Not the requests: a reply that gets more room may leave too little for another one.
    assert!(ends.is_sorted_by_key(|&(_, spent)| spent), "more is spent of more: {ends:?}");
}

/// The cost of broken attempts counts against the budget of the next model, too.
#[tokio::test]
async fn spend_on_failed_attempts_counts_for_the_next_model() {
    let torn = || {
        Scenario::new()
            .interrupted(ScriptedFaultKind::Close, FaultPosition::Delta)
            .and_text("Torn here.")
            .usage(40_000, 10)
            .times(3)
    };
    let (primary, other) = (serve(torn()), serve(Scenario::new().reply("Done.").usage(1000, 100)));
    let label = format!("opus@{}", other.base_url());
    let flags = ["--max-retries=2", "--output-format=stream-json", "--fallback-model", &label];
    let price = format!("{SECOND}@{}=4/20", other.base_url());
    let budget = ["--price", &price, "--max-budget-usd=5", "Do it."];
    let ended = hasty(&primary).args(flags).args(budget).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let unsettled = dollars(&result["budget"]["unsettled_usd"]);
    let input = 2.0 * 40_000.0 * 2e-6;
    assert!(unsettled > input && unsettled < input + 0.2, "{result}");
    let sum = unsettled + 0.006;
    assert!((dollars(&result["budget"]["spent_usd"]) - sum).abs() < 1e-9, "{result}");
    assert_eq!(result["total_cost_usd"], result["budget"]["spent_usd"], "{result}");
    // The same again with less than that: nothing is left to ask the other one with.
    let (primary, other) = (serve(torn()), serve(Scenario::new()));
    let label = format!("opus@{}", other.base_url());
    let price = format!("{SECOND}@{}=4/20", other.base_url());
    let flags = ["--max-retries=2", "--output-format=stream-json", "--fallback-model", &label];
    let ceiling = format!("--max-budget-usd={unsettled}");
    let ended =
        hasty(&primary).args(flags).args(["--price", &price, &ceiling, "Do it."]).run().await;
    assert_eq!((ended.code, other.requests().len()), (Some(4), 0), "{ended:?}");
}

/// Every model of a chain needs a price before anything is sent (T14), and a mistake is told with
/// what would fix it.
#[tokio::test]
async fn an_unpriced_model_anywhere_in_the_chain_is_refused_when_there_is_a_budget() {
    let (primary, other) = (serve(Scenario::new().reply("Done.")), serve(Scenario::new()));
    let label = format!("model-b@{}", other.base_url());
    let chains: [&[&str]; 4] = [
        &["--model=model-a"],
        &["--fallback-model=model-a"],
        &["--fallback-model", &label],
        &["--fallback-model=opus", "--model=model-a", "--fast"],
    ];
    for chain in chains {
        for mode in ["ceiling", "after"] {
            let trial = RunBuilder::against(&primary).args(chain).args(["--budget-mode", mode]);
            let ended = trial.args(["--max-budget-usd=1", "Do it."]).run().await;
            assert_eq!(ended.code, Some(2), "{ended:?}");
            assert!(ended.stderr.contains("--price model-"), "{ended:?}");
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        }
    }
    assert_eq!((primary.requests().len(), other.requests().len()), (0, 0));
    // Without a budget no price is needed.
    let ended = RunBuilder::against(&primary).args(["--model=model-a", "Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result = ended.result();
    assert_eq!(
        (&result["total_cost_usd"], &result["budget"]["spent_usd"]),
        (&json!(null), &json!(null))
    );
    assert_eq!(result["modelUsage"]["model-a"]["costUSD"], json!(null));
    let warnings = result["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 1, "{result}");
    assert!(warnings[0].as_str().is_some_and(|text| text.contains("--price model-a=")), "{result}");
}
