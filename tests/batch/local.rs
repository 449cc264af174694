//! The engine of this machine: each task runs to one final result, whatever happens to the batch.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::fixture::{BatchFixture, Ended, FREE, end, of_task, with_effects};
use crate::support::programs::write_program;
use crate::support::{FifoSignal, is_alive, with_time_limit};

fn pid(child: &Child) -> Pid {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    Pid::from_raw(id.expect("it was not waited for yet"))
}

/// The processes that this one has started.
fn children(parent: Pid) -> Vec<Pid> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|thread| thread.path().join("children")).chain([path.into()]);
    let text: String = lists.filter_map(|path| fs::read_to_string(path).ok()).collect();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

const TASKS: usize = 24;

/// Interval between two checks whether processes have ended.
const POLL: Duration = Duration::from_millis(10);

/// A fault for two tasks of three.
fn faulty_tasks() -> Scenario {
    let mut scenario = Scenario::new();
    for number in 0..TASKS {
        let when = of_task(number);
        scenario = match number % 6 {
            0 => scenario.status(529).header("retry-after-ms", "1").when(when),
            1 => scenario.status(500).header("retry-after-ms", "1").when(when),
            2 => {
                scenario.interrupted(ScriptedFaultKind::Reset, FaultPosition::Events(2)).when(when)
            }
            // Two attempts fail: the first request and its only retry.
            3 => scenario.status(503).header("retry-after-ms", "1").when(when).times(4),
            _ => scenario,
        };
    }
    with_effects(scenario)
}

#[tokio::test]
async fn tasks_with_faults_and_two_kills_of_the_batch_are_done_exactly_once() {
    let flags = json!({ "flags": ["--max-retries", "1"] });
    let fixture = BatchFixture::new(faulty_tasks()).tasks(TASKS, |_| flags.clone());
    // The batch alone: its workers end with it, and write their results.
    let first = fixture.start(&["--jobs", "4", "--attempts", "20"]);
    fixture.server.wait_for_request(12).await;
    let orphans = children(pid(&first));
    kill(pid(&first), Signal::SIGKILL).expect("it runs");
    assert_eq!(end(first).await.code, None);
    with_time_limit("the end of the workers", async {
        while orphans.iter().any(|worker| is_alive(worker.as_raw())) {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    // The batch with all its workers, at once.
    let second = fixture.start(&["--jobs", "4", "--attempts", "20"]);
    let before = fixture.server.requests().len();
    fixture.server.wait_for_request(before + 20).await;
    let workers = children(pid(&second));
    assert!(!workers.is_empty(), "tasks were running");
    for process in workers.into_iter().chain([pid(&second)]) {
        let _ = kill(process, Signal::SIGKILL);
    }
    assert_eq!(end(second).await.code, None);
    let third = fixture.run(&["--jobs", "4", "--attempts", "20", "--json"]).await;
    assert_eq!(third.code, Some(0), "{third:?}");
    let summary = third.json();
    assert_eq!(summary["counts"]["done"], TASKS, "{summary}");
    let effects: Vec<usize> = (0..TASKS).map(|number| fixture.effects(number)).collect();
    assert_eq!(effects, vec![1; TASKS]);
    // Nothing is left to do, and nothing is asked.
    let requests = fixture.server.requests().len();
    let again = fixture.run(&["--json"]).await;
    assert_eq!((again.code, fixture.server.requests().len()), (Some(0), requests));
    assert!(again.stderr.contains("all 24 tasks"), "{again:?}");
    assert_eq!(fixture.server.violations(), Vec::<String>::new());
}

/// A session that the model declined is finished, and would only print its refusal again.
#[tokio::test]
async fn a_task_that_the_model_declined_is_tried_again_in_another_session() {
    let declined = Scenario::new().reply("No.").stop_reason("refusal").when(of_task(0));
    let fixture = BatchFixture::new(with_effects(declined.times(1))).tasks(2, |_| json!({}));
    let session = |ended: &Value| ended["results"][0]["session_id"].clone();
    let ended = fixture.run(&["--json"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let first = ended.json();
    assert_eq!(first["results"][0]["terminal_reason"], "refusal", "{first}");
    let retried = fixture.run(&["--retry-failed", "--json"]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let second = retried.json();
    assert_eq!(second["results"][0]["state"], "done", "{second}");
    assert_ne!(session(&first), session(&second));
    assert_eq!(first["results"][1]["session_id"], second["results"][1]["session_id"]);
}

#[tokio::test]
async fn temporary_failures_are_tried_again_and_final_ones_are_not() {
    let overload = |scenario: Scenario, number, times| {
        scenario.status(529).header("retry-after-ms", "1").when(of_task(number)).times(times)
    };
    let scenario = overload(overload(Scenario::new(), 0, 2), 2, 1000);
    let scenario = scenario.status(401).when(of_task(3)).times(1000);
    let flags = |number| match number {
        1 => {
            json!({ "id": "short", "flags": ["--max-retries", "0"], "limits": { "max_turns": 1 } })
        }
        _ => json!({ "flags": ["--max-retries", "0"] }),
    };
    let fixture = BatchFixture::new(with_effects(scenario)).tasks(5, flags);
    let ended = fixture.run(&["--attempts", "3", "--json"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let summary = ended.json();
    let facts = |result: &Value| {
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        (text("state"), result["exit_code"].as_u64(), result["attempts"].as_u64())
    };
    let found: Vec<_> = summary["results"].as_array().expect("a list").iter().map(facts).collect();
    let wanted = [
        ("done", 0, 3),
        ("failed", 3, 1),
        ("unfinished", 75, 3),
        ("failed", 77, 1),
        ("done", 0, 1),
    ];
    let wanted = wanted.map(|(state, code, tries)| (state.to_owned(), Some(code), Some(tries)));
    assert_eq!(found, wanted);
    assert!(ended.stderr.contains("task 1 (short) failed"), "{ended:?}");
    assert!(summary["resume"].as_str().expect("a command").starts_with("outlast batch "));
    // What is final is not run again, unless that is asked for, and needs no folder.
    fs::remove_dir_all(fixture.task(0)).expect("it is there");
    let requests = fixture.server.requests().len();
    let again = fixture.run(&["--attempts", "1"]).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert_eq!(fixture.server.requests().len(), requests + 1, "only the unfinished one");
    assert!(again.stdout.contains("2 done, 2 failed, 1 unfinished"), "{again:?}");
    let retried = fixture.run(&["--attempts", "1", "--retry-failed"]).await;
    assert_eq!(retried.code, Some(1), "{retried:?}");
    assert!(fixture.server.requests().len() > requests + 2, "the rejected key was tried again");
    // What is refused changes nothing: the results of failed tasks stay.
    let failed = fixture.result(1);
    for (flags, why) in [
        (&["--render"][..], "--render needs another engine"),
        (&["--engine", "slurm"], "sbatch was not found on PATH"),
    ] {
        let begin = ["batch", "tasks.jsonl", "--dir", "batch", "--retry-failed"];
        let mut command = fixture.outlast(&[&begin[..], flags].concat());
        let refused = end(command.env("PATH", "/nowhere").spawn().expect("it starts")).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
        assert_eq!(fixture.result(1), failed, "{why}");
    }
}

#[tokio::test]
async fn a_task_of_a_process_that_shows_no_sign_of_life_does_not_hold_the_batch_up() {
    let scenario = Scenario::new().status(529).when(of_task(0)).times(1000);
    let flags = json!({ "flags": ["--max-retries", "0"] });
    let fixture = BatchFixture::new(with_effects(scenario)).tasks(2, |_| flags.clone());
    let first = fixture.run(&["--attempts", "1"]).await;
    assert_eq!(first.code, Some(75), "{first:?}");
    let folder = fixture.batch().join("tasks/0");
    let lock = File::options().write(true).open(folder.join("lock")).expect("it is there");
    lock.lock().expect("it is free");
    let signs = ["heartbeat", "attempts.jsonl", "."];
    let long_ago = SystemTime::now() - Duration::from_hours(2);
    let date = |sign: &str, at| {
        let sign = File::open(folder.join(sign)).expect("it is there");
        sign.set_modified(at).expect("it is ours");
    };
    for recent in signs {
        for sign in signs {
            date(sign, long_ago);
        }
        date(recent, SystemTime::now());
        let mut waiting = fixture.start(&["--attempts", "1"]);
        let stderr = waiting.stderr.take().expect("it is a pipe");
        let mut lines = BufReader::new(stderr).lines();
        let said = with_time_limit("a word on the task", lines.next_line()).await;
        let said = said.expect("text").unwrap_or_default();
        assert!(said.contains("is still being worked on by another process"), "{recent}: {said}");
        waiting.kill().await.expect("it waits");
    }
    for sign in signs {
        date(sign, long_ago);
    }
    let second = fixture.run(&["--attempts", "1"]).await;
    assert_eq!(second.code, Some(75), "{second:?}");
    assert!(second.stderr.contains("has shown no sign of life"), "{second:?}");
    assert!(second.stdout.contains("1 done"), "{second:?}");
}

#[tokio::test]
async fn a_signal_ends_all_tasks_within_four_seconds_and_the_batch_can_be_continued() {
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(4, |_| Value::Null);
    let mut bells: Vec<FifoSignal> =
        (0..2).map(|number| FifoSignal::at(&fixture.task(number).join("bell"))).collect();
    let batch = fixture.start(&["--jobs", "2", "--json"]);
    for bell in &mut bells {
        bell.wait_for_line().await;
    }
    kill(pid(&batch), Signal::SIGTERM).expect("it runs");
    let ended = end(batch).await;
    assert_eq!(ended.code, Some(143), "{ended:?}");
    assert!(ended.stderr.contains("was cut off after") && !ended.stderr.contains("tried again"));
    assert!(ended.stderr.contains("2 running tasks are asked to end"), "{ended:?}");
    let summary = ended.json();
    assert_eq!(summary["exit_code"], 143);
    assert_eq!(summary["counts"]["unfinished"], 2, "{summary}");
    assert_eq!(summary["counts"]["missing"], 2, "tasks that did not begin are listed: {summary}");
    assert_eq!(fixture.result(0)["exit_code"], 143);
    for number in 0..2 {
        fs::remove_file(fixture.task(number).join("bell")).expect("it is ours");
    }
    let batch = fixture.batch().display().to_string();
    let status = fixture.call(&["batch", "status", &batch]).await;
    assert_eq!(status.code, Some(75), "{status:?}");
    assert!(status.stdout.contains(&format!("to go on: outlast batch {batch}")), "{status:?}");
    // The folder is enough to go on.
    let ended = fixture.call(&["batch", &batch]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let effects: Vec<usize> = (0..4).map(|number| fixture.effects(number)).collect();
    assert_eq!(effects, [1, 1, 1, 1]);
}

#[tokio::test]
async fn the_time_of_the_batch_bounds_it() {
    let mut tries = 0;
    // On a slow machine the time can end before the worker has come to its command.
    for duration in ["3s", "12s", "48s"] {
        let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(1, |_| Value::Null);
        let mut bell = FifoSignal::at(&fixture.task(0).join("bell"));
        let batch = end(fixture.start(&["--max-duration", duration]));
        tokio::pin!(batch);
        let (rang, ended) = tokio::select! {
            _ = bell.wait_for_line() => (true, batch.as_mut().await),
            ended = batch.as_mut() => (false, ended),
        };
        assert_eq!(ended.code, Some(5), "{ended:?}");
        if rang {
            assert_eq!(fixture.result(0)["exit_code"], 143, "the worker was asked to end");
            break;
        }
        tries += 1;
    }
    assert!(tries < 3, "no command began");
    // A wait that could only end later is not begun.
    let hopeless = Scenario::new().status(429).header("retry-after", "7200").times(1000);
    let fixture = BatchFixture::new(hopeless).tasks(1, |_| Value::Null);
    let ended = with_time_limit("the end", fixture.run(&["--max-duration", "1h"])).await;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(fixture.result(0)["exit_code"], 75);
}

#[tokio::test]
async fn one_process_at_a_time_starts_the_tasks_of_a_batch() {
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(1, |_| Value::Null);
    let mut bell = FifoSignal::at(&fixture.task(0).join("bell"));
    let first = fixture.start(&[]);
    bell.wait_for_line().await;
    let second = fixture.run(&[]).await;
    assert_eq!(second.code, Some(75), "{second:?}");
    let holder = format!("process {} starts the tasks", pid(&first));
    assert!(second.stderr.contains(&holder), "{second:?}");
    kill(pid(&first), Signal::SIGINT).expect("it runs");
    assert_eq!(end(first).await.code, Some(130));
}

#[tokio::test]
async fn money_is_divided_before_it_is_spent() {
    let own = |number| match number {
        0 => json!({ "limits": { "max_budget_usd": 0.4 } }),
        _ => Value::Null,
    };
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(4, own);
    let ended = fixture.run(&["--max-budget-usd", "1"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ceilings: Vec<_> =
        (0..4).map(|number| fixture.result(number)["budget"]["ceiling_usd"].clone()).collect();
    assert_eq!(ceilings, [json!(0.4), json!(0.2), json!(0.2), json!(0.2)]);
    // Another budget is still the same batch, and holds until yet another one is given.
    let requests = fixture.server.requests().len();
    for args in [&["--max-budget-usd", "2"][..], &[]] {
        let ended = fixture.run(args).await;
        assert_eq!((ended.code, fixture.server.requests().len()), (Some(0), requests), "{ended:?}");
        let plan = fs::read_to_string(fixture.batch().join("plan.json")).expect("a plan");
        assert!(plan.contains("\"max_budget_usd\":2.0"), "{args:?}: {plan}");
    }
}

#[tokio::test]
async fn another_batch_in_the_folder_is_refused() {
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(2, |_| Value::Null);
    assert_eq!(fixture.run(&["--id", "one"]).await.code, Some(0));
    let fixture = fixture.tasks(2, |_| json!({ "limits": { "max_turns": 9 } }));
    for id in ["one", "two"] {
        let ended = fixture.run(&["--id", id]).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("holds a batch of other tasks"), "{ended:?}");
    }
    assert!(fixture.effects(0) == 1);
}

#[tokio::test]
async fn results_are_collected_with_those_that_are_missing() {
    let scenario = Scenario::new().status(401).when(of_task(1)).times(1000);
    let fixture = BatchFixture::new(with_effects(scenario)).tasks(2, |_| Value::Null);
    assert_eq!(fixture.run(&[]).await.code, Some(1));
    fs::remove_dir_all(fixture.batch().join("tasks/0")).expect("it is there");
    let batch = fixture.batch().display().to_string();
    let lines = fixture.call(&["batch", "collect", &batch, "--format", "jsonl"]).await;
    assert_eq!(lines.code, Some(1), "{lines:?}");
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let lines: Vec<Value> = lines.stdout.lines().map(parse).collect();
    let states: Vec<&str> = lines.iter().filter_map(|line| line["state"].as_str()).collect();
    assert_eq!(states, ["missing", "failed"]);
    assert_eq!(lines[0]["result"], Value::Null);
    assert_eq!(lines[1]["result"]["type"], "result");
    let file = fixture.path().join("summary.json");
    let args = ["batch", "collect", &batch, "--output", &file.display().to_string()];
    let summary = fixture.call(&args).await;
    assert_eq!((summary.code, summary.stdout.as_str()), (Some(1), ""));
    let summary = parse(&fs::read_to_string(file).expect("it was written"));
    assert_eq!(summary["counts"]["missing"], 1);
    assert_eq!(summary["exit_code"], 1);
    let page = fixture.path().join("all.html");
    let refused = fixture.path().join("all.pdf");
    let collect = async |file: &Path| {
        fixture.call(&["batch", "collect", &batch, "-o", &file.display().to_string()]).await
    };
    assert_eq!(collect(&page).await.code, Some(1));
    assert!(fs::read_to_string(page).expect("it was written").contains("</html>"));
    let ended = collect(&refused).await;
    assert_eq!((ended.code, refused.exists()), (Some(2), false), "{ended:?}");
}

#[tokio::test]
async fn denied_calls_are_counted_though_the_task_is_done() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "touch made" })).reply("Done.");
    let fixture = BatchFixture::new(scenario).tasks(1, |_| Value::Null);
    let ended = fixture.call(&["batch", "tasks.jsonl", "--dir", "batch"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in [", 1 task: 1 done, ", "\n1 task had calls denied\n", " 1 call denied\n"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    for words in [&["batch", "status", "batch", "--json"][..], &["batch", "collect", "batch"]] {
        let summary = fixture.call(words).await.json();
        assert_eq!(summary["tasks_with_denied_calls"], 1, "{summary}");
        assert_eq!(summary["results"][0]["denied_calls"], 1, "{summary}");
    }
}

fn git(folder: &Path, words: &[&str]) {
    let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    let status = Command::new("git").current_dir(folder).args(who).args(words).status();
    assert!(status.expect("git is installed").success(), "{words:?}");
}

#[tokio::test]
async fn a_task_works_on_a_checkout_of_its_own() {
    let fixture = BatchFixture::new(with_effects(Scenario::new()));
    let origin = fixture.path().join("origin");
    fs::create_dir(&origin).expect("a new folder");
    git(&origin, &["init", "--quiet", "--initial-branch", "main"]);
    for version in ["one", "two"] {
        fs::write(origin.join("version"), version).expect("a new file");
        git(&origin, &["add", "."]);
        git(&origin, &["commit", "--quiet", "-m", version]);
        git(&origin, &["tag", version]);
    }
    let task = |git: &Value| format!("{}\n", json!({ "prompt": "Do number 0.", "git": git }));
    let tasks = task(&json!({ "repository": origin, "ref": "one" }))
        + &task(&json!({ "repository": "origin" }))
        + &task(&json!({ "repository": origin, "ref": "three" }));
    fs::write(fixture.path().join("tasks.jsonl"), tasks).expect("a new file");
    let ended = fixture.run(&["--attempts", "1", "--json"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let file = |index: usize, name: &str| {
        let work = fixture.batch().join(format!("tasks/{index}/work"));
        fs::read_to_string(work.join(name)).unwrap_or_default()
    };
    assert_eq!([file(0, "version"), file(1, "version")], ["one", "two"]);
    assert_eq!([file(0, "effects"), file(1, "effects")], ["x\n", "x\n"]);
    let error = fixture.result(2)["errors"].to_string();
    assert!(error.contains("git checkout of") && error.contains("three"), "{error}");
}

/// It would be missing in every attempt.
#[tokio::test]
async fn a_repository_on_this_machine_is_looked_for_before_the_start() {
    let fixture = BatchFixture::new(with_effects(Scenario::new()));
    fs::create_dir(fixture.path().join("plain")).expect("a new folder");
    for repository in ["nope", "plain", "file:///nope"] {
        let git = json!({ "repository": repository });
        let tasks = format!("{}\n", json!({ "prompt": "Do number 0.", "git": git }));
        fs::write(fixture.path().join("tasks.jsonl"), tasks).expect("a new file");
        let ended = fixture.run(&["--attempts", "2"]).await;
        assert_eq!(ended.code, Some(2), "{repository}: {ended:?}");
        let what = "tasks.jsonl:1: git.repository";
        assert!(ended.stderr.contains(what), "{ended:?}");
    }
}

#[tokio::test]
async fn each_task_works_in_its_own_worktree_in_all_attempts() {
    let overload = Scenario::new().status(529).header("retry-after-ms", "1").when(of_task(0));
    let fixture = BatchFixture::new(with_effects(overload.times(1)));
    git(fixture.path(), &["init", "--quiet", "--initial-branch", "main"]);
    git(fixture.path(), &["commit", "--quiet", "--allow-empty", "-m", "x"]);
    let task = |number: usize, flags: &[&str]| {
        let prompt = format!("Do number {number}.");
        format!("{}\n", json!({ "prompt": prompt, "cwd": fixture.path(), "flags": flags }))
    };
    let tasks = task(0, &[]) + &task(1, &[]) + &task(2, &["-w", "own"]);
    fs::write(fixture.path().join("tasks.jsonl"), tasks).expect("a new file");
    let flags = ["--dir", "batch", "--id", "b", "--retry-after", "1ms"];
    let words = [&["batch", "tasks.jsonl"][..], &flags, &FREE, &["--max-retries=0", "-w"]];
    let ended = fixture.call(&words.concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let trees = fixture.path().join(".claude/worktrees");
    for name in ["b-0", "b-1", "own"] {
        let effects = fs::read_to_string(trees.join(name).join("effects"));
        assert_eq!(effects.unwrap_or_default(), "x\n", "{name}");
    }
    let entries = fs::read_dir(&trees).expect("a folder").flatten();
    assert_eq!(entries.filter(|entry| entry.path().is_dir()).count(), 3);
    assert!(!fixture.path().join("effects").exists());
}

/// A git that cannot clone, and notes the names of the variables that it sees.
const BROKEN_GIT: &str = "#!/bin/sh
env | cut -d = -f 1 >\"$0.variables\"
echo \"fatal: unable to access 'https://me:hunter2-hunter2@127.0.0.1:1/x'\" >&2
exit 128
";

#[tokio::test]
async fn a_clone_that_fails_is_temporary_and_neither_shows_nor_passes_on_secrets() {
    let fixture = BatchFixture::new(with_effects(Scenario::new()));
    let git = fixture.path().join("bin/git");
    write_program(&git, BROKEN_GIT);
    let source = json!({ "repository": "https://me:hunter2-hunter2@127.0.0.1:1/x" });
    let tasks = format!("{}\n", json!({ "prompt": "Do number 0.", "git": source }));
    fs::write(fixture.path().join("tasks.jsonl"), tasks).expect("a new file");
    let path =
        env::join_paths([git.parent().expect("a folder"), "/usr/bin".as_ref(), "/bin".as_ref()]);
    let words = ["batch", "tasks.jsonl", "--dir", "batch", "--attempts", "1", "--json"];
    let mut command = fixture.outlast(&[&words[..], &FREE].concat());
    command.env("PATH", path.expect("no colon"));
    let ended = end(command.spawn().expect("it starts")).await;
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let result = fixture.result(0);
    let error = result["errors"].to_string();
    assert!(error.contains("git clone of") && error.contains("unable to access"), "{error}");
    for shown in [&result.to_string(), &ended.stdout, &ended.stderr] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let variables = fs::read_to_string(git.with_extension("variables")).expect("it was run");
    let variables: Vec<&str> = variables.lines().collect();
    assert!(variables.contains(&"PATH") && variables.contains(&"GIT_TERMINAL_PROMPT"));
    assert!(!variables.contains(&"ANTHROPIC_API_KEY"), "{variables:?}");
}

/// As in a job that makes a new folder each night.
#[tokio::test]
async fn a_batch_that_was_run_with_another_folder_says_that_it_does_nothing_again() {
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(2, |_| Value::Null);
    let run = async |dir, id: &[&'static str]| {
        fixture.call(&[&["batch", "tasks.jsonl", "--dir", dir], id, &FREE[..]].concat()).await
    };
    let said = |ended: &Ended| ended.stderr.contains("was started before, with another folder");
    let first = run("one", &[]).await;
    assert!(first.code == Some(0) && !said(&first), "{first:?}");
    let again = run("two", &[]).await;
    assert!(again.code == Some(0) && said(&again), "{again:?}");
    assert_eq!(fixture.effects(0), 1);
    let anew = run("three", &["--id", "anew"]).await;
    assert!(anew.code == Some(0) && !said(&anew), "{anew:?}");
    assert_eq!(fixture.effects(0), 2);
}

#[tokio::test]
async fn ci_logs_have_a_line_for_each_task_and_pipes_only_what_needs_attention() {
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(2, |_| Value::Null);
    let quiet = fixture.run(&["--id", "one", "--dir", "one"]).await;
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""), "{quiet:?}");
    assert!(quiet.stdout.starts_with("batch one, 2 tasks: 2 done, $"), "{quiet:?}");
    let words = ["batch", "tasks.jsonl", "--id", "two", "--dir", "two"];
    let mut command = fixture.outlast(&[&words[..], &FREE].concat());
    let ended = end(command.env("CI", "1").spawn().expect("it starts")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines = ended.stderr.lines().filter(|line| line.contains(" is done after "));
    assert_eq!(lines.count(), 2, "{ended:?}");
}

#[tokio::test]
async fn a_terminal_has_a_bar_with_the_figures() {
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(1, |_| Value::Null);
    let mut bell = FifoSignal::at(&fixture.task(0).join("bell"));
    let size = Winsize { ws_row: 50, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).expect("a terminal");
    let words = ["batch", "tasks.jsonl", "--dir", "batch"];
    let mut command = fixture.outlast(&[&words[..], &FREE].concat());
    command.env("TERM", "xterm").stderr(Stdio::from(pty.slave));
    let batch = command.spawn().expect("it starts");
    // The command holds the terminal, too, which ends with its last holder.
    drop(command);
    bell.wait_for_line().await;
    let screen = std::thread::spawn(move || {
        let (mut screen, mut shown, mut chunk) = (File::from(pty.master), Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = screen.read(&mut chunk) {
            shown.extend_from_slice(&chunk[..count]);
            if String::from_utf8_lossy(&shown).contains("0/1 done · 1 running · $0.0000") {
                break;
            }
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    let shown = tokio::task::spawn_blocking(|| screen.join().expect("it ends"));
    let shown = with_time_limit("the bar", shown).await.expect("it ends");
    assert!(shown.contains("0/1 done · 1 running · $0.0000"), "{shown}");
    kill(pid(&batch), Signal::SIGINT).expect("it runs");
    assert_eq!(end(batch).await.code, Some(130));
}

#[tokio::test]
async fn a_merged_report_lists_every_task_also_one_without_a_session() {
    let scenario = Scenario::new().status(401).when(of_task(0)).times(1000);
    let fixture = BatchFixture::new(with_effects(scenario)).tasks(4, |_| json!({}));
    let ended = fixture.run(&["--attempts", "1"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    // One task has a result only, as where it ran in another CI job, and one was never begun.
    for number in [1, 2] {
        let lost = fixture.result(number)["session_id"].as_str().expect("an id").to_owned();
        let projects = fixture.path().join("home/.outlast/projects");
        let folders = fs::read_dir(projects).expect("sessions were recorded");
        let journals = folders.map(|it| it.expect("an entry").path().join(format!("{lost}.jsonl")));
        let removed = journals.filter(|path| fs::remove_file(path).is_ok()).count();
        assert_eq!(removed, 1);
    }
    fs::remove_dir_all(fixture.batch().join("tasks/2")).expect("it is ours");
    let batch = fixture.batch().display().to_string();
    let collect = async |format| {
        let collected = fixture.call(&["batch", "collect", &batch, "--format", format]).await;
        assert_eq!(collected.code, Some(1), "the code is that of the batch: {collected:?}");
        collected.stdout
    };
    let junit = collect("junit").await;
    let counts = "tests=\"4\" failures=\"1\" errors=\"1\"";
    assert!(junit.matches("<testcase ").count() == 4 && junit.contains(counts), "{junit}");
    assert_eq!(junit.matches("<system-out>Done.").count(), 2, "{junit}");
    assert!(!junit.contains("--resume"), "there is nothing to resume: {junit}");
    assert!(
        junit.contains("type=\"model_error\"") && junit.contains("type=\"unfinished\""),
        "{junit}"
    );
    for (format, mark) in [("table", "unfinished"), ("markdown", "unfinished"), ("html", "</html>")]
    {
        let report = collect(format).await;
        assert!(report.contains(mark) && report.contains("2 succeeded, 2 failed"), "{report}");
    }
    // Without any session, the failed task has the error and the figures of its result.
    fs::remove_dir_all(fixture.path().join("home/.outlast/projects")).expect("it is ours");
    let junit = collect("junit").await;
    for part in [counts, "type=\"model_error\"", "HTTP 401", "<system-out>Done.", "Cost: $0.0"] {
        assert!(junit.contains(part), "{part}: {junit}");
    }
}
