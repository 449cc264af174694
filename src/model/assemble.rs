//! Assembles the events of a stream into a reply. No I/O.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::json;
use crate::recovery::FaultKind;
use crate::sse::SseEvent;
use crate::transcript::Block;

use super::answer::{
    CompletedBlock, ModelReply, Settled, StreamProgress, ToolIds, complete_tool_use,
    invalid_response, keep_trusted_blocks, stated_reason, text_of,
};
use super::error_body::parse_error;
use super::settlement::Received;

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
/// It tolerates interleaved blocks, late or missing block ends, and unknown events. It rejects a
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
    slots: BTreeMap<u64, BlockSlot>,
    ids: ToolIds,
    written: Written,
}

/// The number of content bytes received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    /// Bytes that the model wrote, which its output cap limits.
    model_output: u64,
    /// Other bytes: signatures, and results of the service's own tools.
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
            // A tool would run with another name or path than the model wrote.
            return Err(invalid_response("an event is not valid UTF-8".to_owned()));
        }
        let data = frame.data.trim();
        if frame.event == "ping" {
            return Ok(self.on_ping());
        }
        if data.is_empty() || data == "[DONE]" {
            return Ok(AssemblyStep::Idle);
        }
        let value: Value = json::read_str(data)
            .map_err(|error| invalid_response(format!("an event is not JSON ({error})")))?;
        let kind = match value["type"].as_str() {
            // llama.cpp names only the event, and puts its own error type inside.
            _ if frame.event == "error" => "error",
            Some(kind) => kind,
            None if value.get("error").is_some() => "error",
            None => frame.event.as_str(),
        };
        if kind == "ping" {
            return Ok(self.on_ping());
        }
        // Blocks are reported before the event that ends them.
        if kind == "content_block_stop" {
            self.close(index_of(&value)?, progress);
        }
        progress(StreamProgress::Event(value.clone()));
        let before = self.written;
        match kind {
            "error" => {
                return Err(parse_error(&value, 200).unwrap_or_else(|| {
                    invalid_response("an error event says nothing".to_owned())
                }));
            }
            "message_start" => self.start(&value["message"])?,
            "content_block_start" => self.open(&value)?,
            "content_block_delta" => {
                self.open_for_delta(&value)?;
                self.append_delta(&value)?;
            }
            "message_delta" => {
                self.received().report_final(&value["usage"]);
                self.has_final_count |=
                    value["usage"]["output_tokens"].as_u64().is_some_and(|n| n > 0);
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

    /// Returns the reply at the end of the stream.
    ///
    /// # Errors
    /// The stream ended too early, or its content is invalid.
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
        let Settled { content, cut_tool_call, malformed } =
            keep_trusted_blocks(sealed.collect(), &stop_reason);
        Ok(ModelReply {
            id: self.id,
            model: self.model,
            content,
            cut_tool_call,
            malformed,
            stop_reason,
            has_end: self.ended,
            usage: received.usage,
            counts: received.counts,
            request_id: None,
            first_token: None,
        })
    }

    /// The cost-relevant data, created when a message begins.
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
        let received = self.received();
        received.add_bytes(block.to_string().len());
        received.has_thinking |= is_thinking(&block["type"]);
        Ok(())
    }

    /// Handles a ping. It is progress while a block of thinking is open, whose text may be
    /// withheld.
    fn on_ping(&self) -> AssemblyStep {
        let is_thinking =
            |slot: &BlockSlot| matches!(slot, BlockSlot::Open(GrowingBlock::Thinking { .. }));
        if self.slots.values().any(is_thinking) {
            AssemblyStep::Content
        } else {
            AssemblyStep::Idle
        }
    }

    /// Opens a block for text that comes without the start of one, as some gateways send it.
    fn open_for_delta(&mut self, delta: &Value) -> Result<(), FaultKind> {
        let index = index_of(delta)?;
        if self.slots.contains_key(&index) {
            return Ok(());
        }
        let block = match delta["delta"]["type"].as_str() {
            Some("text_delta") => json!({ "type": "text", "text": "" }),
            Some("thinking_delta") => json!({ "type": "thinking", "thinking": "" }),
            Some(_) | None => return Ok(()),
        };
        self.open(&json!({ "index": index, "content_block": block }))
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
                GrowingBlock::Text(_)
                | GrowingBlock::Thinking { .. }
                | GrowingBlock::ToolUse { .. },
            ) => {
                return Err(invalid_response(format!("content of another kind for block {index}")));
            }
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

    /// Closes a block, if it is open, and reports it if it is complete.
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
    /// Counts the content that a block starts with.
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
                if let Ok(input) = json::read_str::<Value>(json) {
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

/// True if a block of this type is thinking.
pub(super) fn is_thinking(kind: &Value) -> bool {
    kind == "thinking" || kind == "redacted_thinking"
}

fn index_of(event: &Value) -> Result<u64, FaultKind> {
    let index = event["index"].as_u64();
    index.ok_or_else(|| invalid_response("an event has no content block index".to_owned()))
}
