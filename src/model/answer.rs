//! A complete reply, and the rules that build one from a response body.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use jsonc_parser::tokens::Token;
use jsonc_parser::{Scanner, ScannerOptions};
use serde_json::{Deserializer, Value, json};
use uuid::Uuid;

use crate::json;
use crate::recovery::{CutKind, FaultKind, ReplyKind};
use crate::transcript::{Block, OtherFields, Usage, is_returnable_id};

use super::headers::RateLimits;
use super::settlement::{Counts, Received};
use super::stop_reason::{EndWords, StopKind, TrustedCalls};

/// An event while a reply streams in.
#[derive(Clone, Debug)]
pub enum StreamProgress {
    /// The request has its credential and is being sent.
    Sending,
    /// The status line and headers arrived, with the rate limits they report.
    Accepted(Option<RateLimits>),
    /// Any byte, pings included.
    Bytes(usize),
    /// An event of the stream as the service sent it, except pings.
    Event(Value),
    /// A content block is complete.
    Block { index: usize, block: Block },
    /// A message began or grew, with its cost-relevant data so far.
    Received(Received),
}

/// A complete reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    pub id: String,
    /// The model that the service reports.
    pub model: String,
    /// Complete blocks only.
    pub content: Vec<Block>,
    /// True if a tool call was left out of `content` because the reply was truncated, by the output
    /// limit or otherwise.
    pub cut_tool_call: bool,
    /// Tool calls in `content` that must not run.
    pub malformed: Vec<MalformedCall>,
    /// `end_turn`, `tool_use`, `max_tokens` and so on, as reported by the service.
    pub stop_reason: String,
    /// True if the service marked the end of the reply; false if the last event was missing.
    pub has_end: bool,
    pub usage: Usage,
    /// The plausibility of the reported numbers of `usage` as token counts.
    pub counts: Counts,
    pub request_id: Option<String>,
    /// Time from the start of the attempt to the first block. `None` if the reply came in one
    /// piece.
    pub first_token: Option<Duration>,
}

/// A tool call with unusable arguments. The reply contains it with an empty input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedCall {
    pub id: String,
    /// The error in its arguments, for the model.
    pub problem: String,
}

/// Parses a reply that came as one JSON object.
///
/// # Errors
/// The error that the body reports, or that the body is not a message.
pub fn parse_message(body: &[u8]) -> Result<ModelReply, FaultKind> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let is_damaged = str::from_utf8(body).is_err();
    let (value, is_split) = read_value(&String::from_utf8_lossy(body), "the body")?;
    let value = unwrapped(value);
    if let Some(refusal) = super::error_body::parse_error(&value, 200) {
        return Err(refusal);
    }
    let Some(blocks) = content_blocks(&value) else {
        return Err(invalid_response("the body is JSON, but not a message".to_owned()));
    };
    if blocks.len() > BLOCKS_MAX {
        return Err(too_many_blocks());
    }
    let Some(stop_reason) = stated_reason(&value["stop_reason"]) else {
        return Err(invalid_response("the message has no stop reason".to_owned()));
    };
    if (is_split || is_damaged) && has_lost_characters_beside_texts(&value) {
        return Err(part_of_a_character());
    }
    let mut ids = ToolIds::default();
    let blocks = blocks.iter().map(|block| complete_block(block.clone(), &mut ids));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    let mut received = Received::default();
    received.report(&value["usage"]);
    let (id, model) = (text_of(&value["id"]), text_of(&value["model"]));
    Ok(ModelReply::of_blocks((id, model), blocks, stop_reason.to_owned(), &received))
}

/// The message in a chat completion that came in one piece: some gateways do not translate it.
pub(super) fn message_of_chat(body: &Value) -> Option<Value> {
    let choice = &body["choices"][0];
    let has_error = body["error"].as_object().is_some_and(|error| !error.is_empty());
    let message = choice["message"].as_object().filter(|_| !has_error)?;
    let mut content = match message.get("content") {
        Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
        Some(Value::Array(parts)) => parts.clone(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => vec![],
    };
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    content.extend(calls.map(|call| {
        let (id, function) = (&call["id"], &call["function"]);
        json!({ "type": "tool_use", "id": id, "name": function["name"], "input": function["arguments"] })
    }));
    Some(json!({
        "type": "message", "id": body["id"], "model": body["model"], "content": content,
        "stop_reason": choice["finish_reason"], "usage": body["usage"],
    }))
}

/// The message inside of a body that some gateways put around it, as JSON or as its text; any other
/// body unchanged.
fn unwrapped(body: Value) -> Value {
    const NAMES: [&str; 6] = ["message", "data", "response", "result", "output", "body"];

    if body.get("content").is_some() {
        return body;
    }
    if let Some(message) = message_of_chat(&body) {
        return message;
    }
    let inside = NAMES.iter().filter_map(|name| match &body[*name] {
        Value::String(text) => json::read_exact(text).ok(),
        inner @ Value::Object(_) => Some(inner.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    });
    let message = inside
        .into_iter()
        .find(|inner: &Value| inner["type"] == "message" && inner["content"].is_array());
    message.unwrap_or(body)
}

/// The events of a message that came as one event of a stream.
pub(super) fn events_of_message(message: &Value, is_split: bool) -> Result<Vec<Value>, FaultKind> {
    let blocks = content_blocks(message).unwrap_or_default();
    if stated_reason(&message["stop_reason"]).is_none() {
        return Err(invalid_response("the message has no stop reason".to_owned()));
    }
    if is_split && has_lost_characters_beside_texts(message) {
        return Err(part_of_a_character());
    }
    let mut start = message.clone();
    (start["content"], start["stop_reason"]) = (json!([]), Value::Null);
    let delta = json!({ "stop_reason": message["stop_reason"] });
    let blocks = blocks.iter().enumerate().flat_map(|(index, block)| {
        // Hosts that show a reply as it grows read the text in deltas.
        let (mut block, text) = (block.clone(), block["text"].clone());
        let is_text = block["type"] == "text" && text.is_string();
        let delta = is_text.then(|| {
            block["text"] = json!("");
            let delta = json!({ "type": "text_delta", "text": text });
            json!({ "type": "content_block_delta", "index": index, "delta": delta })
        });
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": block });
        let stop = json!({ "type": "content_block_stop", "index": index });
        [Some(start), delta, Some(stop)].into_iter().flatten()
    });
    let first = [json!({ "type": "message_start", "message": start })];
    let last = [
        json!({ "type": "message_delta", "delta": delta, "usage": message["usage"] }),
        json!({ "type": "message_stop" }),
    ];
    Ok(first.into_iter().chain(blocks).chain(last).collect())
}

/// The first line of a body, if it is a message and other lines follow; all of any other body.
pub(super) fn without_further_lines(body: &[u8]) -> &[u8] {
    let Some(end) = memchr::memchr(b'\n', body) else { return body };
    let (first, rest) = body.split_at(end);
    let is_message = |line| json::read::<Value>(line).is_ok_and(|value| value["type"] == "message");
    if rest.trim_ascii().is_empty() || !is_message(first) { body } else { first }
}

/// The content blocks of a message. The API accepts a text in place of them in requests, and some
/// gateways answer with one, with a single block, or with null for none.
fn content_blocks(message: &Value) -> Option<Cow<'_, [Value]>> {
    match message.get("content")? {
        Value::Array(blocks) => Some(Cow::Borrowed(blocks)),
        Value::String(text) => Some(Cow::Owned(vec![json!({ "type": "text", "text": text })])),
        block @ Value::Object(_) => Some(Cow::Borrowed(std::slice::from_ref(block))),
        Value::Null => Some(Cow::Borrowed(&[])),
        Value::Bool(_) | Value::Number(_) => None,
    }
}

/// True if part of a character was replaced by U+FFFD elsewhere than in the model's texts: a tool
/// might run with another name or path than the model wrote.
fn has_lost_characters_beside_texts(message: &Value) -> bool {
    let mut rest = message.clone();
    for block in rest["content"].as_array_mut().into_iter().flatten() {
        if let Some(block) = block.as_object_mut() {
            block.retain(|name, _| !matches!(name.as_str(), "text" | "thinking"));
        }
    }
    rest.to_string().contains(char::REPLACEMENT_CHARACTER)
}

/// Reads JSON from the service. The flag is true if the JSON has unpaired surrogates, which are
/// read as U+FFFD.
pub(super) fn read_value(text: &str, what: &str) -> Result<(Value, bool), FaultKind> {
    if let Ok(value) = json::read_exact(text) {
        return Ok((value, false));
    }
    let value = json::read_str(text);
    let value = value.map_err(|error| invalid_response(format!("{what} is not JSON ({error})")))?;
    Ok((value, true))
}

/// The cost-relevant data of a body that is a message, even an unusable one. `None` for other
/// bodies.
pub(super) fn parse_received(body: &[u8]) -> Option<Received> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let value = unwrapped(json::read(body).ok()?);
    let content = content_blocks(&value)?;
    let mut received = Received::default();
    received.report_final(&value["usage"]);
    for block in content.iter() {
        received.add_bytes(block.to_string().len());
        received.has_thinking |= is_thinking(&block["type"]);
    }
    Some(received)
}

/// A completed content block.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CompletedBlock {
    Whole(Block),
    /// A blank block, which is dropped: the service rejects blank text in a request.
    Blank,
    /// A tool call with unusable arguments.
    Malformed {
        name: String,
        call: MalformedCall,
        others: OtherFields,
    },
}

/// Completes a block that came in one piece.
fn complete_block(value: Value, ids: &mut ToolIds) -> Result<CompletedBlock, FaultKind> {
    let kind = text_of(&value["type"]);
    if kind == "tool_use" {
        let id = ids.make_unique(value["id"].as_str().unwrap_or_default());
        let (name, input) = (text_of(&value["name"]), value["input"].clone());
        return Ok(complete_tool_use(id, name, input, other_fields(&value)));
    }
    if kind == "text" && value.get("text") == Some(&Value::Null) {
        return Ok(CompletedBlock::Blank);
    }
    match serde_json::from_value(value) {
        Ok(Block::Text { text }) if text.trim().is_empty() => Ok(CompletedBlock::Blank),
        Ok(Block::Other(_)) if matches!(kind.as_str(), "" | "text" | "thinking") => {
            Err(invalid_response("a content block makes no sense".to_owned()))
        }
        Ok(whole) => Ok(CompletedBlock::Whole(whole)),
        Err(error) => Err(invalid_response(format!("a content block makes no sense ({error})"))),
    }
}

/// Completes a tool call. Arguments that came as text are parsed as JSON; empty text means no
/// arguments.
pub(super) fn complete_tool_use(
    id: String,
    name: String,
    input: Value,
    others: OtherFields,
) -> CompletedBlock {
    match parse_input(&name, input) {
        Ok(input) => CompletedBlock::Whole(Block::ToolUse { id, name, input, others }),
        Err(problem) => {
            let name = if name.is_empty() { UNNAMED.to_owned() } else { name };
            CompletedBlock::Malformed { name, call: MalformedCall { id, problem }, others }
        }
    }
}

/// The fields of a tool call that are passed on unread.
pub(super) fn other_fields(call: &Value) -> OtherFields {
    OtherFields::of(call, &["type", "id", "name", "input"])
}

/// The arguments of a call as an object, or the error in the call.
fn parse_input(name: &str, input: Value) -> Result<Value, String> {
    if name.is_empty() {
        return Err("the call names no tool".to_owned());
    }
    let input = match &input {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => parse_arguments(text).map_err(|error| {
            format!("the arguments are not valid JSON ({error}): {}", quoted(text))
        })?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            input
        }
    };
    match input {
        Value::Null => Ok(json!({})),
        Value::Object(_) => Ok(input),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let input = quoted(&input.to_string());
            Err(format!("the arguments are JSON, but not an object: {input}"))
        }
    }
}

/// Parses arguments that came as text. Some gateways encode them twice, send them twice, or send
/// empty arguments beside them. Some models write Markdown, comments or a comma after the last item.
fn parse_arguments(text: &str) -> Result<Value, serde_json::Error> {
    match json::read_exact(text) {
        Ok(Value::String(inner)) => {
            let object = json::read_exact(&inner).ok().filter(Value::is_object);
            let object = object.or_else(|| commented_object(&inner));
            Ok(object.unwrap_or(Value::String(inner)))
        }
        Err(error) => same_object(text).or_else(|| commented_object(text)).ok_or(error),
        parsed => parsed,
    }
}

/// The object in a text that has only additions which cannot change its meaning: a Markdown fence,
/// comments, a comma after the last item of an object or list, and closing brackets after its end.
fn commented_object(text: &str) -> Option<Value> {
    let text = text.trim();
    let text = text.strip_prefix("```").map_or(text, |fenced| {
        let inside = fenced.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        inside.trim_end().trim_end_matches("```")
    });
    let strict = ScannerOptions {
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let mut scanner = Scanner::new(text, &strict);
    let (mut plain, mut comma, mut depth) = (String::with_capacity(text.len()), "", 0_u32);
    while let Some(token) = scanner.scan().ok()? {
        let between = match token {
            Token::CommentLine(_) | Token::CommentBlock(_) => continue,
            Token::CloseBrace | Token::CloseBracket if depth == 0 => continue,
            Token::CloseBrace | Token::CloseBracket => {
                depth -= 1;
                ""
            }
            Token::OpenBrace | Token::OpenBracket => {
                depth += 1;
                comma
            }
            Token::Comma
            | Token::Colon
            | Token::String(_)
            | Token::Word(_)
            | Token::Boolean(_)
            | Token::Number(_)
            | Token::Null => comma,
        };
        plain.push_str(between);
        comma = if token == Token::Comma { "," } else { "" };
        if comma.is_empty() {
            plain.extend([" ", &text[scanner.token_start()..scanner.token_end()]]);
        }
    }
    json::read_exact(&plain).ok().filter(Value::is_object)
}

/// The object in a text that has several values, if all others are equal to it or empty.
fn same_object(text: &str) -> Option<Value> {
    let values = Deserializer::from_str(text).into_iter::<Value>();
    let mut values = values.collect::<Result<Vec<_>, _>>().ok()?;
    let is_empty = |value: &Value| value.is_null() || *value == json!({});
    if values.iter().all(is_empty) {
        values.truncate(1);
    } else {
        values.retain(|value| !is_empty(value));
        values.dedup();
    }
    let only = values.pop()?;
    (values.is_empty() && (only.is_object() || only.is_null())).then_some(only)
}

/// The name given to a tool call without a name.
const UNNAMED: &str = "unnamed";

/// The beginning of the arguments that the model sent, so that the model sees what arrived.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 300;
    let end = text.floor_char_boundary(LONGEST);
    if end < text.len() { format!("`{}` ...", &text[..end]) } else { format!("`{text}`") }
}

impl ModelReply {
    /// Creates a reply of completed blocks. Drops tool calls that may be truncated, depending on
    /// the stop reason.
    pub(super) fn of_blocks(
        (id, model): (String, String),
        mut blocks: Vec<CompletedBlock>,
        stop_reason: String,
        received: &Received,
    ) -> Self {
        use CompletedBlock::{Blank, Malformed, Whole};

        let is_call = |block: &CompletedBlock| {
            matches!(block, Malformed { .. } | Whole(Block::ToolUse { .. }))
        };
        let before = blocks.len();
        match StopKind::classify(&stop_reason).trusted_calls() {
            TrustedCalls::All => {}
            TrustedCalls::AllButLast => {
                if let Some(last) = blocks.iter().rposition(is_call) {
                    blocks.remove(last);
                }
            }
            TrustedCalls::None => blocks.retain(|block| !is_call(block)),
        }
        let mut reply = Self {
            id,
            model,
            content: Vec::with_capacity(blocks.len()),
            cut_tool_call: blocks.len() < before,
            malformed: Vec::new(),
            stop_reason,
            has_end: true,
            usage: received.usage,
            counts: received.counts,
            request_id: None,
            first_token: None,
        };
        for block in blocks {
            match block {
                Whole(block) => reply.content.push(block),
                Blank => {}
                Malformed { name, call, others } => {
                    let (id, input) = (call.id.clone(), json!({}));
                    reply.content.push(Block::ToolUse { id, name, input, others });
                    reply.malformed.push(call);
                }
            }
        }
        reply
    }
}

/// The stop reason, if one is given.
pub(super) fn stated_reason(value: &Value) -> Option<&str> {
    value.as_str().filter(|reason| !reason.trim().is_empty())
}

/// The ids of a reply's tool calls. Empty and repeated ids, and those that the service would reject
/// in a request, are replaced.
#[derive(Debug, Default)]
pub(super) struct ToolIds(BTreeSet<String>);

impl ToolIds {
    pub(super) fn make_unique(&mut self, id: &str) -> String {
        let id = if !is_returnable_id(id) || self.0.contains(id) {
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

pub(super) fn invalid_response(detail: String) -> FaultKind {
    FaultKind::InvalidContent { detail }
}

/// The maximum number of content blocks in a reply. A compressed body of some kilobytes may have
/// hundreds of thousands of empty ones.
pub(super) const BLOCKS_MAX: usize = 4_096;

pub(super) fn too_many_blocks() -> FaultKind {
    invalid_response(format!("the reply has more than {BLOCKS_MAX} content blocks"))
}

/// The fault of a reply in which a tool might run with another character than the model wrote.
pub(super) fn part_of_a_character() -> FaultKind {
    invalid_response("a tool call has part of a character".to_owned())
}

/// Classifies a complete reply.
///
/// Complete tool calls take precedence over the stop reason: running them makes progress, and some
/// servers send `end_turn` with a call. Text without a call is an answer only if the stop reason
/// says that the model finished, in one of `end_words`.
pub fn classify_reply(answer: &ModelReply, end_words: EndWords) -> ReplyKind {
    let kind = StopKind::classify(&answer.stop_reason);
    let is_ended = answer.has_end && end_words == EndWords::OfAnyApi;
    let calls = answer.content.iter().any(|block| matches!(block, Block::ToolUse { .. }));
    let text_bytes = text_bytes(&answer.content);
    let cut = if text_bytes > 0 {
        CutKind::Text
    } else if answer.cut_tool_call {
        CutKind::ToolCall
    } else {
        CutKind::Thinking
    };
    let tokens = match answer.usage.output_tokens {
        // Some gateways report no counts; four bytes per token is close enough here.
        0 => u32::try_from(text_bytes.div_ceil(4)).unwrap_or(u32::MAX),
        counted => u32::try_from(counted).unwrap_or(u32::MAX),
    };
    match kind {
        StopKind::Refused => ReplyKind::Refusal,
        StopKind::Paused if !calls => ReplyKind::Paused,
        _any if calls => ReplyKind::ToolCalls { tokens },
        StopKind::OutputLimit | StopKind::ContextLimit => ReplyKind::CutShort(cut),
        _any if text_bytes == 0 && !answer.cut_tool_call => ReplyKind::Empty,
        StopKind::ForeignEnd if is_ended => ReplyKind::Answer { tokens },
        StopKind::Complete
        | StopKind::ForeignEnd
        | StopKind::ToolUse
        | StopKind::Paused
        | StopKind::Filtered
        | StopKind::BrokenOff
        | StopKind::Unknown => match kind.incomplete_reason() {
            Some(why) => ReplyKind::Incomplete(why),
            None => ReplyKind::Answer { tokens },
        },
    }
}

/// The number of text bytes, excluding surrounding white space and the invisible characters that
/// some gateways send in place of an empty text.
fn text_bytes(content: &[Block]) -> usize {
    let is_blank = |letter: char| {
        letter.is_whitespace()
            || matches!(letter, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}')
    };
    content.iter().filter_map(Block::as_text).map(|text| text.trim_matches(is_blank).len()).sum()
}

/// True if a block of this type is thinking.
pub(super) fn is_thinking(kind: &Value) -> bool {
    kind == "thinking" || kind == "redacted_thinking"
}
