//! Renames the fields and the choices of inputs of built-in tools from the names that other programs
//! have for them to those of the schema. Pure.

use serde_json::{Map, Value};

/// Names that models give to fields, as [`bare`] writes them, and the field that is meant: the
/// first one that the tool has.
#[rustfmt::skip]
const ALIASES: [(&[&str], &[&str]); 29] = [
    (&["path"], &["file_path", "notebook_path"]),
    (&["absolutepath"], &["file_path", "notebook_path", "path"]),
    (&["file", "filename", "targetfile", "filepaths"], &["file_path", "notebook_path"]),
    (&["paths"], &["path", "file_path"]),
    (&["uri"], &["file_path", "url"]),
    (&["filepath"], &["notebook_path"]),
    (&["source", "cellsource"], &["new_source"]),
    (&["cell", "cellnumber", "cellindex"], &["cell_id"]),
    (&["directory", "dir", "folder", "directorypath", "dirpath"], &["path"]),
    (&["cmd", "script"], &["command"]),
    (&["isbackground", "background"], &["run_in_background"]),
    (&["oldstr", "oldtext", "search", "find"], &["old_string", "pattern"]),
    (&["before", "original"], &["old_string"]),
    (&["newstr", "newtext", "replace", "replacement", "after", "updated"], &["new_string"]),
    (&["contents", "text", "filetext", "filecontent", "filecontents"], &["content", "pattern"]),
    (&["body", "code", "data"], &["content"]),
    (&["bashid"], &["shell_id"]),
    (&["shellid"], &["bash_id"]),
    (&["taskid"], &["bash_id", "shell_id"]),
    (&["context"], &["-C"]),
    (&["ignorecase", "caseinsensitive"], &["-i"]),
    (&["include", "includes", "includepattern"], &["glob"]),
    (&["filepattern", "glob", "globs", "globpattern"], &["glob", "pattern"]),
    (&["query", "regex", "regexpattern", "searchterm", "searchpattern", "patterns"], &["pattern"]),
    (&["q", "queries", "keywords", "searchquery", "toolname"], &["query"]),
    (&["startline", "startlineoneindexed"], &["offset"]),
    (&["items", "plan", "tasks", "todo", "todolist"], &["todos"]),
    (&["step", "task"], &["content"]),
    (&["state"], &["status"]),
];

/// The names among these that say that the value is a number, which may be written as text.
const NUMBERS: [&str; 2] = ["cellnumber", "cellindex"];

/// Names that models give to choices, as [`bare`] writes them, and the choice that is meant.
const CHOICES: [(&[&str], &str); 6] = [
    (&["done", "complete", "finished"], "completed"),
    (&["notstarted", "todo", "open"], "pending"),
    (&["active", "started", "doing"], "in_progress"),
    (&["files", "filenames", "paths", "list"], "files_with_matches"),
    (&["lines", "matches", "matchinglines"], "content"),
    (&["counts"], "count"),
];

/// Renames the fields that an object of the schema does not have to those that are meant, unless
/// these are there.
pub(super) fn rename_fields(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let Some(known) = schema["properties"].as_object() else { return };
            for given in fields.keys().cloned().collect::<Vec<_>>() {
                let meant = meant_field(&given, known);
                let is_free = |name: &&str| fields.get(*name).is_none_or(Value::is_null);
                if let Some(meant) = meant.filter(is_free)
                    && let Some(value) = fields.remove(&given)
                {
                    let is_number = NUMBERS.contains(&bare(&given).as_str());
                    let value = if is_number { unquoted(value) } else { value };
                    fields.insert(meant.to_owned(), value);
                }
            }
            for (name, field) in fields {
                rename_fields(field, &schema["properties"][name.as_str()]);
            }
        }
        Value::Array(items) => {
            for item in items {
                rename_fields(item, &schema["items"]);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A number that is written as text. Other values stay.
fn unquoted(value: Value) -> Value {
    let number = value.as_str().and_then(|text| text.trim().parse::<u64>().ok());
    number.map_or(value, Value::from)
}

/// The field of a tool that is meant by an unknown name.
fn meant_field<'a>(given: &str, known: &'a Map<String, Value>) -> Option<&'a str> {
    if known.contains_key(given) {
        return None;
    }
    let given = bare(given);
    let same = known.keys().find(|name| bare(name) == given);
    let meant = ALIASES.iter().find(|(aliases, _)| aliases.contains(&given.as_str()));
    let alias =
        || meant?.1.iter().find_map(|name| known.get_key_value(*name).map(|(name, _)| name));
    same.or_else(alias).map(String::as_str)
}

/// A name as spellings are compared: in lower case, without `_`, `-` and blanks.
pub(super) fn bare(name: &str) -> String {
    name.to_lowercase().replace(['_', '-', ' '], "")
}

/// Spells the choices of a schema as it does: `in-progress` is `in_progress`.
pub(super) fn spell_choices(value: &mut Value, schema: &Value) {
    match value {
        Value::String(text) => {
            let choices = || schema["enum"].as_array().into_iter().flatten();
            let is_known = choices().any(|choice| choice == &**text);
            let given = bare(text);
            let alias = CHOICES.iter().find(|(others, _)| others.contains(&given.as_str()));
            let meant = choices().filter_map(Value::as_str).find(|choice| {
                bare(choice) == given || alias.is_some_and(|(_, meant)| meant == choice)
            });
            if let Some(meant) = meant.filter(|_| !is_known) {
                meant.clone_into(text);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                spell_choices(field, &schema["properties"][name.as_str()]);
            }
        }
        Value::Array(items) => {
            for item in items {
                spell_choices(item, &schema["items"]);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
