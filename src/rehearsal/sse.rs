//! Builds a model's reply in the service's format: as one message, or as events.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::scenario::{ReplyForm, ScriptedReply};

/// A reply with defaults filled in.
#[derive(Debug)]
pub(super) struct ResolvedReply {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) content: Vec<Speech>,
    pub(super) stop_reason: String,
    pub(super) tokens: Tokens,
    /// The requested speed, if any.
    speed: Option<String>,
}

#[derive(Debug)]
pub(super) enum Speech {
    Thinking { text: String, signature: String },
    Text(String),
    Tool { id: String, name: String, input: Value, cut: Option<usize> },
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_creation: u64,
    pub(super) cache_read: u64,
}

impl Tokens {
    fn report(self, output: u64) -> Value {
        json!({
            "input_tokens": self.input,
            "cache_creation_input_tokens": self.cache_creation,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": output,
        })
    }
}

/// The context of a reply besides its step.
pub(super) struct ReplyContext<'a> {
    /// A prefix that makes the reply's ids unique.
    pub(super) names: &'a str,
    pub(super) model: &'a str,
    pub(super) cwd: &'a str,
    /// Token counts of the request.
    pub(super) asked: Tokens,
    pub(super) signing_key: SigningKey,
    pub(super) speed: Option<&'a str>,
}

/// Bytes of output per token.
const BYTES_PER_TOKEN: u64 = 4;

impl ResolvedReply {
    /// Fills in the defaults of a reply.
    pub(super) fn new(reply: &ScriptedReply, given: &ReplyContext<'_>) -> Self {
        let mut content = Vec::new();
        if let Some(text) = &reply.thinking {
            let signature = sign_thinking(given.model, text, given.signing_key);
            content.push(Speech::Thinking { text: text.clone(), signature });
        }
        if let Some(text) = &reply.text {
            content.push(Speech::Text(expand_cwd(text, given.cwd)));
        }
        for (number, tool) in reply.tools.iter().enumerate() {
            let mut input = if tool.input.is_null() { json!({}) } else { tool.input.clone() };
            expand_cwd_in(&mut input, given.cwd);
            content.push(Speech::Tool {
                id: tool.id.clone().unwrap_or_else(|| format!("toolu_{}_{number}", given.names)),
                name: tool.name.clone(),
                input,
                cut: tool.cut,
            });
        }
        let usual_reason = if reply.tools.is_empty() { "end_turn" } else { "tool_use" };
        let scripted = &reply.usage;
        let output = scripted.output_tokens.unwrap_or_else(|| {
            content.iter().map(Speech::len).sum::<u64>().div_ceil(BYTES_PER_TOKEN).max(1)
        });
        Self {
            id: format!("msg_{}", given.names),
            model: given.model.to_owned(),
            stop_reason: reply.stop_reason.clone().unwrap_or_else(|| usual_reason.to_owned()),
            tokens: Tokens {
                input: scripted.input_tokens.unwrap_or(given.asked.input),
                output: output.min(given.asked.output),
                cache_creation: scripted
                    .cache_creation_input_tokens
                    .unwrap_or(given.asked.cache_creation),
                cache_read: scripted.cache_read_input_tokens.unwrap_or(given.asked.cache_read),
            },
            content,
            speed: given.speed.map(str::to_owned),
        }
    }

    /// The usage report after `output` tokens.
    fn usage(&self, output: u64) -> Value {
        let mut usage = self.tokens.report(output);
        if let Some(speed) = &self.speed {
            usage["speed"] = json!(speed);
        }
        usage
    }

    /// The whole reply as one message.
    pub(super) fn message(&self) -> Value {
        let content: Vec<Value> = self.content.iter().map(Speech::whole).collect();
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": self.stop_reason,
            "stop_sequence": null,
            "usage": self.usage(self.tokens.output),
        })
    }
}

impl Speech {
    fn len(&self) -> u64 {
        let bytes = match self {
            Self::Thinking { text, .. } | Self::Text(text) => text.len(),
            Self::Tool { name, input, .. } => name.len() + input.to_string().len(),
        };
        bytes as u64
    }

    /// The complete block. A truncated input is dropped, as by the real service.
    fn whole(&self) -> Value {
        match self {
            Self::Thinking { text, signature } => {
                json!({ "type": "thinking", "thinking": text, "signature": signature })
            }
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Tool { id, name, input, cut } => {
                let input = if cut.is_some() { json!({}) } else { input.clone() };
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }
        }
    }

    /// The block in its start event.
    fn opening(&self, form: ReplyForm) -> Value {
        match self {
            Self::Thinking { .. } => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Self::Text(_) => json!({ "type": "text", "text": "" }),
            Self::Tool { id, name, .. } if form == ReplyForm::LlamaCpp => {
                json!({ "type": "tool_use", "id": id, "name": name })
            }
            Self::Tool { id, name, .. } => {
                json!({ "type": "tool_use", "id": id, "name": name, "input": {} })
            }
        }
    }

    fn deltas(&self) -> Vec<Value> {
        match self {
            Self::Thinking { text, signature } => slices(text)
                .map(|part| json!({ "type": "thinking_delta", "thinking": part }))
                .chain([json!({ "type": "signature_delta", "signature": signature })])
                .collect(),
            Self::Text(text) => {
                slices(text).map(|part| json!({ "type": "text_delta", "text": part })).collect()
            }
            Self::Tool { input, cut, .. } => {
                let json = input.to_string();
                let end = cut.map_or(json.len(), |cut| json.floor_char_boundary(cut));
                [""].into_iter()
                    .chain(slices(&json[..end]))
                    .map(|part| json!({ "type": "input_json_delta", "partial_json": part }))
                    .collect()
            }
        }
    }
}

/// The reply as a stream, one entry per event.
pub(super) fn events(resolved: &ResolvedReply, form: ReplyForm) -> Vec<Vec<u8>> {
    let llama = form == ReplyForm::LlamaCpp;
    let mut message = resolved.message();
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"] = resolved.usage(u64::from(!llama));
    let mut events = vec![event("message_start", &json!({ "message": message }))];
    let mut stops = Vec::new();
    for (index, speech) in resolved.content.iter().enumerate() {
        let opening = json!({ "index": index, "content_block": speech.opening(form) });
        events.push(event("content_block_start", &opening));
        if index == 0 && !llama {
            events.push(ping());
        }
        for delta in speech.deltas() {
            let delta = json!({ "index": index, "delta": delta });
            events.push(event("content_block_delta", &delta));
        }
        let stop = event("content_block_stop", &json!({ "index": index }));
        if llama { stops.push(stop) } else { events.push(stop) }
    }
    events.append(&mut stops);
    let end = json!({
        "delta": { "stop_reason": resolved.stop_reason, "stop_sequence": null },
        "usage": { "output_tokens": resolved.tokens.output },
    });
    events.push(event("message_delta", &end));
    events.push(event("message_stop", &json!({})));
    events
}

pub(super) fn ping() -> Vec<u8> {
    event("ping", &json!({}))
}

/// One event. Its data repeats the event's name as its type, like the service's.
pub(super) fn event(name: &str, data: &Value) -> Vec<u8> {
    let mut whole = json!({ "type": name });
    if let (Some(whole), Some(data)) = (whole.as_object_mut(), data.as_object()) {
        whole.extend(data.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    format!("event: {name}\ndata: {whole}\n\n").into_bytes()
}

/// The signing key of a server, which may change once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SigningKey {
    First,
    Second,
}

/// Signs a thinking block: a client that sends it back must keep its text and its model unchanged.
/// The signature is valid for all servers, since a session may be resumed.
pub(super) fn sign_thinking(model: &str, thinking: &str, signing_key: SigningKey) -> String {
    let words = crc32c::crc32c(thinking.as_bytes());
    let whole = crc32c::crc32c_append(words, model.as_bytes());
    let mut seal = String::from(match signing_key {
        SigningKey::First => "rehearsed",
        SigningKey::Second => "rehearsed-anew",
    });
    let _ = write!(seal, "{words:08x}{whole:08x}");
    seal
}

/// Approximate length of a delta, in bytes.
const SLICE: usize = 32;

fn slices(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (slice, after) = rest.split_at(rest.ceil_char_boundary(SLICE));
        rest = after;
        Some(slice)
    })
}

fn expand_cwd(text: &str, cwd: &str) -> String {
    text.replace("${cwd}", cwd)
}

fn expand_cwd_in(value: &mut Value, cwd: &str) {
    match value {
        Value::String(text) if text.contains("${cwd}") => *text = expand_cwd(text, cwd),
        Value::Array(items) => items.iter_mut().for_each(|item| expand_cwd_in(item, cwd)),
        Value::Object(fields) => fields.values_mut().for_each(|field| expand_cwd_in(field, cwd)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
