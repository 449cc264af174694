//! The Glob tool: finds files by name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::json;
use tokio::time::Instant;

use crate::text::millis;

use super::file_names;
use super::glob_limits::check_glob;
use super::glob_readings::{add_valid, alternatives, readings, split_folder};
use super::input::GlobInput;
use super::outcome::{ToolError, ToolOutcome};
use super::walk::{SearchBounds, SearchScope, explain_nothing_found, files};

const FILES_MAX: usize = 100;

/// A pattern for the paths below a folder, in all its interpretations.
pub(super) struct PathMatcher {
    globs: Vec<GlobMatcher>,
    /// The pattern, and the parts of a list, as names of a file or a folder.
    names: Vec<String>,
}

impl PathMatcher {
    fn is_match(&self, relative: &Path) -> bool {
        let fits = |path: &Path| self.globs.iter().any(|glob| glob.is_match(path));
        let look = || relative.to_str().filter(|text| !text.is_ascii()).map(file_names::look_of);
        fits(relative) || look().is_some_and(|look| fits(Path::new(&look)))
    }
}

/// Compiles a pattern. Without a slash it matches names in any folder.
pub(super) fn compile(input: &GlobInput) -> Result<PathMatcher, ToolError> {
    let (folder, rest) = split_folder(&input.pattern);
    if input.pattern.trim().is_empty() {
        return Err("pattern is empty".into());
    }
    check_glob(&input.pattern).map_err(|error| error.to_string())?;
    let rest = if rest.is_empty() { "**" } else { rest };
    if rest.split('/').any(|part| part == "..") {
        return Err(
            "pattern has `..` behind a wildcard, where nothing can match; name the folder \
                    in path"
                .into(),
        );
    }
    let mut globs = Vec::new();
    for one in alternatives(rest) {
        let forms = readings(one.strip_prefix("./").unwrap_or(one)).into_iter().map(|reading| {
            let is_anywhere = folder.is_empty() && !reading.contains('/');
            let reading = if is_anywhere { format!("**/{reading}") } else { reading.into_owned() };
            // A folder covers everything in it.
            if reading.ends_with('/') { reading + "**" } else { reading }
        });
        add_valid(forms, |form| {
            let glob = GlobBuilder::new(form).literal_separator(true).build()?;
            globs.push(glob.compile_matcher());
            Ok(())
        })
        .map_err(|error: globset::Error| format!("pattern is wrong: {error}"))?;
    }
    let names = alternatives(rest).into_iter().map(str::to_owned).collect();
    Ok(PathMatcher { globs, names })
}

/// Runs the search. Blocks.
///
/// # Errors
/// The search was cancelled, or its folder does not exist.
pub(super) fn run(
    matcher: &PathMatcher,
    scope: &SearchScope,
    base: &Path,
    bounds: &SearchBounds,
) -> Result<ToolOutcome, ToolError> {
    let (root, began) = (&scope.root, Instant::now());
    if !root.is_dir() {
        return match &scope.missing_folder {
            Some(note) => Ok(ToolOutcome::text(
                format!("No files found\n{note}"),
                json!({ "filenames": [], "numFiles": 0, "truncated": false, "durationMs": 0 }),
            )),
            None => Err(format!("{} is not a folder", root.display()).into()),
        };
    }
    let mut newest: BinaryHeap<Reverse<(SystemTime, Reverse<PathBuf>)>> = BinaryHeap::new();
    let mut total = 0_usize;
    // A file that the pattern names literally is found even if ignore files exclude it.
    let find = |name: &String| file_names::find_alike(&file_names::find(&root.join(name)));
    let named: Vec<PathBuf> = matcher.names.iter().map(find).collect();
    let (folders, named): (Vec<PathBuf>, Vec<PathBuf>) =
        named.into_iter().partition(|path| path.is_dir());
    let named = named.into_iter().find(|path| path.is_file() && !(scope.hides)(path));
    let is_within = |path: &Path| folders.iter().any(|folder| path.starts_with(folder));
    let walked = files(scope, bounds.clone())
        .map(ignore::DirEntry::into_path)
        .filter(|path| named.as_ref() != Some(path))
        .filter(|path| matcher.is_match(path.strip_prefix(root).unwrap_or(path)) || is_within(path))
        .filter(|path| path.is_file());
    for path in named.clone().into_iter().chain(walked) {
        total += 1;
        let modified = fs::metadata(&path).ok().and_then(|metadata| metadata.modified().ok());
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        newest.push(Reverse((modified, Reverse(path))));
        if newest.len() > FILES_MAX {
            newest.pop();
        }
    }
    if bounds.is_cancelled() {
        return Err(ToolError::interrupted());
    }
    let place = scope.place();
    let found: Vec<String> = newest
        .into_sorted_vec()
        .iter()
        .map(|Reverse((_, Reverse(path)))| place.shown(path, base))
        .collect();
    let truncated = total > found.len();
    let detail = json!({
        "filenames": found,
        "numFiles": total,
        "truncated": truncated,
        "durationMs": millis(began.elapsed()),
    });
    let more = total - found.len();
    let is_empty = found.is_empty();
    let mut parts = found;
    if is_empty {
        parts.push("No files found".to_string());
    }
    if truncated {
        parts.push(format!("[{more} more files match; use a narrower pattern]"));
    }
    parts.extend(bounds.notes());
    parts.extend(is_empty.then(|| explain_nothing_found(scope, base, bounds)).flatten());
    Ok(ToolOutcome::text(parts.join("\n"), detail))
}
