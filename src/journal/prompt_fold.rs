//! Folds the lines of a journal to the state of the last prompt, for a resume and for reports.

use crate::recovery::{StopReason, Transition};
use crate::transcript::{Message, Role};

use super::ended_calls::UndoneCalls;
use super::entry::{CarryOver, OpenRecord, SpendRecord, ToolStarted};
use super::parsed_line::MessageEntry;
use super::recorded_prompt::RecordedPrompt;
use super::view::JournalView;

/// A fold over the lines of a journal that yields the state of the last prompt.
#[derive(Clone, Debug, Default)]
pub struct PromptFold {
    recorded: RecordedPrompt,
    /// True if the prompt has ended: later lines belong to another one, of the same process.
    has_ended: bool,
}

impl PromptFold {
    /// Returns the state of the last prompt after the entries so far.
    pub fn recorded(self) -> RecordedPrompt {
        self.recorded
    }

    fn begin_after_end(&mut self) {
        if self.has_ended {
            *self = Self::default();
        }
    }
}

impl JournalView<'_> for PromptFold {
    fn message(&mut self, entry: &MessageEntry) {
        self.begin_after_end();
        if !entry.ours {
            return;
        }
        let blocks = &entry.message.content;
        match entry.message.role {
            Role::Assistant => self.recorded.reply(blocks, entry.stop_reason.as_deref()),
            Role::User => self.recorded.add_user_message(blocks, entry.structured.as_ref()),
        }
    }

    fn unread_transition(&mut self) {
        self.recorded = RecordedPrompt::default();
    }

    fn open(&mut self, open: &OpenRecord) {
        match open.carry {
            CarryOver::Fresh => *self = Self::default(),
            CarryOver::On => self.has_ended = false,
        }
        self.recorded.demand(open.new_demands);
    }

    fn transition(&mut self, transition: &Transition) {
        self.begin_after_end();
        self.recorded.step(transition);
    }

    fn intent(&mut self, calls: &[ToolStarted]) {
        for call in calls {
            self.recorded.started(&call.id, &call.name);
        }
    }

    fn undone_calls(&mut self, calls: &UndoneCalls) {
        self.recorded.undone(calls);
    }

    fn forked(&mut self, recorded: &RecordedPrompt) {
        self.recorded.clone_from(recorded);
    }

    fn spend(&mut self, _spend: &SpendRecord) {
        self.begin_after_end();
    }

    fn rewrite(&mut self, _after: Option<&str>, _messages: &[Message]) {
        self.begin_after_end();
    }

    fn end(&mut self, reason: StopReason, _error: Option<&str>) {
        self.has_ended = true;
        self.recorded.end(reason);
    }
}
