//! Trials of a crowd: 16 runs at once on one state folder, some of them killed. `CROWD=64` takes more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::signal::Signal;
use outlast::journal::{self, OnDamage, SessionId};
use outlast::recovery::{LeftOff, StopReason};
use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario, ServerRules};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::rotation::number;
use crate::support::tokens::TokenEndpoint;
use crate::support::{FinishedProcess, RunBuilder, serve, with_time_limit};

const CROWD: usize = 16;
/// Every so many-th is killed.
const KILLED: usize = 3;

fn id(number: usize) -> String {
    format!("5e551011-0000-4000-8000-{number:012}")
}

/// Two commands with effects in a folder that all share, and an answer of its own.
fn task(number: usize) -> RehearsalServer {
    let says = |word: &str| json!({ "command": format!("echo {number} {word} >> log") });
    let rules =
        ServerRules { require_key: Some("access-token-1".to_owned()), ..ServerRules::default() };
    serve(
        Scenario::new()
            .tool("Bash", says("one"))
            .tool("Bash", says("two"))
            .reply(&format!("Done {number}."))
            .after(AfterLast::RepeatLast)
            .rules(rules),
    )
}

fn run(server: &RehearsalServer, home: &Path, number: usize) -> RunBuilder {
    RunBuilder::against(server)
        .without("ANTHROPIC_API_KEY")
        .env("OUTLAST_CONFIG_DIR", &home.join("config").display().to_string())
        .env("SHARED", &home.join("work").display().to_string())
        .args(["--resume-or-start", &id(number), "Do it."])
        .in_shell("cd \"$SHARED\" && exec \"$@\"")
}

/// Runs one of the crowd. `None`: it was killed.
async fn one(
    servers: Arc<Vec<RehearsalServer>>,
    home: PathBuf,
    number: usize,
    killed: bool,
) -> (usize, Option<FinishedProcess>) {
    // The same one for all processes of a session: no step is played twice.
    let server = &servers[number];
    let running = run(server, &home, number).start();
    if killed {
        // Which request it is killed at differs; the last one is the answer.
        with_time_limit("a request", server.wait_for_request(1 + number % 3)).await;
        running.signal(Signal::SIGKILL);
    }
    let ended = running.end().await;
    assert_eq!(server.violations(), [""; 0], "{number}");
    assert!(killed || ended.code.is_some(), "{number}: {ended:?}");
    (number, ended.code.is_some().then_some(ended))
}

/// Starts all of them at once. Returns those that were killed.
async fn wave(
    servers: &Arc<Vec<RehearsalServer>>,
    home: &Path,
    numbers: impl Iterator<Item = (usize, bool)>,
) -> Vec<usize> {
    let mut runs = JoinSet::new();
    for (number, killed) in numbers {
        runs.spawn(one(Arc::clone(servers), home.to_owned(), number, killed));
    }
    let mut dead = Vec::new();
    while let Some(run) = runs.join_next().await {
        match run.expect("the trial holds") {
            (number, None) => dead.push(number),
            (number, Some(ended)) => {
                let result = ended.result();
                assert_eq!(ended.code, Some(0), "{number}: {ended:?}");
                assert_eq!(result["result"], format!("Done {number}."), "{number}: {result}");
                assert_eq!(result["durable"], true, "{number}: {result}");
                assert_eq!(result["warnings"], json!([]), "{number}: {result}");
            }
        }
    }
    dead
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_runs_on_one_state_folder_lose_and_corrupt_nothing() {
    let crowd = number("CROWD").map_or(CROWD, |crowd| usize::try_from(crowd).expect("a few"));
    let folder = tempfile::tempdir().expect("a folder");
    let (home, config) = (folder.path(), folder.path().join("config"));
    for made in [home.join("work"), config.clone()] {
        fs::create_dir(made).expect("a folder can be made");
    }
    // A login that has to be renewed, by one of them.
    let tokens = TokenEndpoint::start().await;
    let login = config.join(".credentials.json");
    fs::write(&login, tokens.login(-1).to_string()).expect("written");
    let servers = Arc::new((0..2 * crowd).map(task).collect::<Vec<_>>());
    let fresh = (0..crowd).map(|number| (number, number.is_multiple_of(KILLED)));
    let dead = wave(&servers, home, fresh).await;
    assert!(dead.len() >= crowd / KILLED / 2, "killed: {dead:?}");
    // On a warm folder: those that were killed, and as many new ones as make it a crowd again.
    let others = crowd..2 * crowd - dead.len();
    let again = dead.iter().map(|number| (*number, false));
    let killed = |number: usize| (number, number.is_multiple_of(KILLED));
    let dead = wave(&servers, home, again.chain(others.clone().map(killed))).await;
    wave(&servers, home, dead.into_iter().map(|number| (number, false))).await;
    assert_eq!(tokens.requests().len(), 1, "the login was renewed once");
    let kept: Value = serde_json::from_slice(&fs::read(&login).expect("kept")).expect("JSON");
    assert_eq!(kept["claudeAiOauth"]["refreshToken"], "refresh-token-1");
    let log = fs::read_to_string(home.join("work/log")).expect("there were effects");
    let different: BTreeSet<&str> = log.lines().collect();
    assert_eq!(different.len(), log.lines().count(), "nothing happened twice");
    let place = journal::SessionFolder::new(&config, &home.join("work"));
    let mut files: BTreeSet<String> = fs::read_dir(place.folder())
        .expect("there are sessions")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    for number in 0..others.end {
        let session = SessionId::parse(&id(number)).expect("an id");
        let restored = journal::read_session(&place, &session, OnDamage::Refuse).expect("whole");
        assert!(
            restored.conversation.left_off == Some(LeftOff::Finished(StopReason::Completed))
                && restored.totals.dropped_records == 0,
            "{number}: {restored:?}"
        );
        assert!(files.remove(&format!("{}.jsonl", id(number))), "{number} is there");
        // What its commands said at length would be in there.
        files.remove(&id(number));
    }
    assert!(files.is_empty(), "nothing else is left: {files:?}");
}
