//! The command of `--require`, and effort: the run decides when the work is done, not the model.

use std::time::Duration;

use outlast::recovery::{Nudge, StopReason};
use outlast::rehearsal::Scenario;
use outlast::tools::Requirement;
use serde_json::json;

use super::run_fixture::{FinishedRun, RunFixture};
use crate::support::is_alive;

/// Says that it is done, and does nothing.
fn claims(times: u32) -> Scenario {
    Scenario::new().reply("Done.").times(times)
}

/// Whether the command passed, how often it ran, and its last exit code.
#[track_caller]
fn verdict(played: &FinishedRun) -> (bool, u32, Option<i32>) {
    let report = played.ending.acceptance.requirement.as_ref().expect("it was demanded");
    (report.passed, report.attempts, report.exit_code)
}

#[tokio::test]
async fn a_passing_requirement_runs_once_without_another_request() {
    let played = RunFixture::of(claims(1)).requiring("echo x >> runs; true").run().await;
    played.assert_end(StopReason::Completed, "Done.");
    assert_eq!(verdict(&played), (true, 1, Some(0)));
    let report = played.ending.acceptance.requirement.as_ref().expect("it was demanded");
    assert_eq!((report.command.as_str(), report.output.as_str()), ("echo x >> runs; true", ""));
    assert_eq!(played.file("runs"), "x\n");
    played.assert_asked(1);
}

#[tokio::test]
async fn a_requirement_may_fail_as_often_as_the_limit_says() {
    for retries in [0, 3] {
        let runs = u32::from(retries) + 1;
        let fixture = RunFixture::of(claims(runs)).requiring("echo x >> runs; exit 7");
        let fixture = fixture.limits(|limits| limits.budgets.requirement_tries = retries);
        let played = fixture.run().await;
        played.assert_end(StopReason::RequirementFailed, "Done.");
        assert_eq!(verdict(&played), (false, runs, Some(7)));
        assert_eq!(played.file("runs"), "x\n".repeat(runs as usize));
        assert_eq!(played.strategy("requirement_retry"), u64::from(retries));
        played.assert_asked(runs as usize);
    }
}

#[tokio::test]
async fn every_requirement_outcome_is_described_within_bounds() {
    const MINUTE: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_secs(2);
    // command, time for it, what the model is told
    let table = [
        ("no-such-command-anywhere", MINUTE, vec!["exit code 127", "not found"]),
        ("echo begun; echo $$ > pids; sleep 1000", SHORT, vec!["within 2s", "begun"]),
        ("trap '' TERM; echo $$ > pids; while :; do sleep 1000; done", SHORT, vec!["cut off"]),
        (
            "echo $$ > pids; yes | head -c 3000000; sleep 1000",
            SHORT,
            vec!["within 2s", "is left out", "\ny\ny\n"],
        ),
        ("head -c 3000000 /dev/zero; exit 3", MINUTE, vec!["binary output", "exit code 3"]),
        ("kill -9 $$", MINUTE, vec!["killed by SIGKILL", "(no output)"]),
        ("exec 2>&1; if true; then", MINUTE, vec!["exit code", "syntax error"]),
    ];
    for (command, timeout, parts) in table {
        let fixture = RunFixture::of(claims(2)).requiring(command).tools(|settings| {
            settings.acceptance.requirement =
                Some(Requirement { command: command.to_owned(), timeout });
        });
        let fixture = fixture.limits(|limits| limits.budgets.requirement_tries = 1);
        let played = fixture.run().await;
        played.assert_end(StopReason::RequirementFailed, "Done.");
        let (passed, attempts, _) = verdict(&played);
        assert_eq!((passed, attempts), (false, 2), "{command}");
        let told = played.told(2);
        for part in parts {
            assert!(told.contains(part), "{command}: {part:?} in {told}");
        }
        assert!(told.chars().count() < 35_000, "{command}: {}", told.chars().count());
        let report = played.ending.acceptance.requirement.as_ref().expect("it was demanded");
        assert!(report.output.len() < 5_000, "{command}: {}", report.output.len());
        for pid in played.file("pids").split_whitespace() {
            assert!(!is_alive(pid.parse().expect("a pid")), "{command}: {pid} lives");
        }
        played.assert_asked(2);
    }
}

#[tokio::test]
async fn a_failed_requirement_in_the_last_turn_ends_the_run() {
    let fixture = RunFixture::of(claims(1)).requiring("echo x >> runs; false");
    let played = fixture.limits(|limits| limits.budgets.turns = Some(1)).run().await;
    played.assert_end(StopReason::MaxTurns, "Done.");
    assert_eq!(verdict(&played), (false, 1, Some(1)), "the answer was judged all the same");
    played.assert_asked(1);
}

// --- effort -----------------------------------------------------------------------------------

#[tokio::test]
async fn effort_nudges_stop_when_the_budget_is_used_or_they_have_no_effect() {
    // the budget, output tokens of each reply, requests: nine tenths of the budget are enough, and
    // three replies in a row that are hardly longer than nothing show that nudges have no effect
    let table: [(u32, &[u64], usize); 6] = [
        (10_000, &[9_000], 1),
        (10_000, &[100; 4], 4),
        (10_000, &[4_000, 4_000, 1_000], 3),
        (10_000, &[100, 600, 100, 100, 100], 5),
        (500_000, &[100; 4], 4),
        (5_000, &[600; 8], 8),
    ];
    for (effort, replies, requests) in table {
        let scenario = replies.iter().fold(Scenario::new(), |scenario, tokens| {
            scenario.reply("So far.").usage(100, *tokens)
        });
        let played = RunFixture::of(scenario).limits(|limits| {
            limits.effort = Some(effort);
            limits.caps.first = 32_000;
        });
        let played = played.run().await;
        played.assert_end(StopReason::Completed, "So far.");
        let nudges =
            if requests == 1 { json!({}) } else { json!({ "budget_continuation": requests - 1 }) };
        assert_eq!(played.strategies(), nudges, "{effort}, {replies:?}");
        for number in 2..=requests {
            assert_eq!(played.told(number), Nudge::MoreEffort.text(), "{effort}, {replies:?}");
        }
        played.assert_asked(requests);
    }
}

#[tokio::test]
async fn effort_nudges_precede_the_check_and_follow_a_failed_one() {
    let scenario =
        Scenario::new().reply("One.").usage(100, 10).times(4).reply("Two.").usage(100, 10);
    let fixture = RunFixture::of(scenario).requiring("echo x >> runs; test $(wc -l < runs) = 2");
    let played = fixture.limits(|limits| limits.effort = Some(10_000)).run().await;
    played.assert_end(StopReason::Completed, "Two.");
    assert_eq!(verdict(&played), (true, 2, Some(0)));
    assert_eq!(played.told(4), Nudge::MoreEffort.text());
    assert!(played.told(5).starts_with(Nudge::Unmet.text()), "{}", played.told(5));
    played.assert_asked(5);
}
