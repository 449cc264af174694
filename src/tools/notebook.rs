//! Renders Jupyter notebooks as text.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use super::outcome::{ToolError, ToolOutcome};
use super::text;

const NOTEBOOK_BYTES_MAX: u64 = 20 << 20;

/// How much of a notebook is shown, in characters.
const SHOWN_MAX: usize = 100_000;

/// How much of one output is shown, in characters.
const OUTPUT_MAX: usize = 5_000;

pub(super) fn read(file: File, path: &Path) -> Result<ToolOutcome, ToolError> {
    let mut json_text = Vec::new();
    file.take(NOTEBOOK_BYTES_MAX)
        .read_to_end(&mut json_text)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let notebook: Value = serde_json::from_slice(&json_text)
        .map_err(|error| format!("{} is no notebook that can be read: {error}", path.display()))?;
    let cells = notebook["cells"].as_array().map_or(&[][..], Vec::as_slice);
    let shown: Vec<String> =
        cells.iter().enumerate().map(|(index, cell)| show(index + 1, cell)).collect();
    let shown = shown.join("\n\n");
    let mut kept = text::truncated(&shown, SHOWN_MAX).to_string();
    if kept.len() < shown.len() {
        kept.push_str("\n[… the rest is left out; use jq on the file]");
    }
    if cells.is_empty() {
        kept.push_str("(the notebook has no cells)");
    }
    let detail = json!({ "type": "notebook", "file": { "filePath": path, "cells": cells.len() } });
    Ok(ToolOutcome::text(kept, detail))
}

fn show(number: usize, cell: &Value) -> String {
    let kind = cell["cell_type"].as_str().unwrap_or("unknown");
    let mut shown = format!("[cell {number}: {kind}]\n{}", joined(&cell["source"]));
    for output in cell["outputs"].as_array().map_or(&[][..], Vec::as_slice) {
        let output = show_output(output);
        shown.push_str("\n[output]\n");
        shown.push_str(text::truncated(&output, OUTPUT_MAX));
        if text::truncated(&output, OUTPUT_MAX).len() < output.len() {
            shown.push_str("[…]");
        }
    }
    shown
}

fn show_output(output: &Value) -> String {
    if let Some(name) = output["ename"].as_str() {
        return format!("{name}: {}", joined(&output["evalue"]));
    }
    let plain = &output["data"]["text/plain"];
    let stream = if plain.is_null() { &output["text"] } else { plain };
    let kinds: Vec<&str> = output["data"]
        .as_object()
        .map(|data| data.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let picture = kinds.iter().find(|kind| kind.starts_with("image/"));
    let said = text::readable(joined(stream).as_bytes());
    match picture {
        Some(kind) => format!("{said}\n({kind} not shown)"),
        None => said,
    }
}

/// Notebooks keep text as one string or as a list of lines.
fn joined(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
