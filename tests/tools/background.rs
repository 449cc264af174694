//! Background commands: reading output, stopping, limits.

use std::fs::{self, DirEntry};
use std::path::Path;
use std::time::Duration;

use outlast::recovery::WorkStatus;
use outlast::tools::{BackgroundEnd, Offered, PermissionMode, ToolOutcome, ToolRefusal};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bench::{
    Bench, PATIENCE, appears, assert_fails_with, assert_gone, call, is_alive, text,
};

use crate::support::stopwatch::Stopwatch;

/// More than enough for whatever ends by itself, in milliseconds.
const LONG: u64 = 200_000;

async fn begin(bench: &Bench, command: &str) -> ToolOutcome {
    let outcome = bench.run("Bash", json!({ "command": command, "run_in_background": true })).await;
    assert!(!outcome.is_error, "{outcome:?}");
    outcome
}

/// Looks once the command has ended.
async fn end_of(bench: &Bench, id: &str) -> ToolOutcome {
    bench.run("BashOutput", json!({ "bash_id": id, "timeout": LONG })).await
}

/// Looks until there is something to see.
async fn glimpse(bench: &Bench, id: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let outcome = bench.run("BashOutput", json!({ "bash_id": id })).await;
        let shown = outcome.detail["stdout"].as_str().expect("a text").to_owned();
        if shown != "(no new output)" {
            return shown;
        }
        assert!(Instant::now() < end, "{id} never said anything");
    }
}

async fn kill(bench: &Bench, id: &str) -> ToolOutcome {
    bench.run("KillShell", json!({ "shell_id": id })).await
}

/// All that is kept of long output, in bytes.
fn kept(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    // The folder may hold other files, such as a configuration of apt.
    let is_output = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"output");
    let files = entries.flatten().filter(is_output);
    files.filter_map(|entry| entry.metadata().ok()).map(|facts| facts.len()).sum()
}

#[tokio::test]
async fn background_output_is_read_in_pieces_and_its_end_is_reported() {
    let bench = Bench::open();
    let go = bench.cwd.join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).expect("a pipe can be made");
    let outcome = begin(&bench, "echo one; read line < go; echo two >&2; exit 3").await;
    assert_eq!(outcome.detail["backgroundTaskId"], "bash_1");
    assert_eq!(text(&outcome), "Runs in the background as bash_1.");
    assert_eq!(glimpse(&bench, "bash_1").await, "one");
    assert_eq!(bench.toolbox.background().work_state(), WorkStatus::StillRunning);
    assert!(bench.toolbox.background().running_lines()[0].contains("bash_1 (`echo one;"));
    let looked = bench.run("BashOutput", json!({ "bash_id": "bash_1" })).await;
    assert_eq!(looked.detail["status"], "running");
    assert!(text(&looked).contains("has been running"), "{looked:?}");
    fs::write(&go, "now\n").expect("it is read from");
    let ended = end_of(&bench, "bash_1").await;
    assert_eq!(ended.detail["status"], "failed", "{ended:?}");
    assert_eq!((&ended.detail["stdout"], &ended.detail["exitCode"]), (&json!("two"), &json!(3)));
    assert_eq!(
        bench.toolbox.background().work_state(),
        WorkStatus::Over,
        "the end was already reported: {ended:?}"
    );
}

#[tokio::test]
async fn an_unread_end_of_a_background_task_is_reported_once() {
    let bench = Bench::open();
    begin(&bench, "echo lots; exit 3").await;
    assert_eq!(bench.toolbox.background().wait_for_work().await, WorkStatus::Unreported);
    let news = bench.toolbox.background().take_ended_work().expect("news");
    assert!(news.starts_with("- bash_1 (`echo lots; exit 3`) ended after "), "{news}");
    assert!(news.ends_with("with exit code 3"), "{news}");
    assert_eq!(bench.toolbox.background().take_ended_work(), None);
    assert_eq!(bench.toolbox.background().work_state(), WorkStatus::Over);
    let looked = end_of(&bench, "bash_1").await;
    assert_eq!((&looked.detail["stdout"], &looked.detail["exitCode"]), (&json!("lots"), &json!(3)));
    assert_eq!(looked.detail["status"], "failed");
    let (send, events) = std::sync::mpsc::channel();
    bench.toolbox.background().report_to(move |task| send.send(task.end).expect("a receiver"));
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [None, Some(BackgroundEnd::Failed)]);
}

#[tokio::test]
async fn an_output_filter_shows_matching_lines_and_discards_the_rest() {
    let bench = Bench::open();
    begin(&bench, "seq 1 20").await;
    assert_eq!(bench.toolbox.background().wait_for_work().await, WorkStatus::Unreported);
    let looked = bench.run("BashOutput", json!({ "bash_id": "bash_1", "filter": "^1.$" })).await;
    assert_eq!(looked.detail["stdout"], "10\n11\n12\n13\n14\n15\n16\n17\n18\n19");
    let again = end_of(&bench, "bash_1").await;
    assert_eq!(again.detail["stdout"], "(no new output)");
    let wrong = json!({ "bash_id": "bash_1", "filter": "(" });
    assert_fails_with(&bench.run("BashOutput", wrong).await, "filter is wrong");
}

#[tokio::test]
async fn an_unknown_task_id_is_answered_with_the_known_ones() {
    let bench = Bench::open();
    assert_fails_with(&kill(&bench, "bash_1").await, "this run has started none");
    begin(&bench, "true").await;
    assert_fails_with(&end_of(&bench, "bash_2").await, "bash_1 (`true`)");
}

#[tokio::test]
async fn stopping_a_background_command_ends_all_its_processes() {
    let bench = Bench::open();
    let stubborn = "trap '' TERM; setsid sleep 1000 & echo $! > far; sleep 1000 & echo $! > near; \
                    echo $$ > own; wait; wait";
    begin(&bench, stubborn).await;
    let mut pids = Vec::new();
    for name in ["far", "near", "own"] {
        pids.push(appears(&bench.cwd.join(name)).await);
    }
    let outcome = kill(&bench, "bash_1").await;
    assert!(text(&outcome).contains("was stopped after"), "{outcome:?}");
    assert_eq!(outcome.detail["status"], "killed");
    for pid in pids {
        assert_gone(&pid).await;
    }
    assert_eq!(
        bench.toolbox.background().work_state(),
        WorkStatus::Over,
        "a stopped task is not reported again"
    );
    assert!(text(&kill(&bench, "bash_1").await).contains("was not running any more"));
}

/// Looks until only processes are left that the first one has started.
async fn first_end(bench: &Bench, id: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let shown = text(&bench.run("BashOutput", json!({ "bash_id": id })).await);
        if shown.contains("its first process has ended") {
            return shown;
        }
        assert!(Instant::now() < end, "{shown}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Servers that detach themselves: their first process ends at once.
#[tokio::test]
async fn a_background_command_ends_with_its_last_process() {
    let bench = Bench::open();
    let daemon = "(setsid bash -c 'echo $$ > daemon; until [ -e go ]; do sleep 0.01; done' \
                  > /dev/null 2>&1 &); until [ -s daemon ]; do sleep 0.01; done; exit 3";
    begin(&bench, daemon).await;
    let shown = first_end(&bench, "bash_1").await;
    assert!(shown.contains("with exit code 3, and others go on"), "{shown}");
    let pid = appears(&bench.cwd.join("daemon")).await;
    assert!(is_alive(&pid));
    assert_eq!(bench.toolbox.background().work_state(), WorkStatus::StillRunning);
    bench.file("go", "");
    let shown = text(&end_of(&bench, "bash_1").await);
    assert!(shown.contains("ended after") && shown.contains("with exit code 3"), "{shown}");
    assert_gone(&pid).await;

    begin(&bench, "sleep 1000 > /dev/null 2>&1 & echo $! > other").await;
    first_end(&bench, "bash_2").await;
    let pid = appears(&bench.cwd.join("other")).await;
    assert!(is_alive(&pid));
    let outcome = kill(&bench, "bash_2").await;
    assert!(!outcome.is_error, "{outcome:?}");
    assert_gone(&pid).await;
}

#[tokio::test]
async fn at_most_eight_background_commands_run_at_a_time() {
    let bench = Bench::open();
    for _ in 0..8 {
        begin(&bench, "sleep 1000").await;
    }
    let input = json!({ "command": "sleep 1000", "run_in_background": true });
    assert_fails_with(&bench.run("Bash", input).await, "8 background commands are running");
    kill(&bench, "bash_3").await;
    assert_eq!(begin(&bench, "sleep 1000").await.detail["backgroundTaskId"], "bash_9");
}

#[tokio::test]
async fn a_background_command_is_stopped_at_its_timeout() {
    let bench = Bench::with(|settings| {
        settings.permissions.mode = PermissionMode::BypassPermissions;
        settings.commands.background_lifetime = Duration::from_millis(300);
    });
    begin(&bench, "sleep 1000").await;
    let ended = end_of(&bench, "bash_1").await;
    assert_eq!(ended.detail["status"], "timed_out");
    assert!(text(&ended).contains("the longest it may run"), "{ended:?}");
    let longer = json!({ "command": "true", "run_in_background": true, "timeout": 301 });
    let lowered = bench.run("Bash", longer).await;
    assert!(text(&lowered).contains("`timeout` was lowered to 300 ms"), "{lowered:?}");
}

#[tokio::test]
async fn the_end_of_the_run_stops_all_background_commands() {
    let bench = Bench::open();
    begin(&bench, "echo $$ > polite; sleep 1000").await;
    begin(&bench, "trap '' TERM; echo $$ > stubborn; while true; do sleep 1000; done").await;
    let polite = appears(&bench.cwd.join("polite")).await;
    let stubborn = appears(&bench.cwd.join("stubborn")).await;
    let began = Stopwatch::start();
    bench.toolbox.stop_and_wait(Duration::from_millis(500)).await;
    began.assert_within(Duration::from_secs(5), "the end of the work");
    for pid in [polite, stubborn] {
        assert_gone(&pid).await;
    }
    let ends: Vec<_> = bench.toolbox.background().tasks().iter().map(|task| task.end).collect();
    assert_eq!(ends, [Some(BackgroundEnd::RunEnded); 2]);
    let input = json!({ "command": "true", "run_in_background": true });
    assert_fails_with(&bench.run("Bash", input).await, "the run is to end");
}

#[tokio::test]
async fn dropping_the_toolbox_ends_all_background_commands() {
    let bench = Bench::open();
    begin(&bench, "echo $$ > pid; sleep 1000").await;
    let pid = appears(&bench.cwd.join("pid")).await;
    drop(bench);
    assert_gone(&pid).await;
}

#[tokio::test]
async fn a_background_command_does_not_change_the_working_directory() {
    let bench = Bench::open();
    fs::create_dir(bench.cwd.join("sub")).expect("a folder");
    begin(&bench, "cd sub; pwd").await;
    let shown = end_of(&bench, "bash_1").await.detail["stdout"].clone();
    assert_eq!(shown, json!(bench.cwd.join("sub")));
    assert_eq!(text(&bench.bash("pwd").await), bench.cwd.display().to_string());
}

#[test]
fn permission_rules_apply_to_background_commands() {
    let bench = Bench::with(|settings| settings.permissions.deny = vec!["Bash(curl *)".to_owned()]);
    for background in [false, true] {
        let input = json!({ "command": "curl x", "run_in_background": background });
        let refused = bench.toolbox.admit(&call("Bash", input));
        assert!(matches!(refused, Err(ToolRefusal::Denied { .. })), "{refused:?}");
    }
}

#[test]
fn background_tools_are_offered_only_with_bash() {
    let names = |bench: &Bench| -> Vec<String> {
        bench.toolbox.definitions().iter().map(|tool| tool.name.clone()).collect()
    };
    let only = |name: &str| Offered::Only(vec![name.to_owned()]);
    let with = Bench::with(|settings| settings.offered = only("Bash"));
    assert_eq!(names(&with), ["Bash", "BashOutput", "KillShell"]);
    let without = Bench::with(|settings| settings.offered = only("BashOutput"));
    assert_eq!(names(&without), [""; 0]);
    let denied = Bench::with(|settings| settings.permissions.deny = vec!["Bash".to_owned()]);
    assert!(!names(&denied).iter().any(|name| name == "BashOutput" || name == "KillShell"));
}

// --- floods ---------------------------------------------------------------------------------------

/// Commands that print without end, or nearly so: to either stream, without newlines, no text.
const FLOODS: [&str; 6] = [
    "yes",
    "yes >&2",
    "cat /dev/zero",
    "cat /dev/urandom >&2",
    "tr '\\0' x < /dev/zero",
    "head -c 50G /dev/zero",
];

/// Runs a command up to its timeout.
async fn flood(bench: &Bench, command: &str, timeout_ms: u64) -> ToolOutcome {
    let began = Stopwatch::start();
    let outcome = bench.run("Bash", json!({ "command": command, "timeout_ms": timeout_ms })).await;
    began.assert_within(Duration::from_millis(timeout_ms) + Duration::from_secs(28), command);
    assert_eq!(outcome.detail["timed_out"], true, "{command}: {outcome:?}");
    outcome
}

/// They run side by side: alone, each would use the machine for a second.
#[tokio::test]
async fn a_flood_is_stopped_at_its_timeout_and_its_output_truncated() {
    let floods: JoinSet<()> = FLOODS.into_iter().map(is_stopped_and_truncated).collect();
    floods.join_all().await;
}

async fn is_stopped_and_truncated(command: &'static str) {
    let mut bench = Bench::open();
    // The shortest timeout that a call can have.
    let mut outcome = flood(&bench, command, 1_000).await;
    // On a busy machine, the command had hardly begun.
    for timeout in [2_000, 8_000, 32_000] {
        if outcome.detail["output_bytes"].as_u64() <= Some(100_000) {
            bench = Bench::open();
            outcome = flood(&bench, command, timeout).await;
        }
    }
    assert!(outcome.detail["output_bytes"].as_u64() > Some(100_000), "{command}: {outcome:?}");
    assert!(text(&outcome).chars().count() < 31_000, "{command}");
    assert!(kept(&bench.outside().join("scratch")) <= 64 << 20, "{command}");
}

#[tokio::test]
async fn a_background_flood_shows_the_beginning_and_end_of_its_output() {
    for command in FLOODS {
        let bench = Bench::open();
        begin(&bench, command).await;
        assert!(glimpse(&bench, "bash_1").await.len() < 130_000, "{command}");
        let outcome = kill(&bench, "bash_1").await;
        assert_eq!(outcome.detail["status"], "killed", "{command}: {outcome:?}");
        let looked = end_of(&bench, "bash_1").await;
        assert!(text(&looked).chars().count() < 31_000, "{command}");
        assert!(kept(&bench.outside().join("scratch")) <= 64 << 20, "{command}");
    }
}

#[tokio::test]
async fn fifty_megabytes_of_output_are_counted_kept_and_shown_by_both_ends() {
    let bench = Bench::open();
    let fifty = 50 << 20;
    let command = format!("head -c {fifty} /dev/zero | tr '\\0' x; echo end >&2");
    let outcome = bench.bash(&command).await;
    assert!(!outcome.is_error);
    assert_eq!(outcome.detail["output_bytes"], fifty + 4);
    assert!(text(&outcome).ends_with("end"));
    let file = outcome.detail["output_file"].as_str().expect("it is long");
    assert_eq!(fs::metadata(file).expect("it is kept").len(), fifty + 4);
}

#[tokio::test]
async fn a_call_survives_a_missing_output_file() {
    let bench = Bench::open();
    let scratch = bench.outside().join("scratch");
    // The file is there once enough of the output was read.
    let takes_away = format!(
        "seq 1 20000; until ls '{0}'/output* > /dev/null 2>&1; do sleep 0.01; done; rm -rf '{0}'; \
         seq 1 20000; echo end",
        scratch.display()
    );
    let outcome = bench.bash(&takes_away).await;
    assert!(!outcome.is_error && text(&outcome).ends_with("end"), "{outcome:?}");
    assert!(text(&outcome).contains("was deleted"), "it says so");
    let bench = Bench::open();
    fs::write(bench.outside().join("scratch"), "in the way").expect("a file");
    let outcome = bench.bash("seq 1 20000; echo end").await;
    assert!(!outcome.is_error && text(&outcome).ends_with("end"), "{outcome:?}");
    assert!(text(&outcome).contains("could not be saved"), "it says so");
    begin(&bench, "seq 1 20000; echo end").await;
    assert!(text(&end_of(&bench, "bash_1").await).ends_with("end"));
}

#[tokio::test]
async fn waiting_for_background_output_ends_with_the_run() {
    let bench = Bench::open();
    begin(&bench, "sleep 1000").await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let input = json!({ "bash_id": "bash_1", "timeout": LONG });
    assert_fails_with(&bench.run_until("BashOutput", input, cancel).await, "Interrupted by user");
}
