//! Conversations that outgrow the context window: what is folded, summarised and cut, and that no
//! request is sent that the service must refuse.

use std::fs;
use std::num::NonZeroU64;
use std::time::Duration;

use outlast::agent::interrupt;
use outlast::recovery::{Action, CallPurpose, Interrupt, StopReason};
use outlast::rehearsal::{
    FaultPosition, ReceivedRequest, RehearsalServer, Scenario, ScriptLine, ScriptedFaultKind,
    ServerRules,
};
use serde_json::{Value, json};

use super::lease::FileLeases;
use super::run_fixture::{FinishedRun, ObservedEvent, RunFixture};
use crate::support::requests::{blocks, messages};

pub(crate) const SUMMARY: &str = "Read so far: nothing but numbered lines. Next: go on reading.";

/// The context window of the service, in tokens.
const WINDOW: u32 = 60_000;

/// Prints the next part of something long: so many lines of 100 bytes.
pub(crate) fn part(lines: u32) -> Value {
    let command = format!(
        "n=$(cat part 2>/dev/null || echo 0); n=$((n + 1)); echo $n > part; \
         seq -f \"part $n, line %04g: {}\" 1 {lines}",
        "all work and no play makes a long and rather tedious log of it ".repeat(2).split_at(80).0
    );
    json!({ "command": command })
}

/// A model that reads part after part.
pub(crate) fn reading(scenario: Scenario, parts: u32, lines: u32) -> Scenario {
    scenario.tool("Bash", part(lines)).and_text("On to the next part.").times(parts)
}

pub(crate) fn window(tokens: u64) -> ServerRules {
    ServerRules { token_limit: NonZeroU64::new(tokens), ..ServerRules::default() }
}

/// A service that sums up whatever it is asked to.
pub(crate) fn summing_up(scenario: Scenario) -> Scenario {
    scenario.compactions(Scenario::new().reply(SUMMARY).times(9))
}

fn is_summing_up(request: &ReceivedRequest) -> bool {
    request.header("x-outlast-source") == Some("compact")
}

pub(crate) fn summing_requests(server: &RehearsalServer) -> Vec<ReceivedRequest> {
    server.requests().into_iter().filter(is_summing_up).collect()
}

/// The first request for a reply after each one for a summary.
pub(crate) fn after_summaries(server: &RehearsalServer) -> Vec<ReceivedRequest> {
    let requests = server.requests();
    let follows = |pair: &&[ReceivedRequest]| is_summing_up(&pair[0]) && !is_summing_up(&pair[1]);
    requests.windows(2).filter(follows).map(|pair| pair[1].clone()).collect()
}

/// The requests that were answered by a rule: with a 400.
pub(crate) fn refused(server: &RehearsalServer) -> Vec<ReceivedRequest> {
    server.requests().into_iter().filter(|request| request.step.is_none()).collect()
}

/// No request that a validating server would refuse, and none again that was refused. The
/// referee's rules, and an eye of our own on the one rule that matters most.
#[track_caller]
pub(crate) fn assert_valid_requests(server: &RehearsalServer) {
    assert_eq!(server.violations(), [""; 0]);
    let requests = server.requests();
    for pair in requests.windows(2) {
        let again = pair[0].step.is_none() && pair[0].body == pair[1].body;
        assert!(!again, "a refused request was sent again");
    }
    requests.iter().for_each(assert_paired);
}

/// Every call is answered in the next message, and nothing else is.
#[track_caller]
pub(crate) fn assert_paired(request: &ReceivedRequest) {
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

/// A task at a service with a window of [`WINDOW`], which the run does not know.
fn unknown(scenario: Scenario) -> RunFixture {
    RunFixture::of(scenario.rules(window(WINDOW.into())))
}

/// The same, and the run knows it.
fn known(scenario: Scenario) -> RunFixture {
    unknown(scenario).window(WINDOW)
}

/// Runs to the end of the task, of so many parts.
async fn reads(fixture: RunFixture, parts: u32) -> FinishedRun {
    let played = fixture.run().await;
    played.assert_end(StopReason::Completed, "All read.");
    assert_eq!(played.file("part").trim(), parts.to_string());
    assert_valid_requests(&played.server);
    played
}

fn compactions(played: &FinishedRun) -> usize {
    played.said.iter().filter(|said| **said == ObservedEvent::Compacted).count()
}

// --- a true limit -----------------------------------------------------------------------------

/// The window size is not configured: it is learned from the one refusal.
#[tokio::test]
async fn an_unknown_context_window_is_learned_and_the_task_finished() {
    let scenario = reading(Scenario::new(), 14, 250).reply("All read.");
    let played = reads(unknown(summing_up(scenario)), 14).await;
    assert_eq!(refused(&played.server).len(), 1, "one refusal is enough to learn from");
}

/// Many results come at once: their sum is what counts, before the next request.
#[tokio::test]
async fn a_batch_of_results_is_measured_before_it_is_sent() {
    let mut scenario = Scenario::new().tool("Bash", part(250));
    for _ in 1..7 {
        scenario = scenario.and_tool("Bash", part(250));
    }
    // Seven times 25 kB in one turn is most of the window; twice is more than all of it.
    let scenario = summing_up(scenario.times(3).reply("All read."));
    let played = reads(known(scenario), 21).await;
    assert_eq!(refused(&played.server).len(), 0);
}

/// One result of 2 MB, by every tool that can bring one.
#[tokio::test]
async fn a_result_of_two_megabytes_is_cut_before_it_is_sent() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "cat huge.txt" }))
        .tool("Read", json!({ "file_path": "huge.txt" }))
        .tool("Grep", json!({ "pattern": "huge", "output_mode": "content" }))
        .tool("Bash", json!({ "command": "cat huge.txt >&2; exit 1" }))
        .reply("Huge.");
    let line = format!("a huge file with line after line {}\n", "of nothing ".repeat(6));
    let text = line.repeat(2_000_000 / line.len());
    for (fixture, refusals) in [(unknown as fn(Scenario) -> RunFixture, 1), (known, 0)] {
        let fixture = fixture(summing_up(scenario.clone()));
        fs::write(fixture.folder.path().join("huge.txt"), &text).expect("room");
        let played = fixture.run().await;
        played.assert_end(StopReason::Completed, "Huge.");
        assert_valid_requests(&played.server);
        assert!(refused(&played.server).len() <= refusals, "{:?}", played.trace());
        let largest = played.server.requests().iter().map(|request| request.raw.len()).max();
        assert!(largest.is_some_and(|bytes| bytes < 400_000), "{largest:?}");
    }
}

// --- folds and summaries ----------------------------------------------------------------------

/// One folding removes all that overflows: old results shrink to a few lines that say what they
/// were, the latest stay whole.
#[tokio::test]
async fn an_overflow_is_folded_and_retried() {
    let scenario = reading(Scenario::new(), 23, 80).reply("All read.");
    let played = reads(unknown(scenario), 23).await;
    assert_eq!(played.strategy("collapse_drain_retry"), 1, "{:?}", played.trace());
    assert_eq!(summing_requests(&played.server).len(), 0, "folds were enough");
    assert_eq!(compactions(&played), 0);
    let requests = played.server.requests();
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
}

/// Nothing can be folded: the older part is summed up, once, and the request made again.
#[tokio::test]
async fn an_overflow_of_small_results_is_summarised() {
    let scenario = reading(Scenario::new(), 24, 20).reply("All read.");
    let fixture = RunFixture::of(summing_up(scenario).rules(window(24_000)));
    let played = reads(fixture, 24).await;
    assert_eq!(refused(&played.server).len(), 1);
    assert_eq!(played.strategy("reactive_compact_retry"), 1, "{:?}", played.trace());
    assert_eq!(compactions(&played), summing_requests(&played.server).len());
    let after = after_summaries(&played.server).remove(0);
    assert!(messages(&after)[0].to_string().contains(SUMMARY));
}

/// The calls of a summary are never run, so none may start while it streams.
#[tokio::test]
async fn no_tool_starts_for_a_call_in_a_summary() {
    let input = json!({ "pattern": "a", "path": "file00", "output_mode": "content" });
    let summary = Scenario::new()
        .tool("Grep", input)
        .fault(ScriptedFaultKind::Stall, FaultPosition::Events(7));
    let scenario = reading(Scenario::new(), 24, 20).compactions(summary).rules(window(24_000));
    let play = RunFixture::of(scenario);
    let mut leases = FileLeases::on(play.folder.path(), &["file00".to_owned()]);
    let playing = play.start();
    let is_summary =
        |action| matches!(action, Action::Ask(call) if call.purpose != CallPurpose::Reply);
    let asks_for_summary =
        |said: &ObservedEvent| matches!(said, ObservedEvent::Step(step) if is_summary(step.action));
    playing.record.wait_for(asks_for_summary).await;
    let is_started = leases.wait_for_blocked_readers(1, Duration::from_millis(300)).await;
    assert!(!is_started);
    interrupt(&playing.interrupter, Interrupt::Sigterm);
    let played = playing.end().await;
    assert_eq!(played.ending.reason, StopReason::AbortedStreaming(Interrupt::Sigterm));
}

/// Refuses a request `times` times.
fn refusing(scenario: Scenario, times: u32) -> Scenario {
    let words = "summaries are not to be had here";
    scenario.status(400).error("invalid_request_error", words, None).times(times)
}

/// A service that has nothing against the size but refuses summaries: three in a row switch them
/// off, and what overflows is still folded.
#[tokio::test]
async fn three_failed_summaries_disable_compaction() {
    let scenario = reading(Scenario::new(), 20, 120).reply("All read.");
    let scenario = scenario.compactions(refusing(Scenario::new(), 3));
    let played = reads(known(scenario), 20).await;
    assert_eq!(summing_requests(&played.server).len(), 3, "a fourth is not asked for");
    assert_eq!(played.strategy("compact_skipped"), 3, "{:?}", played.trace());
    assert!(played.strategy("collapse_drain_retry") >= 1, "{:?}", played.trace());
}

/// One that comes in between starts the count anew.
#[tokio::test]
async fn a_successful_summary_keeps_compaction_enabled() {
    let summaries = refusing(refusing(Scenario::new(), 2).reply(SUMMARY), 2).reply(SUMMARY);
    let scenario = reading(Scenario::new(), 24, 120).reply("All read.").compactions(summaries);
    let played = reads(known(scenario), 24).await;
    assert_eq!(summing_requests(&played.server).len(), 6, "{:?}", played.trace());
    assert_eq!(compactions(&played), 2);
    assert_eq!(refused(&played.server).len(), 0);
}

/// The request for a summary is too long itself: each next one is shorter. Their size is none of the
/// window.
#[tokio::test]
async fn an_overflowing_summary_request_drops_its_oldest_rounds() {
    let (named, unnamed) =
        ("prompt is too long: 61234 tokens > 60000 maximum", "Input is too long.");
    for (words, times, summed_up) in [(named, 3, true), (named, 4, false), (unnamed, 4, false)] {
        let overflow = Scenario::new().status(400).error("invalid_request_error", words, None);
        let summaries = overflow.times(times);
        let summaries = if summed_up { summaries.reply(SUMMARY) } else { summaries };
        let scenario = reading(Scenario::new(), 5, 250).reply("All read.").compactions(summaries);
        let played = reads(known(scenario), 5).await;
        let asked = summing_requests(&played.server);
        assert_eq!(asked.len(), 4, "{:?}", played.trace());
        let lengths: Vec<usize> = asked.iter().map(|request| request.raw.len()).collect();
        assert!(lengths.windows(2).all(|pair| pair[1] < pair[0] * 9 / 10), "{lengths:?}");
        let text = |request: &ReceivedRequest| messages(request)[0].to_string();
        assert!(asked.iter().all(|request| text(request).contains("Do it.")), "the task");
        assert!(text(&asked[0]).contains("part 1, line 0001"));
        assert!(!text(&asked[3]).contains("part 1, line"), "the oldest went first");
        assert_eq!(played.strategy("compact_trim_retry"), 3, "{:?}", played.trace());
        assert_eq!(played.strategy("compact_skipped"), u64::from(!summed_up));
        assert_eq!(compactions(&played), usize::from(summed_up));
    }
}

// --- no mitigation left -----------------------------------------------------------------------

/// The run ends for this reason after so many requests, and the largest part is this one.
#[track_caller]
fn assert_full(played: &FinishedRun, reason: StopReason, culprit: &str, requests: usize) {
    assert_eq!(played.ending.reason, reason, "{:?}", played.trace());
    let largest = &played.ending.contributors[0];
    assert!(largest.what.starts_with(culprit) && largest.tokens > 10_000, "{largest:?}");
    assert!(!played.ending.met.thrashed, "no summary was ever made");
    assert_eq!(played.server.requests().len(), requests, "{:?}", played.trace());
    assert_valid_requests(&played.server);
}

/// A request that can never fit is reported after one refusal, or before any.
#[tokio::test]
async fn a_system_prompt_beyond_the_window_is_one_clean_failure() {
    for (is_known, auto_compact, reason, requests) in [
        (false, true, StopReason::PromptTooLong, 1),
        (true, true, StopReason::PromptTooLong, 0),
        (true, false, StopReason::BlockingLimit, 0),
    ] {
        let fixture = if is_known { known } else { unknown };
        let mut fixture = fixture(Scenario::new().reply("Never said."));
        fixture.setup.system =
            "Rule: every line of this is to be kept in mind at all times.\n".repeat(5_000);
        let fixture = fixture.limits(|limits| limits.auto_compact = auto_compact);
        assert_full(&fixture.run().await, reason, "the system prompt", requests);
    }
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
    // Where compaction may act, there is nothing to summarise, and the service has counted.
    for (auto_compact, reason) in
        [(false, StopReason::BlockingLimit), (true, StopReason::PromptTooLong)]
    {
        let fixture = RunFixture::of(scenario.clone()).window(20_000);
        let fixture = fixture.limits(|limits| {
            limits.auto_compact = auto_compact;
            limits.caps.first = 20_000;
            limits.budgets.escalations = 0;
        });
        let played = fixture.run().await;
        assert_full(&played, reason, "what the model said", 1);
        assert!(played.server.requests().iter().all(|request| request.line == ScriptLine::Main));
    }
}
