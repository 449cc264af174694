//! Content that was added since the last answered request, which is suspect if the service refuses
//! the longer request for no reason that is recognised.

use crate::recovery::{AvailableMitigations, EndpointStatus, ErrorClass, Fault};
use crate::transcript::{BlockPath, compaction, has_media, unanswered};

use super::compactor::ContextView;

impl ContextView<'_> {
    /// Adds the mitigations that the added content offers against a refusal. Before an answer of
    /// this endpoint, only media are suspect: the settings of the run may be wrong. Old tool results
    /// can be obtained again; older messages cannot, and are only offered if the request may be too
    /// long.
    pub(super) fn with_added_content(
        &self,
        found: AvailableMitigations,
        fault: &Fault,
    ) -> AvailableMitigations {
        let messages = self.conversation.messages();
        let added = unanswered(messages);
        // Words about the output limit may be about the input; that limit is lowered first.
        let is_explained = found.thinking || found.cache_marks || found.streaming;
        if is_explained || added.len() == messages.len() || !fault.is_invalid_request() {
            return found;
        }
        let is_proven = self.caller.endpoint().client.endpoint_status() == EndpointStatus::Proven;
        let may_be_too_long = is_proven && !fault.is_about_subject();
        let history = self.conversation.history();
        let can_shorten = compaction::can_quarter_results(messages, history.density());
        let is_large = history.estimate() >= self.caller.window() / 2;
        AvailableMitigations {
            media: has_media(added),
            folds: may_be_too_long && can_shorten,
            rounds: may_be_too_long && is_large && found.rounds,
            added: true,
            ..found
        }
    }

    /// Returns true if the last failure was the refusal of a request as invalid, and not as too
    /// large.
    pub(super) fn was_refused_as_invalid(&self) -> bool {
        let last = self.caller.last_failure();
        last.is_some_and(|last| last.failure.class == ErrorClass::InvalidRequest)
    }

    /// Shortens tool results, old ones too: those of the last round may be too much although they
    /// are small.
    pub(super) fn shorten_results(&mut self) {
        let density = self.conversation.history().density();
        self.conversation.edit_history(self.journal, |messages| {
            compaction::quarter_results(messages, density);
        });
    }

    /// Returns the position of the message without a reply.
    pub(super) fn added_message(&self) -> BlockPath {
        let message = self.conversation.messages().len().saturating_sub(1);
        BlockPath { message, block: None, inner: None }
    }
}
