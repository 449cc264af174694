//! The loop detector in process: a model that repeats itself is warned once, then the run ends.
//! Polling and retrying after changes are not affected.

use outlast::recovery::{Limits, Nudge, StopReason};
use outlast::rehearsal::{ReceivedRequest, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::run_fixture::{FinishedRun, RunFixture};
use crate::support::requests::messages;
use crate::support::scratch::write_file;

/// More often than any loop may go on.
const OFTEN: u32 = 24;
/// The limit that the settings give for 0.
const NEVER: u32 = u32::MAX;

pub(crate) fn bash(command: &str) -> (&'static str, Value) {
    ("Bash", json!({ "command": command }))
}

/// The same call so many times, then a word.
pub(crate) fn again(times: u32, (tool, input): (&str, Value)) -> Scenario {
    Scenario::new().tool(tool, input).times(times)
}

/// The number of times that the messages of a request report repeated steps.
fn notes(request: &ReceivedRequest) -> usize {
    let says = |block: &&Value| block["text"] == Nudge::StepBack.text();
    messages(request)
        .iter()
        .filter_map(|it| it["content"].as_array())
        .flatten()
        .filter(says)
        .count()
}

/// The first request with a note in it, and how many there are in the last.
pub(crate) fn noted(server: &RehearsalServer) -> (Option<usize>, usize) {
    let requests = server.requests();
    let first = requests.iter().position(|request| notes(request) > 0);
    (first.map(|at| at + 1), requests.last().map_or(0, notes))
}

/// Plays a scenario in a folder with these files.
async fn plays(
    scenario: Scenario,
    files: &[(&str, &str)],
    limits: impl FnOnce(&mut Limits),
) -> FinishedRun {
    let fixture = RunFixture::of(scenario).limits(limits);
    for (path, text) in files {
        write_file(&fixture.folder.path().join(path), text);
    }
    fixture.run().await
}

/// The reason of a run's end, and the number of requests.
fn end(played: &FinishedRun) -> (StopReason, usize) {
    (played.ending.reason, played.server.requests().len())
}

const STATE: [(&str, &str); 1] = [("state", "as ever\n")];

// --- loops ------------------------------------------------------------------------------------

#[tokio::test]
async fn a_repeated_call_is_warned_about_at_five_and_ended_at_ten() {
    let long = "for i in $(seq 1 4000); do echo 'the same line of a long output'; done";
    let edit = json!({ "file_path": "state", "old_string": "not in it", "new_string": "x" });
    let calls = [
        bash("cat state"),
        bash("echo 'FAILED: 1 test'; exit 1"),
        bash("echo took $(date +%N)ms; exit 1"),
        bash(long),
        ("Read", json!({ "file_path": "state" })),
        ("Grep", json!({ "pattern": "nothing like it" })),
        ("Edit", edit),
        ("Edit", json!({ "file_path": "state" })),
        ("NoSuchTool", json!({})),
        ("TodoWrite", json!({ "todos": [] })),
    ];
    for call in calls {
        let played = plays(again(10, call.clone()), &STATE, |_| ()).await;
        assert_eq!(end(&played), (StopReason::Stalled, 10), "{call:?}");
        assert_eq!(played.ending.stats.turns, 10, "{call:?}");
        assert_eq!(noted(&played.server), (Some(6), 1), "{call:?}");
    }
}

/// A new `description` does not make a call a different one, because only people read it.
#[tokio::test]
async fn a_changed_description_does_not_hide_a_loop() {
    let scenario = (1..=10).fold(Scenario::new(), |scenario, n| {
        let input =
            json!({ "command": "cat state", "description": format!("Looks, for time {n}") });
        scenario.tool("Bash", input).and_text(&format!("Time {n}: let me look."))
    });
    let played = plays(scenario, &STATE, |_| ()).await;
    assert_eq!(end(&played), (StopReason::Stalled, 10));
    assert_eq!(noted(&played.server), (Some(6), 1));
}

/// Here is no failure and no result twice in a row: the file is what comes back.
#[tokio::test]
async fn alternating_file_contents_are_a_loop() {
    let write = |text: &str| json!({ "file_path": "f", "content": text });
    let scenario = (0..OFTEN / 2).fold(Scenario::new(), |scenario, _| {
        scenario.tool("Write", write("one")).tool("Write", write("two"))
    });
    let played = plays(scenario, &[], |_| ()).await;
    let (reason, requests) = end(&played);
    assert!(reason == StopReason::Stalled && requests < 20, "{reason:?} {requests}");
    let (first, notes) = noted(&played.server);
    assert!(first.is_some_and(|first| first < 12) && notes == 1, "{first:?} {notes}");
}

#[tokio::test]
async fn a_model_that_follows_the_loop_warning_continues() {
    let scenario = again(5, bash("cat state"))
        .tool("Bash", json!({ "command": "echo other > state" }))
        .tool("Bash", json!({ "command": "cat state" }))
        .reply("Found another way.");
    let played = plays(scenario, &STATE, |_| ()).await;
    assert_eq!(end(&played), (StopReason::Completed, 8));
    assert_eq!(noted(&played.server), (Some(6), 1));
}

#[tokio::test]
async fn a_loop_is_warned_about_and_ended_at_the_limits() {
    // the warning, the end, calls, where it is told, whether it ends
    let table = [
        (2, 4, 4, Some(3), true),
        (3, 10, 10, Some(4), true),
        (12, 10, 13, Some(13), true),
        (5, NEVER, OFTEN, Some(6), false),
        (NEVER, 10, 10, None, true),
        (NEVER, 3, 3, None, true),
    ];
    for (soft, hard, calls, told, ends) in table {
        let scenario = again(calls, bash("cat state"));
        let scenario = if ends { scenario } else { scenario.reply("Enough.") };
        let played = plays(scenario, &STATE, |limits| {
            (limits.loops.soft, limits.loops.hard) = (soft, hard);
        });
        let played = played.await;
        let reason = if ends { StopReason::Stalled } else { StopReason::Completed };
        let requests = calls as usize + usize::from(!ends);
        assert_eq!(end(&played), (reason, requests), "{soft} {hard}");
        assert_eq!(noted(&played.server).0, told, "{soft} {hard}");
    }
}

// --- honest work ------------------------------------------------------------------------------

/// No loop warning is sent, and the run succeeds.
async fn is_left_alone(what: &str, scenario: Scenario, files: &[(&str, &str)]) {
    let played = Box::pin(plays(scenario.reply("Done."), files, |_| ())).await;
    assert_eq!(played.ending.reason, StopReason::Completed, "{what}: {:?}", played.trace());
    assert_eq!(noted(&played.server), (None, 0), "{what}");
    assert_eq!((played.server.unrequested_answers(), played.server.violations()), (0, Vec::new()));
}

#[tokio::test]
async fn polling_is_not_a_loop() {
    let counted = again(OFTEN, bash("echo x >> n; echo \"$(wc -l < n) of 30\""));
    is_left_alone("a changing output", counted, &[]).await;
    let waits = again(OFTEN, bash("sleep 0.01; cat state"));
    is_left_alone("a declared wait", waits, &[("state", "running\n")]).await;
    let failing = again(OFTEN, bash("sleep 0.01; test -e result"));
    is_left_alone("a wait that fails", failing, &[]).await;
    let until = again(OFTEN, bash("for i in 1 2; do sleep 0.01; done; echo running"));
    is_left_alone("a wait in a loop", until, &[]).await;
}

#[tokio::test]
async fn the_same_tests_after_every_edit_are_not_a_loop() {
    let edits = |path: &'static str, test: &'static str| {
        (1..OFTEN).fold(
            Scenario::new().tool("Read", json!({ "file_path": path })),
            |scenario, n| {
                let (old, new) = (format!("n = {n};"), format!("n = {};", n + 1));
                let edit = json!({ "file_path": path, "old_string": old, "new_string": new });
                let (_, test) = bash(test);
                scenario.tool("Edit", edit).tool("Bash", test)
            },
        )
    };
    let failing = "echo 'FAILED: 1 of 12'; exit 1";
    is_left_alone("failing tests", edits("src.c", failing), &[("src.c", "n = 1;\n")]).await;
    let passing = edits("src.c", "echo ok");
    is_left_alone("passing tests", passing, &[("src.c", "n = 1;\n")]).await;
    let rewrites = (1..OFTEN).fold(Scenario::new(), |scenario, n| {
        let write = json!({ "file_path": "new.c", "content": format!("n = {n};") });
        scenario.tool("Write", write).tool("Bash", bash(failing).1)
    });
    is_left_alone("a file written anew", rewrites, &[]).await;
}

/// A relative path leads from where the shell stands, not from where the run began.
#[tokio::test]
async fn edits_are_identified_by_the_edited_file() {
    let begin = Scenario::new()
        .tool("Bash", json!({ "command": "cd deep" }))
        .tool("Read", json!({ "file_path": "src.c" }));
    let scenario = (1..16).fold(begin, |scenario, n| {
        let (old, new) = (format!("n = {n};"), format!("n = {};", n + 1));
        let edit = json!({ "file_path": "src.c", "old_string": old, "new_string": new });
        scenario.tool("Edit", edit).tool("Bash", bash("echo 'FAILED: 1 of 12'; exit 1").1)
    });
    let files = [("src.c", "another one\n"), ("deep/src.c", "n = 1;\n")];
    is_left_alone("an edit below", scenario, &files).await;
}

#[tokio::test]
async fn reading_different_files_is_not_a_loop() {
    let pages = (0..OFTEN).fold(Scenario::new(), |scenario, n| {
        let read = json!({ "file_path": "log", "offset": n * 10 + 1, "limit": 10 });
        scenario.tool("Read", read).tool("Bash", bash(&format!("grep -c {n} log || true")).1)
    });
    let log = (0..400).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    is_left_alone("pages", pages, &[("log", &log)]).await;
}
