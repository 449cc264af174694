//! Converts a call's JSON input to a typed request, or reports which field is wrong and why.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::OnceLock;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{Draft, Validator};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::json;

use super::bash_forms;
use super::catalog::BuiltinTool;
use super::coercion::coerce;
use super::input_forms::{adapt_values, has_unknown_form};
use super::input_names::rename_fields;
use super::outcome::ToolError;
use super::text::truncated;

/// The maximum length of the name of an unknown field that is shown, in characters.
const NAME_CHARS_MAX: usize = 60;

/// A validated tool input.
#[derive(Debug, Deserialize)]
pub(super) enum ToolRequest {
    Bash(BashInput),
    BashOutput(BashOutputInput),
    KillShell(KillShellInput),
    Read(ReadInput),
    Write(WriteInput),
    Edit(EditInput),
    NotebookEdit(NotebookEditInput),
    Glob(GlobInput),
    Grep(GrepInput),
    WebFetch(WebFetchInput),
    WebSearch(WebSearchInput),
    ToolSearch(ToolSearchInput),
    TodoWrite(TodoInput),
}

impl ToolRequest {
    /// Sets the path that the tool works on, if it takes one.
    pub(super) fn set_path(&mut self, path: String) {
        match self {
            Self::Read(read) => read.file_path = path,
            Self::Write(write) => write.file_path = path,
            Self::Edit(edit) => edit.file_path = path,
            Self::NotebookEdit(edit) => edit.notebook_path = path,
            Self::Glob(glob) => glob.path = Some(path),
            Self::Grep(grep) => grep.path = Some(path),
            Self::Bash(_)
            | Self::BashOutput(_)
            | Self::KillShell(_)
            | Self::WebFetch(_)
            | Self::WebSearch(_)
            | Self::ToolSearch(_)
            | Self::TodoWrite(_) => {}
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct BashInput {
    pub(super) command: String,
    /// In milliseconds.
    pub(super) timeout: Option<u64>,
    /// A short description of the command.
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) run_in_background: bool,
    /// True if the call names its folder: then the working directory of later commands stays.
    #[serde(skip)]
    pub(super) has_own_folder: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct BashOutputInput {
    pub(super) bash_id: String,
    /// Only lines that match this are shown.
    pub(super) filter: Option<String>,
    /// The time to wait for the command to end, in milliseconds.
    pub(super) timeout: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KillShellInput {
    pub(super) shell_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReadInput {
    pub(super) file_path: String,
    /// The first line, counted from 1.
    pub(super) offset: Option<u64>,
    pub(super) limit: Option<u64>,
    /// Pages of a PDF, such as `1-5`.
    pub(super) pages: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WriteInput {
    pub(super) file_path: String,
    pub(super) content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct EditInput {
    pub(super) file_path: String,
    pub(super) old_string: String,
    pub(super) new_string: String,
    #[serde(default)]
    pub(super) replace_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[serde(rename_all = "snake_case")]
pub(super) enum CellType {
    Code,
    Markdown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NotebookEditMode {
    #[default]
    Replace,
    Insert,
    Delete,
}

#[derive(Debug, Deserialize)]
pub(super) struct NotebookEditInput {
    pub(super) notebook_path: String,
    /// The id of the cell; for a new cell, of the one that it follows.
    pub(super) cell_id: Option<String>,
    pub(super) new_source: Option<String>,
    pub(super) cell_type: Option<CellType>,
    #[serde(default)]
    pub(super) edit_mode: NotebookEditMode,
}

#[derive(Debug, Deserialize)]
pub(super) struct GlobInput {
    pub(super) pattern: String,
    pub(super) path: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GrepMode {
    #[default]
    FilesWithMatches,
    Content,
    Count,
}

#[derive(Debug, Deserialize)]
pub(super) struct GrepInput {
    pub(super) pattern: String,
    pub(super) path: Option<String>,
    pub(super) glob: Option<String>,
    #[serde(default, rename = "type", deserialize_with = "text_if_any")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) output_mode: GrepMode,
    #[serde(default, rename = "-i")]
    pub(super) ignore_case: bool,
    #[serde(rename = "-n")]
    pub(super) line_numbers: Option<bool>,
    #[serde(rename = "-A")]
    pub(super) after: Option<usize>,
    #[serde(rename = "-B")]
    pub(super) before: Option<usize>,
    #[serde(rename = "-C")]
    pub(super) around: Option<usize>,
    pub(super) head_limit: Option<usize>,
    /// The number of results that are left out.
    #[serde(skip)]
    pub(super) offset: usize,
    #[serde(default)]
    pub(super) multiline: bool,
}

/// Treats an empty text as absent.
fn text_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

#[derive(Debug, Deserialize)]
pub(super) struct WebFetchInput {
    pub(super) url: String,
}

/// The input of the `WebSearch` tool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WebSearchInput {
    pub query: String,
    #[serde(default, deserialize_with = "domains")]
    pub allowed_domains: Vec<String>,
    #[serde(default, deserialize_with = "domains")]
    pub blocked_domains: Vec<String>,
}

impl WebSearchInput {
    /// Checks a constraint that the schema cannot express: only one list of domains may be given.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.allowed_domains.is_empty() || self.blocked_domains.is_empty() {
            return Ok(());
        }
        Err("give allowed_domains or blocked_domains, not both".into())
    }
}

/// Parses names of domains. Models write some as URLs.
fn domains<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    let bare = |domain: &String| {
        let name = domain.split_once("://").map_or(domain.as_str(), |(_, name)| name);
        name.trim().trim_end_matches('/').to_owned()
    };
    Ok(Vec::<String>::deserialize(input)?.iter().map(bare).collect())
}

/// The input of the `ToolSearch` tool.
#[derive(Debug, Deserialize)]
pub struct ToolSearchInput {
    pub(super) query: String,
    pub(super) max_results: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TodoInput {
    pub(super) todos: Value,
}

/// A valid input, and notes for the model about changes that were made to it.
pub(super) struct ParsedInput {
    pub(super) request: ToolRequest,
    pub(super) notes: Vec<String>,
}

/// Unwraps an input that is the only field of another object, as models write it that see calls in
/// this form.
fn unwrap_input(input: &mut Value, schema: &Value) {
    const WRAPPERS: [&str; 5] = ["input", "parameters", "params", "arguments", "args"];

    let mut fields = input.as_object().into_iter().flatten();
    let (Some((name, value)), None) = (fields.next(), fields.next()) else { return };
    if !WRAPPERS.contains(&name.as_str()) || schema["properties"].get(name).is_some() {
        return;
    }
    let parsed = value.as_str().and_then(|text| json::read_str(text).ok());
    let inner: Value = parsed.unwrap_or_else(|| value.clone());
    if inner.is_object() {
        *input = inner;
    }
}

/// Validates and parses a call's input for `tool`. Mistakes with only one meaning are repaired:
/// fields with another name or of the wrong type and `null` for an omitted field in `input` itself,
/// unknown fields and numbers above the maximum in the request only. `absolute` makes a path
/// absolute.
pub(super) fn parse(
    tool: BuiltinTool,
    input: &mut Value,
    absolute: impl Fn(&str) -> String,
) -> Result<ParsedInput, ToolError> {
    let schema = tool.schema();
    unwrap_input(input, schema);
    rename_fields(input, schema);
    adapt_values(tool, input, schema);
    coerce(input, schema);
    let mut notes = Vec::new();
    if let Some(fields) = input.as_object_mut().filter(|_| tool == BuiltinTool::Bash) {
        let adapted = bash_forms::adapt(fields, absolute);
        notes = adapted.map_err(|fault| invalid_input(tool.name(), &fault))?;
    }
    if tool == BuiltinTool::Edit && input.get("edits").is_some_and(Value::is_array) {
        let fault = "it makes one replacement: call it once for each of `edits`, in one reply";
        return Err(invalid_input(tool.name(), &fault));
    }
    let mut input = input.clone();
    let offset = take_offset(tool, &mut input);
    let has_own_folder = tool == BuiltinTool::Bash && bash_forms::take_adapted_folder(&mut input);
    let mut unknown = BTreeSet::new();
    remove_unknown(&mut input, schema, &mut unknown);
    notes.extend(fit_numbers(&mut input, schema));
    if !unknown.is_empty() {
        let names = Vec::from_iter(unknown).join("`, `");
        let known = schema["properties"].as_object().into_iter().flat_map(Map::keys);
        let known = known.map(String::as_str).collect::<Vec<_>>().join(", ");
        notes.push(format!("{} has no `{names}`: ignored; known are {known}", tool.name()));
    }
    let faults: Vec<String> = validator(tool)
        .iter_errors(&input)
        .take(5)
        .map(|fault| describe_fault(tool, &fault))
        .collect();
    if !faults.is_empty() {
        let all: Vec<String> = faults.into_iter().chain(notes).collect();
        return Err(invalid_input(tool.name(), &all.join("; ")));
    }
    let mut request =
        deserialize(tool, input).map_err(|fault| invalid_input(tool.name(), &fault))?;
    if let ToolRequest::Grep(grep) = &mut request {
        grep.offset = offset;
    } else if let ToolRequest::Bash(bash) = &mut request {
        bash.has_own_folder = has_own_folder;
    }
    if let ToolRequest::Glob(glob) = &request
        && has_unknown_form(&glob.pattern)
    {
        let note = "patterns such as !(x) are not known here: such text is compared as it is";
        notes.push(note.to_owned());
    }
    Ok(ParsedInput { request, notes })
}

/// Removes the field `offset`, the number of results to skip. Models know it, though the definition
/// of the tool does not mention it.
fn take_offset(tool: BuiltinTool, input: &mut Value) -> usize {
    let fields = input.as_object_mut().filter(|_| tool == BuiltinTool::Grep);
    let Some(given) = fields.and_then(|fields| fields.remove("offset")) else { return 0 };
    let number = given.as_u64().or_else(|| given.as_str()?.trim().parse().ok());
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Removes fields that an object of the schema does not have, and collects their names.
fn remove_unknown(value: &mut Value, schema: &Value, unknown: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            fields.retain(|name, _| {
                let is_known = known.is_none_or(|known| known.contains_key(name));
                if !is_known {
                    unknown.insert(truncated(name, NAME_CHARS_MAX).to_owned());
                }
                is_known
            });
            for (name, field) in fields {
                remove_unknown(field, &schema["properties"][name.as_str()], unknown);
            }
        }
        Value::Array(items) => {
            for item in items {
                remove_unknown(item, &schema["items"], unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Lowers numbers above the maximum of their fields, and removes those below the minimum of
/// optional fields: programs write 0 or -1 for no choice. Returns a note for each.
fn fit_numbers(input: &mut Value, schema: &Value) -> Vec<String> {
    let (Some(fields), Some(known)) = (input.as_object_mut(), schema["properties"].as_object())
    else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    let mut is_kept = |name: &String, field: &mut Value| {
        let known = known.get(name).unwrap_or(&Value::Null);
        let least = known["minimum"].as_i64().filter(|least| field.as_i64() < Some(*least));
        if let Some(least) = least.filter(|_| field.is_i64()) {
            notes.push(format!("`{name}` was ignored: it is at least {least}"));
            return false;
        }
        let most = known["maximum"].as_u64();
        if let Some(most) = most.filter(|most| field.as_u64().is_some_and(|given| given > *most)) {
            notes.push(lowered(name, most));
            *field = most.into();
        }
        true
    };
    fields.retain(|name, field| is_kept(name, field));
    notes
}

/// The note about a number that was lowered to the maximum.
pub(super) fn lowered(field: &str, most: impl Display) -> String {
    format!("`{field}` was lowered to {most}, the most that is allowed")
}

/// The error for an input that does not fit the tool's schema.
fn invalid_input(tool: &str, faults: &dyn Display) -> ToolError {
    format!("InputValidationError: {tool}: {faults}").into()
}

/// Each tool has a variant of its name.
fn deserialize(tool: BuiltinTool, input: Value) -> Result<ToolRequest, serde_json::Error> {
    serde_json::from_value(Map::from_iter([(tool.name().to_owned(), input)]).into())
}

fn validator(tool: BuiltinTool) -> &'static Validator {
    static VALIDATORS: [OnceLock<Validator>; BuiltinTool::ALL.len()] =
        [const { OnceLock::new() }; BuiltinTool::ALL.len()];
    VALIDATORS[tool as usize].get_or_init(|| {
        // The meta-schema of this draft takes a fraction of the time of the newest one, and the
        // built-in schemas use nothing that came later.
        let options = jsonschema::options().with_draft(Draft::Draft7);
        options.build(tool.schema()).expect("the built-in schemas are valid")
    })
}

fn describe_fault(tool: BuiltinTool, fault: &ValidationError<'_>) -> String {
    let place = fault.instance_path().to_string();
    let field = place.trim_start_matches('/').replace('/', ".");
    let kind = fault.kind();
    if let ValidationErrorKind::Required { property } = kind {
        let name = property.as_str().unwrap_or_default();
        let within = if field.is_empty() { String::new() } else { format!(" in `{field}`") };
        let schema = tool.schema();
        let expected = schema["properties"][name]["type"].as_str();
        let expected = expected.map_or(String::new(), |kind| format!(" (a {kind})"));
        return format!("the required field `{name}`{expected} is missing{within}");
    }
    if field.is_empty() {
        return "the input must be a JSON object".to_string();
    }
    let mut what = fault.to_string();
    if what.len() > 200 {
        what = format!("its value does not satisfy `{}`", kind.keyword());
    }
    format!("the field `{field}` is wrong: {what}")
}
