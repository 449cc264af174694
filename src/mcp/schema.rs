//! Validates and simplifies tool schemas: with one schema that the API rejects, it would reject
//! every request. Pure.

use serde_json::{Map, Value, json};

use super::schema_drafts;
use crate::json::{self, VALUES, check_references};

/// The largest schema that is passed on, in bytes.
const LARGEST: usize = 64 << 10;

/// The deepest nesting, in JSON levels.
const DEEPEST: usize = 64;

/// The longest property name that the API accepts.
const LONGEST_PROPERTY: usize = 64;

/// The most references that are removed from a schema.
const REMOVED_MAX: usize = 100;

/// Larger bounds are removed: inference servers that compile schemas to grammars fail on them. The
/// tool's own server enforces its bounds itself.
const LARGEST_BOUND: u64 = 1_000;

const BOUNDS: [&str; 6] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

/// Makes a schema acceptable to the API. A tool without one takes no input.
pub(super) fn prepare_schema(schema: &Value) -> Result<Value, &'static str> {
    let mut schema = match schema {
        Value::Null => json!({}),
        // Some servers write it as the text of its JSON.
        Value::String(text) => json::read_str(text).unwrap_or_default(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => schema.clone(),
    };
    if !schema.is_object() {
        return Err("its input schema is not an object");
    }
    if remaining_depth(&schema, DEEPEST) == 0 {
        return Err("its input schema is nested too deeply");
    }
    check_size(&schema)?;
    schema_drafts::convert(&mut schema);
    remove_large_bounds(&mut schema);
    if let Some(members) = schema.as_object_mut() {
        // The declared draft does not matter: the schema is validated against the newest.
        members.remove("$schema");
        // Servers omit the type for tools without arguments; it can only be this one.
        let kind = members.entry("type").or_insert_with(|| Value::from("object"));
        if kind != "object" {
            return Err("its input schema is not of the type \"object\"");
        }
    }
    match &schema["properties"] {
        Value::Null => {}
        Value::Object(properties) => check_names(properties)?,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("the \"properties\" of its input schema are not an object");
        }
    }
    // Merged schemas may have become larger.
    check_size(&schema)?;
    if !jsonschema::draft202012::meta::is_valid(&schema) {
        return Err("its input schema is not valid JSON Schema (draft 2020-12)");
    }
    remove_bad_references(&mut schema)?;
    Ok(schema)
}

/// Removes references that lead nowhere, or back to themselves: the API rejects them, and without
/// them the schema allows any value there. The tool's own server checks what it gets.
fn remove_bad_references(schema: &mut Value) -> Result<(), &'static str> {
    for _ in 0..REMOVED_MAX {
        let Err(bad) = check_references(schema) else { return Ok(()) };
        let (place, keyword) = bad.pointer.rsplit_once('/').unwrap_or_default();
        let members = schema.pointer_mut(place).and_then(Value::as_object_mut);
        members.and_then(|members| members.remove(keyword));
    }
    Err("many references in its input schema lead nowhere in it")
}

fn check_size(schema: &Value) -> Result<(), &'static str> {
    let is_small = schema.to_string().len() <= LARGEST;
    if is_small { Ok(()) } else { Err("its input schema is too large") }
}

fn check_names(properties: &Map<String, Value>) -> Result<(), &'static str> {
    let fits = |name: &String| {
        (1..=LONGEST_PROPERTY).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    if properties.keys().all(fits) {
        Ok(())
    } else {
        Err("a property of its input schema has a name that the API rejects")
    }
}

/// Returns the nesting levels left below `value`; 0 if there are too many.
fn remaining_depth(value: &Value, left: usize) -> usize {
    if left == 0 {
        return 0;
    }
    let below = |value: &Value| remaining_depth(value, left - 1);
    match value {
        Value::Array(items) => items.iter().map(below).min().unwrap_or(left),
        Value::Object(members) => members.values().map(below).min().unwrap_or(left),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => left,
    }
}

fn remove_large_bounds(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|name, value| {
                let bound = value.as_u64().filter(|_| BOUNDS.contains(&name.as_str()));
                bound.is_none_or(|bound| bound <= LARGEST_BOUND)
            });
            members
                .iter_mut()
                .filter(|(name, _)| !VALUES.contains(&name.as_str()))
                .for_each(|(_, value)| remove_large_bounds(value));
        }
        Value::Array(items) => items.iter_mut().for_each(remove_large_bounds),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_schema_that_the_api_would_reject_is_left_out() {
        let with = |properties: Value| json!({ "type": "object", "properties": properties });
        let nested = (0..100).fold(json!({}), |inner, _| json!({ "items": inner }));
        for bad in [
            json!([]),
            json!({ "type": "string" }),
            json!({ "type": "object", "anyOf": {} }),
            with(json!([1])),
            with(json!({ "a b": {} })),
            with(json!({ "x".repeat(65): {} })),
            with(json!({ "a": { "type": "strin" } })),
            with(json!({ "a": { "type": "array", "items": ["string"] } })),
            with(json!({ "a": { "required": ["b", 1] } })),
            with(json!({ "a": { "description": "x".repeat(LARGEST) } })),
            with(json!({ "a": nested })),
            with((0..101).map(|at| (format!("a{at}"), json!({ "$ref": "#/x" }))).collect()),
        ] {
            assert!(prepare_schema(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn references_that_lead_nowhere_are_removed() {
        for target in ["#/properties/a", "other.json", "#/$defs/missing"] {
            let schema = |rest: Value| json!({ "type": "object", "properties": { "a": rest } });
            let bad = schema(json!({ "$ref": target, "description": "d" }));
            assert_eq!(prepare_schema(&bad), Ok(schema(json!({ "description": "d" }))), "{target}");
        }
        let good = json!({
            "type": "object",
            "properties": { "a": { "$ref": "#/$defs/b" } },
            "$defs": { "b": { "type": "string" } },
        });
        assert_eq!(prepare_schema(&good), Ok(good));
    }

    #[test]
    fn large_schema_bounds_are_removed_but_properties_of_the_same_name_stay() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "maxLength": { "type": "string", "minLength": 3_000, "maxLength": 900 },
                "list": { "items": { "maxItems": 5_000 }, "default": { "maxItems": 5_000 } },
            },
        });
        let wanted = json!({
            "type": "object",
            "properties": {
                "maxLength": { "type": "string", "maxLength": 900 },
                "list": { "items": {}, "default": { "maxItems": 5_000 } },
            },
        });
        assert_eq!(prepare_schema(&schema), Ok(wanted));
        for none in [json!({}), Value::Null] {
            assert_eq!(prepare_schema(&none), Ok(json!({ "type": "object" })), "it takes nothing");
        }
    }
}
