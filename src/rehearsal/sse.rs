//! Builds a model's reply in the service's format: as one message, or as events.

use serde_json::{Value, json};

use super::scenario::{ReplyForm, ScriptedReply};

/// A reply with defaults filled in.
#[derive(Debug)]
pub(super) struct ResolvedReply {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) content: Vec<ResolvedBlock>,
    pub(super) stop_reason: String,
    pub(super) tokens: Tokens,
    /// The requested speed, if any.
    speed: Option<String>,
}

/// A content block of a reply.
#[derive(Debug)]
pub(super) enum ResolvedBlock {
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
    /// A suffix that makes the reply's ids unique.
    pub(super) id_suffix: &'a str,
    pub(super) model: &'a str,
    pub(super) cwd: &'a str,
    pub(super) request_tokens: Tokens,
    pub(super) signing_key: SigningKey,
    pub(super) speed: Option<&'a str>,
}

/// Bytes of output per token.
const BYTES_PER_TOKEN: u64 = 4;

impl ResolvedReply {
    /// Fills in the defaults of a reply.
    pub(super) fn new(reply: &ScriptedReply, context: &ReplyContext<'_>) -> Self {
        let mut blocks = Vec::new();
        if let Some(text) = &reply.thinking {
            let signature = sign_thinking(context.model, text, context.signing_key);
            blocks.push(ResolvedBlock::Thinking { text: text.clone(), signature });
        }
        if let Some(text) = &reply.text {
            blocks.push(ResolvedBlock::Text(expand_cwd(text, context.cwd)));
        }
        for (number, tool) in reply.tools.iter().enumerate() {
            let mut input = if tool.input.is_null() { json!({}) } else { tool.input.clone() };
            expand_cwd_in(&mut input, context.cwd);
            blocks.push(ResolvedBlock::Tool {
                id: tool
                    .id
                    .clone()
                    .unwrap_or_else(|| format!("toolu_{}_{number}", context.id_suffix)),
                name: tool.name.clone(),
                input,
                cut: tool.cut,
            });
        }
        let usual_reason = if reply.tools.is_empty() { "end_turn" } else { "tool_use" };
        let scripted = &reply.usage;
        let bytes: usize = blocks.iter().map(ResolvedBlock::bytes).sum();
        let estimate = (bytes as u64).div_ceil(BYTES_PER_TOKEN).max(1);
        let output = scripted.output_tokens.unwrap_or(estimate);
        Self {
            id: format!("msg_{}", context.id_suffix),
            model: context.model.to_owned(),
            stop_reason: reply.stop_reason.clone().unwrap_or_else(|| usual_reason.to_owned()),
            tokens: Tokens {
                input: scripted.input_tokens.unwrap_or(context.request_tokens.input),
                output: output.min(context.request_tokens.output),
                cache_creation: scripted
                    .cache_creation_input_tokens
                    .unwrap_or(context.request_tokens.cache_creation),
                cache_read: scripted
                    .cache_read_input_tokens
                    .unwrap_or(context.request_tokens.cache_read),
            },
            content: blocks,
            speed: context.speed.map(str::to_owned),
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
        let content: Vec<Value> = self.content.iter().map(ResolvedBlock::whole).collect();
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

impl ResolvedBlock {
    fn bytes(&self) -> usize {
        match self {
            Self::Thinking { text, .. } | Self::Text(text) => text.len(),
            Self::Tool { name, input, .. } => name.len() + input.to_string().len(),
        }
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
    let is_llama = form == ReplyForm::LlamaCpp;
    let mut message = resolved.message();
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"] = resolved.usage(u64::from(!is_llama));
    let mut events = vec![event("message_start", &json!({ "message": message }))];
    let mut stops = Vec::new();
    for (index, block) in resolved.content.iter().enumerate() {
        let opening = json!({ "index": index, "content_block": block.opening(form) });
        events.push(event("content_block_start", &opening));
        if index == 0 && !is_llama {
            events.push(ping());
        }
        for delta in block.deltas() {
            let delta = json!({ "index": index, "delta": delta });
            events.push(event("content_block_delta", &delta));
        }
        let stop = event("content_block_stop", &json!({ "index": index }));
        if is_llama { stops.push(stop) } else { events.push(stop) }
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
    let of_text = crc32c::crc32c(thinking.as_bytes());
    let of_all = crc32c::crc32c_append(of_text, model.as_bytes());
    let prefix = match signing_key {
        SigningKey::First => "rehearsed",
        SigningKey::Second => "rehearsed-anew",
    };
    format!("{prefix}{of_text:08x}{of_all:08x}")
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
