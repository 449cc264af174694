//! Read-only tools that start while the reply still streams.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::tools::{Effect, ToolOutcome, Toolbox};
use crate::transcript::{Block, ToolCall};

/// The work of a call. `None`: the rules alone do not permit it.
pub(super) type EarlyTask = JoinSet<Option<ToolOutcome>>;

/// Tools that were started before the end of their reply. If the reply breaks, they are discarded:
/// they are read-only, so nothing has changed.
#[derive(Debug)]
pub(super) struct EarlyTools {
    /// The concurrency slots of all tools.
    slots: Arc<Semaphore>,
    /// By id of the call. Each set has one task, which ends when the set is dropped.
    running: HashMap<String, (CancellationToken, EarlyTask)>,
    /// True after a call that changes something: later calls might depend on it.
    has_change: bool,
}

impl EarlyTools {
    pub(super) fn new(slots: Arc<Semaphore>) -> Self {
        Self { slots, running: HashMap::new(), has_change: false }
    }

    pub(super) fn slots(&self) -> Arc<Semaphore> {
        Arc::clone(&self.slots)
    }

    /// Starts the call in a completed block, if it may start early.
    pub(super) fn start_if_read_only(&mut self, block: &Block, toolbox: &Arc<Toolbox>) {
        let Block::ToolUse { id, name, input, .. } = block else { return };
        let effect = toolbox.effect(&toolbox.tool_for(name));
        self.has_change |= !effect.changes_nothing();
        if self.has_change || effect != Effect::ReadOnly {
            return;
        }
        let call = ToolCall { id: id.clone(), name: name.clone(), input: input.clone() };
        let cancel = CancellationToken::new();
        let mut task = JoinSet::new();
        let (toolbox, token, slots) = (Arc::clone(toolbox), cancel.clone(), self.slots());
        task.spawn(async move {
            // Before the check, so that calls begin in their order.
            let _slot = slots.acquire().await;
            let permit = tokio::select! {
                biased;
                () = token.cancelled() => return None,
                checked = toolbox.check(move |toolbox| toolbox.admit(&call)) => checked.ok()?.ok()?,
            };
            Some(toolbox.run(permit, token).await)
        });
        self.running.insert(id.clone(), (cancel, task));
    }

    /// Removes and returns the task of a call that was started early.
    pub(super) fn take(&mut self, id: &str) -> Option<(CancellationToken, EarlyTask)> {
        self.running.remove(id)
    }

    /// Renames a started call whose id was replaced.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if let Some(task) = self.running.remove(from) {
            self.running.insert(to.to_owned(), task);
        }
    }

    /// Discards all calls that were started for a reply.
    pub(super) fn discard(&mut self) {
        self.has_change = false;
        for (_, (cancel, _task)) in self.running.drain() {
            cancel.cancel();
        }
    }
}
