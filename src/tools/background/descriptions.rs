//! Formats background tasks for the model.

use std::time::Duration;

use indicatif::HumanBytes;

use super::super::text;
use super::task::{BackgroundEnd, BackgroundKind, BackgroundTask};
use crate::text::words_joined;

/// The maximum length of a quoted command, in characters.
const QUOTED: usize = 120;

/// Formats a task as a line of a list.
pub(super) fn list_line(task: &BackgroundTask) -> String {
    let what = match (task.kind, &task.description) {
        (BackgroundKind::Command, _) => quoted(&task.command),
        (BackgroundKind::Agent, None) => format!("agent {}", task.command),
        (BackgroundKind::Agent, Some(what)) => format!("agent {}, {}", task.command, quoted(what)),
    };
    format!("{} ({what}) {}", task.id, status_phrase(task))
}

/// The state, as a predicate whose subject is the task.
pub(super) fn status_phrase(task: &BackgroundTask) -> String {
    let took = whole_seconds(task.took);
    if task.kind == BackgroundKind::Agent {
        if task.end == Some(BackgroundEnd::Completed) {
            return format!("ended after {took}");
        }
        if task.end == Some(BackgroundEnd::Failed) {
            return format!("ended after {took} and did not finish");
        }
    }
    let code = task.exit_code.map_or_else(
        || "with an unknown exit code".to_string(),
        |code| format!("with exit code {code}"),
    );
    match task.end {
        None => task.first_exit.map_or_else(
            || format!("has been running for {took}"),
            |code| {
                format!(
                    "has been running for {took}: its first process has ended with exit code \
                     {code}, and others go on"
                )
            },
        ),
        Some(BackgroundEnd::Completed | BackgroundEnd::Failed) => {
            format!("ended after {took} {code}")
        }
        Some(BackgroundEnd::Killed) => format!("was stopped after {took}, as you asked"),
        Some(BackgroundEnd::TimedOut) => {
            format!("was stopped after {took}, the longest it may run")
        }
        Some(BackgroundEnd::MemoryExceeded(taken)) => {
            let taken = HumanBytes(taken);
            format!(
                "was stopped after {took} when it took {taken}: all commands together took more \
                 memory than the setting commandMemory allows, and it took most"
            )
        }
        Some(BackgroundEnd::RunEnded) => format!("was stopped after {took}, as the run ended"),
    }
}

/// Quotes a command on one line, truncated if it is long.
fn quoted(command: &str) -> String {
    let line = words_joined(command);
    let shown = text::truncated(&line, QUOTED);
    let rest = if shown.len() < line.len() { " ..." } else { "" };
    format!("`{shown}{rest}`")
}

/// A duration in whole seconds.
fn whole_seconds(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}
