//! The conversation with the model, in memory and in the journal; queries on its messages.

use std::sync::Arc;

use serde_json::Value;

use crate::hooks::HookDecision;
use crate::journal::{Journal, JournalHealth, MessageMeta, RestoredConversation};
use crate::model::ModelReply;
use crate::recovery::{HOOK_SAYS, LeftOff};
use crate::secrets::{KnownSecrets, Redactor};
use crate::transcript::{
    Block, History, Message, Role, Usage, history_violations, repair, strip_thinking, violations,
};

use super::context_gauge::ContextGauge;
use super::early_tools::EarlyTools;
use super::emitted_blocks::EmittedBlocks;
use super::messages::knows_call;
use super::run_event::RunEvent;
use super::run_monitor::RunMonitor;
use super::setup::Prompt;

/// The conversation: its messages, their journal, and the parts of a reply that were reported.
pub(super) struct Conversation {
    pub(super) history: History,
    pub(super) journal: Journal,
    pub(super) secrets: KnownSecrets,
    /// Number of the secrets that the journal redacts.
    pub(super) redacted_secrets: usize,
    /// The last reply, until the machine has decided about it.
    pub(super) pending: Option<ModelReply>,
    /// The blocks of the streaming reply that were reported already.
    pub(super) emitted_blocks: EmittedBlocks,
    /// True if the last reply was a `pause_turn`, which is sent back as the last message.
    pub(super) paused: bool,
    /// True if thinking was removed from the history, here or in an earlier process.
    pub(super) thinking_stripped: bool,
    /// True if the loss of the journal was reported.
    pub(super) journal_loss_reported: bool,
    /// Publishes its size to a host.
    pub(super) gauge: ContextGauge,
    /// The token counts of the last reply.
    pub(super) last_usage: Option<Usage>,
}

impl Conversation {
    pub(super) fn messages(&self) -> &[Message] {
        self.history.messages()
    }

    /// Creates a conversation without messages.
    pub(super) fn new(journal: Journal, secrets: KnownSecrets) -> Self {
        Self::restore(RestoredConversation::default(), journal, secrets, "")
    }

    /// Continues a conversation. `model` answers next: thinking that another one has signed is
    /// removed.
    pub(super) fn restore(
        restored: RestoredConversation,
        journal: Journal,
        secrets: KnownSecrets,
        model: &str,
    ) -> Self {
        let RestoredConversation { mut messages, left_off, signed_by, .. } = restored;
        if signed_by.is_some_and(|signed_by| signed_by != model) {
            strip_thinking(&mut messages);
        }
        Self {
            thinking_stripped: !messages.is_empty(),
            history: History::new(messages, 0),
            journal,
            secrets,
            redacted_secrets: 0,
            pending: None,
            emitted_blocks: EmittedBlocks::default(),
            paused: left_off == Some(LeftOff::Paused),
            journal_loss_reported: false,
            gauge: ContextGauge::default(),
            last_usage: None,
        }
    }

    /// Publishes its size to a host.
    pub(super) fn shown_by(self, gauge: ContextGauge) -> Self {
        Self { gauge, ..self }
    }

    /// Reports that emitted blocks are not part of the conversation.
    pub(super) fn drop_emitted_blocks(&mut self, monitor: &mut RunMonitor<'_>) {
        let ids = self.emitted_blocks.forget();
        if !ids.is_empty() {
            monitor.emit(&RunEvent::BlocksDropped { ids });
        }
    }

    /// Returns true if the model has to reply next.
    pub(super) fn waits_for_model(&self) -> bool {
        self.history.messages().last().is_some_and(|last| last.role == Role::User)
    }

    /// Adds the prompt. It is not reported: the user wrote it.
    pub(super) fn add_prompt(&mut self, prompt: Prompt) {
        self.paused = false;
        let message = Message::user(prompt.content);
        self.history.push(message.clone());
        let (ids, form) = (prompt.id.as_slice(), prompt.form);
        let meta = MessageMeta { ids, form, ..MessageMeta::default() };
        self.journal.message(&message, &meta);
        for (path, text) in &prompt.files {
            self.journal.attachment(path, text);
        }
    }

    /// Adds a user message to the history.
    pub(super) fn add_user_message(
        &mut self,
        blocks: Vec<Block>,
        details: Vec<Value>,
        monitor: &mut RunMonitor<'_>,
    ) {
        self.paused = false;
        let message = Arc::new(Message::user(blocks));
        self.history.push(Message::clone(&message));
        let ids = self.journal.message(&message, &MessageMeta::default());
        monitor.emit(&RunEvent::User { message, details, ids });
    }

    /// Adds secrets that were fetched meanwhile to the journal's redaction.
    pub(super) fn redact_new_secrets(&mut self) {
        let count = self.secrets.count();
        if std::mem::replace(&mut self.redacted_secrets, count) != count {
            self.journal.redact(&self.secrets.plain_values());
        }
    }

    /// Warns once that the run goes on without a journal, and once that it has one again.
    pub(super) fn report_journal_loss(&mut self, monitor: &mut RunMonitor<'_>) {
        let warning = match self.journal.health() {
            JournalHealth::Off => return,
            JournalHealth::Durable => {
                if std::mem::take(&mut self.journal_loss_reported) {
                    let whole = "the journal is written again, and nothing is missing in it";
                    monitor.emit(&RunEvent::Warning(whole.to_owned()));
                }
                return;
            }
            JournalHealth::Lost(why) => {
                format!("the run goes on without a journal and cannot be resumed: {why}")
            }
            JournalHealth::TakenOver(why) => format!("the run ends here: {why}"),
        };
        if !std::mem::replace(&mut self.journal_loss_reported, true) {
            monitor.emit(&RunEvent::Warning(warning));
        }
    }

    /// Returns true if another process has taken the session over, so that nothing may be done for
    /// it here.
    pub(super) fn is_taken_over(&self) -> bool {
        matches!(self.journal.health(), JournalHealth::TakenOver(_))
    }

    /// Returns the last lines of an output for observers. It is redacted before it is cut, since a
    /// key may have several lines, and is recognised by its first.
    pub(super) fn redacted_tail(&self, text: &str, lines: usize) -> String {
        let text = Redactor::new(self.secrets.clone()).redact(text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Returns the text of a hook for the model, redacted.
    pub(super) fn hook_words(&self, text: &str) -> String {
        Redactor::for_model(self.secrets.clone()).redact(text)
    }

    /// Returns the text of a hook as a block of its own, which compaction recognises by its
    /// beginning.
    pub(super) fn hook_block(&self, text: &str) -> Block {
        Block::text(format!("{HOOK_SAYS}\n\n{}", self.hook_words(text)))
    }

    pub(super) fn hook_blocks(&self, verdict: &HookDecision) -> Vec<Block> {
        verdict.context.iter().map(|text| self.hook_block(text)).collect()
    }

    /// Returns true if a text of the conversation begins with `head`: an earlier process may have
    /// added it.
    pub(super) fn holds_text(&self, head: &str) -> bool {
        let blocks = self.history.messages().iter().flat_map(|message| &message.content);
        blocks
            .into_iter()
            .any(|block| matches!(block, Block::Text { text } if text.starts_with(head)))
    }

    /// Edits the history and strips its thinking, whose signatures cover the conversation before
    /// the edit; some models also refuse thinking in another position.
    pub(super) fn edit_history<T>(&mut self, change: impl FnOnce(&mut Vec<Message>) -> T) -> T {
        let outcome = self.history.edit(|messages| {
            let outcome = change(messages);
            strip_thinking(messages);
            outcome
        });
        self.thinking_stripped = true;
        self.journal.rewrite(self.history.messages());
        outcome
    }

    /// Repairs the history before a request. A violation of the message rules is a bug of outlast:
    /// it is repaired and reported. Returns the number of repairs.
    pub(super) fn repair_history(&mut self, monitor: &mut RunMonitor<'_>) -> usize {
        let messages = self.history.messages();
        let faults = if self.paused { history_violations(messages) } else { violations(messages) };
        if faults.is_empty() {
            return 0;
        }
        let repairs = self.history.edit(|messages| {
            let (fixed, repairs) = repair(std::mem::take(messages));
            *messages = fixed;
            repairs
        });
        self.journal.repairs(&repairs);
        let changes: Vec<String> = repairs.iter().map(ToString::to_string).collect();
        let changes = changes.join("; ");
        let warning = format!("repaired the conversation before sending it: {changes}");
        monitor.emit(&RunEvent::Warning(warning));
        repairs.len()
    }

    /// Renames tool calls whose id was used before. Some servers restart their numbering with each
    /// reply, but the API requires unique ids.
    pub(super) fn rename_repeated_calls(
        &mut self,
        answer: &mut ModelReply,
        early: &mut EarlyTools,
    ) {
        for block in &mut answer.content {
            let Block::ToolUse { id, .. } = block else { continue };
            if knows_call(self.history.messages(), id) {
                let fresh = self.emitted_blocks.new_name(id);
                early.rename(id, &fresh);
                for call in answer.malformed.iter_mut().filter(|call| call.id == *id) {
                    call.id.clone_from(&fresh);
                }
                *id = fresh;
            }
        }
    }
}
