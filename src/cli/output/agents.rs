//! Serialises sub-agents and background commands for results and streams.

use crate::agent::{AgentIdentity, AgentStatus, AgentTask};
use crate::messages::{
    AgentCost, AgentSummary, AgentUsage, BackgroundSummary, SystemMessage, TaskNotification,
    TaskPatch, TaskStarted,
};
use crate::recovery::{ErrorClass, Money, StopReason};
use crate::text::millis;
use crate::tools::{BackgroundEnd, BackgroundKind, BackgroundTask};

/// Returns the entry of a sub-agent in the result.
pub(super) fn agent(task: &AgentTask) -> AgentSummary {
    let usage = &task.usage;
    AgentSummary {
        id: task.identity.id.clone(),
        tool_use_id: task.identity.call.clone(),
        kind: task.identity.kind.clone(),
        description: task.identity.description.clone(),
        parent: task.parent.clone(),
        depth: task.depth,
        retries: task.retries.clone(),
        background: task.background,
        status: task.status,
        reason: task.reason.map(StopReason::name),
        error_class: error_class(task).map(ErrorClass::name),
        error: task.error.clone(),
        model: task.model.clone(),
        session: task.session.clone(),
        num_turns: usage.turns,
        tokens: usage.tokens,
        tool_calls: usage.tool_calls,
        requests: usage.requests,
        duration_ms: millis(usage.took),
        cost_usd: usage.cost.total().map(Money::as_dollars),
        unsettled_usd: usage.unsettled.as_dollars(),
    }
}

/// Outcome of a sub-agent or a background command, for consumers of the stream.
#[derive(Clone, Copy)]
enum TaskOutcome {
    Completed,
    Failed,
    Stopped,
}

impl TaskOutcome {
    /// Returns the messages about the end of a task. The notification is completed by the status.
    fn messages(self, notification: TaskNotification) -> Vec<SystemMessage> {
        // Updates and notifications use different names for the same status.
        let (update, status) = match self {
            Self::Completed => ("completed", "completed"),
            Self::Failed => ("failed", "failed"),
            Self::Stopped => ("killed", "stopped"),
        };
        let task_id = notification.task_id.clone();
        vec![
            SystemMessage::TaskUpdated { task_id, patch: TaskPatch { status: update } },
            SystemMessage::TaskNotification(TaskNotification { status, ..notification }),
        ]
    }
}

/// Returns the messages about the start or the end of a sub-agent.
pub(super) fn agent_messages(task: &AgentTask) -> Vec<SystemMessage> {
    let AgentIdentity { id, call, kind, description } = &task.identity;
    let end = match task.status {
        AgentStatus::Running => {
            return vec![SystemMessage::TaskStarted(TaskStarted {
                task_id: id.clone(),
                tool_use_id: call.clone(),
                description: description.clone(),
                task_type: "local_agent",
                subagent_type: Some(kind.clone()),
                prompt: Some(task.prompt.clone()),
                is_backgrounded: task.background,
                parent_agent_id: Some(task.parent.clone()),
            })];
        }
        AgentStatus::Completed => TaskOutcome::Completed,
        AgentStatus::Failed | AgentStatus::Lost => TaskOutcome::Failed,
        AgentStatus::Stopped => TaskOutcome::Stopped,
    };
    let usage = &task.usage;
    end.messages(TaskNotification {
        task_id: id.clone(),
        tool_use_id: call.clone(),
        output_file: String::new(),
        summary: format!("{description}: {}", why(task)),
        agent: Some(AgentCost {
            usage: AgentUsage {
                total_tokens: usage.tokens,
                tool_uses: usage.tool_calls,
                duration_ms: millis(usage.took),
            },
            total_cost_usd: usage.cost.total().map(Money::as_dollars),
            unsettled_usd: usage.unsettled.as_dollars(),
        }),
        status: "",
    })
}

/// Returns the messages about the start or the end of a background command.
pub fn command_messages(task: &BackgroundTask) -> Vec<SystemMessage> {
    let (task_id, tool_use_id) = (task.id.clone(), task.call.clone());
    let description = task.description.as_deref().unwrap_or(&task.command);
    let Some(end) = task.end else {
        return vec![SystemMessage::TaskStarted(TaskStarted {
            task_id,
            tool_use_id,
            description: description.to_owned(),
            task_type: "local_bash",
            subagent_type: None,
            prompt: None,
            is_backgrounded: true,
            parent_agent_id: None,
        })];
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
        Some(code) => format!("{description}: {}, exit code {code}", end.into_str()),
        None => format!("{description}: {}", end.into_str()),
    };
    let output_file = file.unwrap_or_default();
    let (agent, status) = (None, "");
    outcome.messages(TaskNotification { task_id, tool_use_id, output_file, summary, agent, status })
}

/// Formats a line about a sub-agent.
pub(super) fn line(task: &AgentTask) -> String {
    let AgentIdentity { id, kind, description, .. } = &task.identity;
    match task.status {
        AgentStatus::Running => format!("agent {id} ({kind}) begins: {description}"),
        AgentStatus::Completed | AgentStatus::Failed | AgentStatus::Stopped | AgentStatus::Lost => {
            let error = task.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            let class = error_class(task).map_or_else(String::new, |class| format!(", {class}"));
            let why = why(task);
            format!(
                "agent {id} ({kind}) {}: {why}{class}{error}; turns {}, cost {}",
                task.status.into_str(),
                task.usage.turns,
                task.usage.cost.as_cost()
            )
        }
    }
}

fn error_class(task: &AgentTask) -> Option<ErrorClass> {
    match task.reason {
        Some(StopReason::ModelError(class)) => Some(class),
        Some(_) | None => None,
    }
}

/// Returns the reason for the end of a sub-agent, as far as known.
fn why(task: &AgentTask) -> &'static str {
    let unknown = if task.status == AgentStatus::Lost { "its process ended" } else { "cut off" };
    task.reason.map_or(unknown, StopReason::name)
}

/// Returns the entry of a background command or sub-agent in the result.
pub(super) fn background(task: &BackgroundTask) -> BackgroundSummary {
    let kind = match task.kind {
        BackgroundKind::Command => "command",
        BackgroundKind::Agent => "agent",
    };
    BackgroundSummary {
        id: task.id.clone(),
        kind,
        tool_use_id: task.call.clone(),
        command: task.command.clone(),
        status: task.status(),
        exit_code: task.exit_code,
        duration_ms: millis(task.took),
        output_bytes: task.output_bytes,
        output_file: task.output_file.as_ref().map(|file| file.display().to_string()),
        cut: task.end == Some(BackgroundEnd::RunEnded),
    }
}
