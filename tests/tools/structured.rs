//! Structured output: supported schemas, validation and acceptance.

use outlast::tools::{AnswerSchema, Delivery, Effect, Offered, OtherCalls, STRUCTURED_OUTPUT};
use outlast::tools::{PermissionMode, SCHEMA_BYTES_MAX};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, assert_fails_with, call, text};

fn asking(schema: Value) -> Bench {
    Bench::with(|settings| {
        settings.acceptance.schema = Some(AnswerSchema::new(schema).expect("a schema"));
    })
}

fn report() -> Value {
    json!({
        "type": "object",
        "properties": {
            "title": { "type": "string", "minLength": 3 },
            "items": { "type": "array", "items": { "type": "object",
                "properties": { "count": { "type": "integer" } }, "required": ["count"] } },
            "mail": { "type": "string", "format": "email" },
        },
        "required": ["title"],
        "additionalProperties": false,
    })
}

async fn give(bench: &Bench, input: Value) -> outlast::tools::ToolOutcome {
    bench.run(STRUCTURED_OUTPUT, input).await
}

/// The input schema that the tool offers to the model.
fn offered(bench: &Bench) -> Value {
    let mut offered = bench.toolbox.definitions().iter();
    let tool = offered.find(|definition| definition.name == STRUCTURED_OUTPUT);
    tool.expect("the tool is offered").input_schema.clone()
}

#[tokio::test]
async fn an_answer_whose_types_have_one_meaning_is_taken() {
    let open = json!({ "type": "object", "properties": { "note": { "type": "string", "nullable": true } } });
    let list = json!({ "type": "array", "items": { "$ref": "#/$defs/n" }, "$defs": { "n": { "type": "integer" } } });
    for (schema, given, wanted) in [
        (
            report(),
            json!({ "title": "Found", "items": "[{\"count\": \"3\"}]", "mail": null }),
            Some(json!({ "title": "Found", "items": [{ "count": 3 }] })),
        ),
        (open.clone(), json!({ "note": null }), Some(json!({ "note": null }))),
        (open, json!({ "note": [] }), None),
        (list, json!({ "answer": ["1", 2] }), Some(json!([1, 2]))),
        (report(), json!({ "title": "Found", "items": [{ "count": "three" }] }), None),
    ] {
        let bench = asking(schema);
        let outcome = give(&bench, given.clone()).await;
        assert_eq!(outcome.is_error, wanted.is_none(), "{given}: {outcome:?}");
        let delivered = wanted.map_or(Delivery::Invalid, Delivery::Answer);
        assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), delivered);
    }
}

#[tokio::test]
async fn a_valid_structured_answer_is_kept_and_accepted_once() {
    let bench = asking(report());
    assert_eq!(offered(&bench), report());
    let answer = json!({ "title": "Found", "items": [{ "count": 3 }], "mail": "no mail at all" });
    let outcome = give(&bench, answer.clone()).await;
    assert!(!outcome.is_error, "{outcome:?}");
    assert_eq!(outcome.detail, json!({ "structured_output": answer }));
    assert_eq!(bench.toolbox.acceptance().structured_output, None, "not before it is settled");
    assert_eq!(
        bench.toolbox.settle_answers(OtherCalls::Succeeded),
        Delivery::Answer(answer.clone())
    );
    assert_eq!(
        bench.toolbox.settle_answers(OtherCalls::Succeeded),
        Delivery::Nothing,
        "it was taken"
    );
    let acceptance = bench.toolbox.acceptance();
    assert_eq!(acceptance.structured_output, Some(answer));
    assert_eq!(acceptance.schema_attempts, Some(1));
}

#[tokio::test]
async fn a_schema_violation_names_every_path_and_what_was_expected() {
    let bench = asking(report());
    let input = json!({ "title": "ab", "items": [{}, { "count": "x" }], "extra": 1 });
    let outcome = give(&bench, input).await;
    for part in [
        "InputValidationError",
        "/title: the value is shorter than 3 characters (found: \"ab\")",
        "/items/0/count: is missing",
        "/items/1/count: the value is not of type \"integer\" (found: \"x\")",
        "'extra'",
    ] {
        assert_fails_with(&outcome, part);
    }
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), Delivery::Invalid);
    assert_eq!(
        bench.toolbox.settle_answers(OtherCalls::Succeeded),
        Delivery::Nothing,
        "a misfit counts once"
    );
    assert_eq!(bench.toolbox.acceptance().schema_attempts, Some(1));
    assert_eq!(bench.toolbox.acceptance().structured_output, None);
}

#[tokio::test]
async fn nulls_are_kept_in_a_structured_answer() {
    let bench = asking(json!({ "type": "object",
        "properties": { "found": { "type": ["string", "null"] } }, "required": ["found"] }));
    assert!(!give(&bench, json!({ "found": null })).await.is_error);
    let answer = Delivery::Answer(json!({ "found": null }));
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), answer);
}

#[tokio::test]
async fn the_last_valid_structured_answer_of_a_reply_wins() {
    let bench = asking(report());
    give(&bench, json!({ "title": "first" })).await;
    give(&bench, json!({ "title": "second" })).await;
    give(&bench, json!({ "title": 3 })).await;
    let second = json!({ "title": "second" });
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), Delivery::Answer(second));
    assert_eq!(bench.toolbox.acceptance().schema_attempts, Some(3));
}

#[tokio::test]
async fn a_structured_answer_beside_a_failed_call_is_not_accepted() {
    let bench = asking(report());
    let outcome = give(&bench, json!({ "title": "all done" })).await;
    assert!(text(&outcome).contains("unless another call of the same reply failed"));
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Failed), Delivery::Invalid);
    assert_eq!(bench.toolbox.acceptance().structured_output, None);
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), Delivery::Nothing, "nor later");
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Failed), Delivery::Nothing);
}

#[tokio::test]
async fn many_schema_violations_make_a_short_message() {
    let bench = asking(json!({ "type": "object",
        "properties": { "all": { "items": { "type": "integer" } } } }));
    let input = json!({ "all": vec!["x".repeat(10_000); 50] });
    let outcome = give(&bench, input).await;
    let told = text(&outcome);
    assert_fails_with(&outcome, "/all/9: ");
    assert_fails_with(&outcome, "\n- and more\n");
    assert!(!told.contains("/all/10: ") && told.len() < 3_000, "{} bytes", told.len());
    let few = text(&give(&bench, json!({ "all": ["x"] })).await);
    assert!(!few.contains("and more"), "{few}");
}

#[tokio::test]
async fn the_closest_alternative_of_a_schema_is_explained() {
    let bench = asking(json!({ "type": "object", "properties": { "end": { "anyOf": [
        { "type": "object", "required": ["a", "b", "c"] },
        { "type": "object", "properties": { "code": { "type": "integer" } } },
    ] } } }));
    let outcome = give(&bench, json!({ "end": { "code": "0" } })).await;
    assert_fails_with(&outcome, "/end: the value fits none of the 2 allowed shapes");
    assert_fails_with(&outcome, "/end/code: the value is not of type \"integer\"");
}

#[tokio::test]
async fn non_object_schemas_are_wrapped_in_a_field_and_unwrapped_again() {
    let list = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array", "items": { "$ref": "#/$defs/item" },
        "$defs": { "item": { "type": "object", "properties": {
            "next": { "$ref": "#/$defs/item" }, "$ref": { "const": { "$ref": "#/kept" } } } } } });
    let bench = asking(list.clone());
    let offered = offered(&bench);
    assert_eq!(offered["type"], "object");
    assert_eq!(offered["required"], json!(["answer"]));
    assert_eq!(offered["$schema"], list["$schema"]);
    let inner = &offered["properties"]["answer"];
    assert_eq!(inner["items"]["$ref"], "#/properties/answer/$defs/item");
    let item = &inner["$defs"]["item"]["properties"];
    assert_eq!(item["next"]["$ref"], "#/properties/answer/$defs/item");
    assert_eq!(item["$ref"]["const"]["$ref"], "#/kept", "a value, no reference");
    jsonschema::validator_for(&offered).expect("its references still lead somewhere");

    assert!(!give(&bench, json!({ "answer": [{ "next": {} }] })).await.is_error);
    let answer = Delivery::Answer(json!([{ "next": {} }]));
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), answer);
    let wrong = give(&bench, json!({ "answer": [{ "next": 4 }] })).await;
    assert_fails_with(&wrong, "/answer/0/next: the value is not of type \"object\"");
    assert_fails_with(&give(&bench, json!({ "rows": [] })).await, "the one field `answer`");
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), Delivery::Invalid);
}

#[test]
fn a_wrapped_schema_with_an_id_keeps_its_references() {
    let list = json!({ "$id": "urn:list", "type": "array", "items": { "$ref": "#/$defs/item" },
        "$defs": { "item": { "type": "string" } } });
    let offered = offered(&asking(list.clone()));
    assert_eq!(offered["properties"]["answer"], list);
    let validator = jsonschema::validator_for(&offered).expect("its references lead somewhere");
    assert!(validator.is_valid(&json!({ "answer": ["x"] })));
    assert!(!validator.is_valid(&json!({ "answer": [1] })));
}

#[tokio::test]
async fn schema_formats_are_annotations_in_every_dialect() {
    let bench = asking(json!({ "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object", "properties": { "mail": { "type": "string", "format": "email" } } }));
    assert!(!give(&bench, json!({ "mail": "none" })).await.is_error);
}

#[tokio::test]
async fn an_unwrapped_answer_is_accepted_when_it_is_valid() {
    let either = json!({ "anyOf": [
        { "type": "object", "required": ["ok"] }, { "type": "object", "required": ["error"] } ] });
    let bench = asking(either);
    assert!(!give(&bench, json!({ "error": "none" })).await.is_error);
    let answer = Delivery::Answer(json!({ "error": "none" }));
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), answer);
    assert!(give(&bench, json!({ "neither": 1 })).await.is_error);
}

#[test]
fn schemas_are_always_offered_as_objects() {
    // schema, whether it is offered as it is
    let table = [
        (json!({ "type": "object" }), true),
        (json!({ "properties": { "a": {} } }), true),
        (json!({ "type": "object", "properties": { "a b": {} } }), false),
        (json!({ "type": "object", "allOf": [{}] }), false),
        (json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "object" } } }), false),
        (json!({ "type": ["object", "null"] }), false),
        (json!({ "type": "string" }), false),
        (json!({ "enum": [{ "a": 1 }], "properties": {} }), false),
        (json!({}), false),
        (json!(true), false),
    ];
    for (schema, plain) in table {
        let offered = offered(&asking(schema.clone()));
        assert_eq!(offered["type"], "object", "{schema}");
        assert_eq!(offered["properties"].get("answer").is_none(), plain, "{schema}: {offered}");
    }
}

#[test]
fn an_unusable_schema_is_rejected_with_its_json_pointer() {
    // schema, pointer, part of why
    let table = [
        (json!(false), "", "nothing satisfies it"),
        (json!("object"), "", "is an object"),
        (json!({ "name": "an example" }), "", "no keyword of JSON Schema"),
        (json!({ "type": "objekt" }), "/type", "is not one of [\"array\""),
        (
            json!({ "properties": { "a/b": { "minLength": -1 } } }),
            "/properties/a~1b/minLength",
            "-1",
        ),
        (json!({ "properties": { "a": { "pattern": "(" } } }), "/properties/a/pattern", "regex"),
        (
            json!({ "properties": { "a": { "$ref": "https://example.com/a.json" } } }),
            "/properties/a/$ref",
            "another document",
        ),
        (
            json!({ "items": [{ "$ref": "other.json#/a" }] }),
            "/items/0/$ref",
            "none; put it into \"$defs\"",
        ),
        (json!({ "items": { "$ref": "#/$defs/no" } }), "/items/$ref", "no \"#/$defs/no\""),
        (json!({ "$ref": "#" }), "/$ref", "nothing but itself"),
        (
            json!({ "items": { "$ref": "#/$defs/a" }, "$defs": {
                "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
            "/items/$ref",
            "nothing but itself",
        ),
        (json!({ "items": { "$ref": "#nowhere" } }), "/items/$ref", "no \"#nowhere\""),
        (json!({ "$schema": "https://example.com/own", "type": "object" }), "/$schema", "own"),
        (json!({ "enum": ["x".repeat(SCHEMA_BYTES_MAX)] }), "", "make it smaller"),
    ];
    for (schema, pointer, why) in table {
        let shown: String = schema.to_string().chars().take(200).collect();
        let bad = AnswerSchema::new(schema).expect_err(&shown);
        assert_eq!(bad.pointer, pointer, "{shown}: {bad}");
        assert!(bad.why.contains(why), "{shown}: {bad}");
    }
}

#[test]
fn a_schema_is_taken_out_of_the_form_of_other_programs() {
    let plain = report();
    for package in [
        json!({ "type": "json_schema", "schema": plain }),
        json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": plain } }),
        json!({ "name": "x", "strict": true, "schema": plain }),
    ] {
        let schema = AnswerSchema::new(package).expect("a schema");
        assert_eq!(schema.source(), &plain);
    }
    let own = json!({ "properties": { "schema": {} }, "schema": { "type": "array" } });
    assert_eq!(AnswerSchema::new(own.clone()).expect("a schema").source(), &own);
}

#[tokio::test]
async fn a_schema_may_be_recursive() {
    let tree = json!({ "type": "object", "properties": {
        "name": { "type": "string" }, "children": { "items": { "$ref": "#" } } } });
    let bench = asking(tree);
    let outcome = give(&bench, json!({ "children": [{ "children": [{ "name": 1 }] }] })).await;
    assert_fails_with(&outcome, "/children/0/children/0/name");
    // Percent signs in a reference are decoded, and an inner document may name itself.
    for schema in [
        json!({ "$ref": "#/$defs/a%20b", "$defs": { "a b": { "type": "object" } } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$id": "urn:a", "$ref": "#/$defs/b",
            "$defs": { "b": { "type": "object" } } } } }),
    ] {
        AnswerSchema::new(schema).expect("a schema");
    }
}

#[tokio::test]
async fn no_setting_removes_the_structured_output_tool() {
    let bench = Bench::with(|settings| {
        settings.acceptance.schema = Some(AnswerSchema::new(report()).expect("a schema"));
        settings.offered = Offered::Only(Vec::new());
        settings.permissions.mode = PermissionMode::Plan;
        settings.permissions.deny = vec!["*".to_owned()];
    });
    let names: Vec<_> = bench.toolbox.definitions().iter().map(|tool| &tool.name).collect();
    assert_eq!(names, [STRUCTURED_OUTPUT]);
    // Of a call that does not fit, too: it is checked, and counted, when it runs.
    let call = call(STRUCTURED_OUTPUT, json!({}));
    bench.toolbox.admit(&call).expect("it needs no leave");
    bench.toolbox.admit(&call).expect("it needs no leave");
    assert_eq!(bench.toolbox.acceptance().schema_attempts, Some(0));
    // It is never started before its reply is whole.
    assert_eq!(bench.toolbox.effect(&call.name), Effect::Changes);
}

#[tokio::test]
async fn a_truncated_structured_answer_does_not_count() {
    let bench = asking(report());
    let cancel = CancellationToken::new();
    cancel.cancel();
    let input = json!({ "title": "too late" });
    let outcome = bench.run_until(STRUCTURED_OUTPUT, input, cancel).await;
    assert_fails_with(&outcome, "Interrupted");
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), Delivery::Nothing);
    assert_eq!(bench.toolbox.acceptance().schema_attempts, Some(0));
}

#[tokio::test]
async fn without_a_schema_the_structured_output_tool_is_not_offered() {
    let bench = Bench::open();
    assert_fails_with(&give(&bench, json!({})).await, "No such tool available: StructuredOutput");
    assert_eq!(bench.toolbox.settle_answers(OtherCalls::Succeeded), Delivery::Nothing);
    assert_eq!(bench.toolbox.acceptance(), outlast::tools::Acceptance::default());
}
