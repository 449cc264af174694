//! Signals and deadlines with MCP servers: in every phase a stopped run ends with one
//! result within four seconds, and nothing of theirs is left.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::json;

use super::{python, script};
use crate::support::stopwatch::Stopwatch;
use crate::support::{RunBuilder, RunningProcess, is_alive, serve, with_time_limit};

/// The state of the servers at the shutdown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Calling,
    Starting,
    Required,
    Reconnecting,
}

const PHASES: [Phase; 4] = [Phase::Calling, Phase::Starting, Phase::Required, Phase::Reconnecting];

impl Phase {
    fn mode(self) -> &'static str {
        match self {
            Self::Calling => "well",
            Self::Starting | Self::Required => "never",
            Self::Reconnecting => "relapse",
        }
    }

    fn scenario(self) -> Scenario {
        let tool = |name: &str| (format!("mcp__test__{name}"), json!({}));
        let calls = match self {
            Self::Calling => vec![tool("hang")],
            Self::Starting | Self::Required => Vec::new(),
            Self::Reconnecting => vec![tool("die"), tool("echo")],
        };
        let scenario = Scenario::new();
        let scenario =
            calls.iter().fold(scenario, |all, (name, input)| all.tool(name, input.clone()));
        // So late that no run is over before it is stopped.
        scenario.reply("Done.").delay(Duration::from_mins(10))
    }

    /// The words in the log that show that the phase is reached, and their number.
    fn sign(self) -> (&'static str, usize) {
        match self {
            Self::Calling => ("call hang", 1),
            Self::Starting | Self::Required => ("start ", 1),
            Self::Reconnecting => ("start ", 2),
        }
    }

    fn is_reached(self, log: &Path) -> bool {
        let (words, count) = self.sign();
        read(log).matches(words).count() >= count
    }
}

struct Started {
    running: RunningProcess,
    server: RehearsalServer,
    log: PathBuf,
}

fn start(phase: Phase, flags: &[&str]) -> Started {
    let server = serve(phase.scenario());
    let trial = RunBuilder::against(&server);
    let (log, mark) = (trial.work().join("log"), trial.work().join("mark"));
    let entry = json!({
        "command": python(),
        "args": ["-S", script(), phase.mode(), mark],
        "env": { "SERVER_LOG": log },
    });
    let config = json!({ "mcpServers": { "test": entry } }).to_string();
    let required: &[&str] = if phase == Phase::Required { &["--mcp-required=all"] } else { &[] };
    let trial = trial.args(["go", "--output-format", "stream-json", "--mcp-config", &config]);
    let running = trial.args(required).args(flags).start();
    Started { running, server, log }
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// Waits until no process of the servers is left.
async fn gone(log: &str, of: &str) {
    let pids = log.lines().filter_map(|line| line.strip_prefix("start ")?.parse::<i32>().ok());
    let pids: Vec<i32> = pids.collect();
    with_time_limit(&format!("{of}: the end of every server"), async {
        while pids.iter().any(|pid| is_alive(*pid)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn stop(phase: Phase, signal: Signal) {
    let of = format!("{phase:?}, {signal}");
    let Started { running, server, log } = start(phase, &[]);
    with_time_limit("the phase", async {
        while !phase.is_reached(&log) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let requests = server.requests().len();
    let began = Stopwatch::start();
    running.signal(signal);
    let work = running.work();
    let ended = running.end().await;
    began.assert_within(Duration::from_secs(4), &of);
    let log = read(&log);
    assert!(work.is_dir());
    if signal == Signal::SIGKILL {
        assert_eq!(ended.code, None, "{of}");
    } else {
        assert_eq!(ended.code, Some(128 + signal as i32), "{of}: {ended:?}");
        let results = ended.frames().iter().filter(|frame| frame["type"] == "result").count();
        assert_eq!(results, 1, "{of}: {ended:?}");
        assert!(server.requests().len() <= requests + 1, "{of}: it went on asking");
    }
    gone(&log, &of).await;
}

#[tokio::test]
async fn a_signal_ends_a_run_whatever_its_servers_are_at() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let [a, b, c, d] = PHASES.map(|phase| stop(phase, signal));
        tokio::join!(a, b, c, d);
    }
}

/// Runs until the deadline. Says whether the servers were at it by then.
async fn run_out(phase: Phase, limit: Duration) -> bool {
    let duration = format!("{}s", limit.as_secs());
    let Started { running, log, server: _server } = start(phase, &["--max-duration", &duration]);
    let ended = running.end().await;
    let result = ended.result();
    assert_eq!(result["terminal_reason"], "deadline", "{phase:?}: {result}");
    let took = Duration::from_millis(result["duration_ms"].as_u64().expect("a number"));
    assert!(took < limit + Duration::from_secs(5), "{phase:?}: {took:?}");
    gone(&read(&log), &format!("{phase:?}")).await;
    phase.is_reached(&log)
}

/// On a machine that is too slow for a deadline a later one is tried.
async fn run_out_at_last(phase: Phase) {
    // A server that never starts holds the first request up for five seconds only.
    let limits = if phase == Phase::Starting { [4; 4] } else { [4, 8, 16, 30] };
    for limit in limits.map(Duration::from_secs) {
        if run_out(phase, limit).await {
            return;
        }
    }
    panic!("{phase:?} was never reached");
}

#[tokio::test]
async fn the_deadline_ends_a_run_whatever_its_servers_are_at() {
    let [a, b, c, d] = PHASES.map(run_out_at_last);
    tokio::join!(a, b, c, d);
}
