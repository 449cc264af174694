//! A whole reply, and the rules that make one of what a service sent.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use crate::recovery::FaultKind;
use crate::transcript::{Block, Usage};

use super::headers::RateLimits;
use super::settlement::{Counts, Received};

/// Something that happened while a reply streamed in.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The status line and headers came: the service is alive. What they say of rate limits.
    Accepted(Option<RateLimits>),
    /// Any byte, pings included.
    Bytes(usize),
    /// An event of the stream as the service sent it, pings left out.
    Event(Value),
    /// A content block is complete.
    Block { index: usize, block: Block },
    /// A message has begun, or more of it came: what it can cost so far.
    Received(Received),
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub id: String,
    /// The model that the service says answered.
    pub model: String,
    /// Complete blocks only.
    pub content: Vec<Block>,
    /// Whether a tool call was cut off by the output limit and left out of `content`.
    pub cut_tool_call: bool,
    /// `end_turn`, `tool_use`, `max_tokens` and so on, in the service's words.
    pub stop_reason: String,
    pub usage: Usage,
    /// Whether the numbers of `usage` could be counts of tokens as the service reported them.
    pub counts: Counts,
    pub request_id: Option<String>,
    /// From the start of the attempt to the first block. `None` when the reply came in one piece.
    pub first_token: Option<Duration>,
}

/// Reads a reply that came as one JSON object.
///
/// # Errors
/// The error that it is instead, or that it is neither.
pub fn read_whole(body: &[u8]) -> Result<Answer, FaultKind> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| nonsense(format!("the body is not JSON ({error})")))?;
    if let Some(refusal) = super::refusal::refusal_in(&value, 200) {
        return Err(refusal);
    }
    let Some(blocks) = value["content"].as_array() else {
        return Err(nonsense("the body is JSON, but no message".to_owned()));
    };
    let Some(stop_reason) = value["stop_reason"].as_str() else {
        return Err(nonsense("the message has no stop reason".to_owned()));
    };
    let mut ids = ToolIds::default();
    let sealed = blocks
        .iter()
        .map(|block| seal(block.clone(), &mut ids))
        .collect::<Result<Vec<_>, _>>()
        .map_err(nonsense)?;
    let (content, cut_tool_call) = settle(sealed, stop_reason).map_err(nonsense)?;
    let mut received = Received::default();
    received.report(&value["usage"]);
    Ok(Answer {
        id: text_of(&value["id"]),
        model: text_of(&value["model"]),
        content,
        cut_tool_call,
        stop_reason: stop_reason.to_owned(),
        usage: received.usage,
        counts: received.counts,
        request_id: None,
        first_token: None,
    })
}

/// What a body that is a message can cost, even where it cannot be used. `None`: it is none.
pub(super) fn received_of(body: &[u8]) -> Option<Received> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let value: Value = serde_json::from_slice(body).ok()?;
    let content = value["content"].as_array()?;
    let mut received = Received::default();
    received.report_final(&value["usage"]);
    for block in content {
        received.grow(block.to_string().len());
    }
    Some(received)
}

/// A block at its end.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sealed {
    Whole(Block),
    /// Nothing worth keeping: the service refuses blank text when it comes back to it.
    Blank,
    /// A tool call whose input is no JSON object.
    Cut,
}

/// Ends a block that came in one piece.
fn seal(value: Value, ids: &mut ToolIds) -> Result<Sealed, String> {
    let kind = text_of(&value["type"]);
    if kind == "tool_use" {
        let id = ids.claim(value["id"].as_str().unwrap_or_default());
        return Ok(seal_tool_use(id, text_of(&value["name"]), Some(value["input"].clone())));
    }
    match serde_json::from_value(value) {
        Ok(Block::Text { text }) if text.trim().is_empty() => Ok(Sealed::Blank),
        Ok(Block::Other(_)) if matches!(kind.as_str(), "" | "text" | "thinking") => {
            Err("a content block makes no sense".to_owned())
        }
        Ok(whole) => Ok(Sealed::Whole(whole)),
        Err(error) => Err(format!("a content block makes no sense ({error})")),
    }
}

/// Ends a tool call. `None` is input that did not parse.
pub(super) fn seal_tool_use(id: String, name: String, input: Option<Value>) -> Sealed {
    let input = match input {
        Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(input @ Value::Object(_)) => input,
        Some(_) | None => return Sealed::Cut,
    };
    if name.is_empty() {
        return Sealed::Cut;
    }
    Sealed::Whole(Block::ToolUse { id, name, input })
}

/// Keeps what is whole. The last tool call of a reply that ran out of room is never trusted, even
/// if it parses: some servers close a cut call with an empty input. Returns whether one was left
/// out.
///
/// # Errors
/// A tool call makes no sense although nothing cut the reply short.
pub(super) fn settle(
    mut sealed: Vec<Sealed>,
    stop_reason: &str,
) -> Result<(Vec<Block>, bool), String> {
    let mut cut = false;
    if matches!(stop_reason, "max_tokens" | "model_context_window_exceeded") {
        let is_call =
            |one: &Sealed| matches!(one, Sealed::Cut | Sealed::Whole(Block::ToolUse { .. }));
        if let Some(last) = sealed.iter().rposition(is_call) {
            sealed.remove(last);
            cut = true;
        }
    }
    let mut content = Vec::with_capacity(sealed.len());
    for one in sealed {
        match one {
            Sealed::Whole(block) => content.push(block),
            Sealed::Blank => {}
            Sealed::Cut => return Err("a tool call's input is no JSON object".to_owned()),
        }
    }
    Ok((content, cut))
}

/// The ids of a reply's tool calls: never empty, never the same twice.
#[derive(Debug, Default)]
pub(super) struct ToolIds(BTreeSet<String>);

impl ToolIds {
    pub(super) fn claim(&mut self, id: &str) -> String {
        let id = if id.is_empty() || self.0.contains(id) {
            format!("toolu_{}", Uuid::new_v4().simple())
        } else {
            id.to_owned()
        };
        self.0.insert(id.clone());
        id
    }
}

pub(super) fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn nonsense(detail: String) -> FaultKind {
    FaultKind::Nonsense { detail }
}
