//! Repairs the input of a call by the schema of its tool, where the input has only one meaning:
//! models behind some tool parsers give numbers, flags and lists as text, or the reverse. Pure.

use serde_json::{Map, Number, Value};

use crate::json::{EXACT_MAX, whole_number};

/// The maximum number of references and combinations that are followed from one schema to those
/// that apply to the same value.
const INDIRECTIONS_MAX: usize = 8;

/// The maximum depth to which a value is repaired, in JSON levels.
const DEPTH_MAX: usize = 32;

/// Texts by which models say that there is no value.
pub(super) const PLACEHOLDERS: [&str; 3] = ["undefined", "null", "None"];

/// Repairs an input, and leaves everything else unchanged:
/// - text that states a number, a flag, a list or an object, where the schema takes that and no
///   text;
/// - a whole number or a flag, where it takes text only;
/// - 0 and 1, or `yes` and `no`, `on` and `off`, where it takes a flag;
/// - one object, number or text, where it takes a list of those;
/// - `null`, or text that means it, in an optional field that does not take `null`: removed;
/// - a required field that is missing and has a default: added.
pub(super) fn coerce(input: &mut Value, schema: &Value) {
    coerce_value(input, schema, schema, DEPTH_MAX);
}

fn coerce_value(value: &mut Value, schema: &Value, root: &Value, depth: usize) {
    if depth == 0 {
        return;
    }
    let alternatives = alternatives(schema, root);
    if alternatives.is_empty() {
        return;
    }
    if !alternatives.iter().any(|alternative| alternative.accepts(value)) {
        let stated = alternatives.iter().find_map(|alternative| alternative.parse(value));
        let Some(stated) = stated else { return };
        *value = stated;
    }
    let mut accepting = alternatives.iter().filter(|alternative| alternative.accepts(value));
    // With several matching types it is unclear which one is meant.
    let (Some(alternative), None) = (accepting.next(), accepting.next()) else { return };
    match value {
        Value::Number(number) if alternative.name == "integer" => {
            if let Some(whole) = whole_number(number) {
                *value = Value::Number(whole);
            }
        }
        Value::Array(items) => {
            for item in items {
                coerce_value(item, &alternative.schema["items"], root, depth - 1);
            }
        }
        Value::Object(fields) => coerce_fields(fields, alternative.schema, root, depth - 1),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn coerce_fields(fields: &mut Map<String, Value>, schema: &Value, root: &Value, depth: usize) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let is_required = |name: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name))
    };
    for (name, property) in properties {
        let default = property.get("default").filter(|_| is_required(name));
        match (fields.get_mut(name), default) {
            (None, None) => {}
            (None, Some(default)) => {
                fields.insert(name.clone(), default.clone());
            }
            (Some(value), Some(default)) if value.is_null() && !takes_null(property, root) => {
                default.clone_into(value);
            }
            (Some(Value::Null), None) if !is_required(name) && !takes_null(property, root) => {
                fields.remove(name);
            }
            (Some(Value::String(text)), None)
                if is_placeholder(text)
                    && !is_required(name)
                    && !takes_any_text(property, root) =>
            {
                fields.remove(name);
            }
            (Some(value), _) => coerce_value(value, property, root, depth),
        }
    }
}

/// True for text that says that there is no value.
fn is_placeholder(text: &str) -> bool {
    text.is_empty() || PLACEHOLDERS.contains(&text)
}

/// True if a schema may take any text.
fn takes_any_text(schema: &Value, root: &Value) -> bool {
    let alternatives = alternatives(schema, root);
    let is_free = |one: &Alternative<'_>| one.name == "string" && one.schema["enum"].is_null();
    alternatives.is_empty() || alternatives.iter().any(is_free)
}

/// True if a schema may take `null`.
fn takes_null(schema: &Value, root: &Value) -> bool {
    let alternatives = alternatives(schema, root);
    let is_null = |it: &Alternative<'_>| it.name == "null" || it.schema["nullable"] == true;
    alternatives.is_empty() || alternatives.iter().any(is_null)
}

/// A type that a schema takes, and the schema that says so.
struct Alternative<'a> {
    name: &'a str,
    schema: &'a Value,
}

impl Alternative<'_> {
    fn accepts(&self, value: &Value) -> bool {
        match (self.name, value) {
            ("integer", Value::Number(number)) => whole_number(number).is_some(),
            ("number", Value::Number(_))
            | ("string", Value::String(_))
            | ("boolean", Value::Bool(_))
            | ("null", Value::Null)
            | ("array", Value::Array(_))
            | ("object", Value::Object(_)) => true,
            (_, _) => false,
        }
    }

    /// True for the only item of a list. Text that may be a list in another form, or that says that
    /// there is no value, is none.
    fn is_item(&self, value: &Value) -> bool {
        let schema = &self.schema["items"];
        let name = schema["type"].as_str().unwrap_or_default();
        let is_single = value.as_str().is_none_or(|text| {
            !is_placeholder(text.trim()) && !text.contains([',', ';', '\n', '[', '{'])
        });
        is_single && Alternative { name, schema }.accepts(value)
    }

    /// Takes a text for a value of this type, or a value for a text. A fraction has other digits
    /// than the text that it was made of.
    fn parse(&self, value: &Value) -> Option<Value> {
        if self.name == "array" && self.is_item(value) {
            return Some(Value::Array(vec![value.clone()]));
        }
        let text = match value {
            Value::String(text) => text.trim(),
            Value::Number(number) if self.name == "string" && !number.is_f64() => {
                return Some(number.to_string().into());
            }
            Value::Bool(flag) if self.name == "string" => return Some(flag.to_string().into()),
            Value::Number(number) if self.name == "boolean" => {
                return match number.as_u64() {
                    Some(0) => Some(Value::Bool(false)),
                    Some(1) => Some(Value::Bool(true)),
                    Some(_) | None => None,
                };
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => return None,
            Value::Array(_) | Value::Object(_) => return None,
        };
        match self.name {
            "integer" | "number" => parse_number(text).filter(|value| self.accepts(value)),
            "boolean" => {
                let is_any =
                    |words: [&str; 3]| words.iter().any(|it| text.eq_ignore_ascii_case(it));
                let (yes, no) = (["true", "yes", "on"], ["false", "no", "off"]);
                (is_any(yes) || is_any(no)).then(|| Value::Bool(is_any(yes)))
            }
            "array" | "object" => serde_json::from_str(text).ok().filter(|it| self.accepts(it)),
            _ => None,
        }
    }
}

/// The types that a schema takes, through references and combinations. If there are none, it takes
/// anything, or its types are unknown.
fn alternatives<'a>(schema: &'a Value, root: &'a Value) -> Vec<Alternative<'a>> {
    let mut found = Vec::new();
    collect_alternatives(schema, root, INDIRECTIONS_MAX, &mut found);
    found
}

fn collect_alternatives<'a>(
    schema: &'a Value,
    root: &'a Value,
    left: usize,
    found: &mut Vec<Alternative<'a>>,
) {
    let Some(left) = left.checked_sub(1) else { return };
    match &schema["type"] {
        Value::String(name) => found.push(Alternative { name, schema }),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            found.extend(names.map(|name| Alternative { name, schema }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            let referred = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
            let referred = referred.and_then(|path| root.pointer(path));
            let combined = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema.get(*key));
            let combined = combined.filter_map(Value::as_array).flatten();
            for next in referred.into_iter().chain(combined) {
                collect_alternatives(next, root, left, found);
            }
        }
    }
}

/// Parses a decimal number. Rejects `inf` and numbers in another base.
fn parse_number(text: &str) -> Option<Value> {
    let is_number =
        text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    if !is_number {
        return None;
    }
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    let number = text.parse::<f64>().ok()?;
    // More digits than a double holds would be changed.
    let is_exact = number.abs() <= EXACT_MAX || text.contains(['.', 'e', 'E']);
    Number::from_f64(number).filter(|_| is_exact).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn coerced(property: &Value, value: &Value) -> Value {
        let mut input = json!({ "it": value });
        coerce(&mut input, &json!({ "type": "object", "properties": { "it": property } }));
        input["it"].take()
    }

    #[test]
    fn text_that_states_another_type_is_taken_for_it() {
        let integer = json!({ "type": "integer" });
        let number = json!({ "type": "number" });
        let flag = json!({ "type": "boolean" });
        let list = json!({ "type": "array", "items": { "type": "integer" } });
        let object = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        for (property, given, wanted) in [
            (&integer, json!("50"), json!(50)),
            (&integer, json!(" -7 "), json!(-7)),
            (&integer, json!("50.0"), json!(50)),
            (&integer, json!(5.0), json!(5)),
            (&integer, json!("18446744073709551615"), json!(u64::MAX)),
            (&number, json!("1.5"), json!(1.5)),
            (&number, json!("2e3"), json!(2e3)),
            (&flag, json!("false"), json!(false)),
            (&flag, json!("True"), json!(true)),
            (&flag, json!("yes"), json!(true)),
            (&flag, json!("Off"), json!(false)),
            (&list, json!(5), json!([5])),
            (
                &json!({ "type": "array", "items": { "type": "string" } }),
                json!("src/a.c"),
                json!(["src/a.c"]),
            ),
            (&json!({ "type": "string" }), json!(404), json!("404")),
            (&json!({ "type": "string" }), json!(false), json!("false")),
            (&integer, json!(""), Value::Null),
            (&integer, json!("null"), Value::Null),
            (&flag, json!(1), json!(true)),
            (&flag, json!(0), json!(false)),
            (
                &json!({ "type": "array", "items": object }),
                json!({ "n": "1" }),
                json!([{ "n": 1 }]),
            ),
            (&json!({ "type": "string", "enum": ["a"] }), json!(""), Value::Null),
            (&list, json!("[1, \"2\"]"), json!([1, 2])),
            (&list, json!(["1", 2]), json!([1, 2])),
            (&object, json!("{\"n\": \"1\"}"), json!({ "n": 1 })),
            (&json!({ "anyOf": [integer, { "type": "null" }] }), json!("3"), json!(3)),
            (&json!({ "type": ["null", "boolean"] }), json!("true"), json!(true)),
            (
                &json!({ "allOf": [{ "$ref": "#/properties/it/$defs/n" }], "$defs": { "n": integer } }),
                json!("4"),
                json!(4),
            ),
        ] {
            assert_eq!(coerced(property, &given), wanted, "{property} {given}");
        }
    }

    #[test]
    fn text_with_another_meaning_stays() {
        let integer = json!({ "type": "integer" });
        let object = json!({ "type": "object", "properties": { "n": integer } });
        for (property, given) in [
            (&integer, json!("fifty")),
            (&integer, json!("1.5")),
            (&integer, json!("0x10")),
            (&integer, json!("1,000")),
            (&json!({ "type": ["string", "integer"] }), json!("")),
            (&integer, json!("123456789012345678901234567890")),
            (&integer, json!(1.5)),
            (&integer, json!(true)),
            (&json!({ "type": "number" }), json!("inf")),
            (&json!({ "type": "boolean" }), json!("y")),
            (&json!({ "type": "array", "items": { "type": "string" } }), json!("a, b")),
            (&json!({ "type": "boolean" }), json!(2)),
            (&json!({ "type": ["boolean", "integer"] }), json!(1)),
            (&json!({ "type": "string" }), json!("null")),
            (&json!({ "type": "array" }), json!({ "a": 1 })),
            (&json!({ "type": "array" }), json!("a, b")),
            (&json!({ "type": "array" }), json!("{}")),
            (&json!({ "type": "string" }), json!("[1]")),
            (&json!({ "type": "string" }), json!("7")),
            (&json!({ "type": "string" }), json!(1.5)),
            (&json!({ "type": "string" }), json!({ "a": 1 })),
            (&json!({ "type": "string" }), json!("")),
            (&json!({ "anyOf": [integer, { "type": "string" }] }), json!("7")),
            (&json!({ "anyOf": [object, { "type": "object" }] }), json!({ "n": "7" })),
            (&json!({}), json!("7")),
            (&json!({ "enum": [7] }), json!("7")),
        ] {
            assert_eq!(coerced(property, &given), given, "{property} {given}");
        }
        // A required list without a value is a mistake of the model, not a list of that word.
        let list = json!({ "it": { "type": "array", "items": { "type": "string" } } });
        let mut input = json!({ "it": "null" });
        let schema = json!({ "type": "object", "properties": list, "required": ["it"] });
        coerce(&mut input, &schema);
        assert_eq!(input["it"], "null");
    }

    #[test]
    fn a_missing_required_field_gets_its_default_and_null_for_an_optional_one_is_left_out() {
        let schema = json!({
            "type": "object",
            "properties": {
                "scale": { "type": "string", "default": "css" },
                "kind": { "type": "string", "default": "png" },
                "name": { "type": "string" },
                "note": { "type": "string" },
                "size": { "type": ["integer", "null"] },
                "age": { "type": "integer", "nullable": true },
                "inner": { "type": "object", "properties": { "n": { "default": 1 } }, "required": ["n"] },
            },
            "required": ["scale", "name"],
        });
        let mut input = json!({ "note": null, "size": null, "age": null, "inner": {}, "more": 1 });
        coerce(&mut input, &schema);
        let wanted =
            json!({ "scale": "css", "size": null, "age": null, "inner": { "n": 1 }, "more": 1 });
        assert_eq!(
            input, wanted,
            "no default is invented, and none is given for an optional field"
        );
        let mut input = json!({ "scale": null, "name": null });
        coerce(&mut input, &schema);
        assert_eq!(input, json!({ "scale": "css", "name": null }), "the tool judges the rest");
    }

    #[test]
    fn a_recursive_schema_and_a_deep_value_end() {
        let schema = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }] } } });
        let mut input = json!("7");
        coerce(&mut input, &schema);
        assert_eq!(input, "7");
        let schema = json!({ "type": "object", "properties": { "a": { "$ref": "#" } } });
        let mut input = (0..200).fold(json!({}), |inner, _| json!({ "a": inner }));
        let before = input.clone();
        coerce(&mut input, &schema);
        assert_eq!(input, before);
    }
}
