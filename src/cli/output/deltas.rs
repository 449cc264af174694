//! Redacts streamed deltas, including secrets that are split across several of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::secrets::StreamRedactor;

use super::PipeSender;

/// The types of deltas with text, each with the field of the text.
const TEXTS: [(&str, &str); 3] =
    [("text_delta", "text"), ("thinking_delta", "thinking"), ("input_json_delta", "partial_json")];

/// The texts of the blocks that are open.
#[derive(Debug, Default)]
pub(super) struct BlockDeltas {
    /// By the block's index.
    open: BTreeMap<u64, OpenBlock>,
}

#[derive(Debug)]
struct OpenBlock {
    stream: StreamRedactor,
    kind: &'static str,
    member: &'static str,
}

impl BlockDeltas {
    /// Returns the redacted events to emit for a stream event. Text that may be the start of a
    /// secret is held back until more arrives, or the block ends.
    pub(super) fn masked(&mut self, event: &Value, out: &PipeSender) -> Vec<Value> {
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str() {
            // Drops blocks that an interrupted reply left open.
            Some("message_start") => self.open.clear(),
            Some("content_block_stop") => {
                let rest = self.open.remove(&index).and_then(|open| open.finish(index));
                return rest.into_iter().chain([event.clone()]).collect();
            }
            Some("content_block_delta") => return self.piece(event, index, out),
            Some(_) | None => {}
        }
        vec![event.clone()]
    }

    fn piece(&mut self, event: &Value, index: u64, out: &PipeSender) -> Vec<Value> {
        let delta = &event["delta"];
        let known = TEXTS.into_iter().find(|(kind, _)| delta["type"] == *kind);
        let Some((kind, member)) = known else { return vec![event.clone()] };
        let Some(text) = delta[member].as_str() else { return vec![event.clone()] };
        let mut events = Vec::new();
        // If a block changes its type, which it should not, its texts are kept apart.
        if self.open.get(&index).is_some_and(|open| open.kind != kind) {
            events.extend(self.open.remove(&index).and_then(|open| open.finish(index)));
        }
        let open = self.open.entry(index);
        let open = open.or_insert_with(|| OpenBlock { stream: out.masking(), kind, member });
        let shown = open.stream.push_text(text);
        if !shown.is_empty() || text.is_empty() {
            let mut event = event.clone();
            event["delta"][member] = Value::String(shown);
            events.push(event);
        }
        events
    }
}

impl OpenBlock {
    /// Returns the event with the text that was held back.
    fn finish(mut self, index: u64) -> Option<Value> {
        let (kind, member) = (self.kind, self.member);
        let rest = self.stream.finish_text();
        (!rest.is_empty()).then(|| {
            json!({
                "type": "content_block_delta",
                "index": index,
                "delta": { "type": kind, member: rest },
            })
        })
    }
}
