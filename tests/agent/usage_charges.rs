//! Charges for a call whose cost is unknown.

use std::sync::Arc;
use std::time::Duration;

use outlast::model::{Credential, ModelClient, ModelService, Secret};
use outlast::recovery::{Ledger, Money, StopReason};
use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::json;

use super::run_fixture::{ObservedEvent, RunFixture};

fn dollars(dollars: f64) -> Money {
    Money::from_dollars(dollars).expect("a price")
}

/// A model that never stops calling tools, and a service that reports no usage.
#[tokio::test]
async fn missing_usage_counts_do_not_make_the_budget_unlimited() {
    let call = |scenario: Scenario, number: u32| {
        scenario.tool("Bash", json!({ "command": format!("echo {number}") })).usage(0, 0)
    };
    let mut play = RunFixture::of((0..60).fold(Scenario::new(), call));
    play.setup.ledger = Ledger::new(Some(dollars(0.4)));
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::MaxBudgetUsd);
    assert!(played.server.requests().len() > 1, "there was money for some");
    assert!(
        played.ending.costs.spent.amount > Money::ZERO
            && played.ending.costs.spent.amount <= dollars(0.4)
    );
    // A token is named when a reply begins, as everywhere.
    let counted = played.ending.costs.spent.amount.minus(played.ending.costs.unsettled);
    assert!(counted < dollars(0.001), "no usage was counted: {counted:?}");
    let warned = |said: &&ObservedEvent| matches!(said, ObservedEvent::Warning(text) if text.contains("count"));
    assert_eq!(played.said.iter().filter(warned).count(), 1, "{:?}", played.trace());
}

/// The second request goes over the connection of the first, and is never answered.
#[tokio::test]
async fn a_timeout_before_the_message_start_costs_nothing() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .reply("Too late.")
        .fault(ScriptedFaultKind::Stall, FaultPosition::Request)
        .reply("Done.");
    let mut play = RunFixture::of(scenario);
    let credential = Credential::ApiKey(Secret::new("test-key-0123456789"));
    let mut endpoint = ModelService::new(play.server.base_url(), credential);
    endpoint.timers.first_byte = Duration::from_secs(2);
    play.setup.endpoints[0].client =
        Arc::new(ModelClient::new(endpoint).expect("the address is right"));
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.server.requests().len(), 3);
    assert_eq!(played.ending.costs.unsettled, Money::ZERO);
}

/// Whatever an attempt goes through before a message begins, it is not charged; after that it is
/// charged at the input that was reported and the output that came, and the sums agree.
#[tokio::test]
async fn a_broken_attempt_is_charged_for_the_received_part() {
    let answer = |scenario: Scenario| scenario.reply("Done.").usage(1_000, 100);
    let html = "<html><title>Down</title></html>";
    let before: [(&str, Scenario); 5] = [
        ("reset", Scenario::new().interrupted(ScriptedFaultKind::Reset, FaultPosition::Request)),
        (
            "reset after the headers",
            Scenario::new().interrupted(ScriptedFaultKind::Reset, FaultPosition::Headers),
        ),
        ("a page", Scenario::new().status(200).body("text/html", html)),
        ("an empty body", Scenario::new().status(200).body("text/event-stream", "")),
        ("a refusal", Scenario::new().status(529)),
    ];
    for (name, scenario) in before {
        let mut play = RunFixture::of(answer(scenario.times(2)));
        play.setup.ledger = Ledger::new(Some(dollars(1.0)));
        let played = play.run().await;
        assert_eq!(played.ending.reason, StopReason::Completed, "{name}");
        assert_eq!(played.ending.costs.spent.amount, dollars(0.003), "{name}");
        assert_eq!(played.ending.costs.unsettled, Money::ZERO, "{name}");
    }
    let broken = Scenario::new()
        .interrupted(ScriptedFaultKind::Close, FaultPosition::Delta)
        .and_text("It is torn here.");
    let mut play = RunFixture::of(answer(broken.usage(500, 900).times(2)));
    play.setup.ledger = Ledger::new(Some(dollars(1.0)));
    let played = play.run().await;
    let unsettled = played.ending.costs.unsettled;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let input = dollars(2.0 * 500.0 * 2e-6);
    assert!(unsettled > input && unsettled < input + dollars(0.01), "{unsettled}");
    assert_eq!(played.ending.costs.spent.amount, unsettled + dollars(0.003));
    let parts: Vec<_> = played.ending.stats.by_model.iter().map(|model| model.cost).collect();
    assert_eq!(parts, [Some(played.ending.costs.spent.amount)]);
}

/// A service whose counts cannot be: what it costs stays within what was asked for, one warning
/// says so, and nothing else takes the numbers for true.
#[tokio::test]
async fn impossible_usage_counts_are_clamped_and_reported_once() {
    const TRILLION: i64 = 1_000_000_000_000;
    for (input, output) in [(TRILLION, 10), (10, TRILLION), (TRILLION, TRILLION), (-5, -5)] {
        let call = |scenario: Scenario, number: u32| {
            let stream = tool_call(number, input, output);
            scenario.status(200).body("text/event-stream", &stream)
        };
        let mut play = RunFixture::of((0..3).fold(Scenario::new(), call).reply("Done."));
        play.setup.ledger = Ledger::new(Some(dollars(1.0)));
        let played = play.run().await;
        assert_eq!(played.ending.reason, StopReason::Completed, "{input}, {output}");
        assert!(
            played.ending.costs.spent.amount < dollars(1.0),
            "{}",
            played.ending.costs.spent.amount
        );
        assert_eq!(played.ending.stats.clamped, 3);
        let warned = |said: &&ObservedEvent| matches!(said, ObservedEvent::Warning(text) if text.contains("impos"));
        assert_eq!(played.said.iter().filter(warned).count(), 1, "{:?}", played.trace());
    }
}

/// A stream that calls a tool and reports these counts.
fn tool_call(number: u32, input: i64, output: i64) -> String {
    let command = json!({ "command": format!("echo {number}") });
    let block = json!({ "type": "tool_use", "id": format!("call_{number}"), "name": "Bash",
        "input": command });
    let usage = json!({ "input_tokens": input, "output_tokens": 1 });
    let events = [
        json!({ "type": "message_start", "message": { "id": "m", "usage": usage } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" },
            "usage": { "output_tokens": output } }),
        json!({ "type": "message_stop" }),
    ];
    events.map(|event| format!("data: {event}\n\n")).concat()
}
