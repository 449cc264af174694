//! Trials of history: which session a run goes on with, who may have it, and what is kept.

use std::fs;
use std::path::Path;

use outlast::rehearsal::{AfterLast, FaultPosition, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};

use super::kills::can_trace;
use super::resume_after_kill::journal;
use crate::support::programs::installed;
use crate::support::requests::{blocks, messages};
use crate::support::{RunBuilder, serve, with_time_limit};

const SESSION: &str = "5e551011-0000-4000-8000-000000000002";
const OTHER: &str = "5e551011-0000-4000-8000-000000000003";

fn talk() -> Scenario {
    Scenario::new().reply("Yes.").after(AfterLast::RepeatLast)
}

/// Everything the user said in a request.
fn said(messages: &[Value]) -> Vec<&str> {
    let users = messages.iter().filter(|message| message["role"] == "user");
    let blocks = users.filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn a_session_in_use_is_refused_and_its_owner_named() {
    let scenario = Scenario::new()
        .reply("One.")
        .reply("Two.")
        .fault(ScriptedFaultKind::Stall, FaultPosition::Request);
    let server = serve(scenario.after(AfterLast::RepeatLast));
    let ended = RunBuilder::against(&server).args(["--session-id", SESSION, "One?"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let config = ended.config();
    let first = ended.again(&server.base_url()).args(["--resume", SESSION, "Two?"]).start();
    server.wait_for_request(2).await;
    let second = RunBuilder::against(&server)
        .env("OUTLAST_CONFIG_DIR", &config.display().to_string())
        .args(["--resume", SESSION, "Three?"])
        .run()
        .await;
    let result = second.result();
    assert_eq!(second.code, Some(75), "{second:?}");
    assert_eq!(result["retryable"], true, "later makes sense: {result}");
    let line = second.stderr.trim_end();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains(SESSION) && line.contains(&format!("process {}", first.pid())), "{line}");
    let broken = RunBuilder::against(&server)
        .env("OUTLAST_CONFIG_DIR", &config.display().to_string())
        .args(["--resume", SESSION, "--settings", "{\"maxTurns\": \"many\"}", "Three?"])
        .run()
        .await;
    assert_eq!(broken.code, Some(75), "its settings do not matter yet: {broken:?}");
    assert_eq!(server.requests().len(), 2, "nothing was sent");
    drop(first);
}

/// The contract, which the settings need, and the conversation are from one reading under the lock.
#[tokio::test]
async fn a_resumed_session_is_locked_and_read_once() {
    if !can_trace() {
        return;
    }
    let server = serve(talk());
    let long = "word ".repeat(20_000);
    let begin = ["--session-id", SESSION, &long];
    let ended = RunBuilder::against(&server).args(begin).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let name = format!("{SESSION}.jsonl");
    let files = files_below(&ended.config());
    let file = files.iter().find(|file| file.ends_with(&name)).expect("a journal");
    let size = fs::metadata(file).expect("it is there").len();
    let trace = format!(
        "exec strace -D -f -qq -s 0 -o trace -e trace=open,openat,read,pread64 -P '{}' \"$@\"",
        file.display()
    );
    let resume = ["--resume", SESSION, "More?"];
    let ended = ended.again(&server.base_url()).args(resume).in_shell(&trace).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let trace = fs::read_to_string(ended.work().join("trace")).expect("a trace");
    let opened = trace.lines().filter(|line| line.contains("O_RDWR")).count();
    assert_eq!(opened, 1, "{trace}");
    let outcome =
        |line: &str| line.rsplit_once("= ").and_then(|(_, bytes)| bytes.parse::<u64>().ok());
    let reads = trace.lines().filter(|line| line.contains("read"));
    let bytes: u64 = reads.filter_map(outcome).sum();
    // The first lines are read twice: they say which folder the session belongs to.
    assert!((size..size + size / 2).contains(&bytes), "{bytes} of {size} bytes: {trace}");
}

#[tokio::test]
async fn a_fork_counts_its_own_calls_also_without_a_journal() {
    let command = json!({ "command": "true" });
    let server = serve(Scenario::new().tool("Bash", command).reply("Done.").times(2));
    let args = ["--session-id", SESSION, "--max-turns", "1", "Do it."];
    let mut ended = RunBuilder::against(&server).args(args).run().await;
    assert_eq!((ended.code, &ended.result()["tools"]["calls"]), (Some(3), &json!(1)), "{ended:?}");
    for flags in [&[][..], &["--no-session-persistence"]] {
        let fork = ended.again(&server.base_url()).args(["--resume", SESSION, "--fork-session"]);
        ended = fork.args(["--max-turns", "9"]).args(flags).run().await;
        let result = ended.result();
        assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
        assert_eq!(result["tools"]["calls"], 0, "{flags:?}");
    }
}

#[tokio::test]
async fn a_fork_copies_the_conversation_and_leaves_the_session_unchanged() {
    let server = serve(talk());
    let run = RunBuilder::against(&server);
    let hook = json!({ "type": "command", "command": "cat >> ../starts; echo >> ../starts" });
    let hooks = json!({ "hooks": { "SessionStart": [{ "hooks": [hook] }] } });
    fs::create_dir_all(run.config()).expect("a folder");
    fs::write(run.config().join("settings.json"), hooks.to_string()).expect("written");
    let ended = run.args(["--session-id", SESSION, "One?"]).run().await;
    let original = journal(&ended.config());
    let before = fs::read(&original).expect("it is there");
    let ended = ended
        .again(&server.base_url())
        .args(["--resume", SESSION, "--fork-session", "--session-id", OTHER, "Two?"])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.result()["session_id"], OTHER);
    assert_eq!(fs::read(&original).expect("it is still there"), before);
    let ended = ended.again(&server.base_url()).args(["--resume", OTHER, "Three?"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = messages(server.requests().last().expect("there were some"));
    assert_eq!(said(&last), ["One?", "Two?", "Three?"]);
    // Without an id of one's own, a fork gets a fresh one.
    let ended =
        ended.again(&server.base_url()).args(["--continue", "--fork-session", "Four?"]).run().await;
    let id = ended.result()["session_id"].clone();
    assert!(id != SESSION && id != OTHER, "{id}");
    assert_eq!(server.violations(), [""; 0]);
    let starts = fs::read_to_string(ended.work().join("../starts")).expect("hooks ran");
    let starts = starts.lines().filter(|line| !line.is_empty());
    let starts = starts.map(|line| serde_json::from_str(line).unwrap_or(Value::Null));
    let sources: Vec<Value> = starts.map(|start: Value| start["source"].clone()).collect();
    assert_eq!(sources, ["startup", "fork", "resume", "fork"]);
}

#[tokio::test]
async fn an_invalid_or_taken_session_id_is_rejected() {
    let server = serve(talk());
    let ended = RunBuilder::against(&server).args(["--session-id", "mine", "One?"]).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--session-id") && ended.stderr.contains("UUID"), "{ended:?}");
    assert_eq!(files_below(&ended.config()), Vec::<std::path::PathBuf>::new());
    let ended = ended.again(&server.base_url()).args(["--session-id", SESSION, "One?"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = ended.again(&server.base_url()).args(["--session-id", SESSION, "Two?"]).run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("exists already"), "{ended:?}");
    let again = ended.again(&server.base_url()).args(["--resume", OTHER, "Two?"]);
    let mut ended = again.run().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains(&format!("the session {OTHER} was not found")), "{ended:?}");
    // Archived by a link, whose disk is gone.
    let journal = files_below(&ended.config())
        .into_iter()
        .find(|path| path.ends_with(format!("{SESSION}.jsonl")));
    let taken = journal.expect("the session was recorded").with_file_name(format!("{OTHER}.jsonl"));
    std::os::unix::fs::symlink("/nonexistent/disk", &taken).expect("the name is free");
    for flag in ["--session-id", "--resume", "--resume-or-start"] {
        ended = ended.again(&server.base_url()).args([flag, OTHER, "Two?"]).run().await;
        assert_eq!(ended.code, Some(2), "{flag}: {ended:?}");
        let wanted = format!("{}: it is a link, and No such file", taken.display());
        assert!(ended.stderr.contains(&wanted), "{flag}: {ended:?}");
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn without_persistence_nothing_is_written() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "true" })).reply("Done.");
    let server = serve(scenario);
    let ended =
        RunBuilder::against(&server).args(["--no-session-persistence", "Do it."]).run().await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((&result["durable"], &result["journal"]["state"]), (&json!(false), &json!("off")));
    assert_eq!(result["warnings"], json!([]), "no warning is expected");
    assert_eq!(files_below(&ended.config()), Vec::<std::path::PathBuf>::new());
    let ended = ended.again(&server.base_url()).args(["--continue"]).run().await;
    assert_eq!(ended.code, Some(2), "there is nothing to continue: {ended:?}");
}

/// The kernel kills a process that exceeds its file size limit, unless it ignores SIGXFSZ.
#[tokio::test]
async fn a_file_size_limit_loses_the_journal_but_not_the_run() {
    let command = json!({ "command": "seq 1 3000" });
    let server = serve(Scenario::new().tool("Bash", command).times(3).reply("Done."));
    let trial = RunBuilder::against(&server);
    let limited = format!("ulimit -f 16; exec '{}' \"$@\"", env!("CARGO_BIN_EXE_outlast"));
    let mut shell = tokio::process::Command::new(installed("sh"));
    shell.args(["-c", &limited, "sh", "--permission-mode", "bypassPermissions", "Do it."]);
    shell
        .current_dir(trial.work())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    shell.env("OUTLAST_CONFIG_DIR", trial.work().join("config"));
    shell.env("ANTHROPIC_BASE_URL", server.base_url()).stdin(std::process::Stdio::null());
    let ended = with_time_limit("the end of a run", shell.kill_on_drop(true).output()).await;
    let ended = ended.expect("there is a shell");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let result: Value = serde_json::from_slice(&ended.stdout).expect("a result");
    assert_eq!((&result["result"], &result["journal"]["state"]), (&json!("Done."), &json!("lost")));
}

/// The thinking in a history may only go to the model that signed it, even if the process that
/// changed the model is gone.
#[tokio::test]
async fn a_session_resumed_with_another_model_drops_its_thinking() {
    let think = |name: &str| format!("I am {name}.");
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking(&think("sonnet"))
        .status(529)
        .times(3)
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking(&think("opus"))
        .fault(ScriptedFaultKind::Stall, FaultPosition::Request)
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking(&think("opus"))
        .reply("Done.")
        .reply("Done again.");
    let server = serve(scenario);
    let chain = ["--model", "sonnet", "--fallback-model", "opus"];
    let mut running =
        RunBuilder::against(&server).args(chain).args(["--session-id", SESSION, "Go."]).start();
    // Killed between the switch and the other model's first reply.
    let fifth = with_time_limit("the fifth request", server.wait_for_request(5)).await;
    assert_eq!(fifth.model(), "claude-opus-5-5");
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    let ended = ended.again(&server.base_url()).args(chain).args(["--resume", SESSION]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let models: Vec<String> =
        server.requests().iter().skip(5).map(|request| request.model().to_owned()).collect();
    assert_eq!(models, ["claude-opus-5-5", "claude-opus-5-5"], "the switch is not forgotten");
    // A new prompt begins with the preferred model again.
    let ended = ended
        .again(&server.base_url())
        .args(chain)
        .args(["--resume", SESSION, "More."])
        .run()
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let requests = server.requests();
    let last = requests.last().expect("there were some");
    assert_eq!(last.model(), "claude-sonnet-5-5");
    assert_eq!(blocks(last, "thinking"), Vec::<Value>::new());
    assert_eq!(server.violations(), [""; 0], "no signature was refused");
}
