//! The shape that the answer of a run must have. Pure.
//!
//! The Messages API takes only objects as the input of a tool, and no `anyOf` and the like at
//! their root. A schema of any other kind is wrapped, so that the model gives its answer in one
//! field; whoever asked for it sees the answer alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use jsonschema::Validator;
use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::{Map, Value, json};

use super::text::clipped;

/// The field that holds an answer which is no plain object.
const FIELD: &str = "answer";

/// The largest schema, in bytes of JSON: every request carries it.
pub const SCHEMA_BYTES_MAX: usize = 128 << 10;

/// How many violations the model is told of at once.
const VIOLATIONS_MAX: usize = 10;

/// How long each may be, in characters.
const VIOLATION_CHARS_MAX: usize = 300;

/// How much of a wrong value is quoted, in characters.
const QUOTE_CHARS_MAX: usize = 80;

/// What refers to other schemas.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// What holds values, and no schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// The keywords of which every real schema has at least one.
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

/// A JSON Schema that an answer must satisfy. Clones share it.
#[derive(Clone, Debug)]
pub struct AnswerSchema(Arc<Checked>);

#[derive(Debug)]
struct Checked {
    /// What the model is given as the input of the tool.
    offered: Value,
    validator: Validator,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The answer is the input of the tool.
    Plain,
    /// The answer is in one field of it.
    Wrapped,
}

/// Why a value cannot serve as the schema of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct BadSchema {
    /// Where in it, as a JSON pointer. Empty: all of it.
    pub pointer: String,
    /// What is wrong there, and what to do about it.
    pub why: String,
}

impl BadSchema {
    fn at(pointer: impl Into<String>, why: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), why: why.into() }
    }
}

impl AnswerSchema {
    /// Checks a schema. Fetches nothing: whatever it refers to must be in it.
    ///
    /// # Errors
    /// What is wrong with it, and where.
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
        check_root(&schema)?;
        check_references(&schema)?;
        let form = form(&schema);
        let (checked, offered) = match form {
            Form::Plain => {
                let mut schema = schema;
                schema["type"] = json!("object");
                (schema.clone(), schema)
            }
            Form::Wrapped => {
                let offered = wrap(&schema);
                (schema, offered)
            }
        };
        let validator = jsonschema::options()
            // An annotation, as the standard has it.
            .should_validate_formats(false)
            .build(&checked)
            .map_err(|fault| {
                let why = format!("{}; correct the schema", mistake(&fault));
                BadSchema::at(fault.instance_path().as_str(), why)
            })?;
        Ok(Self(Arc::new(Checked { offered, validator, form })))
    }

    /// The schema of the tool's input.
    pub(super) fn offered(&self) -> &Value {
        &self.0.offered
    }

    /// Takes the answer out of a call's input.
    ///
    /// # Errors
    /// What does not fit, a line each, with its place and what was expected there.
    pub(super) fn read(&self, input: &Value) -> Result<Value, Vec<String>> {
        let (answer, above) = match (self.0.form, only_field(input)) {
            (Form::Plain, _) => (input, ""),
            (Form::Wrapped, Some(answer)) => (answer, "/answer"),
            // Some models leave the wrapping out. What fits is what was asked for.
            (Form::Wrapped, None) if self.0.validator.is_valid(input) => return Ok(input.clone()),
            (Form::Wrapped, None) => {
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

/// A reference, and where it stands.
struct Reference<'a> {
    pointer: String,
    target: &'a str,
}

fn check_references(schema: &Value) -> Result<(), BadSchema> {
    let mut references = Vec::new();
    find_references(schema, &mut String::new(), &mut references);
    // An inner "$id" moves what "#" means; then only the validator can tell.
    let has_ids = schema.as_object().is_some_and(|root| root.values().any(holds_id));
    for Reference { pointer, target } in references {
        let Some(fragment) = target.strip_prefix('#') else {
            return Err(BadSchema::at(
                pointer,
                format!(
                    "{:?} is in another document, and outlast fetches none; put it into \"$defs\" \
                     and refer to \"#/$defs/NAME\"",
                    clipped(target, QUOTE_CHARS_MAX)
                ),
            ));
        };
        if has_ids || !(fragment.is_empty() || fragment.starts_with('/')) {
            continue;
        }
        match lookup(schema, target) {
            None => {
                let target = clipped(target, QUOTE_CHARS_MAX);
                let why = format!("there is no {target:?} in the schema; correct the reference");
                return Err(BadSchema::at(pointer, why));
            }
            Some(place) if is_endless(schema, place) => {
                let why = "it refers to nothing but itself; describe a value";
                return Err(BadSchema::at(pointer, why));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn find_references<'a>(schema: &'a Value, pointer: &mut String, found: &mut Vec<Reference<'a>>) {
    let mut below = |name: &str, value: &'a Value, found: &mut Vec<Reference<'a>>| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::String(target) if REFERENCES.contains(&name) => {
                found.push(Reference { pointer: pointer.clone(), target });
            }
            _ => find_references(value, pointer, found),
        }
        pointer.truncate(length);
    };
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !DATA.contains(&name.as_str())) {
                below(name, value, found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                below(&index.to_string(), value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn holds_id(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.get("$id").is_some_and(Value::is_string) || fields.values().any(holds_id)
        }
        Value::Array(items) => items.iter().any(holds_id),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What a reference such as `#/$defs/a` leads to.
fn lookup<'a>(schema: &'a Value, target: &str) -> Option<&'a Value> {
    schema.pointer(&percent_decoded(target.strip_prefix('#')?)?)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [char::from(rest.next()?), char::from(rest.next()?)];
        let [high, low] = [digits[0].to_digit(16)?, digits[1].to_digit(16)?];
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Whether a chain of references that begins here comes round to itself.
fn is_endless<'a>(schema: &'a Value, mut place: &'a Value) -> bool {
    let mut seen = BTreeSet::new();
    while let Some(target) = place.get("$ref").and_then(Value::as_str) {
        if !seen.insert(target) {
            return true;
        }
        let Some(next) = lookup(schema, target) else { return false };
        place = next;
    }
    false
}

/// Whether the service takes a schema for the input of a tool as it is.
fn form(schema: &Value) -> Form {
    let Some(root) = schema.as_object() else { return Form::Wrapped };
    let has = |names: &[&str]| names.iter().any(|name| root.contains_key(*name));
    let properties = root.get("properties").and_then(Value::as_object);
    let is_object = match root.get("type") {
        Some(kind) => kind == "object",
        None => properties.is_some() && !has(&["enum", "const"]),
    };
    let is_composed = has(&REFERENCES) || has(&["allOf", "anyOf", "oneOf"]);
    let names_fit = properties.is_none_or(|fields| fields.keys().all(|name| is_plain(name)));
    if is_object && !is_composed && names_fit { Form::Plain } else { Form::Wrapped }
}

/// Whether the service takes this as the name of a field of a tool's input.
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
            move_references(&mut inner);
        }
    }
    offered.insert("type".to_string(), json!("object"));
    offered.insert("properties".to_string(), json!({ FIELD: inner }));
    offered.insert("required".to_string(), json!([FIELD]));
    offered.insert("additionalProperties".to_string(), json!(false));
    Value::Object(offered)
}

/// Makes references from the root follow the schema to where it is now.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut().filter(|(name, _)| !DATA.contains(&&***name)) {
                match value {
                    Value::String(target) if name == "$ref" => {
                        if let Some(rest) = target.strip_prefix('#')
                            && (rest.is_empty() || rest.starts_with('/'))
                        {
                            *target = format!("#/properties/{FIELD}{rest}");
                        }
                    }
                    _ => move_references(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(move_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// One violation: its place, what was expected there, and what was found.
fn violation(above: &str, fault: &ValidationError<'_>) -> String {
    let place = format!("{above}{}", fault.instance_path());
    if let ValidationErrorKind::Required { property } = fault.kind() {
        let name = property.as_str().unwrap_or_default();
        return clipped(&format!("{place}/{name}: is missing"), VIOLATION_CHARS_MAX).to_string();
    }
    let found = fault.instance().to_string();
    let quoted = clipped(&found, QUOTE_CHARS_MAX);
    let dots = if quoted.len() < found.len() { "…" } else { "" };
    let place = if place.is_empty() { "the answer" } else { &place };
    let expected = expected(fault);
    let expected = clipped(&expected, VIOLATION_CHARS_MAX);
    format!("{place}: {expected} (found: {quoted}{dots})")
}

fn expected(fault: &ValidationError<'_>) -> String {
    let choices = match fault.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context
        }
        _ => return fault.masked_with("the value").to_string(),
    };
    // The choice that is missed by least is the likeliest to have been meant.
    let nearest = choices.iter().filter(|faults| !faults.is_empty()).min_by_key(|all| all.len());
    let why = nearest.and_then(|faults| faults.first()).map(|fault| {
        let place = fault.instance_path().as_str();
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        format!("; the nearest one wants: {place}{}", fault.masked_with("the value"))
    });
    let count = choices.len();
    format!("the value fits none of the {count} allowed shapes{}", why.unwrap_or_default())
}

/// What is wrong with a schema itself.
fn mistake(fault: &ValidationError<'_>) -> String {
    let first = match fault.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context.first().and_then(|faults| faults.first())
        }
        _ => None,
    };
    let told = first.unwrap_or(fault).to_string();
    clipped(&told, VIOLATION_CHARS_MAX).to_string()
}
