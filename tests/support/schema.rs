//! Validates the output of runs against the published schemas.

use std::sync::LazyLock;

use jsonschema::Validator;
use outlast::messages::{result_schema, stream_schema};
use serde_json::{Value, json};

static RESULT: LazyLock<Validator> = LazyLock::new(|| closed(result_schema()));
static STREAM: LazyLock<Validator> = LazyLock::new(|| closed(stream_schema()));

/// Checks a result object.
#[track_caller]
pub(crate) fn check_result(result: &Value) {
    check(&RESULT, result);
}

/// Checks a line of standard output. Reports and results of chosen fields have no schema.
#[track_caller]
pub(crate) fn check_message(message: &Value) {
    match message["type"].as_str() {
        None | Some("config" | "doctor") => {}
        // The schema of results is more precise about what is wrong.
        Some("result") => check(&RESULT, message),
        Some(_) => check(&STREAM, message),
    }
}

#[track_caller]
fn check(validator: &Validator, value: &Value) {
    if let Err(error) = validator.validate(value) {
        panic!("{}: {error} in {value:#}", error.instance_path());
    }
}

/// The validator of a schema with which unknown fields are errors: the published schema allows
/// them, so that it would not notice fields that it lacks.
fn closed(mut schema: Value) -> Validator {
    close(&mut schema);
    forbid_unknown(&mut schema);
    jsonschema::validator_for(&schema).expect("it is a schema")
}

/// Closes all objects below this schema. Parts of a combined schema (`oneOf`, `$ref`) stay open:
/// each has only some of the fields.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match name.as_str() {
                    "properties" => {
                        let fields = member.as_object_mut().into_iter().flatten();
                        fields.for_each(|(_, field)| forbid_unknown(field));
                    }
                    "items" | "additionalProperties" => forbid_unknown(member),
                    _other => {}
                }
                close(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn forbid_unknown(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    let combined = ["$ref", "allOf", "anyOf", "oneOf", "properties"];
    if combined.iter().any(|keyword| members.contains_key(*keyword)) {
        members.insert("unevaluatedProperties".to_owned(), json!(false));
    }
}
