//! Recipes for many files and many tasks.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, SystemTime};

use outlast::rehearsal::{AfterLast, RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::{Recipe, read_work};
use crate::support::{FinishedProcess, serve};

const LOOP: &str = "A loop over files";

/// Three files, one with a name of which a prompt would take a part for a reference.
fn three_files(server: &RehearsalServer) -> Recipe {
    let recipe = Recipe::new(LOOP, server).file("src/a.py", "def f(): pass\n");
    recipe.file("src/b @c.py", "def g(): pass\n").file("src/c.py", "def h(): pass\n")
}

fn has_jq() -> bool {
    Command::new("jq").arg("--version").output().is_ok()
}

fn missing(function: &str) -> Value {
    json!({ "missing": [function] })
}

fn report(of: &FinishedProcess) -> Vec<Value> {
    let text = read_work(of, "report.jsonl");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn rows<const N: usize>(rows: [(&str, &str); N]) -> Vec<Value> {
    let row = |(file, function)| json!({ "file": file, "missing": [function] });
    rows.map(row).to_vec()
}

const ALL: [(&str, &str); 3] = [("src/a.py", "f"), ("src/b @c.py", "g"), ("src/c.py", "h")];

#[tokio::test]
async fn a_loop_over_files_makes_a_table_and_pays_for_a_file_once() {
    if !has_jq() {
        eprintln!("jq is missing, and the recipe needs it");
        return;
    }
    let mut answers = Scenario::new();
    for (_, function) in ALL {
        answers = answers.tool("StructuredOutput", missing(function));
    }
    let server = serve(answers);
    let ended = three_files(&server).run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(report(&ended), rows(ALL));
    let prompts: Vec<String> =
        server.requests().iter().map(|sent| sent.body["messages"][0].to_string()).collect();
    for (prompt, (_, function)) in prompts.iter().zip(ALL) {
        assert!(prompt.contains(&format!("def {function}()")), "{prompt}");
        assert!(!prompt.contains("src/") && !prompt.contains("@c"), "{prompt}");
    }

    // Only a file that was changed since is asked for.
    let changed = File::options().append(true).open(ended.work().join("src/c.py"));
    let later = SystemTime::now() + Duration::from_hours(1);
    changed.and_then(|file| file.set_modified(later)).expect("it is ours");
    let server = serve(Scenario::new().tool("StructuredOutput", missing("i")));
    let ended = Recipe::again(LOOP, ended, &server).run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(report(&ended), rows([ALL[0], ALL[1], ("src/c.py", "i")]));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_file_that_fails_is_named_and_asked_for_again() {
    if !has_jq() {
        eprintln!("jq is missing, and the recipe needs it");
        return;
    }
    let answers = Scenario::new().tool("StructuredOutput", missing("f")).status(400);
    let server = serve(answers.tool("StructuredOutput", missing("h")));
    let ended = three_files(&server).run("").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let named = "./recipe.sh: src/b @c.py: no answer, exit code 1\n";
    assert!(ended.stderr.starts_with("outlast: "), "{ended:?}");
    assert!(ended.stderr.contains("HTTP 400"), "{ended:?}");
    assert!(ended.stderr.ends_with(named), "{ended:?}");
    assert_eq!(report(&ended), rows([ALL[0], ALL[2]]));

    let server = serve(Scenario::new().tool("StructuredOutput", missing("g")));
    let ended = Recipe::again(LOOP, ended, &server).run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(report(&ended), rows(ALL));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_service_that_fails_for_all_files_ends_the_loop() {
    let server = serve(Scenario::new().status(401).after(AfterLast::RepeatLast));
    let ended = three_files(&server).run("").await;
    assert_eq!((ended.code, read_work(&ended, "report.jsonl").as_str()), (Some(77), ""));
    let named = "./recipe.sh: src/a.py: no answer, exit code 77\n";
    assert!(ended.stderr.ends_with(named), "{ended:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_loop_without_files_says_so() {
    let server = serve(Scenario::new());
    let ended = Recipe::new(LOOP, &server).run("").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert_eq!(ended.stderr, "./recipe.sh: there is no file src/*.py\n");
    assert!(server.requests().is_empty(), "{ended:?}");
}

#[tokio::test]
async fn a_batch_is_submitted_to_slurm_and_its_state_is_shown_by_its_tasks() {
    let server = serve(Scenario::new().reply("Done."));
    let sbatch = "#!/bin/sh\necho \"$*\" >>sbatch.log\ncat >/dev/null\necho 42\n";
    let recipe = Recipe::new("A batch on Slurm", &server).program("sbatch", sbatch);
    let ended = recipe.run("").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(read_work(&ended, "sbatch.log").contains("--time=60"), "{ended:?}");
    for part in ["parser", "printer", "submitted", "job 42"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    // With other flags, the same file is another batch, and a message says why.
    let again = ended.again_bare(&server.base_url());
    let again = again.args(["batch", "tasks.jsonl", "--engine", "matrix", "--", "--max-turns=3"]);
    let ended = again.run().await;
    let change = "the flags after -- differ: --max-turns, --permission-mode";
    assert!(ended.stderr.contains("this is a new batch"), "{ended:?}");
    assert!(ended.stderr.contains(change), "{ended:?}");
}
