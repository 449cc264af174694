//! Standard input: open, silent, slow, large, or none.

use std::io::{self, BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use outlast::cli::prompt::{FIRST_BYTE, Gathered, gather};
use outlast::cli::settings::PromptSource;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::binary::{Ended, World, terminate, terminate_once_begun};

const PATIENCE: Duration = Duration::from_mins(5);
const HEARTBEAT: Duration = Duration::from_secs(30);

fn source(argument: Option<&str>) -> PromptSource {
    PromptSource {
        argument: argument.map(ToOwned::to_owned),
        insists: false,
        may_be_empty: false,
        patience: PATIENCE,
    }
}

/// What comes after how long; `None` for the end. Without an end, standard input stays open.
type Piece = (Duration, Option<&'static str>);

/// The outcome, how long it took, and how many heartbeats there were.
async fn plays(
    source: &PromptSource,
    pieces: &[Piece],
) -> (Result<Gathered, String>, Duration, usize) {
    let (send, receive) = mpsc::channel::<io::Result<Vec<u8>>>(1);
    let pieces = pieces.to_vec();
    tokio::spawn(async move {
        for (after, piece) in pieces {
            tokio::time::sleep(after).await;
            let Some(piece) = piece else { return };
            let _ = send.send(Ok(piece.as_bytes().to_vec())).await;
        }
        std::future::pending::<()>().await;
    });
    let (begun, mut heartbeats) = (Instant::now(), 0);
    let gathered = gather(source, || Some(receive), HEARTBEAT, |_| heartbeats += 1).await;
    (gathered.map_err(|error| error.to_string()), begun.elapsed(), heartbeats)
}

fn said(prompt: &str) -> Gathered {
    Gathered { prompt: prompt.to_owned(), left_unread: false }
}

const fn after(millis: u64, piece: &'static str) -> Piece {
    (Duration::from_millis(millis), Some(piece))
}

const fn end(millis: u64) -> Piece {
    (Duration::from_millis(millis), None)
}

#[tokio::test(start_paused = true)]
async fn an_argument_is_not_held_up_by_an_open_silent_input() {
    let (gathered, took, _) = plays(&source(Some("hi")), &[]).await;
    assert_eq!(gathered, Ok(Gathered { prompt: "hi".to_owned(), left_unread: true }));
    assert_eq!(took, FIRST_BYTE);
}

#[tokio::test(start_paused = true)]
async fn data_that_begins_within_a_second_is_read_to_its_end() {
    let pieces = &[after(900, "a\n"), after(60_000, "b\n"), end(60_000)];
    let (gathered, _, heartbeats) = plays(&source(Some("hi")), pieces).await;
    assert_eq!(gathered, Ok(said("hi\na\nb\n")));
    assert!(heartbeats >= 2, "{heartbeats}");
}

#[tokio::test(start_paused = true)]
async fn data_that_begins_later_is_left_alone() {
    let (gathered, took, _) = plays(&source(Some("hi")), &[after(1_100, "late"), end(0)]).await;
    assert!(gathered.unwrap().left_unread);
    assert_eq!(took, FIRST_BYTE);
}

#[tokio::test(start_paused = true)]
async fn an_input_that_ends_at_once_adds_nothing() {
    for pieces in [&[end(10)][..], &[after(10, " \n"), end(0)]] {
        assert_eq!(plays(&source(Some("hi")), pieces).await.0, Ok(said("hi")));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_insists_is_waited_for_with_heartbeats_but_not_for_ever() {
    let insists = PromptSource { insists: true, ..source(Some("hi")) };
    let (gathered, ..) = plays(&insists, &[after(120_000, "data"), end(0)]).await;
    assert_eq!(gathered, Ok(said("hi\ndata")));
    let (gathered, took, heartbeats) = plays(&insists, &[]).await;
    assert!(gathered.unwrap_err().contains("silent for 5m00s"));
    assert_eq!((took, heartbeats), (PATIENCE, 9));
}

#[tokio::test(start_paused = true)]
async fn without_an_argument_the_input_is_the_prompt() {
    let (gathered, ..) = plays(&source(None), &[after(5_000, "\u{feff}fix it"), end(0)]).await;
    assert_eq!(gathered, Ok(said("fix it")));
    let (gathered, ..) = plays(&source(None), &[after(10, "half"), after(400_000, "more")]).await;
    assert!(gathered.unwrap_err().contains("silent"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_goes_on_needs_no_prompt() {
    let resumes = PromptSource { may_be_empty: true, ..source(None) };
    let (gathered, took, _) = plays(&resumes, &[]).await;
    assert_eq!(gathered, Ok(Gathered { prompt: String::new(), left_unread: true }));
    assert_eq!(took, FIRST_BYTE);
}

#[tokio::test]
async fn a_terminal_is_not_asked() {
    let silent = |_| {};
    assert!(gather(&source(Some("hi")), || None, HEARTBEAT, silent).await.is_ok());
    let error = gather(&source(None), || None, HEARTBEAT, silent).await.unwrap_err();
    assert!(error.to_string().contains("there is no prompt"), "{error}");
}

#[tokio::test]
async fn an_input_that_cannot_be_read_is_no_empty_prompt() {
    let (send, receive) = mpsc::channel(1);
    send.send(Err(io::ErrorKind::IsADirectory.into())).await.unwrap();
    let error = gather(&source(None), || Some(receive), HEARTBEAT, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

#[test]
fn an_open_pipe_without_a_writer_does_not_block_the_binary() {
    let world = World::new();
    let heartbeat_file = world.work().join("alive");
    let mut child = world
        .command(&["hi", "--no-session-persistence", "--heartbeat-file", "alive"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("left unread") && line.contains("--stdin"), "{line}");
    terminate_once_begun(&child, &heartbeat_file);
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let result = Ended::of(&output).result();
    assert_eq!((output.status.code(), &result["exit_code"]), (Some(143), &143.into()));
}

#[test]
fn a_signal_while_the_prompt_is_awaited_ends_with_a_result() {
    let world = World::new();
    let mut child = world
        .command(&["--settings", r#"{"heartbeatInterval": "50ms"}"#])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("outlast: waiting for standard input"), "{line}");
    terminate(&child);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    drop(stdin);
    assert_eq!(ended.code, 143);
    assert_eq!(ended.result()["exit_code"], 143);
    assert!(ended.result()["errors"][0].as_str().unwrap().contains("SIGTERM"));
}

#[test]
fn long_prompts_are_taken_from_arguments_and_pipes() {
    let world = World::new();
    let heartbeat_file = world.work().join("alive");
    // One argument may have 128 kB at most; that is the system's limit, not ours.
    let (half, input) = ("x".repeat(100_000), "y".repeat(9 * 1024 * 1024));
    let keep = ["--no-session-persistence", "--heartbeat-file", "alive"];
    let args = [&keep[..], &["--append-system-prompt", &half, &half]].concat();
    let mut child = world.command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    terminate_once_begun(&child, &heartbeat_file);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!((ended.code, &ended.result()["exit_code"]), (143, &143.into()));
}

#[test]
fn a_reader_that_has_gone_costs_neither_a_panic_nor_the_result() {
    let world = World::new();
    let heartbeat_file = world.work().join("alive");
    let args = ["hi", "--no-session-persistence", "--heartbeat-file", "alive"];
    let args = [&args[..], &["--result-file", "result.json"]].concat();
    let mut child = world.command(&args).spawn().unwrap();
    drop(child.stdout.take());
    terminate_once_begun(&child, &heartbeat_file);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, 143);
    let kept = std::fs::read_to_string(world.work().join("result.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&kept["exit_code"], &kept["is_error"]), (&143.into(), &true.into()));
    assert!(!ended.stderr.contains("panic"), "{}", ended.stderr);
}
