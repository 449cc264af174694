//! All that a resumed run has of its session, after each record of one that has every kind of
//! them: its request, and its result. The text changes only with `UPDATE=1`.

use std::fmt::Write as _;
use std::fs;

use outlast::journal::SessionFolder;
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::Value;

use crate::cli::golden;
use crate::journal::restored_whole::{add_changes, kind_of, tell_all};
use crate::support::{FinishedProcess, RunBuilder, serve};

/// The members of a result that depend on time or chance, or are of no session.
const LEFT_OUT: [&str; 10] = [
    "uuid",
    "outlast_commit",
    "outlast_version",
    "duration_ms",
    "duration_api_ms",
    "ttft_ms",
    "request_id",
    "sandbox",
    "ignored_settings",
    "schema_version",
];

/// The request and the result, a line for each part.
fn described(request: Option<&Value>, ended: &FinishedProcess) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(body) = request {
        for (index, message) in body["messages"].as_array().expect("a list").iter().enumerate() {
            lines.push(format!("message {index}: {message}"));
        }
        for name in ["model", "max_tokens", "thinking", "output_config"] {
            lines.push(format!("{name}: {}", body[name]));
        }
    }
    let mut result = ended.result();
    for record in result["recovery"]["records"].as_array_mut().into_iter().flatten() {
        record["took_ms"] = 0.into();
    }
    for (name, value) in result.as_object().expect("an object") {
        if !LEFT_OUT.contains(&name.as_str()) {
            lines.push(format!("{name}: {value}"));
        }
    }
    lines
}

#[tokio::test]
async fn each_record_gives_a_resumed_run_the_same_state_as_ever() {
    let folders = RunBuilder::bare("http://127.0.0.1:9");
    let place = SessionFolder::new(&folders.config(), &folders.work());
    let id = tell_all(&place);
    let file = place.folder().join(format!("{id}.jsonl"));
    let whole = fs::read(&file).expect("it was written");
    let (mut text, mut before, mut end) = (String::new(), Vec::new(), 0);
    for (index, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
        end += line.len();
        fs::write(&file, &whole[..end]).expect("written");
        // One of its own, which has few requests to copy.
        let server =
            serve(Scenario::new().reply("Done.").usage(1000, 100).after(AfterLast::RepeatLast));
        let run = folders.in_same_folders(&server).args(["--resume", id.as_str()]);
        let prices = ["claude-test-1=3/15", "claude-other=1/5", "claude-small=1/5"];
        let run = prices.iter().fold(run, |run, price| run.args(["--price", price]));
        let run = run.args(["--model=claude-test-1", "--mcp-required=none"]);
        let run = run.args(["--output-format=stream-json"]);
        let ended = run.run().await;
        let requests = server.requests();
        let after = described(requests.first().map(|request| &request.body), &ended);
        writeln!(text, "\n# {} {}", index + 1, kind_of(line)).expect("a string takes all");
        add_changes(&mut text, &before, &after);
        before = after;
    }
    let root = folders.work().parent().expect("it is in one").display().to_string();
    golden::compare("tests/trials/resumed_whole.txt", &text.replace(&root, "ROOT"));
}
