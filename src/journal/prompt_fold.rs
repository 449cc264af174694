//! Folds the lines of a journal to the state of the last prompt: for the process that writes them,
//! for a resume and for reports.

use serde_json::Value;

use crate::recovery::{StopReason, Transition};
use crate::transcript::{Block, Message, Role};

use super::ended_calls::UndoneCalls;
use super::entry::{CarryOver, OpenRecord, ToolStarted};
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
    /// Continues from the state of a prompt that has not ended in this process.
    pub(super) fn of(recorded: RecordedPrompt) -> Self {
        Self { recorded, has_ended: false }
    }

    /// Returns the state of the last prompt after the entries so far.
    pub fn recorded(&self) -> &RecordedPrompt {
        &self.recorded
    }

    /// Adds a message of which outlast writes a line, or a part of one that has several lines.
    /// `output` is the structured output that the line accepts.
    pub(super) fn add_part(
        &mut self,
        role: Role,
        blocks: &[Block],
        stop_reason: Option<&str>,
        output: Option<&Value>,
    ) {
        self.begin_after_end();
        match role {
            Role::Assistant => self.recorded.reply(blocks, stop_reason),
            Role::User => self.recorded.add_user_message(blocks, output),
        }
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
        if entry.ours {
            let Message { role, content } = &entry.message;
            let (stop_reason, output) = (entry.stop_reason.as_deref(), entry.structured.as_ref());
            self.add_part(*role, content, stop_reason, output);
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

    fn rewrite(&mut self, _after: Option<&str>, _messages: &[Message]) {
        self.begin_after_end();
    }

    fn end(&mut self, reason: StopReason, _error: Option<&str>) {
        self.has_ended = true;
        self.recorded.end(reason);
    }
}
