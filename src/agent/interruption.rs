//! The notice for the model of an interruption by the user of a host.

use crate::recovery::{INTERRUPTED, Interrupt, StopReason};

use super::world::RunWorld;

/// Returns the notice for the model in a conversation that a host has interrupted, in the words of
/// the protocol. A signal does not mean that the user rejected the prompt: the session may continue
/// with it.
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
    /// next prompt as a part of the interrupted one.
    pub(super) fn add_interruption_notice(&mut self, reason: StopReason) {
        if let Some(notice) = notice(reason)
            && self.context.is_root()
            && !self.conversation.messages().is_empty()
        {
            self.add_text(notice);
        }
    }
}
