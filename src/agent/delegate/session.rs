//! Sub-agents of a session.

use std::sync::Arc;

use crate::tools::{AgentCall, is_agent_tool};
use crate::transcript::ToolCall;

use super::super::run_monitor::CancelReason;
use super::super::session::Session;
use super::spawner::SubagentSpawner;
use super::subagent_run::take_place;

impl Session<'_> {
    /// What this run shares with its sub-agents.
    pub(in super::super) fn forge(&self) -> SubagentSpawner {
        let kin = &self.agent_context;
        SubagentSpawner {
            deps: Arc::clone(&kin.deps),
            parent: kin.mark.as_ref().map(|mark| mark.id.clone()),
            depth: kin.depth.saturating_add(1),
            endpoints: self.endpoints
                [usize::from(self.model_index).min(self.endpoints.len() - 1)..]
                .to_vec(),
            limits: self.limits,
            toolbox: Arc::clone(&self.toolbox),
            thinking: self.thinking,
            post: self.watch.post.clone(),
        }
    }

    /// Whether a call starts a sub-agent that is waited for.
    pub(in super::super) fn waits_for(&self, call: &ToolCall) -> bool {
        let tree = &self.agent_context.deps.registry;
        is_agent_tool(&call.name)
            && AgentCall::parse(&call.input).is_ok_and(|call| tree.waits_for(&call))
    }

    /// Gives up this sub-agent's permit while it waits for its own sub-agents.
    pub(in super::super) fn release_permit(&mut self) {
        if let Some(seat) = &mut self.agent_context.permit {
            seat.release();
        }
    }

    /// Takes a permit again.
    pub(in super::super) async fn acquire_permit(&mut self) -> Result<(), CancelReason> {
        match &mut self.agent_context.permit {
            Some(seat) => take_place(seat, &mut self.watch).await,
            None => Ok(()),
        }
    }
}
