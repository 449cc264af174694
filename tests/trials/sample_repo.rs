//! A repository as users of other tools have it, with settings, hooks, servers, agents, commands,
//! skills and memory: it runs unchanged, trusted or not.

use std::fs;
use std::path::Path;

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use crate::support::{FinishedProcess, RunBuilder, serve};

/// The task that its users would give: look an issue up, fix it, run the tests.
fn task() -> RehearsalServer {
    let edit = json!({ "file_path": "src/tally.py", "old_string": "sum(numbers[:-1])",
        "new_string": "sum(numbers)" });
    let test = "python3 -m unittest discover -s src; echo \"mode $TALLY_MODE\"";
    serve(
        Scenario::new()
            .tool("mcp__tracker__lookup", json!({ "number": 7 }))
            .tool("Read", json!({ "file_path": "src/tally.py" }))
            .tool("Edit", edit)
            .tool("Bash", json!({ "command": test }))
            .reply("Mended."),
    )
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("it is there").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("copied, with its rights");
        }
    }
}

fn in_repository(server: &RehearsalServer, flags: &[&str]) -> RunBuilder {
    let trial = RunBuilder::bare(&server.base_url());
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample-repo"), &trial.work());
    fs::create_dir(trial.work().join(".git")).expect("a folder");
    fs::write(trial.work().join(".git/HEAD"), "ref: refs/heads/main\n").expect("ours");
    trial.args(flags)
}

/// Everything that the model was told in the end.
fn told(server: &RehearsalServer) -> String {
    server.requests().last().map(|request| request.body["messages"].to_string()).unwrap_or_default()
}

/// The run did its work, and had little to say beside it.
#[track_caller]
fn is_well(ended: &FinishedProcess) -> Value {
    let frames = ended.frames();
    let result = frames.last().cloned().unwrap_or_default();
    assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Mended.")), "{ended:?}");
    let warnings = result["warnings"].as_array().map_or(0, Vec::len);
    assert!(warnings <= 2, "{:#}", result["warnings"]);
    let fixed = fs::read_to_string(ended.work().join("src/tally.py")).expect("it is there");
    assert!(fixed.contains("return sum(numbers)\n"), "{fixed}");
    result
}

fn log(ended: &FinishedProcess) -> String {
    fs::read_to_string(ended.work().join("hook.log")).unwrap_or_default()
}

#[tokio::test]
async fn a_trusted_sample_repo_has_all_its_settings() {
    let server = task();
    let flags = ["--trust-project", "--output-format", "stream-json", "--verbose"];
    // The trial's own command is no plain one, so that its rule does not cover all of it.
    let flags = [&flags[..], &["--allowedTools", "Bash(echo *)", "Fix issue 7."]].concat();
    let ended = in_repository(&server, &flags).run().await;
    let result = is_well(&ended);
    let told = told(&server);
    assert!(told.contains("tally-7: add() forgets the last number"), "{told}");
    assert!(told.contains("Ran 2 tests") && told.contains("mode strict"), "{told}");
    assert_eq!(log(&ended), "edited\nguarded\n");
    assert_eq!(result["permission_denials"], json!([]), "{result:#}");
    let system = server.requests()[0].body["system"].to_string();
    for words in ["A tiny calculator", "Names are whole words", "Adds numbers up", "gets a test"] {
        assert!(system.contains(words), "{words}: {system}");
    }
    assert!(!system.contains("This is not needed"), "{system}");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("\\\"voice\\\" (line "), "{warnings}");
    assert!(warnings.contains("permissions.disableAutoMode"), "{warnings}");
    assert!(!warnings.contains("statusLine"), "{warnings}");
}

#[tokio::test]
async fn an_untrusted_sample_repo_runs_with_only_its_deny_rules() {
    let server = task();
    let flags = ["--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits"];
    let flags = [&flags[..], &["--allowedTools", "Bash(python3 *),Bash(echo *)", "Fix it."]];
    let ended = in_repository(&server, &flags.concat()).run().await;
    let result = is_well(&ended);
    let told = told(&server);
    assert!(told.contains("No such tool available: mcp__tracker__lookup"), "{told}");
    assert!(told.contains("Ran 2 tests") && !told.contains("mode strict"), "{told}");
    assert_eq!(log(&ended), "", "a hook ran");
    let ignored = result["ignored_settings"].to_string();
    for key in ["hooks.PreToolUse", "env.TALLY_MODE", "permissions.allow", "mcpServers.tracker"] {
        assert!(ignored.contains(key), "{key}: {ignored}");
    }
    assert!(!ignored.contains("permissions.deny"), "{ignored}");
}

#[tokio::test]
async fn doctor_finds_no_problem_in_the_sample_repo() {
    let server = serve(Scenario::new());
    let flags = ["doctor", "--json", "--", "--trust-project"];
    let ended = in_repository(&server, &flags).run().await;
    let frames = ended.frames();
    assert_eq!(frames[0]["problems"], 0, "{:#}", frames[0]);
    let all = frames[0]["findings"].to_string();
    assert!(all.contains("tracker (") && all.contains("connected, 1 tool\""), "{all}");
    assert!(all.contains("Notification 1, PostToolUse 1, PreToolUse 1"), "{all}");
}
