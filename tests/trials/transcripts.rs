//! Compares the conversation on standard output with the transcript on disk and with itself.

use nix::sys::signal::Signal;
use outlast::rehearsal::{FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::outcomes::agrees;
use crate::support::{FinishedProcess, RunBuilder, serve};

fn bash(command: &str) -> Value {
    json!({ "command": command })
}

/// The lines of the only transcript, with the ids of messages.
fn transcript(ended: &FinishedProcess) -> Vec<Value> {
    let projects = std::fs::read_dir(ended.config().join("projects")).expect("there is a session");
    let files = projects.flatten().flat_map(|folder| std::fs::read_dir(folder.path()));
    let files = files.flatten().flatten().map(|entry| entry.path());
    let journals: Vec<_> =
        files.filter(|it| it.extension().is_some_and(|it| it == "jsonl")).collect();
    let [journal] = &journals[..] else { panic!("one session: {journals:?}") };
    let text = std::fs::read_to_string(journal).expect("it can be read");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The ids of messages of a kind, in order.
fn ids<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a str> {
    let of_kind = lines.iter().filter(|line| line["type"] == kind);
    of_kind.filter_map(|line| line["uuid"].as_str()).collect()
}

#[tokio::test]
async fn output_messages_have_the_ids_of_the_transcript() {
    let scenario = || {
        Scenario::new()
            .tool("Bash", bash("echo one"))
            .and_text("I look twice.")
            .and_tool("Read", json!({ "file_path": "missing" }))
            .and_tool("NoSuchTool", json!({}))
            .reply("Done.")
    };
    for more in [&[][..], &["--include-partial-messages"][..]] {
        let server = serve(scenario());
        let flags = ["do it", "--output-format", "stream-json", "--verbose"];
        let ended = RunBuilder::against(&server).args(flags).args(more).run().await;
        agrees(&ended);
        assert_eq!(ended.stderr, "", "--verbose says nothing there");
        let (frames, lines) = (ended.frames(), transcript(&ended));
        assert_eq!(ids(&frames, "assistant"), ids(&lines, "assistant"), "{more:?}");
        // The prompt is in the transcript alone; results end in any order and are told in theirs.
        let (told, kept) = (ids(&frames, "user"), ids(&lines, "user"));
        assert_eq!((told.len(), kept.len()), (3, 4), "{more:?}");
        assert!(told.iter().all(|id| kept.contains(id)), "{told:?} {kept:?}");
        for frame in frames.iter().filter(|it| it["type"] == "assistant" || it["type"] == "user") {
            assert!(frame["timestamp"].is_string(), "{frame}");
        }
    }
}

#[tokio::test]
async fn verbose_json_is_one_array_that_ends_with_the_result() {
    let verbose = ["--output-format", "json", "--verbose"];
    let array = |ended: &FinishedProcess| -> Vec<Value> {
        assert!(ended.stdout.ends_with("]\n"), "{ended:?}");
        let frames: Vec<Value> = serde_json::from_str(&ended.stdout).expect("a JSON array");
        let results = frames.iter().filter(|frame| frame["type"] == "result").count();
        assert_eq!((results, &frames.last().unwrap()["type"]), (1, &json!("result")), "{ended:?}");
        let code = frames.last().unwrap()["exit_code"].as_i64();
        assert_eq!(code, ended.code.map(i64::from), "{ended:?}");
        frames
    };
    let server = serve(Scenario::new().tool("Bash", bash("echo one")).reply("Done."));
    let ended = RunBuilder::against(&server).args(verbose).args(["do it"]).run().await;
    let frames = array(&ended);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let kinds: Vec<&str> = frames.iter().filter_map(|frame| frame["type"].as_str()).collect();
    assert_eq!(kinds, ["system", "assistant", "user", "assistant", "result"]);

    let server = serve(Scenario::new().status(400).error("invalid_request_error", "No.", None));
    let ended = RunBuilder::against(&server).args(verbose).args(["do it"]).run().await;
    assert_eq!((ended.code, array(&ended)[0]["subtype"].as_str()), (Some(1), Some("init")));

    let server = serve(Scenario::new());
    let ended =
        RunBuilder::against(&server).args(verbose).args(["--max-turns", "0", "do it"]).run().await;
    assert_eq!((ended.code, array(&ended).len()), (Some(2), 1));

    let server =
        serve(Scenario::new().interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(4)));
    let running = RunBuilder::against(&server).args(verbose).args(["do it"]).start();
    server.wait_for_request(1).await;
    running.signal(Signal::SIGTERM);
    let ended = running.end().await;
    assert_eq!((ended.code, array(&ended)[0]["subtype"].as_str()), (Some(143), Some("init")));
}

#[tokio::test]
async fn session_costs_accumulate_across_runs() {
    let id = "0190a1b2-0000-7000-8000-00000000c057";
    let server =
        serve(Scenario::new().reply("One.").usage(100_000, 100).reply("Two.").usage(100_000, 100));
    let ended = RunBuilder::against(&server).args(["do it", "--session-id", id]).run().await;
    let first = agrees(&ended)["total_cost_usd"].as_f64().expect("a number");
    assert!(first > 0.0, "{ended:?}");
    let again = ended.again(&server.base_url()).args(["and more", "--resume", id]).run().await;
    let result = agrees(&again);
    let both = result["total_cost_usd"].as_f64().expect("a number");
    let own = result["budget"]["spent_usd"].as_f64().expect("a number");
    assert!(own > 0.0 && (both - first - own).abs() < 1e-9, "{both} is not {first} + {own}");
}
