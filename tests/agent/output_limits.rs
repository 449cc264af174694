//! Replies that hit the output limit, and replies that do not.

use outlast::recovery::StopReason;
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::{Value, json};

use super::run_fixture::{FinishedRun, RunFixture};
use crate::support::requests::{blocks, texts};

async fn run(scenario: Scenario) -> FinishedRun {
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.server.violations(), [""; 0]);
    played
}

/// One retry with a larger cap, three continuations, and the final error.
#[track_caller]
fn assert_exhausted(played: &FinishedRun, text: &str) {
    played.assert_end(StopReason::MaxOutputTokens, text);
    assert_eq!(played.caps(), [8_192, 64_000, 64_000, 64_000, 64_000]);
    let wanted = json!({ "max_output_tokens_escalate": 1, "max_output_tokens_recovery": 3 });
    assert_eq!(played.strategies(), wanted);
}

#[tokio::test]
async fn a_tool_call_that_is_always_truncated_never_runs_and_ends_the_run() {
    let input = json!({ "command": "echo ran >> log; echo and this is a long command" });
    let scenario = Scenario::new().tool("Bash", input).cut(30).after(AfterLast::RepeatLast);
    let played = run(scenario).await;
    assert_exhausted(&played, "");
    assert!(!played.has("log"), "half a command is no command");
    assert_eq!(played.ending.stats.tools.calls, 0);
    let last = played.server.requests().pop().expect("there were requests");
    assert_eq!(blocks(&last, "tool_use"), Vec::<Value>::new());
    assert!(last.body["messages"].to_string().contains("it was not run"), "{:?}", last.body);
}

/// The input of a call that was cut may parse, so a read-only call even starts while the reply
/// streams.
#[tokio::test]
async fn a_tool_call_closed_by_the_output_limit_is_discarded() {
    let scenario = Scenario::new()
        .tool("Write", json!({ "file_path": "half", "content": "Half of" }))
        .stop_reason("max_tokens")
        .times(2)
        .tool("Grep", json!({ "pattern": "." }))
        .stop_reason("max_tokens")
        .reply("I give up.");
    let played = run(scenario).await;
    played.assert_end(StopReason::Completed, "I give up.");
    assert!(!played.has("half"));
    assert_eq!(played.ending.stats.tools.calls, 0);
}

#[tokio::test]
async fn thinking_that_is_always_truncated_is_not_kept_in_the_history() {
    let scenario = Scenario::new()
        .empty()
        .and_thinking("And another thing.")
        .stop_reason("max_tokens")
        .after(AfterLast::RepeatLast);
    let played = run(scenario).await;
    assert_exhausted(&played, "");
    let last = played.messages(played.server.requests().len());
    assert_eq!(last.len(), 1, "nothing but the user's words: {last:?}");
}

#[tokio::test]
async fn text_that_is_always_truncated_ends_the_run_with_all_text_received() {
    let words = ["lost ", "one ", "two ", "three ", "four"].into_iter();
    let cut = |scenario: Scenario, word| scenario.reply(word).stop_reason("max_tokens");
    assert_exhausted(&run(words.fold(Scenario::new(), cut)).await, "one two three four");
}

/// A turn that ends normally gives the next one all its tries back.
#[tokio::test]
async fn every_turn_has_its_own_truncation_budget() {
    let cut = |scenario: Scenario| scenario.reply("More. ").stop_reason("max_tokens").times(4);
    let turn = |scenario: Scenario| cut(scenario).tool("Bash", json!({ "command": "true" }));
    let played = run(cut(turn(turn(Scenario::new()))).reply("Enough.")).await;
    played.assert_end(StopReason::Completed, "More. More. More. Enough.");
    let one_turn = [8_192, 64_000, 64_000, 64_000, 64_000];
    assert_eq!(played.caps(), one_turn.repeat(3));
    let wanted = json!({ "max_output_tokens_escalate": 3, "max_output_tokens_recovery": 9 });
    assert_eq!(played.strategies(), wanted);
}

/// A finished model gets no continuation or nudge.
#[tokio::test]
async fn a_final_answer_ends_the_run_without_a_nudge() {
    for stop in ["end_turn", "stop_sequence"] {
        let scenario = Scenario::new()
            .tool("Bash", json!({ "command": "true" }))
            .and_text("On it.")
            .reply("That is all there is to say.")
            .stop_reason(stop);
        let played = run(scenario).await;
        played.assert_end(StopReason::Completed, "That is all there is to say.");
        assert_eq!(played.strategies(), json!({}), "{stop}");
        assert_eq!(played.server.requests().len(), 2, "{stop}");
        let second = played.messages(2);
        let of_user = second.iter().filter(|message| message["role"] == "user");
        let texts: Vec<String> = of_user.flat_map(texts).collect();
        assert_eq!(texts, ["Do it."], "{stop}: the model hears the user and its tools");
    }
}
