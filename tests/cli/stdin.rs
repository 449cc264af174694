//! Standard input: open, silent, slow, large, or none.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use outlast::cli::prompt::{AddedInput, GatheredPrompt, Unused, Waited, gather};
use outlast::cli::settings::PromptSource;
use outlast::cli::stdin::{
    ANCESTOR_GRACE, HIDDEN_GRACE, Need, ReadPlan, StdinKind, StdinMode, plan,
};
use outlast::process::PipeWriters;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::binary_fixture::{BinaryFixture, ProcessResult, terminate, terminate_after_start};

const PATIENCE: Duration = Duration::from_mins(10);
const HEARTBEAT: Duration = Duration::from_secs(30);
const GRACE: ReadPlan = ReadPlan::IfWithin(ANCESTOR_GRACE);

fn source(argument: Option<&str>) -> PromptSource {
    PromptSource {
        images: Vec::new(),
        argument: argument.map(ToOwned::to_owned),
        stdin: StdinMode::Auto,
        may_be_empty: false,
        stdin_timeout: PATIENCE,
    }
}

/// Every kind of standard input: what is done about one that is optional, and whether one that is
/// needed can be read.
#[test]
fn stdin_is_awaited_where_it_is_meant_for_this_run() {
    let kinds = [
        (StdinKind::Terminal, ReadPlan::Leave, ReadPlan::Unavailable),
        (StdinKind::Null, ReadPlan::Leave, ReadPlan::ToEnd),
        (StdinKind::File { read: 0, left: 9 }, ReadPlan::ToEnd, ReadPlan::ToEnd),
        (StdinKind::File { read: 0, left: 0 }, ReadPlan::ToEnd, ReadPlan::ToEnd),
        (StdinKind::File { read: 4, left: 5 }, ReadPlan::LeaveInUse, ReadPlan::ToEnd),
        (StdinKind::File { read: 9, left: 0 }, ReadPlan::Leave, ReadPlan::ToEnd),
        (StdinKind::Pipe(PipeWriters::Gone), ReadPlan::ToEnd, ReadPlan::ToEnd),
        (StdinKind::Pipe(PipeWriters::Peer), ReadPlan::ToEnd, ReadPlan::ToEnd),
        (StdinKind::Pipe(PipeWriters::Ancestor), GRACE, ReadPlan::ToEnd),
        (StdinKind::Pipe(PipeWriters::Hidden), ReadPlan::IfWithin(HIDDEN_GRACE), ReadPlan::ToEnd),
        (StdinKind::Other, ReadPlan::IfWithin(HIDDEN_GRACE), ReadPlan::ToEnd),
    ];
    for (kind, optional, required) in kinds {
        assert_eq!(plan(kind, StdinMode::Auto, Need::Optional), optional, "{kind:?}");
        assert_eq!(plan(kind, StdinMode::Auto, Need::Required), required, "{kind:?}");
        for need in [Need::Optional, Need::Required] {
            let insisted = plan(kind, StdinMode::Insist, need);
            assert_eq!(insisted, ReadPlan::ToEnd, "{kind:?} {need:?}");
        }
        let refuse = StdinMode::Refuse;
        assert_eq!(plan(kind, refuse, Need::Optional), ReadPlan::Leave, "{kind:?}");
        assert_eq!(plan(kind, refuse, Need::Required), ReadPlan::Unavailable, "{kind:?}");
    }
}

/// A delay and the text that follows; `None` for the end. Without an end, standard input stays
/// open.
type Piece = (Duration, Option<&'static str>);

/// The outcome, how long it took, and how many heartbeats there were.
async fn plays(
    source: &PromptSource,
    plan: ReadPlan,
    pieces: &[Piece],
) -> (Result<GatheredPrompt, String>, Duration, usize) {
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
    let beat = |waited: Waited| {
        heartbeats += 1;
        assert!(waited.left <= PATIENCE, "{waited:?}");
    };
    let gathered = gather(source, plan, || receive, HEARTBEAT, beat).await;
    (gathered.map_err(|error| error.to_string()), begun.elapsed(), heartbeats)
}

fn said(prompt: &str) -> GatheredPrompt {
    GatheredPrompt { prompt: prompt.to_owned(), ..GatheredPrompt::default() }
}

fn with_input(prompt: &str, lines: usize, bytes: usize) -> GatheredPrompt {
    GatheredPrompt { added: Some(AddedInput { lines, bytes, is_all: false }), ..said(prompt) }
}

fn unread(prompt: &str, unused: Option<Unused>) -> GatheredPrompt {
    GatheredPrompt { unused, ..said(prompt) }
}

const fn after(millis: u64, piece: &'static str) -> Piece {
    (Duration::from_millis(millis), Some(piece))
}

const fn end(millis: u64) -> Piece {
    (Duration::from_millis(millis), None)
}

const UNUSED: Option<Unused> = Some(Unused::Silent(ANCESTOR_GRACE));

#[tokio::test(start_paused = true)]
async fn a_prompt_argument_does_not_wait_for_an_open_silent_stdin() {
    let (gathered, took, _) = plays(&source(Some("hi")), GRACE, &[]).await;
    assert_eq!(gathered, Ok(unread("hi", UNUSED)));
    assert_eq!(took, ANCESTOR_GRACE);
}

#[tokio::test(start_paused = true)]
async fn stdin_is_the_prompt_if_the_argument_is_empty() {
    let pieces = &[after(900, "a\n"), end(0)];
    let (gathered, ..) = plays(&source(Some(" ")), GRACE, pieces).await;
    assert_eq!(gathered, Ok(said("a\n")));
    for pieces in [&[][..], &[after(1, " \n"), end(0)]] {
        let (gathered, ..) = plays(&source(Some("")), GRACE, pieces).await;
        assert!(gathered.unwrap_err().contains("the prompt argument is empty"));
    }
}

#[tokio::test(start_paused = true)]
async fn stdin_data_that_starts_within_the_grace_period_is_read_to_eof() {
    let pieces = &[after(900, "a\n"), after(60_000, "b\n"), end(60_000)];
    let (gathered, _, heartbeats) = plays(&source(Some("hi")), GRACE, pieces).await;
    assert_eq!(gathered, Ok(with_input("hi\na\nb\n", 2, 4)));
    assert!(heartbeats >= 2, "{heartbeats}");
}

#[tokio::test(start_paused = true)]
async fn stdin_data_after_the_grace_period_is_ignored_with_a_warning() {
    let pieces = &[after(1_100, "late"), end(0)];
    let (gathered, took, _) = plays(&source(Some("hi")), GRACE, pieces).await;
    assert_eq!((gathered.unwrap().unused, took), (UNUSED, ANCESTOR_GRACE));
}

#[tokio::test(start_paused = true)]
async fn a_late_pipeline_is_read_with_heartbeats_and_a_time_limit() {
    let pieces = &[after(500_000, "data"), end(0)];
    let (gathered, _, heartbeats) = plays(&source(Some("hi")), ReadPlan::ToEnd, pieces).await;
    assert_eq!((gathered, heartbeats), (Ok(with_input("hi\ndata", 1, 4)), 16));
    let (gathered, took, heartbeats) = plays(&source(Some("hi")), ReadPlan::ToEnd, &[]).await;
    assert!(gathered.unwrap_err().contains("silent for 10m00s"));
    assert_eq!((took, heartbeats), (PATIENCE, 19));
}

#[tokio::test(start_paused = true)]
async fn an_empty_stdin_adds_nothing_to_the_prompt() {
    for pieces in [&[end(10)][..], &[after(10, " \n"), end(0)]] {
        for plan in [GRACE, ReadPlan::ToEnd] {
            assert_eq!(plays(&source(Some("hi")), plan, pieces).await.0, Ok(said("hi")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_prompt_argument_stdin_is_the_prompt() {
    let pieces = [after(5_000, "\u{feff}fix it"), end(0)];
    let (gathered, ..) = plays(&source(None), ReadPlan::ToEnd, &pieces).await;
    assert_eq!(gathered, Ok(said("fix it")));
    let pieces = [after(10, "half"), after(700_000, "more")];
    let (gathered, ..) = plays(&source(None), ReadPlan::ToEnd, &pieces).await;
    assert!(gathered.unwrap_err().contains("silent"));
}

#[tokio::test]
async fn stdin_of_other_encodings_is_read_and_what_it_added_is_told() {
    let rows = [
        (b"caf\xe9\nb".as_slice(), "caf\u{fffd}\nb", (2, 6), Some("line 1, byte 4")),
        (b"ok\n\xc3\n".as_slice(), "ok\n\u{fffd}\n", (2, 5), Some("line 2, byte 4")),
        (b"\xff\xfeh\x00i\x00".as_slice(), "hi", (1, 6), None),
        ("\u{fffd}".as_bytes(), "\u{fffd}", (1, 3), None),
        (b"a".as_slice(), "a", (1, 1), None),
        ("\u{1f980}\r\n".as_bytes(), "\u{1f980}\r\n", (1, 6), None),
        (b"got\n\0-\0\n".as_slice(), "got\n\u{2400}-\u{2400}\n", (2, 8), None),
    ];
    for (input, wanted, (lines, bytes), invalid) in rows {
        let (send, receive) = mpsc::channel(1);
        send.send(Ok(input.to_vec())).await.unwrap();
        drop(send);
        let (source, plan) = (source(Some("go")), ReadPlan::ToEnd);
        let gathered = gather(&source, plan, || receive, HEARTBEAT, |_| {}).await.unwrap();
        let invalid = invalid.map(str::to_owned);
        let expected = with_input(&format!("go\n{wanted}"), lines, bytes);
        let nul = input.contains(&b'-').then(|| "line 2, byte 5".to_owned());
        let damages = usize::from(invalid.is_some()) + usize::from(nul.is_some());
        assert_eq!(gathered, GatheredPrompt { invalid, nul, ..expected });
        let warnings = gathered.warnings(|| false);
        assert_eq!(warnings.len(), damages, "{warnings:?}");
        let warnings = gathered.warnings(|| true).concat();
        assert!(warnings.contains("while read") && warnings.contains(&format!("{bytes} byte")));
    }
    assert!(said("go").warnings(|| panic!("nothing was added")).is_empty());
    let told = |lines, bytes| AddedInput { lines, bytes, is_all: false }.to_string();
    assert_eq!(told(3, 412), "3 lines, 412 bytes of standard input were added to the prompt");
    assert_eq!(told(1, 1), "1 line, 1 byte of standard input was added to the prompt");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_session_needs_no_prompt() {
    let resumes = PromptSource { may_be_empty: true, ..source(None) };
    let (gathered, took, _) = plays(&resumes, GRACE, &[]).await;
    assert_eq!(gathered, Ok(unread("", UNUSED)));
    assert_eq!(took, ANCESTOR_GRACE);
    // `echo | outlast -c`
    let (gathered, ..) = plays(&resumes, GRACE, &[after(0, " \r\n\t\n"), end(0)]).await;
    assert_eq!(gathered, Ok(said("")));
    // The ids of a loop, of which each was to be resumed. A new session and --resume-or-start take
    // their prompt from there.
    let pieces = &[after(0, "id-2\nid-3\n"), end(0)];
    for may_be_empty in [true, false] {
        let source = PromptSource { may_be_empty, ..source(None) };
        let gathered = plays(&source, GRACE, pieces).await.0.unwrap();
        assert_eq!(gathered.prompt, "id-2\nid-3\n");
        let warnings = gathered.warnings(|| true).concat();
        let words = "2 lines, 10 bytes of standard input were taken as the prompt";
        assert_eq!(
            warnings.contains(words) && warnings.contains("while read"),
            may_be_empty,
            "{warnings}"
        );
        assert!(gathered.warnings(|| false).is_empty());
    }
}

#[tokio::test]
async fn ignored_stdin_is_not_opened_and_reported_only_if_it_has_data() {
    let never = || panic!("it is opened");
    for (plan, unused) in [(ReadPlan::Leave, None), (ReadPlan::LeaveInUse, Some(Unused::InUse))] {
        let gathered = gather(&source(Some("hi")), plan, never, HEARTBEAT, |_| {}).await;
        assert_eq!(gathered.unwrap(), unread("hi", unused));
    }
    for (stdin, part) in
        [(StdinMode::Auto, "there is no prompt; give"), (StdinMode::Refuse, "--no-stdin")]
    {
        let source = PromptSource { stdin, ..source(None) };
        let error = gather(&source, ReadPlan::Unavailable, never, HEARTBEAT, |_| {}).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn an_unreadable_stdin_is_not_an_empty_prompt() {
    let (send, receive) = mpsc::channel(1);
    send.send(Err(io::ErrorKind::IsADirectory.into())).await.unwrap();
    let (source, plan) = (source(None), ReadPlan::ToEnd);
    let error = gather(&source, plan, || receive, HEARTBEAT, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

/// As in a host with several threads, of which one starts a program when the run looks for writers.
#[test]
fn a_child_of_the_host_that_has_not_executed_its_program_is_not_a_writer() {
    const HOST: &str = r"
import os, signal, subprocess, sys
reader, writer = os.pipe()
forked = os.fork()
if forked == 0:
    signal.pause()
run = subprocess.Popen(sys.argv[1:], stdin=reader, stderr=subprocess.PIPE, text=True)
print(run.stderr.readline())
run.kill()
os.kill(forked, signal.SIGKILL)
";
    let world = BinaryFixture::new();
    let run = world.command(&["hi", "--settings", r#"{"heartbeatInterval": "5s"}"#]);
    let mut host = Command::new("python3");
    host.args(["-c", HOST]).arg(run.get_program()).args(run.get_args()).current_dir(world.work());
    host.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(output) = host.output() else {
        eprintln!("skipped: there is no python3 on this machine");
        return;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("left unread"), "{printed}{output:?}");
}

#[test]
fn a_signal_while_the_prompt_is_awaited_ends_with_a_result() {
    let world = BinaryFixture::new();
    let args = ["--settings", r#"{"heartbeatInterval": "50ms"}"#];
    let mut child = world.command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("outlast: waiting for standard input"), "{line}");
    terminate(&child);
    let ended = ProcessResult::of(&child.wait_with_output().unwrap());
    drop(stdin);
    assert_eq!(ended.code, 143);
    assert_eq!(ended.result()["exit_code"], 143);
    assert!(ended.result()["errors"][0].as_str().unwrap().contains("SIGTERM"));
}

#[test]
fn a_closed_stdout_causes_no_panic_and_the_result_file_is_written() {
    let world = BinaryFixture::new();
    let heartbeat_file = world.work().join("alive");
    let args = ["hi", "--no-session-persistence", "--heartbeat-file", "alive"];
    let args = [&args[..], &["--result-file", "result.json"]].concat();
    let mut child = world.command(&args).spawn().unwrap();
    drop(child.stdout.take());
    terminate_after_start(&child, &heartbeat_file);
    let ended = ProcessResult::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, 143);
    let kept = std::fs::read_to_string(world.work().join("result.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&kept["exit_code"], &kept["is_error"]), (&143.into(), &true.into()));
    assert!(!ended.stderr.contains("panic"), "{}", ended.stderr);
}
