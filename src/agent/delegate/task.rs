//! A sub-agent as seen from outside: its identity, its status and its usage.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::journal::PastAgent;
use crate::recovery::{Money, Spending, StopReason};
use crate::text::shortened;

/// Marks the place where a text was cut.
pub(super) const CUT: &str = " [...]";

/// The maximum length of an error, in characters.
const ERROR: usize = 300;

/// The identity of a sub-agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The id for the model, results and files: `a1`.
    pub id: String,
    /// The tool call that started it.
    pub call: String,
    /// Its definition's name.
    pub kind: String,
    /// The purpose, in a few words.
    pub description: String,
}

/// The status of a sub-agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// Waiting for a concurrency slot, or at work.
    Running,
    Completed,
    Failed,
    /// Stopped from outside.
    Stopped,
    /// Lost: the process that it was part of ended first.
    Lost,
}

impl AgentStatus {
    /// Returns the status that follows from a stop reason.
    pub(super) fn of(reason: StopReason) -> Self {
        if reason == StopReason::Completed {
            Self::Completed
        } else if reason.interrupt().is_some() {
            Self::Stopped
        } else {
            Self::Failed
        }
    }
}

/// The usage of a sub-agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubagentUsage {
    /// Everything that counts against the budget.
    pub cost: Spending,
    /// Part of it that may not have been billed.
    pub unsettled: Money,
    pub turns: u32,
    pub tokens: u64,
    pub tool_calls: u32,
    pub requests: u32,
    /// The time from its first step to its last one, without the wait for a concurrency slot.
    pub took: Duration,
}

/// A sub-agent as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    pub identity: AgentIdentity,
    /// The sub-agent that started it. `None`: the run itself.
    pub parent: Option<String>,
    /// 1: started by the run itself.
    pub depth: u8,
    /// The failed sub-agent that this one retries, if it is a retry.
    pub retries: Option<String>,
    pub background: bool,
    pub prompt: String,
    pub model: String,
    /// The location of its conversation: `session/subagents/agent-a1`.
    pub session: String,
    pub status: AgentStatus,
    /// Its stop reason, if it has ended with one.
    pub reason: Option<StopReason>,
    /// The error that failed it, in the service's words.
    pub error: Option<String>,
    pub usage: SubagentUsage,
}

impl AgentTask {
    /// Returns the record of a sub-agent of an earlier process.
    pub(super) fn past(agent: PastAgent, depth: u8, session_id: &str) -> Self {
        let PastAgent { meta, ended, error, sums, recovery, .. } = agent;
        Self {
            session: format!("{session_id}/subagents/agent-{}", meta.agent_id),
            identity: AgentIdentity {
                id: meta.agent_id,
                call: meta.tool_use_id,
                kind: meta.agent_type,
                description: meta.description,
            },
            parent: meta.parent_agent_id,
            depth,
            retries: meta.retries,
            background: meta.background,
            prompt: String::new(),
            model: agent.model,
            status: ended.map_or(AgentStatus::Lost, AgentStatus::of),
            reason: ended,
            error: error.as_deref().map(shown_error),
            usage: SubagentUsage {
                cost: sums.spending(),
                unsettled: sums.upper_bounds,
                turns: sums.turns,
                tokens: sums.usage.input() + sums.usage.output_tokens,
                tool_calls: agent.tool_calls,
                requests: recovery.totals().requests,
                took: recovery.worked(),
            },
        }
    }

    /// Marks it as stopped if it was still running when the run ended.
    #[must_use]
    pub fn cut(mut self) -> Self {
        if self.status == AgentStatus::Running {
            self.status = AgentStatus::Stopped;
        }
        self
    }
}

/// Returns the error of a sub-agent as it is shown.
pub(super) fn shown_error(error: &str) -> String {
    shortened(error, ERROR, CUT)
}
