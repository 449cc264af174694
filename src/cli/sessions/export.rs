//! `outlast sessions export`.

use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use crate::journal::{SessionFile, subagent_files};
use crate::process::file_reads::open_regular;
use serde_json::{Value, json};

use super::super::args::{ExportFormat, ExportSessionArgs};
use super::super::output::TerminalFilter;
use super::super::usage::UsageError;
use super::super::version::SCHEMA_VERSION;
use super::{PrivateFile, SessionsContext, unreadable};

pub(super) fn export(
    context: &SessionsContext,
    args: &ExportSessionArgs,
) -> Result<u8, UsageError> {
    let file = context.find(&args.id)?;
    if let Some(path) = &args.output {
        write_file(&file, args.format, path)?;
        return Ok(0);
    }
    let mut stdout = TerminalFilter::new(io::stdout().lock());
    match write(&file, args.format, &mut stdout) {
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(ExportError::Write(error)) => Err(UsageError::unwritable(&error)),
        Err(ExportError::Read(error)) => Err(unreadable(&file.path, &error)),
        Ok(()) => Ok(0),
    }
}

/// Failure of one side of a copy.
enum ExportError {
    Read(io::Error),
    Write(io::Error),
}

/// Writes a file in one step.
fn write_file(file: &SessionFile, format: ExportFormat, path: &Path) -> Result<(), UsageError> {
    let mut private = PrivateFile::create(path)?;
    match write(file, format, private.temporary()) {
        Err(ExportError::Write(error)) => Err(private.not_written(&error)),
        Err(ExportError::Read(error)) => Err(unreadable(&file.path, &error)),
        Ok(()) => private.move_to_place(),
    }
}

fn write(
    file: &SessionFile,
    format: ExportFormat,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    match format {
        ExportFormat::Jsonl => copy_lines(&file.path, out),
        ExportFormat::Json => write_document(file, out),
    }
}

/// Copies the lines as they are, each in one piece.
fn copy_lines(path: &Path, out: &mut impl Write) -> Result<(), ExportError> {
    let mut reader = BufReader::new(open_regular(path).map_err(ExportError::Read)?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(ExportError::Read)? > 0 {
        out.write_all(&line).map_err(ExportError::Write)?;
        line.clear();
    }
    out.flush().map_err(ExportError::Write)
}

/// Writes a session and its sub-agents as one object, with one record in memory at a time.
fn write_document(file: &SessionFile, out: &mut impl Write) -> Result<(), ExportError> {
    let say = |out: &mut _, text: &str| write_text(out, text);
    let head = json!({
        "type": "session_export",
        "schema_version": SCHEMA_VERSION,
        "session_id": file.id.as_str(),
        "path": file.path,
    });
    say(out, &open_object(&head))?;
    write_records(&file.path, out)?;
    say(out, ",\n\"agents\":[")?;
    for (index, (meta, path)) in subagent_files(&file.path).into_iter().enumerate() {
        let meta = serde_json::to_value(&meta).unwrap_or_default();
        say(out, if index > 0 { ",\n" } else { "\n" })?;
        say(out, &open_object(&json!({ "agent": meta, "path": path })))?;
        write_records(&path, out)?;
        say(out, "}")?;
    }
    say(out, "]}\n")?;
    out.flush().map_err(ExportError::Write)
}

fn write_text(out: &mut impl Write, text: &str) -> Result<(), ExportError> {
    out.write_all(text.as_bytes()).map_err(ExportError::Write)
}

/// An object without its end, to which further members are added.
fn open_object(object: &Value) -> String {
    let text = object.to_string();
    format!("{},\n", text.strip_suffix('}').unwrap_or(&text))
}

/// Writes the members `records` and `unreadable_lines` of a file, which may be missing.
fn write_records(path: &Path, out: &mut impl Write) -> Result<(), ExportError> {
    write_text(out, "\"records\":[")?;
    let mut unreadable = Vec::new();
    let reader = match open_regular(path) {
        Ok(file) => Some(BufReader::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(ExportError::Read(error)),
    };
    let (mut number, mut is_first) = (0_usize, true);
    for line in reader.into_iter().flat_map(|reader| reader.split(b'\n')) {
        let line = line.map_err(ExportError::Read)?;
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
