//! Reports of recoveries: the result, the messages and the journal of a run agree.

use std::fs;
use std::path::Path;

use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::binary_fixture::{BinaryFixture, ProcessResult};
use crate::support::{RunBuilder, serve};

const SESSION: &str = "5e551011-0000-4000-8000-00000000000a";

/// The messages that say how a recovery went, without what is each message's own.
fn told(stdout: &str) -> Vec<Value> {
    let frames = stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let ends = frames.filter(|frame| frame["subtype"] == "recovery_end");
    ends.map(|mut frame| {
        let fields = frame.as_object_mut().expect("an object");
        for own in ["type", "subtype", "uuid", "session_id"] {
            assert!(fields.shift_remove(own).is_some(), "{own}");
        }
        frame
    })
    .collect()
}

/// The sums of the records, whatever they are.
fn agree(result: &Value) {
    let recovery = &result["recovery"];
    let records = recovery["records"].as_array().expect("a list");
    let sum = |of: &dyn Fn(&Value) -> u64| records.iter().map(of).sum::<u64>();
    let number = |value: &Value| value.as_u64().expect("a number");
    assert_eq!(sum(&|one| number(&one["waited_ms"])), number(&recovery["waited_ms"]), "{result}");
    assert_eq!(sum(&|one| u64::from(one["saved"] == true)), number(&recovery["saved"]));
    assert_eq!(sum(&|one| u64::from(one["saved"] == false)), number(&recovery["lost"]));
    for (name, times) in recovery["strategies"].as_object().expect("an object") {
        let tried = sum(&|one| one["strategies"][name].as_u64().unwrap_or(0));
        assert_eq!(tried, number(times), "{name}");
    }
    assert!(sum(&|one| number(&one["attempts"])) <= number(&recovery["requests"]), "{result}");
}

#[test]
fn recovery_messages_records_and_totals_agree() {
    // Scenario, recoveries, of which lost, changes of the model.
    let cases = [
        ("hello", 0, 0, 0),
        ("outage", 5, 0, 0),
        ("overload-fallback", 1, 0, 1),
        ("hopeless", 1, 1, 0),
    ];
    for (scenario, recoveries, lost, fallbacks) in cases {
        let args = ["rehearse", scenario, "--", "--output-format", "stream-json"];
        let output = BinaryFixture::new().command(&args).output().expect("outlast starts");
        let ended = ProcessResult::of(&output);
        let result = ended.result();
        let recovery = &result["recovery"];
        assert_eq!(recovery["records"], json!(told(&ended.stdout)), "{scenario}");
        assert_eq!(recovery["records"].as_array().map(Vec::len), Some(recoveries), "{result}");
        assert_eq!((&recovery["lost"], &recovery["fallbacks"]), (&json!(lost), &json!(fallbacks)));
        agree(&result);
    }
}

#[test]
fn the_result_lists_models_with_the_turns_they_answered() {
    let world = BinaryFixture::new();
    let output = world.command(&["rehearse", "overload-fallback"]).output().expect("it starts");
    let recovery = ProcessResult::of(&output).result()["recovery"].take();
    let models = json!([{ "model": "claude-haiku-4-5", "from_turn": 1 }]);
    assert_eq!(recovery["models"], models, "the first one answered nothing");
    let record = &recovery["records"][0];
    assert_eq!((&record["transition"], &record["attempts"]), (&json!("model_fallback"), &json!(4)));
}

/// The journal's records of recoveries.
fn written(config: &Path) -> Vec<Value> {
    let projects = fs::read_dir(config.join("projects")).expect("a folder").flatten();
    let files =
        projects.flat_map(|folder| fs::read_dir(folder.path()).expect("a folder").flatten());
    let mut records = Vec::new();
    for file in files.filter(|file| file.path().extension().is_some_and(|it| it == "jsonl")) {
        let text = fs::read_to_string(file.path()).expect("text");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        records.extend(lines.filter(|line| line["kind"] == "recovery"));
    }
    records
}

#[tokio::test]
async fn a_resumed_run_reports_recoveries_from_before_it_was_killed() {
    let scenario = Scenario::new()
        .status(529)
        .tool("Bash", json!({ "command": "true" }))
        .status(500)
        .reply("This reply is lost.")
        .fault(ScriptedFaultKind::Stall, FaultPosition::Request)
        .reply("Done.");
    let server = serve(scenario);
    let args = ["--session-id", SESSION, "--time-scale", "10", "Do it."];
    let mut running = RunBuilder::against(&server).args(args).start();
    server.wait_for_request(4).await;
    running.child.start_kill().expect("it can be killed");
    let killed = running.end().await;
    assert_eq!(killed.code, None, "{killed:?}");
    assert_eq!(written(&killed.config()).len(), 1, "the second one was under way");
    let trial = killed.again(&server.base_url());
    let ended = trial.args(["--resume", SESSION, "--time-scale", "100"]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let recovery = &result["recovery"];
    assert_eq!(recovery["requests"], 5, "{result}");
    let retries = json!({ "server_overload": 1, "server_error": 1 });
    assert_eq!((&recovery["retries_by_class"], &recovery["saved"]), (&retries, &json!(2)));
    let [first, second] = &recovery["records"].as_array().expect("a list")[..] else {
        panic!("two records: {result}")
    };
    assert_eq!((&first["turn"], &first["attempts"]), (&json!(1), &json!(2)));
    assert_eq!((&second["turn"], &second["attempts"]), (&json!(2), &json!(3)));
    assert_eq!(recovery["models"].as_array().map(Vec::len), Some(1));
    agree(&result);
    let lines = written(&ended.config());
    let classes: Vec<&Value> = lines.iter().map(|line| &line["class"]).collect();
    assert_eq!(classes, ["server_overload", "server_error"]);
}
