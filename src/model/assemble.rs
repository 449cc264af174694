//! Assembles the events of a stream into a reply. No I/O.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::json;
use crate::recovery::FaultKind;
use crate::sse::SseEvent;

use super::answer::{
    BLOCKS_MAX, CompletedBlock, ModelReply, StreamProgress, ToolIds, events_of_message,
    invalid_response, is_thinking, message_of_chat, other_fields, part_of_a_character, read_value,
    stated_reason, text_of, too_many_blocks,
};
use super::error_body::parse_error;
use super::event_checks::{
    SplitDelta, SplitEvent, arguments_of, damaged_event, event_text, events_in, has_intact_frame,
    index_of, is_empty, is_foreign, is_of_reply,
};
use super::growing_block::{GrowingBlock, Written};
use super::joined_text::JoinedText;
use super::settlement::{Received, output_count, parse_token_count};

/// The kind of an event: by its data or, without a type there, by its name.
fn kind_of<'a>(frame: &'a SseEvent, value: &'a Value) -> &'a str {
    match value["type"].as_str() {
        // llama.cpp names only the event, and puts its own error type inside.
        _ if frame.event == "error" => "error",
        Some(kind) => kind,
        None if value.get("error").is_some() => "error",
        None => frame.event.as_str(),
    }
}

/// The effect of an event on the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblyStep {
    /// The event brought no progress: a ping, an event without content, an unknown event.
    Idle,
    /// The event added content.
    Content,
    /// The reply is complete.
    Last,
}

/// A reply under construction.
///
/// It tolerates interleaved blocks, late or missing block ends, indices that are missing or used
/// again, text and thinking outside of a block of their kind, and unknown events. It rejects a
/// reply without a stop reason; the last event may be missing only if everything else arrived.
#[derive(Debug, Default)]
pub struct ReplyAssembly {
    id: String,
    model: String,
    /// `None` until a message has begun.
    received: Option<Received>,
    stop_reason: Option<String>,
    /// True if the final count of output tokens arrived, not only the initial one.
    has_final_count: bool,
    ended: bool,
    /// The blocks in the order of the reply.
    slots: BTreeMap<u64, BlockSlot>,
    /// The keys in `slots` of the last block with each index. The two differ only if an index was
    /// used again.
    keys: BTreeMap<u64, u64>,
    ids: ToolIds,
    written: Written,
    /// True if an event of another API came.
    has_unknown: bool,
    unnamed_error: Option<FaultKind>,
}

#[derive(Debug)]
enum BlockSlot {
    Open(GrowingBlock),
    Closed(CompletedBlock),
}

impl ReplyAssembly {
    /// True if any content has begun.
    pub fn has_begun(&self) -> bool {
        !self.slots.is_empty()
    }

    /// True if at least one content block is complete.
    pub fn has_block(&self) -> bool {
        self.slots.values().any(|slot| {
            matches!(
                slot,
                BlockSlot::Closed(CompletedBlock::Whole(_) | CompletedBlock::Malformed { .. })
            )
        })
    }

    /// True if the reply is complete except for the last event: all blocks ended, and stop reason
    /// and usage arrived.
    pub fn is_whole(&self) -> bool {
        let ended = self.slots.values().all(|slot| matches!(slot, BlockSlot::Closed(_)));
        self.ended || (ended && self.stop_reason.is_some() && self.has_final_count)
    }

    /// True if events came, but none of a message.
    pub fn is_foreign(&self) -> bool {
        self.has_unknown && self.received.is_none() && self.stop_reason.is_none()
    }

    /// The number of bytes the model wrote: text, thinking and arguments.
    pub fn written(&self) -> u64 {
        self.written.model_output
    }

    /// Processes one event and reports it to `progress`.
    ///
    /// # Errors
    /// The service reported an error, or the event is invalid.
    pub fn process_event(
        &mut self,
        frame: &SseEvent,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<AssemblyStep, FaultKind> {
        if frame.is_damaged {
            return Err(damaged_event());
        }
        if frame.event == "ping" {
            return Ok(self.on_ping());
        }
        let escaped = frame.invalid_data.as_deref().map(json::escape_invalid_bytes);
        let data = &*event_text(escaped.as_ref().unwrap_or(&frame.data));
        if data == "[DONE]" && self.stop_reason.is_some() {
            // Gateways end each stream by it, some in place of the last event.
            return self.end(progress);
        }
        if data.is_empty() || data == "[DONE]" {
            return Ok(AssemblyStep::Idle);
        }
        let (value, is_split) = match read_value(data, "an event") {
            Err(_) if is_foreign(frame) => return Ok(AssemblyStep::Idle),
            // Some proxies report an error as a text.
            Err(_) if frame.event == "error" => (json!({ "error": data }), false),
            Err(why) => {
                // Some gateways leave out the empty line between events.
                let Some(events) = events_in(data) else { return Err(why) };
                return self.process_all(&events, progress);
            }
            Ok(read) => read,
        };
        let kind = kind_of(frame, &value);
        if kind == "ping" {
            return Ok(self.on_ping());
        }
        if escaped.is_some() && is_of_reply(frame, kind) && !(is_split && has_intact_frame(data)) {
            return Err(damaged_event());
        }
        let is_message = kind == "message" && value.get("content").is_some();
        let message = message_of_chat(&value).or_else(|| is_message.then(|| value.clone()));
        if let Some(message) = message.filter(|_| self.received.is_none()) {
            for event in events_of_message(&message, is_split)? {
                self.process_value(&text_of(&event["type"]), &event, None, progress)?;
            }
            return Ok(AssemblyStep::Last);
        }
        self.process_value(kind, &value, is_split.then_some(data), progress)
    }

    /// Processes events that came together, up to the end of the reply.
    fn process_all(
        &mut self,
        events: &[SseEvent],
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<AssemblyStep, FaultKind> {
        let mut all = AssemblyStep::Idle;
        for event in events {
            match self.process_event(event, progress)? {
                AssemblyStep::Idle => {}
                AssemblyStep::Content => all = AssemblyStep::Content,
                AssemblyStep::Last => return Ok(AssemblyStep::Last),
            }
        }
        Ok(all)
    }

    /// Processes an event of this kind and reports it. `split` is the text of an event in which a
    /// string has unpaired surrogates.
    fn process_value(
        &mut self,
        kind: &str,
        value: &Value,
        split: Option<&str>,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<AssemblyStep, FaultKind> {
        if kind == "content_block_stop" {
            self.complete_at_end(value, split.is_some())?;
        }
        let target = self.end_blocks(kind, value, progress)?;
        progress(StreamProgress::Event(value.clone()));
        if kind == "message_stop" {
            if value["usage"].is_object() {
                self.received().report_final(&value["usage"]);
            }
            return self.end(progress);
        }
        let before = self.written;
        self.apply(kind, value, target, split)?;
        if let Some(received) = self.received {
            progress(StreamProgress::Received(received));
        }
        Ok(if self.written == before { AssemblyStep::Idle } else { AssemblyStep::Content })
    }

    /// Ends the reply.
    fn end(
        &mut self,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<AssemblyStep, FaultKind> {
        if let Some(received) = self.received {
            progress(StreamProgress::Received(received));
        }
        for key in self.slots.keys().copied().collect::<Vec<u64>>() {
            self.close(key, progress)?;
        }
        self.ended = true;
        Ok(AssemblyStep::Last)
    }

    /// Adds the content of a block that came only with its end, as some gateways send it.
    fn complete_at_end(&mut self, event: &Value, is_split: bool) -> Result<(), FaultKind> {
        let block = &event["content_block"];
        let Some(key) = self.key_of(event)?.filter(|_| block.is_object()) else { return Ok(()) };
        let Some(BlockSlot::Open(growing)) = self.slots.get_mut(&key) else { return Ok(()) };
        if growing.complete_with(block) {
            if is_split && block["type"] == "tool_use" {
                return Err(part_of_a_character());
            }
            self.received().add_bytes(block.to_string().len());
        }
        Ok(())
    }

    /// Closes the blocks that an event ends, so that they are reported before the event. Returns
    /// the key of the block for a delta.
    fn end_blocks(
        &mut self,
        kind: &str,
        event: &Value,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<Option<u64>, FaultKind> {
        match kind {
            "content_block_start" => self.free_index(event, progress)?,
            "content_block_delta" => return self.block_for_delta(event, progress),
            "content_block_stop" => {
                if let Some(key) = self.key_of(event)? {
                    self.close(key, progress)?;
                }
            }
            _ => {}
        }
        Ok(None)
    }

    /// Adds the content of an event to the reply; `target` is the key of the block for a delta.
    /// `split` is the text of an event in which a string has unpaired surrogates.
    fn apply(
        &mut self,
        kind: &str,
        event: &Value,
        target: Option<u64>,
        split: Option<&str>,
    ) -> Result<(), FaultKind> {
        match kind {
            "error" => {
                let unknown = || invalid_response("an error event says nothing".to_owned());
                return Err(parse_error(event, 200).unwrap_or_else(unknown));
            }
            "message_start" => self.start(&event["message"])?,
            "content_block_start" => {
                let block = &event["content_block"];
                if split.is_some() && block["type"] == "tool_use" {
                    return Err(part_of_a_character());
                }
                self.open(event, block)?;
            }
            "content_block_delta" => {
                let split = split.map(json::read_exact::<SplitEvent>).transpose();
                let split = split.map_err(|_| part_of_a_character())?.map(|event| event.delta);
                self.append_delta(target, event, split.as_ref())?;
            }
            "message_delta" => {
                let delta = &event["delta"];
                for usage in [&event["usage"], &delta["usage"]] {
                    self.received().report_final(usage);
                    self.has_final_count |= parse_token_count(output_count(usage)).0 > 0;
                }
                let reasons =
                    [&delta["stop_reason"], &event["stop_reason"], &delta["finish_reason"]];
                if let Some(reason) = reasons.into_iter().find_map(stated_reason) {
                    self.stop_reason = Some(reason.to_owned());
                }
            }
            "content_block_stop" => {}
            "" | "message" => {
                self.has_unknown = true;
                self.unnamed_error = match parse_error(event, 200) {
                    Some(refused @ FaultKind::Refused { .. }) => return Err(refused),
                    other => other.or(self.unnamed_error.take()),
                };
            }
            _ => self.has_unknown = true,
        }
        Ok(())
    }

    /// The error in an event without a type: it may be the reason for the end of the stream.
    pub fn unnamed_error(&self) -> Option<&FaultKind> {
        self.unnamed_error.as_ref()
    }

    /// Returns the reply at the end of the stream.
    ///
    /// # Errors
    /// The stream ended too early, or its content is invalid.
    pub fn finish(self) -> Result<ModelReply, FaultKind> {
        if !self.is_whole() {
            let detail = "the stream ended before its last event".to_owned();
            return Err(FaultKind::TornStream { detail });
        }
        let Some(stop_reason) = self.stop_reason else {
            return Err(invalid_response("the message has no stop reason".to_owned()));
        };
        let received = self.received.unwrap_or_default();
        let blocks = self.slots.into_values().filter_map(|slot| match slot {
            BlockSlot::Closed(block) => Some(block),
            BlockSlot::Open(_) => None,
        });
        let (ids, blocks) = ((self.id, self.model), blocks.collect());
        let reply = ModelReply::of_blocks(ids, blocks, stop_reason, &received);
        Ok(ModelReply { has_end: self.ended, ..reply })
    }

    /// The cost-relevant data, created when a message begins.
    fn received(&mut self) -> &mut Received {
        self.received.get_or_insert_default()
    }

    fn start(&mut self, message: &Value) -> Result<(), FaultKind> {
        if self.has_begun() {
            // Some gateways announce the same message again.
            return if message["id"] == self.id.as_str() {
                Ok(())
            } else {
                Err(invalid_response("a second message began inside the first".to_owned()))
            };
        }
        self.id = text_of(&message["id"]);
        self.model = text_of(&message["model"]);
        self.received().report(&message["usage"]);
        Ok(())
    }

    /// The key of the block that an event belongs to. Some encoders leave out the index 0, so an
    /// event without an index belongs to block 0, if that is open, or else to the only open block.
    fn key_of(&self, event: &Value) -> Result<Option<u64>, FaultKind> {
        let index = index_of(event)?;
        let first = self.keys.get(&index.unwrap_or_default()).copied();
        let is_open = |key: &u64| matches!(self.slots.get(key), Some(BlockSlot::Open(_)));
        if index.is_some() || first.as_ref().is_some_and(is_open) {
            return Ok(first);
        }
        let mut open = self.slots.keys().copied().filter(is_open);
        let only = open.next();
        Ok(only.filter(|_| open.next().is_none()).or(first))
    }

    /// Closes the block whose index is used again by a block that starts.
    fn free_index(
        &mut self,
        start: &Value,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<(), FaultKind> {
        let index = index_of(start)?.unwrap_or_default();
        let Some(key) = self.keys.get(&index).copied() else { return Ok(()) };
        if let Some(BlockSlot::Open(growing @ GrowingBlock::ToolUse { .. })) = self.slots.get(&key)
        {
            if growing.is_unnamed() {
                // It is announced again, with its name.
                self.slots.remove(&key);
                return Ok(());
            }
            if !growing.is_followed_by(&start["content_block"]) {
                return Err(invalid_response(format!("content block {index} began twice")));
            }
        }
        self.close(key, progress)
    }

    /// Opens a block with the index of an event.
    fn open(&mut self, event: &Value, block: &Value) -> Result<(), FaultKind> {
        let index = index_of(event)?.unwrap_or_default();
        let key = self.insert(index, block)?;
        self.keys.insert(index, key);
        Ok(())
    }

    /// Opens a block with this index, or after all others if a block has it already. Returns its
    /// key.
    fn insert(&mut self, index: u64, block: &Value) -> Result<u64, FaultKind> {
        let key = match self.slots.last_key_value() {
            Some((last, _)) if self.slots.contains_key(&index) => last.saturating_add(1),
            Some(_) | None => index,
        };
        if self.slots.contains_key(&key) {
            return Err(invalid_response(format!("content block {index} has no place")));
        }
        if self.slots.len() >= BLOCKS_MAX {
            return Err(too_many_blocks());
        }
        let growing = match block["type"].as_str() {
            Some("text") => GrowingBlock::Text(JoinedText::new(text_of(&block["text"]))),
            Some("thinking") => GrowingBlock::Thinking {
                thinking: JoinedText::new(text_of(&block["thinking"])),
                signature: text_of(&block["signature"]),
            },
            Some("tool_use") => GrowingBlock::ToolUse {
                id: self.ids.make_unique(block["id"].as_str().unwrap_or_default()),
                name: text_of(&block["name"]),
                given: block["input"].clone(),
                others: other_fields(block),
                json: JoinedText::default(),
                has_text: false,
            },
            Some(_) => GrowingBlock::Other { value: block.clone(), json: JoinedText::default() },
            None => return Err(invalid_response(format!("content block {index} has no type"))),
        };
        self.written.open(&growing);
        self.slots.insert(key, BlockSlot::Open(growing));
        let received = self.received();
        received.add_bytes(block.to_string().len());
        received.has_thinking |= is_thinking(&block["type"]);
        Ok(key)
    }

    /// Handles a ping. While a block of thinking is open, a ping counts as progress: the service
    /// may withhold the text.
    fn on_ping(&self) -> AssemblyStep {
        let is_thinking =
            |slot: &BlockSlot| matches!(slot, BlockSlot::Open(GrowingBlock::Thinking { .. }));
        if self.slots.values().any(is_thinking) {
            AssemblyStep::Content
        } else {
            AssemblyStep::Idle
        }
    }

    /// The key of the block for a delta. For text and thinking, a block is opened if necessary:
    /// some gateways send them without the start of a block, after its end, or into a block of
    /// another kind. An open block of text or thinking is then closed; a tool call stays open for
    /// its own deltas.
    fn block_for_delta(
        &mut self,
        event: &Value,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<Option<u64>, FaultKind> {
        let key = self.key_of(event)?;
        if is_empty(&event["delta"]) {
            return Ok(key);
        }
        let (block, is_text) = match event["delta"]["type"].as_str() {
            Some("text_delta") => (json!({ "type": "text", "text": "" }), true),
            Some("thinking_delta") => (json!({ "type": "thinking", "thinking": "" }), false),
            Some(_) | None => return Ok(key),
        };
        let fits = |slot: &BlockSlot| match slot {
            BlockSlot::Open(GrowingBlock::Text(_)) => is_text,
            BlockSlot::Open(GrowingBlock::Thinking { .. }) => !is_text,
            BlockSlot::Open(GrowingBlock::ToolUse { .. } | GrowingBlock::Other { .. })
            | BlockSlot::Closed(_) => false,
        };
        match key.and_then(|key| Some((key, self.slots.get(&key)?))) {
            Some((_, slot)) if fits(slot) => return Ok(key),
            Some((_, BlockSlot::Open(GrowingBlock::Other { .. }))) => return Ok(key),
            Some((call, BlockSlot::Open(GrowingBlock::ToolUse { .. }))) => {
                let open = self.slots.iter().rev().find(|(_, slot)| fits(slot));
                let open = open.map(|(key, _)| *key);
                if let Some(BlockSlot::Open(GrowingBlock::ToolUse { has_text, .. })) =
                    self.slots.get_mut(&call)
                {
                    *has_text |= is_text;
                }
                return open.map_or_else(|| self.insert(call, &block), Ok).map(Some);
            }
            Some((key, BlockSlot::Open(_))) => self.close(key, progress)?,
            Some((_, BlockSlot::Closed(_))) | None => {}
        }
        self.open(event, &block)?;
        self.key_of(event)
    }

    /// Appends a delta to the block with this key, with its strings as `split` if one has unpaired
    /// surrogates.
    fn append_delta(
        &mut self,
        key: Option<u64>,
        event: &Value,
        split: Option<&SplitDelta>,
    ) -> Result<(), FaultKind> {
        let (index, delta) = (&event["index"], &event["delta"]);
        if is_empty(delta) {
            return Ok(());
        }
        let slot = key.and_then(|key| self.slots.get_mut(&key));
        let Some(BlockSlot::Open(growing)) = slot else {
            if delta["type"] == "signature_delta" {
                return Ok(());
            }
            return Err(invalid_response(format!("content for block {index}, which is not open")));
        };
        let (target, piece, split) = match (delta["type"].as_str(), growing) {
            (Some("text_delta"), GrowingBlock::Text(text)) => {
                (text, &delta["text"], split.map(|split| &split.text))
            }
            (Some("thinking_delta"), GrowingBlock::Thinking { thinking, .. }) => {
                (thinking, &delta["thinking"], split.map(|split| &split.thinking))
            }
            (Some("signature_delta"), GrowingBlock::Thinking { signature, .. }) => {
                let piece = delta["signature"].as_str().unwrap_or_default();
                signature.push_str(piece);
                self.written.other += piece.len() as u64;
                self.received().add_bytes(piece.len());
                return Ok(());
            }
            (
                Some("input_json_delta"),
                GrowingBlock::ToolUse { json, .. } | GrowingBlock::Other { json, .. },
            ) => (json, arguments_of(delta), split.map(|split| &split.partial_json)),
            (
                Some("text_delta" | "thinking_delta" | "input_json_delta"),
                GrowingBlock::Text(_)
                | GrowingBlock::Thinking { .. }
                | GrowingBlock::ToolUse { .. },
            ) => {
                return Err(invalid_response(format!("content of another kind for block {index}")));
            }
            _ => return Ok(()),
        };
        let length = if let Some(Some(piece)) = split {
            target.push_wtf8(piece);
            piece.len()
        } else {
            // Some gateways send arguments as an object in place of its text.
            let piece = piece.as_str().map_or_else(|| piece.to_string().into(), Cow::Borrowed);
            target.push(&piece);
            piece.len()
        };
        self.written.model_output += length as u64;
        self.received().add_bytes(length);
        Ok(())
    }

    /// Closes a block, if it is open, and reports it if it is complete.
    fn close(
        &mut self,
        key: u64,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<(), FaultKind> {
        let Some(slot) = self.slots.get_mut(&key) else { return Ok(()) };
        let BlockSlot::Open(growing) = slot else { return Ok(()) };
        let completed = growing.complete()?;
        if let (CompletedBlock::Whole(block), Ok(index)) = (&completed, usize::try_from(key)) {
            progress(StreamProgress::Block { index, block: block.clone() });
        }
        *slot = BlockSlot::Closed(completed);
        Ok(())
    }
}
