//! The `NotebookEdit` tool: changes one cell of a notebook, and no other byte.

use std::ops::Range;
use std::path::Path;

use jsonc_parser::ast::{Array, Object, Value};
use jsonc_parser::common::Ranged;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::file_history::FileHistory;
use super::files_read::FilesRead;
use super::input::{CellType, NotebookEditInput, NotebookEditMode};
use super::notebook::{NOTEBOOK_BYTES_MAX, cell_id, json_text, parse};
use super::outcome::{ToolError, ToolOutcome};
use super::paths::{ResolvedPath, read_up_to};
use super::read::{check_regular, is_notebook, metadata_of};
use super::text;
use super::write::{self, record_written};

/// The maximum length of the new source in a result, in characters.
const SHOWN_MAX: usize = 2_000;

/// The maximum number of ids in an error.
const IDS_NAMED: usize = 20;

/// Checks the input as far as that does not depend on the file.
pub(super) fn check_input(input: &NotebookEditInput) -> Result<(), ToolError> {
    match input.edit_mode {
        NotebookEditMode::Replace | NotebookEditMode::Delete if input.cell_id.is_none() => {
            Err("cell_id is missing: Read shows the ids of the cells".into())
        }
        NotebookEditMode::Replace | NotebookEditMode::Insert if input.new_source.is_none() => {
            Err("new_source is missing".into())
        }
        NotebookEditMode::Insert if input.cell_type.is_none() => {
            Err("cell_type is missing: a new cell is code or markdown".into())
        }
        NotebookEditMode::Replace | NotebookEditMode::Insert | NotebookEditMode::Delete => Ok(()),
    }
}

/// Changes a cell. Blocks.
pub(super) fn run(
    input: &NotebookEditInput,
    target: &ResolvedPath,
    base: &Path,
    (seen, history): (&FilesRead, Option<&FileHistory>),
    cancel: &CancellationToken,
) -> Result<ToolOutcome, ToolError> {
    let path = target.shown();
    if !is_notebook(&target.real) {
        return Err(format!("{path} is not a notebook (.ipynb): use Edit").into());
    }
    let metadata = metadata_of(target, base)?;
    check_regular(&metadata).map_err(|what| format!("{path} is {what}, not a file"))?;
    seen.check(&target.real, &metadata).map_err(|why| format!("{path}: {why}"))?;
    let bytes = read_up_to(&target.real, NOTEBOOK_BYTES_MAX + 1)
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    if bytes.len() as u64 > NOTEBOOK_BYTES_MAX {
        return Err(format!("{path} is too large to edit here; use a script in Bash").into());
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8"))?;
    let change = change(&text, input).map_err(|why| format!("{path}: {why}"))?;
    write::replace(target, change.text.as_bytes(), Some(&metadata), history, cancel)?;
    let moved = if change.moves_others {
        seen.forget(&target.real);
        " The cells after it have other positions now, and with them other ids: Read the notebook \
         before its next change."
    } else {
        record_written(target, seen);
        ""
    };
    let source = input.new_source.as_deref().unwrap_or_default();
    let shown = match input.edit_mode {
        NotebookEditMode::Delete => String::new(),
        NotebookEditMode::Replace | NotebookEditMode::Insert => {
            let shown = text::truncated(source, SHOWN_MAX);
            let cut = if shown.len() < source.len() { "[…]" } else { "" };
            format!(" It reads now:\n{shown}{cut}")
        }
    };
    let did = match input.edit_mode {
        NotebookEditMode::Replace => "Replaced",
        NotebookEditMode::Insert => "Inserted",
        NotebookEditMode::Delete => "Deleted",
    };
    Ok(ToolOutcome::text(
        format!("{did} cell {} (id {}) of {path}.{moved}{shown}", change.index + 1, change.id),
        json!({
            "notebook_path": target.shown(),
            "cell_id": change.id,
            "new_source": source,
            "edit_mode": input.edit_mode,
        }),
    ))
}

/// The notebook after a change.
struct Change {
    text: String,
    /// The position of the cell.
    index: usize,
    id: String,
    /// True if other cells have another id now, because theirs are positions.
    moves_others: bool,
}

/// The reason that a cell is not changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum BadCell {
    #[error("it is not a notebook: not a JSON object with a list of cells")]
    NoNotebook,
    #[error("there is no cell with the id {id:?}; there are {known}")]
    Unknown { id: String, known: String },
    #[error("several cells have the id {0:?}: change it with a script in Bash")]
    Repeated(String),
    #[error("cell {0} is not a JSON object")]
    NoObject(usize),
}

fn change(text: &str, input: &NotebookEditInput) -> Result<Change, BadCell> {
    let clean = json_text(text);
    let root = parse(&clean).ok_or(BadCell::NoNotebook)?;
    let cells = root.get_array("cells").ok_or(BadCell::NoNotebook)?;
    let index = input.cell_id.as_deref().map(|id| find(cells, id)).transpose()?;
    let source = input.new_source.as_deref().unwrap_or_default();
    let (range, new, index, id) = match (input.edit_mode, index) {
        (NotebookEditMode::Delete, Some(index)) => {
            let id = cell_id(index, &cells.elements[index]);
            (deleted(cells, index), String::new(), index, id)
        }
        (NotebookEditMode::Replace, Some(index)) => {
            let cell = &cells.elements[index];
            let fields = cell.as_object().ok_or(BadCell::NoObject(index + 1))?;
            let new = replaced(text, fields, source, input.cell_type);
            (cell.range().start..cell.range().end, new, index, cell_id(index, cell))
        }
        (NotebookEditMode::Insert, after) => {
            let kind = input.cell_type.unwrap_or(CellType::Code);
            let index = after.map_or(0, |index| index + 1);
            let new_id = || uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
            let id = has_ids(&root, cells).then(new_id);
            let (at, new) = inserted(text, cells, index, &new_fields(kind, id.as_deref()), source);
            (at..at, new, index, id.unwrap_or_else(|| format!("cell-{index}")))
        }
        // Both need an id, which `check_input` requires.
        (NotebookEditMode::Delete | NotebookEditMode::Replace, None) => {
            return Err(BadCell::NoNotebook);
        }
    };
    let others = match input.edit_mode {
        NotebookEditMode::Replace => 0,
        NotebookEditMode::Insert => cells.elements.len() - index,
        NotebookEditMode::Delete => cells.elements.len() - index - 1,
    };
    let mut changed = text.to_owned();
    changed.replace_range(range, &new);
    Ok(Change { text: changed, index, id, moves_others: others > 0 && !has_ids(&root, cells) })
}

fn find(cells: &Array<'_>, id: &str) -> Result<usize, BadCell> {
    let ids = || cells.elements.iter().enumerate().map(|(index, cell)| cell_id(index, cell));
    let found: Vec<usize> =
        ids().enumerate().filter(|(_, known)| known == id).map(|(index, _)| index).collect();
    match found[..] {
        [index] => Ok(index),
        [] => {
            let number = id.strip_prefix("cell-").and_then(|number| number.parse().ok());
            if let Some(index) = number.filter(|index| *index < cells.elements.len()) {
                return Ok(index);
            }
            let known: Vec<String> = ids().take(IDS_NAMED).collect();
            let more = if cells.elements.len() > known.len() { ", …" } else { "" };
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(BadCell::Unknown { id: id.to_owned(), known: known + more })
        }
        [..] => Err(BadCell::Repeated(id.to_owned())),
    }
}

/// True if the cells of a notebook have ids, as they do since version 4.5 of the format.
fn has_ids(root: &Object<'_>, cells: &Array<'_>) -> bool {
    let has_id = |cell: &Value<'_>| cell.as_object().is_some_and(|cell| cell.get("id").is_some());
    let number = |name| root.get_number(name).and_then(|number| number.value.parse::<u32>().ok());
    cells.elements.iter().any(has_id)
        || (number("nbformat"), number("nbformat_minor")) >= (Some(4), Some(5))
}

/// The bytes to remove for a cell, including a comma.
fn deleted(cells: &Array<'_>, index: usize) -> Range<usize> {
    let range = |index: usize| cells.elements.get(index).map(Ranged::range);
    let of = cells.elements[index].range();
    match (index.checked_sub(1).and_then(range), range(index + 1)) {
        (Some(before), _) => before.end..of.end,
        (None, Some(after)) => of.start..after.start,
        (None, None) => cells.range.start + 1..cells.range.end - 1,
    }
}

/// The separators between the fields of an object.
struct Layout {
    /// From its brace to the first field.
    lead: String,
    /// From a field to the next.
    gap: String,
    /// From the last field to its brace.
    end: String,
}

impl Layout {
    fn of(text: &str, object: &Object<'_>) -> Self {
        let fields = &object.properties;
        let (start, end) = (object.range.start + 1, object.range.end - 1);
        let (Some(first), Some(last)) = (fields.first(), fields.last()) else {
            return Self { lead: String::new(), gap: ", ".to_owned(), end: String::new() };
        };
        let lead = text[start..first.range.start].to_owned();
        let gap = match fields.get(1) {
            Some(second) => text[first.range.end..second.range.start].to_owned(),
            None => format!(",{lead}"),
        };
        Self { lead, gap, end: text[last.range.end..end].to_owned() }
    }

    /// The layout of the first cell of a notebook without cells, whose list has this indentation.
    fn new(list_indent: &str) -> Self {
        let unit = if list_indent.is_empty() { " " } else { list_indent };
        let inner = format!("\n{list_indent}{unit}{unit}");
        Self { gap: format!(",{inner}"), lead: inner, end: format!("\n{list_indent}{unit}") }
    }

    fn object(&self, fields: &[String]) -> String {
        format!("{{{}{}{}}}", self.lead, fields.join(&self.gap), self.end)
    }

    /// Formats a source as a JSON list of lines.
    fn lines(&self, source: &str) -> String {
        let lines: Vec<String> =
            source.split_inclusive('\n').map(|line| json!(line).to_string()).collect();
        if lines.is_empty() {
            return "[]".to_owned();
        }
        let (Some(own), Some(outer)) = (self.lead.rfind('\n'), self.end.rfind('\n')) else {
            return format!("[{}]", lines.join(&self.gap));
        };
        let (own, outer) = (&self.lead[own + 1..], &self.end[outer + 1..]);
        let unit = own.strip_prefix(outer).filter(|unit| !unit.is_empty()).unwrap_or(" ");
        let feed = if self.lead.contains('\r') { "\r\n" } else { "\n" };
        let gap = format!("{feed}{own}{unit}");
        format!("[{gap}{}{feed}{own}]", lines.join(&format!(",{gap}")))
    }
}

/// Formats the cell with a new source. Outputs of code belong to the old source and are removed.
fn replaced(text: &str, cell: &Object<'_>, source: &str, kind: Option<CellType>) -> String {
    let layout = Layout::of(text, cell);
    let former = cell.get_string("cell_type").map(|kind| kind.value.as_ref());
    let kind = kind.map(|kind| kind.into_str()).or(former).unwrap_or("code");
    let is_code = kind == CellType::Code.into_str();
    let mut has = Vec::new();
    let mut fields: Vec<String> = Vec::new();
    for field in &cell.properties {
        let name = field.name.as_str();
        has.push(name);
        let name_part = &text[field.range.start..field.value.range().start];
        let with = |value: &str| format!("{name_part}{value}");
        fields.push(match (name, is_code) {
            ("source", _) if field.value.as_string_lit().is_some() => {
                with(&json!(source).to_string())
            }
            ("source", _) => with(&layout.lines(source)),
            ("cell_type", _) => with(&json!(kind).to_string()),
            ("outputs", true) => with("[]"),
            ("execution_count", true) => with("null"),
            ("outputs" | "execution_count", false) => continue,
            (_, _) => text[field.range.start..field.range.end].to_owned(),
        });
    }
    let mut add = |name: &str, value: &str| {
        if !has.contains(&name) {
            fields.push(format!("\"{name}\": {value}"));
        }
    };
    if is_code {
        add("outputs", "[]");
        add("execution_count", "null");
    }
    add("source", &layout.lines(source));
    layout.object(&fields)
}

/// The fields of a new cell except its source.
fn new_fields(kind: CellType, id: Option<&str>) -> Vec<String> {
    let mut fields = vec![format!("\"cell_type\": \"{}\"", kind.into_str())];
    fields.extend((kind == CellType::Code).then(|| "\"execution_count\": null".to_owned()));
    fields.extend(id.map(|id| format!("\"id\": \"{id}\"")));
    fields.push("\"metadata\": {}".to_owned());
    fields.extend((kind == CellType::Code).then(|| "\"outputs\": []".to_owned()));
    fields
}

/// Returns the offset at which to insert a new cell at this position, and the text to insert.
fn inserted(
    text: &str,
    cells: &Array<'_>,
    index: usize,
    fields: &[String],
    source: &str,
) -> (usize, String) {
    let (start, end) = (cells.range.start + 1, cells.range.end - 1);
    let neighbour = cells.elements.get(index.saturating_sub(1));
    let cell = |layout: &Layout| {
        let source = format!("\"source\": {}", layout.lines(source));
        let fields: Vec<String> = fields.iter().cloned().chain([source]).collect();
        layout.object(&fields)
    };
    let Some(neighbour) = neighbour else {
        let line = text[..start].rfind('\n').map_or(0, |feed| feed + 1);
        let indent = text[line..start].len() - text[line..start].trim_start().len();
        let indent = &text[line..line + indent];
        let layout = Layout::new(indent);
        let has_line = text[start..end].contains('\n');
        let tail = if has_line { String::new() } else { format!("\n{indent}") };
        return (start, format!("{}{}{tail}", layout.end, cell(&layout)));
    };
    let layout = match neighbour.as_object() {
        Some(object) => Layout::of(text, object),
        None => Layout::new(""),
    };
    let first = cells.elements.first().unwrap_or(neighbour).range();
    let gap = match cells.elements.get(1) {
        Some(second) => text[first.end..second.range().start].to_owned(),
        None => format!(",{}", &text[start..first.start]),
    };
    match cells.elements.get(index).filter(|_| index == 0) {
        Some(first) => (first.range().start, format!("{}{gap}", cell(&layout))),
        None => (neighbour.range().end, format!("{gap}{}", cell(&layout))),
    }
}
