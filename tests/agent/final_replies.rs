//! Replies that would end a run: with a call left as text, or with work left open.

use outlast::recovery::{ErrorClass, Incomplete, Nudge, StopReason};
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::json;

use super::run_fixture::{FinishedRun, RunFixture};

const CALL: &str = "I run it.\n<function_calls>\n<invoke name=\"Bash\">\n\
                    <parameter name=\"command\">echo ran >> log</parameter>\n</invoke>";

/// The number of requests with this text in their last message.
fn told(played: &FinishedRun, text: &str) -> usize {
    let requests = played.server.requests();
    let last = requests.iter().map(|request| {
        request.body["messages"].as_array().and_then(|all| all.last()).map(ToString::to_string)
    });
    let text = json!(text).to_string();
    let text = text.trim_matches('"');
    last.flatten().filter(|last| last.contains(text)).count()
}

#[tokio::test]
async fn a_call_left_as_text_is_told_once_and_is_no_success() {
    let scenario = Scenario::new().reply(CALL).after(AfterLast::RepeatLast);
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::ModelError(ErrorClass::BadResponse));
    let fault = played.ending.fault().expect("it says why");
    assert!(fault.detail().contains("a tool call as plain text"), "{fault:?}");
    assert_eq!(played.server.requests().len(), 2);
    assert_eq!(told(&played, Nudge::Complete(Incomplete::CallInText).text()), 1);
    assert!(!played.folder.path().join("log").exists(), "nothing of it was run");
}

/// The output limit or a pause may split it.
#[tokio::test]
async fn a_call_left_as_text_in_two_parts_is_found() {
    let (first, second) = CALL.split_at(CALL.find("invoke").expect("it is in there") + 3);
    let split = |reason: &str| Scenario::new().reply(first).stop_reason(reason);
    let cut = split("max_tokens").reply(first).stop_reason("max_tokens");
    for scenario in [cut, split("pause_turn")] {
        let played = RunFixture::of(scenario.reply(second).reply("It ran.")).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed);
        assert_eq!(played.ending.text, "It ran.");
        assert_eq!(told(&played, Nudge::Complete(Incomplete::CallInText).text()), 1);
    }
}

/// Replies that `--token-budget` requests after a finished answer do not undo its success if they
/// fail.
#[tokio::test]
async fn failed_additional_effort_takes_no_success_back() {
    let answer = || Scenario::new().reply("The answer is 42.");
    let failing = [
        answer().status(400).error("invalid_request_error", "no", None),
        answer().reply("No.").stop_reason("refusal"),
        answer()
            .tool("Bash", json!({ "command": "echo more" }))
            .empty()
            .after(AfterLast::RepeatLast),
    ];
    for scenario in failing {
        let played = RunFixture::of(scenario);
        let played = played.limits(|limits| limits.effort = Some(5_000)).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed);
        assert_eq!(played.ending.text, "The answer is 42.");
        let warnings = played.warnings();
        assert!(warnings[0].contains("did not succeed"), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_made_after_the_notice_saves_the_run() {
    let scenario = Scenario::new()
        .reply(CALL)
        .tool("Bash", json!({ "command": "echo ran >> log" }))
        .reply("It ran. The form `<invoke name=\"Bash\"></invoke>` was wrong.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert!(played.ending.text.starts_with("It ran."), "{}", played.ending.text);
    assert!(played.folder.path().join("log").exists());
    played.assert_no_warnings_or_repairs();
}

fn todos(status: &str) -> serde_json::Value {
    let step = |content: &str, status: &str| json!({ "content": content, "status": status, "activeForm": content });
    json!({ "todos": [step("Fix the parser", "completed"), step("Run the tests", status)] })
}

fn working() -> Scenario {
    Scenario::new().tool("Bash", json!({ "command": "echo fixed" }))
}

#[tokio::test]
async fn open_to_dos_are_reminded_of_once_and_then_a_warning() {
    let scenario = working()
        .tool("TodoWrite", todos("pending"))
        .reply("The parser is fixed.")
        .tool("Bash", json!({ "command": "echo more" }))
        .reply("It is tested.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.ending.text, "The parser is fixed.\n\nIt is tested.");
    assert_eq!(told(&played, Nudge::LeftOpen.text()), 1);
    assert_eq!(told(&played, "to-dos are open: \"Run the tests\""), 1);
    assert_eq!(played.warnings(), ["the model ended although to-dos are open: \"Run the tests\""]);
}

#[tokio::test]
async fn an_announcement_after_work_is_reminded_of_and_work_that_is_done_is_not() {
    let scenario = working()
        .tool("TodoWrite", todos("completed"))
        .reply("The parser is fixed. Now let me run the tests:")
        .tool("Bash", json!({ "command": "echo passed" }))
        .reply("Fixed, and all tests pass.");
    let played = RunFixture::of(scenario).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(told(&played, "Now let me run the tests:"), 1);
    played.assert_no_warnings_or_repairs();
    // Without tool work a colon is no announcement of any.
    let played = RunFixture::of(Scenario::new().reply("The answer is:")).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.server.requests().len(), 1);
    played.assert_no_warnings_or_repairs();
}

/// Without the reminder the run would have been a success.
#[tokio::test]
async fn a_reminder_takes_no_success_back() {
    let open = "Fixed. Now let me run the tests:";
    let failing = [
        working().reply(open).status(400).error("invalid_request_error", "no", None),
        working().reply(open).empty().after(AfterLast::RepeatLast),
        working().reply(open).reply("").stop_reason("refusal"),
    ];
    for scenario in failing {
        let played = RunFixture::of(scenario).run().await;
        assert_eq!(played.ending.reason, StopReason::Completed);
        assert_eq!(played.ending.text, open);
        assert!(played.server.requests().len() >= 3);
        assert!(played.warnings()[0].contains("Now let me run the tests:"), "{:?}", played.said);
    }
    // The last turn has no room for one.
    let played = RunFixture::of(working().reply(open));
    let played = played.limits(|limits| limits.budgets.turns = Some(2)).run().await;
    assert_eq!(played.ending.reason, StopReason::Completed);
    assert_eq!(played.server.requests().len(), 2);
    assert_eq!(played.warnings().len(), 1);
}
