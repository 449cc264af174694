//! Parts of the JSON Schemas of settings: those that several kinds share, and long ones.

use clap::builder::PossibleValue;
use serde_json::{Value, json};

/// Returns the schema of a whole number from `least` to `most`.
pub(super) fn whole(least: u32, most: u32) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

/// Returns the schema of a list of these items.
pub(super) fn list(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// Returns a schema that also allows `null`.
pub(super) fn nullable(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(Value::Array(types)) => types.push("null".into()),
        Some(one) => *one = json!([one, "null"]),
        None => return json!({ "anyOf": [schema, { "type": "null" }] }),
    }
    schema
}

/// Returns the schema of a list of texts, or of its only one.
pub(super) fn texts_or_one() -> Value {
    json!({ "type": ["string", "array"], "items": { "type": "string" } })
}

/// Returns the schema of the names and aliases of these choices. `true` also stands for the only
/// name.
pub(super) fn names(choices: &[PossibleValue]) -> Value {
    let mut named = Vec::new();
    for choice in choices {
        for name in choice.get_name_and_aliases() {
            let mut schema = json!({ "const": name });
            if let Some(help) = choice.get_help() {
                schema["description"] = help.to_string().into();
            }
            named.push(schema);
        }
    }
    named.extend((choices.len() == 1).then(|| json!({ "const": true })));
    json!({ "oneOf": named })
}

/// Returns the schema of MCP servers, by name.
pub(super) fn servers() -> Value {
    let scalar = json!({ "type": ["string", "number", "boolean"] });
    let texts = json!({ "type": "object", "additionalProperties": scalar });
    let server = json!({
        "type": "object",
        "properties": {
            "type": { "enum": ["stdio", "http", "streamable-http", "streamableHttp", "sse"] },
            "command": { "type": "string" },
            "args": { "type": "array", "items": scalar },
            "cwd": { "type": "string" },
            "env": texts,
            "url": { "type": "string" },
            "headers": texts,
            "headersHelper": { "type": "string" },
            "timeout": { "type": "integer", "minimum": 1, "description": "In milliseconds." },
            "tools": {
                "type": "array",
                "description": "Objects with the name of a tool and its permission_policy.",
            },
            "disabled": { "type": "boolean" },
            "enabled": { "type": "boolean" },
        },
    });
    json!({ "type": "object", "additionalProperties": server })
}
