//! The JSON Schema of the answer that a run must give. Pure.
//!
//! The Messages API accepts only objects as tool input, and no `anyOf` or the like at their root.
//! Any other schema is wrapped, so that the model gives its answer in one field; the result
//! contains the unwrapped answer.

use std::sync::Arc;

use jsonschema::Validator;
use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::{Map, Value, json};

use super::text::truncated;
use crate::json::{
    BadReference, REFERENCES, ReferenceFault, VALUES, check_references, rebase_references,
};

/// The field that wraps an answer which is not a plain object.
const FIELD: &str = "answer";

/// The largest schema, in bytes of JSON: every request carries it.
pub const SCHEMA_BYTES_MAX: usize = 128 << 10;

/// The maximum number of violations that are reported to the model at once.
const VIOLATIONS_MAX: usize = 10;

/// The maximum length of each violation, in characters.
const VIOLATION_CHARS_MAX: usize = 300;

/// The maximum length of a quoted value, in characters.
const QUOTE_CHARS_MAX: usize = 80;

/// Keywords of JSON Schema. Every valid schema has at least one of them.
#[rustfmt::skip]
const KEYWORDS: [&str; 39] = [
    "$ref", "$dynamicRef", "$recursiveRef", "$schema", "type", "enum", "const", "properties",
    "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
    "required", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
    "dependencies", "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains",
    "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf", "anyOf",
    "oneOf", "not",
];

/// The reason that a value cannot serve as the schema of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct BadSchema {
    /// The location in the schema, as a JSON pointer. Empty: the root.
    pub pointer: String,
    /// The fault at that location, and the remedy.
    pub why: String,
}

impl BadSchema {
    fn at(pointer: impl Into<String>, why: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), why: why.into() }
    }

    fn of_reference(bad: BadReference<'_>) -> Self {
        let target = truncated(bad.target, QUOTE_CHARS_MAX);
        let why = match bad.fault {
            ReferenceFault::OtherDocument => format!(
                "{target:?} is in another document, and outlast fetches none; put it into \
                 \"$defs\" and refer to \"#/$defs/NAME\""
            ),
            ReferenceFault::Missing => {
                format!("there is no {target:?} in the schema; correct the reference")
            }
            ReferenceFault::Circular => {
                "it refers to nothing but itself; describe a value".to_owned()
            }
        };
        Self::at(bad.pointer, why)
    }
}

/// A JSON Schema that an answer must satisfy. Clones share it.
#[derive(Clone, Debug)]
pub struct AnswerSchema(Arc<SchemaCheck>);

#[derive(Debug)]
struct SchemaCheck {
    /// The schema as the user wrote it.
    source: Value,
    /// The input schema of the tool, as sent to the model.
    offered: Value,
    validator: Validator,
    form: SchemaForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaForm {
    /// The answer is the tool input itself.
    Plain,
    /// The answer is in one field of the tool input.
    Wrapped,
}

impl AnswerSchema {
    /// Checks a schema. Every reference must resolve within it; nothing is fetched.
    ///
    /// # Errors
    /// The schema is not valid; the error names the fault and its location.
    pub fn new(schema: Value) -> Result<Self, BadSchema> {
        let size = schema.to_string().len();
        if size > SCHEMA_BYTES_MAX {
            return Err(BadSchema::at(
                "",
                format!(
                    "the schema is {size} bytes of JSON and every request carries it; at most \
                     {SCHEMA_BYTES_MAX}: make it smaller"
                ),
            ));
        }
        let schema = unpacked(schema);
        check_root(&schema)?;
        check_references(&schema).map_err(BadSchema::of_reference)?;
        let (form, source) = (input_form(&schema), schema.clone());
        let mut schema = schema;
        write_out_nullable(&mut schema);
        let (checked, offered) = match form {
            SchemaForm::Plain => {
                schema["type"] = json!("object");
                (schema.clone(), schema)
            }
            SchemaForm::Wrapped => {
                let offered = wrap(&schema);
                (schema, offered)
            }
        };
        let validator = jsonschema::options()
            // `format` is an annotation in the standard.
            .should_validate_formats(false)
            .build(&checked)
            .map_err(|fault| {
                // The validator's own message is meant for its developers.
                if fault.to_string().contains("meta-schema") {
                    return unknown_dialect(&checked);
                }
                let why = format!("{}; correct the schema", schema_error(&fault));
                BadSchema::at(fault.instance_path().as_str(), why)
            })?;
        Ok(Self(Arc::new(SchemaCheck { source, offered, validator, form })))
    }

    /// The schema as the user wrote it.
    pub fn source(&self) -> &Value {
        &self.0.source
    }

    /// The schema of the tool's input.
    pub(super) fn offered(&self) -> &Value {
        &self.0.offered
    }

    /// Returns the tool input that gives this answer. `None` if the tool takes only objects.
    pub(super) fn input_for(&self, answer: Value) -> Option<Value> {
        match self.0.form {
            SchemaForm::Plain => answer.is_object().then_some(answer),
            SchemaForm::Wrapped if only_field(&answer).is_some() => Some(answer),
            SchemaForm::Wrapped => Some(json!({ FIELD: answer })),
        }
    }

    /// Extracts and validates the answer in a call's input.
    ///
    /// # Errors
    /// The violations, one line each, with location and expectation.
    pub(super) fn extract_answer(&self, input: &Value) -> Result<Value, Vec<String>> {
        let (answer, above) = match (self.0.form, only_field(input)) {
            (SchemaForm::Plain, _) => (input, ""),
            (SchemaForm::Wrapped, Some(answer)) => (answer, "/answer"),
            // Some models omit the wrapping; an answer that satisfies the original schema is
            // accepted.
            (SchemaForm::Wrapped, None) if self.0.validator.is_valid(input) => {
                return Ok(input.clone());
            }
            (SchemaForm::Wrapped, None) => {
                return Err(vec![format!(
                    "the input must be an object with the one field `{FIELD}`, which holds the \
                     whole answer"
                )]);
            }
        };
        let mut faults = self.0.validator.iter_errors(answer);
        let mut violations: Vec<String> =
            faults.by_ref().take(VIOLATIONS_MAX).map(|fault| violation(above, &fault)).collect();
        if violations.is_empty() {
            return Ok(answer.clone());
        }
        if faults.next().is_some() {
            violations.push("and more".to_string());
        }
        Err(violations)
    }
}

fn only_field(input: &Value) -> Option<&Value> {
    let fields = input.as_object()?;
    fields.get(FIELD).filter(|_| fields.len() == 1)
}

/// Takes a schema out of the form of other programs: `{"type": "json_schema", "schema": {...}}`, also
/// with `json_schema` around the schema, or with only a name beside it.
fn unpacked(schema: Value) -> Value {
    let has_keyword =
        schema.as_object().is_some_and(|it| it.keys().any(|name| KEYWORDS.contains(&&**name)));
    let is_package = schema["type"] == "json_schema" || !has_keyword;
    let package = schema.get("json_schema").unwrap_or(&schema);
    match package.get("schema") {
        Some(found @ Value::Object(_)) if is_package => found.clone(),
        Some(_) | None => schema,
    }
}

fn check_root(schema: &Value) -> Result<(), BadSchema> {
    match schema {
        Value::Bool(true) => Ok(()),
        Value::Bool(false) => Err(BadSchema::at("", "nothing satisfies it; describe an answer")),
        Value::Object(fields) => {
            let known = |name: &String| KEYWORDS.contains(&name.as_str());
            if fields.is_empty() || fields.keys().any(known) {
                return Ok(());
            }
            let why = "it has no keyword of JSON Schema, such as \"type\" or \"properties\", so \
                       anything would satisfy it; describe the answer instead of giving one";
            Err(BadSchema::at("", why))
        }
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(BadSchema::at("", "a JSON Schema is an object; write {...}"))
        }
    }
}

/// Writes `nullable`, which `OpenAPI` has for a further type, as the type that it means.
fn write_out_nullable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                match fields.get_mut("type") {
                    Some(Value::Array(types)) => types.push(json!("null")),
                    Some(name @ Value::String(_)) => *name = json!([name.take(), "null"]),
                    Some(_) | None => {}
                }
            }
            // The others hold values, not schemas.
            for (_, field) in fields.iter_mut().filter(|(name, _)| !VALUES.contains(&&***name)) {
                write_out_nullable(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_out_nullable),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unknown_dialect(schema: &Value) -> BadSchema {
    let why = format!(
        "{} is not a dialect of JSON Schema that outlast knows; leave it out, or write \
         \"https://json-schema.org/draft/2020-12/schema\"",
        truncated(&schema["$schema"].to_string(), QUOTE_CHARS_MAX)
    );
    BadSchema::at("/$schema", why)
}

/// Decides whether the API accepts the schema as tool input, or it must be wrapped.
fn input_form(schema: &Value) -> SchemaForm {
    let Some(root) = schema.as_object() else { return SchemaForm::Wrapped };
    let has = |names: &[&str]| names.iter().any(|name| root.contains_key(*name));
    let properties = root.get("properties").and_then(Value::as_object);
    let is_object = match root.get("type") {
        Some(kind) => kind == "object",
        None => properties.is_some() && !has(&["enum", "const"]),
    };
    let is_composed = has(&REFERENCES) || has(&["allOf", "anyOf", "oneOf"]);
    let names_fit = properties.is_none_or(|fields| fields.keys().all(|name| is_plain(name)));
    if is_object && !is_composed && names_fit { SchemaForm::Plain } else { SchemaForm::Wrapped }
}

/// True if the API accepts this as a field name in tool input.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

fn wrap(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let mut offered = Map::new();
    if let Value::Object(root) = &mut inner {
        if let Some(dialect) = root.remove("$schema") {
            offered.insert("$schema".to_string(), dialect);
        }
        // With an "$id", the inner schema stays a document of its own.
        if !root.contains_key("$id") {
            rebase_references(&mut inner, &format!("/properties/{FIELD}"));
        }
    }
    offered.insert("type".to_string(), json!("object"));
    offered.insert("properties".to_string(), json!({ FIELD: inner }));
    offered.insert("required".to_string(), json!([FIELD]));
    offered.insert("additionalProperties".to_string(), json!(false));
    Value::Object(offered)
}

/// Describes one violation: its location, what was expected, and what was found.
fn violation(above: &str, fault: &ValidationError<'_>) -> String {
    let place = format!("{above}{}", fault.instance_path());
    if let ValidationErrorKind::Required { property } = fault.kind() {
        let name = property.as_str().unwrap_or_default();
        return truncated(&format!("{place}/{name}: is missing"), VIOLATION_CHARS_MAX).to_string();
    }
    let found = fault.instance().to_string();
    let quoted = truncated(&found, QUOTE_CHARS_MAX);
    let dots = if quoted.len() < found.len() { "…" } else { "" };
    let place = if place.is_empty() { "the answer" } else { &place };
    let expected = expected(fault);
    let expected = truncated(&expected, VIOLATION_CHARS_MAX);
    format!("{place}: {expected} (found: {quoted}{dots})")
}

fn expected(fault: &ValidationError<'_>) -> String {
    let Some(choices) = alternatives(fault) else { return expectation(fault) };
    // The alternative with the fewest violations is the one most likely meant.
    let nearest = choices.iter().filter(|faults| !faults.is_empty()).min_by_key(|all| all.len());
    let why = nearest.and_then(|faults| faults.first()).map(|fault| {
        let place = fault.instance_path().as_str();
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        format!("; the nearest one wants: {place}{}", expectation(fault))
    });
    let count = choices.len();
    format!("the value fits none of the {count} allowed shapes{}", why.unwrap_or_default())
}

/// Describes the fault of a schema that is not valid.
fn schema_error(fault: &ValidationError<'_>) -> String {
    let first = alternatives(fault).and_then(|choices| choices.first()?.first()).unwrap_or(fault);
    let found = first.instance().to_string();
    let message = format!("{} (found: {})", expectation(first), truncated(&found, QUOTE_CHARS_MAX));
    truncated(&message, VIOLATION_CHARS_MAX).to_string()
}

/// The violations of each alternative of `anyOf` or `oneOf`.
fn alternatives<'a, 'b>(fault: &'b ValidationError<'a>) -> Option<&'b [Vec<ValidationError<'a>>]>
where
    'a: 'b,
{
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
        fault.kind()
    {
        return Some(context);
    }
    None
}

/// Describes what was expected, without mention of what was found.
fn expectation(fault: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::Enum { options } = fault.kind() {
        return format!("the value is not one of {options}");
    }
    fault.masked_with("the value").to_string()
}
