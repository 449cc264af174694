//! Protected paths, for commands and file tools alike.

use std::path::{Path, PathBuf};

use super::super::paths::PathSet;
use super::super::real_paths::LinkedPath;
use super::login_entries::LoginFolder;

/// True if a path is one of these folders, or below one.
pub(super) fn is_in_any(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// Denied paths, and exceptions within them. The deepest entry takes precedence.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct DeniedPlaces {
    pub(super) denied: DeniedPaths,
    pub(super) allowed: Vec<PathBuf>,
    pub(super) write_protected: Vec<PathBuf>,
    pub(super) read_only: bool,
}

/// Denied paths, in all forms in which a command may name them: as written, without links, and at
/// further mounts of their file systems.
#[derive(Clone, Debug, Default)]
pub(super) struct DeniedPaths {
    /// Without the entries of `folders`.
    pub(super) listed: PathSet,
    folders: Vec<LoginFolder>,
    /// The entries of `folders` in these folders are not denied.
    allowed: Vec<PathBuf>,
}

impl DeniedPaths {
    /// Both forms of these logins, except those that are allowed, and `others`, which are real. The
    /// second result are the real paths of all but the entries of folders.
    pub(super) fn new(
        logins: impl Iterator<Item = LinkedPath>,
        folders: &[LoginFolder],
        allowed: &[PathBuf],
        others: Vec<PathBuf>,
    ) -> (Self, Vec<PathBuf>) {
        let (mut all, mut real) = (others.clone(), others);
        for place in logins {
            let before = all.len();
            let is_denied = |path: &&PathBuf| !is_in_any(path, allowed);
            all.extend(place.both().filter(is_denied).cloned());
            if all.len() > before {
                real.push(place.into_real());
            }
        }
        let (folders, allowed) = (folders.to_vec(), allowed.to_vec());
        (Self { listed: all.into_iter().collect(), folders, allowed }, real)
    }

    pub(super) fn add(&mut self, paths: Vec<PathBuf>) {
        if !paths.is_empty() {
            let before = std::mem::take(&mut self.listed).into_vec();
            self.listed = before.into_iter().chain(paths).collect();
        }
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.deepest_above(path) == Some(path)
    }

    /// True if a denied path is this one, or above it.
    pub(super) fn covers(&self, path: &Path) -> bool {
        self.deepest_above(path).is_some()
    }

    /// The deepest denied path that is this one, or above it.
    fn deepest_above<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let listed = path.ancestors().find(|part| self.listed.contains(part));
        let entries = self.folders.iter().flat_map(|folder| folder.entries_above(path));
        let entries = entries.filter(|entry| !is_in_any(entry, &self.allowed));
        entries.chain(listed).max_by_key(|part| part.as_os_str().len())
    }

    /// A folder, if it is denied, and the denied paths below it.
    pub(super) fn all_in(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        let listed = self.listed.all_in(folder).cloned();
        listed.chain(self.entries_in(folder))
    }

    /// The denied entries of folders that are a folder, or below it.
    pub(super) fn entries_in(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        let entries = self.folders.iter().flat_map(move |it| it.all_in(folder));
        entries.filter(|path| !is_in_any(path, &self.allowed))
    }
}

impl FromIterator<PathBuf> for DeniedPaths {
    fn from_iter<T: IntoIterator<Item = PathBuf>>(paths: T) -> Self {
        Self { listed: paths.into_iter().collect(), ..Self::default() }
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
        self.denied.all_in(folder).next().is_some()
    }

    /// True if a write-protected path is below a folder.
    pub(in super::super) fn protects_below(&self, folder: &Path) -> bool {
        self.write_protected.iter().any(|place| place.starts_with(folder))
    }

    /// True if a path is in a denied location.
    pub(in super::super) fn hides(&self, path: &Path) -> bool {
        let Some(deepest) = self.denied.deepest_above(path) else { return false };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that the user denies stays closed in a working folder within a login folder.
    #[test]
    fn the_deepest_path_decides_whether_it_is_listed_or_an_entry() {
        let folder = LoginFolder { path: PathBuf::from("/h"), entries: &[".aws"] };
        let listed = vec![PathBuf::from("/h/.aws/work/keys")];
        let (denied, _) = DeniedPaths::new(std::iter::empty(), &[folder], &[], listed);
        let allowed = vec![PathBuf::from("/h/.aws/work")];
        let places = DeniedPlaces { denied, allowed, ..DeniedPlaces::default() };
        for (path, is_hidden) in [
            ("/h/.aws/x", true),
            ("/h/.aws/work/x", false),
            ("/h/.aws/work/keys/x", true),
            ("/h/x", false),
        ] {
            assert_eq!(places.hides(Path::new(path)), is_hidden, "{path}");
        }
    }
}
