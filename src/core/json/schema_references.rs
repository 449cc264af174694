//! References within a JSON Schema: each must lead to a place in the same document.

use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Keywords that refer to another schema.
pub const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that hold values, even if they look like schemas.
pub const VALUES: [&str; 5] = ["const", "default", "enum", "example", "examples"];

/// Keywords with subschemas by freely chosen names: a name may equal a keyword.
pub const BY_NAME: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// The fault of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceFault {
    OtherDocument,
    /// The schema has no such place.
    Missing,
    /// The reference leads back to itself, so that it describes nothing.
    Circular,
}

/// A reference that cannot be followed, and its location as a JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadReference<'a> {
    pub pointer: String,
    pub target: &'a str,
    pub fault: ReferenceFault,
}

/// The references and names in a schema.
#[derive(Default)]
struct SchemaNames<'a> {
    /// Each reference: its location and its target.
    references: Vec<(String, &'a str)>,
    anchors: BTreeSet<&'a str>,
    /// True if a part has an `$id`, which changes the base of `#`: then only a validator can
    /// resolve references.
    has_inner_ids: bool,
}

/// Checks that every reference leads to a place in the same document, and not to itself.
///
/// # Errors
/// The first reference that does not.
pub fn check_references(schema: &Value) -> Result<(), BadReference<'_>> {
    let mut names = SchemaNames::default();
    names.collect(schema, &mut String::new());
    let mut finite = BTreeSet::new();
    for (pointer, target) in names.references {
        let fault = match target.strip_prefix('#') {
            None => Some(ReferenceFault::OtherDocument),
            Some(_) if names.has_inner_ids => None,
            Some(name) if !name.is_empty() && !name.starts_with('/') => {
                (!names.anchors.contains(name)).then_some(ReferenceFault::Missing)
            }
            Some(_) => match lookup(schema, target) {
                None => Some(ReferenceFault::Missing),
                Some(place) => {
                    is_endless(schema, place, &mut finite).then_some(ReferenceFault::Circular)
                }
            },
        };
        if let Some(fault) = fault {
            return Err(BadReference { pointer, target, fault });
        }
    }
    Ok(())
}

impl<'a> SchemaNames<'a> {
    fn collect(&mut self, schema: &'a Value, pointer: &mut String) {
        match schema {
            Value::Object(members) => {
                self.collect_keywords(members, pointer);
                for (name, value) in members {
                    match value.as_object().filter(|_| BY_NAME.contains(&name.as_str())) {
                        Some(named) => within(pointer, name, |pointer| {
                            for (name, value) in named {
                                within(pointer, name, |pointer| self.collect(value, pointer));
                            }
                        }),
                        None if VALUES.contains(&name.as_str()) => {}
                        None => within(pointer, name, |pointer| self.collect(value, pointer)),
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    within(pointer, &index.to_string(), |pointer| self.collect(item, pointer));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn collect_keywords(&mut self, members: &'a Map<String, Value>, pointer: &str) {
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let targets = REFERENCES.iter().filter_map(|name| Some((name, text(name)?)));
        self.references.extend(targets.map(|(name, target)| (format!("{pointer}/{name}"), target)));
        self.anchors.extend(["$anchor", "$dynamicAnchor"].iter().filter_map(|name| text(name)));
        self.has_inner_ids |= !pointer.is_empty() && text("$id").is_some();
    }
}

/// Calls `walk` with the pointer of a member.
fn within(pointer: &mut String, name: &str, walk: impl FnOnce(&mut String)) {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
    walk(pointer);
    pointer.truncate(length);
}

/// Resolves a reference such as `#/$defs/a`.
fn lookup<'a>(schema: &'a Value, target: &str) -> Option<&'a Value> {
    schema.pointer(&percent_decode_str(target.strip_prefix('#')?).decode_utf8().ok()?)
}

/// True if a chain of references from here is circular.
///
/// `finite` has the targets that are known to end, so that a target that several chains share is
/// followed once.
fn is_endless<'a>(schema: &'a Value, mut place: &'a Value, finite: &mut BTreeSet<&'a str>) -> bool {
    let mut seen = BTreeSet::new();
    while let Some(target) = place.get("$ref").and_then(Value::as_str) {
        if finite.contains(target) {
            break;
        }
        if !seen.insert(target) {
            return true;
        }
        let Some(next) = lookup(schema, target) else { break };
        place = next;
    }
    finite.append(&mut seen);
    false
}

/// Rewrites references from the root after the schema is moved to a new place, a JSON pointer.
pub fn rebase_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                let is_by_name = BY_NAME.contains(&name.as_str());
                if name == "$ref"
                    && let Some(rest) = value.as_str().and_then(|target| target.strip_prefix('#'))
                    && (rest.is_empty() || rest.starts_with('/'))
                {
                    *value = Value::String(format!("#{place}{rest}"));
                } else if let Some(named) = value.as_object_mut().filter(|_| is_by_name) {
                    named.values_mut().for_each(|value| rebase_references(value, place));
                } else if !VALUES.contains(&name.as_str()) {
                    rebase_references(value, place);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rebase_references(item, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bad_schema_references_are_found_with_their_places() {
        use ReferenceFault::{Circular, Missing, OtherDocument};
        let defs =
            |a: Value| json!({ "$defs": { "a": a, "b": { "$ref": "#/$defs/a" }, "c d": {} } });
        let table = [
            (json!({ "$ref": "#/$defs/a" }), Some(("", Circular))),
            (json!({ "$ref": "#/$defs/b" }), Some(("", Circular))),
            (json!({ "$ref": "#/$defs/no" }), Some(("", Missing))),
            (json!({ "items": [{ "$ref": "o.json" }] }), Some(("/items/0", OtherDocument))),
            (json!({ "items": { "$dynamicRef": "#node" } }), Some(("/items", Missing))),
            (
                json!({ "properties": { "const": { "$ref": "#no" } } }),
                Some(("/properties/const", Missing)),
            ),
            // Recursion below a value ends with the value, and validators end circles of
            // combinations.
            (json!({ "items": { "$ref": "#/$defs/a" }, "allOf": [{ "$ref": "#/$defs/b" }] }), None),
            (json!({ "$ref": "#/$defs/c%20d" }), None),
            (json!({ "$dynamicAnchor": "node", "items": { "$dynamicRef": "#node" } }), None),
            (json!({ "$id": "urn:a", "$ref": "#/below/a" }), None),
            (json!({ "properties": { "$ref": {} }, "const": { "$ref": "#no" } }), None),
        ];
        for (schema, wanted) in table {
            let root = defs(schema.clone());
            let found = check_references(&root).map_err(|bad| (bad.pointer, bad.fault));
            let wanted = wanted.map(|(below, fault)| {
                let keyword = if below == "/items" { "$dynamicRef" } else { "$ref" };
                (format!("/$defs/a{below}/{keyword}"), fault)
            });
            assert_eq!(found.err(), wanted, "{schema}");
        }
    }

    #[test]
    fn references_are_rebased_in_schemas_but_not_in_values() {
        let of = |place: &str| {
            json!({ "properties": { "default": { "$ref": format!("#{place}/$defs/a") } },
                "default": { "$ref": "#/$defs/a" }, "items": { "$ref": "#name" } })
        };
        let mut schema = of("");
        rebase_references(&mut schema, "/properties/answer");
        assert_eq!(schema, of("/properties/answer"));
    }
}
