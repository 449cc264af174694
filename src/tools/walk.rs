//! Walks the files below a folder for a search: skips ignored and hidden files, and is bounded in
//! time.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ignore::gitignore::gitconfig_excludes_path;
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use ignore::{DirEntry, Walk, WalkBuilder};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::glob_limits::{check_glob, has_bounded_lines};
use super::outcome::ToolError;
use super::paths::open_regular;

/// How long one search may take.
const SEARCH_MAX: Duration = Duration::from_mins(1);

/// The largest ignore file that is read, in bytes.
const IGNORE_FILE_BYTES_MAX: u64 = 1 << 20;

const UNREADABLE: &str = "a .gitignore or .ignore is too large, has a line that is too long or \
                          opens too many braces, or is no ordinary file";

/// The limits at which a search ends early.
#[derive(Clone, Debug)]
pub(super) struct SearchBounds {
    cancel: CancellationToken,
    end: Instant,
    /// How many folders were skipped.
    passed: Arc<AtomicUsize>,
    /// Whether no ignore file was applied.
    is_unfiltered: Arc<AtomicBool>,
}

impl SearchBounds {
    pub(super) fn new(cancel: &CancellationToken) -> Self {
        Self {
            cancel: cancel.clone(),
            end: Instant::now() + SEARCH_MAX,
            passed: Arc::default(),
            is_unfiltered: Arc::default(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.is_late()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The note for the model about folders that were not searched.
    pub(super) fn skipped_note(&self) -> Option<String> {
        let passed = self.passed.load(Ordering::Relaxed);
        let mut note = String::new();
        if self.is_unfiltered.load(Ordering::Relaxed) {
            let _ = write!(note, "\n[ignored files were searched too, because {UNREADABLE}]");
        }
        if passed > 0 {
            let _ = write!(
                note,
                "\n[folders passed over, because {UNREADABLE}: {passed}; give such a folder as \
                 path to search it]"
            );
        }
        Some(note).filter(|note| !note.is_empty())
    }
}

/// The files that a search covers.
pub(super) struct SearchScope {
    pub(super) root: PathBuf,
    pub(super) globs: Override,
    pub(super) types: Option<Types>,
    /// Whether a path is hidden from the model.
    pub(super) hides: Box<dyn Fn(&Path) -> bool + Send + Sync>,
}

/// Compiles a filter such as `*.{ts,tsx}`.
///
/// # Errors
/// Why it is not valid, for the model.
pub(super) fn compile_globs(root: &Path, pattern: Option<&str>) -> Result<Override, ToolError> {
    let mut builder = OverrideBuilder::new(root);
    if let Some(pattern) = pattern {
        check_glob(pattern).map_err(|error| format!("glob is wrong: {error}"))?;
        builder.add(pattern).map_err(|error| format!("glob is wrong: {error}"))?;
    }
    Ok(builder.build().map_err(|error| format!("glob is wrong: {error}"))?)
}

/// Finds the file type called `name`.
///
/// # Errors
/// There is no such type.
pub(super) fn find_types(name: &str) -> Result<Types, ToolError> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults().select(name);
    builder.build().map_err(|_| format!("there is no file type `{name}`; use glob instead").into())
}

/// The regular files of a scope, in the order of their names.
pub(super) fn files(scope: SearchScope, bounds: SearchBounds) -> impl Iterator<Item = DirEntry> {
    let SearchScope { root, globs, types, hides } = scope;
    // With any of these options on, the ignore files of all parent folders are parsed.
    let is_filtered = root.ancestors().all(has_readable_ignore_files);
    bounds.is_unfiltered.store(!is_filtered, Ordering::Relaxed);
    let is_global_readable =
        is_filtered && gitconfig_excludes_path().is_none_or(|path| is_readable_ignore_file(&path));
    let passed = Arc::clone(&bounds.passed);
    let mut builder = WalkBuilder::new(root);
    builder
        .hidden(false)
        .require_git(false)
        .ignore(is_filtered)
        .git_ignore(is_filtered)
        .git_global(is_global_readable)
        .parents(is_filtered)
        // To find it, a `.git` file would be followed to the path that it names.
        .git_exclude(false)
        .overrides(globs)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(move |entry| {
            if entry.depth() == 0 {
                return true;
            }
            if entry.file_name() == ".git" || hides(entry.path()) {
                return false;
            }
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            let opens = !is_folder || has_readable_ignore_files(entry.path());
            passed.fetch_add(usize::from(!opens), Ordering::Relaxed);
            opens
        });
    if let Some(types) = types {
        builder.types(types);
    }
    regular(builder.build(), bounds)
}

/// Whether a folder's ignore files can be read without blocking (a pipe waits for a writer, a
/// device never ends) and parsed within bounds.
fn has_readable_ignore_files(folder: &Path) -> bool {
    [".gitignore", ".ignore"].iter().all(|name| is_readable_ignore_file(&folder.join(name)))
}

fn is_readable_ignore_file(path: &Path) -> bool {
    let Ok(facts) = fs::metadata(path) else { return true };
    if !facts.is_file() || facts.len() > IGNORE_FILE_BYTES_MAX {
        return false;
    }
    // It may have been replaced since by a pipe, or may be a link, which the walk follows too.
    let Ok(file) = path.canonicalize().and_then(|real| open_regular(&real)) else { return false };
    let mut content = Vec::new();
    let read = file.take(IGNORE_FILE_BYTES_MAX).read_to_end(&mut content);
    read.is_ok() && has_bounded_lines(&content)
}

fn regular(walk: Walk, bounds: SearchBounds) -> impl Iterator<Item = DirEntry> {
    // Unreadable entries are skipped.
    walk.take_while(move |_| !bounds.is_over())
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
}
