//! Views of a journal: folds over its entries, each of which needs only some kinds. This file alone
//! lists all kinds.

use crate::recovery::{RecoveryRecord, RefusedField, StopReason, ToolCallRecord, Transition};
use crate::transcript::Message;
use crate::types::ReadFile;

use super::contract::{Contract, FirstPrompt};
use super::ended_calls::UndoneCalls;
use super::entry::{
    BackgroundChanges, FailedCheck, JournalRecord, OpenRecord, SpendRecord, ToolStarted,
};
use super::parsed_line::{JournalEntry, MessageEntry};
use super::recorded_prompt::RecordedPrompt;

/// A fold over the entries of a journal. Kinds without a method in the fold are ignored.
#[expect(unused_variables, reason = "the names of the parameters are for the implementations")]
pub trait JournalView<'a> {
    fn message(&mut self, entry: &'a MessageEntry) {}
    fn link(&mut self, uuid: &'a str, parent: Option<&'a str>) {}
    fn title(&mut self, title: &'a str) {}
    fn unread_transition(&mut self) {}
    fn open(&mut self, open: &'a OpenRecord) {}
    fn contract(&mut self, contract: &'a Contract) {}
    fn first_prompt(&mut self, prompt: &'a FirstPrompt) {}
    fn transition(&mut self, transition: &'a Transition) {}
    fn intent(&mut self, calls: &'a [ToolStarted]) {}
    fn spend(&mut self, spend: &'a SpendRecord) {}
    fn rewrite(&mut self, after: Option<&'a str>, messages: &'a [Message]) {}
    fn recovery(&mut self, record: &'a RecoveryRecord) {}
    fn tool_calls(&mut self, calls: &'a [ToolCallRecord]) {}
    fn undone_calls(&mut self, calls: &'a UndoneCalls) {}
    fn learned_window(&mut self, model: &'a str, tokens: u64) {}
    fn learned_output_limit(&mut self, model: &'a str, tokens: u32) {}
    fn refused_field(&mut self, refused: &'a RefusedField) {}
    fn background(&mut self, changes: &'a BackgroundChanges) {}
    fn files_read(&mut self, files: &'a [ReadFile]) {}
    fn failed_check(&mut self, check: &'a FailedCheck) {}
    fn forked(&mut self, recorded: &'a RecordedPrompt) {}
    fn end(&mut self, reason: StopReason, error: Option<&'a str>) {}
}

impl JournalEntry {
    /// Applies the entry to a view.
    pub fn show<'a>(&'a self, view: &mut impl JournalView<'a>) {
        match self {
            Self::Message(entry) => view.message(entry),
            Self::Link { uuid, parent } => view.link(uuid, parent.as_deref()),
            Self::Record(record) => record.show(view),
            Self::UnreadTransition => view.unread_transition(),
            Self::Title(title) => view.title(title),
            Self::Other => {}
        }
    }
}

impl JournalRecord {
    /// Applies the record to a view.
    pub fn show<'a>(&'a self, view: &mut impl JournalView<'a>) {
        match self {
            Self::Open(open) => view.open(open),
            Self::Contract(contract) => view.contract(contract),
            Self::Prompt(prompt) => view.first_prompt(prompt),
            Self::Transition { transition } => view.transition(transition),
            Self::Intent { calls } => view.intent(calls),
            Self::Spend(spend) => view.spend(spend),
            Self::Rewrite { after, messages } => view.rewrite(after.as_deref(), messages),
            Self::Recovery(record) => view.recovery(record),
            Self::ToolCalls { calls } => view.tool_calls(calls),
            Self::UndoneCalls(calls) => view.undone_calls(calls),
            Self::Window { model, tokens } => view.learned_window(model, *tokens),
            Self::OutputLimit { model, tokens } => view.learned_output_limit(model, *tokens),
            Self::RefusedField(refused) => view.refused_field(refused),
            Self::Background(changes) => view.background(changes),
            Self::FilesRead { files } => view.files_read(files),
            Self::FailedCheck(check) => view.failed_check(check),
            Self::Forked(recorded) => view.forked(recorded),
            Self::End { reason, error } => view.end(*reason, error.as_deref()),
            // Repairs are for readers of the file.
            Self::Repair { .. } => {}
        }
    }
}
