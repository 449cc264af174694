//! Finds files of agents, commands, skills and output styles, within limits of size and trust.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::plugins::{NamedCommand, Plugin};
use crate::config::file;
use crate::process::{TrustedOwners, checkout_root, file_reads};
use crate::tools::decode_text;

/// The searched folders of a project, highest precedence first.
const NAMES: [&str; 2] = [".outlast", ".claude"];

/// The file of a skill, in its folder.
const SKILL: &str = "SKILL.md";

/// Maximum size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum size of all files together, in bytes: they are in memory.
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
    /// The user's folders, highest precedence first; empty if they are not read.
    pub own: Vec<PathBuf>,
    /// Plugins, whose files are trusted like the user's.
    pub plugins: &'a [Plugin],
    /// Additional working folders, whose skills are read.
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
    /// True if skills other than those of plugins are listed for the model.
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
    /// Returns the reason why the file is not trusted.
    pub(super) fn distrust(&self) -> Option<&str> {
        match self {
            Self::Trusted => None,
            Self::Untrusted(reason) => Some(reason),
        }
    }
}

/// A folder with the subfolders `agents`, `commands` and `skills`.
struct PromptFolder<'a> {
    folder: PathBuf,
    /// The name for messages, with a slash at its end.
    shown: String,
    /// The folder that links may not lead out of. `None`: no restriction.
    bound: Option<PathBuf>,
    owner: FolderOwner<'a>,
    /// Its distance from the working folder.
    distance: usize,
}

/// A file or folder with prompts of one kind.
struct PromptPlace {
    path: PathBuf,
    /// The folder that the names of its prompts are relative to.
    base: PathBuf,
    /// The name of that folder for messages, with a slash at its end.
    shown: String,
}

impl<'a> PromptFolder<'a> {
    /// A folder without a bound, which messages call by its path.
    fn new(owner: FolderOwner<'a>, folder: PathBuf, distance: usize) -> Self {
        let shown = format!("{}/", folder.display());
        Self { folder, shown, bound: None, owner, distance }
    }

    fn plugin(&self) -> Option<&'a Plugin> {
        if let FolderOwner::Plugin(plugin) = self.owner { Some(plugin) } else { None }
    }

    fn places(&self, kind: &str) -> Vec<PromptPlace> {
        if matches!(self.owner, FolderOwner::Added) && kind != "skills" {
            return Vec::new();
        }
        let Some(plugin) = self.plugin() else {
            let (path, shown) = (self.folder.join(kind), format!("{}{kind}/", self.shown));
            return vec![PromptPlace { base: path.clone(), path, shown }];
        };
        let place = |path: PathBuf| {
            let is_prompt = path.is_file() || kind == "skills" && path.join(SKILL).exists();
            let base = path.parent().filter(|_| is_prompt).unwrap_or(&path).to_owned();
            let shown = format!("{}/", base.display());
            PromptPlace { path, base, shown }
        };
        plugin.prompt_places(kind).into_iter().map(place).collect()
    }
}

#[derive(Clone, Copy)]
enum FolderOwner<'a> {
    User,
    /// The names of its prompts begin with the plugin's name.
    Plugin(&'a Plugin),
    Project,
    /// A folder that was added to the project. Only its skills are read.
    Added,
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

/// The reason why a file is left out.
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
    folders: Vec<PromptFolder<'a>>,
    /// The owners of the project's files.
    owners: TrustedOwners,
    bytes: usize,
    pub(super) warnings: Vec<String>,
}

impl<'a> PromptFinder<'a> {
    pub(super) fn new(search: &'a LibrarySearch<'a>) -> Self {
        let owners = TrustedOwners::new(search.cwd, search.anywhere);
        let folders = search_folders(search);
        Self { search, folders, owners, bytes: 0, warnings: Vec::new() }
    }

    /// Reads the Markdown files below the folders of a kind.
    pub(super) fn files(&mut self, kind: &str) -> Vec<PromptFile> {
        self.read_all(kind, markdown_files)
    }

    /// Reads the `SKILL.md` of each folder of a skill.
    pub(super) fn skills(&mut self) -> Vec<PromptFile> {
        self.read_all("skills", |root, _, warnings| {
            // A plugin may name the folder of one skill.
            let file = root.join(SKILL);
            if file.exists() {
                return vec![file];
            }
            let listed = fs::read_dir(root).inspect_err(|error| {
                warnings.push(format!("a part of {} is left out: {error}", root.display()));
            });
            let entries = listed.into_iter().flatten().take(ENTRIES_MAX).flatten();
            let skill = |entry: fs::DirEntry| entry.path().join(SKILL);
            // Reading an unreachable file causes a warning. Other files may be beside the folders.
            let may_exist = |path: &PathBuf| {
                path.try_exists().unwrap_or_else(|error| !file::is_missing(&error))
            };
            let mut files: Vec<PathBuf> = entries.map(skill).filter(may_exist).collect();
            files.sort_unstable();
            files
        })
    }

    fn read_all(
        &mut self,
        kind: &str,
        list: impl Fn(&Path, Option<&Path>, &mut Vec<String>) -> Vec<PathBuf>,
    ) -> Vec<PromptFile> {
        let mut files = Vec::new();
        let folders = std::mem::take(&mut self.folders);
        for folder in &folders {
            if kind == "commands" {
                files.extend(self.named_commands(folder));
            }
            let mut known = HashSet::new();
            for PromptPlace { path: root, base, shown } in folder.places(kind) {
                let real = match file_reads::canonicalize(&root) {
                    Ok(real) => real,
                    Err(error) if file::is_missing(&error) => continue,
                    Err(error) => {
                        self.warn(&shown, &error.to_string());
                        continue;
                    }
                };
                if folder.bound.as_ref().is_some_and(|bound| !real.starts_with(bound)) {
                    self.warn(&shown, &PromptFileError::LeadsOut.to_string());
                    continue;
                }
                for path in list(&root, folder.bound.as_deref(), &mut self.warnings) {
                    if files.len() >= FILES_MAX {
                        self.warn(&shown, &format!("only {FILES_MAX} files of a kind are read"));
                        break;
                    }
                    // A plugin may name a file in a folder that is searched anyway.
                    if known.insert(path.clone()) {
                        files.extend(self.read(folder, &base, &shown, path));
                    }
                }
            }
        }
        self.folders = folders;
        files
    }

    /// Reads the commands that the description of a plugin defines by name.
    fn named_commands(&mut self, folder: &PromptFolder<'_>) -> Vec<PromptFile> {
        let Some(plugin) = folder.plugin() else { return Vec::new() };
        let read = |(name, command): (&str, NamedCommand)| {
            let relative = PathBuf::from(format!("{name}.md"));
            match command {
                NamedCommand::File(path) => {
                    let file = self.read(folder, &folder.folder, &folder.shown, path)?;
                    Some(PromptFile { relative, ..file })
                }
                NamedCommand::Text(path, text) => {
                    let (trust, shown) =
                        ((self.search.plugin_trust)(&text), path.display().to_string());
                    Some(prompt_file(folder, path, shown, relative, (trust, text)))
                }
            }
        };
        plugin.named_commands().take(FILES_MAX).filter_map(read).collect()
    }

    fn read(
        &mut self,
        folder: &PromptFolder<'_>,
        base: &Path,
        shown: &str,
        path: PathBuf,
    ) -> Option<PromptFile> {
        let relative = path.strip_prefix(base).unwrap_or(&path).to_owned();
        let shown = format!("{shown}{}", relative.display());
        let text = self.text(folder, &path);
        let trusted = text.inspect_err(|error| self.warn(&shown, &error.to_string())).ok()?;
        Some(prompt_file(folder, path, shown, relative, trusted))
    }

    /// Returns the trust in a file, and its text.
    fn text(
        &mut self,
        folder: &PromptFolder<'_>,
        path: &Path,
    ) -> Result<(FileTrust, String), PromptFileError> {
        let real = path.canonicalize()?;
        if folder.bound.as_ref().is_some_and(|bound| !real.starts_with(bound)) {
            return Err(PromptFileError::LeadsOut);
        }
        let bytes = match folder.owner {
            FolderOwner::User | FolderOwner::Plugin(_) => {
                file_reads::read_regular(&real, FILE_BYTES_MAX)
            }
            FolderOwner::Project | FolderOwner::Added => {
                file_reads::read_owned(&real, FILE_BYTES_MAX, &self.owners)
            }
        }?;
        self.bytes += bytes.len();
        if self.bytes > ALL_BYTES_MAX {
            return Err(PromptFileError::TooMuch);
        }
        let text = decode_text(bytes).ok_or(PromptFileError::NotText)?;
        let trust = match folder.owner {
            FolderOwner::Added => FileTrust::Untrusted(ADDED.to_owned()),
            FolderOwner::Project => (self.search.trust)(&text),
            FolderOwner::Plugin(_) => (self.search.plugin_trust)(&text),
            FolderOwner::User => FileTrust::Trusted,
        };
        Ok((trust, text.replace("\r\n", "\n")))
    }

    pub(super) fn warn(&mut self, shown: &str, why: &str) {
        self.warnings.push(format!("{shown} is left out: {why}"));
    }
}

/// Returns the prompt in a file with this trust and text.
fn prompt_file(
    folder: &PromptFolder<'_>,
    path: PathBuf,
    shown: String,
    relative: PathBuf,
    (trust, text): (FileTrust, String),
) -> PromptFile {
    // An untrusted file never replaces a file of the user.
    let rank = match (folder.owner, trust == FileTrust::Trusted) {
        (FolderOwner::Project | FolderOwner::Added, true) => folder.distance,
        (FolderOwner::User | FolderOwner::Plugin(_), _) => USER_RANK + folder.distance,
        (FolderOwner::Project | FolderOwner::Added, false) => UNTRUSTED_RANK + folder.distance,
    };
    let (text, variables) = match folder.plugin() {
        Some(plugin) => plugin.fill(text),
        None => (text, Vec::new()),
    };
    let namespace = folder.plugin().map(|plugin| plugin.name.clone());
    PromptFile { path, shown, relative, text, namespace, variables, trust, rank }
}

/// The reason why skills of added folders are not trusted: trust is in the working folder.
const ADDED: &str = "it is in a folder that was added";

/// The ranks of the skills in added folders begin here.
const ADDED_RANK: usize = 1 << 15;

/// The ranks of the user's files begin here.
const USER_RANK: usize = 1 << 16;

/// The ranks of untrusted project files begin here.
const UNTRUSTED_RANK: usize = 1 << 17;

/// Returns the folders to search, highest precedence first.
fn search_folders<'a>(search: &LibrarySearch<'a>) -> Vec<PromptFolder<'a>> {
    let mut folders: Vec<PromptFolder<'a>> = Vec::new();
    let mut known: Vec<(PathBuf, Option<&str>)> = Vec::new();
    let mut add = |folder: PromptFolder<'a>| {
        let Ok(real) = file_reads::canonicalize(&folder.folder) else { return };
        let plugin = folder.plugin().map(|plugin| plugin.name.as_str());
        // The home folder may be the project as well: the user's folders keep their rank. Several
        // plugins may share a folder.
        let is_known = |(path, name): &(PathBuf, Option<&str>)| {
            *path == real && (plugin.is_none() || name.is_none() || *name == plugin)
        };
        if !known.iter().any(is_known) {
            known.push((real, plugin));
            folders.push(folder);
        }
    };
    for (distance, folder) in search.own.iter().enumerate() {
        add(PromptFolder::new(FolderOwner::User, folder.clone(), distance));
    }
    for plugin in search.plugins {
        let owner = FolderOwner::Plugin(plugin);
        add(PromptFolder::new(owner, plugin.folder.clone(), search.own.len()));
    }
    if search.project {
        let root = checkout_root(search.cwd).unwrap_or(search.cwd);
        let bound = (!search.anywhere).then(|| root.canonicalize().unwrap_or(root.to_owned()));
        let levels = search.cwd.ancestors().take_while(|folder| folder.starts_with(root));
        for (level, folder) in levels.enumerate() {
            for (place, name) in NAMES.iter().enumerate() {
                let distance = level * NAMES.len() + place;
                add(PromptFolder {
                    shown: format!("{}{name}/", "../".repeat(level)),
                    bound: bound.clone(),
                    ..PromptFolder::new(FolderOwner::Project, folder.join(name), distance)
                });
            }
        }
    }
    for (index, added) in search.added.iter().enumerate() {
        let bound = Some(added.canonicalize().unwrap_or(added.clone()));
        for name in NAMES {
            let folder =
                PromptFolder::new(FolderOwner::Added, added.join(name), ADDED_RANK + index);
            add(PromptFolder { bound: bound.clone(), ..folder });
        }
    }
    folders
}

/// Lists the Markdown files below a folder, by name.
fn markdown_files(root: &Path, bound: Option<&Path>, warnings: &mut Vec<String>) -> Vec<PathBuf> {
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
    let mut warn =
        |why: &str| warnings.push(format!("a part of {} is left out: {why}", root.display()));
    for (count, entry) in walk.enumerate() {
        match entry {
            _ if count == ENTRIES_MAX => {
                warn(&format!("it holds more than {ENTRIES_MAX} files and folders"));
                break;
            }
            Ok(entry) => {
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                if !is_folder && entry.path().extension().is_some_and(|kind| kind == "md") {
                    files.push(entry.into_path());
                }
            }
            Err(error) => warn(&error.to_string()),
        }
    }
    files
}
