//! The conversation with the model, in memory and in the journal; queries on its messages.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::hooks::HookDecision;
use crate::journal::{Journal, MessageMeta, RestoredConversation};
use crate::model::ModelReply;
use crate::recovery::{HOOK_SAYS, LeftOff, Spending};
use crate::secrets::{KnownSecrets, Redactor};
use crate::transcript::{
    AddedContent, Block, BlockRepair, History, Message, Role, SerializedMessage, StripTarget,
    Usage, drop_citations, has_images, has_uneven_citations, is_portable_id, make_calls_portable,
    repair, strip_media, strip_signed_thinking, strip_thinking,
    strip_thinking_that_lacks_signature,
};

use super::context_gauge::{ContextGauge, ContextSize};
use super::emitted_blocks::EmittedBlocks;
use super::left_open::LeftOpen;
use super::messages::{is_substantial, knows_call};
use super::run_event::RunEvent;
use super::run_monitor::RunMonitor;
use super::setup::Prompt;

/// The conversation: its messages, and the parts of a reply that were reported. A method that
/// changes them takes the journal and records the change, except for content that a model or
/// service refuses: each process removes that anew.
pub(super) struct Conversation {
    history: History,
    secrets: KnownSecrets,
    /// The last reply, until the machine has decided about it.
    pending: Option<ModelReply>,
    /// The blocks of the streaming reply that were reported already.
    emitted_blocks: EmittedBlocks,
    /// True if the last reply was a `pause_turn`, which is sent back as the last message.
    paused: bool,
    /// True if thinking may have been removed from the history, here or in an earlier process.
    may_lack_thinking: bool,
    refused: RefusedParts,
    /// The content that requests omit although the conversation has it, until an answer shows that
    /// the service refused it.
    omitted: Option<AddedContent>,
    /// Publishes its size to a host.
    gauge: ContextGauge,
    /// The token counts of the last reply.
    last_usage: Option<Usage>,
    /// Work that the last reply left open.
    pub(super) left_open: LeftOpen,
}

/// The parts of this conversation that the service has refused.
#[derive(Clone, Copy, Debug, Default)]
struct RefusedParts {
    thinking: bool,
    /// Ids of tool calls that it had made itself, or their further fields.
    calls: bool,
}

impl Conversation {
    pub(super) fn messages(&self) -> &[Message] {
        self.history.messages()
    }

    pub(super) fn new(secrets: KnownSecrets) -> Self {
        let gauge = ContextGauge::default();
        Self::restore(RestoredConversation::default(), secrets, "", gauge)
    }

    /// Continues a conversation. `model` answers next: the signed thinking of another model is
    /// removed. `gauge` publishes the size.
    pub(super) fn restore(
        restored: RestoredConversation,
        secrets: KnownSecrets,
        model: &str,
        gauge: ContextGauge,
    ) -> Self {
        let RestoredConversation { mut messages, left_off, signed_by, last_usage, .. } = restored;
        let last_usage = last_usage.filter(|_| signed_by.as_deref() == Some(model));
        if signed_by.is_some_and(|signed_by| signed_by != model) {
            strip_thinking(&mut messages);
            make_calls_portable(&mut messages);
        }
        strip_thinking_that_lacks_signature(&mut messages);
        Self {
            refused: RefusedParts::default(),
            omitted: None,
            may_lack_thinking: !messages.is_empty(),
            history: History::resume(messages, last_usage),
            secrets,
            pending: None,
            emitted_blocks: EmittedBlocks::default(),
            paused: left_off == Some(LeftOff::Paused),
            gauge,
            last_usage: None,
            left_open: LeftOpen::default(),
        }
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the messages of a request, the JSON of the first of them, and the record of the
    /// blocks of its reply that are reported while it streams.
    pub(super) fn streaming(
        &mut self,
    ) -> (Cow<'_, [Message]>, &[SerializedMessage], &mut EmittedBlocks) {
        self.emitted_blocks.drops_unsigned = self.drops_unsigned(&[]);
        self.emitted_blocks.makes_portable = self.refused.calls;
        self.history.serialize();
        let mut messages = Cow::Borrowed(self.history.messages());
        let mut serialized = self.history.serialized();
        if let Some(omitted) = self.omitted {
            omitted.remove_from(messages.to_mut(), self.history.density());
            serialized = &[];
        }
        (messages, serialized, &mut self.emitted_blocks)
    }

    /// Returns the added content that the next request can omit, beyond what the last one did.
    pub(super) fn next_omitted(&self) -> Option<AddedContent> {
        AddedContent::next_after(self.omitted, self.messages(), self.history.density())
    }

    /// Omits the next added content from requests.
    pub(super) fn omit_added(&mut self) {
        self.omitted = self.next_omitted().or(self.omitted);
    }

    /// Includes the added content again: other content is about to be removed.
    pub(super) fn keep_added(&mut self) {
        self.omitted = None;
    }

    /// Removes the content that the answered request omitted. Thinking stays: its signatures cover
    /// what the service was sent.
    pub(super) fn remove_omitted(&mut self, journal: &mut Journal) {
        let Some(omitted) = self.omitted.take() else { return };
        let density = self.history.density();
        self.history.edit(|messages| omitted.remove_from(messages, density));
        journal.rewrite(self.history.messages());
    }

    /// Publishes the size of the conversation to a host.
    pub(super) fn publish_size(&self, model: &str, window: u64) {
        self.gauge.set(ContextSize {
            messages: self.history.estimate().saturating_sub(self.history.fixed()),
            model: model.to_owned(),
            window,
            last_usage: self.last_usage,
        });
    }

    pub(super) fn set_fixed_bytes(&mut self, fixed: u64) {
        self.history.set_fixed_bytes(fixed);
    }

    pub(super) fn record_count(&mut self, tokens: u64) {
        self.history.record_count(tokens);
    }

    /// Keeps a reply until the machine has decided about it.
    pub(super) fn hold_reply(&mut self, reply: ModelReply) {
        self.pending = Some(reply);
    }

    pub(super) fn take_held_reply(&mut self) -> Option<ModelReply> {
        self.pending.take()
    }

    /// Adds a reply to the history. An empty reply only improves the estimate of the size.
    pub(super) fn add_reply(
        &mut self,
        mut reply: ModelReply,
        is_paused: bool,
        spent: Spending,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) {
        if self.drops_unsigned(&reply.content) {
            reply.content.retain(|block| !block.is_unsigned_thinking());
        }
        while reply.content.last().is_some_and(Block::is_unsigned_thinking) {
            reply.content.pop();
        }
        self.paused = is_paused;
        if !reply.content.iter().any(is_substantial) {
            self.history.observe_usage(&reply.usage);
            return self.drop_emitted_blocks(monitor);
        }
        let ids = self.emitted_blocks.ids_of(&reply.content);
        self.drop_emitted_blocks(monitor);
        let message = Arc::new(Message::assistant(reply.content));
        self.last_usage = Some(reply.usage);
        self.history.push_reply(Message::clone(&message), &reply.usage);
        let meta = MessageMeta {
            id: Some(&reply.id),
            model: Some(&reply.model),
            stop_reason: Some(&reply.stop_reason),
            usage: Some(reply.usage),
            request_id: reply.request_id.as_deref(),
            ids: &ids,
            ..MessageMeta::default()
        };
        journal.message(&message, &meta);
        monitor.emit(&RunEvent::Assistant {
            message,
            ids,
            id: reply.id,
            model: reply.model,
            stop_reason: Some(reply.stop_reason),
            usage: reply.usage,
            request_id: reply.request_id,
            spent,
        });
    }

    /// Returns true if thinking without a signature is left out: the service signs its thinking, or
    /// has refused some. Other services require unsigned thinking to be returned.
    fn drops_unsigned(&self, reply: &[Block]) -> bool {
        let earlier = self.history.messages().iter().flat_map(|message| &message.content);
        self.refused.thinking || earlier.chain(reply).any(Block::is_signed_thinking)
    }

    /// Records what the service has refused, by the repair that it led to.
    pub(super) fn record_refusal(&mut self, repair: Option<&BlockRepair>) {
        self.refused.thinking |= repair == Some(&BlockRepair::Strip);
        self.refused.calls |= repair == Some(&BlockRepair::Rename);
    }

    /// Drops the reply that streams or is held. Only its usage is kept, for size estimates.
    pub(super) fn drop_reply(&mut self, monitor: &mut RunMonitor<'_>) {
        self.drop_emitted_blocks(monitor);
        if let Some(reply) = self.pending.take() {
            self.history.observe_usage(&reply.usage);
        }
    }

    /// Removes what the next model may refuse, since another model wrote it: all thinking, and ids.
    pub(super) fn adapt_to_other_model(&mut self) {
        self.history.edit(|messages| {
            strip_thinking(messages);
            make_calls_portable(messages);
        });
        self.may_lack_thinking = true;
        self.refused = RefusedParts::default();
        self.omitted = None;
    }

    /// Returns true if thinking may have been removed from the history, here or in an earlier
    /// process.
    pub(super) fn may_lack_thinking(&self) -> bool {
        self.may_lack_thinking
    }

    /// Replaces the conversation in the journal by the history.
    pub(super) fn rewrite_journal(&self, journal: &mut Journal) {
        journal.rewrite(self.history.messages());
    }

    pub(super) fn redactor(&self) -> Redactor {
        Redactor::new(self.secrets.clone())
    }

    pub(super) fn redactor_for_model(&self) -> Redactor {
        Redactor::for_model(self.secrets.clone())
    }

    /// Reports that emitted blocks are not part of the conversation.
    fn drop_emitted_blocks(&mut self, monitor: &mut RunMonitor<'_>) {
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
    pub(super) fn add_prompt(&mut self, prompt: Prompt, journal: &mut Journal) {
        self.paused = false;
        let message = Message::user([prompt.content, prompt.attached].concat());
        self.history.push(message.clone());
        let (ids, form) = (prompt.id.as_slice(), prompt.form);
        let meta = MessageMeta { ids, form, ..MessageMeta::default() };
        journal.message(&message, &meta);
        for (path, text) in &prompt.files {
            journal.attachment(path, text);
        }
    }

    pub(super) fn add_user_message(
        &mut self,
        blocks: Vec<Block>,
        details: Vec<Value>,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) {
        self.paused = false;
        let message = Arc::new(Message::user(blocks));
        self.history.push(Message::clone(&message));
        let ids = journal.message(&message, &MessageMeta::default());
        monitor.emit(&RunEvent::User { message, details, ids });
    }

    /// Returns the last lines of an output for observers. It is redacted before it is cut, since a
    /// key may have several lines, and is recognised by its first.
    pub(super) fn redacted_tail(&self, text: &str, lines: usize) -> String {
        let text = self.redactor().redact(text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Returns the redacted text of a hook, for the model.
    pub(super) fn hook_text(&self, text: &str) -> String {
        self.redactor_for_model().redact(text)
    }

    /// Returns the text of a hook as a block of its own, which compaction recognises by its
    /// beginning.
    pub(super) fn hook_block(&self, text: &str) -> Block {
        Block::text(format!("{HOOK_SAYS}\n\n{}", self.hook_text(text)))
    }

    pub(super) fn hook_blocks(&self, decision: &HookDecision) -> Vec<Block> {
        decision.context.iter().map(|text| self.hook_block(text)).collect()
    }

    /// Returns true if a text of the conversation begins with `head`: an earlier process may have
    /// added it.
    pub(super) fn holds_text(&self, head: &str) -> bool {
        let mut blocks = self.messages().iter().flat_map(|message| &message.content);
        blocks.any(|block| block.as_text().is_some_and(|text| text.starts_with(head)))
    }

    /// Edits the history and strips its signed thinking, whose signatures cover the conversation
    /// before the edit; some models also refuse thinking in another position.
    pub(super) fn edit_history<T>(
        &mut self,
        journal: &mut Journal,
        change: impl FnOnce(&mut Vec<Message>) -> T,
    ) -> T {
        let outcome = self.history.edit(|messages| {
            let outcome = change(messages);
            strip_signed_thinking(messages);
            outcome
        });
        self.may_lack_thinking = true;
        journal.rewrite(self.history.messages());
        outcome
    }

    /// Repairs the history before a request. A violation of the message rules is a bug of outlast:
    /// it is repaired and reported. Returns the number of repairs.
    pub(super) fn repair_history(
        &mut self,
        journal: &mut Journal,
        monitor: &mut RunMonitor<'_>,
    ) -> usize {
        if self.history.is_sendable(self.paused) {
            return 0;
        }
        let repairs = self.history.edit(|messages| {
            let (fixed, repairs) = repair(std::mem::take(messages));
            *messages = fixed;
            repairs
        });
        journal.repairs(&repairs);
        let changes: Vec<String> = repairs.iter().map(ToString::to_string).collect();
        let changes = changes.join("; ");
        let warning = format!("repaired the conversation before sending it: {changes}");
        monitor.emit(&RunEvent::Warning(warning));
        repairs.len()
    }

    /// Replaces images by notes, for a model without images. The journal keeps them, for other
    /// models; a resumed session leaves them out again.
    pub(super) fn leave_out_images(&mut self) {
        if has_images(self.messages()) {
            self.history.edit(|messages| strip_media(messages, StripTarget::ImagesOfAnySize));
        }
    }

    /// Removes the citation option from all documents if one lacks it: services refuse a mixture.
    /// Returns true if there was a mixture.
    pub(super) fn level_citations(&mut self) -> bool {
        let is_uneven = has_uneven_citations(self.messages());
        if is_uneven {
            self.history.edit(|messages| drop_citations(messages));
        }
        is_uneven
    }

    /// Renames tool calls whose id was used before. Some servers restart their numbering with each
    /// reply, but the API requires unique ids. Also makes calls portable if the service has refused
    /// ids or fields of its own calls. Returns the old and the new id of each renamed call.
    pub(super) fn rename_repeated_calls(
        &mut self,
        answer: &mut ModelReply,
    ) -> Vec<(String, String)> {
        let mut renamed = Vec::new();
        for block in &mut answer.content {
            let Block::ToolUse { id, others, .. } = block else { continue };
            if self.refused.calls {
                others.clear();
            }
            let is_refused = self.refused.calls && !is_portable_id(id);
            if is_refused || knows_call(self.history.messages(), id) {
                let fresh = self.emitted_blocks.new_name(id);
                for call in answer.malformed.iter_mut().filter(|call| call.id == *id) {
                    call.id.clone_from(&fresh);
                }
                renamed.push((std::mem::replace(id, fresh.clone()), fresh));
            }
        }
        renamed
    }
}
