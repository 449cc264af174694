//! Trials of history: tools that hang, and tools that are not allowed. The run goes on.

use std::time::Duration;

use outlast::rehearsal::{AfterLast, ReceivedRequest, Scenario};
use serde_json::{Value, json};

use crate::support::requests::blocks;
use crate::support::stopwatch::Stopwatch;
use crate::support::{RunBuilder, is_alive, serve};

/// What the model was told of its calls, in their order.
fn told(request: &ReceivedRequest) -> Vec<String> {
    let results = blocks(request, "tool_result");
    results.iter().map(|result| result["content"].to_string()).collect()
}

#[tokio::test]
async fn commands_that_would_hang_do_not_block_the_run() {
    let conflict = "git init -q -b main . && git config user.name n && git config user.email e@e \
                    && echo base > f && git add f && git commit -qm base && git checkout -qb side \
                    && echo side > f && git commit -qam side && git checkout -q main \
                    && echo main > f && git commit -qam main; git rebase side";
    let carry_on = "echo both > f && git add f && git rebase --continue && git log --oneline";
    let deaf = "trap '' TERM; echo $$ > deaf; sh -c \"trap '' TERM; while :; do sleep 1; done\"";
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": conflict }))
        .tool("Bash", json!({ "command": carry_on }))
        .tool("Bash", json!({ "command": deaf, "timeout": 3_500 }))
        .tool("Bash", json!({ "command": "sleep 1000 & echo $! > left; echo started" }))
        .tool("Bash", json!({ "command": "cat; less f; echo end" }))
        .reply("Done.");
    let server = serve(scenario);
    let began = Stopwatch::start();
    let ended = RunBuilder::against(&server).args(["Do it."]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    began.assert_within(Duration::from_secs(30), "commands that hang");
    assert_eq!(server.violations(), [""; 0]);
    let told = told(&server.requests()[5]);
    assert!(told[0].contains("CONFLICT"), "{told:?}");
    assert!(told[1].contains("main") && !told[1].contains("Exit code"), "{told:?}");
    assert!(told[2].contains("Timed out after 3s 500ms"), "{told:?}");
    assert!(told[3].contains("started"), "{told:?}");
    assert!(told[4].contains("end"), "{told:?}");
    for name in ["deaf", "left"] {
        let pid = std::fs::read_to_string(ended.work().join(name)).expect("it was written");
        assert!(!is_alive(pid.trim().parse().expect("a process id")), "{name} is gone");
    }
}

#[tokio::test]
async fn a_call_that_is_not_allowed_is_denied_reported_and_listed() {
    let command = json!({ "command": "echo no > file" });
    let scenario = Scenario::new().tool("Bash", command.clone()).reply("I was not allowed to.");
    let server = serve(scenario);
    let ended =
        RunBuilder::against(&server).args(["--permission-mode", "default", "Do it."]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "the model made the best of it: {ended:?}");
    assert!(!ended.work().join("file").exists());
    let results = blocks(&server.requests()[1], "tool_result");
    assert_eq!(results[0]["is_error"], true, "{results:?}");
    assert!(results[0]["content"].to_string().contains("cannot ask for permission"), "{results:?}");
    let denials = result["permission_denials"].as_array().expect("a list");
    assert_eq!(denials.len(), 1, "{result}");
    assert_eq!((&denials[0]["tool_name"], &denials[0]["tool_input"]), (&json!("Bash"), &command));
    assert_eq!(denials[0]["tool_use_id"], results[0]["tool_use_id"]);
    assert_eq!(result["tools"]["denied"], 1);
    assert_eq!(ended.stderr.lines().count(), 1, "one warning: {ended:?}");
    assert!(ended.stderr.contains("warning: Bash"), "{ended:?}");
}

#[tokio::test]
async fn a_run_with_only_denied_calls_is_not_a_success() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo no > file" }))
        .after(AfterLast::RepeatLast);
    let server = serve(scenario);
    let ended = RunBuilder::against(&server)
        .args(["--permission-mode", "default", "--max-turns", "3", "Do it."])
        .run()
        .await;
    let result = ended.result();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(result["permission_denials"].as_array().map(Vec::len), Some(3), "{result}");
    assert_eq!(result["subtype"], "error_max_turns");
    assert_eq!(result.get("result"), None::<&Value>);
}
