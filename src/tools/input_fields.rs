//! The fields of the inputs of the built-in tools, from which their schemas are made, in the order
//! in which the model sees them.

use serde_json::{Value, json};

use FieldType::{Choice, Flag, Name, Names, Text, Todos, Whole, WholeUpTo};

pub(super) const BASH: &[InputField] = &[
    required("command", Text, ""),
    optional("timeout", Whole(1), "milliseconds"),
    optional("description", Text, "what it does, in 5 to 10 words"),
    optional("run_in_background", Flag, ""),
];

pub(super) const BASH_OUTPUT: &[InputField] = &[
    required("bash_id", Name, "such as bash_1"),
    optional(
        "filter",
        Text,
        "only lines that match this regular expression; the others are not shown later either",
    ),
    optional("timeout", WholeUpTo(600_000), "milliseconds"),
];

pub(super) const KILL_SHELL: &[InputField] = &[required("shell_id", Name, "such as bash_1")];

pub(super) const READ: &[InputField] = &[
    required("file_path", Name, ""),
    optional("offset", Whole(0), "first line, or cell of a notebook"),
    optional("limit", Whole(1), ""),
    optional("pages", Text, "of a PDF, e.g. 1-5"),
];

pub(super) const WRITE: &[InputField] =
    &[required("file_path", Name, ""), required("content", Text, "")];

pub(super) const EDIT: &[InputField] = &[
    required("file_path", Name, ""),
    required("old_string", Text, ""),
    required("new_string", Text, ""),
    optional("replace_all", Flag, ""),
];

pub(super) const NOTEBOOK_EDIT: &[InputField] = &[
    required("notebook_path", Name, ""),
    optional("cell_id", Text, "as Read shows it; a new cell follows it"),
    optional("new_source", Text, ""),
    optional("cell_type", Choice(&["code", "markdown"]), ""),
    optional("edit_mode", Choice(&["replace", "insert", "delete"]), "default replace"),
];

pub(super) const GLOB: &[InputField] =
    &[required("pattern", Text, ""), optional("path", Text, "folder; default: working directory")];

pub(super) const GREP: &[InputField] = &[
    required("pattern", Text, ""),
    optional("path", Text, "file or folder; default: working directory"),
    optional("glob", Text, "only such files, e.g. *.{ts,tsx}"),
    optional("type", Text, "only this kind, e.g. rust, py, js"),
    optional("output_mode", Choice(&["files_with_matches", "content", "count"]), ""),
    optional("-i", Flag, "ignore case"),
    optional("-n", Flag, "line numbers; default true"),
    optional("-A", Whole(0), "lines after a match"),
    optional("-B", Whole(0), "lines before"),
    optional("-C", Whole(0), "lines around"),
    optional("head_limit", Whole(0), "at most so many lines or files; default 250, 0 = all"),
    optional("multiline", Flag, "a match may span lines"),
];

pub(super) const WEB_FETCH: &[InputField] = &[
    required("url", Name, "whole, with https:// or http://"),
    optional("prompt", Text, "what you want to know from it"),
];

pub(super) const WEB_SEARCH: &[InputField] = &[
    required("query", Name, ""),
    optional("allowed_domains", Names, "only results from these"),
    optional("blocked_domains", Names, "no results from these"),
];

pub(super) const TOOL_SEARCH: &[InputField] =
    &[required("query", Name, ""), optional("max_results", Whole(1), "default 5, at most 50")];

pub(super) const TODO_WRITE: &[InputField] = &[required("todos", Todos, "")];

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
enum FieldType {
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

const fn required(name: &'static str, r#type: FieldType, description: &'static str) -> InputField {
    InputField { name, r#type, description, is_required: true }
}

const fn optional(name: &'static str, r#type: FieldType, description: &'static str) -> InputField {
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
