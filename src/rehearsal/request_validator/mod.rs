//! Validates requests like the real service. It works on the raw JSON and shares no code with the
//! client that it tests.

mod blocks;
mod count;
mod limits;
mod media;
mod pairing;
mod walk;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::connection::RecordedRequest;
use super::rules::Signatures;

pub(super) use count::count;
pub(super) use limits::exceeded_limit;
pub(super) use walk::strings;

/// Maximum size of a request body, in bytes.
pub(super) const BODY_MAX: usize = 32 * 1024 * 1024;
const BREAKPOINTS_MAX: usize = 4;
const THINKING_MIN: u64 = 1_024;

/// The role that the last message of a request may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastWord {
    #[default]
    User,
    /// Either role: a paused reply is sent back unchanged, again if the answer to that fails.
    AnyRole,
}

/// All violations of a request, in the order of the real service.
pub(super) fn validate(
    request: &RecordedRequest,
    body: &Value,
    last_word: LastWord,
    signatures: Signatures,
) -> Vec<String> {
    let mut faults = Vec::new();
    if request.body.len() > BODY_MAX {
        faults.push(format!("{} bytes exceed the request size limit", request.body.len()));
        return faults;
    }
    if request.header("anthropic-version").is_none() {
        faults.push("anthropic-version: header is required".to_owned());
    }
    if !request.header("content-type").unwrap_or_default().starts_with("application/json") {
        faults.push("content-type: must be application/json".to_owned());
    }
    let Some(fields) = body.as_object() else {
        faults.push("the request body is not a JSON object".to_owned());
        return faults;
    };
    envelope(fields, &mut faults);
    speed(fields, request, &mut faults);
    tools(fields, &mut faults);
    system(fields.get("system"), &mut faults);
    let breakpoints = count_breakpoints(body);
    if breakpoints > BREAKPOINTS_MAX {
        faults.push(format!(
            "a maximum of {BREAKPOINTS_MAX} blocks with cache_control may be provided; found \
             {breakpoints}"
        ));
    }
    let model = fields.get("model").and_then(Value::as_str).unwrap_or_default();
    let signer = Some(model).filter(|_| signatures == Signatures::Check);
    match fields.get("messages").and_then(Value::as_array) {
        None => faults.push("messages: Field required".to_owned()),
        Some(messages) => self::messages(messages, signer, last_word, &mut faults),
    }
    if uses_tools(body) && fields.get("tools").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        faults.push("requests with `tool_use` or `tool_result` must define tools".to_owned());
    }
    faults
}

/// True if a request has this credential, in either header.
pub(super) fn has_credential(request: &RecordedRequest, key: &str) -> bool {
    let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    request.header("x-api-key") == Some(key) || bearer == Some(key)
}

const KNOWN_FIELDS: &[&str] = &[
    "container",
    "context_management",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

fn envelope(fields: &Map<String, Value>, faults: &mut Vec<String>) {
    for name in fields.keys().filter(|name| !KNOWN_FIELDS.contains(&name.as_str())) {
        faults.push(format!("{name}: Extra inputs are not permitted"));
    }
    if fields.get("model").and_then(Value::as_str).is_none_or(str::is_empty) {
        faults.push("model: Field required".to_owned());
    }
    let max_tokens = fields.get("max_tokens").and_then(Value::as_u64);
    match fields.get("max_tokens") {
        None => faults.push("max_tokens: Field required".to_owned()),
        Some(_) if max_tokens.is_none_or(|tokens| tokens == 0) => {
            faults.push("max_tokens: must be an integer greater than 0".to_owned());
        }
        Some(_) => {}
    }
    if fields.get("stream").is_some_and(|stream| !stream.is_boolean()) {
        faults.push("stream: must be a boolean".to_owned());
    }
    let thinking = fields.get("thinking").filter(|thinking| thinking["type"] == "enabled");
    let Some(thinking) = thinking else { return };
    match thinking["budget_tokens"].as_u64() {
        None => faults.push("thinking.enabled.budget_tokens: Field required".to_owned()),
        Some(budget) if budget < THINKING_MIN => faults.push(format!(
            "thinking.enabled.budget_tokens: must be greater than or equal to {THINKING_MIN}"
        )),
        Some(budget) if max_tokens.is_some_and(|tokens| tokens <= budget) => {
            faults.push("max_tokens: must be greater than thinking.budget_tokens".to_owned());
        }
        Some(_) => {}
    }
}

/// Checks that fast mode is requested both in the body and in the beta header.
fn speed(fields: &Map<String, Value>, request: &RecordedRequest, faults: &mut Vec<String>) {
    let Some(speed) = fields.get("speed") else { return };
    let betas = request.header("anthropic-beta").unwrap_or_default();
    if !betas.split(',').any(|beta| beta.trim().starts_with("fast-mode-")) {
        faults.push("speed: Extra inputs are not permitted".to_owned());
    } else if speed != "fast" && speed != "standard" {
        faults.push("speed: Input should be 'standard' or 'fast'".to_owned());
    }
}

fn tools(fields: &Map<String, Value>, faults: &mut Vec<String>) {
    let Some(tools) = fields.get("tools") else { return };
    let Some(tools) = tools.as_array() else {
        faults.push("tools: must be an array".to_owned());
        return;
    };
    let mut names = BTreeSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let name = tool["name"].as_str().unwrap_or_default();
        if !is_name(name) {
            faults.push(format!("tools.{index}.name: `{name}` is not a tool name"));
        }
        if !names.insert(name) {
            faults.push(format!("tools: Tool names must be unique: `{name}` is there twice"));
        }
        // The service's own tools have a type and no schema.
        let is_of_client = tool.get("type").is_none_or(|kind| kind == "custom");
        if is_of_client && tool["input_schema"]["type"] != "object" {
            faults.push(format!("tools.{index}.input_schema.type: must be `object`"));
        }
    }
}

/// True if a service may have made the id, and accepts it again.
fn is_tool_use_id(id: &str) -> bool {
    (1..=16_384).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn system(system: Option<&Value>, faults: &mut Vec<String>) {
    match system {
        None | Some(Value::String(_)) => {}
        Some(Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                blocks::text(item, &format!("system.{index}"), faults);
            }
        }
        Some(_) => faults.push("system: must be a string or an array of text".to_owned()),
    }
}

fn messages(
    messages: &[Value],
    signer: Option<&str>,
    last_word: LastWord,
    faults: &mut Vec<String>,
) {
    if messages.is_empty() {
        faults.push("messages: at least one message is required".to_owned());
    }
    let mut before = "assistant";
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if !["user", "assistant"].contains(&role) {
            faults.push(format!("messages.{index}.role: unexpected role `{role}`"));
        } else if role == before {
            faults.push(if index == 0 {
                "messages: the first message must use the `user` role".to_owned()
            } else {
                format!("messages.{index}: roles must alternate, but `{role}` comes twice in a row")
            });
        }
        before = role;
        blocks::message(message, role, signer, &format!("messages.{index}"), faults);
    }
    let last = messages.last().filter(|_| last_word == LastWord::User);
    if let Some(last) = last.filter(|last| last["role"] == "assistant") {
        faults.push("messages: the conversation must end with a user message".to_owned());
        let blocks = last["content"].as_array().and_then(|blocks| blocks.last()?["text"].as_str());
        let text = last["content"].as_str().or(blocks);
        if text.is_some_and(|text| text.ends_with(char::is_whitespace)) {
            faults.push(
                "messages: final assistant content cannot end with trailing whitespace".to_owned(),
            );
        }
    }
    pairing::check_pairing(messages, faults);
}

fn count_breakpoints(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| match key.as_str() {
                "cache_control" => usize::from(!field.is_null()),
                // A tool's input belongs to the model, even if a field is called `cache_control`.
                "input" | "input_schema" => 0,
                _ => count_breakpoints(field),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_breakpoints).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn uses_tools(body: &Value) -> bool {
    let mut blocks = walk::list(&body["messages"]).iter().flat_map(|m| walk::list(&m["content"]));
    blocks.any(|block| block["type"] == "tool_use" || block["type"] == "tool_result")
}
