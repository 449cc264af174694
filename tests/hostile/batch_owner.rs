//! The folder of a batch of another user: its plan is not run, and its results are not believed.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use nix::unistd::geteuid;
use serde_json::json;

use crate::support::RunBuilder;

/// A user that owns nothing else.
const STRANGER: u32 = 20_002;

fn give(path: &Path) {
    chown(path, Some(STRANGER), None).expect("root may");
}

#[tokio::test]
async fn a_batch_of_another_user_is_refused() {
    if !geteuid().is_root() {
        return;
    }
    let run = RunBuilder::bare("http://127.0.0.1:9").args(["batch", "../tasks.jsonl"]);
    let root = run.work().parent().expect("a folder").to_owned();
    let task = json!({ "prompt": "Do it.", "cwd": run.work() }).to_string();
    fs::write(root.join("tasks.jsonl"), task).expect("a file");
    let mut ended = run.args(["--dir", "../b", "--engine", "matrix"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let batch = root.join("b");
    symlink(&batch, root.join("link")).expect("a link");
    let calls: [&[&str]; 10] = [
        &["batch", "../b"],
        &["batch", "collect", "../b"],
        &["batch", "../link"],
        &["batch", "../b", "--engine", "matrix"],
        &["batch", "worker", "../b", "--index", "0"],
        &["batch", "worker", "../b/plan.json", "--index", "0"],
        &["batch", "worker", "../link/plan.json", "--index", "0"],
        &["batch", "status", "../b"],
        &["batch", "../tasks.jsonl", "--dir", "../b"],
        &["batch", "../tasks.jsonl", "--dir", "../link"],
    ];
    for is_whole in [false, true] {
        // The plan alone, or the folder alone.
        give(&if is_whole { batch.clone() } else { batch.join("plan.json") });
        if is_whole {
            chown(batch.join("plan.json"), Some(0), None).expect("root may");
        }
        for words in calls {
            let next = ended.again_bare("http://127.0.0.1:9").args(words).run().await;
            assert_eq!(next.code, Some(2), "{words:?}: {next:?}");
            assert!(next.stderr.contains("belongs to another user"), "{words:?}: {next:?}");
            assert!(!batch.join("tasks/0/result.json").exists(), "{words:?}");
            ended = next;
        }
    }
    // Another folder for results is checked like that of the batch.
    let own = root.join("own");
    fs::create_dir(&own).expect("a new folder");
    fs::copy(batch.join("plan.json"), own.join("plan.json")).expect("a copy");
    let words = ["batch", "worker", "../own", "--index", "0", "--dir", "../b"];
    let next = ended.again_bare("http://127.0.0.1:9").args(words).run().await;
    assert_eq!(next.code, Some(2), "{next:?}");
    assert!(next.stderr.contains("belongs to another user"), "{next:?}");
    assert!(!batch.join("tasks").exists(), "it was worked on");
}
