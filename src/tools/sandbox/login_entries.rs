//! The entries of the table of credentials in home folders. Most of them do not exist: an entry
//! becomes a path only when that is needed.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::super::credentials::CREDENTIALS;

/// The first parts of entries in home folders, or in folders to which variables move them.
pub(super) const FIRST_PARTS: [&str; 5] = ["~", "@config", "@data", "@cache", "@runtime"];

/// The rests of these entries by their first part, sorted by bytes.
static ENTRIES: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let places = CREDENTIALS.iter().flat_map(|set| set.places);
    let mut entries: HashMap<&str, Vec<&str>> = HashMap::new();
    for (first, rest) in places.filter_map(|place| place.split_once('/')) {
        if FIRST_PARTS.contains(&first) {
            entries.entry(first).or_default().push(rest);
        }
    }
    for rests in entries.values_mut() {
        rests.sort_unstable();
        rests.dedup();
    }
    entries
});

/// The rests of the entries with a first part, sorted by bytes.
pub(super) fn entries(first: &str) -> &'static [&'static str] {
    ENTRIES.get(first).map_or(&[], Vec::as_slice)
}

/// A folder without links in its path, and its entries of the table.
#[derive(Clone, Debug)]
pub(super) struct LoginFolder {
    pub(super) path: PathBuf,
    pub(super) entries: &'static [&'static str],
}

impl LoginFolder {
    /// The entries that are a path or above it, the deepest first.
    pub(super) fn entries_above<'a>(&self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        // Most paths are in none of the folders.
        let within = self.rest_of(path).map(|_| path.ancestors());
        let is_entry = |part: &&Path| self.rest_of(part).is_some_and(|it| self.find(it).is_some());
        within.into_iter().flatten().filter(is_entry)
    }

    /// The paths of the entries that are a folder, or below it.
    pub(super) fn all_in(&self, folder: &Path) -> impl Iterator<Item = PathBuf> {
        let (own, below) = match self.rest_of(folder) {
            Some(rest) => (self.find(rest), self.below(rest)),
            None if self.path.starts_with(folder) => (None, self.entries),
            None => (None, &[][..]),
        };
        own.into_iter().chain(below).map(|entry| self.path.join(entry))
    }

    /// The path relative to this folder, if it is below it.
    fn rest_of<'a>(&self, path: &'a Path) -> Option<&'a [u8]> {
        let bytes = path.as_os_str().as_bytes();
        bytes.strip_prefix(self.path.as_os_str().as_bytes())?.strip_prefix(b"/")
    }

    fn find(&self, rest: &[u8]) -> Option<&'static &'static str> {
        let found = self.entries.binary_search_by(|entry| entry.as_bytes().cmp(rest));
        found.ok().map(|at| &self.entries[at])
    }

    fn below(&self, rest: &[u8]) -> &'static [&'static str] {
        let within = [rest, b"/"].concat();
        let first = self.entries.partition_point(|entry| entry.as_bytes() < &within[..]);
        let after = &self.entries[first..];
        &after[..after.partition_point(|entry| entry.as_bytes().starts_with(&within))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_path_and_by_folder() {
        let entries = &["a", "a-b", "a/c", "a/d/e", "ab", "f/g"];
        let folder = LoginFolder { path: PathBuf::from("/h/u"), entries };
        for (path, is_entry, within) in [
            ("/h/u/a", true, &["a", "a/c", "a/d/e"][..]),
            ("/h/u/a/d", false, &["a/d/e"]),
            ("/h/u/ab", true, &["ab"]),
            ("/h/u/f", false, &["f/g"]),
            ("/h/u/a/c/below", false, &[]),
            ("/h/u/b", false, &[]),
            ("/h/u", false, entries),
            ("/h", false, entries),
            ("/", false, entries),
            ("/h/u2", false, &[]),
            ("/h/u2/a", false, &[]),
            ("/x", false, &[]),
        ] {
            let path = Path::new(path);
            assert_eq!(folder.entries_above(path).next() == Some(path), is_entry, "{path:?}");
            let expected: Vec<PathBuf> = within.iter().map(|it| folder.path.join(it)).collect();
            assert_eq!(folder.all_in(path).collect::<Vec<_>>(), expected, "{path:?}");
        }
        let above: Vec<&Path> = folder.entries_above(Path::new("/h/u/a/c/below")).collect();
        assert_eq!(above, [Path::new("/h/u/a/c"), Path::new("/h/u/a")]);
    }
}
