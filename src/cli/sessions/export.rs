//! `outlast sessions export`.

use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use crate::journal::{SessionFile, subagent_files};
use crate::process::file_reads::open_regular;
use serde_json::{Value, json};

use super::super::args::{ExportFormat, ExportSessionArgs};
use super::super::destination::{Destination, DocumentError};
use super::super::output_file::Readers;
use super::super::usage::UsageError;
use super::super::version::SCHEMA_VERSION;
use super::{SessionsContext, unreadable};

pub(super) fn export(
    context: &SessionsContext,
    args: &ExportSessionArgs,
    cwd: &Path,
) -> Result<u8, UsageError> {
    let destination = Destination::open(args.output.as_deref(), cwd, Readers::Owner)?;
    let file = context.find(&args.id)?;
    destination.write(|out| match args.format {
        ExportFormat::Jsonl => copy_lines(&file.path, out),
        ExportFormat::Json => write_document(&file, out),
    })?;
    Ok(0)
}

/// Copies the lines unchanged, each with one write.
fn copy_lines(path: &Path, out: &mut dyn Write) -> Result<(), DocumentError> {
    let cannot_read = |error: io::Error| DocumentError::Source(unreadable(path, &error));
    let mut reader = BufReader::new(open_regular(path).map_err(cannot_read)?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(cannot_read)? > 0 {
        out.write_all(&line)?;
        line.clear();
    }
    Ok(())
}

/// Writes a session and its sub-agents as one object, with one record in memory at a time.
fn write_document(file: &SessionFile, out: &mut dyn Write) -> Result<(), DocumentError> {
    let head = json!({
        "type": "session_export",
        "schema_version": SCHEMA_VERSION,
        "session_id": file.id.as_str(),
        "path": file.path.to_string_lossy(),
    });
    write_text(out, &open_object(&head))?;
    write_records(&file.path, out)?;
    write_text(out, ",\n\"agents\":[")?;
    for (index, (meta, path)) in subagent_files(&file.path).into_iter().enumerate() {
        let meta = serde_json::to_value(&meta).unwrap_or_default();
        write_text(out, if index > 0 { ",\n" } else { "\n" })?;
        write_text(out, &open_object(&json!({ "agent": meta, "path": path.to_string_lossy() })))?;
        write_records(&path, out)?;
        write_text(out, "}")?;
    }
    write_text(out, "]}\n")
}

fn write_text(out: &mut dyn Write, text: &str) -> Result<(), DocumentError> {
    Ok(out.write_all(text.as_bytes())?)
}

/// Formats an object without its closing brace, so that further members can follow.
fn open_object(object: &Value) -> String {
    let text = object.to_string();
    format!("{},\n", text.strip_suffix('}').unwrap_or(&text))
}

/// Writes the members `records` and `unreadable_lines` of a file. A missing file has none.
fn write_records(path: &Path, out: &mut dyn Write) -> Result<(), DocumentError> {
    let cannot_read = |error: io::Error| DocumentError::Source(unreadable(path, &error));
    write_text(out, "\"records\":[")?;
    let mut unreadable = Vec::new();
    let reader = match open_regular(path) {
        Ok(file) => Some(BufReader::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot_read(error)),
    };
    let (mut number, mut is_first) = (0_usize, true);
    for line in reader.into_iter().flat_map(|reader| reader.split(b'\n')) {
        let line = line.map_err(cannot_read)?;
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let record = str::from_utf8(&line).ok();
        let is_json = |text: &&str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let Some(record) = record.filter(is_json) else {
            unreadable.push(number);
            continue;
        };
        write_text(out, if is_first { "\n" } else { ",\n" })?;
        is_first = false;
        write_text(out, record)?;
    }
    write_text(out, &format!("],\n\"unreadable_lines\":{}", json!(unreadable)))
}
