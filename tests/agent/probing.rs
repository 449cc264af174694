//! Probes of a real server that is out, by a run that waits for capacity.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast::model::limits::SharedLimits;
use outlast::model::{Credential, ModelClient, ModelService, Secret};
use outlast::recovery::{Backoff, Limits, Money, Persistence, StopReason};
use outlast::rehearsal::Scenario;
use serde_json::{Value, json};

use super::run_fixture::{ObservedEvent, RunFixture};
use crate::support::responder::{Answer, Responder};
use crate::support::stopwatch::Stopwatch;

/// The back-off of real requests. No test takes that long.
const BACK_OFF: Duration = Duration::from_mins(5);
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of probes that fail before the service answers again.
const OUT_FOR: usize = 4;

/// A service that is out until it was probed so often.
struct Outage(Responder);

impl Outage {
    async fn start() -> Self {
        let probes = AtomicUsize::new(0);
        let answer = move |_: usize, request: &str| {
            let (is_probe, _) = parse(request);
            let count = usize::from(is_probe);
            if probes.fetch_add(count, Ordering::SeqCst) + count <= OUT_FOR {
                let error = json!({ "type": "overloaded_error", "message": "Overloaded" });
                return Some(Answer::json(529, &json!({ "type": "error", "error": error })));
            }
            let text = if is_probe { "H" } else { "Back again." };
            let stop_reason = if is_probe { "max_tokens" } else { "end_turn" };
            let message = json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "sonnet",
                "content": [{ "type": "text", "text": text }], "stop_reason": stop_reason,
                "usage": { "input_tokens": 10, "output_tokens": if is_probe { 1 } else { 20 } },
            });
            Some(Answer::json(200, &message))
        };
        Self(Responder::start(answer).await)
    }

    /// Each request: whether it was a probe, and its body.
    fn seen(&self) -> Vec<(bool, Value)> {
        self.0.requests().iter().map(|request| parse(request)).collect()
    }
}

fn parse(request: &str) -> (bool, Value) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap_or((request, ""));
    let is_probe = head.to_ascii_lowercase().contains("x-outlast-source: probe");
    (is_probe, serde_json::from_str(body).unwrap_or_default())
}

fn patient(limits: &mut Limits) {
    limits.persistence = Persistence::Capacity;
    limits.backoff = Backoff { first: BACK_OFF, longest: BACK_OFF };
    limits.probe_interval = Some(INTERVAL);
}

/// A run against `url`, on a host whose runs share `folder`.
fn playing(url: &str, folder: &std::path::Path, seed: u64) -> RunFixture {
    let mut play = RunFixture::of(Scenario::new().reply("Never asked for.")).limits(patient);
    let credential = Credential::ApiKey(Secret::new("test-key-0123456789"));
    let client =
        ModelClient::new(ModelService::new(url, credential)).expect("the address is right");
    play.setup.endpoints[0].client = Arc::new(client);
    play.setup.shared = Some(SharedLimits::new(&[folder.to_owned()], seed));
    play
}

#[tokio::test]
async fn capacity_probes_end_a_wait_before_the_backoff_does() {
    let (outage, folder) = (Outage::start().await, tempfile::tempdir().expect("a scratch folder"));
    let url = &outage.0.url;
    let watch = Stopwatch::start();
    let played = playing(url, &folder.path().join("limits"), 5).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{:?}", played.trace());
    assert_eq!(played.ending.text, "Back again.");
    assert!(watch.elapsed() < BACK_OFF / 4, "{:?}", watch.elapsed());
    let seen = outage.seen();
    let probes: Vec<&Value> = seen.iter().filter(|(probe, _)| *probe).map(|(_, it)| it).collect();
    assert_eq!((seen.len(), probes.len()), (2 + OUT_FOR + 1, OUT_FOR + 1));
    for probe in probes {
        assert_eq!((&probe["max_tokens"], &probe["stream"]), (&json!(1), &json!(false)));
        assert_eq!(probe["messages"].as_array().map(Vec::len), Some(1));
        assert!(probe["tools"].is_null() && probe["system"].is_null(), "{probe}");
        assert_eq!(probe["model"], seen[0].1["model"]);
    }
    let totals = played.ending.stats.recovery.totals();
    assert_eq!(
        (totals.requests, totals.probes.count),
        (7, 5),
        "each request on the wire is counted"
    );
    assert_eq!(totals.strategies.of("early_return"), 1);
    let probes_cost = totals.probes.cost.total().expect("a price is known");
    assert!(probes_cost > Money::ZERO, "the answered one is paid for");
    assert!(probes_cost < played.ending.costs.spent.amount);
    assert_eq!(played.ending.stats.usage.input_tokens, 20, "usage has both answers");
    let episode = played.ending.stats.recovery.records().next().expect("a recovery");
    assert!(episode.saved && episode.cost == probes_cost, "{episode:?}");
    let announced = |said: &&ObservedEvent| matches!(said, ObservedEvent::WaitBegins(_));
    assert!(played.said.iter().filter(announced).count() <= 2, "{:?}", played.trace());
}

#[tokio::test]
async fn runs_of_one_host_share_their_probes() {
    let (outage, folder) = (Outage::start().await, tempfile::tempdir().expect("a scratch folder"));
    let url = &outage.0.url;
    let folder = folder.path().join("limits");
    let runs: Vec<_> = (1..=4).map(|seed| playing(url, &folder, seed).start()).collect();
    for run in runs {
        assert_eq!(run.end().await.ending.reason, StopReason::Completed);
    }
    let seen = outage.seen();
    let probes = seen.iter().filter(|(is_probe, _)| *is_probe).count();
    // Each asks and fails, and asks again; a probe more may be under way when the first is answered.
    assert_eq!(seen.len() - probes, 8);
    assert!((OUT_FOR + 1..=OUT_FOR + 2).contains(&probes), "{probes} probes by four runs");
}
