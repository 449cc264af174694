//! Prompt caching: what was sent once is sent again byte for byte, so that the service finds it
//! in its cache.

use std::collections::BTreeSet;

use outlast::rehearsal::{ReceivedRequest, Scenario};
use serde_json::json;

use crate::support::{RunBuilder, serve};

const SESSION: &str = "5e551011-0000-4000-8000-000000000004";
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// Everything in front of the last cache breakpoint, without the breakpoints.
fn cached(request: &ReceivedRequest) -> String {
    let body = String::from_utf8_lossy(&request.raw).into_owned();
    let end = body.rfind(MARK).expect("every request marks what is to be cached");
    body[..end].replace(MARK, "")
}

fn whole(request: &ReceivedRequest) -> String {
    String::from_utf8_lossy(&request.raw).replace(MARK, "")
}

#[tokio::test]
async fn each_request_starts_with_the_bytes_of_the_previous_one() {
    let odd = json!({ "command": "echo '{\"a\": 1.0, \"ü\": \"\\u00e9\"}'; echo \\\\ >&2; false" });
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo one; echo two" }))
        .and_text("First.")
        .and_thinking("What is there?")
        .status(500)
        .tool("Glob", json!({ "pattern": "*", "path": "." }))
        .and_tool("Read", json!({ "file_path": "missing", "limit": 3, "offset": 1 }))
        .and_tool("Bash", odd)
        .and_thinking("A little more.")
        .tool("Write", json!({ "file_path": "new", "content": "line\n\ttab \"quoted\" ünïcode\n" }))
        .reply("Halfway there. ")
        .tool("Read", json!({ "file_path": "new" }))
        .status(429)
        .tool("Edit", json!({ "file_path": "new", "old_string": "line", "new_string": "LINE" }))
        .and_tool("Teleport", json!({ "z": 1, "a": [1.5, 2, null, true], "m": {} }))
        .tool("Grep", json!({ "pattern": "LINE", "output_mode": "content" }))
        .reply("Done.");
    let server = serve(scenario);
    let format = ["--output-format", "stream-json"];
    let ended = RunBuilder::against(&server)
        .args(format)
        .args(["--session-id", SESSION, "Begin."])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut frames = ended.frames();
    let ended = ended
        .again(&server.base_url())
        .args(format)
        .args(["--resume", SESSION, "Go on."])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    frames.extend(ended.frames());
    assert_eq!((server.violations(), server.unrequested_answers()), (Vec::new(), 0));

    let requests = server.requests();
    assert_eq!(requests.len(), 10);
    for (number, pair) in requests.windows(2).enumerate() {
        let (before, after) = (cached(&pair[0]), whole(&pair[1]));
        let same = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
        assert!(
            same == before.len(),
            "request {} departs from request {} at byte {same}:\n{}\n{}",
            number + 2,
            number + 1,
            &before[before.floor_char_boundary(same.saturating_sub(80))..],
            &after[after.floor_char_boundary(same.saturating_sub(80))..]
        );
    }
    let systems: BTreeSet<String> =
        requests.iter().map(|request| request.body["system"].to_string()).collect();
    assert_eq!(systems.len(), 1, "the system prompt stays the same over a resume");

    // Some replies have two frames; their usage is the same.
    let replies = frames.iter().filter(|frame| frame["type"] == "assistant");
    let mut read: Vec<(String, u64)> = replies
        .map(|frame| {
            let message = &frame["message"];
            let read = message["usage"]["cache_read_input_tokens"].as_u64().unwrap_or_default();
            (message["id"].to_string(), read)
        })
        .collect();
    read.dedup();
    assert_eq!(read.len(), 8);
    assert_eq!(read[0].1, 0, "nothing is there at first");
    assert!(read[1].1 > 1024, "tools, system prompt and the first words: {read:?}");
    assert!(read.windows(2).all(|pair| pair[0].1 < pair[1].1), "it grows: {read:?}");
}

#[tokio::test]
async fn the_prompt_cache_is_not_marked_where_a_variable_switches_it_off() {
    for (value, marks) in [("1", false), ("0", true)] {
        let server = serve(Scenario::new().reply("Done."));
        let run = RunBuilder::against(&server).env("DISABLE_PROMPT_CACHING", value);
        let ended = run.args(["Begin."]).run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let body = String::from_utf8_lossy(&server.requests()[0].raw).into_owned();
        assert_eq!(body.contains("cache_control"), marks, "{value}: {body}");
    }
}

/// A gateway that refuses a field is not asked again with it by a later process of the session, and
/// another service is.
#[tokio::test]
async fn a_refused_field_is_known_to_the_resumed_session_and_only_for_its_service() {
    let refusal = "messages.0.content.0.text.cache_control: Extra inputs are not permitted";
    let refused = Scenario::new().status(400).error("invalid_request_error", refusal, None);
    let server = serve(refused.reply("One.").reply("Two."));
    let first = ["--session-id", SESSION, "Begin."];
    let ended = RunBuilder::against(&server).args(first).run().await;
    assert_eq!(ended.result()["result"], "One.", "{ended:?}");
    let resumed = ["--resume", SESSION, "Go on."];
    let ended = ended.again(&server.base_url()).args(resumed).run().await;
    assert_eq!(ended.result()["result"], "Two.", "{ended:?}");
    let marked: Vec<bool> =
        server.requests().iter().map(|asked| whole(asked).len() < asked.raw.len()).collect();
    assert_eq!(marked, [true, false, false]);
    let other = serve(Scenario::new().reply("Three."));
    let other_host = other.base_url().replace("127.0.0.1", "localhost");
    assert_ne!(other_host, other.base_url());
    let ended = ended.again(&other_host).args(resumed).run().await;
    assert_eq!(ended.result()["result"], "Three.", "{ended:?}");
    cached(&other.requests()[0]);
}
