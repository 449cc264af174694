//! Conversations that outgrow the context window: the task is finished, or the run ends with a
//! report of what filled the window.

use std::fs;
use std::num::NonZeroU64;

use outlast::rehearsal::{
    AfterLast, ReceivedRequest, RehearsalServer, Scenario, ScriptLine, ServerRules,
};
use serde_json::{Value, json};

use super::resume_after_kill::{blocks, messages};
use super::timeouts::messages as frames;
use crate::support::{FinishedProcess, RunBuilder, serve};

pub(super) const SUMMARY: &str = "Read so far: nothing but numbered lines. Next: go on reading.";

/// Prints the next part of something long: so many lines of 100 bytes.
pub(super) fn part(lines: u32) -> Value {
    let command = format!(
        "n=$(cat part 2>/dev/null || echo 0); n=$((n + 1)); echo $n > part; \
         seq -f \"part $n, line %04g: {}\" 1 {lines}",
        "all work and no play makes a long and rather tedious log of it ".repeat(2).split_at(80).0
    );
    json!({ "command": command })
}

/// A model that reads part after part.
pub(super) fn reading(scenario: Scenario, parts: u32, lines: u32) -> Scenario {
    scenario.tool("Bash", part(lines)).and_text("On to the next part.").times(parts)
}

pub(super) fn window(tokens: u64) -> ServerRules {
    ServerRules { token_limit: NonZeroU64::new(tokens), ..ServerRules::default() }
}

/// A service that sums up whatever it is asked to.
pub(super) fn summing_up(scenario: Scenario) -> Scenario {
    scenario.compactions(Scenario::new().reply(SUMMARY).times(9))
}

pub(super) async fn run(server: &RehearsalServer, args: &[&str]) -> FinishedProcess {
    RunBuilder::against(server).args(args).args(["Read it all."]).run().await
}

/// How many parts were read.
#[track_caller]
pub(super) fn assert_read(ended: &FinishedProcess, parts: u32) {
    let read = fs::read_to_string(ended.work().join("part")).expect("something was read");
    assert_eq!(read.trim(), parts.to_string());
}

fn is_summing_up(request: &ReceivedRequest) -> bool {
    request.header("x-outlast-source") == Some("compact")
}

pub(super) fn summing_requests(server: &RehearsalServer) -> Vec<ReceivedRequest> {
    server.requests().into_iter().filter(is_summing_up).collect()
}

/// The first request for a reply after each one for a summary.
pub(super) fn after_summaries(server: &RehearsalServer) -> Vec<ReceivedRequest> {
    let requests = server.requests();
    let follows = |pair: &&[ReceivedRequest]| is_summing_up(&pair[0]) && !is_summing_up(&pair[1]);
    requests.windows(2).filter(follows).map(|pair| pair[1].clone()).collect()
}

/// The requests that were answered by a rule: with a 400.
pub(super) fn refused(server: &RehearsalServer) -> Vec<ReceivedRequest> {
    server.requests().into_iter().filter(|request| request.step.is_none()).collect()
}

/// No request that a validating server would refuse, and none again that was refused. The
/// referee's rules, and an eye of our own on the one rule that matters most.
#[track_caller]
pub(super) fn assert_clean(server: &RehearsalServer, ended: &FinishedProcess) {
    assert_eq!(server.violations(), [""; 0], "{ended:?}");
    let requests = server.requests();
    for pair in requests.windows(2) {
        let again = pair[0].step.is_none() && pair[0].body == pair[1].body;
        assert!(!again, "a refused request was sent again");
    }
    requests.iter().for_each(assert_paired);
}

/// Every call is answered in the next message, and nothing else is.
#[track_caller]
pub(super) fn assert_paired(request: &ReceivedRequest) {
    let ids = |message: Option<&Value>, kind: &str, key: &str| {
        let blocks =
            message.and_then(|message| message["content"].as_array()).into_iter().flatten();
        let of_kind = blocks.filter(|block| block["type"] == kind);
        let mut ids: Vec<String> = of_kind.map(|block| block[key].to_string()).collect();
        ids.sort_unstable();
        ids
    };
    let all = messages(request);
    for (at, message) in all.iter().enumerate() {
        let calls = ids(Some(message), "tool_use", "id");
        assert_eq!(calls, ids(all.get(at + 1), "tool_result", "tool_use_id"), "after {at}");
    }
    assert_eq!(ids(all.first(), "tool_result", "tool_use_id"), [""; 0], "orphans at the start");
}

pub(super) fn strategy(ended: &FinishedProcess, name: &str) -> u64 {
    ended.result()["recovery"]["strategies"][name].as_u64().unwrap_or_default()
}

/// The texts of a message.
pub(super) fn texts(message: &Value) -> Vec<String> {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str().map(str::to_owned)).collect()
}

// --- a true limit -----------------------------------------------------------------------------

/// The window size is not configured: it is learned from the one refusal.
#[tokio::test]
async fn an_unknown_context_window_is_learned_and_the_task_finished() {
    let scenario = reading(Scenario::new().rules(window(60_000)), 14, 250).reply("All read.");
    let server = serve(summing_up(scenario));
    let ended = run(&server, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.result()["result"], "All read.");
    assert_read(&ended, 14);
    assert_clean(&server, &ended);
    assert_eq!(refused(&server).len(), 1, "one refusal is enough to learn from");
}

/// What was said beforehand is kept to from the start.
#[tokio::test]
async fn a_known_context_window_is_never_exceeded() {
    let scenario = reading(Scenario::new().rules(window(60_000)), 14, 250).reply("All read.");
    let server = serve(summing_up(scenario));
    let ended = run(&server, &["--context-window", "60000"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_read(&ended, 14);
    assert_clean(&server, &ended);
    assert_eq!(refused(&server).len(), 0, "no request was too long");
    assert!(strategy(&ended, "auto_compact") >= 2, "{ended:?}");
    assert_eq!(summing_requests(&server).len() as u64, strategy(&ended, "auto_compact"));
}

/// Many results come at once: their sum is what counts, before the next request.
#[tokio::test]
async fn a_batch_of_results_is_measured_before_it_is_sent() {
    let mut scenario = Scenario::new().rules(window(60_000)).tool("Bash", part(250));
    for _ in 1..7 {
        scenario = scenario.and_tool("Bash", part(250));
    }
    // Seven times 25 kB in one turn is most of the window; twice is more than all of it.
    let server = serve(summing_up(scenario.times(3).reply("All read.")));
    let ended = run(&server, &["--context-window", "60000"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_read(&ended, 21);
    assert_clean(&server, &ended);
    assert_eq!(refused(&server).len(), 0);
}

/// One result of 2 MB, by every tool that can bring one.
#[tokio::test]
async fn a_result_of_two_megabytes_is_cut_before_it_is_sent() {
    let scenario = Scenario::new()
        .rules(window(60_000))
        .tool("Bash", json!({ "command": "cat huge.txt" }))
        .tool("Read", json!({ "file_path": "huge.txt" }))
        .tool("Grep", json!({ "pattern": "huge", "output_mode": "content" }))
        .tool("Bash", json!({ "command": "cat huge.txt >&2; exit 1" }))
        .reply("Huge.");
    for known in [false, true] {
        let server = serve(summing_up(scenario.clone()));
        let trial = RunBuilder::against(&server);
        let line = format!("a huge file with line after line {}\n", "of nothing ".repeat(6));
        fs::write(trial.work().join("huge.txt"), line.repeat(2_000_000 / line.len()))
            .expect("room");
        let args: &[&str] = if known { &["--context-window", "60000"] } else { &[] };
        let ended = trial.args(args).args(["Look at it."]).run().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_clean(&server, &ended);
        assert!(refused(&server).len() <= usize::from(!known), "{ended:?}");
        let largest = server.requests().iter().map(|request| request.raw.len()).max();
        assert!(largest.is_some_and(|bytes| bytes < 400_000), "{largest:?}");
    }
}

// --- folds and summaries ----------------------------------------------------------------------

/// What overflows is folded in one go: old results shrink to a few lines that say what they were,
/// the latest stay whole.
#[tokio::test]
async fn an_overflow_is_folded_and_retried() {
    let scenario = reading(Scenario::new().rules(window(60_000)), 23, 80).reply("All read.");
    let server = serve(scenario);
    let ended = run(&server, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_clean(&server, &ended);
    assert_eq!(strategy(&ended, "collapse_drain_retry"), 1, "{ended:?}");
    assert_eq!(summing_requests(&server).len(), 0, "folds were enough");
    let requests = server.requests();
    let at = requests.iter().position(|request| request.step.is_none()).expect("one was refused");
    let (before, after) = (&requests[at], &requests[at + 1]);
    let (whole, folded) = (blocks(before, "tool_result"), blocks(after, "tool_result"));
    assert_eq!(whole.len(), folded.len(), "every call stays answered");
    let kept = whole.iter().zip(&folded).filter(|(a, b)| a["content"] == b["content"]).count();
    assert_eq!(kept, 3, "the latest rounds stay whole");
    let first = folded[0]["content"].to_string();
    assert!(first.contains("[Folded to save room: Bash"), "{first}");
    assert!(first.contains("part 1, line 0001") && first.contains("part 1, line 0080"), "{first}");
    assert_eq!(blocks(before, "tool_use"), blocks(after, "tool_use"), "calls stay as they are");
    assert!(!ended.stderr.contains("compacted"), "{ended:?}");
}

/// Nothing can be folded: the older part is summed up, once, and the request made again.
#[tokio::test]
async fn an_overflow_of_small_results_is_summarised() {
    let scenario = reading(Scenario::new().rules(window(24_000)), 24, 20).reply("All read.");
    let server = serve(summing_up(scenario));
    let ended = run(&server, &["--output-format", "stream-json"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_read(&ended, 24);
    assert_clean(&server, &ended);
    assert_eq!(refused(&server).len(), 1);
    assert_eq!(strategy(&ended, "reactive_compact_retry"), 1, "{ended:?}");
    assert_eq!(frames(&ended, "compact_boundary").len(), summing_requests(&server).len());
    let after = after_summaries(&server).remove(0);
    assert!(messages(&after)[0].to_string().contains(SUMMARY));
}

/// A service that has nothing against the size but refuses summaries: three in a row switch them
/// off, and what overflows is still folded.
#[tokio::test]
async fn three_failed_summaries_disable_compaction() {
    let refusals = Scenario::new()
        .status(400)
        .error("invalid_request_error", "summaries are not to be had here", None)
        .times(3);
    let scenario = reading(Scenario::new().rules(window(60_000)), 20, 120).reply("All read.");
    let server = serve(scenario.compactions(refusals));
    let ended = run(&server, &["--context-window", "60000"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_read(&ended, 20);
    assert_clean(&server, &ended);
    assert_eq!(summing_requests(&server).len(), 3, "a fourth is not asked for");
    assert_eq!(strategy(&ended, "compact_skipped"), 3, "{ended:?}");
    assert!(strategy(&ended, "collapse_drain_retry") >= 1, "{ended:?}");
}

/// One that comes in between starts the count anew.
#[tokio::test]
async fn a_successful_summary_keeps_compaction_enabled() {
    let refusal = |scenario: Scenario| {
        let words = "summaries are not to be had now";
        scenario.status(400).error("invalid_request_error", words, None).times(2)
    };
    let compactions = refusal(refusal(Scenario::new()).reply(SUMMARY)).reply(SUMMARY);
    let scenario = reading(Scenario::new().rules(window(60_000)), 24, 120).reply("All read.");
    let server = serve(scenario.compactions(compactions));
    let ended = run(&server, &["--context-window", "60000"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_clean(&server, &ended);
    assert_eq!(summing_requests(&server).len(), 6, "{ended:?}");
    assert_eq!(refused(&server).len(), 0);
}

/// The request for a summary is too long itself: each next one is shorter.
#[tokio::test]
async fn an_overflowing_summary_request_drops_its_oldest_rounds() {
    let overflow = |scenario: Scenario, times| {
        let words = "prompt is too long: 61234 tokens > 60000 maximum";
        scenario.status(400).error("invalid_request_error", words, None).times(times)
    };
    for (times, summed_up) in [(3, true), (4, false)] {
        let compactions = overflow(Scenario::new(), times);
        let compactions = if summed_up { compactions.reply(SUMMARY) } else { compactions };
        let scenario = reading(Scenario::new().rules(window(60_000)), 5, 250).reply("All read.");
        let server = serve(scenario.compactions(compactions));
        let ended = run(&server, &["--context-window", "60000"]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_clean(&server, &ended);
        let asked = summing_requests(&server);
        assert_eq!(asked.len(), 4, "{ended:?}");
        let lengths: Vec<usize> = asked.iter().map(|request| request.raw.len()).collect();
        assert!(lengths.windows(2).all(|pair| pair[1] < pair[0] * 9 / 10), "{lengths:?}");
        let text = |request: &ReceivedRequest| messages(request)[0].to_string();
        assert!(asked.iter().all(|request| text(request).contains("Read it all.")), "the task");
        assert!(text(&asked[0]).contains("part 1, line 0001"));
        assert!(!text(&asked[3]).contains("part 1, line"), "the oldest went first");
        assert_eq!(strategy(&ended, "compact_trim_retry"), 3, "{ended:?}");
        assert_eq!(strategy(&ended, "compact_skipped"), u64::from(!summed_up), "{ended:?}");
        assert_eq!(ended.stderr.contains("compacted"), summed_up, "{ended:?}");
    }
}

// --- no mitigation left -----------------------------------------------------------------------

/// Who reads why the run ended learns what filled the window, with figures.
#[track_caller]
fn assert_names(ended: &FinishedProcess, reason: &str, culprit: &str) -> String {
    let result = ended.result();
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(result["terminal_reason"], reason);
    assert_eq!(result["errors"].as_array().map(Vec::len), Some(1), "{result}");
    let error = result["errors"][0].as_str().unwrap_or_default().to_owned();
    let largest = error.split("largest: ").nth(1).unwrap_or_default();
    assert!(largest.starts_with(culprit), "{error}");
    let tokens = largest.split("(about ").nth(1).and_then(|rest| rest.split(' ').next());
    let tokens: u64 = tokens.and_then(|tokens| tokens.parse().ok()).unwrap_or_default();
    assert!(tokens > 10_000, "the largest has a figure: {error}");
    error
}

/// The floor lies above the threshold: two summaries show that, and a third is not paid for.
#[tokio::test]
async fn ineffective_compaction_ends_the_run() {
    let scenario =
        reading(Scenario::new().rules(window(60_000)), 1, 90).after(AfterLast::RepeatLast);
    let server = serve(summing_up(scenario));
    let trial = RunBuilder::against(&server);
    let rules = "Rule: every line of this is to be kept in mind at all times.\n".repeat(2_200);
    fs::write(trial.work().join("rules.md"), rules).expect("room");
    let args = ["--context-window", "60000", "--append-system-prompt-file", "rules.md"];
    let ended = trial.args(args).args(["--max-turns", "30", "Read it all."]).run().await;
    let error = assert_names(&ended, "prompt_too_long", "the system prompt");
    assert!(error.contains("compaction no longer helps"), "{error}");
    assert_clean(&server, &ended);
    assert_eq!(summing_requests(&server).len(), 2, "{ended:?}");
    assert_eq!(refused(&server).len(), 0, "none of it was sent in vain");
}

/// What can never fit is said after one refusal, or before any.
#[tokio::test]
async fn a_system_prompt_beyond_the_window_is_one_clean_failure() {
    let ways: [(&[&str], &str, usize); 3] = [
        (&[], "prompt_too_long", 1),
        (&["--context-window", "60000"], "prompt_too_long", 0),
        (&["--context-window", "60000", "--no-auto-compact"], "blocking_limit", 0),
    ];
    for (args, reason, requests) in ways {
        let server = serve(Scenario::new().rules(window(60_000)).reply("Never said."));
        let trial = RunBuilder::against(&server);
        let rules = "Rule: every line of this is to be kept in mind at all times.\n".repeat(5_000);
        fs::write(trial.work().join("rules.md"), rules).expect("room");
        let file = ["--append-system-prompt-file", "rules.md", "Read it all."];
        let ended = trial.args(args).args(file).run().await;
        let error = assert_names(&ended, reason, "the system prompt");
        assert!(!error.contains("no longer helps"), "it was never tried: {error}");
        assert_eq!(server.requests().len(), requests, "{args:?}: {ended:?}");
        assert_clean(&server, &ended);
    }
}

/// The same for a task that no window holds. It is the user's, so none of it is cut.
#[tokio::test]
async fn a_task_beyond_the_window_is_one_clean_failure() {
    let server = serve(Scenario::new().rules(window(60_000)).reply("Never said."));
    let trial = RunBuilder::against(&server);
    fs::write(trial.work().join("task"), "Do this and that and more.\n".repeat(12_000))
        .expect("room");
    let task = fs::File::open(trial.work().join("task")).expect("just written");
    let ended = trial.stdin(task.into()).args(["--stdin"]).run().await;
    assert_names(&ended, "prompt_too_long", "the task");
    assert_eq!(server.requests().len(), 1, "{ended:?}");
    assert_clean(&server, &ended);
}

/// With compaction switched off and nothing to fold, a full window is told and not tried.
#[tokio::test]
async fn a_full_window_ends_the_run_without_a_request_if_nothing_can_be_freed() {
    // The model's own words are never cut, and results this short neither.
    let words = "I have a great deal to say, and none of it can be left out. ".repeat(1_400);
    let mut scenario = Scenario::new().empty().and_text(&words);
    for _ in 0..16 {
        scenario = scenario.and_tool("Bash", json!({ "command": "seq 1 100" }));
    }
    let scenario = scenario.reply("Done.");
    let args = ["--context-window", "20000", "--max-output-tokens", "20000", "--no-auto-compact"];
    let server = serve(scenario.clone());
    let ended = run(&server, &args).await;
    assert_names(&ended, "blocking_limit", "what the model said");
    assert_eq!(server.requests().len(), 1, "{ended:?}");
    // Where compaction may act, there is nothing to summarise, and the service has counted.
    let server = serve(scenario);
    let ended = run(&server, &args[..4]).await;
    assert_names(&ended, "prompt_too_long", "what the model said");
    assert_eq!(server.requests().len(), 1, "{ended:?}");
    assert!(server.requests().iter().all(|request| request.line == ScriptLine::Main));
}
