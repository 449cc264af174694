//! Recognises a text that consists of a call of an offered tool, in any syntax: by the names of the
//! tools and the fields of their input, not by the markers of a vendor.

use serde_json::{Map, Value};

use super::message::ToolDefinition;

/// The maximum length of the markers before a call, and of the part between a name and its input,
/// in bytes.
const MARKER_MAX: usize = 120;

/// The maximum number of words before a name, and of words of markers after it.
const WORDS_MAX: usize = 6;

/// Fields of JSON objects around a call that do not describe the call.
const ENVELOPE: [&str; 6] = ["type", "id", "index", "call_id", "tool_call_id", "role"];

/// Fields for text beside a call.
const TEXTS: [&str; 4] = ["content", "text", "thought", "reasoning_content"];

/// Fields for the name of a tool, if its input is in a field beside it.
const NAMES: [&str; 6] = ["name", "tool", "tool_name", "action", "recipient_name", "function"];

/// Fields for the input of a call. Their value counts as an input even if its own fields are wrong.
const INPUTS: [&str; 8] =
    ["arguments", "parameters", "input", "args", "params", "kwargs", "tool_input", "action_input"];

/// The tool that is called by a text which consists of the call only.
pub(super) fn whole_call<'a>(text: &str, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    json_call(text, tools).or_else(|| written_call(text, tools))
}

/// The tool of calls in JSON, possibly between markers: `{"name": "Bash", "parameters": {...}}`,
/// `<tools>[...]</tools>`.
pub(super) fn json_call<'a>(text: &str, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    let head = &text[..text.floor_char_boundary(MARKER_MAX)];
    let mut places = head.match_indices(['{', '[']).filter(|(at, _)| is_marker(&text[..*at]));
    places.find_map(|(at, _)| calls_at(&text[at..], tools))
}

/// The input in a call of this tool in JSON: the field beside the name.
pub fn input_in_json<'a>(call: &'a Value, tool: &str) -> Option<&'a Value> {
    let has_name = NAMES.iter().any(|field| call[*field] == tool);
    INPUTS.iter().find_map(|field| call.get(*field)).filter(|_| has_name)
}

fn calls_at<'a>(text: &str, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut found = None;
    loop {
        let rest = text[values.byte_offset()..].trim();
        if found.is_some() && is_end_marker(rest) {
            return found;
        }
        let call = call_in_value(&values.next()?.ok()?, tools)?;
        found = found.or(Some(call));
    }
}

/// The tool of a call in a JSON value, possibly within objects and lists.
fn call_in_value<'a>(value: &Value, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    let object = match value {
        Value::Array(list) => {
            let calls: Option<Vec<_>> =
                list.iter().map(|value| call_in_value(value, tools)).collect();
            return calls?.first().copied();
        }
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    let is_part = |(key, value): &(&String, &Value)| {
        let is_text = value.is_string() && TEXTS.contains(&key.as_str());
        !is_text && !value.is_null() && !ENVELOPE.contains(&key.as_str())
    };
    let parts: Vec<(&String, &Value)> = object.iter().filter(is_part).collect();
    if let [(key, inner)] = parts.as_slice() {
        let of_key = offered(key, tools).filter(|tool| is_input_of(tool, "", inner));
        return of_key.map(|tool| tool.name.as_str()).or_else(|| call_in_value(inner, tools));
    }
    let names = parts.iter().filter(|(key, _)| NAMES.contains(&key.as_str()));
    names.into_iter().find_map(|(name_key, name)| {
        let tool = offered(name.as_str()?, tools)?;
        let mut others = parts.iter().filter(|(key, _)| key != name_key);
        let has_input =
            parts.len() == 2 && others.all(|(key, input)| is_input_of(tool, key, input));
        (has_input || is_flat_call(tool, object, name_key)).then_some(tool.name.as_str())
    })
}

/// True if an object has the name of a tool, and the fields of its input beside the name.
fn is_flat_call(tool: &ToolDefinition, object: &Map<String, Value>, name_key: &str) -> bool {
    let required = tool.input_schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let mut required = required.iter().filter_map(Value::as_str).peekable();
    let mut others = object.keys().filter(|key| *key != name_key);
    required.peek().is_some()
        && required.all(|field| field != name_key && object.contains_key(field))
        && others.all(|key| has_field(tool, key) || ENVELOPE.contains(&key.as_str()))
}

/// True if a JSON value, or a text with one, is an input of the tool: by the field that it is in,
/// or by its own fields.
fn is_input_of(tool: &ToolDefinition, key: &str, value: &Value) -> bool {
    let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(input) = parsed.as_ref().unwrap_or(value).as_object() else { return false };
    // A description of the tool has its schema in this place.
    let is_schema = input.contains_key("properties") && !has_field(tool, "properties");
    let has_its_fields = !input.is_empty() && input.keys().all(|field| has_field(tool, field));
    !is_schema && (INPUTS.contains(&key) || has_its_fields)
}

/// The tool with this name, which may have a namespace before it and a number after it:
/// `functions.Bash:0`.
fn offered<'a>(name: &str, tools: &'a [ToolDefinition]) -> Option<&'a ToolDefinition> {
    let name = name.trim();
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    let name = name.rsplit_once('.').map_or(name, |(_, name)| name);
    tools.iter().find(|tool| tool.name == name)
}

fn has_field(tool: &ToolDefinition, field: &str) -> bool {
    tool.input_schema["properties"].get(field).is_some()
}

/// The tool of a call that is not a JSON object: its name, possibly after markers, followed by an
/// input that begins with one of its fields, such as `<Bash><command>ls</command></Bash>`,
/// `Bash(command="ls")` and `>>>Bash\n{"command": "ls"}`.
pub(super) fn written_call<'a>(text: &str, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    if !text.ends_with(['}', ')', ']', '>', '`']) {
        return None;
    }
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let head = &text[..text.floor_char_boundary(MARKER_MAX)];
    let calls = |tool: &&ToolDefinition| {
        head.match_indices(tool.name.as_str()).any(|(at, name)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
            is_whole && is_marker(before) && begins_input(after, tool)
        })
    };
    tools.iter().find(calls).map(|tool| tool.name.as_str())
}

/// True if the text after a tool's name is the beginning of its input: brackets and markers, then
/// one of its fields, then a value.
fn begins_input(after: &str, tool: &ToolDefinition) -> bool {
    let after = &after[..after.floor_char_boundary(MARKER_MAX)];
    let is_sign = |letter: char| {
        letter.is_whitespace() || "<>|=\"'{([]:/_,`-\u{ff5c}\u{2581}".contains(letter)
    };
    let mut rest = after;
    for _ in 0..WORDS_MAX {
        rest = rest.trim_start_matches(is_sign);
        let before = &after[..after.len() - rest.len()];
        let length = rest.find(|one: char| !(one.is_ascii_alphanumeric() || one == '_'));
        let (word, next) = rest.split_at(length.unwrap_or(rest.len()));
        let bracket = before.rfind(['<', '{', '(', '[']).map(|at| before.as_bytes()[at]);
        if bracket.is_some() && has_field(tool, word) {
            let value = next.trim_start_matches(['"', '\'']).trim_start();
            // A signature has types: `Bash(command: string)`.
            let signs: &[char] = if bracket == Some(b'(') { &['='] } else { &[':', '=', '>', '<'] };
            return value.starts_with(signs);
        }
        let is_in_tag = before.rfind(['<', '[']) > before.rfind(['>', ']']);
        let is_of_marker = is_in_tag || before.ends_with(['`', ':']);
        if word.is_empty() || !(is_of_marker || ["json", "code"].contains(&word)) {
            return false;
        }
        rest = next;
    }
    false
}

/// True if the text before a call is a marker and not prose: tags, or a few words without a blank
/// between them and the call.
fn is_marker(before: &str) -> bool {
    let last = before.rfind(['>', ']']).map_or(before, |at| &before[at + 1..]);
    let first = before.find(['<', '[', '>', '|']).map_or(before, |at| &before[..at]);
    let is_open = before.starts_with(['<', '[', '{', '|']) && last.len() == before.len();
    let is_short = before.split_whitespace().count() <= WORDS_MAX;
    let is_prose =
        |part: &str| part.ends_with(char::is_whitespace) && !part.trim_start().is_empty();
    let is_quoted = before.contains(['"', '\'', '`', '\u{201c}', '\u{2018}', '\u{ab}']);
    // A quoted line.
    let is_citation = before.starts_with("> ") || before.contains("\n>");
    is_short && !is_quoted && !is_citation && !is_prose(first) && (is_open || !is_prose(last))
}

/// True if the text after a call is empty or a marker.
fn is_end_marker(after: &str) -> bool {
    let is_tag = (after.starts_with('<') && after.ends_with('>'))
        || (after.starts_with('[') && after.ends_with(']'));
    after.is_empty() || (is_tag && after.len() <= MARKER_MAX && !after.contains('\n'))
}
