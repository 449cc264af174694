//! Protected paths, for commands and file tools alike.

use std::path::{Path, PathBuf};

use super::super::paths::PathSet;
use super::super::real_paths::LinkedPath;
use super::mounts;

/// Denied paths, and exceptions within them. The deepest entry takes precedence.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct DeniedPlaces {
    pub(super) denied: PathSet,
    pub(super) allowed: Vec<PathBuf>,
    /// Write-protected paths.
    pub(super) write_protected: Vec<PathBuf>,
    /// True if nothing may be written.
    pub(super) read_only: bool,
}

/// Denied paths, in all forms in which a command may name them.
pub(super) struct PathForms {
    /// As written, without links, and at further mounts of their file systems.
    pub(super) all: PathSet,
    /// Without links.
    pub(super) real: Vec<PathBuf>,
}

impl PathForms {
    /// The forms of these places, except those that are allowed, and of other real paths.
    pub(super) fn of<'a>(
        places: impl Iterator<Item = &'a LinkedPath>,
        allowed: &[PathBuf],
        others: Vec<PathBuf>,
        find_real: impl Fn(&Path) -> PathBuf,
    ) -> Self {
        let (mut all, mut real) = (others.clone(), others);
        for place in places {
            let before = all.len();
            let is_denied = |path: &&PathBuf| !allowed.iter().any(|it| path.starts_with(it));
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
    /// True if the rule may mean another path, so that it is no gap if this one stays open.
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
        let mut around = self.allowed.iter().filter(|place| path.starts_with(place));
        !around.any(|allowed| allowed.starts_with(deepest))
    }

    /// The reason that a path must not be changed. `None` if it may be changed.
    pub(in super::super) fn write_denial(&self, path: &Path) -> Option<&'static str> {
        if self.read_only {
            Some("nothing may be changed (--sandbox read-only)")
        } else if self.write_protected.iter().any(|place| path.starts_with(place)) {
            Some("it is in sandbox.filesystem.denyWrite")
        } else {
            None
        }
    }
}
