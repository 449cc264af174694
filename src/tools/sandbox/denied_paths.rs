//! Protected paths, for commands and file tools alike.

use std::path::{Path, PathBuf};

use super::super::paths::PathSet;
use super::super::real_paths::LinkedPath;
use super::mounts;

/// True if a path is one of these folders, or below one.
pub(super) fn is_in_any(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// Denied paths, and exceptions within them. The deepest entry takes precedence.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct DeniedPlaces {
    pub(super) denied: PathSet,
    pub(super) allowed: Vec<PathBuf>,
    pub(super) write_protected: Vec<PathBuf>,
    pub(super) read_only: bool,
}

/// Denied paths, in all forms in which a command may name them.
pub(super) struct PathForms {
    /// The paths as written, their real paths, and those at further mounts of their file systems.
    pub(super) all: PathSet,
    /// The real paths, also of the forms at further mounts.
    pub(super) real: Vec<PathBuf>,
}

impl PathForms {
    /// Finds the forms of these paths, except those that are allowed, and of `others`, which are
    /// real.
    pub(super) fn of<'a>(
        places: impl Iterator<Item = &'a LinkedPath>,
        allowed: &[PathBuf],
        others: Vec<PathBuf>,
        find_real: impl Fn(&Path) -> PathBuf,
    ) -> Self {
        let (mut all, mut real) = (others.clone(), others);
        for place in places {
            let before = all.len();
            let is_denied = |path: &&PathBuf| !is_in_any(path, allowed);
            all.extend(place.both().filter(is_denied).cloned());
            if all.len() > before {
                real.push(place.real().to_owned());
            }
        }
        let mut all: PathSet = all.into_iter().collect();
        let aliases = mounts::aliases(&all);
        if !aliases.is_empty() {
            real.extend(aliases.iter().map(|alias| find_real(alias)));
            all = all.as_slice().iter().cloned().chain(aliases).collect();
        }
        Self { all, real }
    }
}

/// The paths that a permission rule denies.
#[derive(Clone, Debug)]
pub(in super::super) struct RuleDenial {
    /// The rule as the user wrote it.
    pub(in super::super) rule: String,
    /// The path at or below which all denied paths are.
    pub(in super::super) place: PathBuf,
    /// True if the rule denies this path and all paths below it.
    pub(in super::super) is_whole: bool,
    /// True if the rule denies changes, but not reads.
    pub(in super::super) changes_only: bool,
    /// True if the rule may mean another path. Then it is not a gap if this path stays open.
    pub(in super::super) is_second_meaning: bool,
}

impl DeniedPlaces {
    /// True if a denied location is below a folder.
    pub(in super::super) fn hides_below(&self, folder: &Path) -> bool {
        self.denied.contains_any_in(folder)
    }

    /// True if a write-protected path is below a folder.
    pub(in super::super) fn protects_below(&self, folder: &Path) -> bool {
        self.write_protected.iter().any(|place| place.starts_with(folder))
    }

    /// True if a path is in a denied location.
    pub(in super::super) fn hides(&self, path: &Path) -> bool {
        let Some(deepest) = path.ancestors().find(|part| self.denied.contains(part)) else {
            return false;
        };
        let mut exceptions = self.allowed.iter().filter(|allowed| path.starts_with(allowed));
        !exceptions.any(|allowed| allowed.starts_with(deepest))
    }

    /// The reason that a path must not be changed. `None` if it may be changed.
    pub(in super::super) fn write_denial(&self, path: &Path) -> Option<&'static str> {
        if self.read_only {
            Some("nothing may be changed (--sandbox read-only)")
        } else if is_in_any(path, &self.write_protected) {
            Some("it is in sandbox.filesystem.denyWrite")
        } else {
            None
        }
    }
}
