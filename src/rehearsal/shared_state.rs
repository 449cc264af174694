//! The state that all connections of a server share.

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::response_sender::TimeScale;
use super::rules::TokenRules;
use super::scenario::ServerPart;
use super::script::{RequestRetention, ScriptState};

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) part: ServerPart,
    pub(super) time_scale: TimeScale,
    pub(super) cwd: String,
    /// Part of every id, so that ids are unique across servers.
    pub(super) name: String,
    pub(super) start: Instant,
    pub(super) retention: RequestRetention,
    pub(super) script: Mutex<ScriptState>,
    /// Notifies of every change of the script.
    pub(super) changes: watch::Sender<()>,
}

impl SharedState {
    pub(super) fn new(
        part: ServerPart,
        time_scale: TimeScale,
        cwd: String,
        retention: RequestRetention,
    ) -> Self {
        Self {
            time_scale,
            cwd,
            name: uuid::Uuid::new_v4().simple().to_string()[..10].to_owned(),
            start: Instant::now(),
            retention,
            script: Mutex::new(ScriptState::new(&part)),
            changes: watch::Sender::new(()),
            part,
        }
    }

    pub(super) fn token_rules(&self) -> Option<&TokenRules> {
        self.part.rules.tokens.as_ref()
    }
}
