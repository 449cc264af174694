//! Progress lines and heartbeats on standard error.

use std::time::Duration;

use jiff::tz::TimeZone;
use outlast::agent::{Heartbeat, Observer, RunEvent, WaitingFor};
use outlast::cli::args::Verbosity;
use outlast::cli::output::{LineStyle, ProgressLines};
use outlast::cli::timestamps::{WallTime, format_duration, format_elapsed};
use outlast::journal::Denial;
use outlast::recovery::{
    ErrorClass, FailureStage, Fault, FaultKind, Moment, Money, Pause, RecoveryRecord,
};

use super::result_writer::written;
use super::streams::saved;

fn clock() -> WallTime {
    WallTime { at: "2026-11-21T14:00:01Z".parse().expect("an instant"), zone: TimeZone::UTC }
}

async fn lines(events: &[RunEvent]) -> String {
    told(events, Verbosity::Waits).await
}

pub(super) async fn told(events: &[RunEvent], verbosity: Verbosity) -> String {
    written(|out| {
        let style = LineStyle { verbosity, ..LineStyle::default() };
        let mut lines = ProgressLines::new(out, clock, style);
        for event in events {
            lines.observe(event);
        }
    })
    .await
}

const OVERLOAD: Pause = Pause { class: ErrorClass::ServerOverload, retry: 4, of: Some(10) };

pub(super) fn overloaded() -> Fault {
    let kind = FaultKind::Refused {
        status: 529,
        label: "overloaded_error".to_owned(),
        code: String::new(),
        message: "Overloaded".to_owned(),
    };
    Fault::new(kind, FailureStage::Status)
}

fn begins(pause: Pause, seconds: u64, fault: Option<Fault>) -> RunEvent {
    let now = Moment::from_millis(5_000);
    let spent = Money::from_pico_dollars(4_000_000_000).into();
    RunEvent::WaitBegins {
        pause,
        until: now.after(Duration::from_secs(seconds)),
        now,
        fault: fault.map(Box::new),
        spent,
    }
}

pub(super) fn heartbeat(waiting_for: WaitingFor, ends_in: Option<u64>) -> RunEvent {
    RunEvent::Heartbeat(Heartbeat {
        waiting_for,
        elapsed: Duration::from_secs(30),
        ends_in: ends_in.map(Duration::from_secs),
        turn: 3,
        waited_in_all: Duration::from_secs(230),
        spent: Money::from_pico_dollars(12_300_000_000).into(),
        since_last_byte: Some(Duration::from_secs(12)),
    })
}

#[tokio::test]
async fn a_wait_is_announced_with_class_attempt_and_end() {
    let fault = overloaded();
    let text = lines(&[
        begins(OVERLOAD, 130, Some(fault)),
        heartbeat(WaitingFor::Retry(OVERLOAD), Some(100)),
        RunEvent::WaitEnds { pause: OVERLOAD, waited: Duration::from_secs(130) },
        begins(Pause { retry: 5, ..OVERLOAD }, 32, None),
        RunEvent::WaitEnds { pause: OVERLOAD, waited: Duration::from_secs(32) },
        begins(Pause { retry: 6, ..OVERLOAD }, 5, None),
    ])
    .await;
    assert_eq!(
        text,
        "outlast: waiting 2m10s to retry (server_overload, HTTP 529, retry 4 of 10), until \
         14:02:11, waited 0s so far, $0.0040 spent\n\
         outlast: waiting to retry (server_overload, retry 4 of 10), 1m40s left, until 14:02:11, \
         waited 3m50s so far, $0.0123 spent\n\
         outlast: waiting 32s to retry (server_overload, retry 5 of 10), until 14:00:33, waited \
         2m10s so far, $0.0040 spent\n\
         outlast: waiting 5s to retry (server_overload, retry 6 of 10), until 14:00:06, waited \
         2m42s so far, $0.0040 spent\n"
    );
}

#[tokio::test]
async fn a_heartbeat_reports_the_pending_work_its_duration_and_the_cost() {
    let uncounted = Pause { class: ErrorClass::RateLimit, retry: 12, of: None };
    let text = lines(&[
        heartbeat(WaitingFor::Retry(OVERLOAD), Some(100)),
        heartbeat(WaitingFor::Retry(uncounted), Some(6 * 3600 + 11 * 3600)),
        heartbeat(WaitingFor::Credentials, None),
        heartbeat(WaitingFor::Model("model-a".to_owned()), None),
        heartbeat(WaitingFor::Tool { name: "Bash".to_owned(), id: "toolu_1".to_owned() }, Some(90)),
        heartbeat(WaitingFor::Elicitation { server: "quiz".to_owned() }, None),
    ])
    .await;
    assert_eq!(
        text,
        "outlast: waiting to retry (server_overload, retry 4 of 10), 1m40s left, until 14:01:41, \
         waited 3m50s so far, $0.0123 spent\n\
         outlast: waiting to retry (rate_limit, retry 12, as many as it takes), 17h00m left, until \
         2026-11-22 07:00:01, waited 3m50s so far, $0.0123 spent\n\
         outlast: waiting for credentials, 30s so far, turn 3, $0.0123 spent\n\
         outlast: waiting for model-a to answer, 30s so far, last byte 12s ago, turn 3, $0.0123 \
         spent\n\
         outlast: running Bash, 30s so far, 1m30s left, turn 3, $0.0123 spent\n\
         outlast: waiting for the host's answer to a question of the MCP server \"quiz\", 30s so far, \
         turn 3, $0.0123 spent\n"
    );
}

#[tokio::test]
async fn warnings_are_one_plain_line_each() {
    let text = lines(&[
        RunEvent::Warning("first\n\u{1b}[31msecond".to_owned()),
        RunEvent::Denied(Box::new(Denial {
            tool_name: "Bash".to_owned(),
            tool_use_id: "toolu_1".to_owned(),
            tool_input: serde_json::json!({ "command": "git push" }),
            reason: "git push is not allowed".to_owned(),
        })),
        RunEvent::ModelSwitched { from: "model-a".to_owned(), to: "model-b".to_owned() },
    ])
    .await;
    assert_eq!(
        text,
        "outlast: warning: first  [31msecond\n\
         outlast: warning: Bash was not allowed: git push is not allowed\n\
         outlast: switched from model-a to model-b due to high demand\n"
    );
}

#[tokio::test]
async fn verbose_output_reports_the_outcome_of_each_recovery() {
    let saved = saved();
    let lost_to = Some("deadline".to_owned());
    let lost = RecoveryRecord { saved: false, lost_to, ..saved.clone() };
    let notices = [saved, lost].map(|record| RunEvent::RecoveryEnds(Box::new(record)));
    assert_eq!(lines(&notices).await, "");
    assert_eq!(
        told(&notices, Verbosity::Detail).await,
        "outlast: recovered from server_overload: retry x2; attempts 3, waited 31s, cost $0.0000\n\
         outlast: did not recover from server_overload before the end (deadline): retry x2; \
         attempts 3, waited 31s, cost $0.0000\n"
    );
}

#[tokio::test]
async fn a_run_without_failures_prints_nothing_on_stderr() {
    let event = serde_json::json!({ "type": "message_start" });
    let text = lines(&[RunEvent::StreamEvent(event)]).await;
    assert_eq!(text, "");
}

#[test]
fn durations_are_rounded_up_and_readable() {
    let cases = [
        (0, "0s"),
        (1, "1s"),
        (1_000, "1s"),
        (1_001, "2s"),
        (59_999, "1m00s"),
        (130_000, "2m10s"),
        (3_600_000, "1h00m"),
        (90_000_000, "1d01h"),
    ];
    for (millis, shown) in cases {
        assert_eq!(format_duration(Duration::from_millis(millis)), shown);
    }
    assert_eq!(format_elapsed(Duration::from_millis(30_900)), "30s");
}
