//! Trials.
//! Every signal in every phase of a run, and every other way of dying: one result, the right exit
//! code, soon, nothing sent or started afterwards, and a session that goes on.

use std::any::Any;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::signal::Signal::{
    self, SIGABRT, SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGUSR1,
    SIGUSR2, SIGXCPU,
};
use nix::sys::signal::killpg;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, mkfifo};
use outlast::rehearsal::{FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::outcomes::agrees;
use super::spending::{CROWDED, crowding};
use super::timeouts::with;
use crate::support::rotation::rotating_part;
use crate::support::stopwatch::Stopwatch;
use crate::support::tokens::{TokenEndpoint, write_login};
use crate::support::{
    FifoSignal, FinishedProcess, RunBuilder, RunningProcess, is_alive, serve, with_time_limit,
};

/// Longest time from the first signal to the end of a run.
const SOON: Duration = Duration::from_secs(4);

/// More at once only makes them late.
const SIDE_BY_SIDE: usize = 3;

const EVERY: [Signal; 8] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU];

/// Rings with its own process id and that of a child, and never ends by itself.
const COMMAND: &str = "sleep 1000 & echo $$ $! > bell; wait";

/// A command that does not want to end, nor do those that it starts, and rings once it runs: one
/// in its group, one that left it.
const STUBBORN: &str = "trap '' TERM INT HUP; sleep 1000 & one=$!; \
                        setsid sleep 1000 > /dev/null 2>&1 < /dev/null & two=$!; \
                        echo $$ $one $two > bell; wait";

/// The phase of a run in which the signal comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Settings,
    Stdin,
    Helper,
    Refresh,
    Stream,
    Tool,
    BackOff,
    Compaction,
    Structured,
    Require,
    /// The result is being written to a pipe without a reader.
    Telling,
}

const PHASES: [Phase; 11] = [
    Phase::Settings,
    Phase::Stdin,
    Phase::Helper,
    Phase::Refresh,
    Phase::Stream,
    Phase::Tool,
    Phase::BackOff,
    Phase::Compaction,
    Phase::Structured,
    Phase::Require,
    Phase::Telling,
];

/// A run in a phase.
struct Reached {
    running: RunningProcess,
    server: RehearsalServer,
    requests: usize,
    /// Processes that the run has started.
    children: Vec<i32>,
    /// Values that must stay open until the run is over.
    held: Vec<Box<dyn Any + Send>>,
}

fn stalled() -> Scenario {
    Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(4))
}

fn begin(server: &RehearsalServer) -> RunBuilder {
    RunBuilder::against(server).args(["--result-file", "result.json"])
}

fn pids(rung: &str) -> Vec<i32> {
    rung.split(' ').map(|pid| pid.parse().expect("a pid")).collect()
}

/// Starts a run whose server plays `scenario`, and waits for so many requests.
async fn asking(scenario: Scenario, args: &[&str], requests: usize) -> Reached {
    let server = serve(scenario);
    let running = begin(&server).args(args).args(["do it"]).start();
    with_time_limit("the request", server.wait_for_request(requests)).await;
    Reached { running, server, requests, children: Vec::new(), held: Vec::new() }
}

/// Starts a run, and waits until a command of it rings.
async fn ringing(scenario: Scenario, args: &[&str], requests: usize) -> Reached {
    let server = serve(scenario);
    let trial = begin(&server).args(args).args(["do it"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let children = pids(&bell.wait_for_line().await);
    Reached { running, server, requests, children, held: vec![Box::new(bell)] }
}

async fn working() -> Reached {
    let scenario = Scenario::new()
        .tool("Glob", json!({ "pattern": "*" }))
        .and_tool("Bash", json!({ "command": STUBBORN }))
        .and_tool("Bash", json!({ "command": "touch never" }));
    ringing(scenario, &[], 1).await
}

async fn reading_settings() -> Reached {
    let server = serve(Scenario::new());
    let trial = begin(&server).args(["--settings", "pipe", "do it"]);
    let pipe = trial.work().join("pipe");
    mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let running = trial.start();
    // Opening it for writing succeeds as soon as it has a reader.
    let opening = move || std::fs::OpenOptions::new().write(true).open(pipe);
    let writer = with_time_limit("a reader", tokio::task::spawn_blocking(opening)).await;
    let held: Vec<Box<dyn Any + Send>> = vec![Box::new(writer.expect("no panic"))];
    Reached { running, server, requests: 0, children: Vec::new(), held }
}

async fn reading_stdin() -> Reached {
    let server = serve(Scenario::new());
    let often = json!({ "heartbeatInterval": "20ms" });
    let mut running = with(begin(&server), &often).stdin(Stdio::piped()).start();
    let stdin = running.child.stdin.take();
    running.wait_for_stderr("waiting for standard input").await;
    Reached { running, server, requests: 0, children: Vec::new(), held: vec![Box::new(stdin)] }
}

async fn renewing() -> Reached {
    let (server, tokens) = (serve(Scenario::new()), TokenEndpoint::start().await);
    tokens.hold();
    let trial = begin(&server).env("ANTHROPIC_API_KEY", "").args(["do it"]);
    write_login(&trial.work().with_file_name("config"), &tokens.login(-10));
    let running = trial.start();
    tokens.wait_for_requests(1).await;
    Reached { running, server, requests: 0, children: Vec::new(), held: vec![Box::new(tokens)] }
}

async fn backing_off() -> Reached {
    let server = serve(Scenario::new().status(529).header("retry-after", "300"));
    let mut running = begin(&server).args(["do it"]).start();
    running.wait_for_stderr("waiting").await;
    Reached { running, server, requests: 1, children: Vec::new(), held: Vec::new() }
}

/// A result that exceeds a pipe's buffer and is not read.
async fn telling() -> Reached {
    let server = serve(Scenario::new().reply(&"word ".repeat(60_000)).usage(1_000, 8_000));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let running = begin(&server).stdout(Stdio::from(writer)).args(["do it"]).start();
    let kept = running.work().join("result.json");
    let there = async {
        while !kept.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_time_limit("the result file", there).await;
    Reached { running, server, requests: 1, children: Vec::new(), held: vec![Box::new(reader)] }
}

async fn reach(phase: Phase) -> Reached {
    let helper = json!({ "apiKeyHelper": COMMAND }).to_string();
    match phase {
        Phase::Settings => reading_settings().await,
        Phase::Stdin => reading_stdin().await,
        Phase::Helper => ringing(Scenario::new(), &["--settings", &helper], 0).await,
        Phase::Refresh => renewing().await,
        Phase::Stream => asking(stalled(), &[], 1).await,
        Phase::Tool => working().await,
        Phase::BackOff => backing_off().await,
        Phase::Compaction => {
            let scenario = crowding(json!({ "command": "true" })).compactions(stalled());
            asking(scenario, &CROWDED, 3).await
        }
        Phase::Structured => {
            let scenario = Scenario::new()
                .reply("Two.")
                .interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(4));
            asking(scenario, &["--json-schema", r#"{"type":"object"}"#], 2).await
        }
        Phase::Require => ringing(Scenario::new().reply("Done."), &["--require", COMMAND], 1).await,
        Phase::Telling => telling().await,
    }
}

/// The result that was kept in a file.
fn kept(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("result.json")).expect("a result was kept");
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    serde_json::from_str(&text).expect("one object")
}

async fn are_gone(children: &[i32], of: &str) -> usize {
    let gone = async {
        // The kernel may still be at it.
        while children.iter().any(|pid| is_alive(*pid)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    with_time_limit(of, gone).await;
    let left: Vec<_> = children.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{of}: {left:?} of {children:?}");
    left.len()
}

/// Goes on with the session where it ended, under the same demands.
async fn goes_on(phase: Phase, ended: FinishedProcess, of: &str) {
    let answer = match phase {
        Phase::Structured => Scenario::new().tool("StructuredOutput", json!({ "went": "on" })),
        Phase::Compaction => {
            Scenario::new().reply("Went on.").compactions(Scenario::new().reply("Summed up."))
        }
        Phase::Settings
        | Phase::Stdin
        | Phase::Helper
        | Phase::Refresh
        | Phase::Stream
        | Phase::Tool
        | Phase::BackOff
        | Phase::Require
        | Phase::Telling => Scenario::new().reply("Went on."),
    };
    let next = serve(answer);
    let again = ended.again(&next.base_url()).args(["--continue", "go on"]);
    let again = if phase == Phase::Require { again.args(["--require", "true"]) } else { again };
    let ended = again.run().await;
    let result = &ended.result()["result"];
    let expected = if phase == Phase::Structured { r#"{"went":"on"}"# } else { "Went on." };
    assert_eq!(result, expected, "{of}: {ended:?}");
    assert_eq!(next.violations(), [""; 0], "{of}");
    if phase == Phase::Tool {
        let told = next.requests()[0].body["messages"].to_string();
        assert!(told.contains("Interrupted by user"), "{of}: what had not finished is answered");
    }
}

/// One signal in one phase. How long the end took.
async fn cell(phase: Phase, signal: Signal) -> Duration {
    let of = format!("{signal} in {phase:?}");
    let Reached { running, server, requests, children, held: _held } = reach(phase).await;
    let asked = Stopwatch::start();
    running.signal(signal);
    let ended = running.end().await;
    let took = asked.elapsed();
    // In a retry wait, nothing has to be ended.
    asked.assert_within(if phase == Phase::BackOff { SOON / 2 } else { SOON }, &of);
    assert_eq!(ended.code, Some(128 + signal as i32), "{of}: {ended:?}");
    are_gone(&children, &of).await;
    let result = kept(&ended.work());
    assert_eq!((&result["is_error"], &result["type"]), (&json!(true), &json!("result")), "{of}");
    assert_eq!(result["exit_code"].as_i64(), ended.code.map(i64::from), "{of}");
    if phase != Phase::Telling {
        assert_eq!(agrees(&ended), result, "{of}");
    }
    let reason = match phase {
        Phase::Settings | Phase::Stdin => None,
        Phase::Tool | Phase::Require => Some("aborted_tools"),
        Phase::Helper
        | Phase::Refresh
        | Phase::Stream
        | Phase::BackOff
        | Phase::Compaction
        | Phase::Structured
        | Phase::Telling => Some("aborted_streaming"),
    };
    assert_eq!(result["terminal_reason"].as_str(), reason, "{of}");
    assert_eq!(server.requests().len(), requests, "{of}: no request after the signal");
    assert_eq!(server.violations(), [""; 0], "{of}");
    assert!(!ended.work().join("never").exists(), "{of}: nothing starts after the signal");
    match phase {
        Phase::Stdin => assert_eq!(result["session_id"], "", "{of}"),
        Phase::Stream => {
            with_time_limit("the client's leaving", server.wait_for_abort(1)).await;
        }
        Phase::Tool => {
            let counts = (&result["num_turns"], &result["tools"]["abandoned"]);
            assert_eq!(counts, (&json!(1), &json!(2)), "{of}");
        }
        Phase::BackOff => assert_eq!(result["recovery"]["requests"], 1, "{of}"),
        Phase::Settings
        | Phase::Helper
        | Phase::Refresh
        | Phase::Compaction
        | Phase::Structured
        | Phase::Require
        | Phase::Telling => {}
    }
    if reason.is_some() {
        let facts = ["api_error_class", "retryable", "durable"].map(|name| result[name].clone());
        assert_eq!(facts, [json!("aborted"), json!(false), json!(true)], "{of}");
        goes_on(phase, ended, &of).await;
    }
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn every_signal_in_every_phase_yields_one_result_in_time() {
    let usual = [SIGINT, SIGTERM, SIGHUP];
    let everywhere = PHASES.iter().flat_map(|phase| usual.map(|signal| (*phase, signal)));
    let others = EVERY[3..].iter().flat_map(|signal| {
        [Phase::Settings, Phase::Stream, Phase::Tool].map(|phase| (phase, *signal))
    });
    let is_usual = |(_, signal): &(Phase, Signal)| *signal == SIGTERM;
    let (mut cells, rare): (Vec<_>, Vec<_>) = everywhere.chain(others).partition(is_usual);
    cells.extend(rotating_part(rare, 5));
    let (mut running, mut table) = (JoinSet::new(), Vec::new());
    while !cells.is_empty() || !running.is_empty() {
        while running.len() < SIDE_BY_SIDE
            && let Some((phase, signal)) = cells.pop()
        {
            running.spawn(async move { (phase, signal, cell(phase, signal).await) });
        }
        table.extend(running.join_next().await.map(|cell| cell.expect("no cell fails")));
    }
    table.sort_by_key(|(phase, signal, _)| (*phase as usize, *signal as usize));
    let mut page = "| phase | signal | seconds |\n|---|---|---|\n".to_owned();
    for (phase, signal, took) in table {
        let _ = writeln!(page, "| {phase:?} | {signal} | {:.1} |", took.as_secs_f32());
    }
    println!("{page}");
}

#[tokio::test]
async fn a_second_interrupt_ends_the_run_and_its_commands_at_once() {
    let command = "trap 'echo told > bell' TERM; \
                   (trap '' TERM; exec sleep 1000) & one=$!; \
                   (trap '' TERM; exec setsid sleep 1000 > /dev/null 2>&1 < /dev/null) & two=$!; \
                   echo $$ $one $two > bell; wait; wait; wait";
    let server = serve(Scenario::new().tool("Bash", json!({ "command": command })));
    let trial = begin(&server).args(["do it"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let children = pids(&bell.wait_for_line().await);
    running.signal(SIGINT);
    assert_eq!(bell.wait_for_line().await, "told", "the first one was heard");
    let asked = Stopwatch::start();
    running.signal(SIGINT);
    let ended = running.end().await;
    asked.assert_within(Duration::from_millis(1500), "after the second one");
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(agrees(&ended)["terminal_reason"], "aborted_tools");
    are_gone(&children, "after the second one").await;
    assert_eq!(server.requests().len(), 1, "no request after the signal");
    goes_on(Phase::Stream, ended, "after the second one").await;
}

/// A shell that starts a run, as a CI system's step does, and is killed before it is over.
async fn killed_step(server: &RehearsalServer, variable: (&str, &str)) -> FinishedProcess {
    let step =
        begin(server).args(["do it"]).env(variable.0, variable.1).in_shell("\"$@\" & wait").start();
    with_time_limit("the request", server.wait_for_request(1)).await;
    step.signal(SIGKILL);
    // Its standard output ends with the run.
    let ended = step.end().await;
    assert_eq!(ended.code, None, "the step was killed");
    ended
}

#[tokio::test]
async fn a_ci_job_whose_shell_is_killed_still_ends_with_its_result() {
    for name in ["CI", "GITHUB_ACTIONS"] {
        let server = serve(stalled());
        let ended = killed_step(&server, (name, "true")).await;
        let result = kept(&ended.work());
        assert_eq!(ended.stdout.parse::<Value>().expect("one object"), result);
        assert_eq!((&result["exit_code"], &result["is_error"]), (&json!(143), &json!(true)));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn elsewhere_a_run_outlives_its_shell() {
    let slow = Scenario::new().reply("Still here.").delay(Duration::from_secs(1));
    let server = serve(slow);
    let ended = killed_step(&server, ("CI", "false")).await;
    let result: Value = serde_json::from_str(&ended.stdout).expect("one object");
    assert_eq!(result["result"], "Still here.");
}

// --- signals that are not for us -------------------------------------------------------------

/// A run that a shell has prepared by `script`, in the middle of a command that waits for a gate.
async fn prepared(script: &str) -> (Reached, PathBuf) {
    let server = serve(
        Scenario::new()
            .tool("Bash", json!({ "command": "echo $$ > bell; read -r go < gate" }))
            .reply("Done."),
    );
    let trial = begin(&server).args(["do it"]).in_shell(script);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let gate = trial.work().join("gate");
    let held = FifoSignal::at(&gate);
    let running = trial.start();
    let children = pids(&bell.wait_for_line().await);
    let held: Vec<Box<dyn Any + Send>> = vec![Box::new(bell), Box::new(held)];
    (Reached { running, server, requests: 1, children, held }, gate)
}

#[tokio::test]
async fn signals_ignored_by_the_parent_stay_ignored() {
    for (script, signal) in
        [("trap '' HUP; exec \"$@\"", SIGHUP), ("trap '' INT; exec \"$@\"", SIGINT)]
    {
        let (Reached { running, server, held: _held, .. }, gate) = prepared(script).await;
        running.signal(signal);
        std::fs::write(&gate, "go\n").expect("the command reads it");
        let ended = running.end().await;
        assert_eq!(ended.code, Some(0), "{signal}: {ended:?}");
        assert_eq!(agrees(&ended)["result"], "Done.");
        assert_eq!(server.requests().len(), 2);
    }
}

/// A shell without job control has what it starts by `&` ignore SIGINT, and nothing else.
#[tokio::test]
async fn a_shell_background_job_ignores_sigint_and_handles_other_signals() {
    // Its process id is there before the run begins.
    let script = "sh -c 'echo $$ > pid; exec \"$@\"' sh \"$@\" & wait $!; exit $?";
    let (Reached { running, held: _held, children, .. }, _) = prepared(script).await;
    let pid = std::fs::read_to_string(running.work().join("pid")).expect("the shell told");
    let job = Pid::from_raw(pid.trim().parse().expect("a pid"));
    nix::sys::signal::kill(job, SIGINT).expect("it lives");
    nix::sys::signal::kill(job, SIGTERM).expect("it lives");
    let ended = running.end().await;
    assert_eq!(ended.code, Some(143), "{ended:?}");
    agrees(&ended);
    are_gone(&children, "the job").await;
}

/// A signal that waits when the process begins ends it like any other: before the settings are
/// read and before anything is sent, but with a result. Nor does a mask that was left to us hold
/// signals back for ever.
#[tokio::test]
async fn a_signal_pending_at_startup_yields_a_result() {
    let server = serve(Scenario::new().reply("Done."));
    let script = "exec env --block-signal=TERM sh -c 'echo $$ > bell; read -r go < gate; \
                  exec \"$@\"' sh \"$@\"";
    let trial = begin(&server).args(["do it"]).in_shell(script);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let gate = trial.work().join("gate");
    let _gate = FifoSignal::at(&gate);
    let running = trial.start();
    bell.wait_for_line().await;
    running.signal(SIGTERM);
    std::fs::write(&gate, "go\n").expect("the shell reads it");
    let ended = running.end().await;
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert_eq!(agrees(&ended), kept(&ended.work()));
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_stopped_run_handles_pending_signals_when_continued() {
    let Reached { running, children, held: _held, .. } = working().await;
    running.signal(SIGSTOP);
    let pid = Pid::from_raw(running.pid());
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it stops");
    assert_eq!(stopped, nix::sys::wait::WaitStatus::Stopped(pid, SIGSTOP));
    running.signal(SIGTERM);
    running.signal(SIGCONT);
    let asked = Stopwatch::start();
    let ended = running.end().await;
    asked.assert_within(SOON, "after it went on");
    assert_eq!((ended.code, &agrees(&ended)["exit_code"]), (Some(143), &json!(143)));
    are_gone(&children, "stopped").await;
}

// --- every way of dying ----------------------------------------------------------------------

/// A thread that hangs: here a debugger holds it, elsewhere a disk.
fn hang_the_run(pid: i32) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let is_run = |path: &PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "run")
    };
    let run = tasks.map(|task| task.path()).find(is_run).expect("the thread of the run");
    let name = run.file_name().and_then(|name| name.to_str()).expect("a number");
    let thread = Pid::from_raw(name.parse().expect("a number"));
    // Where it hangs on a disk, it is in the kernel and holds nothing that others need.
    let rests = || {
        let stat = std::fs::read_to_string(run.join("stat")).expect("it lives");
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"))
    };
    let mut resting = 0;
    for _ in 0..1_000 {
        thread::sleep(Duration::from_millis(2));
        resting = if rests() { resting + 1 } else { 0 };
        if resting == 20 {
            break;
        }
    }
    let (tell, told) = channel();
    thread::spawn(move || {
        ptrace::seize(thread, ptrace::Options::empty()).expect("it may be held");
        ptrace::interrupt(thread).expect("it can be held");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it is held");
        tell.send(()).expect("the test waits");
        // The tracer of a thread must also reap it.
        while waitpid(thread, Some(WaitPidFlag::__WALL)).is_ok_and(|status| status.pid().is_some())
        {
        }
    });
    told.recv_timeout(Duration::from_mins(4)).expect("it hangs soon");
}

/// The thread hangs after the result file reports success, and before any reader has seen it.
#[tokio::test]
async fn an_unread_success_is_retracted_by_a_signal_even_if_the_run_hangs() {
    let Reached { running, held: _held, .. } = telling().await;
    assert_eq!(kept(&running.work())["exit_code"], 0);
    hang_the_run(running.pid());
    running.signal(SIGTERM);
    let ended = running.end().await;
    assert_eq!(ended.code, Some(143), "{ended:?}");
    let kept = kept(&ended.work());
    assert_eq!((&kept["exit_code"], &kept["is_error"]), (&json!(143), &json!(true)));
    assert_eq!(kept["partial_result"].as_str().map(str::len), Some(60_000 * 5));
}

/// The cause of the end of a run while a command runs.
#[derive(Clone, Copy, Debug)]
enum DeathCause {
    Signal(Signal),
    /// Two SIGINT, the second when the first was heard.
    Twice,
    /// SIGINT to the whole process group, as a terminal does it.
    Group,
    /// A signal while the thread of the run hangs.
    Hung(Signal),
    /// `--max-duration` passes.
    Deadline,
    /// The same while the thread of the run hangs.
    HungDeadline,
    /// The reader of standard output is gone.
    Unread,
    /// Standard error was closed from the start, and a signal comes.
    Mute,
}

#[derive(Debug)]
struct Way {
    name: &'static str,
    deed: DeathCause,
    /// `None`: killed, without a result.
    code: Option<i32>,
}

const fn way(name: &'static str, deed: DeathCause, code: Option<i32>) -> Way {
    Way { name, deed, code }
}

const WAYS: [Way; 20] = [
    way("SIGINT", DeathCause::Signal(SIGINT), Some(130)),
    way("SIGINT twice", DeathCause::Twice, Some(130)),
    way("SIGINT to the process group (Ctrl-C)", DeathCause::Group, Some(130)),
    way("SIGTERM", DeathCause::Signal(SIGTERM), Some(143)),
    way("SIGHUP", DeathCause::Signal(SIGHUP), Some(129)),
    way("SIGQUIT", DeathCause::Signal(SIGQUIT), Some(131)),
    way("SIGUSR1 (Slurm's warning)", DeathCause::Signal(SIGUSR1), Some(138)),
    way("SIGUSR2", DeathCause::Signal(SIGUSR2), Some(140)),
    way("SIGALRM", DeathCause::Signal(SIGALRM), Some(142)),
    way("SIGXCPU (ulimit -t)", DeathCause::Signal(SIGXCPU), Some(152)),
    way("SIGTERM, standard error closed", DeathCause::Mute, Some(143)),
    way("deadline", DeathCause::Deadline, Some(5)),
    way("standard output closed (EPIPE)", DeathCause::Unread, Some(1)),
    way("SIGTERM while the run's thread hangs", DeathCause::Hung(SIGTERM), Some(143)),
    way("SIGINT while the run's thread hangs", DeathCause::Hung(SIGINT), Some(130)),
    way("deadline while the run's thread hangs", DeathCause::HungDeadline, Some(5)),
    way("SIGKILL", DeathCause::Signal(SIGKILL), None),
    way("SIGABRT (no memory, stack overflow)", DeathCause::Signal(SIGABRT), None),
    way("SIGILL", DeathCause::Signal(Signal::SIGILL), None),
    way("SIGSYS", DeathCause::Signal(Signal::SIGSYS), None),
];

/// A command that ends in every kind of death of outlast: it is a child without children.
const PLAIN: &str = "echo $$ > bell; exec sleep 1000";

/// Does the deed. When the run was asked to end.
async fn doom(deed: DeathCause, running: &mut RunningProcess, bell: &mut FifoSignal) -> Stopwatch {
    match deed {
        DeathCause::Signal(signal) => running.signal(signal),
        DeathCause::Mute => running.signal(SIGTERM),
        DeathCause::Twice => {
            running.signal(SIGINT);
            assert_eq!(bell.wait_for_line().await, "told", "the first one was heard");
            running.signal(SIGINT);
        }
        DeathCause::Group => killpg(Pid::from_raw(running.pid()), SIGINT).expect("its own group"),
        DeathCause::Hung(signal) => {
            hang_the_run(running.pid());
            running.signal(signal);
        }
        DeathCause::HungDeadline => hang_the_run(running.pid()),
        DeathCause::Deadline => {}
        DeathCause::Unread => drop(running.child.stdout.take()),
    }
    Stopwatch::start()
}

/// One way of dying, as a row of the table.
async fn die(way: &Way) -> String {
    let command = match (way.deed, way.code) {
        (DeathCause::Twice, _) => {
            "trap 'echo told > bell' TERM; echo $$ > bell; sleep 1000 & wait; wait"
        }
        (_, None) | (DeathCause::Hung(_) | DeathCause::HungDeadline, _) => PLAIN,
        _ => COMMAND,
    };
    let server = serve(Scenario::new().tool("Bash", json!({ "command": command })));
    let in_time = matches!(way.deed, DeathCause::Deadline | DeathCause::HungDeadline);
    let args: &[&str] = if in_time {
        // By then the command must run, even on a busy machine.
        &["--max-duration", "8s"]
    } else if matches!(way.deed, DeathCause::Unread) {
        // A heartbeat detects that the reader is gone.
        &["--output-format=stream-json", "--settings", r#"{"heartbeatInterval": "50ms"}"#]
    } else {
        &[]
    };
    let mut trial = begin(&server).args(args).args(["do it"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    if matches!(way.deed, DeathCause::Group) {
        trial = trial.in_shell("exec setsid \"$@\"");
    } else if matches!(way.deed, DeathCause::Mute) {
        trial = trial.in_shell("exec \"$@\" 2>&-");
    }
    let mut running = trial.start();
    let children = pids(&bell.wait_for_line().await);
    let asked = doom(way.deed, &mut running, &mut bell).await;
    let ended = with_time_limit(way.name, running.end()).await;
    let took = asked.elapsed();
    let bound = if in_time { SOON + Duration::from_secs(8) } else { SOON };
    asked.assert_within(bound, way.name);
    assert_eq!(ended.code, way.code, "{}: {ended:?}", way.name);
    let told = match (way.code, way.deed) {
        (None, _) => {
            assert_eq!(ended.stdout, "", "{}", way.name);
            assert!(!ended.work().join("result.json").exists(), "{}", way.name);
            "none; the session goes on"
        }
        (Some(_), DeathCause::Unread) => "one, in the file",
        (Some(_), _) => {
            assert_eq!(agrees(&ended), kept(&ended.work()), "{}", way.name);
            "one"
        }
    };
    if let Some(code) = way.code {
        assert_eq!(kept(&ended.work())["exit_code"], code, "{}", way.name);
    }
    let survivors = are_gone(&children, way.name).await;
    assert_eq!(server.requests().len(), 1, "{}: no request afterwards", way.name);
    let seconds = took.as_secs_f32();
    let code = ended.code.map_or("killed".to_owned(), |code| code.to_string());
    goes_on(Phase::Stream, ended, way.name).await;
    format!("| {} | {told} | {code} | {seconds:.1} | {survivors} |", way.name)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_of_dying_is_recorded() {
    let mut page =
        "| way of dying | result | code | seconds | survivors |\n|---|---|---|---|---|\n"
            .to_owned();
    for pair in rotating_part(WAYS.chunks(2), 3) {
        let (one, other) = (&pair[0], &pair[1]);
        let (one, other) = tokio::join!(die(one), die(other));
        let _ = writeln!(page, "{one}\n{other}");
    }
    println!("{page}");
}

#[tokio::test]
async fn unhandled_signals_do_not_end_or_stop_a_run() {
    use Signal::{SIGIO, SIGPIPE, SIGPROF, SIGPWR, SIGTTIN, SIGTTOU, SIGVTALRM, SIGWINCH};
    let command = "echo begun > bell; until [ -e go ]; do sleep 0.01; done";
    let scenario = Scenario::new().tool("Bash", json!({ "command": command })).reply("Done.");
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["do it"]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    bell.wait_for_line().await;
    for signal in [SIGIO, SIGPIPE, SIGPROF, SIGPWR, SIGTTIN, SIGTTOU, SIGVTALRM, SIGWINCH] {
        running.signal(signal);
    }
    std::fs::write(running.work().join("go"), "").expect("a new file");
    let ended = running.end().await;
    assert_eq!(ended.result()["result"], "Done.", "{ended:?}");
}

#[tokio::test]
async fn commands_have_default_signals_regardless_of_the_inherited_ones() {
    // The two beyond 31 are reserved by the C library and cannot be changed.
    let look = "ignored=$(awk '/^SigIgn:/ { print $2 }' /proc/self/status); \
                (( 0x$ignored & 0x7fffffff )) || echo > usual";
    let scenario = Scenario::new().tool("Bash", json!({ "command": look })).reply("Looked.");
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["Look."]);
    let ended = trial.in_shell("trap '' HUP PIPE USR1 XFSZ; exec \"$@\"").run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.work().join("usual").exists(), "{ended:?}");
}
