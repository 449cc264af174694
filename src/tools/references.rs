//! Validates references within a JSON Schema, and adjusts them when the schema is moved. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::text::truncated;

/// The maximum length of a quoted reference, in characters.
const QUOTE_CHARS_MAX: usize = 80;

/// The keywords that refer to other schemas.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that contain values, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

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
    pub(super) fn at(pointer: impl Into<String>, why: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), why: why.into() }
    }
}

/// A reference, and its location.
struct SchemaReference<'a> {
    pointer: String,
    target: &'a str,
}

/// Checks that every reference resolves within the same document.
///
/// # Errors
/// The first reference that does not resolve or refers only to itself, and its location.
pub(super) fn check(schema: &Value) -> Result<(), BadSchema> {
    let mut references = Vec::new();
    collect_references(schema, &mut String::new(), &mut references);
    // An inner "$id" changes the base of "#"; then only the validator can resolve references.
    let has_ids = schema.as_object().is_some_and(|root| root.values().any(holds_id));
    let mut finite = BTreeSet::new();
    for SchemaReference { pointer, target } in references {
        let Some(fragment) = target.strip_prefix('#') else {
            return Err(BadSchema::at(
                pointer,
                format!(
                    "{:?} is in another document, and outlast fetches none; put it into \"$defs\" \
                     and refer to \"#/$defs/NAME\"",
                    truncated(target, QUOTE_CHARS_MAX)
                ),
            ));
        };
        if has_ids || !(fragment.is_empty() || fragment.starts_with('/')) {
            continue;
        }
        match lookup(schema, target) {
            None => {
                let target = truncated(target, QUOTE_CHARS_MAX);
                let why = format!("there is no {target:?} in the schema; correct the reference");
                return Err(BadSchema::at(pointer, why));
            }
            Some(place) if is_endless(schema, place, &mut finite) => {
                let why = "it refers to nothing but itself; describe a value";
                return Err(BadSchema::at(pointer, why));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn collect_references<'a>(
    schema: &'a Value,
    pointer: &mut String,
    found: &mut Vec<SchemaReference<'a>>,
) {
    let mut below = |name: &str, value: &'a Value, found: &mut Vec<SchemaReference<'a>>| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        if let Some(target) = value.as_str().filter(|_| REFERENCES.contains(&name)) {
            found.push(SchemaReference { pointer: pointer.clone(), target });
        } else {
            collect_references(value, pointer, found);
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

/// Resolves a reference such as `#/$defs/a`.
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

/// True if a chain of references from here is circular.
///
/// `finite` has the targets that are known to end: each is followed once, however many chains
/// share it.
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
pub(super) fn rebase(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut().filter(|(name, _)| !DATA.contains(&&***name)) {
                if name == "$ref"
                    && let Some(rest) = value.as_str().and_then(|target| target.strip_prefix('#'))
                    && (rest.is_empty() || rest.starts_with('/'))
                {
                    *value = Value::String(format!("#{place}{rest}"));
                } else {
                    rebase(value, place);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rebase(item, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
