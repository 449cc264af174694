//! Every event and every way in which its hook can end, and a signal during each: one correct
//! result, soon, and no process left behind.

use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::spending::{CROWDED, crowding};
use crate::support::rotation::rotating_part;
use crate::support::stopwatch::Stopwatch;
use crate::support::{FifoSignal, RunBuilder, is_alive, serve, with_time_limit};

/// More at once only makes them late.
const SIDE_BY_SIDE: usize = 3;

/// Longest time from the first signal to the end of a run.
const SOON: Duration = Duration::from_secs(4);

/// Those that come up in a run without sub-agents.
const EVENTS: [&str; 11] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "StopFailure",
    "PreCompact",
    "SessionEnd",
    "Notification",
];

/// Ends of a hook: name, script, and whether the end is a failure of the hook.
const ENDS: [(&str, &str, bool); 10] = [
    ("exit 0", "exit 0", false),
    ("exit 2", "echo no >&2; exit 2", false),
    ("exit 1", "exit 1", true),
    ("a signal", "kill -9 $$", true),
    ("a hang", "exec sleep 1000", true),
    ("invalid_output", "echo '{ \"decision\": '", true),
    ("much JSON", MUCH, false),
    ("no UTF-8", r"printf 'caf\351 \300 words'", false),
    ("no program", "./no-such-program", true),
    ("deaf", "exec 0<&-; exit 0", false),
];

const MUCH: &str =
    r#"printf '{"systemMessage": "'; head -c 1000000 /dev/zero | tr '\0' x; echo '"}'"#;

/// A run in which the event comes up.
fn stage(event: &str) -> RehearsalServer {
    let bash = |command: &str| Scenario::new().tool("Bash", json!({ "command": command }));
    serve(match event {
        "PostToolUseFailure" => bash("false").reply("Done."),
        "PreToolUse" | "PostToolUse" => bash("touch made").reply("Done."),
        "PermissionRequest" => bash("id").reply("Done."),
        "Notification" => bash("whoami").reply("Done."),
        "StopFailure" => Scenario::new().status(400).error("invalid_request_error", "no", None),
        "PreCompact" => {
            let short = Scenario::new().reply("In short.");
            crowding(json!({ "command": "true" })).compactions(short)
        }
        _anything => Scenario::new().reply("Done.").reply("Done."),
    })
}

fn begin(server: &RehearsalServer, event: &str, hook: &Value) -> RunBuilder {
    let settings = json!({
        "permissions": { "deny": ["Bash(whoami)"], "ask": ["Bash(id)"] },
        "hooks": { event: [{ "hooks": [hook] }] },
    });
    let settings = settings.to_string();
    let trial = RunBuilder::against(server).args(["--settings", &settings]);
    let form: &[&str] =
        if event == "PreCompact" { &CROWDED } else { &["--output-format", "stream-json"] };
    trial.args(form).args(["--log-detail", "do it"])
}

/// The exit code of a run whose hook prevents the event or fails.
fn code(event: &str, prevents: bool) -> i32 {
    match (event, prevents) {
        ("StopFailure", _) => 1,
        ("UserPromptSubmit", true) => 6,
        ("Stop", true) => 9,
        _anything => 0,
    }
}

async fn cell(event: &'static str, end: (&'static str, &'static str, bool), closed: bool) {
    let (name, script, mut fails) = end;
    // There, nothing can be objected to.
    let is_over = ["SessionStart", "StopFailure", "SessionEnd", "Notification"].contains(&event);
    fails |= name == "exit 2" && is_over;
    let of = format!("{event}, {name}, failClosed {closed}");
    let hook = json!({
        "type": "command", "command": script, "timeout": if name == "a hang" { 0.2 } else { 30.0 },
        "failClosed": closed,
    });
    let server = stage(event);
    let ended = with_time_limit(&of, begin(&server, event, &hook).run()).await;
    let result = ended.result();
    let prevents = name == "exit 2" || (fails && closed);
    assert_eq!(ended.code, Some(code(event, prevents)), "{of}: {ended:?}");
    assert_eq!(result["is_error"], json!(ended.code != Some(0)), "{of}");
    let hooks = &result["hooks"];
    assert!(hooks["ran"].as_u64().is_some_and(|ran| ran > 0), "{of}: {hooks}");
    assert_eq!(hooks["failed"].as_u64().is_some_and(|failed| failed > 0), fails, "{of}: {hooks}");
    assert_eq!(hooks["log"].is_string(), fails, "{of}: {hooks}");
    assert_eq!(server.violations(), [""; 0], "{of}");
    match event {
        "PreToolUse" => assert_eq!(ended.work().join("made").exists(), !prevents, "{of}"),
        "PostToolUse" => assert!(ended.work().join("made").exists(), "{of}"),
        "PreCompact" => {
            let forgone = result["recovery"]["strategies"]["compact_skipped"].is_number();
            assert_eq!(forgone, prevents, "{of}: {result}");
        }
        _anything => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hook_failure_leaves_one_correct_result() {
    let ends = |event| ENDS.map(|end| (event, end));
    let cells = EVENTS.into_iter().flat_map(ends);
    let cells = cells.flat_map(|(event, end)| [false, true].map(|closed| (event, end, closed)));
    let mut cells = rotating_part(cells, 7);
    let mut running = JoinSet::new();
    while !cells.is_empty() || !running.is_empty() {
        while running.len() < SIDE_BY_SIDE
            && let Some((event, end, closed)) = cells.pop()
        {
            running.spawn(cell(event, end, closed));
        }
        if let Some(cell) = running.join_next().await {
            cell.expect("no cell fails");
        }
    }
}

/// A signal while a hook of the event runs, which does not heed it, and neither does its child.
async fn signalled(event: &'static str, signal: Signal) {
    let of = format!("{signal} in a hook of {event}");
    let script = "trap '' TERM INT HUP; setsid sleep 1000 & echo $$ $! > bell; wait; sleep 1000";
    let hook = json!({ "type": "command", "command": script, "timeout": 60 });
    let server = stage(event);
    let trial = begin(&server, event, &hook);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let running = trial.start();
    let rung = bell.wait_for_line().await;
    let pids: Vec<i32> = rung.split(' ').map(|pid| pid.parse().expect("a pid")).collect();
    let asked = Stopwatch::start();
    running.signal(signal);
    let ended = running.end().await;
    asked.assert_within(SOON, &of);
    // What has ended already has ended as it did.
    let over = matches!(event, "StopFailure" | "SessionEnd");
    let expected = if over { code(event, false) } else { 128 + signal as i32 };
    assert_eq!(ended.code, Some(expected), "{of}: {ended:?}");
    assert_eq!(ended.result()["hooks"]["failed"], 0, "{of}: nothing was wrong with it");
    for pid in pids {
        let gone = async {
            // The kernel may still be at it.
            while is_alive(pid) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        with_time_limit(&format!("{of}: the end of {pid}"), gone).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_during_any_hook_ends_the_run_without_leftover_processes() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut running = JoinSet::new();
        for event in EVENTS {
            if running.len() >= SIDE_BY_SIDE
                && let Some(one) = running.join_next().await
            {
                one.expect("no signal is lost");
            }
            running.spawn(signalled(event, signal));
        }
        while let Some(one) = running.join_next().await {
            one.expect("no signal is lost");
        }
    }
}
