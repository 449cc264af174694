//! Trials.
//! Unattended standard input: open, silent, huge or not text, and never closed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::Duration;

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::timeouts::{millis, with};
use crate::support::stopwatch::Stopwatch;
use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve};

const BOUND: Duration = Duration::from_mins(4);

fn server() -> RehearsalServer {
    serve(Scenario::new().reply("Done."))
}

/// A run that is fed `input` and then sees its end.
async fn fed(trial: RunBuilder, input: &[u8]) -> FinishedProcess {
    let mut running = trial.stdin(Stdio::piped()).start();
    let mut stdin = running.child.stdin.take().expect("a pipe");
    // A run that refuses its input stops reading it.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    running.end().await
}

/// The prompt, as the model got it.
fn prompt(server: &RehearsalServer) -> String {
    let requests = server.requests();
    let content = &requests[0].body["messages"][0]["content"];
    let blocks = content.as_array().expect("blocks");
    assert_eq!(blocks.len(), 1, "one prompt, one block");
    blocks[0]["text"].as_str().expect("text").to_owned()
}

/// Time from the start of the process to the first request.
async fn until_first_request(
    server: &RehearsalServer,
    trial: RunBuilder,
) -> (Stopwatch, Duration, FinishedProcess) {
    let begun = Stopwatch::start();
    let mut running = trial.start();
    let open = running.child.stdin.take();
    timeout(BOUND, server.wait_for_request(1)).await.expect("a request leaves");
    let took = begun.elapsed();
    let ended = running.end().await;
    drop(open);
    (begun, took, ended)
}

#[tokio::test]
async fn a_prompt_argument_is_not_delayed_by_an_open_pipe() {
    let idle = server();
    let (_, usual, _) = until_first_request(&idle, RunBuilder::against(&idle).args(["go"])).await;
    let server = server();
    let trial = RunBuilder::against(&server).stdin(Stdio::piped()).args(["go"]);
    let (watch, took, ended) = until_first_request(&server, trial).await;
    // What this machine needs to start a process at all is not what is on trial.
    let most = watch.scaled_bound(usual + millis(2_000));
    assert!(took < most, "{took:?} instead of {usual:?}");
    assert_eq!((ended.code, prompt(&server).as_str()), (Some(0), "go"));
    let said: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("left unread") && said[0].contains("--stdin"), "{said:?}");
    let warning = ended.result()["warnings"][0].to_string();
    assert!(warning.contains("brought nothing for 1s"), "an ancestor holds it: {warning}");
}

#[tokio::test]
async fn a_dash_for_a_file_of_a_flag_is_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("input");
    std::fs::write(&file, "{\"type\": \"object\", \"title\": \"T\"}").expect("a file");
    for flag in ["--append-system-prompt-file", "--json-schema"] {
        let server = server();
        let input = std::fs::File::open(&file).expect("the file");
        let trial = RunBuilder::against(&server).args(["go", flag, "-"]);
        trial.stdin(Stdio::from(input)).run().await;
        assert_eq!(prompt(&server), "go", "{flag}: nothing is left for the prompt");
        let request = server.requests()[0].body.to_string();
        assert!(request.contains("title"), "{flag}: {request}");
    }
}

#[tokio::test]
async fn requested_standard_input_is_waited_for_within_a_bound() {
    for flags in [&["-"][..], &["--stdin", "go"], &["--stdin"], &["--stdin-timeout", "1s"]] {
        let server = server();
        let timeout = if flags.len() == 2 && flags[0] == "--stdin-timeout" { "1h" } else { "1s" };
        let settings = json!({ "stdinTimeout": timeout, "heartbeatInterval": "200ms" });
        let trial = with(RunBuilder::against(&server), &settings).args(flags);
        let mut running = trial.stdin(Stdio::piped()).start();
        let open = running.child.stdin.take();
        let begun = Stopwatch::start();
        let ended = running.end().await;
        drop(open);
        begun.assert_within(millis(4_000), format_args!("{flags:?}"));
        assert_eq!((ended.code, server.requests().len()), (Some(2), 0), "{flags:?}: {ended:?}");
        let why = ended.result()["errors"][0].as_str().expect("a reason").to_owned();
        assert!(why.contains("stayed silent for 1s") && why.contains("/dev/null"), "{why}");
        let lines: Vec<&str> = ended.stderr.lines().collect();
        let (last, beats) = lines.split_last().expect("something is said");
        assert!(last.contains(&why), "{flags:?}: {lines:?}");
        assert!(beats.len() >= 2, "{flags:?}: {lines:?}");
        let waiting = "outlast: waiting for standard input";
        assert!(beats.iter().all(|beat| beat.starts_with(waiting)), "{flags:?}: {lines:?}");
    }
}

/// The producer writes when the test opens the gate, and that is after outlast has said that it
/// waits, and for how long.
#[tokio::test]
async fn a_pipeline_whose_producer_is_late_is_read_to_its_end() {
    let server = server();
    let trial = with(RunBuilder::against(&server), &json!({ "heartbeatInterval": "50ms" }));
    let gate = trial.work().join("gate");
    let _gate = FifoSignal::at(&gate);
    let script = "(read -r go < gate; printf 'late '; printf 'data') | \"$@\"";
    let mut running = trial.args(["go"]).in_shell(script).start();
    running.wait_for_stderr("waiting for standard input").await;
    std::fs::write(&gate, "go\n").expect("the producer reads it");
    let ended = running.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(prompt(&server), "go\nlate data");
    assert_eq!(ended.result()["warnings"], json!([]));
    // The bound is that of a pipeline, and not the grace of an idle pipe.
    let left = ended.stderr.lines().next().and_then(|beat| beat.rsplit(", ").next());
    assert!(left.is_some_and(|left| left.ends_with("s left") && left.contains('m')), "{left:?}");
}

#[tokio::test]
async fn a_file_on_standard_input_is_read_only_from_offset_zero() {
    let server = server();
    let trial = RunBuilder::against(&server).args(["go"]);
    std::fs::write(trial.work().join("list"), "a\nb\nc\n").expect("a new file");
    let ended = trial.in_shell("\"$@\" < list").run().await;
    assert_eq!((ended.code, prompt(&server).as_str()), (Some(0), "go\na\nb\nc\n"), "{ended:?}");

    let server = serve(Scenario::new().reply("Done.").times(3));
    let trial = RunBuilder::against(&server).args(["go"]);
    std::fs::write(trial.work().join("list"), "a\nb\nc\n").expect("a new file");
    let ended = trial.in_shell("while read -r line; do \"$@\" || exit; done < list").run().await;
    assert_eq!((ended.code, server.requests().len()), (Some(0), 3), "{ended:?}");
    assert_eq!(prompt(&server), "go");
    let warnings = ended.frames().into_iter().map(|result| result["warnings"].to_string());
    let told: Vec<bool> = warnings.map(|all| all.contains("read in part")).collect();
    assert_eq!(told, [true, true, false], "the last run leaves nothing unread");
}

#[tokio::test]
async fn disabled_standard_input_is_not_consumed() {
    let server = server();
    let trial = RunBuilder::against(&server).args(["--no-stdin", "go"]);
    let ended = trial.in_shell("printf data | { \"$@\"; cat > rest; }").run().await;
    assert_eq!((prompt(&server).as_str(), ended.stderr.as_str()), ("go", ""), "{ended:?}");
    let rest = std::fs::read_to_string(ended.work().join("rest")).expect("it is there");
    assert_eq!(rest, "data");
}

const TEN_MEGABYTES: usize = 10 * 1024 * 1024;

#[tokio::test]
async fn ten_megabytes_of_input_are_accepted_and_one_byte_more_is_refused() {
    let server = server();
    let input = "0123456789abcde\n".repeat(TEN_MEGABYTES / 16);
    let wide = RunBuilder::against(&server).args(["--context-window", "8000000", "-"]);
    let ended = fed(wide, input.as_bytes()).await;
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert!(prompt(&server) == input, "not a byte is lost");

    let more = input + "x";
    let refused = self::server();
    let ended = fed(RunBuilder::against(&refused).args(["-"]), more.as_bytes()).await;
    is_refused(&ended, &refused, &["larger than 10 MB"]);
}

#[tokio::test]
async fn input_in_another_encoding_is_read_and_its_size_is_in_the_result() {
    let server = server();
    let ended = fed(RunBuilder::against(&server).args(["go"]), b"good\ncaf\xe9\n").await;
    assert_eq!((ended.code, prompt(&server).as_str()), (Some(0), "go\ngood\ncaf\u{fffd}\n"));
    let result = ended.result();
    assert_eq!(result["stdin"], "2 lines, 10 bytes of standard input were added to the prompt");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("not valid UTF-8 at line 2, byte 9"), "{warnings}");
    assert!(!warnings.contains("while read"), "{warnings}");
}

#[tokio::test]
async fn input_that_a_shell_loop_reads_too_is_named() {
    for (command, is_loop) in [
        ("printf 'a\\nbc\\nd\\n' | while read -r line; do timeout 60 \"$@\"; done", true),
        ("printf 'bc\\nd\\n' | timeout 60 \"$@\"", false),
    ] {
        let server = server();
        let ended = RunBuilder::against(&server).args(["go"]).in_shell(command).run().await;
        assert_eq!((ended.code, server.requests().len()), (Some(0), 1), "{ended:?}");
        let result = ended.result();
        assert_eq!(result["stdin"], "2 lines, 5 bytes of standard input were added to the prompt");
        let warnings = result["warnings"].to_string();
        assert_eq!(warnings.contains("5 bytes") && warnings.contains("while read"), is_loop);
    }
}

#[tokio::test]
async fn input_that_is_no_text_is_refused_with_its_position() {
    let cases: [(&[&str], &[u8], &[&str]); 4] = [
        (&["go"], b"a\n\nb\0\0\0\0\0\0", &["NUL", "line 3, byte 5"]),
        (&["-"], b"", &["empty"]),
        (&[], b"", &["empty"]),
        (&["-"], b" \n\t", &["empty"]),
    ];
    for (flags, input, words) in cases {
        let server = server();
        is_refused(&fed(RunBuilder::against(&server).args(flags), input).await, &server, words);
    }
}

fn is_refused(ended: &FinishedProcess, server: &RehearsalServer, words: &[&str]) {
    assert_eq!((ended.code, server.requests().len()), (Some(2), 0), "{ended:?}");
    let result = ended.result();
    assert_eq!((&result["is_error"], &result["num_turns"]), (&json!(true), &json!(0)));
    let why = result["errors"][0].as_str().expect("a reason");
    for word in words {
        assert!(why.contains(word), "{word:?} in {why:?}");
    }
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[tokio::test]
async fn two_hundred_kilobytes_of_arguments_arrive() {
    // One argument may have 128 kB at most: the system's limit, not ours.
    let (half, other) = ("p".repeat(100_000), "s".repeat(100_000));
    let server = server();
    let trial = RunBuilder::against(&server).args(["--append-system-prompt", &other, &half]);
    let ended = trial.run().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(prompt(&server) == half);
    let system = server.requests()[0].body["system"].to_string();
    assert!(system.contains(&other));
}

#[tokio::test]
async fn a_path_that_is_not_utf_8_is_refused_with_its_position() {
    let server = server();
    let folder = [OsStr::new("go"), OsStr::new("--add-dir"), OsStr::from_bytes(b"g\xffo")];
    let ended = RunBuilder::against(&server).args(folder).run().await;
    // Six words stand before it.
    is_refused(&ended, &server, &["argument 7", "UTF-8"]);
    let server = self::server();
    is_refused(&RunBuilder::against(&server).args([" "]).run().await, &server, &["empty"]);
}

#[tokio::test]
async fn a_run_without_terminal_home_or_keychain_starts() {
    let server = server();
    let trial = RunBuilder::against(&server).env("HOME", "/proc/none").env("TERM", "dumb");
    let ended = trial.args(["go"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "");
}
