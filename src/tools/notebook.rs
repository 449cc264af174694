//! Jupyter notebooks: their cells for Read, as text and the images of their outputs.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use parking_lot::Mutex;
use serde_json::json;

use crate::transcript::Block;

use super::file_names;
use super::media;
use super::outcome::{ToolError, ToolOutcome};
use super::text;

pub(super) const NOTEBOOK_BYTES_MAX: u64 = 20 << 20;

/// The maximum length of a notebook that is shown, in characters.
const SHOWN_MAX: usize = 100_000;

/// The maximum length of one output that is shown, in characters.
const OUTPUT_MAX: usize = 5_000;

/// The maximum number of images that are shown.
const IMAGES_MAX: usize = 20;

/// The maximum size of all images that are shown, in bytes of base64.
const IMAGES_BYTES_MAX: usize = 10 << 20;

/// Only one notebook is parsed at a time, since each may take several hundred megabytes.
static PARSING: Mutex<()> = Mutex::new(());

/// The default number of cells that are shown.
const CELLS_DEFAULT: u64 = 1_000;

/// Shows the cells from `offset` on, counted from 1. `None`: the file is not a readable notebook.
///
/// # Errors
/// The file cannot be read, or has no such cell.
pub(super) fn read(
    mut file: &File,
    path: &Path,
    offset: Option<u64>,
    limit: Option<u64>,
) -> Result<Option<ToolOutcome>, ToolError> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.take(NOTEBOOK_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if bytes.len() as u64 > NOTEBOOK_BYTES_MAX {
        return Ok(None);
    }
    // Not while it is read, which may hang on a file system in the network.
    let _parsing = PARSING.lock();
    let text = json_text(&String::from_utf8_lossy(&bytes));
    let Some(notebook) = parse(&text) else { return Ok(None) };
    let Some(cells) = notebook.get_array("cells") else { return Ok(None) };
    let count = cells.elements.len();
    let first = offset.unwrap_or(1).max(1);
    let start = usize::try_from(first - 1).unwrap_or(usize::MAX);
    if start > 0 && start >= count {
        return Err(format!("{} has only {count} cells", path.display()).into());
    }
    let limit = usize::try_from(limit.unwrap_or(CELLS_DEFAULT)).unwrap_or(usize::MAX);
    let (mut shown, mut taken, mut images) = (String::new(), 0, OutputImages::default());
    for (index, cell) in cells.elements.iter().enumerate().skip(start).take(limit) {
        let before = images.blocks.len();
        let next = show(index, cell, &mut images);
        let room = SHOWN_MAX.saturating_sub(shown.chars().count());
        if taken > 0 && next.chars().count() > room {
            images.blocks.truncate(before);
            break;
        }
        if taken > 0 {
            shown.push_str("\n\n");
        }
        shown.push_str(text::truncated(&next, room));
        if text::truncated(&next, room).len() < next.len() {
            shown.push_str("\n[… the rest of this cell is left out; use jq on the file]");
        }
        taken += 1;
    }
    if count == 0 {
        shown.push_str("(the notebook has no cells)");
    } else if start + taken < count {
        let note = format!("\n\n[more cells follow: continue with offset {}]", start + taken + 1);
        shown.push_str(&note);
    }
    if cells.elements.iter().skip(start).take(taken).any(|cell| own_id(cell).is_none()) {
        shown.push_str("\n\n[cells without an id have one by their position: cell-0 is cell 1]");
    }
    let detail = json!({ "type": "notebook", "file": { "filePath": file_names::shown(path), "cells": count } });
    let mut outcome = ToolOutcome::text(shown, detail);
    outcome.content.extend(images.blocks);
    Ok(Some(outcome))
}

/// The images of the outputs that are shown behind the text.
#[derive(Default)]
struct OutputImages {
    blocks: Vec<Block>,
    /// The size of their base64.
    bytes: usize,
}

impl OutputImages {
    /// Adds the image of an output, and returns the note about it for the text.
    fn add(&mut self, data: &Object<'_>, kind: &str) -> String {
        if self.blocks.len() == IMAGES_MAX {
            return format!(
                "({kind} not shown: at most {IMAGES_MAX} images are; read fewer cells)"
            );
        }
        let encoded: String = joined(data, kind).split_ascii_whitespace().collect();
        let Ok(bytes) = STANDARD.decode(encoded) else { return format!("({kind} not shown)") };
        match media::image_block(&bytes) {
            Err(flaw) => format!("({kind} not shown: {flaw})"),
            Ok(block) => {
                let size = bytes.len().div_ceil(3) * 4;
                if self.bytes + size > IMAGES_BYTES_MAX {
                    return format!(
                        "({kind} not shown: too many bytes of images; read fewer cells)"
                    );
                }
                self.bytes += size;
                self.blocks.push(block);
                format!("({kind}: image {} below)", self.blocks.len())
            }
        }
    }
}

/// Replaces text that the parser rejects by as many bytes, so that positions stay: a byte order
/// mark, and halves of surrogate pairs, which other programs write.
pub(super) fn json_text(text: &str) -> String {
    let mut text = text.replacen('\u{feff}', "   ", usize::from(text.starts_with('\u{feff}')));
    if parse(&text).is_none() {
        // Halves of valid pairs are replaced, too, as the result is only read.
        let halves: Vec<usize> = text.match_indices("\\u").map(|(at, _)| at).collect();
        for at in halves {
            let digits = text.get(at + 2..at + 6).unwrap_or_default();
            let is_half =
                u16::from_str_radix(digits, 16).is_ok_and(|unit| (0xd800..=0xdfff).contains(&unit));
            if is_half {
                text.replace_range(at + 2..at + 6, "FFFD");
            }
        }
    }
    text
}

/// Parses the notebook into JSON values with their positions.
pub(super) fn parse(text: &str) -> Option<Object<'_>> {
    let options = ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_trailing_commas: false,
        ..ParseOptions::default()
    };
    let value = parse_to_ast(text, &CollectOptions::default(), &options).ok()?.value?;
    if let Value::Object(root) = value { Some(root) } else { None }
}

/// Returns the id of a cell. Old notebooks have none: there it is made from the position.
pub(super) fn cell_id(index: usize, cell: &Value<'_>) -> String {
    own_id(cell).unwrap_or_else(|| format!("cell-{index}"))
}

/// Returns the id that the file gives to a cell.
fn own_id(cell: &Value<'_>) -> Option<String> {
    cell.as_object()?.get_string("id").map(|id| id.value.to_string())
}

fn show(index: usize, cell: &Value<'_>, images: &mut OutputImages) -> String {
    let number = index + 1;
    let Some(fields) = cell.as_object() else { return format!("[cell {number}: unknown]") };
    let kind = fields.get_string("cell_type").map_or("unknown", |kind| kind.value.as_ref());
    let id = cell_id(index, cell);
    let mut shown = format!("[cell {number}: {kind}, id {id}]\n{}", joined(fields, "source"));
    for output in fields.get_array("outputs").into_iter().flat_map(|outputs| &outputs.elements) {
        let output = output.as_object().map(|output| show_output(output, images));
        let output = output.unwrap_or_default();
        shown.push_str("\n[output]\n");
        shown.push_str(text::truncated(&output, OUTPUT_MAX));
        if text::truncated(&output, OUTPUT_MAX).len() < output.len() {
            shown.push_str("[…]");
        }
    }
    shown
}

fn show_output(output: &Object<'_>, images: &mut OutputImages) -> String {
    if let Some(name) = output.get_string("ename") {
        let traceback = text::readable(&joined_by(output, "traceback", "\n"));
        let error = format!("{}: {}", name.value, joined(output, "evalue"));
        return if traceback.contains(&error) { traceback } else { format!("{traceback}{error}") };
    }
    let data = output.get_object("data");
    let plain = data.filter(|data| data.get("text/plain").is_some());
    let shown = plain.map_or_else(|| joined(output, "text"), |data| joined(data, "text/plain"));
    let shown = text::readable(&shown);
    let mut kinds =
        data.into_iter().flat_map(|data| &data.properties).map(|field| field.name.as_str());
    let image = kinds.find(|kind| kind.starts_with("image/")).zip(data);
    match image.map(|(kind, data)| images.add(data, kind)) {
        Some(note) => format!("{shown}\n{note}"),
        None => shown,
    }
}

/// Joins a text, which notebooks keep as one string or as a list of lines.
fn joined(fields: &Object<'_>, name: &str) -> String {
    joined_by(fields, name, "")
}

/// Like [`joined`], with `end` between the lines.
fn joined_by(fields: &Object<'_>, name: &str, end: &str) -> String {
    let Some(value) = fields.get(name).map(|field| &field.value) else { return String::new() };
    let lines = value.as_array().map(|lines| lines.elements.as_slice()).unwrap_or_default();
    let lines = [value].into_iter().chain(lines);
    let texts = lines.filter_map(|line| Some(line.as_string_lit()?.value.as_ref()));
    texts.collect::<Vec<&str>>().join(end)
}
