//! The settings files of the repository that a run works in, and the flag that chooses sources of
//! settings.

use std::path::{Path, PathBuf};

use crate::cli::usage::UsageError;
use crate::config::file::ParsedSettings;
use crate::tools::settings_folders;

/// The folders of settings, the lowest first.
const FOLDERS: [&str; 2] = [".claude", ".outlast"];

/// A settings file of the repository, which need not exist.
pub(super) struct RepositorySettings {
    /// Its name in `--setting-sources`.
    pub(super) source: &'static str,
    /// The folder of the repository that contains it.
    pub(super) folder: PathBuf,
    /// Its path in that folder.
    pub(super) file: String,
    /// The folder to which it applies, if that is above the working folder.
    pub(super) above: Option<PathBuf>,
    /// True if it is not in the working folder.
    pub(super) is_elsewhere: bool,
}

impl RepositorySettings {
    /// Returns its name for messages about ignored settings: short if it is in the working folder.
    pub(super) fn shown(&self) -> String {
        if self.is_elsewhere {
            self.folder.join(&self.file).display().to_string()
        } else {
            self.file.clone()
        }
    }

    /// Resolves its rules and hooks against its folder.
    pub(super) fn placed(&self, mut parsed: ParsedSettings) -> ParsedSettings {
        parsed.project = Some(self.folder.clone()).filter(|_| self.is_elsewhere);
        match &self.above {
            Some(above) => parsed.anchored_above(above),
            None => parsed,
        }
    }
}

/// Lists the settings files for a working folder, the lowest first: those in the top folder of its
/// working tree, then those in the folder itself. Local files of the main working tree, which git
/// does not track, also apply in working trees of `git worktree add`.
pub(super) fn repository_files(cwd: &Path, home: Option<&Path>) -> Vec<RepositorySettings> {
    let found = settings_folders(cwd, home);
    let (main, top) = (found.main.iter(), found.top.iter());
    let elsewhere = |(source, folder): (&'static str, &PathBuf)| (source, folder.clone(), true);
    let here = |source| (source, cwd.to_path_buf(), false);
    let project = top.clone().map(|top| ("project", top)).map(elsewhere);
    let local = main.chain(top).map(|folder| ("local", folder)).map(elsewhere);
    let places = project.chain([here("project")]).chain(local).chain([here("local")]);
    let files = places.flat_map(|(source, folder, is_elsewhere)| {
        let name = if source == "local" { "settings.local.json" } else { "settings.json" };
        FOLDERS.map(|settings| RepositorySettings {
            source,
            folder: folder.clone(),
            file: format!("{settings}/{name}"),
            above: found.top.clone().filter(|_| is_elsewhere),
            is_elsewhere,
        })
    });
    files.collect()
}

/// Returns true if `--setting-sources` names sources of the repository, which makes the folder
/// trusted.
pub(super) fn names_repository(given: Option<&str>) -> bool {
    source_names(given)
        .is_ok_and(|named| given.is_some() && named.iter().any(|name| *name != "user"))
}

/// Returns the sources that `--setting-sources` names, or all.
///
/// # Errors
/// There is no such source.
pub(super) fn source_names(given: Option<&str>) -> Result<Vec<&str>, UsageError> {
    let Some(given) = given else { return Ok(vec!["user", "project", "local"]) };
    let named: Vec<&str> =
        given.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).collect();
    match named.iter().find(|name| !["user", "project", "local"].contains(name)) {
        Some(name) => Err(UsageError::new(format!(
            "--setting-sources: {name:?} is none of user, project, local"
        ))),
        None => Ok(named),
    }
}
