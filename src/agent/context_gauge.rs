//! The size of a run's conversation, for readers outside of the run.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::transcript::Usage;

/// The size of a conversation after the last step of its run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextSize {
    /// The estimated tokens of the messages, without the system prompt and the tools.
    pub messages: u64,
    /// The model in use.
    pub model: String,
    /// Its context window in tokens, as known or as learned.
    pub window: u64,
    /// The token counts of the last reply, if there was one.
    pub last_usage: Option<Usage>,
}

/// Publishes the size of the conversation. Clones share it: one for all turns of a session.
#[derive(Clone, Debug, Default)]
pub struct ContextGauge(Arc<Mutex<Option<ContextSize>>>);

impl ContextGauge {
    /// Returns the last size. `None`: no run has begun.
    pub fn read(&self) -> Option<ContextSize> {
        self.0.lock().clone()
    }

    /// Sets the size. A size without usage keeps the last usage.
    pub(super) fn set(&self, size: ContextSize) {
        let mut last = self.0.lock();
        let known = last.take().and_then(|size| size.last_usage);
        *last = Some(ContextSize { last_usage: size.last_usage.or(known), ..size });
    }
}
