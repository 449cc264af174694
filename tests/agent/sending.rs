//! Nothing invalid is ever sent, whatever the model says.

use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::{After, Answer, Scenario, Step};
use serde_json::{Value, json};

use super::stage::{Play, Played, Said, messages};

/// A model that numbers its calls anew in each reply, and that calls twice by one name.
#[tokio::test]
async fn a_repeated_tool_use_id_is_renamed_before_it_enters_the_history() {
    let scenario = Scenario::new()
        .tool("Read", json!({ "file_path": "one" }))
        .id("call_0")
        .and_tool("Read", json!({ "file_path": "two" }))
        .id("call_0")
        .tool("Read", json!({ "file_path": "three" }))
        .id("call_0")
        .tool("Bash", json!({ "command": "echo four" }))
        .id("call_0")
        .reply("Done.");
    let play = Play::of(scenario);
    for name in ["one", "two", "three"] {
        std::fs::write(play.folder.path().join(name), name).expect("the folder is ours");
    }
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let texts: Vec<String> = played.results().into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts.len(), 4);
    for (text, wanted) in texts.iter().zip(["one", "two", "three", "four"]) {
        assert!(text.contains(wanted), "each call has its own result: {texts:?}");
    }
    played.assert_sound();
}

#[tokio::test]
async fn what_a_reply_holds_outranks_the_reason_it_gives_for_stopping() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo ran >> log" }))
        .stop_reason("end_turn")
        .tool("Bash", json!({ "command": "echo ran >> log" }))
        .stop_reason("pause_turn")
        .reply("Done.")
        .stop_reason("tool_use");
    let played = Play::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.text, "Done.");
    let log = std::fs::read_to_string(played.folder.path().join("log")).expect("tools ran");
    assert_eq!(log, "ran\nran\n");
    assert_eq!(played.server.requests().len(), 3);
    played.assert_sound();
}

#[tokio::test]
async fn blank_text_is_never_sent_back() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .and_text(" \n ")
        .tool("Bash", json!({ "command": "true" }))
        .and_text("")
        .and_thinking("Hm.")
        .reply("Done.");
    let played = Play::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(blocks(&played, 3, "text").len(), 1, "only the prompt: {:?}", played.messages(3));
    assert_eq!(blocks(&played, 3, "thinking").len(), 1, "which is kept as it was");
    played.assert_sound();
}

/// The blocks of a type in the request of a number.
fn blocks(played: &Played, number: usize, kind: &str) -> Vec<Value> {
    let messages = played.messages(number);
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["type"] == kind).cloned().collect()
}

#[tokio::test]
async fn a_tool_that_there_is_not_and_input_that_does_not_fit_are_the_models_to_mend() {
    let scenario = Scenario::new()
        .tool("Teleport", json!({ "to": "Mars" }))
        .and_tool("Read", json!({ "path": "a" }))
        .reply("I see.");
    let played = Play::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let results = played.results();
    assert!(results.iter().all(|(is_error, _)| *is_error), "{results:?}");
    assert!(results[0].1.contains("No such tool available: Teleport"), "{results:?}");
    assert!(results[1].1.contains("file_path"), "{results:?}");
    assert_eq!(played.ending.tally.tools.failed, 2);
    played.assert_sound();
}

#[tokio::test]
async fn a_paused_turn_goes_back_as_it_is_and_not_for_ever() {
    let scenario =
        Scenario::new().reply("Still at it.").stop_reason("pause_turn").after(After::RepeatLast);
    let played = Play::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::ModelError(ErrorClass::BadResponse));
    let requests = played.server.requests();
    assert_eq!(requests.len(), 9, "one, and eight resumptions");
    for (resumed, request) in requests.iter().enumerate() {
        let messages = messages(request);
        let roles: Vec<_> = messages.iter().map(|message| message["role"].clone()).collect();
        let expected = if resumed == 0 { vec!["user"] } else { vec!["user", "assistant"] };
        assert_eq!(roles, expected, "nothing is said in between");
        let words = messages.last().and_then(|last| last["content"].as_array()).map(Vec::len);
        assert_eq!(words, Some(resumed.max(1)), "request {}", resumed + 1);
    }
    played.assert_sound();
}

#[tokio::test]
async fn a_paused_turn_that_ends_counts_as_a_success_and_renews_the_count() {
    let scenario = Scenario::new()
        .reply("Looking.")
        .stop_reason("pause_turn")
        .times(8)
        .tool("Bash", json!({ "command": "true" }))
        .reply("Looking again.")
        .stop_reason("pause_turn")
        .times(8)
        .reply("Found.");
    let played = Play::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.text, "Found.");
    assert_eq!(played.server.unplayed(), 0);
    played.assert_sound();
}

#[tokio::test]
async fn a_refusal_ends_the_run_with_its_words() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .reply("I will not do that.")
        .stop_reason("refusal");
    let played = Play::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Refusal);
    assert_eq!(played.ending.text, "I will not do that.");
    assert_eq!(played.server.requests().len(), 2);
    played.assert_sound();
}

/// Thinking is only ever sent to the model that signed it; the referee checks the signatures of
/// what is sent.
#[tokio::test]
async fn thinking_stays_with_its_model() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking("First, I look.")
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking("Then, I look again.")
        .status(529)
        .times(3)
        .tool("Bash", json!({ "command": "true" }))
        .and_thinking("Another head, another thought.")
        .reply("Done.");
    let played = Play::of(scenario).models(&["sonnet", "opus"]).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let models: Vec<_> =
        played.server.requests().iter().map(|request| request.model().to_owned()).collect();
    let (first, second) = ("claude-sonnet-5-5", "claude-opus-5-5");
    assert_eq!(models, [first, first, first, first, first, second, second]);
    let thoughts: Vec<usize> =
        (1..=7).map(|number| blocks(&played, number, "thinking").len()).collect();
    assert_eq!(thoughts, [0, 1, 2, 2, 2, 0, 1], "its own thinking goes back to the second model");
    let switched = Said::Switched(format!("{first} to {second}"));
    assert_eq!(played.said.iter().filter(|said| **said == switched).count(), 1);
    played.assert_sound();
}

/// A reply that breaks in the middle is asked for again, and no word of it is kept.
#[tokio::test]
async fn of_a_reply_that_breaks_nothing_is_sent_back() {
    use outlast::rehearsal::{Harm, Place};

    let mut broken = Step::new(Answer::Reply(outlast::rehearsal::Reply {
        text: Some("These words are lost.".to_owned()),
        ..Default::default()
    }));
    broken.fault = Some(outlast::rehearsal::Fault::new(Harm::Reset, Place::Delta));
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo once >> log" }))
        .step(broken)
        .tool("Bash", json!({ "command": "echo twice >> log" }))
        .reply("Done.");
    let played = Play::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let last = played.server.requests().last().map(|request| request.raw.clone());
    let last = String::from_utf8_lossy(&last.expect("there were requests")).into_owned();
    assert!(!last.contains("lost"), "{last}");
    let log = std::fs::read_to_string(played.folder.path().join("log")).expect("tools ran");
    assert_eq!(log, "once\ntwice\n");
    played.assert_sound();
}
