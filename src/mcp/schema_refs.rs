//! Checks the references in a JSON schema: following a circular one would never end, in the
//! validator of outlast too. Pure.

use std::collections::HashMap;
use std::ptr;

use serde_json::{Map, Value};

/// Keywords that reference another part of the schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords with subschemas that apply to the same value as the schema around them.
const IN_PLACE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// A keyword like those of [`IN_PLACE`], with subschemas by property name.
const IN_PLACE_BY_NAME: &str = "dependentSchemas";

/// Keywords with subschemas by freely chosen names: a name may equal a keyword.
pub(super) const BY_NAME: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", IN_PLACE_BY_NAME];

/// The longest chain of references.
const LONGEST_WAY: usize = 200;

/// Checks that every reference resolves inside the schema, and none is circular.
///
/// # Errors
/// A reference is invalid, with the reason.
pub(super) fn check(schema: &Value, is_value: &dyn Fn(&str) -> bool) -> Result<(), &'static str> {
    let mut search = RefSearch { root: schema, seen: HashMap::new() };
    search.check_all(schema, is_value)
}

struct RefSearch<'a> {
    root: &'a Value,
    /// The visited schemas, and whether they were found valid.
    seen: HashMap<*const Value, bool>,
}

impl<'a> RefSearch<'a> {
    fn check_all(
        &mut self,
        schema: &'a Value,
        is_value: &dyn Fn(&str) -> bool,
    ) -> Result<(), &'static str> {
        match schema {
            Value::Object(members) => {
                self.follow(schema, 0)?;
                members.iter().try_for_each(|(name, value)| {
                    match value.as_object().filter(|_| BY_NAME.contains(&name.as_str())) {
                        Some(named) => {
                            named.values().try_for_each(|it| self.check_all(it, is_value))
                        }
                        None if is_value(name) => Ok(()),
                        None => self.check_all(value, is_value),
                    }
                })
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.check_all(item, is_value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// Follows a schema through all subschemas that apply to the same value.
    fn follow(&mut self, schema: &'a Value, way: usize) -> Result<(), &'static str> {
        let Some(members) = schema.as_object() else { return Ok(()) };
        match self.seen.insert(ptr::from_ref(schema), false) {
            None => {}
            Some(true) => {
                self.seen.insert(ptr::from_ref(schema), true);
                return Ok(());
            }
            Some(false) => return Err("a reference in its input schema leads back to itself"),
        }
        if way > LONGEST_WAY {
            return Err("the references in its input schema are too many in a row");
        }
        for next in self.applied_schemas(members)? {
            self.follow(next, way + 1)?;
        }
        self.seen.insert(ptr::from_ref(schema), true);
        Ok(())
    }

    fn applied_schemas(
        &self,
        members: &'a Map<String, Value>,
    ) -> Result<Vec<&'a Value>, &'static str> {
        let mut next = Vec::new();
        for reference in REFERENCES.iter().filter_map(|name| members.get(*name)?.as_str()) {
            let found = reference.strip_prefix('#').and_then(|path| self.root.pointer(path));
            next.push(found.ok_or("a reference in its input schema leads nowhere in it")?);
        }
        for schemas in IN_PLACE.iter().filter_map(|name| members.get(*name)) {
            match schemas {
                Value::Array(items) => next.extend(items),
                Value::Object(_) => next.push(schemas),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        next.extend(
            members
                .get(IN_PLACE_BY_NAME)
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(Map::values),
        );
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn looked_at(properties: &Value) -> Result<(), &'static str> {
        check(&json!({ "type": "object", "properties": properties }), &|name| name == "const")
    }

    #[test]
    fn a_circular_or_unresolvable_schema_reference_is_found() {
        let a = |schema: Value| json!({ "a": schema, "b": { "$ref": "#/properties/a" } });
        for (schema, wanted) in [
            (json!({ "$ref": "#/properties/a" }), "itself"),
            (json!({ "$ref": "#/properties/b" }), "itself"),
            (json!({ "allOf": [{}, { "$ref": "#/properties/b" }] }), "itself"),
            (json!({ "not": { "$ref": "#/properties/a" } }), "itself"),
            (json!({ "dependentSchemas": { "x": { "$ref": "#/properties/b" } } }), "itself"),
            (json!({ "items": { "anyOf": [{ "$ref": "#/properties/a/items" }] } }), "itself"),
            (
                json!({ "properties": { "const": { "$ref": "#/properties/a/properties/const" } } }),
                "itself",
            ),
            (json!({ "$ref": "#/properties/c" }), "nowhere"),
            (json!({ "$ref": "https://example.com/schema.json" }), "nowhere"),
            (json!({ "items": { "$dynamicRef": "#node" } }), "nowhere"),
        ] {
            let why = looked_at(&a(schema.clone())).expect_err("it is no good");
            assert!(why.contains(wanted), "{schema}: {why}");
        }
        let chain: Map<String, Value> = (0..300)
            .map(|n| (format!("p{n}"), json!({ "$ref": format!("#/properties/p{}", n + 1) })))
            .collect();
        let mut chain = Value::Object(chain);
        chain["p300"] = json!({});
        assert!(looked_at(&chain).is_err_and(|why| why.contains("too many")));
    }

    #[test]
    fn a_recursive_schema_is_valid() {
        for good in [
            json!({ "tree": { "type": "object", "properties": {
                "children": { "type": "array", "items": { "$ref": "#/properties/tree" } },
            } } }),
            json!({ "all": { "items": { "$ref": "#" } } }),
            json!({ "a": { "$ref": "#/properties/b" }, "c": { "$ref": "#/properties/b" },
                    "b": { "type": "string" } }),
            json!({ "$ref": { "type": "string" }, "a": { "const": { "$ref": "#/properties/a" } } }),
            json!({ "a": { "not": { "items": { "$ref": "#/properties/a" } } } }),
        ] {
            assert_eq!(looked_at(&good), Ok(()), "{good}");
        }
    }
}
