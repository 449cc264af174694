//! Trials of history: killed anywhere, a session goes on from what it had, and nothing that has
//! an effect happens twice behind the model's back.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::rehearsal::{
    AfterLast, FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedFaultKind,
};
use outlast::transcript::OUTCOME_UNKNOWN;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::requests::{blocks, messages};
use crate::support::rotation::rotating_part;
use crate::support::{FinishedProcess, RunBuilder, RunningProcess, serve};

const BOUND: Duration = Duration::from_mins(4);
const SESSION: &str = "5e551011-0000-4000-8000-000000000001";
const TURNS: usize = 8;
/// Cost of each reply: 1,000 tokens in and 100 out, at the usual model's prices.
const PER_REPLY: f64 = 0.003;
/// Number of frames of standard output after which a kill is tried. `kills` tries many more.
const FRAMES: usize = 14;
/// Number of trials at the same time.
const AT_ONCE: usize = 3;

/// A task of eight turns. Each has one effect that shows if it happens twice; `gateN`, if there
/// is one, holds the turn's command up after its effect.
fn story() -> Scenario {
    story_with_stall(None)
}

/// The same task. The first request for the reply of the turn `stalled` is never answered.
fn story_with_stall(stalled: Option<usize>) -> Scenario {
    let stall = |story: Scenario, turn| match stalled {
        Some(stalled) if stalled == turn => story
            .reply("This reply is lost.")
            .fault(ScriptedFaultKind::Stall, FaultPosition::Request),
        Some(_) | None => story,
    };
    let mut story = Scenario::new();
    for turn in 1..=TURNS {
        story = stall(story, turn);
        let command = format!(
            "echo effect {turn} >> log; if [ -p gate{turn} ]; then read word < gate{turn}; fi; \
             echo done {turn}"
        );
        let text = format!("This is step {turn} of what I was asked to do.");
        story = story.tool("Bash", json!({ "command": command })).and_text(&text).usage(1000, 100);
        if turn % 2 == 1 {
            story = story.and_thinking(&format!("Step {turn} comes next."));
        }
        if turn % 3 == 0 {
            story = story.and_tool("Read", json!({ "file_path": "log" }));
            story =
                story.and_tool("Bash", json!({ "command": format!("echo more {turn} >> log") }));
        }
    }
    stall(story, TURNS + 1).reply("All done.").usage(1000, 100).after(AfterLast::RepeatLast)
}

/// Time of a kill.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// After so many lines of its output.
    Frame(usize),
    /// While the server does not answer the request of this number.
    Request(usize),
    /// While the command of this turn runs.
    Tool(usize),
}

impl Kill {
    /// The turn whose command waits for a word until the kill.
    fn gated_turn(self) -> Option<usize> {
        match self {
            Self::Frame(_) => Some(TURNS),
            Self::Request(_) => None,
            Self::Tool(turn) => Some(turn),
        }
    }

    /// The request that is never answered.
    fn stalled_request(self) -> Option<usize> {
        match self {
            Self::Frame(_) | Self::Tool(_) => None,
            Self::Request(number) => Some(number),
        }
    }
}

fn first_run(server: &RehearsalServer) -> RunBuilder {
    RunBuilder::against(server)
        .args(["--session-id", SESSION, "--output-format", "stream-json"])
        .args(["--include-partial-messages", "Do it."])
}

/// Reads lines of a run's output until there are `count` of them, or the run ends.
async fn read_frames(running: &mut RunningProcess, count: usize) -> usize {
    let stdout = running.child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines();
    let mut read = 0;
    while read < count && matches!(lines.next_line().await, Ok(Some(_))) {
        read += 1;
    }
    read
}

/// Waits until a command reads from the gate, and lets it wait there for as long as the returned
/// value lives.
async fn open_gate(gate: &Path) -> pipe::Sender {
    loop {
        // There is no notification when a pipe gets its reader.
        match pipe::OpenOptions::new().open_sender(gate) {
            Ok(sender) => return sender,
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// Runs the story until it is killed. What it waits for keeps it from its end until then.
async fn killed(server: &RehearsalServer, kill: Kill) -> FinishedProcess {
    let trial = first_run(server);
    let gate = kill.gated_turn().map(|turn| trial.work().join(format!("gate{turn}")));
    if let Some(gate) = &gate {
        mkfifo(gate, Mode::S_IRWXU).expect("a pipe can be made");
    }
    let mut running = trial.start();
    let waiting = async {
        let mut sender = None;
        match (kill, &gate) {
            (Kill::Frame(count), _) => {
                read_frames(&mut running, count).await;
            }
            (Kill::Request(number), _) => {
                server.wait_for_request(number).await;
            }
            (Kill::Tool(_), gate) => {
                sender = Some(open_gate(gate.as_ref().expect("a tool has a gate")).await);
            }
        }
        running.child.start_kill().expect("it can be killed");
        sender
    };
    let sender = tokio::time::timeout(BOUND, waiting).await.expect("the moment to kill it comes");
    let ended = running.end().await;
    drop(sender);
    assert_eq!(ended.code, None, "killed at {kill:?}");
    if let Some(gate) = gate {
        fs::remove_file(gate).expect("it is there");
    }
    ended
}

fn replies(request: &ReceivedRequest) -> usize {
    messages(request).iter().filter(|message| message["role"] == "assistant").count()
}

/// The result of each command, by the command's first words.
fn told(request: &ReceivedRequest) -> HashMap<String, String> {
    let results = blocks(request, "tool_result");
    let text_of = |id: &Value| {
        let result = results.iter().find(|result| result["tool_use_id"] == *id);
        result.map(|result| result["content"].to_string()).unwrap_or_default()
    };
    let effect = |call: &Value| {
        let command = call["input"]["command"].as_str()?;
        let line = command.strip_prefix("echo ")?.split(" >>").next()?.to_owned();
        Some((line, text_of(&call["id"])))
    };
    blocks(request, "tool_use").iter().filter_map(effect).collect()
}

/// Those requests that the second process made.
fn resumed_requests(server: &RehearsalServer) -> Vec<ReceivedRequest> {
    let requests = server.requests();
    requests.into_iter().filter(|request| request.header("x-process") == Some("second")).collect()
}

async fn resume(
    server: &RehearsalServer,
    ended: FinishedProcess,
    number: usize,
) -> FinishedProcess {
    let prompted = is_prompted(number);
    let by_id = number % 4 < 2;
    let trial =
        ended.again(&server.base_url()).env("ANTHROPIC_CUSTOM_HEADERS", "x-process: second");
    let trial = if by_id { trial.args(["--resume", SESSION]) } else { trial.args(["--continue"]) };
    let trial = if prompted { trial.args(["Go on, please."]) } else { trial };
    trial.run().await
}

/// True if the resumed run has a prompt of its own, which begins at zero.
fn is_prompted(number: usize) -> bool {
    number.is_multiple_of(2)
}

fn close_to(found: &Value, wanted: f64) -> bool {
    found.as_f64().is_some_and(|found| (found - wanted).abs() < 1e-9)
}

/// The cost of this prompt without uncertain amounts.
fn settled(result: &Value) -> Value {
    let usd = |name: &str| result["budget"][name].as_f64().expect("a number");
    json!(usd("spent_usd") - usd("unsettled_usd"))
}

/// Everything that must hold after a kill and a resume, whenever the kill came.
fn judge(server: &RehearsalServer, ended: &FinishedProcess, kill: Kill, prompted: bool) {
    assert_eq!(server.violations(), [""; 0], "{kill:?}");
    let log = fs::read_to_string(ended.work().join("log")).unwrap_or_default();
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "{kill:?}: twice: {lines:?}");
    let requests = resumed_requests(server);
    let Some(first) = requests.first() else {
        // It was finished but not reported: the resumed run reports it without a request.
        let result = ended.result();
        assert_eq!((ended.code, &result["result"]), (Some(0), &json!("All done.")), "{kill:?}");
        assert_eq!(result["num_turns"], TURNS + 1, "{kill:?}: {result}");
        return;
    };
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{kill:?}: {ended:?}");
    for (effect, text) in told(first) {
        assert!(!text.is_empty(), "{kill:?}: {effect} is answered");
        let not_started = text.contains("not started");
        assert!(!(not_started && lines.contains(&effect.as_str())), "{kill:?}: {effect}: {text}");
        let known = text.contains("done") || text.contains("(no output)");
        assert!(known || not_started || text.contains(OUTCOME_UNKNOWN), "{kill:?}: {text}");
    }
    let turns = if prompted { 0 } else { replies(first) } + requests.len();
    assert_eq!(result["num_turns"], turns, "{kill:?}: {result}");
    #[expect(clippy::cast_precision_loss, reason = "a handful of turns")]
    let cost = PER_REPLY * turns as f64;
    // One reply may have been paid for, and lost before it was written down.
    // What the killed process was asking for is charged as an upper bound.
    let paid = settled(&result);
    assert!(close_to(&paid, cost) || close_to(&paid, cost + PER_REPLY), "{kill:?}: {result}");
    if !prompted {
        assert_eq!(result["total_cost_usd"], result["budget"]["spent_usd"], "{kill:?}: {result}");
    }
    if let Kill::Tool(turn) = kill {
        assert_eq!(result["tools"]["unknown_outcomes"], 1, "{result}");
        let text = &told(first)[&format!("effect {turn}")];
        assert!(text.contains(OUTCOME_UNKNOWN), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_killed_at_any_point_resumes() {
    let server = serve(story());
    let mut whole = first_run(&server).start();
    let frames = read_frames(&mut whole, usize::MAX).await;
    let ended = whole.end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        fs::read_to_string(ended.work().join("log")).map_or(0, |log| log.lines().count()),
        10
    );
    // Between the first frame, before which there is nothing to go on from, and the result.
    let at_frames = (0..FRAMES).map(|point| Kill::Frame(2 + point * (frames - 12) / FRAMES));
    let at_requests = (1..=TURNS + 1).map(Kill::Request);
    let in_tools = (1..=TURNS).map(Kill::Tool);
    let kills: Vec<Kill> = at_frames.chain(at_requests).chain(in_tools).collect();
    assert!(kills.len() > 30);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut trials = JoinSet::new();
    for (number, kill) in rotating_part(kills.into_iter().enumerate(), 3) {
        let places = Arc::clone(&places);
        trials.spawn(async move {
            let _place = places.acquire().await;
            let server = serve(story_with_stall(kill.stalled_request()));
            let ended = killed(&server, kill).await;
            let torn = torn_lines(&ended);
            let ended = resume(&server, ended, number).await;
            judge(&server, &ended, kill, is_prompted(number));
            assert_eq!(ended.result()["journal"]["dropped_records"], torn, "{kill:?}");
        });
    }
    while let Some(trial) = trials.join_next().await {
        trial.expect("the trial holds");
    }
}

/// The number of lines at the end of the journal that the kill cut off: the kernel ends a write
/// between two pages.
fn torn_lines(killed: &FinishedProcess) -> usize {
    let bytes = fs::read(journal(&killed.config())).expect("it is there");
    usize::from(!bytes.ends_with(b"\n"))
}

/// The only file of the only session.
pub(super) fn journal(config: &Path) -> std::path::PathBuf {
    let folders = fs::read_dir(config.join("projects")).expect("there is a session");
    let entries = folders.flat_map(|folder| fs::read_dir(folder.expect("readable").path()));
    let files = entries.flatten().map(|file| file.expect("readable").path());
    let mut files = files.filter(|path| path.extension().is_some_and(|it| it == "jsonl"));
    files.next().expect("there is a session")
}

#[tokio::test]
async fn a_torn_tail_is_dropped_and_reported() {
    let kill = Kill::Request(4);
    let server = serve(story_with_stall(kill.stalled_request()));
    let ended = killed(&server, kill).await;
    let path = journal(&ended.config());
    let mut bytes = fs::read(&path).expect("it is there");
    bytes.extend_from_slice(br#"{"type":"outlast","v":1,"seq":9"#);
    fs::write(&path, bytes).expect("it is ours");
    let ended = resume(&server, ended, 0).await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(result["journal"]["dropped_records"], 1);
    assert_eq!(server.violations(), [""; 0]);
    let ended = resume(&server, ended, 0).await;
    assert_eq!(ended.result()["journal"]["dropped_records"], 0, "it is told once");
}

/// A prompt that was cut off goes on with what is left of its limits; a new one has all of them.
#[tokio::test]
async fn limits_continue_after_a_kill_and_reset_with_a_new_prompt() {
    let server = serve(story_with_stall(Some(3)));
    let mut running = RunBuilder::against(&server)
        .args(["--session-id", SESSION, "--max-turns", "5", "Do it."])
        .start();
    server.wait_for_request(3).await;
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    let go_on = ["--resume", SESSION, "--max-turns", "5"];
    let ended = ended.again(&server.base_url()).args(go_on).run().await;
    let result = ended.result();
    assert_eq!((ended.code, &result["num_turns"]), (Some(3), &json!(5)), "{result}");
    assert!(close_to(&settled(&result), 5.0 * PER_REPLY), "{result}");
    let before = result["total_cost_usd"].as_f64().expect("a number");
    let ended = ended.again(&server.base_url()).args(go_on).args(["Go on."]).run().await;
    let result = ended.result();
    assert_eq!((ended.code, &result["num_turns"]), (Some(0), &json!(4)), "{result}");
    assert!(close_to(&settled(&result), 4.0 * PER_REPLY), "{result}");
    assert!(close_to(&result["total_cost_usd"], before + 4.0 * PER_REPLY), "{result}");
    assert_eq!(server.violations(), [""; 0]);
}

/// The process was killed while its answer was continued: the new prompt has neither its turns nor
/// its text.
#[tokio::test]
async fn a_new_prompt_after_a_kill_begins_at_zero_and_without_the_old_answer() {
    let scenario = Scenario::new()
        .reply("OLD ")
        .stop_reason("max_tokens")
        .times(2)
        .reply("This reply is lost.")
        .fault(ScriptedFaultKind::Stall, FaultPosition::Request)
        .reply("NEW")
        .usage(1000, 100);
    let server = serve(scenario);
    let mut running =
        RunBuilder::against(&server).args(["--session-id", SESSION, "Do it."]).start();
    server.wait_for_request(3).await;
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    let new = ["--resume", SESSION, "--max-turns", "1", "Another one."];
    let ended = ended.again(&server.base_url()).args(new).run().await;
    let result = ended.result();
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("NEW")), "{result}");
    assert_eq!(result["num_turns"], 1, "{result}");
    assert!(close_to(&result["budget"]["spent_usd"], PER_REPLY), "{result}");
    let ended = ended.again(&server.base_url()).args(["--resume", SESSION]).run().await;
    assert_eq!(ended.result()["result"], "NEW", "it is printed again");
    assert_eq!(server.requests().len(), 4);
}

/// A reply of nothing but thinking leaves no message, and is a turn all the same.
#[tokio::test]
async fn a_turn_without_a_message_counts_after_a_kill() {
    let scenario = Scenario::new()
        .empty()
        .and_thinking("Hm.")
        .stop_reason("max_tokens")
        .times(3)
        .reply("This reply is lost.")
        .fault(ScriptedFaultKind::Stall, FaultPosition::Request)
        .tool("Bash", json!({ "command": "true" }))
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let limit = ["--session-id", SESSION, "--max-turns", "5", "Do it."];
    let mut running = RunBuilder::against(&server).args(limit).start();
    // The first was asked for again with more room; the other two are turns.
    server.wait_for_request(4).await;
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    let before = server.requests().len();
    let go_on = ["--resume", SESSION, "--max-turns", "4"];
    let ended = ended.again(&server.base_url()).args(go_on).run().await;
    let result = ended.result();
    assert_eq!((ended.code, &result["num_turns"]), (Some(3), &json!(4)), "{result}");
    assert!(server.requests().len() - before <= 2, "two turns were left");
    assert_eq!(server.violations(), [""; 0]);
}

/// Fast mode costs more: it is for the process that was asked for it.
#[tokio::test]
async fn fast_mode_applies_only_to_processes_started_with_it() {
    for (before, after) in [(true, false), (false, true)] {
        let server = serve(story_with_stall(Some(3)));
        let flags = |fast: bool| if fast { &["--fast"][..] } else { &[] };
        let model = ["--model", "opus", "Do it."];
        let first = RunBuilder::against(&server).args(["--session-id", SESSION]).args(model);
        let mut running = first.args(flags(before)).start();
        server.wait_for_request(3).await;
        running.child.start_kill().expect("it can be killed");
        let ended = running.end().await;
        let known = server.requests().len();
        let again = ended.again(&server.base_url()).args(["--resume", SESSION]).args(model);
        assert_eq!(again.args(flags(after)).run().await.code, Some(0));
        let requests = server.requests();
        assert!(requests.len() > known, "it went on");
        for (number, request) in requests.iter().enumerate() {
            let wanted = if number < known { before } else { after };
            assert_eq!(request.body["speed"] == "fast", wanted, "request {number}");
        }
    }
}
