//! Finds memory files, within the limits of trust in the project.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cli::front_matter;
use crate::process::{TrustedOwners, checkout_root, file_reads};
use crate::text::in_home;
use crate::tools::decode_text;

use super::imports::{ImportPiece, pieces, unescaped};
use super::{ConditionalMemory, Memory, MemoryFile, MemoryOrigin};

/// The names of memory files, in each folder.
const NAMES: [&str; 3] = ["CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md"];

/// The name of the user's own memory file for a project.
const LOCAL_NAME: &str = "CLAUDE.local.md";

/// The folder of further instructions, with one file for each subject, in a folder of settings.
const RULES: &str = "rules";

/// The folder of a project's settings that has rules.
const PROJECT_FOLDER: &str = ".claude";

/// Maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum size of all files together, in bytes. More would leave too little context for the task.
const ALL_BYTES_MAX: usize = 512 << 10;

/// Maximum depth of imports within imports.
const DEPTH_MAX: usize = 4;

/// Maximum number of files that are read.
const FILES_MAX: usize = 200;

/// Maximum number of entries of a folder of rules that are visited.
const ENTRIES_MAX: usize = 2_000;

/// The reason why a link is not followed.
const OUTSIDE: &str = "leads out of the project, which is not trusted";

/// Maximum depth of folders of rules.
const RULES_DEPTH_MAX: usize = 8;

/// Maximum number of patterns of a rule.
const PATTERNS_MAX: usize = 20;

/// The folders to search for memory files, and the trust in them.
#[derive(Clone, Copy)]
pub struct MemorySearch<'a> {
    /// The memory file of this machine's administrator.
    pub machine: Option<&'a Path>,
    /// The user's folders, highest precedence first; empty if they are not read.
    pub own: &'a [PathBuf],
    pub home: Option<&'a Path>,
    pub cwd: &'a Path,
    /// True if the project's files are read.
    pub project: bool,
    /// True if the user's files for the project are read.
    pub local: bool,
    /// True if the project may import files from outside of it.
    pub trusted: bool,
    /// Returns the reason why a permission rule denies a file to the model, also as an import or by
    /// a link.
    pub denial: &'a (dyn Fn(&Path) -> Option<String> + Sync),
}

/// A file to be read.
struct MemoryCandidate {
    path: PathBuf,
    scope: FileScope,
}

/// The conditions for a file and its imports.
#[derive(Clone)]
struct FileScope {
    origin: MemoryOrigin,
    /// The folder that they must not lead out of. `None`: no restriction.
    bound: Option<PathBuf>,
    /// True if the file is a rule, which may apply to some files only.
    is_rule: bool,
}

impl MemoryCandidate {
    /// A file of the user or of the administrator of this machine.
    fn unbound(path: PathBuf, origin: MemoryOrigin) -> Self {
        Self { path, scope: FileScope { origin, bound: None, is_rule: false } }
    }
}

/// Reads files, each once.
struct MemoryReader<'a> {
    home: Option<&'a Path>,
    denial: &'a (dyn Fn(&Path) -> Option<String> + Sync),
    /// The owners of the project's files.
    owners: TrustedOwners,
    seen: HashSet<PathBuf>,
    bytes: usize,
    conditional: Vec<ConditionalMemory>,
    warnings: Vec<String>,
}

impl MemorySearch<'_> {
    /// Reads all memory files. Unreadable files are left out, with a warning.
    pub fn read(&self) -> Memory {
        let mut warnings = Vec::new();
        let candidates = self.candidates(&mut warnings);
        self.read_candidates(candidates, warnings)
    }

    fn read_candidates(&self, candidates: Vec<MemoryCandidate>, warnings: Vec<String>) -> Memory {
        let mut reader = MemoryReader {
            home: self.home,
            denial: self.denial,
            owners: TrustedOwners::new(self.cwd, self.trusted),
            seen: HashSet::new(),
            bytes: 0,
            conditional: Vec::new(),
            warnings,
        };
        let mut files: Vec<MemoryFile> = Vec::new();
        for MemoryCandidate { path, scope } in candidates {
            let Some(text) = reader.read(&path, &scope, 0) else { continue };
            if !text.trim().is_empty() && !files.iter().any(|file| file.text == text) {
                files.push(MemoryFile { path, origin: scope.origin, text });
            }
        }
        Memory { files, conditional: reader.conditional, warnings: reader.warnings }
    }

    /// Reads the project's memory files in the folders between the working folder and `file`. Files
    /// that [`Self::read`] has read as imports are read again.
    pub fn read_for_file(&self, file: &Path) -> Memory {
        let Some(folder) = file.parent().filter(|folder| folder.starts_with(self.cwd)) else {
            return Memory::default();
        };
        let mut folders: Vec<&Path> =
            folder.ancestors().take_while(|folder| *folder != self.cwd).collect();
        folders.reverse();
        let (mut candidates, mut warnings) = (Vec::new(), Vec::new());
        self.add_project_files(&folders, &mut candidates, &mut warnings);
        self.read_candidates(candidates, warnings)
    }

    /// Returns all files to look for, the most general first.
    fn candidates(&self, warnings: &mut Vec<String>) -> Vec<MemoryCandidate> {
        let mut candidates = Vec::new();
        if let Some(path) = self.machine {
            candidates.push(MemoryCandidate::unbound(path.to_owned(), MemoryOrigin::Machine));
        }
        for folder in self.own.iter().rev() {
            for name in ["CLAUDE.md", "AGENTS.md"] {
                candidates.push(MemoryCandidate::unbound(folder.join(name), MemoryOrigin::User));
            }
            for path in rules(folder, None, warnings) {
                let mut rule = MemoryCandidate::unbound(path, MemoryOrigin::User);
                rule.scope.is_rule = true;
                candidates.push(rule);
            }
        }
        let mut folders: Vec<&Path> = self.cwd.ancestors().collect();
        folders.reverse();
        self.add_project_files(&folders, &mut candidates, warnings);
        candidates
    }

    /// Adds the files in folders of the project and above it.
    fn add_project_files(
        &self,
        folders: &[&Path],
        candidates: &mut Vec<MemoryCandidate>,
        warnings: &mut Vec<String>,
    ) {
        let root = checkout_root(self.cwd).unwrap_or(self.cwd);
        for &folder in folders {
            // Files above the project may not lead out of their own folder.
            let bound = if folder.starts_with(root) { root } else { folder };
            let bound = (!self.trusted).then(|| bound.to_owned());
            let mut add = |path, origin, is_rule| {
                let scope = FileScope { origin, bound: bound.clone(), is_rule };
                candidates.push(MemoryCandidate { path, scope });
            };
            if self.project {
                for name in NAMES {
                    add(folder.join(name), MemoryOrigin::Project, false);
                }
                for path in rules(&folder.join(PROJECT_FOLDER), bound.as_deref(), warnings) {
                    add(path, MemoryOrigin::Project, true);
                }
            }
            if self.local {
                // A checkout may contain a file of this name, so that it is bound, too.
                add(folder.join(LOCAL_NAME), MemoryOrigin::Local, false);
            }
        }
    }
}

/// Lists the files of rules in a folder of settings, by name. Linked folders are searched, too, if
/// they are within the bound.
fn rules(folder: &Path, bound: Option<&Path>, warnings: &mut Vec<String>) -> Vec<PathBuf> {
    let folder = folder.join(RULES);
    // A folder that cannot be reached causes a warning below.
    let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotADirectory;
    if !folder.try_exists().unwrap_or_else(|error| !is_missing(error)) {
        return Vec::new();
    }
    let real_bound = bound.map(|bound| bound.canonicalize().unwrap_or_else(|_| bound.to_owned()));
    let outside = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&outside);
    let stays = move |entry: &ignore::DirEntry| {
        let path = entry.path();
        let Some(bound) = real_bound.as_ref().filter(|_| entry.path_is_symlink()) else {
            return true;
        };
        // A file outside is reported when it is read.
        let is_inside = !path.is_dir() || path.canonicalize().is_ok_and(|it| it.starts_with(bound));
        if !is_inside {
            found.lock().push(path.to_owned());
        }
        is_inside
    };
    let walk = ignore::WalkBuilder::new(&folder)
        .standard_filters(false)
        .follow_links(true)
        .max_depth(Some(RULES_DEPTH_MAX))
        .sort_by_file_name(Ord::cmp)
        .filter_entry(stays)
        .build();
    let mut files = Vec::new();
    for entry in walk.take(ENTRIES_MAX) {
        match entry.map(ignore::DirEntry::into_path) {
            Ok(path) if path.extension().is_some_and(|kind| kind == "md") => files.push(path),
            Ok(_) => {}
            Err(error) => {
                warnings.push(format!("a part of {} is left out: {error}", folder.display()));
            }
        }
    }
    for path in outside.lock().drain(..) {
        warnings.push(format!("{} is left out: {OUTSIDE}", path.display()));
    }
    files.truncate(FILES_MAX);
    files
}

impl MemoryReader<'_> {
    /// Reads a file with its imports. `None`: the file does not exist, was read before, or is left
    /// out.
    fn read(&mut self, path: &Path, scope: &FileScope, depth: usize) -> Option<String> {
        // Most of the names that are looked for do not exist.
        if let Err(error) = fs::symlink_metadata(path) {
            self.warn_unreachable(path, depth, &error, false);
            return None;
        }
        let found = fs::canonicalize(path);
        let real =
            found.inspect_err(|error| self.warn_unreachable(path, depth, error, true)).ok()?;
        // A folder that a text mentions is not imported.
        if depth > 0 && real.is_dir() {
            return None;
        }
        let outside =
            |bound: &Path| !real.starts_with(bound.canonicalize().as_deref().unwrap_or(bound));
        if scope.bound.as_deref().is_some_and(outside) {
            self.warn(path, OUTSIDE);
            return None;
        }
        if let Some(why) = (self.denial)(path).or_else(|| (self.denial)(&real)) {
            self.warn(path, &why);
            return None;
        }
        if self.seen.len() >= FILES_MAX || !self.seen.insert(real.clone()) {
            return None;
        }
        let text = self.text(&real, scope.origin);
        let text = text.inspect_err(|error| self.warn(path, &error.to_string())).ok()?;
        // A rule with patterns is not included: the model gets its path, to read it when a file
        // matches.
        if depth == 0
            && scope.is_rule
            && let Some(paths) = self.patterns(path, &text)
        {
            self.conditional.push(ConditionalMemory { path: path.to_owned(), paths });
            return None;
        }
        self.bytes += text.len();
        if self.bytes > ALL_BYTES_MAX {
            let limit = ALL_BYTES_MAX >> 10;
            self.warn(path, &format!("all memory files together are longer than {limit} kB"));
            return None;
        }
        let folder = path.parent().unwrap_or(path);
        let mut text_with_imports = String::new();
        for piece in pieces(&text) {
            match piece {
                ImportPiece::Text(text) => text_with_imports.push_str(text),
                ImportPiece::Import { path, written } => {
                    let target = self.resolve(path, folder);
                    let text =
                        (depth < DEPTH_MAX).then(|| self.read(&target, scope, depth + 1)).flatten();
                    // A word that names no file stays text.
                    text_with_imports.push_str(text.as_deref().map_or(written, str::trim));
                }
            }
        }
        Some(text_with_imports)
    }

    /// Reads a regular file of text. A file of the project must have a trusted owner.
    fn text(&self, path: &Path, origin: MemoryOrigin) -> io::Result<String> {
        let bytes = match origin {
            MemoryOrigin::Machine | MemoryOrigin::User => {
                file_reads::read_regular(path, FILE_BYTES_MAX)
            }
            MemoryOrigin::Project | MemoryOrigin::Local => {
                file_reads::read_owned(path, FILE_BYTES_MAX, &self.owners)
            }
        }?;
        decode_text(bytes).ok_or_else(|| io::Error::other("it is not text"))
    }

    /// Returns the file patterns of a rule. `None`: it applies to all files.
    fn patterns(&mut self, path: &Path, text: &str) -> Option<Vec<String>> {
        let shown = path.display();
        let fields = front_matter::fields(text).inspect_err(|mistake| {
            self.warnings.push(format!("{shown}:{mistake}; the rest of the file is used"));
        });
        let fields = fields.ok().flatten()?;
        self.warnings.extend(fields.warnings.iter().map(|why| format!("{shown}:{why}")));
        fields.has("paths").then(|| {
            let mut patterns = fields.words("paths").unwrap_or_default();
            patterns.truncate(PATTERNS_MAX);
            patterns
        })
    }

    fn resolve(&self, path: &str, folder: &Path) -> PathBuf {
        let path = &*unescaped(path);
        in_home(path, self.home).unwrap_or_else(|| folder.join(path))
    }

    /// Warns about a path that cannot be resolved, unless it is no file: words such as `@types/node`
    /// are not imports. `is_there`: the path exists, but its target may not.
    fn warn_unreachable(&mut self, path: &Path, depth: usize, error: &io::Error, is_there: bool) {
        use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
        let is_document = depth > 0 && path.extension().is_some_and(|kind| kind == "md");
        if !matches!(error.kind(), NotFound | NotADirectory | InvalidFilename | InvalidInput) {
            self.warn(path, &error.to_string());
        } else if is_there {
            self.warn(path, "it is a link to a file that does not exist");
        } else if is_document {
            self.warn(path, "the file does not exist");
        }
    }

    fn warn(&mut self, path: &Path, why: &str) {
        self.warnings.push(format!("{} is left out: {why}", path.display()));
    }
}
