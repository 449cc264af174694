//! What the model said last.

use crate::transcript::{Message, Role};

use super::conversation::text_of;
use super::setup::ResumedState;

/// What the model said last: what the result shows.
#[derive(Debug, Default)]
pub(super) struct FinalText {
    pub(super) text: String,
    pub(super) stop_reason: Option<String>,
    /// Whether the text was cut and the next reply goes on with it.
    unfinished: bool,
}

impl FinalText {
    /// What there is to show when nothing more gets said: what was said before, if anything was
    /// left undone.
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
