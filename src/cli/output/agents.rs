//! Serialises sub-agents and background commands for results and streams.

use serde_json::{Value, json};

use crate::agent::{AgentIdentity, AgentStatus, AgentTask};
use crate::recovery::{Money, StopReason};
use crate::tools::{BackgroundEnd, BackgroundKind, BackgroundTask};

use super::super::timestamps::millis;

/// Serialises a sub-agent for the result.
pub(super) fn agent(task: &AgentTask) -> Value {
    let class = match task.reason {
        Some(StopReason::ModelError(class)) => Some(class.name()),
        Some(_) | None => None,
    };
    json!({
        "id": task.mark.id,
        "tool_use_id": task.mark.call,
        "type": task.mark.kind,
        "description": task.mark.description,
        "parent": task.parent,
        "depth": task.depth,
        "retries": task.retries,
        "background": task.background,
        "status": task.status.name(),
        "reason": task.reason.map(StopReason::name),
        "error_class": class,
        "error": task.error,
        "model": task.model,
        "session": task.session,
        "num_turns": task.turns,
        "tokens": task.tokens,
        "tool_calls": task.tool_calls,
        "requests": task.requests,
        "duration_ms": millis(task.took),
        "cost_usd": task.cost.total().map(Money::as_dollars),
        "unsettled_usd": task.unsettled.as_dollars(),
    })
}

/// Outcome of a sub-agent or a background command, for consumers of the stream.
#[derive(Clone, Copy)]
enum TaskOutcome {
    Completed,
    Failed,
    Stopped,
}

impl TaskOutcome {
    /// Returns the frames of an outcome: subtype and fields. The status is added to `notification`.
    fn frames(self, mut notification: Value) -> Vec<(&'static str, Value)> {
        // Updates and notifications use different names for the same status.
        let (update, status) = match self {
            Self::Completed => ("completed", "completed"),
            Self::Failed => ("failed", "failed"),
            Self::Stopped => ("killed", "stopped"),
        };
        notification["status"] = json!(status);
        let patch = json!({ "status": update });
        let updated = json!({ "task_id": notification["task_id"], "patch": patch });
        vec![("task_updated", updated), ("task_notification", notification)]
    }
}

/// Begin or end of a sub-agent as frames: subtype and fields.
pub(super) fn frames(task: &AgentTask) -> Vec<(&'static str, Value)> {
    let AgentIdentity { id, call, kind, description } = &task.mark;
    let end = match task.status {
        AgentStatus::Running => {
            let started = json!({
                "task_id": id,
                "tool_use_id": call,
                "description": description,
                "task_type": "local_agent",
                "subagent_type": kind,
                "prompt": task.prompt,
                "is_backgrounded": task.background,
                "parent_agent_id": task.parent,
            });
            return vec![("task_started", started)];
        }
        AgentStatus::Completed => TaskOutcome::Completed,
        AgentStatus::Failed | AgentStatus::Lost => TaskOutcome::Failed,
        AgentStatus::Stopped => TaskOutcome::Stopped,
    };
    let why = why(task);
    end.frames(json!({
        "task_id": id,
        "tool_use_id": call,
        "output_file": "",
        "summary": format!("{description}: {why}"),
        "usage": {
            "total_tokens": task.tokens,
            "tool_uses": task.tool_calls,
            "duration_ms": millis(task.took),
        },
        "total_cost_usd": task.cost.total().map(Money::as_dollars),
        "unsettled_usd": task.unsettled.as_dollars(),
    }))
}

/// Begin or end of a background command as frames: subtype and fields.
pub fn work_frames(task: &BackgroundTask) -> Vec<(&'static str, Value)> {
    let description = task.description.as_deref().unwrap_or(&task.command);
    let Some(end) = task.end else {
        let started = json!({
            "task_id": task.id,
            "tool_use_id": task.call,
            "description": description,
            "task_type": "local_bash",
            "is_backgrounded": true,
        });
        return vec![("task_started", started)];
    };
    let outcome = match end {
        BackgroundEnd::Completed => TaskOutcome::Completed,
        BackgroundEnd::Failed => TaskOutcome::Failed,
        BackgroundEnd::Killed
        | BackgroundEnd::TimedOut
        | BackgroundEnd::MemoryExceeded(_)
        | BackgroundEnd::RunEnded => TaskOutcome::Stopped,
    };
    let file = task.output_file.as_ref().map(|file| file.display().to_string());
    let summary = match task.exit_code {
        Some(code) => format!("{description}: {}, exit code {code}", end.name()),
        None => format!("{description}: {}", end.name()),
    };
    outcome.frames(json!({
        "task_id": task.id,
        "tool_use_id": task.call,
        "output_file": file.unwrap_or_default(),
        "summary": summary,
    }))
}

/// A line about a sub-agent.
pub(super) fn line(task: &AgentTask) -> String {
    let AgentIdentity { id, kind, description, .. } = &task.mark;
    match task.status {
        AgentStatus::Running => format!("agent {id} ({kind}) begins: {description}"),
        AgentStatus::Completed | AgentStatus::Failed | AgentStatus::Stopped | AgentStatus::Lost => {
            let error = task.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            let class = match task.reason {
                Some(StopReason::ModelError(class)) => format!(", {class}"),
                Some(_) | None => String::new(),
            };
            let why = why(task);
            format!(
                "agent {id} ({kind}) {}: {why}{class}{error}; turns {}, cost {}",
                task.status.name(),
                task.turns,
                task.cost.as_cost()
            )
        }
    }
}

/// Returns the reason for the end of a sub-agent, as far as known.
fn why(task: &AgentTask) -> &'static str {
    let unknown = if task.status == AgentStatus::Lost { "its process ended" } else { "cut off" };
    task.reason.map_or(unknown, StopReason::name)
}

/// A background command or sub-agent, and how it ended.
pub(super) fn background(task: &BackgroundTask) -> Value {
    let kind = match task.kind {
        BackgroundKind::Command => "command",
        BackgroundKind::Agent => "agent",
    };
    json!({
        "id": task.id,
        "kind": kind,
        "tool_use_id": task.call,
        "command": task.command,
        "status": task.status(),
        "exit_code": task.exit_code,
        "duration_ms": millis(task.took),
        "output_bytes": task.output_bytes,
        "output_file": task.output_file,
        "cut": task.end == Some(BackgroundEnd::RunEnded),
    })
}
