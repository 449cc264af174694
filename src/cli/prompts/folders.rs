//! Finds files of agents, commands and skills, within limits of size and trust.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::plugins::Plugin;
use crate::config::file;
use crate::process::{TrustedOwners, checkout_root, file_reads};
use crate::tools::decode_text;

/// The searched folders of a project, highest precedence first.
const NAMES: [&str; 2] = [".outlast", ".claude"];

/// The file of a skill, in its folder.
const SKILL: &str = "SKILL.md";

/// Maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum size of all files together, in bytes: they are kept in memory.
const ALL_BYTES_MAX: usize = 8 << 20;

/// Maximum number of files of one kind.
const FILES_MAX: usize = 500;

/// Maximum number of entries of a folder tree that are visited.
const ENTRIES_MAX: usize = 2_000;

/// Maximum depth of nested folders.
const DEPTH_MAX: usize = 8;

/// The folders to search for prompt files, and the trust in them.
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub struct LibrarySearch<'a> {
    pub cwd: &'a Path,
    /// The user's own folders, highest precedence first; empty if they are not read.
    pub own: Vec<PathBuf>,
    /// Plugins, whose files are trusted like the user's own.
    pub plugins: &'a [Plugin],
    /// Further folders to work in, whose skills are read.
    pub added: &'a [PathBuf],
    /// True if the project's files are read.
    pub project: bool,
    /// Returns the trust in a file of the project with this content.
    pub trust: &'a dyn Fn(&str) -> FileTrust,
    /// Returns the trust in a file of a plugin with this content.
    pub plugin_trust: &'a dyn Fn(&str) -> FileTrust,
    /// True if links of the project may lead out of it.
    pub anywhere: bool,
    /// True if commands and skills are read.
    pub commands: bool,
    /// True if the model is told about skills other than those of plugins.
    pub lists_skills: bool,
}

/// The trust in a file that defines an agent, a command or a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTrust {
    Trusted,
    /// It is not trusted, for this reason.
    Untrusted(String),
}

impl FileTrust {
    /// Returns the reason that the file is not trusted.
    pub(super) fn distrust(&self) -> Option<&str> {
        match self {
            Self::Trusted => None,
            Self::Untrusted(reason) => Some(reason),
        }
    }
}

/// A folder that holds `agents`, `commands` and `skills`.
struct PromptFolder<'a> {
    folder: PathBuf,
    /// The name for messages, with a slash at its end.
    shown: String,
    /// The folder that links may not lead out of. `None`: no restriction.
    bound: Option<PathBuf>,
    whose: FolderOwner,
    /// Its distance from the working folder.
    distance: usize,
    /// The plugin that it is. The names of its files begin with the plugin's.
    plugin: Option<&'a Plugin>,
    /// True if only its skills are read.
    is_skills_only: bool,
}

/// A file or folder with prompts of one kind.
struct PromptPlace {
    path: PathBuf,
    /// The folder that the names of its prompts are relative to.
    base: PathBuf,
    /// The name of that folder for messages, with a slash at its end.
    shown: String,
}

impl PromptFolder<'_> {
    fn places(&self, kind: &str) -> Vec<PromptPlace> {
        if self.is_skills_only && kind != "skills" {
            return Vec::new();
        }
        let Some(plugin) = self.plugin else {
            let (path, shown) = (self.folder.join(kind), format!("{}{kind}/", self.shown));
            return vec![PromptPlace { base: path.clone(), path, shown }];
        };
        let place = |path: PathBuf| {
            let is_one = path.is_file() || kind == "skills" && path.join(SKILL).exists();
            let base = path.parent().filter(|_| is_one).unwrap_or(&path).to_owned();
            let shown = format!("{}/", base.display());
            PromptPlace { path, base, shown }
        };
        plugin.prompt_places(kind).into_iter().map(place).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderOwner {
    User,
    Project,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub(super) struct PromptFile {
    pub(super) path: PathBuf,
    /// The name for messages.
    pub(super) shown: String,
    /// The path relative to the folder of its kind.
    pub(super) relative: PathBuf,
    pub(super) text: String,
    /// The prefix of its name: the name of a plugin.
    pub(super) namespace: Option<String>,
    /// The variables of the plugin that the text names.
    pub(super) variables: Vec<(String, String)>,
    pub(super) trust: FileTrust,
    /// Precedence: the lowest rank wins if several files define the same name.
    pub(super) rank: usize,
}

impl PromptFile {
    pub(super) fn is_trusted(&self) -> bool {
        self.trust == FileTrust::Trusted
    }
}

/// The reason that a file is left out.
#[derive(Debug, thiserror::Error)]
enum PromptFileError {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("it leads out of the project, which is not trusted")]
    LeadsOut,
    #[error("all such files together are larger than {} MB", ALL_BYTES_MAX >> 20)]
    TooMuch,
    #[error("it is not text")]
    NotText,
}

/// Finds and reads files, and collects warnings about those that could not be read.
pub(super) struct PromptFinder<'a> {
    search: &'a LibrarySearch<'a>,
    candidates: Vec<PromptFolder<'a>>,
    /// The owners of the project's files.
    owners: TrustedOwners,
    bytes: usize,
    pub(super) warnings: Vec<String>,
}

impl<'a> PromptFinder<'a> {
    pub(super) fn new(search: &'a LibrarySearch<'a>) -> Self {
        let owners = TrustedOwners::new(search.cwd, search.anywhere);
        let candidates = search_folders(search);
        Self { search, candidates, owners, bytes: 0, warnings: Vec::new() }
    }

    /// The Markdown files below the folders of this name.
    pub(super) fn files(&mut self, kind: &str) -> Vec<PromptFile> {
        self.sheets(kind, markdown)
    }

    /// The `SKILL.md` of each folder in the folders of this name.
    pub(super) fn skills(&mut self, kind: &str) -> Vec<PromptFile> {
        self.sheets(kind, |root, _, warnings| {
            // A plugin may name the folder of one skill.
            let own = root.join(SKILL);
            if own.exists() {
                return vec![own];
            }
            let listed = fs::read_dir(root).inspect_err(|error| {
                warnings.push(format!("a part of {} is left out: {error}", root.display()));
            });
            let entries = listed.into_iter().flatten().take(ENTRIES_MAX).flatten();
            let skill = |entry: fs::DirEntry| entry.path().join(SKILL);
            // Reading one that cannot be reached causes a warning. Other files may be beside the folders.
            let may_exist = |path: &PathBuf| {
                path.try_exists().unwrap_or_else(|error| !file::is_missing(&error))
            };
            let mut files: Vec<PathBuf> = entries.map(skill).filter(may_exist).collect();
            files.sort_unstable();
            files
        })
    }

    fn sheets(
        &mut self,
        kind: &str,
        list: impl Fn(&Path, Option<&Path>, &mut Vec<String>) -> Vec<PathBuf>,
    ) -> Vec<PromptFile> {
        let mut sheets = Vec::new();
        let candidates = std::mem::take(&mut self.candidates);
        for candidate in &candidates {
            let mut known = HashSet::new();
            for PromptPlace { path: root, base, shown } in candidate.places(kind) {
                let real = match file_reads::canonicalize(&root) {
                    Ok(real) => real,
                    Err(error) => {
                        if !file::is_missing(&error) {
                            self.warn(&shown, &error.to_string());
                        }
                        continue;
                    }
                };
                if candidate.bound.as_ref().is_some_and(|bound| !real.starts_with(bound)) {
                    self.warn(&shown, &PromptFileError::LeadsOut.to_string());
                    continue;
                }
                for path in list(&root, candidate.bound.as_deref(), &mut self.warnings) {
                    if sheets.len() >= FILES_MAX {
                        let why = format!("only {FILES_MAX} files of a kind are read");
                        self.warn(&shown, &why);
                        break;
                    }
                    // A plugin may name a file in a folder that is searched anyway.
                    if known.insert(path.clone()) {
                        sheets.extend(self.read(candidate, &base, &shown, path));
                    }
                }
            }
        }
        self.candidates = candidates;
        sheets
    }

    fn read(
        &mut self,
        place: &PromptFolder<'_>,
        root: &Path,
        shown: &str,
        path: PathBuf,
    ) -> Option<PromptFile> {
        let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
        let shown = format!("{shown}{}", relative.display());
        match self.text(place, &path) {
            Ok((trust, text)) => {
                // An untrusted file never replaces one of the user's own.
                let rank = match (place.whose, trust == FileTrust::Trusted) {
                    (FolderOwner::Project, true) => place.distance,
                    (FolderOwner::User, _) => USER_RANK + place.distance,
                    (FolderOwner::Project, false) => UNTRUSTED_RANK + place.distance,
                };
                let (text, variables) = match place.plugin {
                    Some(plugin) => plugin.fill(text),
                    None => (text, Vec::new()),
                };
                let namespace = place.plugin.map(|plugin| plugin.name.clone());
                let file =
                    PromptFile { path, shown, relative, text, namespace, variables, trust, rank };
                Some(file)
            }
            Err(error) => {
                self.warn(&shown, &error.to_string());
                None
            }
        }
    }

    /// Returns the trust in a file, and its text.
    fn text(
        &mut self,
        place: &PromptFolder<'_>,
        path: &Path,
    ) -> Result<(FileTrust, String), PromptFileError> {
        let real = path.canonicalize()?;
        if place.bound.as_ref().is_some_and(|bound| !real.starts_with(bound)) {
            return Err(PromptFileError::LeadsOut);
        }
        let content = match place.whose {
            FolderOwner::User => file_reads::read_regular(&real, FILE_BYTES_MAX),
            FolderOwner::Project => file_reads::read_owned(&real, FILE_BYTES_MAX, &self.owners),
        };
        let bytes = content?;
        self.bytes += bytes.len();
        if self.bytes > ALL_BYTES_MAX {
            return Err(PromptFileError::TooMuch);
        }
        let text = decode_text(bytes).ok_or(PromptFileError::NotText)?;
        let trust = match (place.whose, place.plugin) {
            _ if place.is_skills_only => FileTrust::Untrusted(ADDED.to_owned()),
            (FolderOwner::Project, _) => (self.search.trust)(&text),
            (FolderOwner::User, Some(_)) => (self.search.plugin_trust)(&text),
            (FolderOwner::User, None) => FileTrust::Trusted,
        };
        Ok((trust, text.replace("\r\n", "\n")))
    }

    pub(super) fn warn(&mut self, shown: &str, why: &str) {
        self.warnings.push(format!("{shown} is left out: {why}"));
    }
}

/// The reason why skills of added folders are not trusted: trust is in the working folder.
const ADDED: &str = "it is in a folder that was added";

/// The ranks of the skills in added folders begin here.
const ADDED_RANK: usize = 1 << 15;

/// The ranks of the user's own files begin here.
const USER_RANK: usize = 1 << 16;

/// The ranks of untrusted project files begin here.
const UNTRUSTED_RANK: usize = 1 << 17;

/// Returns the folders to search, highest precedence first.
fn search_folders<'a>(search: &LibrarySearch<'a>) -> Vec<PromptFolder<'a>> {
    let mut candidates: Vec<PromptFolder<'a>> = Vec::new();
    let mut known: Vec<(PathBuf, Option<&str>)> = Vec::new();
    let mut add = |candidate: PromptFolder<'a>| {
        let Ok(place) = file_reads::canonicalize(&candidate.folder) else { return };
        let plugin = candidate.plugin.map(|plugin| plugin.name.as_str());
        // The home folder may be the project as well: the user's own folders keep their rank. Several
        // plugins may share a folder.
        let is_known = |(path, name): &(PathBuf, Option<&str>)| {
            *path == place && (plugin.is_none() || name.is_none() || *name == plugin)
        };
        if !known.iter().any(is_known) {
            known.push((place, plugin));
            candidates.push(candidate);
        }
    };
    for (distance, folder) in search.own.iter().enumerate() {
        let shown = format!("{}/", folder.display());
        let whose = FolderOwner::User;
        add(PromptFolder {
            folder: folder.clone(),
            shown,
            bound: None,
            whose,
            distance,
            plugin: None,
            is_skills_only: false,
        });
    }
    for plugin in search.plugins {
        add(PromptFolder {
            folder: plugin.folder.clone(),
            shown: format!("{}/", plugin.folder.display()),
            bound: None,
            whose: FolderOwner::User,
            distance: search.own.len(),
            plugin: Some(plugin),
            is_skills_only: false,
        });
    }
    if search.project {
        let root = checkout_root(search.cwd).unwrap_or(search.cwd);
        let bound = (!search.anywhere).then(|| root.canonicalize().unwrap_or(root.to_owned()));
        let levels = search.cwd.ancestors().take_while(|folder| folder.starts_with(root));
        for (level, folder) in levels.enumerate() {
            for (place, name) in NAMES.iter().enumerate() {
                add(PromptFolder {
                    folder: folder.join(name),
                    shown: format!("{}{name}/", "../".repeat(level)),
                    bound: bound.clone(),
                    whose: FolderOwner::Project,
                    distance: level * NAMES.len() + place,
                    plugin: None,
                    is_skills_only: false,
                });
            }
        }
    }
    for (index, added) in search.added.iter().enumerate() {
        let bound = Some(added.canonicalize().unwrap_or(added.clone()));
        for name in NAMES {
            let folder = added.join(name);
            add(PromptFolder {
                shown: format!("{}/", folder.display()),
                folder,
                bound: bound.clone(),
                whose: FolderOwner::Project,
                distance: ADDED_RANK + index,
                plugin: None,
                is_skills_only: true,
            });
        }
    }
    candidates
}

/// The Markdown files below a folder, by name.
fn markdown(root: &Path, bound: Option<&Path>, warnings: &mut Vec<String>) -> Vec<PathBuf> {
    let bound = bound.map(Path::to_path_buf);
    let stays = move |entry: &ignore::DirEntry| {
        let Some(bound) = bound.as_ref().filter(|_| entry.path_is_symlink()) else { return true };
        // A link that leads out is reported when it is read.
        entry.path().is_file()
            || entry.path().canonicalize().is_ok_and(|real| real.starts_with(bound))
    };
    let walk = ignore::WalkBuilder::new(root)
        .standard_filters(false)
        .follow_links(true)
        .max_depth(Some(DEPTH_MAX))
        .sort_by_file_name(Ord::cmp)
        .filter_entry(stays)
        .build();
    let mut files = Vec::new();
    for (count, entry) in walk.enumerate() {
        match entry {
            _ if count == ENTRIES_MAX => {
                let root = root.display();
                let why = format!("it holds more than {ENTRIES_MAX} files and folders");
                warnings.push(format!("a part of {root} is left out: {why}"));
                break;
            }
            Ok(entry) => {
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                if !is_folder && entry.path().extension().is_some_and(|kind| kind == "md") {
                    files.push(entry.into_path());
                }
            }
            Err(error) => {
                warnings.push(format!("a part of {} is left out: {error}", root.display()));
            }
        }
    }
    files
}
