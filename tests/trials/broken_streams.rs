//! Trials.
//! Broken streams: wherever a stream breaks, nothing of it survives, and nothing happens
//! twice.

use outlast::model::{Credential, ModelClient, ModelService, RequestContent, StreamProgress};
use outlast::recovery::{CallPurpose, ConnectionChoice, ModelCall, ReplyMode};
use outlast::rehearsal::{FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use outlast::transcript::{Block, Message};
use serde_json::{Value, json};

use super::timeouts::{messages, with};
use crate::agent::broken_streams::reply;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// Between two places where the stream is broken, in bytes.
const STRIDE: usize = 29;

/// The last event of a stream and the end of the one before it: a reply that lacks only its last
/// event is whole.
const LAST_EVENT: usize = 64;

/// Length of a stream of the reply, in bytes.
async fn length() -> usize {
    let server = serve(reply(Scenario::new().empty()));
    let client =
        ModelClient::new(ModelService::new(server.base_url(), Credential::None)).expect("right");
    let prompt = RequestContent {
        model: "claude-sonnet-4-5",
        messages: &[Message::user(vec![Block::text("go")])],
        ..RequestContent::default()
    };
    let ask = ModelCall {
        purpose: CallPurpose::Reply,
        fast: false,
        may_wait_for_shared_limit: true,
        model_index: 0,
        cap: 8_192,
        mode: ReplyMode::Streaming,
        connection: ConnectionChoice::Pooled,
        attempt: 1,
    };
    let mut length = 0;
    let mut count = |step| {
        if let StreamProgress::Bytes(bytes) = step {
            length += bytes;
        }
    };
    client.attempt(&prompt, &ask, &mut count).await.expect("a reply");
    length
}

/// A run that is not easily discouraged.
fn stubborn(server: &RehearsalServer) -> RunBuilder {
    let settings = json!({
        "retryFirstDelay": "1ms",
        "retryLongestDelay": "1ms",
        "retryQuota": 65_535,
        // The streams themselves are on trial.
        "tornStreamsPerWhole": 255,
    });
    let trial = with(RunBuilder::against(server), &settings);
    std::fs::write(trial.work().join("notes.txt"), "nothing of note\n").expect("it can be written");
    trial.args(["--max-retries", "100", "--output-format", "stream-json", "go"])
}

/// Breaks the reply in all these ways, one after the other, and then lets it through.
async fn survives(harm: &ScriptedFaultKind, places: &[FaultPosition]) {
    let mut scenario = Scenario::new();
    for place in places {
        scenario = reply(scenario.interrupted(harm.clone(), *place));
    }
    let server = serve(reply(scenario.empty()).reply("Written down."));
    let ended = stubborn(&server).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{harm:?}: {}", ended.stderr);
    assert_eq!(result["result"], "Written down.");
    leaves_no_trace(&server, &ended, places.len(), &result);
}

fn leaves_no_trace(
    server: &RehearsalServer,
    ended: &FinishedProcess,
    broken: usize,
    result: &Value,
) {
    let requests = server.requests();
    assert_eq!(requests.len(), broken + 2);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(result["recovery"]["retries"], broken);
    assert_eq!(messages(ended, "api_retry").len(), broken);
    for (nth, request) in requests[..=broken].iter().enumerate() {
        assert!(request.raw == requests[0].raw, "request {nth} holds something of a torn reply");
    }
    let history = requests[broken + 1].body["messages"].as_array().expect("messages").clone();
    assert_eq!(history.len(), 3, "prompt, reply, results: {history:?}");
    assert_eq!(history[1]["content"].as_array().map(Vec::len), Some(3), "{history:?}");
    let results = history[2]["content"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].to_string().contains("nothing of note"), "{results:?}");
    // Told once, counted once, done once.
    let told = ended.frames().iter().filter(|frame| frame["type"] == "assistant").count();
    assert_eq!(told, 4, "three blocks of one reply, and one of the other: {}", ended.stdout);
    assert_eq!((&result["num_turns"], &result["tools"]["calls"]), (&json!(2), &json!(2)));
    let effects = std::fs::read_to_string(ended.work().join("effects")).expect("the tool ran");
    assert_eq!(effects, "once\n");
}

#[tokio::test]
async fn a_stream_reset_at_any_byte_leaves_no_trace() {
    let length = length().await;
    let places: Vec<FaultPosition> = (0..length - LAST_EVENT)
        .step_by(STRIDE)
        .chain([length - LAST_EVENT])
        .map(FaultPosition::Bytes)
        .collect();
    assert!((30..=100).contains(&places.len()), "{} places in {length} bytes", places.len());
    survives(&ScriptedFaultKind::Reset, &places).await;
}
