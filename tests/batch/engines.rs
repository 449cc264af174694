//! Batches on engines: handed over once, looked up, and refused in words.

use std::fs;

use outlast::rehearsal::Scenario;
use serde_json::Value;
use tempfile::TempDir;

use super::fixture::{BatchFixture, Ended, FREE, end, with_effects};
use crate::support::programs::write_program;

/// Prints the job and counts the calls, unless a file has a reason to refuse.
const SBATCH: &str = r#"#!/bin/sh
here=$(dirname "$0")
if [ -e "$here/refusal" ]; then cat "$here/refusal" >&2; exit 1; fi
echo "$*" >> "$here/submitted"
echo "Submitted batch job $((4241 + $(wc -l < "$here/submitted")))"
"#;

/// Prints the queue of a file, which is empty without it.
const SQUEUE: &str = r#"#!/bin/sh
here=$(dirname "$0")
if [ -e "$here/refusal" ]; then cat "$here/refusal" >&2; exit 1; fi
[ ! -e "$here/queue" ] || cat "$here/queue"
"#;

/// Keeps the arguments, and prints the Job of a file.
const KUBECTL: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$*" in
*apply*) echo "$*" >> "$here/submitted"; echo 'job.batch/nightly created' ;;
*"get job"*)
    echo "$*" >> "$here/asked"
    cat "$here/job.json" 2>/dev/null && exit 0
    echo 'Error from server (NotFound): jobs.batch "nightly" not found' >&2
    exit 1 ;;
esac
"#;

/// A batch beside the programs of engines.
struct EngineFixture {
    batch: BatchFixture,
    programs: TempDir,
}

impl EngineFixture {
    fn new(tasks: usize) -> Self {
        let batch = BatchFixture::new(with_effects(Scenario::new())).tasks(tasks, |_| Value::Null);
        let programs = tempfile::tempdir().expect("a scratch folder");
        for (name, text) in [("sbatch", SBATCH), ("squeue", SQUEUE), ("kubectl", KUBECTL)] {
            write_program(&programs.path().join(name), text);
        }
        Self { batch, programs }
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.programs.path().join(name), text).expect("it is ours");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.programs.path().join(name)).expect("it is there");
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.programs.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn call(&self, words: &[&str]) -> Ended {
        let path = std::env::var("PATH").expect("text");
        let mut command = self.batch.outlast(words);
        command.env("PATH", format!("{}:{path}", self.programs.path().display()));
        end(command.spawn().expect("the binary was built for this test")).await
    }

    async fn start(&self, words: &[&str]) -> Ended {
        self.call(&[&["batch", "tasks.jsonl", "--dir", "batch"], words, &FREE].concat()).await
    }

    async fn status(&self, words: &[&str]) -> Ended {
        self.call(&[&["batch", "status", "batch"], words].concat()).await
    }
}

#[tokio::test]
async fn a_batch_that_slurm_has_is_not_submitted_again() {
    let fixture = EngineFixture::new(2);
    let first = fixture.start(&["--engine", "slurm"]).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(
        first.stdout.starts_with("Submitted batch job 4242\noutlast batch status "),
        "{first:?}"
    );
    fixture.file("queue", "4242_[0-1] debug PD\n");
    let status = fixture.status(&[]).await;
    assert_eq!(status.code, Some(75), "{status:?}");
    assert!(status.stdout.contains(", 2 tasks: 0 done, 2 submitted, "), "{status:?}");
    assert!(
        status.stdout.contains("\nsubmitted, job 4242: squeue -j 4242 shows it\n"),
        "{status:?}"
    );
    assert!(!status.stdout.contains("to go on") && !status.stdout.contains("missing"));
    let object = fixture.status(&["--json"]).await.json();
    assert_eq!(object["counts"]["submitted"], 2, "{object}");
    assert_eq!(object["results"][1]["state"], "submitted", "{object}");
    assert_eq!(object["resume"], Value::Null, "{object}");
    let submission = &object["submission"];
    assert_eq!((&submission["job"], &submission["state"]), (&"4242".into(), &"active".into()));
    for engine in [&["--engine", "slurm"][..], &[], &["--engine", "slurm", "--retry-failed"]] {
        let again = fixture.start(engine).await;
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(
            again.stdout.contains("is submitted already, as job 4242; squeue -j 4242"),
            "{again:?}"
        );
    }
    // Where Slurm does not answer, a second job would be a guess.
    fixture.file("refusal", "slurm_load_jobs error: Unable to contact slurm controller\n");
    let unknown = fixture.start(&["--engine", "slurm"]).await;
    assert_eq!(unknown.code, Some(75), "{unknown:?}");
    assert!(
        unknown.stderr.contains("is not known (Unable to contact slurm controller)"),
        "{unknown:?}"
    );
    let status = fixture.status(&[]).await;
    assert!(status.stdout.contains("2 submitted") && status.stdout.contains("is not known"));
    fixture.remove("refusal");
    assert_eq!(fixture.lines("submitted").len(), 1);
    assert!(fixture.batch.server.requests().is_empty());
    // The job has ended, or was cancelled.
    fixture.remove("queue");
    let status = fixture.status(&[]).await;
    assert!(
        status.stdout.contains("2 missing") && status.stdout.contains("to go on: "),
        "{status:?}"
    );
    let again = fixture.start(&["--engine", "slurm", "--json"]).await;
    assert_eq!(again.json()["submission"]["job"], "4243", "{again:?}");
    assert_eq!(again.json()["exit_code"], 0, "{again:?}");
}

#[tokio::test]
async fn an_engine_that_cannot_be_reached_is_tried_later_and_a_refusal_is_a_mistake() {
    let fixture = EngineFixture::new(1);
    let down = "sbatch: warning: a note of the site\n\nsbatch: error: Batch job submission failed: \
                Unable to contact slurm controller (connect failure)\n";
    let partition = "sbatch: error: invalid partition specified: gpu\n\
                     sbatch: error: Batch job submission failed: Invalid partition name specified\n";
    for (refusal, code, why, other) in [
        (down, 75, "Unable to contact slurm controller", "sbatch: warning: a note of the site"),
        (partition, 2, "invalid partition specified: gpu", "Invalid partition name specified"),
    ] {
        fixture.file("refusal", refusal);
        let ended = fixture.start(&["--engine", "slurm", "--json"]).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let object = ended.json();
        assert_eq!((&object["type"], &object["exit_code"]), (&"batch".into(), &code.into()));
        assert!(object["error"].as_str().is_some_and(|error| error.contains(why)), "{object}");
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{ended:?}");
        assert!(lines[0].contains(other) && lines[1].contains(why), "{ended:?}");
    }
    let status = fixture.status(&[]).await;
    assert!(status.stdout.contains(", 1 task: 0 done, 1 missing, "), "{status:?}");
    let none = fixture.call(&["batch", "status", "none", "--json"]).await;
    assert_eq!((none.code, &none.json()["exit_code"]), (Some(2), &2.into()), "{none:?}");
}

#[tokio::test]
async fn a_batch_that_kubernetes_has_is_not_submitted_again() {
    let fixture = EngineFixture::new(2);
    let engine = ["--id", "nightly", "--engine", "k8s", "--image", "i", "--submit-arg=-n=a"];
    let first = fixture.start(&engine).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    fixture.file("job.json", "{\"status\":{\"active\":2}}");
    let again = fixture.start(&engine).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stdout.contains("kubectl get job nightly -n=a shows it"), "{again:?}");
    let status = fixture.status(&[]).await;
    assert!(status.stdout.contains("2 submitted"), "{status:?}");
    assert_eq!(fixture.lines("asked")[0], "get job nightly -n=a -o json");
    let ended = "{\"status\":{\"conditions\":[{\"type\":\"Complete\",\"status\":\"True\"}]}}";
    fixture.file("job.json", ended);
    let refused = fixture.start(&engine).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("delete the job (kubectl delete job nightly -n=a)"));
    let status = fixture.status(&["--json"]).await.json();
    assert_eq!(
        (&status["submission"]["state"], &status["resume"]),
        (&"ended".into(), &Value::Null)
    );
    assert_eq!(fixture.lines("submitted").len(), 1);
    fixture.remove("job.json");
    assert_eq!(fixture.start(&engine).await.code, Some(0));
    assert_eq!(fixture.lines("submitted").len(), 2);
}

/// Settings with a password.
const SECRET: &str = "{\"env\":{\"DB_PASSWORD\":\"hunter-4-hunter-4\"}}";

#[tokio::test]
async fn what_is_only_printed_is_not_the_batch_that_status_shows() {
    let fixture = EngineFixture::new(2);
    let start = async |words: &[&str]| {
        fixture.call(&[&["batch", "tasks.jsonl"], words, &FREE].concat()).await
    };
    let only_printed = ["batch", "tasks.jsonl", "--engine", "slurm", "--render"];
    assert_eq!(fixture.call(&only_printed).await.code, Some(0));
    let started = start(&[]).await;
    assert_eq!(
        (started.code, started.stderr.as_str()),
        (Some(0), ""),
        "no earlier one was started"
    );
    // The same batch for another engine, then one with other flags and one more task.
    let same = start(&["--engine", "slurm", "--render"]).await;
    assert!(same.stdout.is_empty() || same.stdout.contains("every task has a result"), "{same:?}");
    let tasks = fixture.batch.path().join("tasks.jsonl");
    let mut text = fs::read_to_string(&tasks).expect("tasks");
    text += "{\"prompt\": \"One more.\"}\n";
    fs::write(&tasks, text).expect("it is ours");
    let words = [&only_printed[..], &["--", "--max-turns", "3", "--settings", SECRET]].concat();
    let printed = fixture.call(&words).await;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.stdout.starts_with("#!/bin/sh\n"), "{printed:?}");
    let flags = "the flags after -- differ: --max-turns, --permission-mode, --sandbox, --settings;";
    for part in [flags, "it had 2 tasks, and there are 3"] {
        assert!(printed.stderr.contains(part), "{part}: {printed:?}");
    }
    assert!(!printed.stderr.contains("hunter"), "values may be secrets: {printed:?}");
    let mistaken = fixture.call(&[&words[..], &["--max-turnss", "3"]].concat()).await;
    assert_eq!((mistaken.code, mistaken.stderr.lines().count()), (Some(2), 1), "{mistaken:?}");
    let status = fixture.call(&["batch", "status", "tasks.jsonl", "--json"]).await;
    assert_eq!(status.code, Some(0), "{status:?}");
    assert_eq!(status.json()["counts"]["done"], 2, "{status:?}");
    let both = fixture.call(&[&words[..5], &["--retry-failed"]].concat()).await;
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[tokio::test]
async fn failed_tasks_are_retried_in_a_batch_that_exists_only() {
    let failing = Scenario::new().status(401).times(1000);
    let fixture = BatchFixture::new(failing).tasks(2, |_| Value::Null);
    let none = fixture.call(&["batch", "tasks.jsonl", "--retry-failed"]).await;
    assert_eq!((none.code, none.stderr.lines().count()), (Some(2), 1), "{none:?}");
    assert!(none.stderr.contains("none was from tasks.jsonl"), "{none:?}");
    let first = fixture.call(&[&["batch", "tasks.jsonl"][..], &FREE].concat()).await;
    assert_eq!(first.code, Some(1), "{first:?}");
    let requests = fixture.server.requests().len();
    let other = fixture.call(&["batch", "tasks.jsonl", "--retry-failed"]).await;
    assert_eq!((other.code, other.stderr.lines().count()), (Some(2), 1), "{other:?}");
    assert_eq!(fixture.server.requests().len(), requests, "nothing is run and paid for");
    let batches = fixture.path().join("home/.outlast/batch");
    let folders: Vec<_> = fs::read_dir(&batches).expect("a folder").flatten().collect();
    assert_eq!(folders.len(), 1, "no further batch is made");
    let folder = folders[0].path().display().to_string();
    let flags = "the flags after -- differ: --permission-mode, --sandbox";
    for part in [flags, &format!("outlast batch {folder} --retry-failed")] {
        assert!(other.stderr.contains(part), "{part}: {other:?}");
    }
    let retried = fixture.call(&["batch", &folder, "--retry-failed"]).await;
    assert_eq!(retried.code, Some(1), "{retried:?}");
    assert!(fixture.server.requests().len() > requests, "the command of the message runs them");
}
