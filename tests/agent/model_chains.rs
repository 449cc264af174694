//! The model chain: which failures of a model lead to the next one, and what goes there.

use std::sync::Arc;

use outlast::agent::ModelEndpoint;
use outlast::model::{self, Credential, ModelClient, ModelService, Secret};
use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::{
    FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedFaultKind,
};
use serde_json::json;

use super::run_fixture::{FinishedRun, RunFixture};
use crate::support::requests::messages;
use crate::support::serve;

pub(crate) const FIRST: &str = "claude-sonnet-5-5";
pub(crate) const SECOND: &str = "claude-opus-5-5";
const THIRD: &str = "claude-haiku-5-5";

/// The key of the first model's address, and of the other one.
const PRIMARY_KEY: &str = "test-key-0123456789";
const NIGHT_KEY: &str = "night-key-9876543210";

/// Whether the next model is at the same address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    Here,
    There,
}

/// One way in which a model fails, which leads to the next.
pub(crate) struct Fall {
    what: &'static str,
    pub(crate) next: Next,
    /// Adds the failing answers.
    fails: fn(Scenario) -> Scenario,
    /// The number of requests.
    pub(crate) requests: usize,
    class: ErrorClass,
}

pub(crate) fn falls() -> Vec<Fall> {
    let fall = |what, next, requests, class, fails| Fall { what, next, fails, requests, class };
    vec![
        fall("529", Next::Here, 3, ErrorClass::ServerOverload, |scenario| {
            scenario.status(529).times(3)
        }),
        fall("500", Next::Here, 3, ErrorClass::ServerError, |scenario| {
            scenario.status(500).times(3)
        }),
        fall("quota", Next::Here, 1, ErrorClass::RateLimit, |scenario| {
            scenario.status(429).header("retry-after", "18000")
        }),
        fall("short limits", Next::Here, 3, ErrorClass::RateLimit, |scenario| {
            scenario.status(429).times(3)
        }),
        fall("resets", Next::There, 3, ErrorClass::ConnectionError, |scenario| {
            scenario.interrupted(ScriptedFaultKind::Reset, FaultPosition::Request).times(3)
        }),
        fall("torn streams", Next::There, 3, ErrorClass::ConnectionError, |scenario| {
            scenario.interrupted(ScriptedFaultKind::Close, FaultPosition::Headers).times(3)
        }),
        fall("HTML", Next::Here, 3, ErrorClass::ServerError, |scenario| {
            scenario.status(200).body("text/html", "<html><title>Log in</title></html>").times(3)
        }),
        // A model that has answered is tried once more.
        fall("404 model", Next::Here, 2, ErrorClass::InvalidModel, |scenario| {
            scenario.status(404).error("not_found_error", "model: claude-sonnet-5-5", None).times(2)
        }),
        fall("403 model", Next::Here, 2, ErrorClass::AuthError, |scenario| {
            let refusal = "This model is not for you.";
            scenario.status(403).error("permission_error", refusal, None).times(2)
        }),
        // A key that has worked is tried once more.
        fall("invalid key", Next::There, 2, ErrorClass::InvalidApiKey, |scenario| {
            scenario.status(401).times(2)
        }),
        fall("revoked token", Next::There, 1, ErrorClass::TokenRevoked, |scenario| {
            scenario.status(403).error("permission_error", "token has been revoked", None)
        }),
        fall("credit", Next::There, 1, ErrorClass::CreditBalanceLow, |scenario| {
            let low = "Your credit balance is too low to access the API.";
            scenario.status(400).error("invalid_request_error", low, None)
        }),
        fall("spend limit", Next::There, 1, ErrorClass::CreditBalanceLow, |scenario| {
            let code = Some("enforced_spend_limit_reached");
            scenario.status(403).error("permission_error", "No more.", code)
        }),
    ]
}

impl Fall {
    /// A first model that does a turn's work and then fails, and where the second one is.
    pub(crate) fn stage(&self) -> (Scenario, Option<Scenario>) {
        let turn = Scenario::new()
            .tool("Bash", json!({ "command": "echo kept >> work" }))
            .and_thinking("Only I may read this.")
            .usage(1000, 100);
        let last = |scenario: Scenario| scenario.reply("Done.").usage(1000, 100);
        match self.next {
            Next::Here => (last((self.fails)(turn)).when_model(SECOND), None),
            Next::There => ((self.fails)(turn), Some(last(Scenario::new()))),
        }
    }

    async fn leads_to_the_next(&self) {
        let (primary, other) = self.stage();
        let other = other.map(serve);
        let fixture = trial(primary, &[FIRST, SECOND]);
        let (fixture, label) = match &other {
            None => (fixture, SECOND.to_owned()),
            Some(other) => second_at(fixture, other),
        };
        let played = fixture.run().await;
        let what = self.what;
        played.assert_end(StopReason::Completed, "Done.");
        let expected = format!("switched {FIRST} to {label}");
        assert_eq!(switches(&played), [expected], "{what}: told once");
        assert_eq!(played.strategy("model_fallback"), 1, "{what}: {:?}", played.trace());
        let failures = json!({ self.class.name(): self.requests });
        assert_eq!(played.retries(), failures, "{what}");
        let used = &played.ending.stats.by_model;
        let used: Vec<&str> = used.iter().map(|model| model.model.as_str()).collect();
        assert_eq!(used, [FIRST, label.as_str()], "{what}");
        let asked = models(&played.server);
        assert_eq!(asked[..=self.requests], vec![FIRST; self.requests + 1], "{what}");
        assert_eq!(played.server.violations(), [""; 0], "{what}");
        let last = other.as_ref().unwrap_or(&played.server);
        assert_eq!(last.violations(), [""; 0], "{what}");
        let requests = last.requests();
        let request = requests.last().expect("it was asked");
        let here = if other.is_none() { self.requests + 2 } else { 1 };
        assert_eq!((requests.len(), request.model()), (here, SECOND), "{what}");
        // The work stays; the thinking that only the first one can read does not.
        let raw = String::from_utf8_lossy(&request.raw).into_owned();
        assert!(!raw.contains("signature") && !raw.contains("Only I may"), "{what}: {raw}");
        assert_eq!(messages(request).len(), 3, "{what}: {raw}");
        if let Some(other) = &other {
            assert_eq!(asked.len(), self.requests + 1, "{what}: {asked:?}");
            assert_never_told(PRIMARY_KEY, other);
            assert_never_told(NIGHT_KEY, &played.server);
            assert_eq!(request.header("x-api-key"), Some(NIGHT_KEY), "{what}");
        }
        assert_eq!(played.file("work"), "kept\n", "{what}");
    }

    /// The run ends with the failure of the only model that is asked.
    #[track_caller]
    fn assert_ends(&self, played: &FinishedRun) {
        let what = self.what;
        let reason = played.ending.reason;
        assert!(matches!(reason, StopReason::ModelError(_)), "{what}: {reason:?}");
        assert_eq!(switches(played), [""; 0], "{what}");
        assert_eq!(models(&played.server), vec![FIRST; self.requests + 1], "{what}");
    }
}

/// A run whose three attempts at a call are all, with a key that cannot change.
fn trial(scenario: Scenario, models: &[&str]) -> RunFixture {
    RunFixture::of(scenario).models(models).limits(|limits| {
        limits.budgets.retries = 2;
        limits.budgets.refreshes = 0;
    })
}

/// Moves the second model to another server, and returns its label.
fn second_at(mut fixture: RunFixture, server: &RehearsalServer) -> (RunFixture, String) {
    let label = format!("{SECOND}@{}", server.base_url());
    let credential = Credential::ApiKey(Secret::new(NIGHT_KEY));
    let client = ModelClient::new(ModelService::new(server.base_url(), credential));
    fixture.setup.endpoints[1] = ModelEndpoint {
        label: label.clone(),
        facts: model::model_facts(SECOND),
        client: Arc::new(client.expect("the address is right")),
    };
    (fixture.limits(|limits| limits.endpoint_changes = 1), label)
}

fn models(server: &RehearsalServer) -> Vec<String> {
    server.requests().iter().map(|request| request.model().to_owned()).collect()
}

/// Nothing of what `key` opens goes anywhere else.
#[track_caller]
pub(crate) fn assert_never_told(key: &str, server: &RehearsalServer) {
    for ReceivedRequest { headers, raw, path, .. } in server.requests() {
        let told = headers.iter().any(|(_, value)| value.contains(key));
        let written = String::from_utf8_lossy(&raw).contains(key) || path.contains(key);
        assert!(!told && !written, "{key}: {headers:?}");
    }
}

#[tokio::test]
async fn every_failure_of_a_model_switches_to_the_next_once() {
    for fall in falls() {
        fall.leads_to_the_next().await;
    }
}

#[tokio::test]
async fn without_a_model_chain_the_model_never_changes() {
    for fall in falls() {
        let played = trial(fall.stage().0, &[FIRST]).run().await;
        fall.assert_ends(&played);
    }
}

/// An invalid address or credential fails for every model of its endpoint.
#[tokio::test]
async fn endpoint_failures_do_not_switch_to_a_model_at_the_same_endpoint() {
    for fall in falls().into_iter().filter(|fall| fall.next == Next::There) {
        let played = trial(fall.stage().0, &[FIRST, SECOND]).run().await;
        fall.assert_ends(&played);
    }
}

/// The changes of the model in a run.
fn switches(played: &FinishedRun) -> Vec<String> {
    played.trace().into_iter().filter(|word| word.starts_with("switched")).collect()
}

#[tokio::test]
async fn two_overloads_are_waited_out() {
    let scenario = Scenario::new().status(529).times(2).reply("Done.");
    let played = RunFixture::of(scenario).models(&[FIRST, SECOND]).run().await;
    played.assert_end(StopReason::Completed, "Done.");
    assert_eq!(models(&played.server), [FIRST, FIRST, FIRST]);
    assert_eq!(switches(&played), [""; 0]);
}

#[tokio::test]
async fn a_model_that_does_not_exist_is_replaced_at_once_and_tried_once() {
    let missing = |scenario: Scenario, name: &str| {
        let words = format!("model: {name}");
        scenario.status(404).error("not_found_error", &words, None)
    };
    let scenario = missing(missing(Scenario::new(), FIRST), SECOND)
        .tool("Bash", json!({ "command": "true" }))
        .reply("Done.");
    let played = RunFixture::of(scenario).models(&[FIRST, SECOND, THIRD]).run().await;
    played.assert_end(StopReason::Completed, "Done.");
    assert_eq!(models(&played.server), [FIRST, SECOND, THIRD, THIRD]);
    let expected =
        [(FIRST, SECOND), (SECOND, THIRD)].map(|(from, to)| format!("switched {from} to {to}"));
    assert_eq!(switches(&played), expected);
    assert_eq!(played.retries(), json!({ "invalid_model": 2 }), "that is why");
}

#[tokio::test]
async fn when_every_model_fails_the_run_ends_with_the_failure() {
    let scenario = Scenario::new().status(404).times(2);
    let played = RunFixture::of(scenario).models(&[FIRST, SECOND]).run().await;
    played.assert_end(StopReason::ModelError(ErrorClass::InvalidModel), "");
    assert_eq!(models(&played.server), [FIRST, SECOND], "each is tried once");
}

/// Both models are overloaded, and the first one comes back before the run has given up.
#[tokio::test]
async fn the_preferred_model_is_asked_once_more_before_the_end() {
    let scenario = Scenario::new().status(529).times(3 + 3).reply("It is back.");
    let played = trial(scenario, &[FIRST, SECOND]).run().await;
    played.assert_end(StopReason::Completed, "It is back.");
    let asked = [vec![FIRST; 3], vec![SECOND; 3], vec![FIRST]].concat();
    assert_eq!(models(&played.server), asked);
    assert_eq!(played.strategy("preferred_model_retry"), 1);
}
