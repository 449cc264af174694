//! Whole runs of the real binary against the server inside it, in every format.

use std::fs;

use outlast::rehearsal::Scenario;
use serde_json::Value;

use super::binary_fixture::{BinaryFixture, ProcessResult};
use crate::support::{RunBuilder, serve};

/// Scenario, exit code.
const ENDS: [(&str, i32); 6] = [
    ("hello", 0),
    ("outage", 0),
    ("endless", 3),
    ("hopeless", 75),
    ("bad-key", 77),
    ("refusal", 1),
];

fn rehearse(scenario: &str, format: &str) -> (ProcessResult, Value) {
    let world = BinaryFixture::new();
    let args = ["rehearse", scenario, "--", "--output-format", format, "--result-file"];
    let kept = world.home().join("result.json");
    let output = world.command(&args).arg(&kept).output().expect("outlast starts");
    let kept = std::fs::read_to_string(kept).expect("a result is kept");
    (ProcessResult::of(&output), serde_json::from_str(&kept).expect("the kept result is JSON"))
}

fn tells_the_end(scenario: &str, format: &str, code: i32) {
    let (ended, kept) = rehearse(scenario, format);
    assert_eq!(ended.code, code, "{scenario} {format}: {}", ended.stderr);
    assert_eq!(kept["exit_code"], code, "{scenario} {format}");
    assert_eq!(kept["is_error"], code != 0, "{scenario} {format}");
    if format == "text" {
        let words = kept["result"].as_str().map(|text| text.to_owned() + "\n");
        assert_eq!(ended.stdout, words.unwrap_or_default(), "{scenario}");
    } else {
        assert_eq!(ended.result(), kept, "{scenario} {format}");
    }
    let reason = ended.stderr.contains(kept["errors"][0].as_str().unwrap_or("outlast"));
    assert!(reason || code == 0, "{scenario} {format}: {}", ended.stderr);
}

#[test]
fn every_output_format_reports_the_same_outcome() {
    std::thread::scope(|threads| {
        for (scenario, code) in ENDS {
            for format in ["text", "json", "stream-json", "ndjson"] {
                threads.spawn(move || tells_the_end(scenario, format, code));
            }
        }
    });
}

#[test]
fn a_run_without_failures_says_only_how_the_rehearsal_went() {
    for format in ["text", "json", "stream-json"] {
        let said = rehearse("hello", format).0.stderr;
        // A machine whose sandbox has gaps is warned of.
        let said: String =
            said.split_inclusive('\n').filter(|line| !line.contains("sandbox")).collect();
        let last =
            "outlast: rehearsed hello: exit 0; with flags after -- only the requests are checked\n";
        assert_eq!(said, last);
    }
}

#[test]
fn a_stream_begins_with_init_and_ends_with_its_one_result() {
    let (ended, _) = rehearse("outage", "stream-json");
    let messages: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(messages[0]["subtype"], "init");
    assert_eq!(messages.last().unwrap()["type"], "result");
    let session = &messages[0]["session_id"];
    for message in &messages {
        assert_eq!(&message["session_id"], session, "{message}");
        assert!(message["uuid"].is_string(), "{message}");
    }
    let retries = messages.iter().filter(|message| message["subtype"] == "api_retry").count();
    assert!(retries > 0);
}

#[test]
fn a_success_whose_stdout_is_closed_is_reported_as_a_failure() {
    let world = BinaryFixture::new();
    let kept = world.home().join("result.json");
    let mut child = world
        .command(&["rehearse", "hello", "--", "--result-file"])
        .arg(&kept)
        .spawn()
        .expect("outlast starts");
    drop(child.stdout.take());
    let ended = ProcessResult::of(&child.wait_with_output().unwrap());
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(kept).unwrap()).unwrap();
    assert_eq!((ended.code, &kept["exit_code"], &kept["is_error"]), (1, &1.into(), &true.into()));
    assert!(kept["partial_result"].is_string(), "the words are not lost: {kept}");
    assert!(ended.line().contains("standard output"), "{}", ended.stderr);
}

/// The standard library opens `/dev/null` in its place.
#[tokio::test]
async fn a_stdout_that_was_closed_before_the_start_is_like_one_without_a_reader() {
    for format in ["text", "json", "stream-json"] {
        let server = serve(Scenario::new().reply("Done."));
        let run = RunBuilder::bare(&server.base_url());
        let run = run.args(["hi", "--output-format", format, "--verbose", "--result-file", "kept"]);
        let ended = run.in_shell("exec \"$@\" >&-").run().await;
        assert_eq!(ended.code, Some(1), "{format}: {ended:?}");
        assert!(ended.stderr.contains("standard output"), "{format}: {}", ended.stderr);
        let kept = fs::read_to_string(ended.work().join("kept")).expect("a result");
        let kept: Value = serde_json::from_str(&kept).expect("JSON");
        assert_eq!(kept["exit_code"], 1, "{format}: {kept}");
    }
    for (args, code) in [
        (&["--version"][..], 1),
        (&["sessions"], 1),
        (&["report", "--all"], 1),
        (&["sessions", "prune", "--keep", "9"], 0),
    ] {
        let ended = RunBuilder::bare("http://127.0.0.1:9").args(args.iter().copied());
        let ended = ended.in_shell("exec \"$@\" >&-").run().await;
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
    }
}

#[tokio::test]
async fn fields_are_chosen_an_image_is_shown_and_the_answer_is_in_a_file_of_the_folder() {
    let server = serve(Scenario::new().reply("A black square."));
    let run = RunBuilder::bare(&server.base_url());
    let folder = run.work().join("inner");
    fs::create_dir(&folder).expect("the folder is ours");
    // No rule allows what is outside of the working folder.
    image::RgbImage::new(2, 2).save(run.work().join("a.png")).expect("the folder is ours");
    let fields = "result, num_turns,requirement,result";
    let ended = run
        .args(["-C", "inner", "What is it?", "--image", "../a.png", "--output-format", "json"])
        .args(["--output-fields", fields, "--last-message-file", "answer.txt"])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.stdout,
        "{\"result\":\"A black square.\",\"num_turns\":1,\"requirement\":null}\n"
    );
    let answer = fs::read_to_string(ended.work().join("inner/answer.txt"));
    assert_eq!(answer.expect("it was written"), "A black square.\n");
    let content = server.requests()[0].body["messages"][0]["content"].clone();
    let content = content.as_array().expect("blocks");
    assert!(content.iter().any(|block| block["type"] == "image"), "{content:?}");
}
