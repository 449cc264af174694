//! Trials of background commands: builds that end late, servers that never do, floods, signals.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::libc::O_NONBLOCK;
use nix::sys::signal::Signal;
use outlast::recovery::{Nudge, WORK_GONE};
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::outcomes::agrees;
use super::requirements::{asked, fails_as, told};
use super::timeouts::{messages, with};
use crate::support::stopwatch::Stopwatch;
use crate::support::{
    FifoSignal, FinishedProcess, RunBuilder, RunningProcess, is_alive, serve, with_time_limit,
};

fn begins(scenario: Scenario, command: &str) -> Scenario {
    scenario.tool("Bash", json!({ "command": command, "run_in_background": true }))
}

/// Ends when it receives a line, and prints that line.
const BUILD: &str = "cat go; echo built; exit 3";

/// Rings, and never ends.
const SERVER: &str = "echo $$ > bell; exec sleep 1000";

/// The same, and does not want to be ended.
const STUBBORN: &str =
    "trap '' TERM INT; setsid sleep 1000 & echo $$ > bell; while true; do sleep 1000; done";

fn pid(rung: &str) -> i32 {
    rung.trim().parse().expect("a process rings with its id")
}

/// Waits until a command reads the pipe, and says the word.
async fn say(pipe: &Path, word: &str) {
    let end = Instant::now() + Duration::from_mins(4);
    loop {
        let opened = fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(pipe);
        if let Ok(mut pipe) = opened {
            use std::io::Write;
            return writeln!(pipe, "{word}").expect("it is read");
        }
        assert!(Instant::now() < end, "the pipe has no reader");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn background(result: &Value) -> &Vec<Value> {
    result["background"].as_array().expect("a list")
}

#[tokio::test]
async fn a_background_build_is_waited_for_after_the_last_reply() {
    let scenario = begins(Scenario::new(), BUILD).reply("It builds.").reply("It failed with 3.");
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["--output-format", "stream-json", "Build."]);
    let trial = with(trial, &json!({ "heartbeatInterval": "0.05s" }));
    let go = trial.work().join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).expect("a pipe can be made");
    let mut running = trial.start();
    running.wait_for_stderr("waiting for background commands to end, ").await;
    say(&go, "now").await;
    let ended = running.end().await;
    let result = agrees(&ended);
    assert_eq!(
        (ended.code, &result["result"]),
        (Some(0), &json!("It builds.\n\nIt failed with 3."))
    );
    asked(&server, 3);
    let words = told(&server, 3);
    assert!(words.starts_with(Nudge::WorkEnded.text()), "{words}");
    assert!(words.contains("bash_1 (`cat go; echo built; exit 3`) ended after"), "{words}");
    assert!(words.contains("with exit code 3"), "{words}");
    let [task] = &background(&result)[..] else { panic!("{result}") };
    assert_eq!((&task["status"], &task["exit_code"]), (&json!("failed"), &json!(3)));
    assert_eq!((&task["cut"], &task["output_bytes"]), (&json!(false), &json!(10)));
    assert_eq!(result["recovery"]["strategies"]["background_report"], 1);
    let started = messages(&ended, "task_started");
    assert_eq!((started.len(), &started[0]["task_type"]), (1, &json!("local_bash")));
    assert_eq!(started[0]["task_id"], "bash_1");
    let over = messages(&ended, "task_notification");
    assert_eq!((over.len(), &over[0]["status"]), (1, &json!("failed")));
    assert_eq!(messages(&ended, "task_updated")[0]["patch"]["status"], "failed");
    let beats = messages(&ended, "heartbeat");
    let kinds = beats.iter().filter(|beat| beat["waiting_for"]["kind"] == "background");
    assert!(kinds.clone().count() > 0 && kinds.clone().all(|beat| beat["ends_in_ms"].is_u64()));
}

#[tokio::test]
async fn the_model_is_asked_about_a_forgotten_background_server() {
    let scenario = begins(Scenario::new(), SERVER)
        .reply("Started.")
        .tool("KillShell", json!({ "shell_id": "bash_1" }))
        .reply("Stopped, done.");
    let server = serve(scenario);
    let trial =
        with(RunBuilder::against(&server), &json!({ "backgroundWait": "12s" })).args(["Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let server_pid = pid(&bell.wait_for_line().await);
    let ended = running.end().await;
    let result = agrees(&ended);
    assert_eq!(
        (ended.code, &result["result"]),
        (Some(0), &json!("Started.\n\nStopped, done.")),
        "{ended:?}"
    );
    asked(&server, 4);
    let words = told(&server, 3);
    assert!(words.starts_with(Nudge::StillRunning.text()), "{words}");
    assert!(words.contains("bash_1 (`echo $$ > bell; exec sleep 1000`) has been running"));
    assert!(!is_alive(server_pid));
    assert_eq!(background(&result)[0]["status"], "killed");
}

/// And the session says so when it goes on.
#[tokio::test]
async fn a_background_server_that_keeps_running_ends_the_run_as_pending() {
    let scenario = begins(Scenario::new(), SERVER).reply("Started.").reply("I leave it running.");
    let server = serve(scenario);
    let trial =
        with(RunBuilder::against(&server), &json!({ "backgroundWait": "6s" })).args(["Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let server_pid = pid(&bell.wait_for_line().await);
    let ended = running.end().await;
    let result = fails_as(&ended, 9, "background_pending");
    assert_eq!(result["partial_result"], "Started.\n\nI leave it running.");
    assert!(!is_alive(server_pid));
    let [task] = &background(&result)[..] else { panic!("{result}") };
    assert_eq!((&task["status"], &task["cut"]), (&json!("cut"), &json!(true)));
    assert!(result["errors"][0].as_str().is_some_and(|why| why.contains("bash_1 (\"echo $$")));
    asked(&server, 3);
    let next = serve(Scenario::new().reply("I see."));
    let ended = ended.again(&next.base_url()).args(["--continue"]).run().await;
    let whole = "Started.\n\nI leave it running.\n\nI see.";
    assert_eq!(ended.result()["result"], whole, "{ended:?}");
    let words = told(&next, 1);
    assert!(words.contains(WORK_GONE), "{words}");
    assert!(words.contains("was stopped after"), "{words}");
    assert_eq!(words.matches(WORK_GONE).count(), 1);
}

#[tokio::test]
async fn a_resumed_run_reports_lost_background_tasks_and_continues_their_ids() {
    let (running, server_pid) = waiting(SERVER).await;
    running.signal(Signal::SIGKILL);
    let ended = running.end().await;
    assert_eq!(ended.code, None);
    let next = serve(begins(Scenario::new(), "true").reply("Again.").reply("Done."));
    let ended = ended.again(&next.base_url()).args(["--continue"]).run().await;
    let result = agrees(&ended);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let words = told(&next, 1);
    assert!(words.contains(WORK_GONE) && words.contains("- bash_1 (`echo $$ > bell"), "{words}");
    assert_eq!(background(&result)[0]["id"], "bash_2");
    assert!(!is_alive(server_pid));
}

#[tokio::test]
async fn the_end_of_a_background_task_is_reported_once_with_the_next_results() {
    let wait = "while [ ! -s pid ]; do sleep 0.01; done; \
                while kill -0 $(cat pid) 2> /dev/null; do sleep 0.01; done";
    let scenario = begins(Scenario::new(), "echo $$ > pid")
        .tool("Bash", json!({ "command": wait }))
        .reply("First.")
        .reply("Second.")
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["Go."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let requests = server.requests();
    let last = requests.last().expect("it asked").body.to_string();
    let words = serde_json::to_string(Nudge::WorkEnded.text()).expect("a text");
    assert_eq!(last.matches(words.trim_matches('"')).count(), 1, "{last}");
    assert_eq!(server.violations(), [""; 0]);
}

#[tokio::test]
async fn the_deadline_is_kept_with_background_commands() {
    let server = serve(begins(Scenario::new(), STUBBORN).reply("Started."));
    let trial = RunBuilder::against(&server).args(["--max-duration", "6s", "Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let began = Stopwatch::start();
    let running = trial.start();
    let server_pid = pid(&bell.wait_for_line().await);
    let ended = running.end().await;
    fails_as(&ended, 9, "background_pending");
    began.assert_within(Duration::from_secs(9), "the end");
    assert!(!is_alive(server_pid));
}

#[tokio::test]
async fn the_turn_limit_ends_what_runs_in_the_background() {
    let scenario = begins(Scenario::new(), "echo $$ > pid; exec sleep 1000");
    let until = json!({ "command": "while [ ! -s pid ]; do sleep 0.01; done" });
    let server = serve(scenario.and_tool("Bash", until));
    let ended = RunBuilder::against(&server).args(["--max-turns", "1", "Go."]).run().await;
    let result = fails_as(&ended, 3, "max_turns");
    assert_eq!(background(&result)[0]["status"], "cut");
    let server_pid = fs::read_to_string(ended.work().join("pid")).expect("it ran");
    assert!(!is_alive(pid(&server_pid)));
}

/// A run that waits for a background command.
async fn waiting(command: &str) -> (RunningProcess, i32) {
    let server = serve(begins(Scenario::new(), command).reply("Started."));
    let trial = RunBuilder::against(&server).args(["Go."]);
    let trial = with(trial, &json!({ "heartbeatInterval": "0.05s" }));
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let mut running = trial.start();
    let server_pid = pid(&bell.wait_for_line().await);
    running.wait_for_stderr("waiting for background commands to end, ").await;
    (running, server_pid)
}

async fn cut(ended: &FinishedProcess, server_pid: i32) {
    let result = fails_as(ended, 130, "aborted_tools");
    assert_eq!(background(&result)[0]["status"], "cut", "{result}");
    // The kernel may still be at it.
    let gone = async {
        while is_alive(server_pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_time_limit("the end of the server", gone).await;
}

#[tokio::test]
async fn an_interrupt_names_stopped_tasks_and_a_second_one_does_not_wait() {
    let (mut running, server_pid) = waiting(STUBBORN).await;
    let began = Stopwatch::start();
    running.signal(Signal::SIGINT);
    running.wait_for_stderr("background commands are being stopped: bash_1 ").await;
    let ended = running.end().await;
    began.assert_within(Duration::from_secs(4), "the end after an interrupt");
    cut(&ended, server_pid).await;

    let (mut running, server_pid) = waiting(STUBBORN).await;
    running.signal(Signal::SIGINT);
    running.wait_for_stderr("a second SIGINT within 3 s ends all at once").await;
    let began = Stopwatch::start();
    running.signal(Signal::SIGINT);
    let ended = running.end().await;
    began.assert_within(Duration::from_millis(1_900), "the end after another interrupt");
    cut(&ended, server_pid).await;
}

// --- floods ---------------------------------------------------------------------------------------

/// The memory of a process, in bytes.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or_default() << 10
}

/// Size of a folder's contents, in bytes.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size(&entry.path()),
        Ok(_) | Err(_) => entry.metadata().map_or(0, |facts| facts.len()),
    };
    entries.filter_map(Result::ok).map(of).sum()
}

#[tokio::test]
async fn nine_concurrent_output_floods_stay_within_memory_and_disk_limits() {
    let floods = ["yes", "yes >&2", "cat /dev/zero", "head -c 50G /dev/zero"];
    let mut scenario = Scenario::new();
    for number in 0..8 {
        let input = json!({ "command": floods[number % 4], "run_in_background": true });
        scenario = match number {
            0 => scenario.tool("Bash", input),
            _ => scenario.and_tool("Bash", input),
        };
    }
    let last = json!({ "command": "echo go > bell; head -c 50G /dev/urandom", "timeout": 1_000 });
    let server = serve(scenario.and_tool("Bash", last));
    let trial = RunBuilder::against(&server).args(["--max-turns", "1", "Go."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let mut running = trial.start();
    let (pid, config) = (running.pid(), running.work().with_file_name("config"));
    bell.wait_for_line().await;
    let (before, mut most) = (resident(pid), 0);
    let mut disk = 0;
    while running.child.try_wait().expect("it is ours").is_none() {
        (most, disk) = (most.max(resident(pid)), disk.max(size(&config)));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ended = running.end().await;
    let result = fails_as(&ended, 3, "max_turns");
    assert_eq!(background(&result).len(), 8);
    eprintln!("resident: {before} bytes, then {most}; on disk: {disk}");
    assert!(most < before + (64 << 20), "resident: {before}, then {most}");
    assert!(disk <= (512 << 20) + (1 << 20), "on disk: {disk}");
    assert!(disk > 4 << 20, "little was printed: {disk}");
}
