//! What a call is charged at when nobody knows what it cost.

use std::sync::Arc;
use std::time::Duration;

use outlast::model::{Client, Credential, Endpoint, Secret};
use outlast::recovery::{Ledger, Money, StopReason};
use outlast::rehearsal::{Harm, Place, Scenario};
use serde_json::json;

use super::stage::{Play, Said};

fn dollars(dollars: f64) -> Money {
    Money::from_dollars(dollars).expect("a price")
}

/// A model that never stops calling tools, and a service that counts none of it.
#[tokio::test]
async fn a_service_that_counts_nothing_does_not_make_the_budget_endless() {
    let call = |scenario: Scenario, number: u32| {
        scenario.tool("Bash", json!({ "command": format!("echo {number}") })).usage(0, 0)
    };
    let mut play = Play::of((0..60).fold(Scenario::new(), call));
    play.setup.ledger = Ledger::new(Some(dollars(0.4)));
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::MaxBudgetUsd);
    assert!(played.server.requests().len() > 1, "there was money for some");
    assert!(played.ending.spent > Money::ZERO && played.ending.spent <= dollars(0.4));
    // A token is named when a reply begins, as everywhere.
    let counted = played.ending.spent.minus(played.ending.unsettled);
    assert!(counted < dollars(0.001), "nobody counted any of it: {counted:?}");
    let warned = |said: &&Said| matches!(said, Said::Warning(text) if text.contains("count"));
    assert_eq!(played.said.iter().filter(warned).count(), 1, "{:?}", played.trace());
}

/// The second request goes over the connection of the first, and is never answered.
#[tokio::test]
async fn a_time_out_on_a_kept_connection_stays_charged() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .reply("Too late.")
        .fault(Harm::Stall, Place::Request)
        .reply("Done.");
    let mut play = Play::of(scenario);
    let credential = Credential::ApiKey(Secret::new("test-key-0123456789"));
    let mut endpoint = Endpoint::new(play.server.base_url(), credential);
    endpoint.timers.first_byte = Duration::from_secs(2);
    play.setup.rungs[0].client = Arc::new(Client::new(endpoint).expect("the address is right"));
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.server.requests().len(), 3);
    assert!(played.ending.unsettled > dollars(0.05), "{:?}", played.ending.unsettled);
}
