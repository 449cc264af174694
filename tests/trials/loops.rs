//! The loop detector: a model that repeats itself is warned once, then the run ends. Polling and
//! retrying after changes are not affected.

use std::fs;

use outlast::recovery::Nudge;
use outlast::rehearsal::{ReceivedRequest, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use super::requirements::{asked, fails_as};
use super::resume_after_kill::messages;
use super::timeouts::with;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// More often than any loop may go on.
const OFTEN: u32 = 24;

fn bash(command: &str) -> (&'static str, Value) {
    ("Bash", json!({ "command": command }))
}

/// The same call so many times, then a word.
fn again(times: u32, (tool, input): (&str, Value)) -> Scenario {
    Scenario::new().tool(tool, input).times(times)
}

/// How often a request's messages say that the same steps keep coming back.
fn notes(request: &ReceivedRequest) -> usize {
    let says = |block: &&Value| block["text"] == Nudge::StepBack.text();
    let messages = messages(request);
    messages.iter().filter_map(|it| it["content"].as_array()).flatten().filter(says).count()
}

/// The first request with a note in it, and how many there are in the last.
fn noted(server: &RehearsalServer) -> (Option<usize>, usize) {
    let requests = server.requests();
    let first = requests.iter().position(|request| notes(request) > 0);
    (first.map(|at| at + 1), requests.last().map_or(0, notes))
}

fn stalls(ended: &FinishedProcess) -> Value {
    let result = fails_as(ended, 8, "stalled");
    assert_eq!(result["subtype"], "error_during_execution");
    assert_eq!(result["api_error_class"], Value::Null);
    assert!(result["errors"][0].to_string().contains("same outcome"), "{result}");
    assert!(result["resume"]["command"].is_string(), "{result}");
    result
}

fn written(trial: RunBuilder, files: &[(&str, &str)]) -> RunBuilder {
    for (path, text) in files {
        let path = trial.work().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    trial
}

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
        let server = serve(again(10, call.clone()));
        let trial = written(RunBuilder::against(&server), &[("state", "as ever\n")]);
        let ended = trial.args(["Go on."]).run().await;
        let result = stalls(&ended);
        assert_eq!(result["num_turns"], 10, "{call:?}");
        assert_eq!(noted(&server), (Some(6), 1), "{call:?}");
        asked(&server, 10);
    }
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

/// What is only for people to read does not make it another call.
#[tokio::test]
async fn a_changed_description_does_not_hide_a_loop() {
    let scenario = (1..=10).fold(Scenario::new(), |scenario, n| {
        let input =
            json!({ "command": "cat state", "description": format!("Looks, for time {n}") });
        scenario.tool("Bash", input).and_text(&format!("Time {n}: let me look."))
    });
    let server = serve(scenario);
    let trial = written(RunBuilder::against(&server), &[("state", "as ever\n")]);
    let ended = trial.args(["Go on."]).run().await;
    stalls(&ended);
    assert_eq!(noted(&server), (Some(6), 1));
}

/// Here is no failure and no result twice in a row: the file is what comes back.
#[tokio::test]
async fn alternating_file_contents_are_a_loop() {
    let write = |text: &str| json!({ "file_path": "f", "content": text });
    let scenario = (0..OFTEN / 2).fold(Scenario::new(), |scenario, _| {
        scenario.tool("Write", write("one")).tool("Write", write("two"))
    });
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["Go on."]).run().await;
    stalls(&ended);
    let (first, notes) = noted(&server);
    assert!(first.is_some_and(|first| first < 12) && notes == 1, "{first:?} {notes}");
    assert!(server.requests().len() < 20, "{}", server.requests().len());
}

#[tokio::test]
async fn a_model_that_follows_the_loop_warning_continues() {
    let scenario = again(5, bash("cat state"))
        .tool("Bash", json!({ "command": "echo other > state" }))
        .tool("Bash", json!({ "command": "cat state" }))
        .reply("Found another way.");
    let server = serve(scenario);
    let trial = written(RunBuilder::against(&server), &[("state", "as ever\n")]);
    let ended = trial.args(["Go on."]).run().await;
    assert_eq!((ended.code, noted(&server)), (Some(0), (Some(6), 1)), "{ended:?}");
    asked(&server, 8);
}

#[tokio::test]
async fn the_loop_warning_is_reported_to_the_user() {
    let server = serve(again(10, bash("cat state")));
    let trial = written(RunBuilder::against(&server), &[("state", "as ever\n")]);
    let ended = trial.args(["--output-format", "stream-json", "Go on."]).run().await;
    stalls(&ended);
    let frames = ended.frames();
    let says = |frame: &&Value| frame.to_string().contains(Nudge::StepBack.text());
    assert_eq!(frames.iter().filter(says).count(), 1);
}

#[tokio::test]
async fn loop_limits_are_settings_and_0_disables_them() {
    // settings, calls, where it is told, whether it ends
    let table = [
        (json!({ "loopNoteAt": 2, "loopStopAt": 4 }), 4, Some(3), true),
        (json!({ "loopNoteAt": 3 }), 10, Some(4), true),
        (json!({ "loopNoteAt": 12 }), 13, Some(13), true),
        (json!({ "loopStopAt": 0 }), OFTEN, Some(6), false),
        (json!({ "loopNoteAt": 0 }), OFTEN, None, false),
        (json!({ "loopNoteAt": 0, "loopStopAt": 3 }), OFTEN, None, false),
    ];
    for (settings, calls, told, ends) in table {
        let scenario = again(calls, bash("cat state"));
        let server = serve(if ends { scenario } else { scenario.reply("Enough.") });
        let trial = written(RunBuilder::against(&server), &[("state", "as ever\n")]);
        let ended = with(trial, &settings).args(["Go on."]).run().await;
        assert_eq!(ended.code, Some(if ends { 8 } else { 0 }), "{settings}: {ended:?}");
        assert_eq!(noted(&server).0, told, "{settings}");
        asked(&server, calls as usize + usize::from(!ends));
    }
}

// --- honest work ------------------------------------------------------------------------------

/// No loop warning is sent, and the run succeeds.
async fn is_left_alone(what: &str, scenario: Scenario, files: &[(&str, &str)]) {
    let server = serve(scenario.reply("Done."));
    let trial = written(RunBuilder::against(&server), files);
    let ended = trial.args(["Go on."]).run().await;
    assert_eq!((noted(&server), ended.code), ((None, 0), Some(0)), "{what}: {ended:?}");
    agrees(&ended);
    assert_eq!((server.unrequested_answers(), server.violations()), (0, Vec::new()), "{what}");
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
