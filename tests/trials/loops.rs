//! The loop detector, as the result and the stream report it. What is a loop is tested in
//! [`agent::loops`](crate::agent).

use outlast::recovery::Nudge;
use serde_json::{Value, json};

use super::requirements::{asked, fails_as};
use super::timeouts::with;
use crate::agent::loops::{again, bash, noted};
use crate::support::{FinishedProcess, RunBuilder, serve};

fn stalls(ended: &FinishedProcess) -> Value {
    let result = fails_as(ended, 8, "stalled");
    assert_eq!(result["subtype"], "error_during_execution");
    assert_eq!(result["api_error_class"], Value::Null);
    assert!(result["errors"][0].to_string().contains("same outcome"), "{result}");
    assert!(result["resume"]["command"].is_string(), "{result}");
    result
}

#[tokio::test]
async fn repeated_denials_are_a_loop() {
    let server = serve(again(10, ("Write", json!({ "file_path": "x", "content": "y" }))));
    let trial = RunBuilder::bare(&server.base_url()).args(["--disallowedTools", "Write", "Go on."]);
    let ended = trial.run().await;
    let result = stalls(&ended);
    assert_eq!(result["permission_denials"].as_array().map(Vec::len), Some(10), "{result}");
    assert_eq!(noted(&server), (Some(6), 1));
}

#[tokio::test]
async fn the_loop_warning_is_reported_to_the_user() {
    let server = serve(again(10, bash("echo as ever")));
    let ended =
        RunBuilder::against(&server).args(["--output-format", "stream-json", "Go on."]).run().await;
    stalls(&ended);
    let frames = ended.frames();
    let says = |frame: &&Value| frame.to_string().contains(Nudge::StepBack.text());
    assert_eq!(frames.iter().filter(says).count(), 1);
}

#[tokio::test]
async fn loop_limits_are_settings() {
    // settings, calls, where it is told, whether it ends
    let table = [
        (json!({ "loopNoteAt": 2, "loopStopAt": 4 }), 4, Some(3), true),
        (json!({ "loopNoteAt": 0, "loopStopAt": 0 }), 11, None, false),
    ];
    for (settings, calls, told, ends) in table {
        let scenario = again(calls, bash("echo as ever"));
        let server = serve(if ends { scenario } else { scenario.reply("Enough.") });
        let ended = with(RunBuilder::against(&server), &settings).args(["Go on."]).run().await;
        assert_eq!(ended.code, Some(if ends { 8 } else { 0 }), "{settings}: {ended:?}");
        assert_eq!(noted(&server).0, told, "{settings}");
        asked(&server, calls as usize + usize::from(!ends));
    }
}
