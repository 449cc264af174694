//! The notice for the model of an interruption by the user of a host.

use crate::recovery::{INTERRUPTED, Interrupt, StopReason};

use super::world::RunWorld;

/// The notice for the model in a conversation that a host has interrupted, in the words of the
/// protocol. A signal is no wish of the user: the session may go on with its prompt.
fn notice(reason: StopReason) -> Option<String> {
    if reason == StopReason::AbortedStreaming(Interrupt::HostRequest) {
        Some(format!("{INTERRUPTED}]"))
    } else if reason == StopReason::AbortedTools(Interrupt::HostRequest) {
        Some(format!("{INTERRUPTED} for tool use]"))
    } else {
        None
    }
}

impl RunWorld<'_> {
    /// Adds the notice of an interruption to the conversation. Without it, the model would take the
    /// next prompt as a part of the one that was interrupted.
    pub(super) fn add_interruption_notice(&mut self, reason: StopReason) {
        let is_begun = !self.conversation.messages().is_empty();
        if let Some(notice) = notice(reason)
            && is_begun
            && self.context.mark.is_none()
        {
            self.add_text(notice);
        }
    }
}
