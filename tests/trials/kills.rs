//! Trials of sudden death: one command line, run again and again as a scheduler would, and killed
//! wherever it happens to be, until it is done. Nothing is lost and nothing happens twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use outlast::rehearsal::{
    AfterLast, FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedFaultKind,
};
use outlast::transcript::OUTCOME_UNKNOWN;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::requests::blocks;
use crate::support::rotation::number;
use crate::support::seeds::first_seed;
use crate::support::{FinishedProcess, RunBuilder, RunningProcess, serve, with_time_limit};

const SESSION: &str = "5e551011-0000-4000-8000-00000000dead";
const TURNS: usize = 7;
/// Number of tasks; the variable `KILL_STORIES` sets a higher one.
const STORIES: u64 = 5;
/// Most kills of each task.
const KILLS: usize = 6;
const AT_ONCE: usize = 4;
/// Cost of each reply: 1,000 tokens in and 100 out, at the usual model's prices.
const PER_REPLY: f64 = 0.003;
const SUMMARY: &str =
    "1. Task: do it, step by step. 2. State: some steps are done. 3. Next: go on.";

/// A task of several turns with effects that show if they happen twice, a lot to read (so that it
/// must be summed up), and a service that is not always well. `killN`, if it is there, has the
/// command of turn N kill the run right after its effect.
fn story() -> Scenario {
    let mut story = Scenario::new();
    for turn in 1..=TURNS {
        let command = format!(
            "echo effect {turn} >> log; if rm kill{turn} 2>/dev/null; then kill -9 $(cat victim); \
             sleep 9; fi; seq {turn}00000 {turn}02200; echo done {turn}"
        );
        story = story
            .tool("Bash", json!({ "command": command }))
            .and_text(&format!("This is step {turn}."))
            .and_tool("Write", json!({ "file_path": format!("w{turn}"), "content": "written" }))
            .usage(1000, 100);
        story = match turn {
            2 => story.and_tool("Read", json!({ "file_path": "sheet" })).and_tool(
                "Edit",
                json!({ "file_path": "sheet", "old_string": "end", "new_string": "edit\nend" }),
            ),
            3 => story.status(529).header("retry-after-ms", "1"),
            4 => story.interrupted(ScriptedFaultKind::Reset, FaultPosition::Events(4)),
            5 => story.status(500),
            _ => story,
        };
    }
    let summaries = Scenario::new().reply(SUMMARY).usage(1000, 100).after(AfterLast::RepeatLast);
    story
        .reply("All done.")
        .usage(1000, 100)
        .after(AfterLast::RepeatLast)
        .compactions(summaries.times(60))
}

/// Time of a kill.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// After so many lines of its output.
    Frame(usize),
    /// Once the server has this number of requests.
    Request(usize),
    /// By the command of this turn, between its effect and its end.
    Effect(usize),
    /// At its call of this number of this system call on its journal.
    Call(&'static str, usize),
}

/// Numbers that look random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("it is below a usize")
    }

    fn kill(&mut self, traced: bool) -> Kill {
        match self.below(if traced { 6 } else { 4 }) {
            0 | 1 => Kill::Frame(1 + self.below(30)),
            2 => Kill::Request(1 + self.below(3)),
            3 => Kill::Effect(1 + self.below(TURNS)),
            4 => Kill::Call("fdatasync", 1 + self.below(12)),
            _ => Kill::Call("write", 1 + self.below(24)),
        }
    }
}

/// Whether system calls can be watched here, with what is in the box. Where they cannot, the same
/// number of kills comes at other points.
#[expect(clippy::print_stdout, reason = "what is left untried must not pass in silence")]
pub(super) fn can_trace() -> bool {
    let probe = std::process::Command::new("strace").args(["-qq", "-o/dev/null", "true"]).status();
    let can = probe.is_ok_and(|status| status.success());
    let must = std::env::var_os("OUTLAST_TEST_STRACE").is_some_and(|it| it == "required");
    assert!(can || !must, "strace is required here and does not work");
    if !can {
        println!("no strace here: nothing is tried at single system calls");
    }
    can
}

/// Runs `trial` once, and kills it there unless it ends before. Whether it was killed.
async fn once(server: &RehearsalServer, trial: RunBuilder, kill: Kill) -> (FinishedProcess, bool) {
    let before = server.requests().len();
    let _ = fs::remove_file(trial.work().join("victim"));
    if let Kill::Effect(turn) = kill {
        fs::write(trial.work().join(format!("kill{turn}")), "").expect("it is ours");
    }
    let trial = match kill {
        Kill::Call(call, number) => trial.in_shell(&format!(
            "exec strace -D -f -qq -o/dev/null -P \"$OUTLAST_CONFIG_DIR\"/projects/*/{SESSION}.jsonl \
             -e inject={call}:signal=SIGKILL:when={number} \"$@\""
        )),
        Kill::Frame(_) | Kill::Request(_) | Kill::Effect(_) => trial,
    };
    let mut running = trial.start();
    let pid = running.pid().to_string();
    let next = running.work().join("victim.new");
    fs::write(&next, &pid).expect("it is ours");
    fs::rename(&next, running.work().join("victim")).expect("it is ours");
    with_time_limit("the end, or the moment to kill it", async {
        match kill {
            Kill::Frame(count) => {
                if read_frames(&mut running, count).await {
                    running.child.start_kill().expect("it can be killed");
                }
            }
            Kill::Request(number) => {
                tokio::select! {
                    _ = server.wait_for_request(before + number) => {
                        running.child.start_kill().expect("it can be killed");
                    }
                    _ = read_frames(&mut running, usize::MAX) => {}
                }
            }
            Kill::Effect(_) | Kill::Call(..) => _ = read_frames(&mut running, usize::MAX).await,
        }
    })
    .await;
    let ended = running.end().await;
    if let Kill::Effect(turn) = kill {
        let _ = fs::remove_file(ended.work().join(format!("kill{turn}")));
    }
    let killed = ended.code.is_none();
    assert!(killed || ended.code == Some(0), "{kill:?}: {ended:?}");
    (ended, killed)
}

/// Reads lines of a run's output. Whether there are so many.
async fn read_frames(running: &mut RunningProcess, count: usize) -> bool {
    let stdout = running.child.stdout.as_mut().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines();
    for _ in 0..count {
        if !matches!(lines.next_line().await, Ok(Some(_))) {
            return false;
        }
    }
    true
}

const COMMAND: [&str; 9] = [
    "--resume-or-start",
    SESSION,
    "--output-format",
    "stream-json",
    "--context-window",
    "40k",
    "--settings",
    r#"{"retryFirstDelay": "1ms", "retryLongestDelay": "2ms"}"#,
    "Do it.",
];

/// Figures that show that the trials were hard enough.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    kills: usize,
    /// Summaries that were asked for.
    summaries: usize,
    /// Effects that were reported to the model as having an unknown outcome.
    unknown: usize,
}

/// Carries one task through.
async fn carry_through(seed: u64, traced: bool) -> Figures {
    let mut dice = Dice(seed);
    let server = serve(story());
    let trial = RunBuilder::against(&server);
    fs::write(trial.work().join("sheet"), "end\n").expect("it is ours");
    let mut trial = trial.args(COMMAND).args(["--include-partial-messages"]);
    let mut kills = Vec::new();
    while kills.len() < KILLS {
        let kill = dice.kill(traced && !kills.is_empty());
        let (ended, killed) = once(&server, trial, kill).await;
        trial = ended.again(&server.base_url()).args(COMMAND).args(["--include-partial-messages"]);
        if !killed {
            break;
        }
        kills.push(kill);
    }
    // Whether it was done or not: the same command says how it ended.
    let ended = trial.run().await;
    let context = format!("seed {seed}, {kills:?}");
    judge(&server, &ended, &context);
    let asked = server.requests().len();
    let ended = ended.again(&server.base_url()).args(COMMAND).run().await;
    assert_eq!(ended.result()["result"], "All done.", "{context}: it is said as often as wanted");
    assert_eq!(server.requests().len(), asked, "{context}: a request was made for it");
    let requests = server.requests();
    let sums_up =
        |request: &&ReceivedRequest| request.header("x-outlast-source") == Some("compact");
    let summaries = requests.iter().filter(sums_up).count();
    let is_unknown =
        |texts: &&BTreeSet<String>| texts.iter().any(|it| it.contains(OUTCOME_UNKNOWN));
    let unknown = told(&server).0.values().filter(is_unknown).count();
    Figures { kills: kills.len(), summaries, unknown }
}

/// The results of each call in all requests, by the effect's name.
fn told(server: &RehearsalServer) -> (BTreeMap<String, BTreeSet<String>>, BTreeSet<String>) {
    let (mut told, mut turns) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeSet::new());
    for request in server.requests() {
        let results = blocks(&request, "tool_result");
        for call in blocks(&request, "tool_use") {
            let command = call["input"]["command"].as_str().unwrap_or_default();
            let Some(effect) = command.strip_prefix("echo ").and_then(|it| it.split(" >>").next())
            else {
                continue;
            };
            let answers: Vec<&Value> =
                results.iter().filter(|it| it["tool_use_id"] == call["id"]).collect();
            assert_eq!(answers.len(), 1, "each call has one answer: {call}");
            turns.insert(effect.to_owned());
            told.entry(effect.to_owned()).or_default().insert(answers[0]["content"].to_string());
        }
    }
    (told, turns)
}

/// A scheduler that starts a task twice at the same time has it run once.
#[tokio::test]
async fn only_one_of_two_concurrent_starts_or_resumes_runs() {
    for round in 0..6 {
        let held = Scenario::new()
            .reply("All done.")
            .fault(ScriptedFaultKind::Stall, FaultPosition::Request);
        let server = serve(held.reply("All done.").usage(1000, 100).after(AfterLast::RepeatLast));
        let first = RunBuilder::against(&server).args(COMMAND);
        let second = first.in_same_folders(&server).args(COMMAND);
        let (first, second) = (first.start(), second.start());
        let one = with_time_limit("a request", server.wait_for_request(1));
        let pids = [first.pid(), second.pid()];
        one.await;
        let (mut first, mut second) = (Some(first), Some(second));
        // The one that was refused has ended or is about to; the other waits for its answer.
        let refused = with_time_limit("a refusal", async {
            tokio::select! {
                _ = first.as_mut().expect("it runs").child.wait() => first.take(),
                _ = second.as_mut().expect("it runs").child.wait() => second.take(),
            }
        });
        let refused = refused.await.expect("one of them").end().await;
        assert_eq!(refused.code, Some(75), "round {round}: {refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "round {round}: {refused:?}");
        assert!(refused.stderr.contains(&format!("session {SESSION} is in use")), "{refused:?}");
        let other = first.or(second).expect("the other");
        let named = !refused.stderr.contains(" by process ")
            || refused.stderr.contains(&format!(" by process {} on ", other.pid()));
        assert!(named && pids.contains(&other.pid()), "round {round}: {refused:?}");
        // The lock dies with its holder, however that dies: the next one has the session at once.
        other.signal(nix::sys::signal::Signal::SIGKILL);
        let killed = other.end().await;
        assert_eq!(killed.code, None, "round {round}");
        let ended = killed.again(&server.base_url()).args(COMMAND).run().await;
        assert_eq!(ended.code, Some(0), "round {round}: {ended:?}");
        assert_eq!(server.requests().len(), 2, "round {round}: two processes asked");
        drop(refused);
    }
}

fn judge(server: &RehearsalServer, ended: &FinishedProcess, context: &str) {
    assert_eq!(server.violations(), [""; 0], "{context}");
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{context}: {ended:?}");
    assert_eq!(result["result"], "All done.", "{context}: {result}");
    assert_eq!(result["durable"], true, "{context}: {result}");
    let log = fs::read_to_string(ended.work().join("log")).unwrap_or_default();
    let effects: Vec<&str> = log.lines().collect();
    let different: BTreeSet<&str> = effects.iter().copied().collect();
    assert_eq!(effects.len(), different.len(), "{context}: twice: {effects:?}");
    let sheet = fs::read_to_string(ended.work().join("sheet")).expect("it is there");
    assert!(["end\n", "edit\nend\n"].contains(&sheet.as_str()), "{context}: {sheet:?}");
    let (told, turns) = told(server);
    for (effect, texts) in &told {
        for text in texts {
            let was = different.contains(effect.as_str());
            let unknown = text.contains(OUTCOME_UNKNOWN);
            // What was too long may have been cut or folded, but an answer is never both.
            let not_started = text.contains("not started");
            assert!(!(was && not_started), "{context}: {effect} happened, but: {text}");
            assert!(was || unknown || not_started, "{context}: {effect} did not happen: {text}");
        }
    }
    for effect in &different {
        assert!(told.contains_key(*effect), "{context}: {effect} was forgotten");
    }
    let known = turns.len() + 1;
    let counted = result["num_turns"].as_u64().unwrap_or_default();
    assert!(counted >= known as u64, "{context}: {known} turns were kept: {result}");
    #[expect(clippy::cast_precision_loss, reason = "a handful of turns")]
    let paid = PER_REPLY * known as f64;
    let spent = result["budget"]["spent_usd"].as_f64().unwrap_or_default();
    assert!(spent >= paid - 1e-9, "{context}: {paid} was paid: {result}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_lose_nothing_and_repeat_no_effect() {
    let traced = can_trace();
    let stories = number("KILL_STORIES").unwrap_or(STORIES);
    let first = first_seed(stories);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let (mut trials, mut all) = (JoinSet::new(), Figures::default());
    for seed in first..first + stories {
        let places = Arc::clone(&places);
        trials.spawn(async move {
            let _place = places.acquire().await;
            carry_through(seed, traced).await
        });
    }
    while let Some(trial) = trials.join_next().await {
        let figures = trial.expect("the trial holds");
        all.kills += figures.kills;
        all.summaries += figures.summaries;
        all.unknown += figures.unknown;
    }
    // 52 stories have about 190 kills, 50 summaries and 30 unknown outcomes: half of that is
    // required. A few stories differ much from the mean, so only their kills are counted.
    let share = |count: u64| usize::try_from(count * stories / 52).expect("it is below a usize");
    let is_varied = all.summaries >= share(20) && all.unknown >= share(7);
    let enough = all.kills >= share(100) && (is_varied || stories < 52);
    assert!(enough, "too easy from seed {first} on: {all:?}");
}
