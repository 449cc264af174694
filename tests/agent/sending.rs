//! Nothing invalid is ever sent, whatever the model says.

use outlast::model::ThinkingMode;
use outlast::recovery::{ErrorClass, StopReason};
use outlast::rehearsal::{AfterLast, Scenario, ScriptStep, ServerRules, Signatures, StepAnswer};
use serde_json::{Value, json};

use super::run_fixture::{FinishedRun, ObservedEvent, RunFixture};
use crate::support::requests::messages;

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
    let play = RunFixture::of(scenario);
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
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn reply_content_outranks_its_stop_reason() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo ran >> log" }))
        .stop_reason("end_turn")
        .tool("Bash", json!({ "command": "echo ran >> log" }))
        .stop_reason("pause_turn")
        .tool("Bash", json!({ "command": "echo ran >> log" }))
        .stop_reason("a_reason_of_next_year")
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.text, "Done.");
    let log = std::fs::read_to_string(played.folder.path().join("log")).expect("tools ran");
    assert_eq!(log, "ran\nran\nran\n");
    assert_eq!(played.server.requests().len(), 4);
    played.assert_no_warnings_or_repairs();
}

/// The outcome if no reply becomes complete: a failure that names the reason, the text received so
/// far, and no tool call that might have been cut.
#[tokio::test]
async fn text_without_a_completing_stop_reason_is_never_a_success() {
    for reason in ["tool_use", "other", "error", "content_filter", "cancelled"] {
        let scenario = Scenario::new()
            .reply("Now I run the tests.")
            .and_tool("Bash", json!({ "command": "echo ran >> log" }))
            .stop_reason("error")
            .reply("Now I run the tests.")
            .stop_reason(reason)
            .after(AfterLast::RepeatLast);
        let played = RunFixture::of(scenario).run().await;
        let is_filtered = reason == "content_filter";
        let class = if is_filtered { ErrorClass::ContentFiltered } else { ErrorClass::BadResponse };
        assert_eq!(played.ending.reason, StopReason::ModelError(class));
        let fault = played.ending.fault().expect("it says why");
        assert!(fault.detail().contains(&format!("`{reason}`")), "{fault:?}");
        assert_eq!(played.ending.text, "Now I run the tests.");
        assert_eq!(played.server.requests().len(), 4, "{reason}");
        assert!(!played.folder.path().join("log").exists(), "a call of a broken reply was run");
        played.assert_no_warnings_or_repairs();
    }
}

/// Gateways pass on the end words of other APIs.
#[tokio::test]
async fn an_end_word_of_another_api_completes_a_reply_unless_the_run_is_strict() {
    for (is_strict, end) in
        [(false, StopReason::Completed), (true, StopReason::ModelError(ErrorClass::BadResponse))]
    {
        let scenario = Scenario::new().reply("All tests pass.").stop_reason("stop");
        let play = RunFixture::of(scenario.after(AfterLast::RepeatLast));
        let played = play.limits(|limits| limits.strict_stop_reasons = is_strict).run().await;
        assert_eq!(played.ending.reason, end);
        assert_eq!(played.ending.text, "All tests pass.");
        played.assert_no_warnings_or_repairs();
    }
}

#[tokio::test]
async fn a_reply_that_completes_on_retry_is_the_answer() {
    let scenario = Scenario::new()
        .reply("All tests")
        .stop_reason("length_exceeded_somehow")
        .times(3)
        .reply("All tests pass.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.text, "All tests pass.");
    let told: Vec<usize> = (1..=4).map(|number| blocks(&played, number, "text").len()).collect();
    assert_eq!(told, [1, 1, 3, 5], "asked again as it was, then kept and told, twice");
    played.assert_no_warnings_or_repairs();
}

/// Arguments that are no JSON are answered with what is wrong with them. Nothing is run, and the
/// whole reply is not asked for again.
#[tokio::test]
async fn a_call_with_malformed_arguments_is_answered_with_an_error() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo ran >> log" }))
        .cut(14)
        .stop_reason("tool_use")
        .and_tool("Bash", json!({ "command": "echo whole >> log" }))
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let results = played.results();
    assert_eq!(results.len(), 2);
    assert!(results[0].0 && results[0].1.contains("not valid JSON"), "{results:?}");
    assert!(
        results[0].1.contains(r#"{"command": "e"#) || results[0].1.contains("{\"command\":\"e")
    );
    assert!(!results[1].0, "{results:?}");
    let log = std::fs::read_to_string(played.folder.path().join("log")).expect("one call ran");
    assert_eq!(log, "whole\n");
    assert_eq!(played.server.requests().len(), 2);
    played.assert_no_warnings_or_repairs();
}

/// A streamed reply with these blocks, which ends with calls.
fn stream_of(blocks: &[Value]) -> String {
    let start = json!({ "type": "message_start", "message": { "id": "msg_1", "model": "m" } });
    let block = |(index, block): (usize, &Value)| {
        [
            json!({ "type": "content_block_start", "index": index, "content_block": block }),
            json!({ "type": "content_block_stop", "index": index }),
        ]
    };
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    let events = std::iter::once(start).chain(blocks.iter().enumerate().flat_map(block));
    let events = events.chain([end, json!({ "type": "message_stop" })]);
    events.map(|event| format!("data: {event}\n\n")).collect::<Vec<_>>().concat()
}

fn ids(played: &FinishedRun, number: usize) -> Vec<String> {
    let calls = blocks(played, number, "tool_use");
    calls.iter().map(|call| call["id"].as_str().expect("an id").to_owned()).collect()
}

/// Only the service that made them can be expected to take such ids.
#[tokio::test]
async fn odd_tool_use_ids_are_kept_until_they_are_refused_or_the_model_changes() {
    let long = "x".repeat(65);
    let odd = ["functions.Bash:0", &long];
    let calls = || {
        Scenario::new()
            .tool("Bash", json!({ "command": "echo one" }))
            .id(odd[0])
            .and_tool("Bash", json!({ "command": "echo two" }))
            .id(odd[1])
    };
    let pattern =
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'";
    let refused = calls()
        .status(400)
        .error("invalid_request_error", pattern, None)
        .tool("Bash", json!({ "command": "echo three" }))
        .id("functions.Bash:1")
        .reply("Done.");
    let switched = calls().status(529).times(3).reply("Done.");
    for (scenario, first_portable) in [(refused, 3), (switched, 5)] {
        let played = RunFixture::of(scenario).models(&["sonnet", "opus"]).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed);
        let requests = played.server.requests().len();
        for number in 2..=requests {
            let ids = ids(&played, number);
            if number < first_portable {
                assert_eq!(ids, odd, "request {number}");
            } else {
                let is_portable = |id: &String| outlast::transcript::is_portable_id(id);
                assert!(ids.len() >= odd.len(), "request {number}: {ids:?}");
                assert!(ids.iter().all(is_portable), "request {number}: {ids:?}");
            }
        }
        let texts: Vec<String> = played.results().into_iter().map(|(_, text)| text).collect();
        assert!(texts[0].contains("one") && texts[1].contains("two"), "{texts:?}");
        played.assert_no_warnings_or_repairs();
    }
}

const EXPECTED_THINKING: &str = "messages.1.content.0.type: Expected `thinking` or \
    `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` \
    message must start with a thinking block";

#[tokio::test]
async fn thinking_is_disabled_after_the_service_demands_missing_thinking_blocks() {
    let refused = |scenario: Scenario| {
        scenario.status(400).error("invalid_request_error", EXPECTED_THINKING, None)
    };
    let scenario = refused(Scenario::new().tool("Bash", json!({ "command": "true" })))
        .tool("Bash", json!({ "command": "true" }))
        .reply("Done.");
    let mut play = RunFixture::of(scenario);
    play.setup.reasoning.thinking = ThinkingMode::Budget(4_000);
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let asks: Vec<bool> =
        played.server.requests().iter().map(|one| one.body["thinking"].is_object()).collect();
    assert_eq!(asks, [true, true, false, false]);
    let mut play = RunFixture::of(refused(Scenario::new()).times(2));
    play.setup.reasoning.thinking = ThinkingMode::Budget(4_000);
    let played = play.run().await;
    assert_eq!(played.ending.reason, StopReason::ModelError(ErrorClass::InvalidRequest));
    assert_eq!(played.server.requests().len(), 2, "it is given up once");
}

#[tokio::test]
async fn a_small_conversation_refused_as_too_long_is_retried_once() {
    let (words, figures) =
        ("prompt is too long", "prompt is too long: 250000 tokens > 200000 maximum");
    for message in [words, figures] {
        let refused =
            |scenario: Scenario| scenario.status(400).error("invalid_request_error", message, None);
        let scenario = refused(Scenario::new()).reply("Done.");
        let played = RunFixture::of(scenario).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed, "{message}");
        let requests = played.server.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0].body["messages"], requests[1].body["messages"], "nothing was lost");
        let scenario = refused(Scenario::new()).times(2);
        let played = RunFixture::of(scenario).run().await;
        assert_eq!(played.ending.reason, StopReason::PromptTooLong, "{message}");
        assert_eq!(played.server.requests().len(), 2, "once, and no more");
    }
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
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(blocks(&played, 3, "text").len(), 1, "only the prompt: {:?}", played.messages(3));
    assert_eq!(blocks(&played, 3, "thinking").len(), 1, "which is kept as it was");
    played.assert_no_warnings_or_repairs();
}

/// The blocks of a type in the request of a number.
fn blocks(played: &FinishedRun, number: usize, kind: &str) -> Vec<Value> {
    let messages = played.messages(number);
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["type"] == kind).cloned().collect()
}

#[tokio::test]
async fn unknown_tools_and_invalid_tool_input_are_reported_to_the_model() {
    let scenario = Scenario::new()
        .tool("Teleport", json!({ "to": "Mars" }))
        .and_tool("Read", json!({ "line": 1 }))
        .reply("I see.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let results = played.results();
    assert!(results.iter().all(|(is_error, _)| *is_error), "{results:?}");
    assert!(results[0].1.contains("No such tool available: Teleport"), "{results:?}");
    assert!(results[1].1.contains("file_path"), "{results:?}");
    assert_eq!(played.ending.stats.tools.failed, 2);
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn a_paused_turn_is_sent_back_unchanged_and_only_so_often() {
    let scenario = Scenario::new()
        .reply("Still at it.")
        .stop_reason("pause_turn")
        .after(AfterLast::RepeatLast);
    let played = RunFixture::of(scenario).run().await;
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
    played.assert_no_warnings_or_repairs();
}

/// A model without prefill refuses a conversation that ends with its own text, and every model one
/// that ends with white space.
#[tokio::test]
async fn a_paused_turn_that_may_not_be_sent_back_is_continued_by_a_message() {
    for words in [
        "This model does not support assistant message prefill. The conversation must end with a \
         user message.",
        "messages: final assistant content cannot end with trailing whitespace",
    ] {
        let scenario = Scenario::new()
            .reply("Looking. ")
            .stop_reason("pause_turn")
            .status(400)
            .error("invalid_request_error", words, None)
            .reply("Found.");
        let played = RunFixture::of(scenario).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed, "{words}");
        let requests = played.server.requests();
        assert_eq!(requests.len(), 3, "{words}");
        let last = messages(&requests[2]).last().expect("a message").clone();
        assert_eq!(
            (&last["role"], &last["content"][0]["text"]),
            (&json!("user"), &json!("Continue."))
        );
    }
}

/// Nothing of a blank reply can be sent back: the same request is sent again.
#[tokio::test]
async fn a_blank_paused_turn_is_asked_for_again() {
    let scenario = Scenario::new().reply(" \n").stop_reason("pause_turn").reply("Found.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let requests = played.server.requests();
    assert_eq!((requests.len(), messages(&requests[1]).len()), (2, 1));
    played.assert_no_warnings_or_repairs();
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
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.text, format!("{}Found.", "Looking again.\n".repeat(8)));
    assert_eq!(played.server.unrequested_answers(), 0);
    played.assert_no_warnings_or_repairs();
}

#[tokio::test]
async fn a_refusal_ends_the_run_with_the_refusal_text() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .reply("I will not do that.")
        .stop_reason("refusal");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Refusal);
    assert_eq!(played.ending.text, "I will not do that.");
    assert_eq!(played.server.requests().len(), 2);
    played.assert_no_warnings_or_repairs();
}

/// Thinking is only ever sent to the model that signed it; the referee checks the signatures of
/// what is sent.
#[tokio::test]
async fn thinking_is_sent_only_to_the_model_that_signed_it() {
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
    let played = RunFixture::of(scenario).models(&["sonnet", "opus"]).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let models: Vec<_> =
        played.server.requests().iter().map(|request| request.model().to_owned()).collect();
    let (first, second) = ("claude-sonnet-5-5", "claude-opus-5-5");
    assert_eq!(models, [first, first, first, first, first, second, second]);
    let thoughts: Vec<usize> =
        (1..=7).map(|number| blocks(&played, number, "thinking").len()).collect();
    assert_eq!(thoughts, [0, 1, 2, 2, 2, 0, 1], "its own thinking goes back to the second model");
    let switched = ObservedEvent::Switched(format!("{first} to {second}"));
    assert_eq!(played.said.iter().filter(|said| **said == switched).count(), 1);
    played.assert_no_warnings_or_repairs();
}

/// A reply that breaks in the middle is asked for again, and no word of it is kept.
#[tokio::test]
async fn no_part_of_a_broken_reply_is_sent_back() {
    use outlast::rehearsal::{FaultPosition, ScriptedFaultKind};

    let mut broken = ScriptStep::new(StepAnswer::Reply(outlast::rehearsal::ScriptedReply {
        text: Some("These words are lost.".to_owned()),
        ..Default::default()
    }));
    broken.fault = Some(outlast::rehearsal::ScriptedFault::new(
        ScriptedFaultKind::Reset,
        FaultPosition::Delta,
    ));
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo once >> log" }))
        .step(broken)
        .tool("Bash", json!({ "command": "echo twice >> log" }))
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let last = played.server.requests().last().map(|request| request.raw.clone());
    let last = String::from_utf8_lossy(&last.expect("there were requests")).into_owned();
    assert!(!last.contains("lost"), "{last}");
    let log = std::fs::read_to_string(played.folder.path().join("log")).expect("tools ran");
    assert_eq!(log, "once\ntwice\n");
    played.assert_no_warnings_or_repairs();
}

/// Gateways keep state in such fields. The referee of the rehearsal knows one of the two.
#[tokio::test]
async fn further_fields_of_calls_are_kept_until_they_are_refused_or_the_model_changes() {
    let call = |fields: Value| {
        let mut block = json!({ "type": "tool_use", "id": "call_1", "name": "Bash",
            "input": { "command": "true" }, "cache_control": { "type": "ephemeral" } });
        block.as_object_mut().expect("an object").extend(fields.as_object().expect("one").clone());
        stream_of(&[block])
    };
    let (known, unknown) =
        (json!({ "caller": { "type": "direct" } }), json!({ "thought_signature": "Zm9v" }));
    let streams = |streams: &[&String]| {
        let answer = |scenario: Scenario, text: &&String| {
            scenario.status(200).body("text/event-stream", text)
        };
        streams.iter().fold(Scenario::new(), answer)
    };
    let (kept, refused) = (call(known.clone()), call(unknown.clone()));
    let (none, nothing) = (json!({}), Vec::<Value>::new());
    for (scenario, sent) in [
        (streams(&[&kept]).reply("Done."), vec![nothing.clone(), vec![known.clone()]]),
        (
            streams(&[&refused, &refused]).reply("Done."),
            vec![
                nothing.clone(),
                vec![unknown.clone()],
                vec![none.clone()],
                vec![none.clone(), none.clone()],
            ],
        ),
        (
            streams(&[&kept]).status(529).times(3).reply("Done."),
            [vec![nothing.clone()], vec![vec![known.clone()]; 3], vec![vec![none.clone()]]]
                .concat(),
        ),
    ] {
        let played = RunFixture::of(scenario).models(&["sonnet", "opus"]).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed);
        let fields = |number: usize| -> Vec<Value> {
            let calls = blocks(&played, number, "tool_use").into_iter();
            let further = |mut call: Value| {
                let fields = call.as_object_mut().expect("an object");
                let read = ["type", "id", "name", "input", "cache_control"];
                fields.retain(|name, _| !read.contains(&name.as_str()));
                call
            };
            calls.map(further).collect()
        };
        let found: Vec<_> = (1..=played.server.requests().len()).map(fields).collect();
        assert_eq!(found, sent);
    }
}

/// A service that does not sign its thinking may demand it back; one that signs refuses it.
#[tokio::test]
async fn thinking_without_a_signature_is_sent_back_until_it_is_refused() {
    let stream = stream_of(&[
        json!({ "type": "thinking", "thinking": "I must look." }),
        json!({ "type": "tool_use", "id": "call_1", "name": "Bash",
            "input": { "command": "true" } }),
    ]);
    let unsigned = |scenario: Scenario| scenario.status(200).body("text/event-stream", &stream);
    let rules = ServerRules { signatures: Signatures::Refuse, ..ServerRules::default() };
    let scenario = unsigned(unsigned(Scenario::new().rules(rules))).reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let sent: Vec<Value> =
        (1..=4).map(|number| blocks(&played, number, "thinking").into_iter().collect()).collect();
    let thinking = json!([{ "type": "thinking", "thinking": "I must look.", "signature": "" }]);
    assert_eq!(sent, [json!([]), thinking, json!([]), json!([])]);
}

/// The models of such a service think unless they are told not to.
#[tokio::test]
async fn thinking_is_disabled_where_lost_thinking_is_demanded() {
    let lost = "The `content[].thinking` in the thinking mode must be passed back to the API.";
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "true" }))
        .status(400)
        .error("invalid_request_error", lost, None)
        .tool("Bash", json!({ "command": "true" }))
        .reply("Done.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let requests = played.server.requests();
    let disabled = json!({ "type": "disabled" });
    assert_ne!(requests[1].body["thinking"], disabled);
    assert!(requests[2..].iter().all(|request| request.body["thinking"] == disabled));
    assert_eq!(requests.len(), 4);
}

/// Some gateways lose the arguments of calls only when they stream.
#[tokio::test]
async fn calls_that_lose_their_arguments_in_streams_are_asked_for_without_streaming() {
    let stream =
        stream_of(&[json!({ "type": "tool_use", "id": "call_1", "name": "Bash", "input": {} })]);
    let lost = |scenario: Scenario| scenario.status(200).body("text/event-stream", &stream);
    let scenario = lost(lost(Scenario::new())).tool("Bash", json!({ "command": "true" }));
    let played = RunFixture::of(scenario.reply("Done.")).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    let requests = played.server.requests();
    let streamed: Vec<bool> = requests.iter().map(|one| one.body["stream"] == true).collect();
    assert_eq!(streamed, [true, true, false, false]);
}
