//! A sub-agent as those outside see it: who it is, how it stands, and what it took.

use std::time::Duration;

use crate::journal::PastAgent;
use crate::recovery::{Money, StopReason};

/// Who a sub-agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// What the model, results and files call it: `a1`.
    pub id: String,
    /// The tool call that started it.
    pub call: String,
    /// Its definition's name.
    pub kind: String,
    /// What it is for, in a few words.
    pub description: String,
}

/// How a sub-agent stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentStatus {
    /// In line for a place, or at work.
    Running,
    Completed,
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// The process that it was part of ended first.
    Lost,
}

impl AgentStatus {
    /// How one stands that has ended.
    pub(super) fn of(reason: StopReason) -> Self {
        match reason {
            StopReason::Completed => Self::Completed,
            StopReason::AbortedStreaming(_) | StopReason::AbortedTools(_) => Self::Stopped,
            StopReason::MaxTurns
            | StopReason::MaxBudgetUsd
            | StopReason::Deadline
            | StopReason::HookStopped
            | StopReason::Denied
            | StopReason::StopHookPrevented
            | StopReason::StopHookBlocked
            | StopReason::BlockingLimit
            | StopReason::PromptTooLong
            | StopReason::MaxOutputTokens
            | StopReason::ImageError
            | StopReason::ModelError(_)
            | StopReason::EmptyResponse
            | StopReason::Refusal
            | StopReason::Stalled
            | StopReason::BackgroundPending
            | StopReason::RequirementFailed
            | StopReason::StructuredOutputRetryExhausted
            | StopReason::OutputFailed
            | StopReason::InternalError => Self::Failed,
        }
    }

    /// The name used in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
        }
    }
}

/// A sub-agent as those outside see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    pub mark: AgentIdentity,
    /// The sub-agent that started it. `None`: the run itself.
    pub parent: Option<String>,
    /// 1: started by the run itself.
    pub depth: u8,
    /// Whether it is one that was started again after a failure, and of which.
    pub retries: Option<String>,
    pub background: bool,
    pub prompt: String,
    pub model: String,
    /// Where its conversation is kept, as `session/subagents/agent-a1`.
    pub session: String,
    pub status: AgentStatus,
    /// Why it ended.
    pub reason: Option<StopReason>,
    /// What failed it, in the service's words.
    pub error: Option<String>,
    /// Everything that counts against the budget.
    pub cost: Money,
    /// Part of it of which nobody knows whether it was billed.
    pub unsettled: Money,
    pub turns: u32,
    pub tokens: u64,
    pub tool_calls: u32,
    pub requests: u32,
    pub took: Duration,
}

impl AgentTask {
    /// One of an earlier process.
    pub(super) fn past(agent: PastAgent, depth: u8, session_id: &str) -> Self {
        let PastAgent { id, call, kind, description, ended, sums, .. } = agent;
        Self {
            session: format!("{session_id}/subagents/agent-{id}"),
            mark: AgentIdentity { id, call, kind, description },
            parent: agent.parent,
            depth,
            retries: agent.retries,
            background: agent.background,
            prompt: String::new(),
            model: agent.model,
            status: ended.map_or(AgentStatus::Lost, AgentStatus::of),
            reason: ended,
            error: None,
            cost: sums.spent,
            unsettled: sums.upper_bounds,
            turns: sums.turns,
            tokens: sums.usage.input() + sums.usage.output_tokens,
            tool_calls: agent.tool_calls,
            requests: 0,
            took: Duration::ZERO,
        }
    }

    /// The same after the run has ended with it.
    #[must_use]
    pub fn cut(mut self) -> Self {
        if self.status == AgentStatus::Running {
            self.status = AgentStatus::Stopped;
        }
        self
    }
}
