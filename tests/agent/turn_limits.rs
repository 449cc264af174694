//! A limit of turns is one of replies that are kept, whatever else happens.

use outlast::recovery::{Nudge, StopReason};
use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::run_fixture::{FinishedRun, RunFixture};

/// A reply that asks for three tools at once.
pub(crate) fn works(scenario: Scenario, words: &str) -> Scenario {
    let listing = json!({ "pattern": "*" });
    let scenario = scenario.tool("Glob", listing.clone()).and_text(words);
    scenario.and_tool("Glob", listing).and_tool("TodoWrite", json!({ "todos": [] }))
}

/// The requests, counted from 1, in which the model is told that this is its last reply.
pub(crate) fn told(server: &RehearsalServer) -> Vec<usize> {
    let notices = [Nudge::LastTurn.text(), Nudge::ContinueLast.text()];
    let tells = |body: &Value| {
        let last = body["messages"].as_array().and_then(|all| all.last()).expect("a message");
        last["content"].as_array().expect("blocks").iter().any(|block| {
            block["text"].as_str().is_some_and(|text| notices.iter().any(|it| text.contains(it)))
        })
    };
    let requests = server.requests();
    let tells = (1..).zip(&requests).filter(|(_, request)| tells(&request.body));
    tells.map(|(number, _)| number).collect()
}

async fn run(scenario: Scenario, turns: u32) -> FinishedRun {
    RunFixture::of(scenario).limits(|limits| limits.budgets.turns = Some(turns)).run().await
}

/// The run ended at the limit, after these requests.
#[track_caller]
fn assert_out_of_turns(
    played: &FinishedRun,
    turns: u32,
    last_words: &str,
    requests: usize,
    told_in: &[usize],
) {
    played.assert_end(StopReason::MaxTurns, last_words);
    assert_eq!(played.ending.stats.turns, turns);
    played.assert_asked(requests);
    assert_eq!(told(&played.server), told_in);
}

#[tokio::test]
async fn concurrent_tools_count_as_one_turn() {
    for turns in [1, 2, 4] {
        let words = |number| format!("Step {number}.");
        let steps = (1..=turns).fold(Scenario::new(), |steps, turn| works(steps, &words(turn)));
        let played = run(steps, turns).await;
        let last = turns as usize;
        assert_out_of_turns(&played, turns, &words(turns), last, &[last]);
        assert_eq!(played.ending.stats.tools.calls, 3 * turns, "the last reply's tools run too");
    }
}

#[tokio::test]
async fn an_answer_in_the_last_turn_is_a_success() {
    let played = run(works(Scenario::new(), "Looking.").reply("Found it."), 2).await;
    played.assert_end(StopReason::Completed, "Found it.");
    assert_eq!(played.ending.stats.turns, 2);
    played.assert_asked(2);
    assert_eq!(told(&played.server), [2]);
}

#[tokio::test]
async fn failed_attempts_do_not_count_as_turns() {
    let scenario = works(Scenario::new().status(529).times(2), "One.").empty();
    let played = run(works(scenario.status(500), "Two."), 2).await;
    assert_out_of_turns(&played, 2, "Two.", 6, &[4, 5, 6]);
}

#[tokio::test]
async fn a_repeated_reply_counts_once_and_its_continuation_counts_too() {
    let cut = |scenario: Scenario, words| scenario.reply(words).stop_reason("max_tokens");
    // The first is dropped for a larger limit; the second is kept, and goes on in the third.
    let scenario = cut(cut(cut(Scenario::new(), "Lost."), "Once upon "), "a time");
    assert_out_of_turns(&run(scenario, 2).await, 2, "Once upon a time", 3, &[3]);
}

#[tokio::test]
async fn a_continued_paused_turn_counts() {
    let paused = works(Scenario::new(), "Looking.").reply("Wait.").stop_reason("pause_turn");
    assert_out_of_turns(&run(paused, 2).await, 2, "Wait.", 2, &[2]);
}
