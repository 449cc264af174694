//! Puts the events of a stream together into a reply. No I/O.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::recovery::FaultKind;
use crate::transcript::Block;

use super::answer::{
    ModelReply, StreamProgress, CompletedBlock, Settled, ToolIds, invalid_response, complete_tool_use, keep_trusted_blocks, stated_reason,
    text_of,
};
use super::refusal::parse_error;
use super::settlement::Received;
use super::sse::SseEvent;

/// What an event meant for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblyStep {
    /// Life, but no progress: a ping, an event without content, one that is not known.
    Idle,
    /// Content came.
    Content,
    /// The reply is over.
    Last,
}

/// A reply under construction.
///
/// Lenient where nothing can be lost: blocks may interleave, stop late or never, and unknown
/// events pass. Strict where something could be: a reply without its stop reason is none, and one
/// without its last event is one only if everything else came.
#[derive(Debug, Default)]
pub struct ReplyAssembly {
    id: String,
    model: String,
    /// `None` until a message has begun.
    received: Option<Received>,
    stop_reason: Option<String>,
    /// Whether the output was counted at its end, and not only at its start.
    has_final_count: bool,
    ended: bool,
    slots: BTreeMap<u64, BlockSlot>,
    ids: ToolIds,
    written: Written,
}

/// How many bytes of content have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    /// What the model wrote: its output cap limits it.
    model_output: u64,
    /// Signatures, and what the service added: results of its own tools.
    other: u64,
}

#[derive(Debug)]
enum BlockSlot {
    Open(GrowingBlock),
    Closed(CompletedBlock),
}

#[derive(Debug)]
enum GrowingBlock {
    Text(String),
    Thinking { thinking: String, signature: String },
    ToolUse { id: String, name: String, given: Value, json: String },
    Other { value: Value, json: String },
}

impl ReplyAssembly {
    /// Whether any content has begun.
    pub fn has_begun(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether at least one content block is complete.
    pub fn has_block(&self) -> bool {
        self.slots
            .values()
            .any(|slot| matches!(slot, BlockSlot::Closed(CompletedBlock::Whole(_) | CompletedBlock::Malformed { .. })))
    }

    /// Whether nothing is missing but the last event: the blocks have ended, and stop reason and
    /// usage have come. Such a reply is whole.
    pub fn is_whole(&self) -> bool {
        let ended = self.slots.values().all(|slot| matches!(slot, BlockSlot::Closed(_)));
        self.ended || (ended && self.stop_reason.is_some() && self.has_final_count)
    }

    /// How many bytes the model has written: text, thinking and arguments.
    pub fn written(&self) -> u64 {
        self.written.model_output
    }

    /// Takes one event in, and tells `progress` of it.
    ///
    /// # Errors
    /// The service reported an error, or the event makes no sense.
    pub fn process_event(
        &mut self,
        frame: &SseEvent,
        progress: &mut (dyn FnMut(StreamProgress) + Send),
    ) -> Result<AssemblyStep, FaultKind> {
        let data = frame.data.trim();
        if data.is_empty() || data == "[DONE]" || frame.event == "ping" {
            return Ok(AssemblyStep::Idle);
        }
        let value: Value = serde_json::from_str(data)
            .map_err(|error| invalid_response(format!("an event is not JSON ({error})")))?;
        let kind = match value["type"].as_str() {
            // llama.cpp names the event only, and puts its own error type inside.
            _ if frame.event == "error" => "error",
            Some(kind) => kind,
            None if value.get("error").is_some() => "error",
            None => frame.event.as_str(),
        };
        if kind == "ping" {
            return Ok(AssemblyStep::Idle);
        }
        // Who tells of blocks does so before the event that ends one.
        if kind == "content_block_stop" {
            self.close(index_of(&value)?, progress);
        }
        progress(StreamProgress::Event(value.clone()));
        let before = self.written;
        match kind {
            "error" => {
                return Err(parse_error(&value, 200)
                    .unwrap_or_else(|| invalid_response("an error event says nothing".to_owned())));
            }
            "message_start" => self.start(&value["message"])?,
            "content_block_start" => self.open(&value)?,
            "content_block_delta" => self.append_delta(&value)?,
            "message_delta" => {
                self.received().report_final(&value["usage"]);
                self.has_final_count |= value["usage"]["output_tokens"].as_u64().is_some_and(|n| n > 0);
                if let Some(reason) = stated_reason(&value["delta"]["stop_reason"]) {
                    self.stop_reason = Some(reason.to_owned());
                }
            }
            "message_stop" => {
                let open: Vec<u64> = self.slots.keys().copied().collect();
                for index in open {
                    self.close(index, progress);
                }
                self.ended = true;
                return Ok(AssemblyStep::Last);
            }
            _ => {}
        }
        if let Some(received) = self.received {
            progress(StreamProgress::Received(received));
        }
        Ok(if self.written == before { AssemblyStep::Idle } else { AssemblyStep::Content })
    }

    /// The reply, now that the stream has ended.
    ///
    /// # Errors
    /// It ended too early, or what it brought makes no sense.
    pub fn finish(self) -> Result<ModelReply, FaultKind> {
        let torn = |what: &str| FaultKind::TornStream { detail: what.to_owned() };
        if !self.is_whole() {
            return Err(torn("the stream ended before its last event"));
        }
        let Some(stop_reason) = self.stop_reason else {
            return Err(torn("the stream ended without a stop reason"));
        };
        let received = self.received.unwrap_or_default();
        let sealed = self.slots.into_values().filter_map(|slot| match slot {
            BlockSlot::Closed(sealed) => Some(sealed),
            BlockSlot::Open(_) => None,
        });
        let Settled { content, cut_tool_call, malformed } = keep_trusted_blocks(sealed.collect(), &stop_reason);
        Ok(ModelReply {
            id: self.id,
            model: self.model,
            content,
            cut_tool_call,
            malformed,
            stop_reason,
            usage: received.usage,
            counts: received.counts,
            request_id: None,
            first_token: None,
        })
    }

    /// What was received, now that a message has begun.
    fn received(&mut self) -> &mut Received {
        self.received.get_or_insert_default()
    }

    fn start(&mut self, message: &Value) -> Result<(), FaultKind> {
        if self.has_begun() {
            return Err(invalid_response("a second message began inside the first".to_owned()));
        }
        self.id = text_of(&message["id"]);
        self.model = text_of(&message["model"]);
        self.received().report(&message["usage"]);
        Ok(())
    }

    fn open(&mut self, event: &Value) -> Result<(), FaultKind> {
        let index = index_of(event)?;
        if self.slots.contains_key(&index) {
            return Err(invalid_response(format!("content block {index} began twice")));
        }
        let block = &event["content_block"];
        let growing = match block["type"].as_str() {
            Some("text") => GrowingBlock::Text(text_of(&block["text"])),
            Some("thinking") => GrowingBlock::Thinking {
                thinking: text_of(&block["thinking"]),
                signature: text_of(&block["signature"]),
            },
            Some("tool_use") => GrowingBlock::ToolUse {
                id: self.ids.make_unique(block["id"].as_str().unwrap_or_default()),
                name: text_of(&block["name"]),
                given: block["input"].clone(),
                json: String::new(),
            },
            Some(_) => GrowingBlock::Other { value: block.clone(), json: String::new() },
            None => return Err(invalid_response(format!("content block {index} has no type"))),
        };
        self.written.open(&growing);
        self.slots.insert(index, BlockSlot::Open(growing));
        self.received().add_bytes(block.to_string().len());
        Ok(())
    }

    fn append_delta(&mut self, event: &Value) -> Result<(), FaultKind> {
        let index = index_of(event)?;
        let delta = &event["delta"];
        let Some(BlockSlot::Open(growing)) = self.slots.get_mut(&index) else {
            return Err(invalid_response(format!("content for block {index}, which is not open")));
        };
        let (target, piece) = match (delta["type"].as_str(), growing) {
            (Some("text_delta"), GrowingBlock::Text(text)) => (text, &delta["text"]),
            (Some("thinking_delta"), GrowingBlock::Thinking { thinking, .. }) => {
                (thinking, &delta["thinking"])
            }
            (Some("signature_delta"), GrowingBlock::Thinking { signature, .. }) => {
                (signature, &delta["signature"])
            }
            (
                Some("input_json_delta"),
                GrowingBlock::ToolUse { json, .. } | GrowingBlock::Other { json, .. },
            ) => (json, &delta["partial_json"]),
            (
                Some("text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta"),
                GrowingBlock::Text(_) | GrowingBlock::Thinking { .. } | GrowingBlock::ToolUse { .. },
            ) => return Err(invalid_response(format!("content of another kind for block {index}"))),
            _ => return Ok(()),
        };
        let piece = piece.as_str().unwrap_or_default();
        target.push_str(piece);
        self.received().add_bytes(piece.len());
        let written = &mut self.written;
        let is_signature = delta["type"].as_str() == Some("signature_delta");
        *(if is_signature { &mut written.other } else { &mut written.model_output }) +=
            piece.len() as u64;
        Ok(())
    }

    /// Closes a block, if it is open, and tells of it if it is whole.
    fn close(&mut self, index: u64, progress: &mut (dyn FnMut(StreamProgress) + Send)) {
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let BlockSlot::Open(growing) = slot else { return };
        let sealed = growing.complete();
        if let (CompletedBlock::Whole(block), Ok(index)) = (&sealed, usize::try_from(index)) {
            progress(StreamProgress::Block { index, block: block.clone() });
        }
        *slot = BlockSlot::Closed(sealed);
    }
}

impl Written {
    /// Counts what a block brings as it begins.
    fn open(&mut self, block: &GrowingBlock) {
        match block {
            GrowingBlock::Text(text) => self.model_output += text.len() as u64,
            GrowingBlock::Thinking { thinking, signature } => {
                self.model_output += thinking.len() as u64;
                self.other += signature.len() as u64;
            }
            GrowingBlock::ToolUse { name, given, .. } => {
                let given = given.as_object().is_some_and(|given| !given.is_empty());
                self.model_output += name.len() as u64;
                self.other += u64::from(given);
            }
            GrowingBlock::Other { .. } => self.other += 1,
        }
    }
}

impl GrowingBlock {
    fn complete(&mut self) -> CompletedBlock {
        use std::mem::take;

        match self {
            Self::Text(text) if text.trim().is_empty() => CompletedBlock::Blank,
            Self::Text(text) => CompletedBlock::Whole(Block::Text { text: take(text) }),
            Self::Thinking { thinking, signature } => CompletedBlock::Whole(Block::Thinking {
                thinking: take(thinking),
                signature: take(signature),
            }),
            Self::ToolUse { id, name, given, json } => {
                let streamed = !json.trim().is_empty();
                let input = if streamed { Value::String(take(json)) } else { given.take() };
                complete_tool_use(take(id), name, input)
            }
            Self::Other { value, json } => {
                if let Ok(input) = serde_json::from_str::<Value>(json) {
                    value["input"] = input;
                }
                match serde_json::from_value(value.take()) {
                    Ok(block) => CompletedBlock::Whole(block),
                    Err(_) => CompletedBlock::Blank,
                }
            }
        }
    }
}

fn index_of(event: &Value) -> Result<u64, FaultKind> {
    event["index"].as_u64().ok_or_else(|| invalid_response("an event names no content block".to_owned()))
}
