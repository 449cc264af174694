//! The worker: what every engine starts, however often.

use std::fs;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::batch::BatchPlan;
use outlast::rehearsal::Scenario;
use serde_json::Value;

use super::fixture::{BatchFixture, FREE, end, with_effects};
use crate::support::FifoSignal;

/// A batch that was planned and not started.
async fn planned(tasks: usize) -> BatchFixture {
    let fixture = BatchFixture::new(with_effects(Scenario::new())).tasks(tasks, |_| Value::Null);
    let begin = ["batch", "tasks.jsonl", "--dir", "batch", "--engine", "matrix"];
    let ended = fixture.call(&[&begin[..], &FREE].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let include = ended.json()["include"].as_array().expect("a list").len();
    assert_eq!(include, tasks);
    fixture
}

#[tokio::test]
async fn the_engine_says_which_task_it_is() {
    let fixture = planned(2).await;
    let mut worker = fixture.outlast(&["batch", "worker", "batch"]);
    worker.env("SLURM_ARRAY_TASK_ID", "1");
    let ended = end(worker.spawn().expect("it starts")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!([fixture.effects(0), fixture.effects(1)], [0, 1]);
    assert_eq!(ended.json(), fixture.result(1), "the result is on standard output, too");
    for (args, said) in [
        (&["batch", "worker", "batch"][..], "no variable says which task to run"),
        (&["batch", "worker", "batch", "--index", "2"], "there is no task 2"),
    ] {
        let ended = fixture.call(args).await;
        assert_eq!((ended.code, ended.stderr.contains(said)), (Some(2), true), "{ended:?}");
    }
}

#[tokio::test]
async fn a_task_that_has_its_result_repeats_it_without_a_request() {
    let fixture = planned(1).await;
    let words = ["batch", "worker", "batch/plan.json", "--index", "0", "--dir", "other"];
    let first = fixture.call(&words).await;
    let requests = fixture.server.requests().len();
    let second = fixture.call(&words).await;
    assert_eq!((first.code, second.code), (Some(0), Some(0)));
    assert_eq!(first.json()["uuid"], second.json()["uuid"]);
    assert_eq!(fixture.server.requests().len(), requests);
    assert!(fixture.path().join("other/tasks/0/result.json").is_file());
    assert!(!fixture.batch().join("tasks").exists(), "--dir has all results");
}

/// A command of an earlier task could have added flags.
#[tokio::test]
async fn a_plan_that_was_changed_after_the_start_is_refused() {
    let fixture = planned(1).await;
    let digest = |text: &str| BatchPlan::parse(text).expect("it is a plan").digest();
    let path = fixture.batch().join("plan.json");
    let text = fs::read_to_string(&path).expect("there is a plan");
    let known = digest(&text);
    let words = ["batch", "worker", "batch", "--index", "0", "--plan", &known];
    let other = text.replace("\"flags\":[]", "\"flags\":[\"--dangerously-skip-permissions\"]");
    assert_ne!(digest(&other), known, "{text}");
    fs::write(&path, &other).expect("it can be written");
    let ended = fixture.call(&words).await;
    assert_eq!((ended.code, ended.stderr.contains("was changed")), (Some(2), true), "{ended:?}");
    assert_eq!(fixture.effects(0), 0);
    let result = fixture.batch().join("tasks/0/result.json");
    assert!(result.is_file(), "another attempt would find the same plan");
    fs::write(&path, &text).expect("it can be written");
    fs::remove_file(result).expect("it is there");
    let ended = fixture.call(&words).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn a_folder_of_a_batch_in_a_working_folder_is_warned_of() {
    let fixture = BatchFixture::new(Scenario::new()).tasks(1, |_| Value::Null);
    fs::write(fixture.path().join("here.jsonl"), r#"{"prompt": "Do number 0."}"#).expect("a file");
    let said = "is in the working folder";
    for (tasks, dir, engine, code, is_said) in [
        ("here.jsonl", "batch", "matrix", 0, true),
        ("here.jsonl", ".", "matrix", 0, true),
        ("tasks.jsonl", "work/0/new/batch", "matrix", 0, true),
        ("tasks.jsonl", "other", "matrix", 0, false),
        // The folder of outlast itself is closed to commands, wherever they work.
        ("here.jsonl", "home/.outlast/batch/b", "matrix", 0, false),
    ] {
        let words = ["batch", tasks, "--dir", dir, "--engine", engine];
        let ended = fixture.call(&[&words[..], &FREE].concat()).await;
        assert_eq!((ended.code, ended.stderr.contains(said)), (Some(code), is_said), "{ended:?}");
    }
}

#[tokio::test]
async fn a_plan_that_is_a_pipe_is_refused_and_not_waited_for() {
    let fixture = planned(1).await;
    let plan = fixture.batch().join("plan.json");
    fs::remove_file(&plan).expect("there is a plan");
    mkfifo(&plan, Mode::S_IRWXU).expect("a pipe can be made");
    let ended = fixture.call(&["batch", "worker", "batch/plan.json", "--index", "0"]).await;
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{ended:?}");
}

#[tokio::test]
async fn two_workers_of_one_task_do_it_once() {
    let fixture = planned(1).await;
    let mut bell = FifoSignal::at(&fixture.task(0).join("bell"));
    let first = fixture.outlast(&["batch", "worker", "batch", "--index", "0"]).spawn();
    let first = first.expect("it starts");
    bell.wait_for_line().await;
    let second = fixture.outlast(&["batch", "worker", "batch", "--index", "0"]).spawn();
    let second = second.expect("it starts");
    fs::remove_file(fixture.task(0).join("bell")).expect("it is ours");
    let pid = nix::unistd::Pid::from_raw(
        first.id().and_then(|id| i32::try_from(id).ok()).expect("it runs"),
    );
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    assert_eq!(end(first).await.code, None);
    let second = end(second).await;
    assert_eq!(second.code, Some(0), "{second:?}");
    assert_eq!(fixture.effects(0), 1);
}

#[tokio::test]
async fn an_error_before_the_run_is_its_result() {
    let fixture = planned(1).await;
    fs::remove_dir(fixture.task(0)).expect("it is empty");
    let ended = fixture.call(&["batch", "worker", "batch", "--index", "0"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(fixture.result(0)["exit_code"], 2);
    assert_eq!(ended.json()["exit_code"], 2);
}
