//! Broken streams: in whatever way a stream breaks, nothing of it survives, and nothing happens
//! twice.

use outlast::model::{ModelClient, StreamProgress};
use outlast::recovery::StopReason;
use outlast::rehearsal::{FaultPosition, Scenario, ScriptedError, ScriptedFaultKind};
use serde_json::json;

use super::run_fixture::{ObservedEvent, RunFixture};
use crate::support::serve;
use crate::wire::{STREAMING, ask_watched, endpoint};

/// A reply that says something, looks at a file, and then does something that must happen once.
fn reply(scenario: Scenario) -> Scenario {
    scenario
        .and_text("First I look, then I write it down.")
        .and_tool("Read", json!({ "file_path": "notes.txt" }))
        .id("toolu_0123456789abcdefghijklmnop")
        .and_tool("Bash", json!({ "command": "echo once >> effects" }))
        .id("toolu_abcdefghijklmnop0123456789")
        .usage(1_000, 100)
}

/// Breaks the reply in all these ways, one after the other, and then lets it through.
async fn survives(harm: &ScriptedFaultKind, places: &[FaultPosition]) {
    let mut scenario = Scenario::new();
    for place in places {
        scenario = reply(scenario.interrupted(harm.clone(), *place));
    }
    let fixture = RunFixture::of(reply(scenario.empty()).reply("Written down."));
    std::fs::write(fixture.folder.path().join("notes.txt"), "nothing of note\n").expect("room");
    let played = fixture.limits(|limits| {
        limits.budgets.retries = 100;
        limits.budgets.bucket = 65_535;
        // The streams themselves are on trial.
        limits.torn_streams_per_whole = 255;
        limits.backoff.longest = limits.backoff.first;
    });
    let played = played.run().await;
    played.assert_end(StopReason::Completed, "Written down.");
    let broken = places.len();
    played.assert_asked(broken + 2);
    let waits = played.trace().iter().filter(|word| word.starts_with("waited")).count();
    assert_eq!(waits, broken, "{harm:?}: one for each");
    let requests = played.server.requests();
    for (nth, request) in requests[..=broken].iter().enumerate() {
        assert!(request.raw == requests[0].raw, "request {nth} holds something of a torn reply");
    }
    let history = played.messages(broken + 2);
    assert_eq!(history.len(), 3, "prompt, reply, results: {history:?}");
    assert_eq!(history[1]["content"].as_array().map(Vec::len), Some(3), "{history:?}");
    let results = history[2]["content"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].to_string().contains("nothing of note"), "{results:?}");
    // Told once, counted once, done once.
    let told = |said: &&ObservedEvent| matches!(said, ObservedEvent::Assistant(_));
    assert_eq!(played.said.iter().filter(told).count(), 2, "{:?}", played.trace());
    assert_eq!((played.ending.stats.turns, played.ending.stats.tools.calls), (2, 2));
    assert_eq!(played.file("effects"), "once\n");
}

/// Between two places where the stream is reset, in bytes.
const STRIDE: usize = 29;

/// The last event of a stream and the end of the one before it: a reply that lacks only its last
/// event is whole.
const LAST_EVENT: usize = 64;

#[tokio::test]
async fn a_stream_reset_at_any_byte_leaves_no_trace() {
    let server = serve(reply(Scenario::new().empty()));
    let client = ModelClient::new(endpoint(&server.base_url())).expect("right");
    let mut length = 0;
    let mut count = |step| {
        if let StreamProgress::Bytes(bytes) = step {
            length += bytes;
        }
    };
    ask_watched(&client, STREAMING, &mut count).await.expect("a reply");
    let places = (0..length - LAST_EVENT).step_by(STRIDE).chain([length - LAST_EVENT]);
    let places: Vec<FaultPosition> = places.map(FaultPosition::Bytes).collect();
    assert!((30..=100).contains(&places.len()), "{} places in {length} bytes", places.len());
    survives(&ScriptedFaultKind::Reset, &places).await;
}

#[tokio::test]
async fn a_stream_truncated_in_any_way_leaves_no_trace() {
    let events: Vec<FaultPosition> =
        (0..12).map(FaultPosition::Events).chain([FaultPosition::Delta]).collect();
    let overload = ScriptedError {
        kind: "overloaded_error".to_owned(),
        message: "Overloaded".to_owned(),
        code: None,
    };
    let garbage = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\n\n";
    for harm in [
        ScriptedFaultKind::Close,
        ScriptedFaultKind::End,
        ScriptedFaultKind::Error(overload),
        ScriptedFaultKind::Insert(garbage.to_vec()),
    ] {
        survives(&harm, &events).await;
    }
}
