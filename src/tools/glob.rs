//! The Glob tool: finds files by name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;

use super::glob_limits::check_glob;
use super::input::GlobInput;
use super::outcome::{ToolError, ToolOutcome};
use super::paths::display_path;
use super::walk::{SearchBounds, SearchScope, files};

const FILES_MAX: usize = 100;

/// Splits a pattern into its literal folder and the rest: `/etc/**/*.conf` searches `/etc`.
pub(super) fn split_literal_folder(pattern: &str) -> (&str, &str) {
    if !pattern.starts_with(['/', '~']) {
        return ("", pattern);
    }
    let special = pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len());
    match pattern[..special].rfind('/') {
        Some(0) => ("/", &pattern[1..]),
        Some(end) => (&pattern[..end], &pattern[end + 1..]),
        None => ("", pattern),
    }
}

/// Compiles a pattern. Without a slash it matches names in any folder.
///
/// # Errors
/// Why the pattern is not valid, for the model.
pub(super) fn compile(input: &GlobInput) -> Result<GlobMatcher, ToolError> {
    let (_, pattern) = split_literal_folder(&input.pattern);
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    if pattern.is_empty() {
        return Err("pattern is empty".into());
    }
    check_glob(pattern).map_err(|error| error.to_string())?;
    let pattern = if pattern.contains('/') { pattern.to_string() } else { format!("**/{pattern}") };
    GlobBuilder::new(&pattern)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| format!("pattern is wrong: {error}").into())
}

/// Runs the search. Blocks.
///
/// # Errors
/// The search is over before it has a result.
pub(super) fn run(
    matcher: &GlobMatcher,
    scope: SearchScope,
    base: &Path,
    bounds: &SearchBounds,
) -> Result<ToolOutcome, ToolError> {
    let root = scope.root.clone();
    if !root.is_dir() {
        return Err(format!("{} is not a folder", root.display()).into());
    }
    let mut newest: BinaryHeap<Reverse<(SystemTime, Reverse<PathBuf>)>> = BinaryHeap::new();
    let mut total = 0_usize;
    for entry in files(scope, bounds.clone()) {
        let relative = entry.path().strip_prefix(&root).unwrap_or(entry.path());
        if !matcher.is_match(relative) {
            continue;
        }
        total += 1;
        let modified = entry.metadata().ok().and_then(|metadata| metadata.modified().ok());
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        newest.push(Reverse((modified, Reverse(entry.into_path()))));
        if newest.len() > FILES_MAX {
            newest.pop();
        }
    }
    if bounds.is_cancelled() {
        return Err(ToolError::interrupted());
    }
    let found: Vec<String> = newest
        .into_sorted_vec()
        .iter()
        .map(|Reverse((_, Reverse(path)))| display_path(path, base))
        .collect();
    let mut text = if found.is_empty() { "No files found".to_string() } else { found.join("\n") };
    if total > found.len() {
        let more = total - found.len();
        let note = format!("\n[{more} more files match; use a narrower pattern]");
        text.push_str(&note);
    }
    if bounds.is_late() {
        text.push_str("\n[the search took too long and was ended; use a narrower path]");
    }
    text.extend(bounds.skipped_note());
    let truncated = total > found.len();
    let detail = json!({ "filenames": found, "numFiles": total, "truncated": truncated });
    Ok(ToolOutcome::text(text, detail))
}
