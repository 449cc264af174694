//! Folds the lines of a journal to the state of the last prompt, for a resume and for reports.

use crate::transcript::Role;

use super::entry::{CarryOver, JournalRecord};
use super::reader::{JournalEntry, MessageEntry};
use super::recorded_prompt::RecordedPrompt;

/// A fold over the lines of a journal that yields the state of the last prompt.
#[derive(Clone, Debug, Default)]
pub struct PromptFold {
    recorded: RecordedPrompt,
    /// True if the prompt has ended: later lines belong to another one, of the same process.
    has_ended: bool,
}

impl PromptFold {
    /// Applies the next line.
    pub fn observe(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Message(message) => self.message(message),
            JournalEntry::Record(record) => self.record(record),
            JournalEntry::UnreadTransition => self.recorded = RecordedPrompt::default(),
            JournalEntry::Link { .. } | JournalEntry::Title(_) | JournalEntry::Other => {}
        }
    }

    /// Returns the state of the last prompt after the lines so far.
    pub fn recorded(self) -> RecordedPrompt {
        self.recorded
    }

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

    fn record(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Open(open) => match open.carry {
                CarryOver::Fresh => *self = Self::default(),
                CarryOver::On => self.has_ended = false,
            },
            JournalRecord::Transition { transition } => {
                self.begin_after_end();
                self.recorded.step(transition);
            }
            JournalRecord::Intent { calls } => {
                for call in calls {
                    self.recorded.started(&call.id, &call.name);
                }
            }
            JournalRecord::UndoneCalls(calls) => self.recorded.undone(calls),
            JournalRecord::Forked(recorded) => self.recorded.clone_from(recorded),
            JournalRecord::Spend { .. } | JournalRecord::Rewrite { .. } => self.begin_after_end(),
            JournalRecord::End { reason } => {
                self.has_ended = true;
                self.recorded.end(*reason);
            }
            JournalRecord::Contract(_)
            | JournalRecord::Prompt(_)
            | JournalRecord::Repair { .. }
            | JournalRecord::FailedCheck(_)
            | JournalRecord::Recovery(_)
            | JournalRecord::ToolCalls { .. }
            | JournalRecord::Window { .. }
            | JournalRecord::OutputLimit { .. }
            | JournalRecord::RefusedField(_)
            | JournalRecord::Background(_) => {}
        }
    }

    fn begin_after_end(&mut self) {
        if self.has_ended {
            *self = Self::default();
        }
    }
}
