//! What is left of settings when they are shown: nothing that may be secret.

use std::ffi::OsStr;

use serde_json::{Map, Value};

use crate::cli::environment::{VARIABLES, Variables};
use crate::model::BaseUrl;

const NOT_SHOWN: &str = "(not shown)";

/// A value without what may be secret: of variables, only our own plain ones are shown.
pub(super) fn veiled(name: &str, value: Value, all: &Variables) -> Value {
    if let Some(variable) = name.strip_prefix("env.") {
        let plain = VARIABLES.iter().any(|(known, _)| *known == variable);
        let secret = ["KEY", "TOKEN", "HEADER", "PROXY", "URL", "ENDPOINT"];
        let secret = secret.iter().any(|word| variable.contains(word));
        let known = all.contains_key(OsStr::new(variable));
        return if plain && !secret && known { value } else { NOT_SHOWN.into() };
    }
    match (name, value) {
        ("apiKeyHelper", value) if !value.is_null() => "(a command, not shown)".into(),
        ("hooks", Value::Object(events)) => events.into_iter().map(|(event, _)| event).collect(),
        // Those are veiled where they are read.
        (name, value) if name.starts_with("mcpServers.") => value,
        (_, value) => without_headers(value),
    }
}

/// An address without what may be secret in it.
fn address(text: &str) -> Value {
    BaseUrl::parse(text).map_or_else(|_| NOT_SHOWN.into(), |address| address.base().into())
}

fn without_headers(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_headers).collect(),
        Value::Object(members) => {
            let veil = |(key, value): (String, Value)| match key.as_str() {
                "headers" => (key, NOT_SHOWN.into()),
                _ => (key, without_headers(value)),
            };
            Value::Object(members.into_iter().map(veil).collect::<Map<_, _>>())
        }
        Value::String(text) if text.starts_with("http") => address(&text),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

/// Of a server only what it is, and not what it is told.
pub(super) fn server(entry: &Value, disabled: bool) -> Value {
    let part = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "type" | "command" | "timeout" => value.clone(),
            "url" => origin(value.as_str().unwrap_or_default()),
            _ => NOT_SHOWN.into(),
        };
        (key.clone(), value)
    };
    let members = entry.as_object();
    let mut shown: Map<String, Value> = members.into_iter().flatten().map(part).collect();
    shown.remove("disabled");
    if disabled {
        shown.insert("disabled".to_owned(), true.into());
    }
    shown.into()
}

/// Whose an address is. Its path may be a secret.
fn origin(text: &str) -> Value {
    BaseUrl::parse(text).map_or_else(|_| NOT_SHOWN.into(), |address| address.origin().into())
}
