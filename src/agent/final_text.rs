//! The final text of the model.

use crate::transcript::{Message, Role};

use super::messages::text_of;
use super::setup::ResumedState;

/// The final text of the model, for the result.
#[derive(Debug, Default)]
pub(super) struct FinalText {
    pub(super) text: String,
    pub(super) stop_reason: Option<String>,
    /// Whether the output limit cut the text and the next reply continues it.
    unfinished: bool,
}

impl FinalText {
    /// The text of the earlier process, if it left work unfinished: it stands until the model says
    /// more.
    pub(super) fn of(carried: &ResumedState) -> Self {
        if carried.run.is_none() && !carried.finished {
            return Self::default();
        }
        Self::last(&carried.messages)
    }

    fn last(messages: &[Message]) -> Self {
        let last = messages.iter().rev().find(|message| message.role == Role::Assistant);
        let text = last.map(|message| text_of(&message.content)).unwrap_or_default();
        Self { text, ..Self::default() }
    }

    pub(super) fn record_reply(&mut self, text: &str, cut: bool, stop_reason: &str) {
        if self.unfinished {
            self.text.push_str(text);
        } else if !text.trim().is_empty() {
            text.clone_into(&mut self.text);
        }
        self.unfinished = cut;
        self.stop_reason = Some(stop_reason.to_owned());
    }
}
