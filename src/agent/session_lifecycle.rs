//! The start and the end of a session for its hooks, where one process runs several of its prompts.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use crate::hooks::{HookContext, HookEvent, HookFailure, Hooks};

/// Makes the hooks of the session's start and end run once for all prompts of a process. Clones
/// share it.
#[derive(Clone, Debug, Default)]
pub struct SessionLifecycle(Arc<Mutex<LifecycleState>>);

#[derive(Debug, Default)]
struct LifecycleState {
    /// The reason of the start, if it is not that of the run.
    source: Option<&'static str>,
    /// True if the hooks of the start have run to their end, and none has stopped the run.
    has_started: bool,
    /// The variables that they have exported for commands.
    exports: Vec<(String, String)>,
    /// The hooks of the run that began the session.
    hooks: Option<Hooks>,
}

impl SessionLifecycle {
    /// Returns what hooks of the start have exported if they have run. Otherwise a run begins the
    /// session with these hooks.
    pub(super) fn begin(&self, hooks: Option<&Hooks>) -> Option<Vec<(String, String)>> {
        let mut state = self.0.lock();
        if state.has_started {
            return Some(state.exports.clone());
        }
        state.hooks = hooks.cloned();
        None
    }

    /// The reason of the start, if it is not that of the run.
    pub(super) fn source(&self) -> Option<&'static str> {
        self.0.lock().source
    }

    /// Records that the hooks of the start need not run again.
    pub(super) fn record_start(&self) {
        self.0.lock().has_started = true;
    }

    /// Keeps the variables that hooks export for the commands of later runs.
    pub(super) fn keep_exports(&self, exports: &[(String, String)]) {
        let known = &mut self.0.lock().exports;
        known.retain(|(name, _)| exports.iter().all(|(new, _)| new != name));
        known.extend_from_slice(exports);
    }

    /// Runs the hooks for the end of the session, if it has begun. The next run begins another one
    /// for this reason. Returns the failures of the hooks, as texts for the user.
    pub async fn end(&self, reason: &'static str) -> Vec<String> {
        let next = LifecycleState { source: Some(reason), ..LifecycleState::default() };
        let Some(hooks) = mem::replace(&mut *self.0.lock(), next).hooks else { return Vec::new() };
        let event = HookEvent::SessionEnd;
        let fields = Map::from_iter([("reason".to_owned(), json!(reason))]);
        let context = HookContext::new(event, reason, fields);
        let decision = hooks.run(&context, &|_| true, &CancellationToken::new()).await;
        let failures = decision.runs.failures.iter();
        failures.map(|(command, failure)| failure_message(event, command, failure)).collect()
    }
}

/// Returns the message for the user about a failed hook.
pub(super) fn failure_message(event: HookEvent, command: &str, failure: &HookFailure) -> String {
    let (event, detail) = (event.name(), &failure.detail);
    format!("the hook `{command}` ({event}) failed: {detail}; see the crash log")
}
