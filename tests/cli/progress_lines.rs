//! Lines on standard error for people: tool calls, begin and end, colours.

use std::sync::Arc;
use std::time::Duration;

use outlast::agent::{EndedCall, RunEvent, WaitingFor};
use outlast::cli::args::Verbosity;
use outlast::recovery::Spending;
use outlast::rehearsal::Scenario;
use outlast::tools::{RequirementCheck, RequirementEnd};
use outlast::transcript::{Block, Message, Usage};
use serde_json::json;

use super::heartbeats::{heartbeat, told};
use crate::support::{RunBuilder, serve};

/// A reply that runs a command.
fn reply(command: &str) -> RunEvent {
    RunEvent::Assistant {
        message: Arc::new(Message::assistant(vec![Block::call(
            "toolu_1",
            "Bash",
            json!({ "command": command }),
        )])),
        ids: Vec::new(),
        id: "msg_1".to_owned(),
        model: "model-a".to_owned(),
        stop_reason: Some("tool_use".to_owned()),
        usage: Usage { output_tokens: 5, ..Usage::default() },
        request_id: None,
        spent: Spending::default(),
    }
}

fn ended(is_error: bool, exit_code: Option<i32>, tail: &str) -> RunEvent {
    let (name, id) = ("Bash".to_owned(), "toolu_1".to_owned());
    let (took, tail) = (Duration::from_millis(3_140), tail.to_owned());
    RunEvent::ToolEnds(Box::new(EndedCall { name, id, took, is_error, exit_code, tail }))
}

#[tokio::test]
async fn a_tool_call_is_one_line_with_its_outcome() {
    let refused = "<tool_use_error>the file is too large\nread a part</tool_use_error>";
    let cases = [
        (ended(true, Some(2), "boom"), "exit 2, 3.1s"),
        (ended(false, Some(1), "no match"), "exit 1, 3.1s"),
        (ended(false, Some(0), "fine"), "ok, 3.1s"),
        (ended(false, None, "fine"), "ok, 3.1s"),
        (ended(true, None, refused), "failed: the file is too large, 3.1s"),
    ];
    for (event, outcome) in cases {
        let events = [reply("make\n  test"), event];
        assert_eq!(told(&events, Verbosity::Waits).await, "");
        let expected = format!("outlast: Bash: make test → {outcome}\n");
        assert_eq!(told(&events, Verbosity::Calls).await, expected);
    }
}

#[tokio::test]
async fn detail_has_the_input_and_the_end_of_the_output() {
    let events = [reply("make test"), ended(true, Some(2), "1\n2\n3\n4\n5\n6")];
    assert_eq!(
        told(&events, Verbosity::Detail).await,
        "outlast: turn 1: 5 tokens, calls Bash\n\
         outlast: | Bash {\"command\":\"make test\"}\n\
         outlast: Bash: make test → exit 2, 3.1s\n\
         outlast: | 2\noutlast: | 3\noutlast: | 4\noutlast: | 5\noutlast: | 6\n"
    );
}

#[tokio::test]
async fn a_heartbeat_names_the_command_that_runs_and_not_its_id() {
    let tool = WaitingFor::Tool { name: "Bash".to_owned(), id: "toolu_1".to_owned() };
    let events = [reply("make test"), heartbeat(tool, None)];
    assert_eq!(
        told(&events, Verbosity::Waits).await,
        "outlast: running Bash: make test, 30s so far, turn 3, $0.0123 spent\n"
    );
}

#[tokio::test]
async fn an_unknown_price_is_not_shown_as_nothing() {
    let mut event = heartbeat(WaitingFor::Model("model-a".to_owned()), None);
    let RunEvent::Heartbeat(news) = &mut event else { panic!("it is a heartbeat") };
    let known = news.spent.amount;
    news.spent = Spending { amount: known, is_partial: true };
    let some = event.clone();
    let RunEvent::Heartbeat(news) = &mut event else { panic!("it is a heartbeat") };
    news.spent = Spending { is_partial: true, ..Spending::default() };
    let text = told(&[some, event], Verbosity::Waits).await;
    let ends: Vec<&str> = text.lines().filter_map(|line| line.split("turn 3, ").nth(1)).collect();
    assert_eq!(ends, ["at least $0.0123 spent", "cost unknown"]);
}

#[tokio::test]
async fn a_check_says_how_it_ended_and_how_many_tries_are_left() {
    let check = |end, attempt| RunEvent::RequirementEnds {
        check: Arc::new(RequirementCheck {
            command: "make test".to_owned(),
            end,
            output: "boom\n".to_owned(),
            output_file: None,
            took: Duration::from_secs(1),
        }),
        attempt,
        of: 3,
    };
    let exited = RequirementEnd::Exited;
    let events = [check(exited(2), 1), check(exited(2), 3), check(exited(0), 2)];
    assert_eq!(
        told(&events, Verbosity::Calls).await,
        "outlast: `make test` failed (exit 2), sent back to the model, try 1 of 3\n\
         outlast: `make test` failed (exit 2), no try is left, try 3 of 3\n\
         outlast: `make test` passed, try 2 of 3\n"
    );
}

/// Standard error of a run with one tool call and one retry.
async fn progress(variables: &[(&str, &str)], flags: &[&str]) -> String {
    let scenario =
        Scenario::new().status(529).tool("Bash", json!({ "command": "true" })).reply("Done.");
    let server = serve(scenario);
    let mut run = RunBuilder::against(&server).args(["do it"]).args(flags);
    for (name, value) in variables {
        run = run.env(name, value);
    }
    let ended = run.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stderr
}

#[tokio::test]
async fn ci_logs_have_a_first_line_one_for_each_call_and_a_last_line() {
    let text = progress(&[("CI", "true")], &[]).await;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("outlast: version "), "{text}");
    assert!(lines[0].contains(" · session "), "{text}");
    assert!(lines[1].starts_with("outlast: waiting "), "{text}");
    assert!(lines[2].starts_with("outlast: Bash: true → ok, "), "{text}");
    assert!(lines[3].starts_with("outlast: done · 2 turns · "), "{text}");
    assert!(lines[3].ends_with(" · 1 retry survived"), "{text}");
    assert_eq!(lines.len(), 4, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[tokio::test]
async fn pipes_and_quiet_runs_have_waits_alone() {
    let quiet: &[&str] = &["--quiet"];
    for (variables, flags) in [(&[][..], &[][..]), (&[("CI", "true")][..], quiet)] {
        let text = progress(variables, flags).await;
        assert!(text.starts_with("outlast: waiting "), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[tokio::test]
async fn the_usual_variables_decide_on_colours() {
    let coloured = progress(&[("CI", "true"), ("CLICOLOR_FORCE", "1")], &[]).await;
    assert!(coloured.contains("\u{1b}[32moutlast: done · "), "{coloured}");
    assert!(coloured.ends_with("survived\u{1b}[0m\n"), "{coloured}");
    let plain = [("CI", "true"), ("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    assert!(!progress(&plain, &[]).await.contains('\u{1b}'));
}

#[tokio::test]
async fn the_last_line_of_a_failed_run_names_the_reason_and_the_exit_code() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "true" })).reply("Done.");
    let server = serve(scenario);
    let run = RunBuilder::against(&server).args(["do it", "--max-turns", "1"]).env("CI", "1");
    let ended = run.run().await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("outlast: max_turns (exit 3) · 1 turn · "), "{ended:?}");
}
