//! Compaction: what it keeps, what it costs, how it is reported, and that it survives every end
//! of the process.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use outlast::model::{cost, model_facts};
use outlast::rehearsal::{
    FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptedFaultKind,
};
use outlast::transcript::Usage;
use serde_json::{Value, json};

use super::context::{assert_clean, assert_read, strategy};
use super::resume_after_kill::journal;
use super::timeouts::{UNHURRIED, messages as frames, with};
use crate::agent::full_windows::{
    SUMMARY, after_summaries, assert_paired, part, reading, refused, summing_requests, summing_up,
    window,
};
use crate::support::requests::{messages, texts};
use crate::support::stopwatch::Stopwatch;
use crate::support::{FinishedProcess, RunBuilder, RunningProcess, serve, with_time_limit};

const SESSION: &str = "5e551011-0000-4000-8000-0000000000c0";
const KNOWN: [&str; 2] = ["--context-window", "60000"];

/// The place of `text` among the texts of a message.
#[track_caller]
fn place(texts: &[String], text: &str) -> usize {
    let found = texts.iter().position(|one| one.contains(text));
    found.unwrap_or_else(|| panic!("{text:?} is not in {texts:#?}"))
}

// --- what must survive ------------------------------------------------------------------------

const TASK: &str = "Fix the parser: \"äöü\" must not  lose   spaces.\n\tConstraint: never touch \
                    vendor/ (ticket 7f3a9c10-44e2). ";

fn eventful() -> Scenario {
    let todo = |content: &str, status: &str| json!({ "content": content, "status": status });
    let todos = json!({ "todos": [
        todo("read the grammar", "completed"),
        todo("fix lexer.rs", "in_progress"),
        todo("run the tests", "pending"),
    ] });
    let fails = "echo 'error[E0412]: cannot find type Tok at lexer.rs:17' >&2; exit 3";
    let later = "echo 'changed after it was read' >> grammar.txt";
    let start = Scenario::new()
        .rules(window(60_000))
        .tool("TodoWrite", todos)
        .tool("Read", json!({ "file_path": "grammar.txt" }))
        .tool("Write", json!({ "file_path": "lexer.rs", "content": "fn lex() {}\n" }))
        .tool("Bash", json!({ "command": fails }))
        .tool("Bash", json!({ "command": later }));
    // The to-dos that are still open are recalled to the model once.
    summing_up(reading(start, 5, 250).reply("Mended.").reply("Mended."))
}

#[tokio::test]
async fn a_compaction_keeps_the_required_facts_in_the_next_request() {
    let server = serve(eventful());
    let trial = RunBuilder::against(&server);
    fs::write(trial.work().join("grammar.txt"), "expr := term '+' term\n").expect("room");
    let ended = trial.args(KNOWN).args([TASK]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_clean(&server, &ended);
    assert_eq!(summing_requests(&server).len(), 1, "{ended:?}");
    let after = after_summaries(&server).remove(0);
    assert_paired(&after);
    let all = messages(&after);
    let root = texts(&all[0]);
    let task = root.iter().position(|text| text == TASK).expect("the task, word for word");
    let summary = root.iter().position(|text| text == SUMMARY).expect("the summary");
    let facts = place(&root, "open_todos");
    assert!(task < summary && summary < facts, "{root:#?}");
    let facts: Value = serde_json::from_str(&root[facts]).expect("facts are JSON");
    let todo = |content: &str, status: &str| json!({ "content": content, "status": status });
    let open = [todo("fix lexer.rs", "in_progress"), todo("run the tests", "pending")];
    assert_eq!(facts["open_todos"], json!(open), "what is done is not open");
    let files = facts["files"].to_string();
    assert!(files.contains(r#"{"path":"grammar.txt","state":"read"}"#), "{files}");
    assert!(files.contains(r#"{"path":"lexer.rs","state":"written"}"#), "{files}");
    let failures = facts["last_failures"].to_string();
    assert!(failures.contains("error[E0412]: cannot find type Tok at lexer.rs:17"), "{failures}");
    assert!(failures.contains("exit 3"), "the command, too: {failures}");
    let file = &root[place(&root, "File grammar.txt:")];
    assert!(file.contains("expr := term '+' term"), "{file}");
    assert!(file.contains("changed after it was read"), "as it is now: {file}");
    assert!(root[place(&root, "File lexer.rs:")].contains("fn lex() {}"));
    // The latest round is there whole, the oldest is gone.
    let rest = Value::from(all[1..].to_vec()).to_string();
    assert!(rest.contains("line 0250") && !rest.contains("part 1, line"), "{}", rest.len());
    // Nothing of it is said twice by the next request.
    let last = server.requests().pop().expect("there were requests");
    assert_eq!(texts(&messages(&last)[0]), root, "the root stays as it is, for the cache");
}

/// The second compaction keeps the prompts since the first, and summaries do not nest.
#[tokio::test]
async fn the_second_compaction_keeps_what_the_first_one_kept() {
    let server = serve(summing_up(
        reading(Scenario::new().rules(window(60_000)), 5, 250)
            .reply("Halfway.")
            .tool("Write", json!({ "file_path": "half.txt", "content": "Half of it.\n" }))
            .tool("Bash", part(250))
            .times(5)
            .reply("All read."),
    ));
    let first = ["--session-id", SESSION, TASK];
    let ended = RunBuilder::against(&server).args(KNOWN).args(first).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let second = ["--resume", SESSION, "Now the other half, in green."];
    let ended = ended.again(&server.base_url()).args(KNOWN).args(second).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_clean(&server, &ended);
    let last = after_summaries(&server).pop().expect("it was compacted");
    assert!(summing_requests(&server).len() >= 2, "{ended:?}");
    let root = texts(&messages(&last)[0]);
    for text in [TASK, "Now the other half, in green.", SUMMARY] {
        let count = root.iter().filter(|one| *one == text).count();
        assert_eq!(count, 1, "{text:?} in {root:#?}");
    }
    assert!(root[place(&root, "open_todos")].contains("half.txt"), "{root:#?}");
    assert!(root[place(&root, "File half.txt:")].contains("Half of it."));
}

// --- how it is told, and what it costs ---------------------------------------------------------

#[tokio::test]
async fn a_compaction_is_reported_in_text_and_json() {
    let scenario =
        || summing_up(reading(Scenario::new().rules(window(60_000)), 5, 250).reply("All read."));
    let server = serve(scenario());
    let ended =
        super::context::run(&server, &[&KNOWN[..], &["--output-format", "text"]].concat()).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "All read.\n"), "{ended:?}");
    let told: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(told.len(), 1, "{ended:?}");
    let words = "outlast: compacted the conversation from about ";
    let figures = told[0].strip_prefix(words).and_then(|rest| rest.strip_suffix(" tokens"));
    let figures = figures.and_then(|figures| figures.split_once(" to about "));
    let (before, after) = figures.unwrap_or_else(|| panic!("{told:?}"));
    let server = serve(scenario());
    let args = [&KNOWN[..], &["--output-format", "stream-json"]].concat();
    let ended = super::context::run(&server, &args).await;
    let boundaries = frames(&ended, "compact_boundary");
    assert_eq!(boundaries.len(), 1, "{ended:?}");
    let metadata = &boundaries[0]["compact_metadata"];
    let number = |key: &str| metadata[key].as_u64().expect("a number");
    assert_eq!(metadata["trigger"], "auto");
    assert!(number("pre_tokens") > 38_000 && number("post_tokens") < 30_000, "{metadata}");
    // Folders have names of different lengths, and are part of the system prompt.
    let near =
        |told: &str, number: u64| told.parse::<u64>().is_ok_and(|told| told.abs_diff(number) < 100);
    assert!(near(before, number("pre_tokens")) && near(after, number("post_tokens")), "{told:?}");
    // A summary is no reply: the conversation on standard output does not show one.
    assert!(!ended.stdout.contains(SUMMARY), "{ended:?}");
    assert_eq!(ended.result()["num_turns"], 6);
}

#[tokio::test]
async fn a_summary_counts_towards_the_cost_of_the_run() {
    let compactions = Scenario::new().reply(SUMMARY).usage(40_000, 2_000);
    let scenario = reading(Scenario::new().rules(window(60_000)), 5, 250).reply("All read.");
    let server = serve(scenario.compactions(compactions));
    let args = [&KNOWN[..], &["--output-format", "stream-json"]].concat();
    let ended = super::context::run(&server, &args).await;
    let result = ended.result();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let prices = model_facts("claude-sonnet-5-5").prices.expect("a known model");
    let usage_of = |usage: &Value| Usage {
        input_tokens: usage["input_tokens"].as_u64().unwrap_or_default(),
        output_tokens: usage["output_tokens"].as_u64().unwrap_or_default(),
        cache_creation_input_tokens: usage["cache_creation_input_tokens"].as_u64().unwrap_or(0),
        cache_read_input_tokens: usage["cache_read_input_tokens"].as_u64().unwrap_or(0),
        web_search_requests: 0,
    };
    // Some replies have two frames, with the same usage.
    let replies = ended.frames().into_iter().filter(|frame| frame["type"] == "assistant");
    let mut replies: Vec<Value> = replies.map(|frame| frame["message"].clone()).collect();
    replies.dedup_by_key(|message| message["id"].to_string());
    assert_eq!(replies.len(), 6);
    let summary = Usage { input_tokens: 40_000, output_tokens: 2_000, ..Usage::default() };
    let usages = replies.iter().map(|message| usage_of(&message["usage"])).chain([summary]);
    let total: f64 = usages.map(|usage| cost(&prices, &usage).as_dollars()).sum();
    let told = result["total_cost_usd"].as_f64().unwrap_or_default();
    assert!((told - total).abs() < 1e-9, "{told} is not {total}: {result}");
    assert_eq!(result["recovery"]["requests"], 7);
}

/// The last money is not for a summary that can wait.
#[tokio::test]
async fn a_summary_never_exceeds_the_budget() {
    let scenario = reading(Scenario::new().rules(window(60_000)), 14, 250).reply("All read.");
    for ceiling in ["0.40", "0.25", "0.15"] {
        let server = serve(summing_up(scenario.clone()));
        let args = [&KNOWN[..], &["--max-budget-usd", ceiling]].concat();
        let ended = super::context::run(&server, &args).await;
        let result = ended.result();
        assert_eq!(result["terminal_reason"], "max_budget_usd", "{ceiling}: {ended:?}");
        let spent = result["budget"]["spent_usd"].as_f64().unwrap_or(f64::NAN);
        assert!(spent <= ceiling.parse().expect("a number"), "{ceiling}: {result}");
        assert_clean(&server, &ended);
    }
}

// --- slow ones, and ones that are cut off ------------------------------------------------------

/// Conversation until a summary is asked for, which is answered like this.
fn slow(compactions: Scenario) -> Scenario {
    let scenario = reading(Scenario::new().rules(window(60_000)), 5, 250).reply("All read.");
    scenario.compactions(compactions)
}

#[tokio::test]
async fn a_slow_summary_is_waited_for_with_heartbeats() {
    let scenario = slow(Scenario::new().reply(SUMMARY).delay(Duration::from_secs(250)));
    let server = serve(scenario.time_scale(50.0));
    let args = [&KNOWN[..], &UNHURRIED, &["--time-scale", "50"]].concat();
    let ended = super::context::run(&server, &args).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (before, _) = ended.stderr.split_once("compacted").expect("it was compacted");
    let beats =
        before.lines().filter(|line| line.contains("waiting for claude-sonnet-5-5")).count();
    // One in every 30 s of 250, if the machine is never busy.
    assert!(beats >= 3, "{ended:?}");
    assert_clean(&server, &ended);
}

/// Waits until a summary is asked for.
async fn until_asked(server: &RehearsalServer, number: usize) {
    with_time_limit("the request for a summary", async {
        let mut count = 1;
        loop {
            server.wait_for_request(count).await;
            if summing_requests(server).len() >= number {
                return;
            }
            count = server.requests().len() + 1;
        }
    })
    .await;
}

fn stalled() -> Scenario {
    slow(
        Scenario::new()
            .interrupted(ScriptedFaultKind::Stall, FaultPosition::Events(4))
            .reply(SUMMARY),
    )
}

fn begin(server: &RehearsalServer) -> RunningProcess {
    RunBuilder::against(server).args(KNOWN).args(["--session-id", SESSION, TASK]).start()
}

#[tokio::test]
async fn a_signal_during_a_summary_ends_the_run_soon_and_the_session_goes_on() {
    let server = serve(stalled());
    let running = begin(&server);
    until_asked(&server, 1).await;
    running.signal(Signal::SIGTERM);
    let asked = Stopwatch::start();
    let ended = running.end().await;
    asked.assert_within(Duration::from_secs(4), format_args!("{ended:?}"));
    let result = ended.result();
    assert_eq!((ended.code, &result["terminal_reason"]), (Some(143), &json!("aborted_streaming")));
    assert_eq!(result["durable"], true, "{result}");
    assert_eq!(result["budget"]["spent_usd"], result["total_cost_usd"], "{result}");
    goes_on(&server, ended, Restored::Whole).await;
}

/// The conversation at the start of a resumed process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Restored {
    /// No summary was kept.
    Whole,
    Compacted,
}

/// Takes the session up, and looks at the first request of it.
async fn goes_on(
    server: &RehearsalServer,
    ended: FinishedProcess,
    expected: Restored,
) -> ReceivedRequest {
    let before = server.requests().len();
    let args = ["--resume", SESSION];
    let ended = ended.again(&server.base_url()).args(KNOWN).args(args).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.result()["result"], "All read.");
    assert_read(&ended, 5);
    assert_clean(server, &ended);
    assert_eq!(refused(server).len(), 0);
    let first = server.requests()[before].clone();
    let summed_up = summing_requests(server).len();
    let root = messages(&first)[0].to_string();
    match expected {
        // It is as crowded as before, so the summary is asked for again.
        Restored::Whole => {
            assert_eq!(first.header("x-outlast-source"), Some("compact"));
            // The prompt goes on, and so do its counts.
            assert_eq!((summed_up, strategy(&ended, "auto_compact")), (2, 2), "{ended:?}");
        }
        Restored::Compacted => {
            assert!(texts(&messages(&first)[0]).contains(&SUMMARY.to_owned()), "{root}");
            assert!(!first.body.to_string().contains("part 1, line"), "what was summed up is gone");
            assert_eq!((summed_up, strategy(&ended, "auto_compact")), (1, 1), "{ended:?}");
        }
    }
    assert!(root.contains("ticket 7f3a9c10-44e2"), "the task: {root}");
    first
}

async fn killed(mut running: RunningProcess) -> FinishedProcess {
    running.child.start_kill().expect("it can be killed");
    running.end().await
}

#[tokio::test]
async fn a_session_killed_during_a_summary_keeps_its_whole_conversation() {
    let server = serve(stalled());
    let running = begin(&server);
    until_asked(&server, 1).await;
    let ended = killed(running).await;
    assert!(!fs::read_to_string(journal(&ended.config())).expect("text").contains("rewrite"));
    goes_on(&server, ended, Restored::Whole).await;
}

/// Killed while the first request after the summary is being answered.
fn cut_after_a_summary() -> Scenario {
    let scenario = reading(Scenario::new().rules(window(60_000)), 5, 250)
        .interrupted(ScriptedFaultKind::Stall, FaultPosition::Request)
        .reply("All read.");
    scenario.compactions(Scenario::new().reply(SUMMARY))
}

#[tokio::test]
async fn a_session_killed_after_a_compaction_has_the_compacted_conversation() {
    let server = serve(cut_after_a_summary());
    let running = begin(&server);
    // Five turns, the summary, and the request after it.
    with_time_limit("the request after the summary", server.wait_for_request(7)).await;
    assert_eq!(summing_requests(&server).len(), 1);
    let after = after_summaries(&server).remove(0);
    let ended = killed(running).await;
    let first = goes_on(&server, ended, Restored::Compacted).await;
    assert_eq!(first.body["messages"], after.body["messages"], "the same, to the byte");
}

/// The change on disk is cut off in its middle: the conversation is the one before it.
#[tokio::test]
async fn a_torn_compaction_record_leaves_the_conversation_unchanged() {
    let server = serve(cut_after_a_summary().compactions(Scenario::new().reply(SUMMARY).times(2)));
    let running = begin(&server);
    with_time_limit("the request after the summary", server.wait_for_request(7)).await;
    let ended = killed(running).await;
    let path = journal(&ended.config());
    let text = fs::read_to_string(&path).expect("text");
    let start = text.find(r#""kind":"rewrite""#).expect("a record of the change");
    let end = start + text[start..].find('\n').expect("it ends") / 2;
    fs::write(&path, &text[..text.floor_char_boundary(end)]).expect("it is ours");
    goes_on(&server, ended, Restored::Whole).await;
}

#[tokio::test]
async fn a_fork_of_a_compacted_session_begins_with_its_summary() {
    let server = serve(summing_up(
        reading(Scenario::new().rules(window(60_000)), 5, 250).reply("All read.").reply("Forked."),
    ));
    let ended = begin(&server).end().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let before = messages(&server.requests().pop().expect("requests"));
    let args = ["--resume", SESSION, "--fork-session", "And now?"];
    let ended = ended.again(&server.base_url()).args(KNOWN).args(args).run().await;
    assert_eq!((ended.code, &ended.result()["result"]), (Some(0), &json!("Forked.")), "{ended:?}");
    assert_clean(&server, &ended);
    let last = server.requests().pop().expect("requests");
    let forked = messages(&last);
    assert_eq!(texts(&forked[0]), texts(&before[0]));
    assert!(forked.last().is_some_and(|last| last.to_string().contains("And now?")));
}

/// A setting that asks for it early, and one that never does.
#[tokio::test]
async fn the_compaction_threshold_is_a_setting() {
    for (settings, summaries) in
        [(json!({ "compactAt": 0.25 }), 1), (json!({ "autoCompactEnabled": false }), 0)]
    {
        let scenario = reading(Scenario::new().rules(window(60_000)), 4, 150).reply("All read.");
        let server = serve(summing_up(scenario));
        let trial = with(RunBuilder::against(&server), &settings);
        let ended = trial.args(KNOWN).args(["Read it all."]).run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(summing_requests(&server).len(), summaries, "{settings}: {ended:?}");
        assert_clean(&server, &ended);
    }
}
