//! Reads single events of a stream, and detects foreign and damaged ones. Pure.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

use crate::json;
use crate::recovery::FaultKind;
use crate::sse::SseEvent;
use crate::transcript::OtherFields;

use super::answer::invalid_response;
use super::joined_text::Wtf8;

/// The events of the Messages API.
const EVENTS: [&str; 8] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
    "ping",
];

/// True if this line is an event of the Messages API: some gateways send events as lines of JSON.
pub(super) fn is_event_line(line: &[u8]) -> bool {
    let kind = json::read::<Value>(line).map(|event| event["type"].clone());
    kind.is_ok_and(|kind| kind != "error" && EVENTS.iter().any(|name| kind == *name))
}

/// True if an event that is not JSON does not belong to the Messages API: some gateways keep the
/// connection open by events with their own names, or without a name.
pub(super) fn is_foreign(frame: &SseEvent) -> bool {
    match frame.event.as_str() {
        "" | "message" => frame.invalid_data.is_none() && !frame.data.contains('{'),
        name => !EVENTS.contains(&name),
    }
}

/// True if an event of this kind belongs to the reply.
pub(super) fn is_of_reply(frame: &SseEvent, kind: &str) -> bool {
    EVENTS.contains(&kind) || !is_foreign(frame)
}

/// A delta whose text or thinking has bytes that are not UTF-8, while all its other strings and
/// names are intact.
#[derive(Deserialize)]
struct DamagedEvent {
    delta: DamagedDelta,
    #[serde(flatten)]
    _others: OtherFields,
}

#[derive(Deserialize)]
struct DamagedDelta {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "text")]
    _text: Option<Wtf8>,
    #[serde(rename = "thinking")]
    _thinking: Option<Wtf8>,
    #[serde(flatten)]
    _others: OtherFields,
}

/// True if the bytes that are not UTF-8, which `data` has as escapes, are all in a text of the
/// model. In another event, a tool might run with another name or path than the model wrote.
pub(super) fn has_intact_frame(data: &str) -> bool {
    json::read_exact::<DamagedEvent>(data)
        .is_ok_and(|event| ["text_delta", "thinking_delta"].contains(&event.delta.kind.as_str()))
}

pub(super) fn damaged_event() -> FaultKind {
    invalid_response("an event is not valid UTF-8".to_owned())
}

/// A `content_block_delta` event in which a string has unpaired surrogates.
#[derive(Deserialize)]
pub(super) struct SplitEvent {
    pub(super) delta: SplitDelta,
}

#[derive(Deserialize)]
pub(super) struct SplitDelta {
    pub(super) text: Option<Wtf8>,
    pub(super) thinking: Option<Wtf8>,
    pub(super) partial_json: Option<Wtf8>,
}

/// True if a delta adds nothing. Some gateways send such deltas for blocks of any kind.
pub(super) fn is_empty(delta: &Value) -> bool {
    let piece = match delta["type"].as_str() {
        Some("text_delta") => &delta["text"],
        Some("thinking_delta") => &delta["thinking"],
        Some("signature_delta") => &delta["signature"],
        Some("input_json_delta") => arguments_of(delta),
        Some(_) | None => return false,
    };
    !piece.is_object() && piece.as_str().is_none_or(str::is_empty)
}

/// The part of a call's arguments in a delta. Some gateways use the name of another field.
pub(super) fn arguments_of(delta: &Value) -> &Value {
    let others = ["input", "arguments"].iter().map(|name| &delta[*name]);
    let mut named = [&delta["partial_json"]].into_iter().chain(others);
    named.find(|part| !part.is_null()).unwrap_or(&Value::Null)
}

/// The text of an event. Some proxies repeat the name of its field, or encode the event as a text.
pub(super) fn event_text(data: &str) -> Cow<'_, str> {
    let mut data = data.trim();
    while let Some(inner) = data.strip_prefix("data:") {
        data = inner.trim_start();
    }
    let encoded = data.starts_with("\"{").then(|| json::read_exact::<String>(data).ok());
    encoded.flatten().map_or(Cow::Borrowed(data), Cow::Owned)
}

/// The events in a text of several JSON values, which may end with `[DONE]`. `None` for other texts.
pub(super) fn events_in(data: &str) -> Option<Vec<SseEvent>> {
    let (all, end) = match data.trim_end().strip_suffix("[DONE]") {
        Some(all) => (all, Some(SseEvent::of_data(b"[DONE]".to_vec()))),
        None => (data, None),
    };
    let mut values = Deserializer::from_str(all).into_iter::<IgnoredAny>();
    let (mut events, mut begin) = (Vec::new(), 0);
    while let Some(value) = values.next() {
        value.ok()?;
        events.push(SseEvent::of_data(all[begin..values.byte_offset()].into()));
        begin = values.byte_offset();
    }
    events.extend(end);
    (events.len() > 1).then_some(events)
}

/// The index of the content block that an event belongs to. `None` if the event states none.
pub(super) fn index_of(event: &Value) -> Result<Option<u64>, FaultKind> {
    let index = &event["index"];
    if index.is_null() {
        return Ok(None);
    }
    let why = || invalid_response(format!("an event has the content block index {index}"));
    // Some gateways write numbers as texts, or with a fraction of zero.
    let number = json::whole(index).or_else(|| index.as_str()?.trim().parse().ok());
    number.map(Some).ok_or_else(why)
}
