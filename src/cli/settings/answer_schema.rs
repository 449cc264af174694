//! `--json-schema`: the schema of the answer, given as JSON or as a file.

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::cli::usage::UsageError;
use crate::config::file::utf8;
use crate::config::spans::{self, JsonPaths};
use crate::config::{is_inline, without_position, written_json};
use crate::process::file_reads;
use crate::tools::{AnswerSchema, SCHEMA_BYTES_MAX};

const FLAG: &str = "--json-schema";

/// Reads the schema that the flag gives: JSON if the value begins like JSON, otherwise a file, with
/// or without an `@` before its name.
///
/// # Errors
/// A mistake in the schema, with its position.
pub(super) fn parse_flag(given: &str, cwd: &Path) -> Result<AnswerSchema, UsageError> {
    let trimmed = given.trim();
    if trimmed.is_empty() {
        return Err(UsageError::new(format!(
            "{FLAG} is empty; give a JSON Schema, the name of a file that holds one, or none"
        )));
    }
    if is_json(trimmed) {
        return check(FLAG, given, "it");
    }
    let name = trimmed.strip_prefix('@').unwrap_or(trimmed);
    let bytes = read_file(&cwd.join(name)).map_err(|error| {
        UsageError::new(format!(
            "{FLAG} {name}: cannot be read: {error}; give a JSON Schema, or the name of a file \
             that holds one"
        ))
    })?;
    check(name, utf8(name, &bytes)?, "the file")
}

/// Returns true if a text is meant as JSON rather than as a file name.
fn is_json(text: &str) -> bool {
    is_inline(text) || text.starts_with(['[', '"']) || serde_json::from_str::<Value>(text).is_ok()
}

/// Reads a file, or a pipe of a shell's process substitution, up to the size limit.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Leaves room for white space, which does not count for the limit of the schema.
    file_reads::read_named(path, 4 * SCHEMA_BYTES_MAX as u64)
}

/// Checks the text of a schema. `what` is what the user has to correct if the text is not JSON.
fn check(name: &str, text: &str, what: &str) -> Result<AnswerSchema, UsageError> {
    let text = &*written_json(text);
    let here = |at: usize| {
        let (line, column) = spans::line_and_column(text, at);
        format!("{name}:{line}:{column}")
    };
    let schema: Value = serde_json::from_str(text).map_err(|error| {
        let at = here(spans::offset(text, error.line(), error.column()));
        UsageError::new(format!(
            "{at}: not valid JSON: {}; correct {what}",
            without_position(&error)
        ))
    })?;
    AnswerSchema::new(schema).map_err(|bad| {
        let keys = bad.pointer.split('/').skip(1);
        let keys: Vec<_> = keys.map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
        let places = JsonPaths::scan(text);
        let (line, column) = places.value(places.nearest(keys.iter().map(String::as_str)));
        let at = format!("{name}:{line}:{column}");
        let pointer = if bad.pointer.is_empty() { "the schema" } else { &bad.pointer };
        UsageError::new(format!("{at}: {pointer}: {}", bad.why))
    })
}
