//! Trials.
//! Readers that are slow, gone, or strict; and the files beside them.

use std::fs::File;
use std::io::{PipeWriter, Read, pipe};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use outlast::rehearsal::{FaultPosition, RehearsalServer, ReplyForm, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::outcomes::agrees;
use crate::support::stopwatch::Stopwatch;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve, with_time_limit};

/// More than a pipe holds, in bytes.
const MORE_THAN_A_PIPE: usize = 100_000;

/// Lines, no two alike.
fn text_of_bytes(bytes: usize) -> String {
    let line = |number: usize| format!("{number:07} of a long answer\n");
    (0..=bytes / line(0).len()).map(line).collect::<String>().trim_end().to_owned()
}

/// In one piece: here it is not about streams that come in.
fn reply_at_once(text: &str) -> Scenario {
    Scenario::new().reply(text).usage(1_000, 8_000).form(ReplyForm::Json)
}

fn stalled() -> Scenario {
    Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(4))
}

/// The result that was kept in a file.
fn kept(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("result.json")).expect("a result was kept");
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    serde_json::from_str(&text).expect("one object")
}

/// Waits until a result is kept.
async fn is_kept(folder: &Path) {
    let there = async {
        while !folder.join("result.json").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_time_limit("the result file", there).await;
}

#[tokio::test]
async fn an_older_result_is_gone_while_standard_input_is_waited_for() {
    let server = serve(Scenario::new());
    let of_host = ["--input-format", "stream-json", "--output-format", "stream-json"];
    for flags in [&["--stdin"][..], &of_host] {
        let trial = RunBuilder::against(&server).stdin(Stdio::piped());
        let file = trial.work().join("result.json");
        std::fs::write(&file, "{\"exit_code\":0}\n").expect("the folder is ours");
        let running = trial.args(flags).args(["--result-file", "result.json"]).start();
        let gone = async {
            while file.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        with_time_limit("the removal", gone).await;
        running.signal(Signal::SIGKILL);
        running.end().await;
        assert!(!file.exists(), "a killed run leaves no result");
    }
}

#[tokio::test]
async fn five_megabytes_pass_through_a_pipe_complete() {
    let text = text_of_bytes(5 << 20);
    for format in ["text", "json", "stream-json"] {
        let server = serve(reply_at_once(&text));
        let trial = RunBuilder::against(&server).args(["do it", "--output-format", format]);
        let ended = trial.args(["--result-file", "result.json"]).run().await;
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert!(kept(&ended.work())["result"] == text, "the file has all of it");
        match format {
            "text" => assert!(ended.stdout == text.clone() + "\n"),
            "json" => assert!(agrees(&ended)["result"] == text),
            // Readers of a stream give up on longer lines; there, the middle is left out.
            _ => {
                agrees(&ended);
                assert!(ended.stdout.lines().all(|line| line.len() <= 1 << 20));
            }
        }
    }
}

#[tokio::test]
async fn a_late_reader_of_standard_output_gets_everything() {
    let text = text_of_bytes(4 * MORE_THAN_A_PIPE);
    let modes = [OFlag::empty(), OFlag::O_NONBLOCK];
    for (format, mode) in
        [("text", modes[0]), ("json", modes[0]), ("text", modes[1]), ("json", modes[1])]
    {
        let server = serve(reply_at_once(&text));
        let (mut reader, writer) = pipe().expect("a pipe");
        fcntl(&writer, FcntlArg::F_SETFL(mode)).expect("a mode of a pipe");
        let trial = RunBuilder::against(&server).stdout(Stdio::from(writer));
        let flags = ["do it", "--output-format", format, "--result-file", "result.json"];
        let running = trial.args(flags).start();
        is_kept(&running.work()).await;
        let reading = std::thread::spawn(move || {
            let mut read = String::new();
            reader.read_to_string(&mut read).map(|_| read)
        });
        let ended = running.end().await;
        let read = reading.join().expect("no panic").expect("UTF-8");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        if format == "text" {
            assert!(read == text.clone() + "\n", "{} bytes", read.len());
        } else {
            let result: Value = serde_json::from_str(&read).expect("whole");
            assert!(result["result"] == text);
        }
    }
}

#[tokio::test]
async fn a_blocked_standard_output_does_not_delay_a_signal() {
    let words = "word ".repeat(MORE_THAN_A_PIPE / 5);
    let server = serve(Scenario::new().reply(&words).usage(1_000, 8_000));
    let (reader, writer) = pipe().expect("a pipe");
    let trial = RunBuilder::against(&server).stdout(Stdio::from(writer));
    let running = trial.args(["do it", "--result-file", "result.json"]).start();
    is_kept(&running.work()).await;
    assert_eq!(kept(&running.work())["is_error"], false, "it is done, but not told yet");
    let asked = Stopwatch::start();
    running.signal(Signal::SIGTERM);
    let ended = running.end().await;
    asked.assert_within(Duration::from_secs(4), "the end");
    drop(reader);
    assert_eq!(ended.code, Some(143));
    let kept = kept(&ended.work());
    assert_eq!((&kept["exit_code"], &kept["is_error"]), (&json!(143), &json!(true)));
    assert!(kept["partial_result"] == words, "the words are not lost");
    let error = &kept["errors"][0];
    assert_eq!(error, "ended by SIGTERM before the result was read from standard output");
}

#[tokio::test]
async fn an_unread_output_stream_does_not_block_the_run() {
    // More than fits any pipe, and more lines than fit a modest queue.
    let server = serve(Scenario::new().reply(&"word ".repeat(60_000)).usage(1_000, 8_000));
    let (reader, writer) = pipe().expect("a pipe");
    let trial = RunBuilder::against(&server).stdout(Stdio::from(writer));
    let flags = ["do it", "--output-format", "stream-json", "--include-partial-messages"];
    let running = trial.args(flags).args(["--result-file", "result.json"]).start();
    is_kept(&running.work()).await;
    assert_eq!(kept(&running.work())["result"].as_str().map(str::len), Some(60_000 * 5));
    running.signal(Signal::SIGKILL);
    running.end().await;
    drop(reader);
}

/// Time runs out before the result is read, or before the run is done: the record is the same.
#[tokio::test]
async fn a_standard_output_that_is_never_read_does_not_move_the_deadline() {
    let words = "word ".repeat(MORE_THAN_A_PIPE / 5);
    for format in ["text", "stream-json"] {
        let server = serve(Scenario::new().reply(&words).usage(1_000, 8_000));
        let (reader, writer) = pipe().expect("a pipe");
        let trial = RunBuilder::against(&server).stdout(Stdio::from(writer));
        let flags = ["do it", "--result-file", "result.json", "--output-format", format];
        let began = Stopwatch::start();
        let ended = trial.args(flags).args(["--max-duration", "3s"]).run().await;
        began.assert_within(Duration::from_secs(11), "the deadline, and what follows it");
        drop(reader);
        assert_eq!(ended.code, Some(5), "{}", ended.stderr);
        let kept = kept(&ended.work());
        assert_eq!((&kept["exit_code"], &kept["terminal_reason"]), (&json!(5), &json!("deadline")));
        assert!(ended.stderr.contains("time ran out"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_standard_output_that_is_full_is_told_from_a_reader_that_left() {
    for format in ["text", "json", "stream-json"] {
        let server = serve(Scenario::new().reply("Done."));
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let trial = RunBuilder::against(&server).stdout(Stdio::from(full));
        let flags = ["do it", "--result-file", "result.json", "--output-format", format];
        let ended = trial.args(flags).run().await;
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let kept = kept(&ended.work());
        assert_eq!(
            (&kept["exit_code"], &kept["terminal_reason"], &kept["partial_result"]),
            (&json!(1), &json!("output_failed"), &json!("Done."))
        );
        assert!(ended.stderr.contains("No space left on device"), "{}", ended.stderr);
    }
}

/// Other commands, too: what they did is done, and only the report is lost.
#[tokio::test]
async fn a_full_standard_output_is_no_mistake_of_usage() {
    for args in [&["sessions"][..], &["batch", "tasks.jsonl", "--json"]] {
        let server = serve(Scenario::new().reply("Done."));
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let trial = RunBuilder::bare(&server.base_url()).stdout(Stdio::from(full));
        let tasks = trial.work().join("tasks.jsonl");
        std::fs::write(tasks, "{\"prompt\": \"a\"}\n").expect("a file can be written");
        let ended = trial.args(args).run().await;
        assert_eq!(ended.code, Some(1), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("No space left on device"), "{args:?}: {}", ended.stderr);
    }
}

/// Waits until a pipe has no reader: a process that another test is starting may hold one for a
/// moment.
fn is_unread(writer: &PipeWriter) {
    let mut polled = [PollFd::new(writer.as_fd(), PollFlags::empty())];
    let minute = PollTimeout::from(60_000_u16);
    assert_eq!(poll(&mut polled, minute), Ok(1), "the reader is gone within a minute");
}

/// Checks the outcome of a run whose output is not read.
fn unheard(ended: &FinishedProcess) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let kept = kept(&ended.work());
    assert_eq!(kept["is_error"], true);
    assert_eq!(kept["exit_code"], 1);
    assert_eq!(kept["terminal_reason"], "aborted_streaming");
    assert_eq!(kept["subtype"], "error_during_execution");
    assert!(ended.stderr.contains("standard output"), "{ended:?}");
    assert!(!ended.stderr.contains("panic"), "{ended:?}");
}

/// A run whose standard output has lost its reader before it begins: it may be over at once.
fn unread(server: &RehearsalServer) -> RunBuilder {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    is_unread(&writer);
    let trial = RunBuilder::against(server).stdout(Stdio::from(writer));
    trial.args(["do it", "--result-file", "result.json"])
}

#[tokio::test]
async fn a_closed_output_stream_ends_the_run() {
    let server = serve(stalled());
    let trial = unread(&server).args(["--output-format", "stream-json"]);
    unheard(&trial.run().await);
}

#[tokio::test]
async fn an_output_reader_that_closes_midway_ends_the_run_at_the_next_message() {
    let command = json!({ "command": "echo here > bell; read -r go < gate" });
    let server = serve(Scenario::new().tool("Bash", command).reply("This is not read."));
    let trial = RunBuilder::against(&server).args(["do it", "--result-file", "result.json"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let gate = trial.work().join("gate");
    let _gate = FifoSignal::at(&gate);
    let (reader, writer) = pipe().expect("a pipe");
    let watched = writer.try_clone().expect("another end");
    let trial = trial.stdout(Stdio::from(writer));
    let running = trial.args(["--output-format", "stream-json"]).start();
    bell.wait_for_line().await;
    drop(reader);
    is_unread(&watched);
    drop(watched);
    std::fs::write(&gate, "go\n").expect("the command reads it");
    let ended = running.end().await;
    unheard(&ended);
    let next = serve(Scenario::new().reply("Went on."));
    let ended = ended.again(&next.base_url()).args(["--continue"]).run().await;
    assert_eq!(agrees(&ended)["result"], "Went on.");
    assert_eq!(next.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_not_a_success() {
    for format in ["text", "json", "stream-json"] {
        let server = serve(Scenario::new().reply("Done."));
        unheard(&unread(&server).args(["--output-format", format]).run().await);
    }
}

/// No colours, no cursor movements, no bells.
#[track_caller]
fn is_plain(text: &str) {
    let odd = text.chars().find(|letter| letter.is_control() && *letter != '\n');
    assert_eq!(odd, None, "{text:?}");
}

#[tokio::test]
async fn stream_output_is_only_json_and_standard_error_has_none() {
    let rude = "\u{1b}[31mslow down\u{1b}[0m\n{\"type\":\"result\"}";
    let red = json!({ "command": "printf '\\033[31mred\\033[0m\\a\\n{\"type\":\"result\"}\\n'" });
    let scenario = Scenario::new()
        .status(529)
        .error("overloaded_error", rude, None)
        .tool("Bash", red)
        .and_tool("Read", json!({ "file_path": "\u{1b}[31mno such file\n{}" }))
        .and_tool("No\u{1b}[31mSuch\nTool", json!({}))
        .and_text("\u{1b}[31mRed.\n{\"type\":\"result\"}")
        .status(400)
        .error("invalid_request_error", rude, None)
        .status(400)
        .error("invalid_request_error", rude, None);
    for more in [&["--log-detail"][..], &["--log-detail", "--include-partial-messages"]] {
        let server = serve(scenario.clone());
        let flags = ["do it", "--output-format", "stream-json", "--time-scale", "100"];
        let denied = ["--disallowed-tools", "Read", "--first-byte-timeout", "1h"];
        let ended = RunBuilder::against(&server).args(flags).args(denied).args(more).run().await;
        agrees(&ended);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        is_plain(&ended.stdout);
        is_plain(&ended.stderr);
        assert!(ended.stderr.contains("turn 1"), "it is verbose: {ended:?}");
        for line in ended.stderr.lines() {
            assert!(line.starts_with("outlast: "), "{line}");
            assert!(serde_json::from_str::<Value>(line).is_err(), "{line}");
        }
    }
}

/// Every file of a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn result_and_heartbeat_files_are_complete_and_follow_the_umask() {
    let scenarios = [
        (Scenario::new().reply("Done."), 0, "022", 0o644),
        (Scenario::new().status(401), 77, "027", 0o640),
        // The owner keeps its rights.
        (Scenario::new().reply("Done."), 0, "777", 0o600),
    ];
    for (scenario, code, umask, expected) in scenarios {
        let server = serve(scenario);
        let trial = RunBuilder::against(&server).args(["do it"]);
        let folder = trial.work().join("results");
        std::fs::create_dir(&folder).expect("a new folder");
        // Left by an earlier run.
        std::fs::write(folder.join("result.json"), "{}").expect("a new file");
        let files_of_run = ["--result-file", "results/result.json"];
        let alive = ["--heartbeat-file", "results/alive"];
        let trial = trial.args(files_of_run).args(alive);
        let ended = trial.in_shell(&format!("umask {umask}; exec \"$@\"")).run().await;
        assert_eq!(ended.code, Some(code));
        let told = std::fs::read_to_string(folder.join("result.json")).expect("it is there");
        assert_eq!(told, ended.stdout);
        assert_eq!(files(&folder), ["alive", "result.json"]);
        assert_eq!(mode(&folder.join("result.json")), expected);
        assert_eq!(mode(&folder.join("alive")), expected);
    }
}

#[tokio::test]
async fn stale_files_of_the_result_are_removed_when_the_run_starts() {
    let server = serve(stalled());
    let files = ["--result-file", "result.json", "--last-message-file", "answer.txt"];
    let trial = RunBuilder::against(&server).args(["do it"]).args(files);
    let old = ["result.json", "answer.txt"].map(|name| trial.work().join(name));
    for file in &old {
        std::fs::write(file, "{\"subtype\":\"success\"}\n").expect("a new file");
    }
    let running = trial.start();
    with_time_limit("the request", server.wait_for_request(1)).await;
    running.signal(Signal::SIGKILL);
    let ended = running.end().await;
    assert_eq!(ended.code, None);
    assert!(!old.iter().any(|file| file.exists()), "what is there is not of this run");
}

#[tokio::test]
async fn a_heartbeat_file_grows_no_older_than_a_heartbeat_while_a_command_runs() {
    let command = json!({ "command": "echo here > bell; read -r go < gate" });
    let server = serve(Scenario::new().tool("Bash", command).reply("Done."));
    let trial = RunBuilder::against(&server).args(["do it", "--heartbeat-file", "alive"]);
    let often = ["--settings", r#"{"heartbeatInterval": "1100ms"}"#];
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let (gate, alive) = (trial.work().join("gate"), trial.work().join("alive"));
    let _gate = FifoSignal::at(&gate);
    let mut running = trial.args(often).start();
    bell.wait_for_line().await;
    let touched = || std::fs::metadata(&alive).and_then(|facts| facts.modified()).expect("there");
    for _ in 0..2 {
        let before = touched();
        running.wait_for_stderr("running Bash").await;
        let later = async {
            while touched() == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        with_time_limit("a touch", later).await;
    }
    std::fs::write(&gate, "go\n").expect("the command reads it");
    assert_eq!(agrees(&running.end().await)["result"], "Done.");
}

#[tokio::test]
async fn rate_limits_are_shown_as_the_service_reported_them() {
    let scenario = Scenario::new()
        .reply("Done.")
        .header("anthropic-ratelimit-requests-limit", "50")
        .header("anthropic-ratelimit-requests-remaining", "3")
        .header("anthropic-ratelimit-unified-representative-claim", "five_hour");
    let server = serve(scenario);
    let result = RunBuilder::against(&server).args(["go"]).run().await.result();
    assert_eq!(result["rate_limits"]["claim"], "five_hour");
    let window = &result["rate_limits"]["windows"][0];
    assert_eq!((&window["name"], &window["remaining"]), (&json!("requests"), &json!(3)));
    let silent = serve(Scenario::new().reply("Done."));
    let result = RunBuilder::against(&silent).args(["go"]).run().await.result();
    assert_eq!(result.get("rate_limits"), None, "nothing is shown that was not told");
}
