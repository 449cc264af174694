//! Converts schemas of older drafts, and deviations of generators from the standard, to the form of
//! draft 2020-12 that the API accepts. Pure.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::json::{BY_NAME, VALUES};

/// Keywords with a subschema, or a list of them.
const DIRECT: [&str; 15] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords that combine schemas, which the API rejects at the top.
const COMBINATORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Keywords whose value may be `null`.
const NULLABLE: [&str; 3] = ["const", "default", "example"];

/// The most schemas that are merged at the top.
const MERGED_MAX: usize = 200;

pub(super) fn convert(schema: &mut Value) {
    convert_keywords(schema);
    resolve_names(schema);
    let merged = merge_branches(schema);
    let Value::Object(members) = schema else { return };
    let is_list_with_object =
        |kind: &Value| kind.as_array().is_some_and(|it| it.contains(&json!("object")));
    if members.get("type").is_some_and(is_list_with_object) {
        members.insert("type".to_owned(), json!("object"));
    }
    if let Some(ObjectPart { properties, required }) = merged {
        members.retain(|name, _| !COMBINATORS.contains(&name.as_str()));
        members.insert("properties".to_owned(), properties.into());
        members.insert("required".to_owned(), required.into());
    }
}

/// Converts keywords of a schema and of all schemas in it.
fn convert_keywords(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    members.retain(|name, value| !value.is_null() || NULLABLE.contains(&name.as_str()));
    if members.get("items").is_some_and(Value::is_array) {
        let further = members.remove("additionalItems");
        if let Some(items) = members.remove("items") {
            members.insert("prefixItems".to_owned(), items);
        }
        members.extend(further.map(|further| ("items".to_owned(), further)));
    }
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        let Some(is_exclusive) = members.get(exclusive).and_then(Value::as_bool) else { continue };
        members.remove(exclusive);
        if let Some(bound) = is_exclusive.then(|| members.remove(limit)).flatten() {
            members.insert(exclusive.to_owned(), bound);
        }
    }
    convert_required(members);
    convert_type(members);
    for (name, value) in members.iter_mut() {
        if BY_NAME.contains(&name.as_str()) {
            match value {
                Value::Object(named) => named.values_mut().for_each(convert_keywords),
                // PHP writes an empty object as an empty array.
                Value::Array(items) if items.is_empty() => *value = json!({}),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => {}
            }
        } else if DIRECT.contains(&name.as_str()) {
            if let Value::Array(items) = value {
                items.iter_mut().for_each(convert_keywords);
            } else {
                convert_keywords(value);
            }
        }
    }
}

/// Writes the type in lower case, and removes `any` of draft 3.
fn convert_type(members: &mut Map<String, Value>) {
    let Some(Value::String(kind)) = members.get_mut("type") else { return };
    kind.make_ascii_lowercase();
    if kind == "any" {
        members.remove("type");
    }
}

/// Moves a `required` that is true in a property to the list of the schema around it, writes one
/// name as a list, and removes duplicates there.
fn convert_required(members: &mut Map<String, Value>) {
    if let Some(name @ Value::String(_)) = members.get_mut("required") {
        *name = json!([name]);
    }
    if members.get("required").is_some_and(Value::is_boolean) {
        members.remove("required");
    }
    let mut flagged = Vec::new();
    let properties = members.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if property["required"].is_boolean()
            && let Some(is_required) = property.as_object_mut().and_then(|it| it.remove("required"))
        {
            flagged.extend((is_required == true).then(|| json!(name)));
        }
    }
    if !flagged.is_empty() {
        members.entry("required").or_insert_with(|| json!([]));
    }
    if let Some(Value::Array(names)) = members.get_mut("required") {
        names.extend(flagged);
        let mut known = HashSet::new();
        names.retain(|name| known.insert(name.to_string()));
    }
}

/// Replaces references that use a name or the schema's own address by JSON pointers.
fn resolve_names(root: &mut Value) {
    let address = root["$id"].as_str().map(|id| id.trim_end_matches('#').to_owned());
    let mut anchors = HashMap::new();
    collect_anchors(root, "", &mut anchors);
    let before = root.clone();
    let resolve = |text: &str| {
        let inner = address.as_deref().and_then(|address| text.strip_prefix(address));
        let name = inner.unwrap_or(text);
        let name = name.strip_prefix('#').unwrap_or(name);
        if name.is_empty() && (inner.is_some() || text == "#") {
            return Some("#".to_owned());
        }
        if let Some(pointer) = anchors.get(name).filter(|_| text.contains('#')) {
            return Some(format!("#{pointer}"));
        }
        let of_tuple = name.replace("/items/", "/prefixItems/");
        let mut pointers = [name.to_owned(), of_tuple].into_iter();
        let pointer = pointers.find(|pointer| before.pointer(pointer).is_some())?;
        pointer.starts_with('/').then(|| format!("#{pointer}"))
    };
    replace_references(root, &resolve);
    if let Some(members) = root.as_object_mut().filter(|_| address.is_some()) {
        members.remove("$id");
    }
}

/// Collects the pointers to schemas with a name: an `$anchor`, or before draft 2019-09 an `$id`.
fn collect_anchors(value: &Value, pointer: &str, anchors: &mut HashMap<String, String>) {
    match value {
        Value::Object(members) => {
            let old =
                members.get("$id").and_then(Value::as_str).and_then(|id| id.strip_prefix('#'));
            let name = members.get("$anchor").and_then(Value::as_str).or(old);
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                anchors.insert(name.to_owned(), pointer.to_owned());
            }
            for (name, inner) in members.iter().filter(|(name, _)| !VALUES.contains(&name.as_str()))
            {
                let step = name.replace('~', "~0").replace('/', "~1");
                collect_anchors(inner, &format!("{pointer}/{step}"), anchors);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                collect_anchors(inner, &format!("{pointer}/{index}"), anchors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn replace_references(value: &mut Value, resolve: &dyn Fn(&str) -> Option<String>) {
    match value {
        Value::Object(members) => {
            if members.get("$id").and_then(Value::as_str).is_some_and(|id| id.starts_with('#')) {
                members.remove("$id");
            }
            if let Some(pointer) = members.get("$ref").and_then(Value::as_str).and_then(resolve) {
                members.insert("$ref".to_owned(), pointer.into());
            }
            let inner = members.iter_mut().filter(|(name, _)| !VALUES.contains(&name.as_str()));
            inner.for_each(|(_, value)| replace_references(value, resolve));
        }
        Value::Array(items) => {
            for item in items {
                replace_references(item, resolve);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The properties of an object that one or several schemas describe.
#[derive(Default)]
struct ObjectPart {
    properties: Map<String, Value>,
    required: Vec<Value>,
}

/// Merges the schemas that are combined at the top: the result accepts at least the same objects,
/// and the server checks the rest. `None` if there is nothing to merge.
fn merge_branches(root: &Value) -> Option<ObjectPart> {
    if !COMBINATORS.iter().any(|key| root[*key].is_array()) {
        return None;
    }
    let mut left = MERGED_MAX;
    ObjectPart::of(root, root, &mut left)
}

impl ObjectPart {
    /// The part that a schema describes. `None` if the schema does not accept objects.
    fn of(schema: &Value, root: &Value, left: &mut usize) -> Option<Self> {
        *left = left.checked_sub(1)?;
        let is_of_objects = match schema.get("type") {
            None => schema.is_object() || *schema == true,
            Some(Value::Array(kinds)) => kinds.contains(&json!("object")),
            Some(kind) => kind == "object",
        };
        if !is_of_objects {
            return None;
        }
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut part = Self { properties, required };
        let target = schema["$ref"].as_str().and_then(|it| root.pointer(it.strip_prefix('#')?));
        let all = schema["allOf"].as_array().into_iter().flatten();
        for also in target.into_iter().chain(all).filter_map(|one| Self::of(one, root, left)) {
            part.required.extend(also.required);
            add_properties(&mut part.properties, also.properties, "allOf");
        }
        for key in ["anyOf", "oneOf"] {
            let branches = schema[key].as_array().into_iter().flatten();
            let mut branches = branches.filter_map(|one| Self::of(one, root, left));
            let Some(mut either) = branches.next() else { continue };
            for other in branches {
                either.required.retain(|name| other.required.contains(name));
                add_properties(&mut either.properties, other.properties, "anyOf");
            }
            part.required.extend(either.required);
            add_properties(&mut part.properties, either.properties, "allOf");
        }
        let mut known = HashSet::new();
        part.required.retain(|name| known.insert(name.to_string()));
        Some(part)
    }
}

/// Adds properties. Different schemas for one name are combined.
fn add_properties(into: &mut Map<String, Value>, from: Map<String, Value>, combinator: &str) {
    for (name, schema) in from {
        match into.get_mut(&name) {
            None => {
                into.insert(name, schema);
            }
            Some(known) if *known == schema => {}
            Some(known) => *known = json!({ combinator: [known.take(), schema] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(mut schema: Value) -> Value {
        convert(&mut schema);
        schema
    }

    #[test]
    fn keywords_of_older_drafts_and_of_generators_are_converted() {
        for (given, wanted) in [
            (
                json!({ "items": [{ "type": "number" }], "additionalItems": false }),
                json!({ "prefixItems": [{ "type": "number" }], "items": false }),
            ),
            (
                json!({ "minimum": 0, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false }),
                json!({ "exclusiveMinimum": 0, "maximum": 9 }),
            ),
            (json!({ "exclusiveMinimum": 3 }), json!({ "exclusiveMinimum": 3 })),
            (
                json!({ "required": null, "properties": { "a": { "description": null, "default": null } } }),
                json!({ "properties": { "a": { "default": null } } }),
            ),
            (json!({ "properties": [] }), json!({ "properties": {} })),
            (json!({ "required": "a" }), json!({ "required": ["a"] })),
            (
                json!({ "required": ["b", "b"], "properties": {
                    "a": { "required": true }, "b": { "required": false }, "required": {} } }),
                json!({ "required": ["b", "a"], "properties": { "a": {}, "b": {}, "required": {} } }),
            ),
            (json!({ "type": ["object", "null"] }), json!({ "type": "object" })),
            (
                json!({ "type": "OBJECT", "properties": { "type": { "type": "any" } } }),
                json!({ "type": "object", "properties": { "type": {} } }),
            ),
            (json!({ "enum": [{ "items": [null] }] }), json!({ "enum": [{ "items": [null] }] })),
        ] {
            assert_eq!(converted(given.clone()), wanted, "{given}");
        }
    }

    #[test]
    fn references_by_name_become_json_pointers() {
        let with = |reference: &str, target: Value| {
            json!({ "$id": "https://x.test/s", "properties": { "a": { "$ref": reference } },
                "$defs": { "A/B": target } })
        };
        let a = json!({ "type": "string" });
        let named = json!({ "$anchor": "A", "type": "string" });
        for (reference, target) in [
            ("#A", named),
            ("#A", json!({ "$id": "#A", "type": "string" })),
            ("https://x.test/s#/$defs/A~1B", a.clone()),
            ("#/$defs/A~1B", a),
        ] {
            let schema = converted(with(reference, target));
            assert_eq!(schema["properties"]["a"]["$ref"], "#/$defs/A~1B", "{reference}");
            assert_eq!(schema["$id"], Value::Null);
        }
        let tuple = json!({ "items": [{ "type": "array", "items": [{}] }, { "$ref": "#/items/0/items/0" }] });
        let reference = &converted(tuple)["prefixItems"][1]["$ref"];
        assert_eq!(reference, "#/prefixItems/0/prefixItems/0");
        assert_eq!(converted(json!({ "$ref": "x.json" })), json!({ "$ref": "x.json" }));
        assert_eq!(
            converted(json!({ "items": { "$ref": "#" } })),
            json!({ "items": { "$ref": "#" } })
        );
    }

    #[test]
    fn schemas_that_are_combined_at_the_top_are_merged() {
        let of = |names: &[&str]| {
            let properties: Map<_, _> =
                names.iter().map(|it| ((*it).to_owned(), json!({}))).collect();
            json!({ "type": "object", "properties": properties, "required": names })
        };
        for (given, properties, required) in [
            (
                json!({ "anyOf": [of(&["a", "b"]), of(&["b"])] }),
                json!({ "a": {}, "b": {} }),
                json!(["b"]),
            ),
            (
                json!({ "oneOf": [of(&["a"]), { "type": "null" }] }),
                json!({ "a": {} }),
                json!(["a"]),
            ),
            (
                json!({ "allOf": [of(&["a"]), of(&["b"])] }),
                json!({ "a": {}, "b": {} }),
                json!(["a", "b"]),
            ),
            (
                json!({ "$defs": { "A": of(&["a"]) }, "allOf": [{ "$ref": "#/$defs/A" }] }),
                json!({ "a": {} }),
                json!(["a"]),
            ),
            (
                json!({ "properties": { "a": {} }, "required": ["b"], "anyOf": [{ "required": ["a"] }, {}] }),
                json!({ "a": {} }),
                json!(["b"]),
            ),
            (
                json!({ "oneOf": [{ "properties": { "k": { "const": 1 } } }, { "properties": { "k": { "const": 2 } } }] }),
                json!({ "k": { "anyOf": [{ "const": 1 }, { "const": 2 }] } }),
                json!([]),
            ),
            (json!({ "anyOf": [] }), json!({}), json!([])),
        ] {
            let schema = converted(given.clone());
            assert_eq!(schema["properties"], properties, "{given}");
            assert_eq!(schema["required"], required, "{given}");
            assert!(COMBINATORS.iter().all(|key| schema[*key].is_null()), "{schema}");
        }
        // The recursion ends, and no branch has content.
        let circular = json!({ "allOf": [{ "$ref": "#" }, { "$ref": "#" }] });
        assert_eq!(converted(circular)["properties"], json!({}));
    }
}
