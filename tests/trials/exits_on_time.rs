//! Trials.
//! A run that is over is over: the process ends soon after its result, whatever still hangs. And
//! before it begins nothing is waited for without a name and a bound.

use std::path::Path;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::rehearsal::Scenario;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::outcomes::agrees;
use super::timeouts::with;
use crate::support::stopwatch::Stopwatch;
use crate::support::{RunBuilder, RunningProcess, serve, with_time_limit};

/// Longest time that a process may live after its result.
const SOON: Duration = Duration::from_secs(5);

fn pipe_at(path: &Path) {
    mkfifo(path, Mode::S_IRWXU).expect("a pipe can be made");
}

/// From the last byte of the result to the end of the process.
async fn leaves_after_its_result(mut running: RunningProcess) -> i32 {
    let stdout = running.child.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(stdout).lines();
    let line =
        with_time_limit("the result", lines.next_line()).await.expect("readable").expect("a line");
    let told = Stopwatch::start();
    let status =
        with_time_limit("the end", running.child.wait()).await.expect("it can be waited for");
    told.assert_within(SOON, "from the result to the end");
    let result: serde_json::Value = serde_json::from_str(&line).expect("one object");
    assert_eq!(result["type"], "result");
    let code = status.code().expect("it ends by itself");
    assert_eq!(result["exit_code"], code);
    assert_eq!(lines.next_line().await.expect("readable"), None, "nothing comes afterwards");
    code
}

#[tokio::test]
async fn a_thread_blocked_on_a_file_does_not_delay_the_exit() {
    let server = serve(Scenario::new());
    let trial =
        RunBuilder::against(&server).args(["--settings", "pipe", "--max-duration", "1s", "go"]);
    pipe_at(&trial.work().join("pipe"));
    assert_eq!(leaves_after_its_result(trial.start()).await, 2);
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_hanging_helper_does_not_delay_the_exit() {
    let server = serve(Scenario::new());
    let helper = json!({ "apiKeyHelper": "trap '' TERM INT; sleep 1000" });
    let trial = with(RunBuilder::against(&server), &helper).args(["--max-duration", "1s", "go"]);
    assert_eq!(leaves_after_its_result(trial.start()).await, 5);
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_daemon_of_a_command_does_not_delay_the_exit() {
    let daemon = "(trap '' TERM HUP INT; exec sleep 1000) & echo started";
    let server =
        serve(Scenario::new().tool("Bash", json!({ "command": daemon })).reply("It runs."));
    assert_eq!(leaves_after_its_result(RunBuilder::against(&server).args(["go"]).start()).await, 0);
}

/// A pipe in the working folder that takes no more, until it is dropped.
fn full_pipe(trial: &RunBuilder) -> std::fs::File {
    let path = trial.work().join("full");
    pipe_at(&path);
    let full = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    fill(&full);
    full
}

/// Standard error is a full pipe that is not read.
#[tokio::test]
async fn a_blocked_standard_error_does_not_delay_the_exit() {
    let server = serve(Scenario::new().reply("Done."));
    let script = "exec \"$@\" 2> full";
    let trial = RunBuilder::against(&server).args(["--log-detail", "go"]).in_shell(script);
    let _full = full_pipe(&trial);
    assert_eq!(leaves_after_its_result(trial.start()).await, 0);
}

/// Before the run, nothing but the error is written.
#[tokio::test]
async fn a_blocked_standard_error_does_not_delay_the_exit_after_a_usage_error() {
    let server = serve(Scenario::new());
    let script = "exec \"$@\" 2> full";
    let trial = RunBuilder::against(&server).args(["--max-turns", "0", "go"]).in_shell(script);
    let _full = full_pipe(&trial);
    let ended = trial.start().end().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

/// Writes into a pipe until nothing more fits.
fn fill(mut pipe: &std::fs::File) {
    use std::io::Write;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
    for piece in [4096, 1] {
        while pipe.write(&vec![b' '; piece]).is_ok() {}
    }
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
}

// --- before the run ----------------------------------------------------------------------------

/// After ten seconds of silence the file is named, and in the end as well. An older result is gone
/// by then.
async fn names_its_file(trial: RunBuilder, step: &str, file: &str) {
    let older = trial.work().join("result.json");
    std::fs::write(&older, "{}").expect("a file");
    let trial = trial.args(["--result-file", "result.json", "--max-duration", "16s", "go"]);
    let mut running = trial.start();
    running.wait_for_stderr(&format!("outlast: still {step} (reading ")).await;
    running.wait_for_stderr(&format!("{file}), 10s so far")).await;
    assert!(!older.exists(), "{step}");
    let ended = running.end().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let why = agrees(&ended)["errors"][0].as_str().expect("a reason").to_owned();
    assert!(why.contains(file) && why.contains("a pipe without a writer"), "{why}");
}

/// All at once, since each takes its time. Those of the home folder stand for a disk that hangs.
#[tokio::test]
async fn a_file_that_cannot_be_read_in_time_is_named() {
    let server = serve(Scenario::new());
    let roots = RunBuilder::against(&server);
    let file = roots.work().join("roots.pem");
    pipe_at(&file);
    let roots = roots.env("NODE_EXTRA_CA_CERTS", &file.display().to_string());
    let at_home = |file: &str| {
        let trial = RunBuilder::against(&server).env("ANTHROPIC_API_KEY", "");
        let config = trial.work().with_file_name("config");
        std::fs::create_dir(&config).expect("a new folder");
        pipe_at(&config.join(file));
        trial
    };
    let login = ".credentials.json";
    let words = RunBuilder::against(&server).args(["--append-system-prompt-file", "words"]);
    pipe_at(&words.work().join("words"));
    let reading = "reading the settings";
    tokio::join!(
        names_its_file(roots, "opening the session", "roots.pem"),
        names_its_file(at_home(login), reading, login),
        names_its_file(words, reading, "words"),
    );
    assert_eq!(server.requests().len(), 0);
}

/// The pipe of a process substitution gets its text late; the run waits for it.
#[tokio::test]
async fn a_pipe_with_a_writer_is_read() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::against(&server).args(["--settings", "pipe", "go"]);
    let pipe = trial.work().join("pipe");
    pipe_at(&pipe);
    let running = trial.start();
    let writing = tokio::task::spawn_blocking(move || std::fs::write(pipe, r#"{"maxTurns": 7}"#));
    with_time_limit("a reader", writing).await.expect("no panic").expect("it is read");
    let ended = running.end().await;
    assert_eq!(agrees(&ended)["result"], "Done.");
}

#[tokio::test]
async fn a_pipe_in_place_of_the_settings_of_git_blocks_no_search() {
    let server = serve(Scenario::new().tool("Grep", json!({ "pattern": "x" })).reply("Done."));
    let trial = RunBuilder::against(&server).args(["--max-duration", "60s", "go"]);
    let home = trial.work();
    pipe_at(&home.join(".gitconfig"));
    let ended = trial.env("HOME", &home.display().to_string()).run().await;
    assert_eq!(agrees(&ended)["result"], "Done.");
}

/// Opening a heartbeat file that is a pipe does not block until it has a reader.
#[tokio::test]
async fn a_heartbeat_file_that_is_a_pipe_is_refused_at_once() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::against(&server).args(["--heartbeat-file", "pipe", "go"]);
    pipe_at(&trial.work().join("pipe"));
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--heartbeat-file"), "{ended:?}");
}
