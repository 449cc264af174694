//! The typed history of a session, read from journals that the real binary wrote.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use outlast::history::{
    HistoryContents, HistoryEvent, HistoryItem, MessageAuthor, SessionHistory, ToolRun,
    ToolRunState, WaitCause, read_history,
};
use outlast::journal::{
    CarryOver, ListScope, OpenRecord, SessionFile, SessionFolder, SessionState, list_sessions,
    summarize_session,
};
use outlast::recovery::{ErrorClass, Money, RecoveryPlan, StopReason};
use outlast::rehearsal::{Scenario, ServerRules};
use outlast::report::{MarkContent, SessionOutcome, SessionReport, SessionTimeline};
use serde_json::json;

use crate::support::{FifoSignal, FinishedProcess, RunBuilder, serve};

/// The file of the only session.
fn file(of: &FinishedProcess) -> SessionFile {
    let place = SessionFolder::new(&of.config(), Path::new(&of.work()));
    let files = list_sessions(&place, ListScope::All);
    let [file] = &files[..] else { panic!("one session: {files:?}") };
    file.clone()
}

/// The history of the only session.
fn history(of: &FinishedProcess) -> SessionHistory {
    read_history(&file(of), HistoryContents::All).expect("it can be read")
}

/// The cost of the turns and of the payments beside them, in dollars.
fn cost_of_items(history: &SessionHistory) -> f64 {
    let costs = history.items.iter().filter_map(|item| {
        if let HistoryEvent::Turn(turn) = &item.event {
            turn.cost
        } else if let HistoryEvent::Spend(spend) = &item.event {
            spend.cost
        } else {
            None
        }
    });
    costs.sum::<outlast::recovery::Money>().as_dollars()
}

#[track_caller]
fn agrees_with_result(history: &SessionHistory, ended: &FinishedProcess) {
    let result = ended.result();
    assert_eq!(json!(cost_of_items(history)), result["total_cost_usd"], "{history:#?}");
    assert_eq!(json!(history.totals_with_agents().spent.as_dollars()), result["total_cost_usd"]);
    assert_eq!(json!(history.turns().count()), result["num_turns"]);
    assert_eq!(json!(history.tools().count()), result["tools"]["calls"]);
    let end = history.end.as_ref().expect("it ended");
    assert_eq!(Some(i32::from(end.exit_code())), ended.code);
    assert_eq!(json!(end.reason.name()), result["terminal_reason"]);
    assert!(history.problems.is_empty() && !history.is_torn, "{history:#?}");
}

#[tokio::test]
async fn a_history_has_waits_setbacks_and_the_change_of_the_model() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "exit 4" }))
        .status(529)
        .times(3)
        .reply("Done by another.");
    let server = serve(scenario);
    let args = ["--model", "sonnet", "--fallback-model", "opus", "Do it."];
    let ended = RunBuilder::against(&server).args(args).run().await;
    let history = history(&ended);
    agrees_with_result(&history, &ended);
    assert_eq!(history.prompts().collect::<Vec<_>>(), ["Do it."]);
    let (mut waits, mut plans, mut switches, mut recoveries) = (0, Vec::new(), 0, 0);
    for item in &history.items {
        assert!(item.at.is_some(), "{item:?}");
        if let HistoryEvent::Wait(wait) = &item.event {
            let WaitCause::Retry { class, retry, .. } = wait.cause else { panic!("{wait:?}") };
            waits += 1;
            assert_eq!((class, retry), (ErrorClass::ServerOverload, waits));
            assert!(wait.waited >= Some(wait.planned), "{wait:?}");
        } else if let HistoryEvent::Failure(setback) = &item.event {
            assert_eq!(setback.class, ErrorClass::ServerOverload.name());
            plans.push(setback.plan);
        } else if let HistoryEvent::ModelSwitch { from, to } = &item.event {
            assert_eq!((from.as_str(), to.as_str()), ("claude-sonnet-5-5", "claude-opus-5-5"));
            switches += 1;
        } else if let HistoryEvent::Recovery(record) = &item.event {
            assert!(record.saved);
            recoveries += 1;
        }
    }
    assert_eq!((waits, switches, recoveries, plans.len()), (2, 1, 1, 3), "{history:#?}");
    assert_eq!(plans[2], RecoveryPlan::SwitchModel);
    let tool = history.tools().next().expect("a call");
    assert_eq!((tool.state, tool.exit_code()), (ToolRunState::Failed, Some(4)));
    assert!(tool.took().is_some() && tool.output_text().contains("Exit code 4"), "{tool:?}");
    assert!(history.turns().next().is_some(), "{history:#?}");
    assert!(history.turns().all(|turn| turn.took.is_some() && turn.cost.is_some()));
}

#[tokio::test]
async fn lists_and_reports_agree_about_the_end_of_a_journal_that_was_cut() {
    let server = serve(Scenario::new().tool("Bash", json!({ "command": "true" })).reply("Done."));
    let ended = RunBuilder::against(&server).args(["Do it."]).run().await;
    let file = file(&ended);
    let whole = std::fs::read(&file.path).expect("readable");
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', &whole).collect();
    let listed_state = |text: &[u8]| {
        std::fs::write(&file.path, text).expect("writable");
        let listed = summarize_session(&file).expect("readable").state;
        let history = read_history(&file, HistoryContents::All).expect("readable");
        let reported = match SessionReport::of(&history).outcome {
            SessionOutcome::Ended(reason) => SessionState::Ended(reason),
            SessionOutcome::Unfinished => SessionState::Unfinished,
            SessionOutcome::Foreign => SessionState::Foreign,
            SessionOutcome::Running | SessionOutcome::NotStarted(_) => SessionState::Running,
        };
        assert_eq!(listed, reported, "{}", String::from_utf8_lossy(text));
        listed
    };
    // Each line is cut off before its first byte, in its middle, and before its last byte.
    let cuts = ends.iter().flat_map(|end| [end + 1, end - 9, end - 1]).chain([0]);
    let cut = cuts.map(|cut| listed_state(&whole[..cut])).collect::<Vec<_>>();
    let of = |state| cut.iter().filter(|one| **one == state).count();
    let completed = of(SessionState::Ended(StopReason::Completed));
    assert_eq!(completed, 4, "whole, twice without all of its last record, once without it");
    assert_eq!(of(SessionState::Unfinished), cut.len() - completed);
    // All records are damaged, and the messages are not.
    let damaged = String::from_utf8_lossy(&whole).replace("\"v\":1", "\"v\":2");
    assert_eq!(listed_state(damaged.as_bytes()), SessionState::Unfinished);
    assert_eq!(listed_state(b"{\"x\":1}\n"), SessionState::Foreign);
    assert_eq!(listed_state(b"[]\n"), SessionState::Unfinished);
}

#[tokio::test]
async fn only_contents_that_are_not_needed_are_dropped() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo one" }))
        .tool("Bash", json!({ "command": "echo two; exit 4" }))
        .and_text("Once more.")
        .reply("Done.");
    let server = serve(scenario);
    let ended = RunBuilder::against(&server).args(["Do it."]).run().await;
    let all = history(&ended);
    let read = |contents| read_history(&file(&ended), contents).expect("it can be read");

    let report = read(HistoryContents::WithoutOutputs);
    assert_eq!(SessionReport::of(&report), SessionReport::of(&all));
    let outputs = |of: &SessionHistory| of.tools().map(ToolRun::output_text).collect::<Vec<_>>();
    let (needed, failed) = (outputs(&report), &outputs(&all)[1]);
    assert!(needed == ["", failed.as_str()] && failed.contains("two"), "{needed:?}");

    for count in 0..5 {
        let last = read(HistoryContents::Last(count));
        let has_contents = |item: &HistoryItem| {
            if let HistoryEvent::Message(message) = &item.event {
                !message.text.is_empty()
            } else {
                item.turn().is_some_and(|turn| !turn.content.is_empty() || !turn.tools.is_empty())
            }
        };
        // The prompt and three turns.
        let kept = last.items.iter().filter(|item| has_contents(item)).count();
        assert_eq!(kept, count.clamp(1, 4), "{last:#?}");
        for (item, whole) in std::iter::zip(&last.items, &all.items).rev() {
            assert!(item == whole || !has_contents(item), "{item:?} {whole:?}");
        }
        let facts = |of: &SessionHistory| SessionHistory { items: Vec::new(), ..of.clone() };
        assert_eq!((facts(&last), last.items.len()), (facts(&all), all.items.len()));
    }
}

#[tokio::test]
async fn a_history_has_compactions_and_what_they_cost() {
    let line = "all work and no play makes a long and rather tedious log of it ".repeat(2);
    let command = format!("seq -f 'line %04g: {}' 1 250", &line[..80]);
    let rules =
        ServerRules { token_limit: std::num::NonZeroU64::new(60_000), ..Default::default() };
    let mut scenario = Scenario::new().rules(rules);
    for part in 1..=9 {
        let command = format!("echo part {part}; {command}");
        scenario = scenario.tool("Bash", json!({ "command": command }));
    }
    let scenario = scenario.reply("All read.");
    let server =
        serve(scenario.compactions(Scenario::new().reply("Lines, and more lines.").times(9)));
    let args = ["--context-window", "60000", "Read it all."];
    let ended = RunBuilder::against(&server).args(args).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let history = history(&ended);
    agrees_with_result(&history, &ended);
    let compactions =
        history.items.iter().filter(|item| matches!(item.event, HistoryEvent::Compaction { .. }));
    assert_eq!(json!(compactions.count()), ended.result()["recovery"]["compactions"]);
    assert!(history.items.iter().any(|item| matches!(item.event, HistoryEvent::Spend(_))));
}

#[tokio::test]
async fn a_history_has_every_process_and_the_calls_that_a_kill_interrupted() {
    let scenario = Scenario::new()
        .tool("Bash", json!({ "command": "echo begun > bell; sleep 1000" }))
        .reply("It was interrupted.");
    let server = serve(scenario);
    let trial = RunBuilder::against(&server).args(["Do it."]);
    let mut bell = FifoSignal::at(&trial.work().join("bell"));
    let mut running = trial.start();
    bell.wait_for_line().await;
    running.child.start_kill().expect("it can be killed");
    let ended = running.end().await;
    let cut_off = history(&ended);
    assert_eq!(cut_off.end, None);
    let state = |history: &SessionHistory| history.tools().next().map(|tool| tool.state);
    assert_eq!(state(&cut_off), Some(ToolRunState::Unknown));
    let ended = ended.again(&server.base_url()).args(["--continue"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let resumed = history(&ended);
    assert_eq!(state(&resumed), Some(ToolRunState::Unknown));
    assert_eq!(resumed.end.as_ref().map(|end| end.reason), Some(StopReason::Completed));
    let carries: Vec<CarryOver> = resumed
        .items
        .iter()
        .filter_map(|item| {
            if let HistoryEvent::Process(start) = &item.event { Some(start.carry) } else { None }
        })
        .collect();
    assert_eq!(carries, [CarryOver::Fresh, CarryOver::On]);
    let by_user = |history: &SessionHistory| {
        history.items.iter().filter(|item| {
            matches!(&item.event, HistoryEvent::Message(said) if said.author == MessageAuthor::User)
        })
        .count()
    };
    assert_eq!(by_user(&resumed), 1, "{resumed:#?}");
    assert!(
        resumed.worked
            <= resumed.ended.zip(resumed.started).map_or(
                std::time::Duration::ZERO,
                |(to, from)| std::time::Duration::try_from(to.duration_since(from))
                    .expect("in order"),
            )
    );
}

/// The pauses between processes may be days long, and nothing happens in them.
#[test]
fn a_timeline_has_no_time_between_processes() {
    let second = |second| Some(Timestamp::from_second(second).expect("a time"));
    let process = |epoch, at| {
        let start = OpenRecord { epoch, ..OpenRecord::default() };
        HistoryItem { at: second(at), event: HistoryEvent::Process(Box::new(start)) }
    };
    let switch = |at| {
        let event = HistoryEvent::ModelSwitch { from: "a".to_owned(), to: "b".to_owned() };
        HistoryItem { at: second(at), event }
    };
    let history = SessionHistory {
        items: vec![process(1, 0), switch(10), process(2, 90_000), switch(90_005)],
        ended: second(90_030),
        ..SessionHistory::default()
    };
    let timeline = SessionTimeline::of(&history);
    assert_eq!(timeline.length.as_secs(), 40);
    let marks = timeline.marks.iter().map(|mark| (mark.at.as_secs(), mark.content.clone()));
    let switch = || MarkContent::ModelSwitch { to: "b".to_owned() };
    let expected = [(10, switch()), (10, MarkContent::Resumed), (15, switch())];
    assert_eq!(marks.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_call_of_a_sub_agent_that_was_in_flight_at_a_kill_is_charged_as_in_the_result() {
    let task =
        json!({ "description": "d", "prompt": "the part", "subagent_type": "general-purpose" });
    let scenario = Scenario::new().tool("Agent", task).usage(1_000, 100).reply("Never.");
    let server = serve(scenario.delay(Duration::from_mins(5)));
    let running = RunBuilder::against(&server).args(["Go."]).start();
    server.wait_for_request(2).await;
    running.signal(Signal::SIGKILL);
    let ended = running.end().await;
    let killed = history(&ended).totals_with_agents();
    let next = serve(Scenario::new().reply("Done.").usage(1_000, 100));
    let ended = ended.again(&next.base_url()).args(["--continue"]).run().await;
    let resumed = history(&ended);
    let totals = resumed.totals_with_agents();
    assert_eq!(json!(totals.spent.as_dollars()), ended.result()["total_cost_usd"]);
    assert_eq!(totals.upper_bounds, resumed.agents[0].history.totals.spent);
    assert!(totals.upper_bounds > Money::ZERO && totals.upper_bounds == killed.upper_bounds);
}
