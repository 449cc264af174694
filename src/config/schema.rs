//! The JSON Schema of a settings file, so that editors complete and check it.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::registry;
use super::setting::Setting;
use crate::hooks::HookEvent;

/// Returns the schema. Keys of other tools are allowed, since a file may be shared with them.
pub fn schema() -> Value {
    let mut generator =
        SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true).into_generator();
    let mut root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of outlast",
        "type": "object",
        "properties": { "$schema": { "type": "string" } },
    });
    for setting in registry::settings() {
        let mut schema = match setting.key {
            "hooks" => hooks(),
            "mcpServers" => servers(),
            _ => setting.schema(&mut generator),
        };
        describe(&mut schema, setting);
        let mut outer = &mut root;
        let path = setting.path();
        let (name, groups) = path.split_last().expect("a key is not empty");
        for group in groups {
            outer = &mut outer["properties"][group];
            if outer.is_null() {
                *outer = json!({ "type": "object", "properties": {} });
            }
        }
        outer["properties"][name] = schema;
    }
    root
}

/// Adds what the registry knows of a setting, and `null` where that means that it is not set.
fn describe(schema: &mut Value, setting: &Setting) {
    let Some(members) = schema.as_object_mut() else { return };
    let mut described = Map::new();
    described.insert("description".to_owned(), setting.meaning.as_str().into());
    if !setting.default.is_null() {
        described.insert("default".to_owned(), setting.default.clone());
    }
    let has_null = members.get("type").is_some_and(|kind| kind.to_string().contains("null"));
    let inner = Value::Object(std::mem::take(members));
    let is_done = has_null || !setting.is_nullable();
    let choices = if is_done { vec![inner] } else { vec![inner, json!({ "type": "null" })] };
    match &choices[..] {
        [Value::Object(only)] => described.extend(only.clone()),
        _ => drop(described.insert("anyOf".to_owned(), choices.into())),
    }
    *members = described;
}

/// The schema of hooks, by event.
fn hooks() -> Value {
    let hook = json!({
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": { "type": "string" },
            "command": { "type": "string" },
            "args": { "type": "array", "items": { "type": "string" } },
            "timeout": { "type": "number", "exclusiveMinimum": 0, "description": "In seconds." },
            "if": { "type": "string", "description": "A permission rule." },
            "failClosed": { "type": "boolean" },
            "async": { "type": "boolean" },
        },
    });
    let group = json!({
        "type": "object",
        "required": ["hooks"],
        "properties": {
            "matcher": { "type": "string" },
            "hooks": { "type": "array", "items": hook },
        },
    });
    let groups = json!({ "type": "array", "items": group });
    let events = HookEvent::ALL.into_iter().map(|event| (event.name().to_owned(), groups.clone()));
    json!({ "type": "object", "properties": events.collect::<Map<_, _>>() })
}

/// The schema of MCP servers, by name.
fn servers() -> Value {
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let server = json!({
        "type": "object",
        "properties": {
            "type": { "enum": ["stdio", "http", "streamable-http", "streamableHttp"] },
            "command": { "type": "string" },
            "args": { "type": "array", "items": { "type": "string" } },
            "env": texts,
            "url": { "type": "string" },
            "headers": texts,
            "timeout": { "type": "integer", "minimum": 1, "description": "In milliseconds." },
            "disabled": { "type": "boolean" },
        },
    });
    json!({ "type": "object", "additionalProperties": server })
}
