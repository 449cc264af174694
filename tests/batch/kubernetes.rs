//! The manifest for Kubernetes: valid by the published schemas, and right under the controller.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use outlast::rehearsal::Scenario;
use serde_json::{Value, json};
use tokio::process::Command;

use super::fixture::{BatchFixture, FREE, end, of_task, with_effects};
use super::job_controller::{Disruption, IndexEnd, JobController};
use crate::support::FifoSignal;

/// Installing the validator takes the longest, once.
const VALIDATION_MAX: Duration = Duration::from_mins(8);

async fn manifest(fixture: &BatchFixture, more: &[&str]) -> String {
    let begin = ["batch", "tasks.jsonl", "--dir", "batch", "--id", "nightly", "--render"];
    let engine = ["--engine", "kubernetes", "--image", "registry.example/outlast:1"];
    let ended = fixture.call(&[&begin[..], &engine, more, &FREE].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[tokio::test]
async fn the_manifest_is_valid_by_the_schemas_of_three_versions() {
    let fixture = BatchFixture::new(Scenario::new()).tasks(3, |number| match number {
        1 => json!({ "prompt": "a: \"b\" # {c}\n- é ☃ \u{1}\n", "id": "x: y" }),
        _ => Value::Null,
    });
    let full = manifest(&fixture, &["--jobs", "2", "--max-duration", "2h"]).await;
    fs::write(fixture.path().join("full.yaml"), &full).expect("a new file");
    let claimed = manifest(&fixture, &["--claim", "shared", "--secret", "keys"]).await;
    fs::write(fixture.path().join("claimed.yaml"), &claimed).expect("a new file");
    assert!(!claimed.contains("kind: PersistentVolumeClaim"), "an existing claim is used");
    // What the check must not let through.
    let wrong = full.replace("backoffLimitPerIndex", "backoffLimitPerIndx");
    assert_ne!(wrong, full);
    fs::write(fixture.path().join("wrong.yaml"), wrong).expect("a new file");
    let check = async |file: &str| {
        let mut command = Command::new("ci/kubernetes");
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .arg(fixture.path().join(file))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(VALIDATION_MAX, command.output()).await;
        let output = output.expect("it ends in time").expect("ci/kubernetes starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for file in ["full.yaml", "claimed.yaml"] {
        let (is_valid, said) = check(file).await;
        assert!(is_valid, "{file}: {said}");
    }
    let (is_valid, said) = check("wrong.yaml").await;
    assert!(!is_valid && said.contains("backoffLimitPerIndx"), "{said}");
}

#[tokio::test]
async fn a_plan_that_no_config_map_holds_is_refused() {
    let prompt = "x".repeat(600_000);
    let fixture =
        BatchFixture::new(Scenario::new()).tasks(2, |_| json!({ "prompt": prompt.clone() }));
    let words =
        ["batch", "tasks.jsonl", "--dir", "batch", "--engine", "kubernetes", "--image", "i"];
    let ended = fixture.call(&[&words[..], &["--render"]].concat()).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a ConfigMap holds"), "{ended:?}");
}

#[tokio::test]
async fn indexes_are_retried_failed_evicted_and_started_twice_without_a_second_effect() {
    let scenario = Scenario::new()
        .status(529)
        .header("retry-after-ms", "1")
        .when(of_task(1))
        .times(2)
        .status(529)
        .header("retry-after-ms", "1")
        .when(of_task(3))
        .times(1000);
    let more = |number| match number {
        2 => json!({ "limits": { "max_turns": 1 } }),
        _ => json!({ "flags": ["--max-retries", "0"] }),
    };
    let fixture = BatchFixture::new(with_effects(scenario)).tasks(8, more);
    let manifest = manifest(&fixture, &["--attempts", "4"]).await;
    let mut controller = JobController::apply(&manifest, &fixture);
    let none = None::<(Disruption, std::future::Ready<()>)>;
    assert_eq!(controller.run_index(0, none.clone()).await, IndexEnd::Succeeded);
    assert_eq!(controller.run_index(1, none.clone()).await, IndexEnd::Succeeded);
    assert_eq!(controller.run_index(2, none.clone()).await, IndexEnd::Failed);
    assert_eq!(controller.run_index(3, none.clone()).await, IndexEnd::Failed);
    let pods: Vec<u32> = (0..4).map(|index| controller.pods[&index]).collect();
    assert_eq!(pods, [1, 3, 1, 4], "75 is retried up to the limit, another failure is not");
    for (index, disruption) in
        [(4, Disruption::Eviction), (5, Disruption::EvictionOfStopped), (6, Disruption::NodeLoss)]
    {
        let path = fixture.task(index).join("bell");
        let mut bell = FifoSignal::at(&path);
        let moment = async {
            bell.wait_for_line().await;
            fs::remove_file(&path).expect("it is ours");
        };
        let ended = controller.run_index(index, Some((disruption, moment))).await;
        assert_eq!(ended, IndexEnd::Succeeded, "{disruption:?}");
        assert_eq!(controller.pods[&index], 2, "{disruption:?}");
    }
    let (one, two) = (controller.start_pod(7), controller.start_pod(7));
    let (one, two) = tokio::join!(end(one), end(two));
    assert_eq!((one.code, two.code), (Some(0), Some(0)), "{one:?} {two:?}");
    let effects: Vec<usize> = (0..8).map(|number| fixture.effects(number)).collect();
    assert_eq!(effects, [1, 1, 1, 0, 1, 1, 1, 1]);
    let place = controller.volume("/data").join("batch/nightly");
    let status = fixture.call(&["batch", "status", &place.display().to_string(), "--json"]).await;
    assert_eq!(status.code, Some(1), "{status:?}");
    let counts = &status.json()["counts"];
    assert_eq!((&counts["done"], &counts["failed"]), (&json!(6), &json!(1)), "{counts}");
    assert_eq!(counts["unfinished"], 1, "{counts}");
    let resume = status.json()["resume"].as_str().expect("a command").to_owned();
    assert!(resume.contains(" --engine kubernetes --image registry.example/outlast:1"), "{resume}");
}
