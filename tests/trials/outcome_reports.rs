//! Trials.
//! Every outcome of a run is reported once, last, and completely.

use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use crate::support::{FifoSignal, RunBuilder, serve};

/// A scenario, and the outcome of its run.
struct End {
    scenario: fn() -> Scenario,
    flags: &'static [&'static str],
    code: i32,
    subtype: &'static str,
    reason: &'static str,
}

fn endless() -> Scenario {
    let look = json!({ "pattern": "*" });
    Scenario::new().tool("Glob", look).and_text("Looking.").after(AfterLast::RepeatLast)
}

fn refused(message: &str) -> Scenario {
    Scenario::new().status(400).error("invalid_request_error", message, None)
}

/// The ends that are not failures of the service; those have a trial of their own.
const ENDS: [End; 7] = [
    End {
        scenario: || Scenario::new().reply("Done."),
        flags: &[],
        code: 0,
        subtype: "success",
        reason: "completed",
    },
    End {
        scenario: endless,
        flags: &["--max-turns", "2"],
        code: 3,
        subtype: "error_max_turns",
        reason: "max_turns",
    },
    End {
        scenario: || endless().usage(100, 5_000),
        flags: &["--max-budget-usd", "0.40"],
        code: 4,
        subtype: "error_max_budget_usd",
        reason: "max_budget_usd",
    },
    End {
        scenario: || endless().delay(Duration::from_millis(100)),
        flags: &["--max-duration", "1s"],
        code: 5,
        subtype: "error_during_execution",
        reason: "deadline",
    },
    End {
        scenario: || {
            let cut = Scenario::new().reply("On and on ").stop_reason("max_tokens");
            cut.after(AfterLast::RepeatLast)
        },
        flags: &[],
        code: 7,
        subtype: "error_during_execution",
        reason: "max_output_tokens",
    },
    End {
        scenario: || refused("messages.0: image exceeds 5 MB maximum"),
        flags: &[],
        code: 7,
        subtype: "error_during_execution",
        reason: "image_error",
    },
    End {
        scenario: || refused("The PDF has more than the maximum of 100 pages"),
        flags: &[],
        code: 7,
        subtype: "error_during_execution",
        reason: "image_error",
    },
];

#[tokio::test]
async fn every_outcome_is_reported_once_and_last() {
    for end in &ENDS {
        for format in ["json", "stream-json"] {
            let server = serve((end.scenario)());
            let trial = RunBuilder::against(&server).args(["do it", "--output-format", format]);
            let ended = trial.args(end.flags).run().await;
            let result = agrees(&ended);
            assert_eq!(ended.code, Some(end.code), "{}: {ended:?}", end.reason);
            assert_eq!(result["subtype"], end.subtype, "{}", end.reason);
            assert_eq!(result["terminal_reason"], end.reason);
            assert_eq!(server.violations(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_run_that_failed_to_start_is_reported_in_the_same_format() {
    let server = serve(Scenario::new());
    let wrong: [&[&str]; 4] = [
        &["--max-turns", "0"],
        &["--no-such-flag"],
        &["--resume", "unknown"],
        &["--model", "x", "--max-budget-usd", "1"],
    ];
    for flags in wrong {
        for format in ["text", "json", "stream-json"] {
            let trial = RunBuilder::against(&server).args(["do it", "--output-format", format]);
            let old = trial.work().join("result.json");
            std::fs::write(&old, "{\"subtype\":\"success\"}\n").expect("a new file");
            let ended = trial.args(["--result-file", "result.json"]).args(flags).run().await;
            assert_eq!(ended.code, Some(2), "{flags:?} as {format}: {ended:?}");
            let kept = std::fs::read_to_string(old).expect("it is there");
            let kept: Value = serde_json::from_str(&kept).expect("one object");
            assert_eq!((&kept["exit_code"], &kept["is_error"]), (&json!(2), &json!(true)));
            if format == "text" {
                assert_eq!(ended.stdout, "");
            } else {
                assert_eq!(ended.result(), kept, "{flags:?} as {format}");
            }
            let error = kept["errors"][0].as_str().expect("a text");
            assert_eq!(ended.stderr, format!("outlast: {error}\n"));
        }
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_reported_to_the_model() {
    let go = |command: &str| json!({ "command": command });
    let scenario = Scenario::new()
        .tool("Bash", go("echo $0 is here"))
        .tool("Bash", go("/usr/bin/find \"$PWD\" -delete"))
        .tool("Bash", go("true"))
        .reply("It cannot be done.");
    let server = serve(scenario);
    // Not even a shell is on this path.
    let ended = RunBuilder::against(&server).args(["do it"]).env("PATH", "/nowhere").run().await;
    let result = agrees(&ended);
    assert_eq!(result["result"], "It cannot be done.", "{ended:?}");
    assert_eq!((&result["tools"]["calls"], &result["tools"]["failed"]), (&json!(3), &json!(1)));
    let told = server.requests()[3].body["messages"].to_string();
    assert!(told.contains("is here") && told.contains("failed to start"), "{told}");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_unusable_result_file_is_reported_before_the_first_request() {
    let server = serve(Scenario::new());
    for path in ["no/such/folder.json", ".", "pipe"] {
        let trial = RunBuilder::against(&server).args(["do it", "--result-file", path]);
        let _pipe = FifoSignal::at(&trial.work().join("pipe"));
        let ended = trial.run().await;
        let result = agrees(&ended);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let error = result["errors"][0].as_str().expect("a text");
        assert!(error.contains("--result-file") && error.contains(path), "{error}");
        // Nor is it replaced to tell of the mistake: it might have been a device.
        let pipe = std::fs::metadata(ended.work().join("pipe")).expect("it is there");
        assert!(pipe.file_type().is_fifo(), "{path}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_result_file_that_cannot_be_written_fails_a_completed_run() {
    let lose = json!({ "command": "rm -r results && touch results" });
    let server = serve(Scenario::new().tool("Bash", lose).reply("Done."));
    let trial =
        RunBuilder::against(&server).args(["do it", "--result-file", "results/result.json"]);
    std::fs::create_dir(trial.work().join("results")).expect("a new folder");
    let ended = trial.run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["partial_result"]), (Some(1), &json!("Done.")), "{ended:?}");
    assert_eq!(result["terminal_reason"], "output_failed");
    let error = result["errors"][0].as_str().expect("a text");
    assert!(error.contains("results/result.json"), "{error}");
    assert!(ended.stderr.starts_with(&format!("outlast: {error}\n")), "{}", ended.stderr);
    // The answer is in the session: it is printed again without another request.
    let id = result["session_id"].as_str().expect("an id").to_owned();
    let ended = ended.again(&server.base_url()).args(["--resume", &id]).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Done.")), "{ended:?}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn the_result_file_reports_that_the_file_of_the_answer_cannot_be_written() {
    let lose = json!({ "command": "rm -r answers && touch answers" });
    let server = serve(Scenario::new().tool("Bash", lose).reply("Done."));
    let files = ["--result-file", "result.json", "--last-message-file", "answers/answer.txt"];
    let trial = RunBuilder::against(&server).args(["do it"]).args(files);
    std::fs::create_dir(trial.work().join("answers")).expect("a new folder");
    let ended = trial.run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["terminal_reason"]), (Some(1), &json!("output_failed")));
    let kept = std::fs::read_to_string(ended.work().join("result.json")).expect("a result");
    let kept: Value = serde_json::from_str(&kept).expect("one object");
    assert_eq!(kept, result);
}

#[tokio::test]
async fn an_unwritable_result_file_is_a_warning_after_another_failure() {
    let lose = json!({ "command": "rm -r results && touch results" });
    let server = serve(Scenario::new().tool("Bash", lose).status(401).times(2));
    let trial =
        RunBuilder::against(&server).args(["do it", "--result-file", "results/result.json"]);
    std::fs::create_dir(trial.work().join("results")).expect("a new folder");
    let ended = trial.run().await;
    let result = agrees(&ended);
    assert_eq!((ended.code, &result["terminal_reason"]), (Some(77), &json!("model_error")));
    let warning = result["warnings"][0].as_str().expect("a text");
    assert!(warning.contains("results/result.json"), "{warning}");
    assert!(ended.stderr.contains(&format!("outlast: warning: {warning}\n")), "{}", ended.stderr);
}
