//! Sub-agents of a session.

use std::sync::Arc;

use crate::tools::PreparedCall;

use super::super::run_monitor::CancelReason;
use super::super::world::RunWorld;
use super::subagent_run::{ParentRun, acquire_slot};

impl RunWorld<'_> {
    /// Returns the parts of this run that its sub-agents share.
    pub(in super::super) fn as_parent(&self) -> ParentRun {
        let context = &self.context;
        ParentRun {
            deps: Arc::clone(&context.deps),
            identity: context.identity.clone(),
            depth: context.depth.saturating_add(1),
            endpoints: self.caller.remaining_endpoints(),
            limits: self.limits,
            toolbox: Arc::clone(self.tools.toolbox()),
            reasoning: self.caller.reasoning(),
            post: self.monitor.sender(),
        }
    }

    /// Returns true if a call starts a sub-agent that is waited for.
    pub(in super::super) fn waits_for(&self, prepared: &PreparedCall) -> bool {
        let registry = &self.context.deps.registry;
        prepared.agent_call().is_some_and(|call| registry.waits_for(call))
    }

    /// Releases this sub-agent's concurrency slot while it waits for its own sub-agents.
    pub(in super::super) fn release_slot(&mut self) {
        if let Some(slot) = &mut self.context.slot {
            slot.release();
        }
    }

    /// Takes a concurrency slot again.
    pub(in super::super) async fn acquire_slot(&mut self) -> Result<(), CancelReason> {
        match &mut self.context.slot {
            Some(slot) => acquire_slot(slot, &mut self.monitor).await,
            None => Ok(()),
        }
    }
}
