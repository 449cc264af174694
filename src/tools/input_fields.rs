//! The fields of the inputs of the built-in tools, from which their schemas are made.

use serde_json::{Value, json};

/// A field of the input of a tool.
pub(super) struct InputField {
    pub(super) name: &'static str,
    r#type: FieldType,
    /// The description for the model. Empty if the name is sufficient.
    description: &'static str,
    pub(super) is_required: bool,
}

/// The type of a field's value.
#[derive(Clone, Copy)]
pub(super) enum FieldType {
    Text,
    /// A text that is not empty.
    Name,
    /// A list of texts that are not empty.
    Names,
    Flag,
    /// A whole number, with its minimum.
    Whole(u32),
    /// A whole number, with its maximum.
    WholeUpTo(u32),
    Choice(&'static [&'static str]),
    Todos,
}

pub(super) const fn required(
    name: &'static str,
    r#type: FieldType,
    description: &'static str,
) -> InputField {
    InputField { name, r#type, description, is_required: true }
}

pub(super) const fn optional(
    name: &'static str,
    r#type: FieldType,
    description: &'static str,
) -> InputField {
    InputField { name, r#type, description, is_required: false }
}

impl InputField {
    /// Returns the JSON schema of its value.
    pub(super) fn schema(&self) -> Value {
        let mut schema = match self.r#type {
            FieldType::Text => json!({ "type": "string" }),
            FieldType::Name => json!({ "type": "string", "minLength": 1 }),
            FieldType::Names => {
                json!({ "type": "array", "items": { "type": "string", "minLength": 1 } })
            }
            FieldType::Flag => json!({ "type": "boolean" }),
            FieldType::Whole(least) => json!({ "type": "integer", "minimum": least }),
            FieldType::WholeUpTo(most) => {
                json!({ "type": "integer", "minimum": 0, "maximum": most })
            }
            FieldType::Choice(names) => json!({ "type": "string", "enum": names }),
            FieldType::Todos => todos(),
        };
        if !self.description.is_empty() {
            schema["description"] = self.description.into();
        }
        schema
    }
}

fn todos() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "content": { "type": "string", "minLength": 1 },
                "status": { "type": "string", "enum": ["pending", "in_progress", "completed"] },
                "activeForm": { "type": "string", "description": "the same as -ing form" },
            },
            "required": ["content", "status"],
            "additionalProperties": false,
        },
    })
}
