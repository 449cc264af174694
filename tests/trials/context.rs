//! Conversations that outgrow the context window: the task is finished, or the run ends with a
//! report of what filled the window. What is folded and summarised is tested in
//! [`agent::full_windows`](crate::agent).

use std::fs;

use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};

use crate::agent::full_windows::{
    assert_valid_requests, reading, refused, summing_requests, summing_up, window,
};
use crate::support::{FinishedProcess, RunBuilder, serve};

pub(super) async fn run(server: &RehearsalServer, args: &[&str]) -> FinishedProcess {
    RunBuilder::against(server).args(args).args(["Read it all."]).run().await
}

/// Checks the number of parts that were read.
#[track_caller]
pub(super) fn assert_read(ended: &FinishedProcess, parts: u32) {
    let read = fs::read_to_string(ended.work().join("part")).expect("something was read");
    assert_eq!(read.trim(), parts.to_string());
}

/// See [`assert_valid_requests`].
#[track_caller]
pub(super) fn assert_clean(server: &RehearsalServer, ended: &FinishedProcess) {
    assert_eq!(server.violations(), [""; 0], "{ended:?}");
    assert_valid_requests(server);
}

pub(super) fn strategy(ended: &FinishedProcess, name: &str) -> u64 {
    ended.result()["recovery"]["strategies"][name].as_u64().unwrap_or_default()
}

// --- a true limit -----------------------------------------------------------------------------

/// A context window given by a flag limits the requests from the start.
#[tokio::test]
async fn a_known_context_window_is_never_exceeded() {
    let scenario = reading(Scenario::new().rules(window(60_000)), 14, 250).reply("All read.");
    let server = serve(summing_up(scenario));
    let ended = run(&server, &["--context-window", "60000"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_read(&ended, 14);
    assert_clean(&server, &ended);
    assert_eq!(refused(&server).len(), 0, "no request was too long");
    assert!(strategy(&ended, "auto_compact") >= 2, "{ended:?}");
    assert_eq!(summing_requests(&server).len() as u64, strategy(&ended, "auto_compact"));
}

// --- no mitigation left -----------------------------------------------------------------------

/// Who reads why the run ended learns what filled the window, with figures.
#[track_caller]
fn assert_names(ended: &FinishedProcess, reason: &str, culprit: &str) -> String {
    let result = ended.result();
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(result["terminal_reason"], reason);
    assert_eq!(result["errors"].as_array().map(Vec::len), Some(1), "{result}");
    let error = result["errors"][0].as_str().unwrap_or_default().to_owned();
    let largest = error.split("largest: ").nth(1).unwrap_or_default();
    assert!(largest.starts_with(culprit), "{error}");
    let tokens = largest.split("(about ").nth(1).and_then(|rest| rest.split(' ').next());
    let tokens: u64 = tokens.and_then(|tokens| tokens.parse().ok()).unwrap_or_default();
    assert!(tokens > 10_000, "the largest has a figure: {error}");
    error
}

/// The floor lies above the threshold: two summaries show that, and a third is not paid for.
#[tokio::test]
async fn ineffective_compaction_ends_the_run() {
    let scenario =
        reading(Scenario::new().rules(window(60_000)), 1, 90).after(AfterLast::RepeatLast);
    let server = serve(summing_up(scenario));
    let trial = RunBuilder::against(&server);
    let rules = "Rule: every line of this is to be kept in mind at all times.\n".repeat(2_200);
    fs::write(trial.work().join("rules.md"), rules).expect("room");
    let args = ["--context-window", "60000", "--append-system-prompt-file", "rules.md"];
    let ended = trial.args(args).args(["--max-turns", "30", "Read it all."]).run().await;
    let error = assert_names(&ended, "prompt_too_long", "the system prompt");
    assert!(error.contains("compaction no longer helps"), "{error}");
    assert_clean(&server, &ended);
    assert_eq!(summing_requests(&server).len(), 2, "{ended:?}");
    assert_eq!(refused(&server).len(), 0, "none of it was sent in vain");
}

/// A task that no window holds. It is the user's, so none of it is cut.
#[tokio::test]
async fn a_task_beyond_the_window_is_one_clean_failure() {
    let ways: [(&[&str], &str, usize); 2] = [
        (&[], "prompt_too_long", 1),
        (&["--context-window", "60000", "--no-auto-compact"], "blocking_limit", 0),
    ];
    for (args, reason, requests) in ways {
        let server = serve(Scenario::new().rules(window(60_000)).reply("Never said."));
        let trial = RunBuilder::against(&server);
        fs::write(trial.work().join("task"), "Do this and that and more.\n".repeat(12_000))
            .expect("room");
        let task = fs::File::open(trial.work().join("task")).expect("just written");
        let ended = trial.stdin(task.into()).args(args).args(["--stdin"]).run().await;
        let error = assert_names(&ended, reason, "the task");
        assert!(!error.contains("no longer helps"), "it was never tried: {error}");
        assert_eq!(server.requests().len(), requests, "{args:?}: {ended:?}");
        assert_clean(&server, &ended);
    }
}
