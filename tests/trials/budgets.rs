//! Trials of history: what a run has spent, what it may still spend, and that it says so.

use std::sync::atomic::{AtomicUsize, Ordering};

use outlast::rehearsal::{AfterLast, FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use crate::agent::budgets::{greedy, greedy_step};
use crate::support::requests::caps;
use crate::support::responder::Responder;
use crate::support::{FinishedProcess, RunBuilder, serve};

async fn run(server: &RehearsalServer, args: &[&str]) -> FinishedProcess {
    let ended = RunBuilder::against(server).args(args).args(["Do it."]).run().await;
    assert_eq!(server.violations(), [""; 0], "{ended:?}");
    ended
}

fn dollars(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Whatever a model bills, the ceiling holds: the last calls are smaller, and one that could not
/// be paid for is not made.
#[tokio::test]
async fn a_budget_is_never_exceeded() {
    let known: &[&str] = &["--model", "sonnet"];
    let priced: &[&str] = &["--model", "my-model", "--price", "my-model=2/10"];
    for model in [known, priced] {
        let server = serve(greedy());
        let ended = run(&server, &[model, &["--max-budget-usd", "0.15"]].concat()).await;
        let result = ended.result();
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert_eq!(result["terminal_reason"], "max_budget_usd");
        let spent = dollars(&result["budget"]["spent_usd"]);
        assert!(spent <= 0.15, "{spent}: {result}");
        assert_eq!(result["budget"]["ceiling_usd"], 0.15);
        assert_eq!(result["total_cost_usd"], result["budget"]["spent_usd"]);
        assert_eq!(result["budget"]["unsettled_usd"], 0.0);
        let caps = caps(&server.requests());
        assert!(caps.iter().all(|cap| (1_024..=8_192).contains(cap)), "{caps:?}");
        assert!(caps.last().is_some_and(|last| *last < 8_192), "the last one shrank: {caps:?}");
        // 1,024 tokens of output would have cost a cent, and input is a few more at most.
        assert!(0.15 - spent < 0.08, "it did not give up early: {spent}");
        // What happened, with its remedy, and how to go on.
        assert_eq!(ended.stderr.matches("budget").count(), 3, "{ended:?}");
    }
}

#[tokio::test]
async fn a_budget_holds_across_a_kill() {
    const SESSION: &str = "5e551011-0000-4000-8000-000000000005";
    let until_kill = Scenario::new().step(greedy_step()).times(2).step(greedy_step());
    let until_kill = until_kill.fault(ScriptedFaultKind::Stall, FaultPosition::Request);
    let server = serve(until_kill.step(greedy_step()).after(AfterLast::RepeatLast));
    let limit = ["--session-id", SESSION, "--max-budget-usd", "0.40", "Do it."];
    let mut running = RunBuilder::against(&server).args(limit).start();
    server.wait_for_request(3).await;
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    let ended = ended
        .again(&server.base_url())
        .args(["--resume", SESSION, "--max-budget-usd", "0.40"])
        .run()
        .await;
    let result = ended.result();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(dollars(&result["budget"]["spent_usd"]) <= 0.40, "{result}");
    let billed = |cap: u64| u32::try_from(cap).map_or(f64::NAN, f64::from) * 10e-6;
    let output: f64 = caps(&server.requests()).into_iter().map(billed).sum();
    assert!(output <= 0.40, "all that was billed, by both: {output}");
}

#[tokio::test]
async fn a_budget_without_a_price_is_rejected() {
    let server = serve(greedy());
    let chains: [&[&str]; 2] =
        [&["--model", "my-model"], &["--model", "sonnet", "--fallback-model", "my-model"]];
    for chain in chains {
        let ended = run(&server, &[chain, &["--max-budget-usd", "1"]].concat()).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("my-model") && ended.stderr.contains("--price"), "{ended:?}");
        assert_eq!(ended.result()["is_error"], true);
    }
    assert_eq!(server.requests().len(), 0);
}

/// A token covers at least one byte, but seldom only one: the service says how many there are.
#[tokio::test]
async fn a_large_first_request_is_counted_before_it_is_refused() {
    let prompt = "word ".repeat(20_000);
    let ask = async |ceiling: &str| {
        let server = serve(Scenario::new().reply("Summed up.").usage(25_000, 100));
        let args = ["--model", "sonnet", "--max-budget-usd", ceiling, &prompt];
        let ended = RunBuilder::against(&server).args(args).run().await;
        (server.requests().len(), ended)
    };
    let (requests, ended) = ask("0.30").await;
    assert_eq!((requests, ended.code), (1, Some(0)), "{}", ended.stderr);
    let (requests, ended) = ask("0.05").await;
    assert_eq!((requests, ended.code), (0, Some(4)), "{}", ended.stderr);
    let error = ended.result()["errors"][0].as_str().unwrap_or_default().to_owned();
    let needed = error.split("it needs up to $").nth(1).and_then(|rest| rest.split(',').next());
    let needed: f64 =
        needed.and_then(|amount| amount.parse().ok()).expect("it says what is needed");
    assert!(needed > 0.05 && needed < 0.30, "counted, and not by bytes: {error}");
    assert!(error.contains("$0.0500 are left ($0.0000 was spent)"), "{error}");
}

/// An outage of the count is not a request that the budget forbids.
#[tokio::test]
async fn a_token_count_that_fails_is_asked_for_again() {
    let prompt = "word ".repeat(20_000);
    for (failures, code) in [(1, 0), (9, 75)] {
        let failed = AtomicUsize::new(0);
        let service = Responder::start(move |_, request| {
            if !request.starts_with("POST /v1/messages/count_tokens") {
                let message = json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "sonnet",
                    "content": [{ "type": "text", "text": "Summed up." }],
                    "stop_reason": "end_turn",
                    "usage": { "input_tokens": 25_000, "output_tokens": 100 },
                });
                return Some((200, message.to_string()));
            }
            Some(if failed.fetch_add(1, Ordering::Relaxed) < failures {
                let error = json!({ "type": "overloaded_error", "message": "Overloaded" });
                (529, json!({ "type": "error", "error": error }).to_string())
            } else {
                (200, json!({ "input_tokens": 25_000 }).to_string())
            })
        })
        .await;
        let flags = ["--settings", r#"{"retryFirstDelay": "1ms"}"#, "--max-retries", "2"];
        let args = ["--model", "sonnet", "--max-budget-usd", "0.20", &prompt];
        let ended = RunBuilder::at(&service.url).args(flags).args(args).run().await;
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert_ne!(ended.result()["terminal_reason"], "max_budget_usd", "{ended:?}");
        let counts = service.requests().iter().filter(|it| it.contains("/count_tokens")).count();
        assert_eq!(counts, if code == 0 { 2 } else { 3 }, "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_cost_that_is_not_known_is_null_in_every_view() {
    let server = serve(Scenario::new().status(529).reply("Done.").usage(1_000, 100));
    let retrying = ["--settings", r#"{"retryFirstDelay": "1ms"}"#, "--output-format", "json"];
    let mut ended = run(&server, &[&["--model", "foo"], &retrying[..]].concat()).await;
    let result = ended.result();
    assert_eq!((ended.code, &result["total_cost_usd"]), (Some(0), &Value::Null), "{result}");
    assert_eq!(result["recovery"]["records"][0]["cost_usd"], Value::Null, "{result}");
    assert!(!ended.stderr.contains("$0."), "{}", ended.stderr);
    for view in ["table", "markdown", "junit", "html", "json"] {
        ended = ended.again_bare(&server.base_url()).args(["report", "--format", view]).run().await;
        assert!(ended.code == Some(0) && !ended.stdout.contains("$0."), "{view}: {ended:?}");
    }
    let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let (session, overview) = (&report["sessions"][0], &report["overview"]);
    for object in [session, overview] {
        assert_eq!(object["total_cost_usd"], Value::Null, "{object}");
        assert_eq!(object["recoveries"][0]["fired"], 1, "{object}");
    }
    for args in [&["sessions"][..], &["sessions", "show"], &["sessions", "--json"]] {
        ended = ended.again_bare(&server.base_url()).args(args).run().await;
        assert!(ended.code == Some(0) && !ended.stdout.contains("$0."), "{args:?}: {ended:?}");
        assert!(args.contains(&"--json") || ended.stdout.contains("unknown"), "{ended:?}");
    }
    let listed: Value = serde_json::from_str(ended.stdout.trim()).expect("a line of JSON");
    assert_eq!(listed["total_cost_usd"], Value::Null, "{listed}");
}
