//! Which schemas of tools can be passed on: one that the service refuses would have every request
//! refused. Pure.

use serde_json::{Map, Value};

use super::refs;

/// The largest schema that is passed on, in bytes.
const LARGEST: usize = 64 << 10;

/// The deepest, in levels of JSON.
const DEEPEST: usize = 64;

/// The longest name of a property that the service takes.
const LONGEST_PROPERTY: usize = 64;

/// Larger bounds than this are taken out. Servers that make a grammar of a schema give up on them,
/// and with them on the request; and the tool's own server looks after its bounds itself.
const LARGEST_BOUND: u64 = 1_000;

const BOUNDS: [&str; 6] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

/// What is no schema but a value, whatever it looks like.
const VALUES: [&str; 5] = ["const", "enum", "default", "example", "examples"];

/// Makes a schema fit to be passed on.
///
/// # Errors
/// Why it cannot be.
pub(super) fn prepare_schema(schema: &Value) -> Result<Value, &'static str> {
    let Some(members) = schema.as_object() else { return Err("its input schema is no object") };
    if remaining_depth(schema, DEEPEST) == 0 {
        return Err("its input schema is nested too deeply");
    }
    if schema.to_string().len() > LARGEST {
        return Err("its input schema is too large");
    }
    // The service refuses a request over these at the top of a schema.
    if ["oneOf", "anyOf", "allOf"].iter().any(|key| members.contains_key(*key)) {
        return Err("its input schema has oneOf, anyOf or allOf at the top");
    }
    // Servers forget it where a tool takes nothing, and there is only one that it can be.
    if members.get("type").is_some_and(|kind| kind != "object") {
        return Err("its input schema is not of the type \"object\"");
    }
    match members.get("properties") {
        None => {}
        Some(Value::Object(properties)) => check_names(properties)?,
        Some(_) => return Err("the properties of its input schema are no object"),
    }
    let mut schema = schema.clone();
    remove_large_bounds(&mut schema);
    if let Some(members) = schema.as_object_mut() {
        // Which draft it was written for is of no interest: it is read as the newest.
        members.remove("$schema");
        members.entry("type").or_insert_with(|| Value::from("object"));
    }
    if !jsonschema::draft202012::meta::is_valid(&schema) {
        return Err("its input schema is no JSON schema of the draft 2020-12");
    }
    refs::check(&schema, &|name| VALUES.contains(&name))?;
    Ok(schema)
}

fn check_names(properties: &Map<String, Value>) -> Result<(), &'static str> {
    let fits = |name: &String| {
        (1..=LONGEST_PROPERTY).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    if properties.keys().all(fits) {
        Ok(())
    } else {
        Err("a property of its input schema has a name that the service refuses")
    }
}

/// How many levels are left below `value`, of so many; 0 if they do not suffice.
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
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_service_would_refuse_is_not_passed_on() {
        let with = |properties: Value| json!({ "type": "object", "properties": properties });
        let nested = (0..100).fold(json!({}), |inner, _| json!({ "items": inner }));
        for bad in [
            json!([]),
            json!({ "type": "string" }),
            json!({ "type": "object", "anyOf": [] }),
            with(json!([])),
            with(json!({ "a b": {} })),
            with(json!({ "x".repeat(65): {} })),
            with(json!({ "a": { "type": "strin" } })),
            with(json!({ "a": { "type": "array", "items": [{ "type": "string" }] } })),
            with(json!({ "a": { "required": "b" } })),
            with(json!({ "a": { "description": "x".repeat(LARGEST) } })),
            with(json!({ "a": nested })),
            with(json!({ "a": { "$ref": "#/properties/a" } })),
            with(json!({ "a": { "$ref": "other.json" } })),
        ] {
            assert!(prepare_schema(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn large_bounds_are_taken_out_and_properties_of_the_same_name_stay() {
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
        assert_eq!(prepare_schema(&json!({})), Ok(json!({ "type": "object" })), "it takes nothing");
    }
}
