//! Redacts settings for display.

use std::ffi::OsStr;

use serde_json::{Map, Value};

use super::known_variables::variable_names;
use crate::model::BaseUrl;
use crate::secrets::Variables;

const NOT_SHOWN: &str = "(not shown)";

/// Redacts a value: of variables, only known harmless ones are shown.
pub fn redacted(name: &str, value: Value, all: &Variables) -> Value {
    if let Some(variable) = name.strip_prefix("env.") {
        let plain = variable_names().any(|known| known == variable);
        let secret = ["KEY", "TOKEN", "HEADER", "PROXY", "URL", "ENDPOINT"];
        let secret = secret.iter().any(|word| variable.contains(word));
        let known = all.contains_key(OsStr::new(variable));
        return if plain && !secret && known { value } else { NOT_SHOWN.into() };
    }
    match (name, value) {
        ("apiKeyHelper", value) if !value.is_null() => "(a command, not shown)".into(),
        ("hooks", Value::Object(events)) => events.into_iter().map(|(event, _)| event).collect(),
        // Servers are redacted where they are read.
        (name, value) if name.starts_with("mcpServers.") => value,
        (_, value) => without_headers(value),
    }
}

/// Redacts a URL.
fn redacted_url(text: &str) -> Value {
    BaseUrl::parse(text).map_or_else(|_| NOT_SHOWN.into(), |address| address.base().into())
}

fn without_headers(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_headers).collect(),
        Value::Object(members) => {
            let redact = |(key, value): (String, Value)| match key.as_str() {
                "headers" => (key, NOT_SHOWN.into()),
                _ => (key, without_headers(value)),
            };
            Value::Object(members.into_iter().map(redact).collect::<Map<_, _>>())
        }
        Value::String(text) if text.starts_with("http") => redacted_url(&text),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

/// Redacts a server entry: only type, program, folder and timeout are shown.
pub fn redacted_server(entry: &Value, disabled: bool) -> Value {
    let part = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "type" | "command" | "cwd" | "timeout" => value.clone(),
            "url" => url_origin(value.as_str().unwrap_or_default()),
            _ => NOT_SHOWN.into(),
        };
        (key.clone(), value)
    };
    let members = entry.as_object();
    let mut shown: Map<String, Value> = members.into_iter().flatten().map(part).collect();
    shown.remove("disabled");
    shown.remove("enabled");
    if disabled {
        shown.insert("disabled".to_owned(), true.into());
    }
    shown.into()
}

/// Returns the origin of a URL, since its path may be secret.
fn url_origin(text: &str) -> Value {
    BaseUrl::parse(text).map_or_else(|_| NOT_SHOWN.into(), |address| address.origin().into())
}
