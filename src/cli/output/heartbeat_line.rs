//! The line for a heartbeat.

use std::time::Duration;

use jiff::Timestamp;

use crate::agent::{Heartbeat, WaitingFor};
use crate::cli::timestamps::{WallTime, format_duration, format_elapsed};
use crate::recovery::{Fault, Pause};

use super::calls::CallNames;

/// Formats a heartbeat. `end` is the announced end of the current retry wait.
pub(super) fn heartbeat(
    heartbeat: &Heartbeat,
    calls: &CallNames,
    now: &WallTime,
    end: Option<Timestamp>,
) -> String {
    let Heartbeat { elapsed, turn, spent, .. } = heartbeat;
    let elapsed = format_elapsed(*elapsed);
    match &heartbeat.waiting_for {
        WaitingFor::Retry(pause) => {
            let end = heartbeat.ends_in.map_or_else(String::new, |left| {
                let end = end.unwrap_or_else(|| now.after(left));
                format!(", {} left, until {}", format_duration(left), now.clock_time(end))
            });
            // This total includes the current wait, unlike that in the announcement of the wait.
            let waited = total_wait(heartbeat.waited_in_all);
            format!("waiting {}{end}{waited}, {spent}", purpose(*pause, None))
        }
        WaitingFor::Credentials => {
            format!("waiting for credentials, {elapsed} so far, turn {turn}, {spent}")
        }
        WaitingFor::Model(model) => {
            let silence = heartbeat.since_last_byte.map_or_else(String::new, |silence| {
                format!(", last byte {} ago", format_elapsed(silence))
            });
            format!(
                "waiting for {model} to answer, {elapsed} so far{silence}, turn {turn}, {spent}"
            )
        }
        WaitingFor::Work { running } => {
            let left = format_duration(heartbeat.ends_in.unwrap_or_default());
            let list = running.join("; ");
            format!(
                "waiting for background commands to end, {elapsed} so far, {left} left, turn \
                 {turn}, {spent}: {list}"
            )
        }
        WaitingFor::Agents { running } => {
            let list = running.join("; ");
            format!("waiting for agents, {elapsed} so far, turn {turn}, {spent}: {list}")
        }
        WaitingFor::Servers { names } => format!(
            "waiting for MCP servers ({}), {elapsed} so far, {} left until the run begins without \
             them",
            names.join(", "),
            format_duration(heartbeat.ends_in.unwrap_or_default())
        ),
        WaitingFor::Journal { path } => format!(
            "waiting for the disk of the journal {path}, {elapsed} so far, turn {turn}, {spent}"
        ),
        WaitingFor::Money => format!(
            "waiting until other agents' calls are paid and the budget has room, {elapsed} so \
             far, turn {turn}, {spent}"
        ),
        WaitingFor::Hook { event } => {
            format!("running {} hooks, {elapsed} so far, turn {turn}, {spent}", event.name())
        }
        WaitingFor::Permission { tool, id } => format!(
            "waiting for the host's permission for {}, {elapsed} so far, turn {turn}, {spent}",
            calls.of(id, tool)
        ),
        WaitingFor::Elicitation { server } => format!(
            "waiting for the host's answer to a question of the MCP server {server:?}, {elapsed} \
             so far, turn {turn}, {spent}"
        ),
        WaitingFor::Tool { name, id } => {
            let end = heartbeat
                .ends_in
                .map_or_else(String::new, |left| format!(", {} left", format_duration(left)));
            let call = calls.of(id, name);
            format!("running {call}, {elapsed} so far{end}, turn {turn}, {spent}")
        }
    }
}

pub(super) fn total_wait(waited: Duration) -> String {
    format!(", waited {} so far", format_elapsed(waited))
}

/// Describes the purpose of a retry wait: the failure that is retried, and the number of the retry.
pub(super) fn purpose(pause: Pause, fault: Option<&Fault>) -> String {
    if pause.is_for_shared_limit() {
        return "to ask (rate limit known on this host)".to_owned();
    }
    let status = fault.and_then(Fault::status).map(|status| format!("HTTP {status}, "));
    let timer = fault.and_then(Fault::timer).map(|timer| format!("{}, ", timer.name()));
    let cause = status.or(timer).unwrap_or_default();
    match pause.of {
        Some(of) => format!("to retry ({}, {cause}retry {} of {of})", pause.class, pause.retry),
        None => {
            format!("to retry ({}, {cause}retry {}, as many as it takes)", pause.class, pause.retry)
        }
    }
}
