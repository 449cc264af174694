//! Walks the files below a folder for a search: skips ignored and hidden files, and is bounded in
//! time.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use ignore::{DirEntry, Match, WalkBuilder};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process::checkout_root;
use crate::text::listed;

use super::glob_limits::{IGNORE_MEMORY_MAX, check_glob, estimate_ignore_file};
use super::glob_readings::{add_valid, alternatives, readings};
use super::outcome::ToolError;
use super::paths::{PATH_BYTES_MAX, display_path, open_regular, resolve};
use super::sandbox::Hides;

/// The maximum time of one search.
const SEARCH_MAX: Duration = Duration::from_mins(1);

/// The largest ignore file that is read, in bytes.
const IGNORE_FILE_BYTES_MAX: u64 = 1 << 20;

/// The maximum number of files that are looked at to explain an empty result.
const EXPLAINED_MAX: usize = 20_000;

/// The longest suffix of files that a type may name, in bytes.
const SUFFIX_BYTES_MAX: usize = 5;

/// The maximum number of paths in the explanation of an empty result.
const NAMED_MAX: usize = 5;

const UNREADABLE: &str = "a .gitignore or .ignore is too large or has too many wildcards, has a \
                          line that is too long or opens too many braces, or is not a regular file";

/// The limits at which a search ends early.
#[derive(Clone, Debug)]
pub(super) struct SearchBounds {
    cancel: CancellationToken,
    end: Instant,
    /// The number of folders that were skipped.
    passed: Arc<AtomicUsize>,
    /// True if no ignore file was applied.
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

    fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The notes for the model about folders that were not searched, or searched without filters.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let late = "[the search took too long and was ended; use a narrower path]";
        let unfiltered = || format!("[ignored files were searched too, because {UNREADABLE}]");
        let passed = self.passed.load(Ordering::Relaxed);
        let passed_over = || {
            format!(
                "[folders passed over, because {UNREADABLE}: {passed}; give such a folder as path \
                 to search it]"
            )
        };
        let notes = [
            self.is_late().then(|| late.to_owned()),
            self.is_unfiltered.load(Ordering::Relaxed).then(unfiltered),
            (passed > 0).then(passed_over),
        ];
        notes.into_iter().flatten()
    }
}

/// The files that a search covers.
pub(super) struct SearchScope {
    /// A real path.
    pub(super) root: PathBuf,
    /// The root as it was written.
    pub(super) written: PathBuf,
    /// The note for a root that does not exist, if a pattern led there.
    pub(super) missing_folder: Option<String>,
    pub(super) globs: Override,
    pub(super) types: Option<Types>,
    /// Decides whether a path is hidden from the model.
    pub(super) hides: Hides,
}

/// The root of a search, by which found files are named.
pub(super) struct SearchPlace {
    root: PathBuf,
    written: PathBuf,
}

impl SearchScope {
    pub(super) fn place(&self) -> SearchPlace {
        let is_same = resolve(&self.written) == self.root;
        let written = if is_same { &self.written } else { &self.root };
        SearchPlace { root: self.root.clone(), written: written.clone() }
    }
}

impl SearchPlace {
    /// The path as shown to the model: below the folder that the call names, even if that is a
    /// link.
    pub(super) fn shown(&self, path: &Path, base: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(rest) if rest.as_os_str().is_empty() => display_path(&self.written, base),
            Ok(rest) => display_path(&self.written.join(rest), base),
            Err(_) => display_path(path, base),
        }
    }
}

/// Compiles a filter such as `*.{ts,tsx}`, or a list of them.
pub(super) fn compile_globs(root: &Path, pattern: Option<&str>) -> Result<Override, ToolError> {
    let wrong = |error: &dyn Display| ToolError::from(format!("glob is wrong: {error}"));
    let mut builder = OverrideBuilder::new(root);
    if let Some(pattern) = pattern {
        check_glob(pattern).map_err(|error| wrong(&error))?;
        for one in alternatives(pattern) {
            let lines = readings(one).into_iter().flat_map(|reading| override_lines(&reading));
            add_valid(lines, |line| builder.add(line).map(drop)).map_err(|error| wrong(&error))?;
        }
    }
    builder.build().map_err(|error| wrong(&error))
}

/// The lines of a filter that cover what a pattern covers: the name of a folder covers everything
/// in it.
fn override_lines(pattern: &str) -> Vec<String> {
    // Without the backslash, the line is a comment, and the filter lets everything pass.
    let escape = if pattern.starts_with('#') { "\\" } else { "" };
    let line = |end: &str| format!("{escape}{pattern}{end}");
    if pattern.starts_with('!') || pattern.ends_with('*') {
        vec![line("")]
    } else if pattern.ends_with('/') {
        vec![line("**")]
    } else {
        vec![line(""), line("/**")]
    }
}

/// Finds the file type called `name`, or that of files with this suffix.
///
/// # Errors
/// There is no such type, and it is too long for a suffix.
pub(super) fn find_types(name: &str) -> Result<Types, ToolError> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    let is_known = builder.definitions().iter().any(|one| one.name() == name);
    let is_suffix = name.len() <= SUFFIX_BYTES_MAX && name.chars().all(char::is_alphanumeric);
    if !is_known && is_suffix {
        // A suffix that is not the name of a type: `tsx`, `yml`.
        let added = builder.add(name, &format!("*.{name}"));
        added.map_err(|error| format!("there is no file type `{name}`: {error}"))?;
    }
    builder.select(name);
    builder.build().map_err(|_| format!("there is no file type `{name}`; use glob instead").into())
}

/// The regular files and the links of a scope, in the order of their names.
pub(super) fn files(
    scope: &SearchScope,
    bounds: SearchBounds,
) -> impl Iterator<Item = DirEntry> + use<> {
    let (mut builder, is_filtered) = walk(scope, Some(&bounds.passed));
    bounds.is_unfiltered.store(!is_filtered, Ordering::Relaxed);
    builder.overrides(scope.globs.clone());
    if let Some(types) = scope.types.clone() {
        builder.types(types);
    }
    // Unreadable entries are skipped.
    builder
        .build()
        .take_while(move |_| !bounds.is_over())
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file() || kind.is_symlink()))
}

/// Lists the files and links below the root that a search has left out, if any.
pub(super) fn explain_nothing_found(
    scope: &SearchScope,
    base: &Path,
    bounds: &SearchBounds,
) -> Option<String> {
    if !scope.root.is_dir() {
        return None;
    }
    let place = scope.place();
    let mut seen = HashSet::new();
    for entry in walk(scope, None).0.build().take_while(|_| !bounds.is_over()) {
        seen.extend(entry.ok().map(DirEntry::into_path));
        if seen.len() > EXPLAINED_MAX {
            return None;
        }
    }
    let (mut ignored, mut links) = (Vec::new(), Vec::new());
    let mut folders = vec![scope.root.clone()];
    while let Some(folder) = folders.pop().filter(|_| !bounds.is_over()) {
        let entries = fs::read_dir(folder).ok()?.flatten();
        for entry in entries.filter(|entry| entry.file_name() != ".git") {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if (scope.hides)(&path) {
                continue;
            }
            if kind.is_symlink() {
                links.push(place.shown(&path, base));
            } else if !seen.contains(&path) {
                ignored.push(place.shown(&path, base) + if kind.is_dir() { "/" } else { "" });
            } else if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    let note = |what: &str, mut paths: Vec<String>| {
        paths.sort_unstable();
        let names = listed(&paths, NAMED_MAX);
        (!names.is_empty()).then(|| format!("[{what}: {names}; give one as path to search it]"))
    };
    let notes = [
        note("left out, as .gitignore or its like says", ignored),
        note("links are not followed", links),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    Some(notes.join("\n")).filter(|notes| !notes.is_empty())
}

/// Returns a walk below the root of a scope without its filters, and true if the ignore files above
/// it can be read. `passed` counts the folders that are left out because theirs cannot be read.
fn walk(scope: &SearchScope, passed: Option<&Arc<AtomicUsize>>) -> (WalkBuilder, bool) {
    let root = &scope.root;
    // With any of these options on, the ignore files of all parent folders are parsed.
    let estimate = root.ancestors().map(estimate_of_folder).sum::<Option<u64>>();
    let estimate = estimate.filter(|estimate| *estimate <= IGNORE_MEMORY_MAX);
    let is_readable = estimate.is_some();
    // The estimates for the root, and for each folder below it with ignore files.
    let estimates = Mutex::new(HashMap::from([(root.clone(), estimate.unwrap_or_default())]));
    // A call that names an ignored folder searches its content.
    let is_filtered = is_readable && !is_ignored(root);
    let is_global_readable = is_filtered
        && can_read_git_settings(
            env::home_dir(),
            env::var_os("XDG_CONFIG_HOME"),
            ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].map(env::var_os),
        )
        && gitconfig_excludes_path().is_none_or(|path| is_readable_ignore_file(&path));
    let (passed, hides) = (passed.cloned(), scope.hides.clone());
    let mut builder = WalkBuilder::new(root);
    builder
        .hidden(false)
        // The rules of a repository end at its root. Without one, all folders above have rules.
        .require_git(checkout_root(root).is_some())
        .ignore(is_filtered)
        .git_ignore(is_filtered)
        .git_global(is_global_readable)
        .parents(is_filtered)
        // A `.git` file would be followed to any path that it names.
        .git_exclude(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(move |entry| {
            if entry.depth() == 0 {
                return true;
            }
            if entry.file_name() == ".git" || hides(entry.path()) {
                return false;
            }
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            let opens = !is_folder || has_bounded_ignore_files(entry.path(), &estimates);
            if let Some(passed) = &passed {
                passed.fetch_add(usize::from(!opens), Ordering::Relaxed);
            }
            opens
        });
    if is_filtered && let Some((repository, exclude)) = exclude_file(root) {
        builder.current_dir(repository);
        // A pattern that cannot be parsed is skipped, as in other ignore files.
        let _ = builder.add_ignore(exclude);
    }
    (builder, is_readable)
}

/// True if ignore files of its repository exclude a folder, or a folder that it is in.
fn is_ignored(folder: &Path) -> bool {
    let decides = |rules: &Gitignore| match rules.matched_path_or_any_parents(folder, true) {
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
        Match::None => None,
    };
    // Ignore files above a repository do not apply to it.
    let within = folder.ancestors().take_while(|folder| !folder.join(".git").exists());
    for parent in within.filter_map(Path::parent) {
        for name in [".ignore", ".gitignore"] {
            if let Some(decision) = decides(&Gitignore::new(parent.join(name)).0) {
                return decision;
            }
        }
    }
    exclude_file(folder).is_some_and(|(repository, exclude)| {
        let mut builder = GitignoreBuilder::new(repository);
        let _ = builder.add(exclude);
        builder.build().is_ok_and(|rules| decides(&rules) == Some(true))
    })
}

/// Returns the repository that a folder is in, and its own ignore file, `.git/info/exclude`.
fn exclude_file(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let repository = checkout_root(folder)?;
    let git = repository.join(".git");
    let git = if git.is_dir() { git } else { common_folder(repository, &git)? };
    let exclude = git.join("info/exclude");
    let is_usable = exclude.is_file() && is_readable_ignore_file(&exclude);
    is_usable.then(|| (repository.to_owned(), exclude))
}

/// Returns the git directory to which the `.git` file of a linked work tree leads.
fn common_folder(repository: &Path, git: &Path) -> Option<PathBuf> {
    let line = |path: &Path| {
        let mut text = String::new();
        let file = path.canonicalize().and_then(|real| open_regular(&real)).ok()?;
        file.take(PATH_BYTES_MAX as u64).read_to_string(&mut text).ok()?;
        text.lines().next().map(str::to_owned)
    };
    let git = repository.join(line(git)?.strip_prefix("gitdir: ")?);
    let common = line(&git.join("commondir")).unwrap_or_else(|| ".".to_owned());
    Some(git.join(common))
}

/// True if the settings that `gitconfig_excludes_path` reads are missing or can be read without
/// blocking: those of the user, and those that variables name.
fn can_read_git_settings(
    home: Option<PathBuf>,
    config: Option<OsString>,
    named: [Option<OsString>; 2],
) -> bool {
    let config = config.filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = config.or_else(|| Some(home.as_ref()?.join(".config")));
    // The usual name of settings that are empty.
    let named = named.into_iter().flatten().filter(|path| path != "/dev/null").map(PathBuf::from);
    [home.map(|home| home.join(".gitconfig")), config.map(|config| config.join("git/config"))]
        .into_iter()
        .flatten()
        .chain(named)
        .filter_map(|path| fs::metadata(path).ok())
        .all(|facts| has_end(&facts))
}

/// True if reading a file ends within bounds: a pipe waits for a writer, a device never ends.
fn has_end(facts: &Metadata) -> bool {
    facts.is_file() && facts.len() <= IGNORE_FILE_BYTES_MAX
}

/// True if the ignore files of a folder and those above it can be parsed within bounds. Keeps the
/// estimate for all of them, if the folder has any.
fn has_bounded_ignore_files(folder: &Path, estimates: &Mutex<HashMap<PathBuf, u64>>) -> bool {
    match estimate_of_folder(folder) {
        None => false,
        Some(0) => true,
        Some(own) => {
            let mut estimates = estimates.lock();
            let above = folder.ancestors().find_map(|above| estimates.get(above)).copied();
            let estimate = own.saturating_add(above.unwrap_or_default());
            let is_within = estimate <= IGNORE_MEMORY_MAX;
            if is_within {
                estimates.insert(folder.to_owned(), estimate);
            }
            is_within
        }
    }
}

/// Estimates the memory for a folder's ignore files. `None` if they cannot be read without blocking
/// (a pipe waits for a writer, a device never ends) and within bounds.
fn estimate_of_folder(folder: &Path) -> Option<u64> {
    [".gitignore", ".ignore"].iter().map(|name| estimate_of_file(&folder.join(name))).sum()
}

fn estimate_of_file(path: &Path) -> Option<u64> {
    let Ok(facts) = fs::metadata(path) else { return Some(0) };
    if !has_end(&facts) {
        return None;
    }
    // It may have been replaced since by a pipe, or may be a link, which the walk follows too.
    let file = path.canonicalize().and_then(|real| open_regular(&real)).ok()?;
    let mut content = Vec::new();
    file.take(IGNORE_FILE_BYTES_MAX).read_to_end(&mut content).ok()?;
    estimate_ignore_file(&content)
}

fn is_readable_ignore_file(path: &Path) -> bool {
    estimate_of_file(path).is_some_and(|estimate| estimate <= IGNORE_MEMORY_MAX)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn settings_of_git_are_read_unless_they_block() {
        let home = tempfile::tempdir().expect("a folder");
        let can_read = |config: Option<&str>| {
            let home = Some(home.path().to_owned());
            can_read_git_settings(home, config.map(OsString::from), [None, None])
        };
        assert!(can_read(None) && can_read(Some("")), "there are none");
        fs::create_dir_all(home.path().join(".config/git")).expect("a folder");
        mkfifo(&home.path().join(".config/git/config"), Mode::S_IRWXU).expect("a pipe");
        assert!(!can_read(None) && !can_read(Some("")));
        assert!(can_read(Some("/nowhere")), "it is not the folder of settings");
        fs::write(home.path().join(".gitconfig"), "[user]\n").expect("a file");
        assert!(can_read(Some("/nowhere")));
        fs::remove_file(home.path().join(".gitconfig")).expect("it is there");
        let pipe = home.path().join(".gitconfig");
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        assert!(!can_read(Some("/nowhere")));
        for (named, is_read) in
            [(Path::new(""), true), (Path::new("/dev/null"), true), (pipe.as_path(), false)]
        {
            let variables = [None, Some(OsString::from(named))];
            assert_eq!(can_read_git_settings(None, None, variables), is_read, "{named:?}");
        }
    }
}
