//! Real paths of many places at once, for one view of the file system.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::paths::{PATH_BYTES_MAX, resolve};

/// The lookups in a folder of a home after which the folder is listed: a listing takes about as
/// many system calls.
const LOOKUPS_MAX: u32 = 4;

/// The most entries of a folder that is listed. In a larger one, each name is looked up.
const LISTED_ENTRIES_MAX: usize = 4_096;

const MISSING: io::ErrorKind = io::ErrorKind::NotFound;

/// A cache of real paths, for one view of the file system: each folder on the way is looked up
/// once, and nothing below a missing one.
#[derive(Debug, Default)]
pub(super) struct RealPaths {
    seen: RefCell<BTreeMap<OsString, SeenPath>>,
    /// The folders of the homes, by real path.
    folders: RefCell<HashMap<PathBuf, KnownFolder>>,
}

#[derive(Clone, Debug)]
struct SeenPath {
    real: PathBuf,
    /// True if something may exist below it.
    may_hold: bool,
}

/// The knowledge of a folder's entries.
#[derive(Debug)]
enum KnownFolder {
    /// The number of names that were looked up.
    LookedUp(u32),
    /// The entries by name in lower case: a folder may ignore case.
    Listed(HashMap<Vec<u8>, ListedEntry>),
    /// It cannot be listed, or is too large.
    Unlisted,
}

#[derive(Clone, Copy, Debug)]
enum ListedEntry {
    /// Not a symbolic link, and alone with its name in lower case.
    Plain,
    /// A symbolic link, an entry of unknown type, or one of several names.
    Unclear,
}

/// The type of an entry, as far as its folder is known.
enum Found {
    Missing,
    Plain,
    Unknown,
}

impl RealPaths {
    /// Like [`resolve`], with the file system as it was when the path, or one below it, was first
    /// looked up. Folders in `homes` are listed if many of their names are asked for.
    pub(super) fn resolve(&self, path: &Path, homes: &[PathBuf]) -> PathBuf {
        let goes_up = path.components().any(|part| part == Component::ParentDir);
        if goes_up || !path.is_absolute() || path.as_os_str().len() > PATH_BYTES_MAX {
            return resolve(path);
        }
        self.look(path, homes).real
    }

    fn look(&self, path: &Path, homes: &[PathBuf]) -> SeenPath {
        if let Some(seen) = self.seen.borrow().get(path.as_os_str()) {
            return seen.clone();
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return SeenPath { real: PathBuf::from("/"), may_hold: true };
        };
        let above = self.look(parent, homes);
        let joined = above.real.join(name);
        // Not `/`: some entries of `/proc` are in no listing.
        let in_home = homes.iter().any(|home| home.parent().is_some() && parent.starts_with(home));
        let known = match (above.may_hold, in_home) {
            (false, _) => Found::Missing,
            (true, true) => self.find_listed(&above.real, name),
            (true, false) => Found::Unknown,
        };
        let found = match known {
            Found::Missing => SeenPath { real: joined, may_hold: false },
            Found::Plain => SeenPath { real: joined, may_hold: true },
            Found::Unknown => match fs::read_link(&joined) {
                Ok(_) => SeenPath { real: resolve(&joined), may_hold: true },
                Err(why) => SeenPath { real: joined, may_hold: why.kind() != MISSING },
            },
        };
        self.seen.borrow_mut().insert(path.as_os_str().to_owned(), found.clone());
        found
    }

    /// Finds a name in the listing of a real folder, which is made once enough of its names were
    /// looked up.
    fn find_listed(&self, folder: &Path, name: &OsStr) -> Found {
        let mut folders = self.folders.borrow_mut();
        let known = match folders.get_mut(folder) {
            Some(known) => known,
            None => folders.entry(folder.to_owned()).or_insert(KnownFolder::LookedUp(0)),
        };
        if let KnownFolder::LookedUp(count) = known {
            *count += 1;
            if *count > LOOKUPS_MAX {
                *known = list(folder).map_or(KnownFolder::Unlisted, KnownFolder::Listed);
            }
        }
        let KnownFolder::Listed(entries) = known else { return Found::Unknown };
        // Case folding beyond ASCII is not known here.
        if !name.is_ascii() {
            return Found::Unknown;
        }
        match entries.get(&name.as_bytes().to_ascii_lowercase()) {
            None => Found::Missing,
            Some(ListedEntry::Plain) => Found::Plain,
            Some(ListedEntry::Unclear) => Found::Unknown,
        }
    }
}

/// Lists a folder. `None` if it cannot be listed, or has too many entries.
fn list(folder: &Path) -> Option<HashMap<Vec<u8>, ListedEntry>> {
    let mut entries = HashMap::new();
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        if entries.len() == LISTED_ENTRIES_MAX {
            return None;
        }
        let kind = entry.file_type();
        let facts = match kind {
            Ok(kind) if !kind.is_symlink() => ListedEntry::Plain,
            Ok(_) | Err(_) => ListedEntry::Unclear,
        };
        let name = entry.file_name().as_bytes().to_ascii_lowercase();
        let same = |there: &mut ListedEntry| *there = ListedEntry::Unclear;
        entries.entry(name).and_modify(same).or_insert(facts);
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_that_are_looked_up_together_resolve_as_each_does_alone() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::write(top.join("a/file"), "").unwrap();
        for (target, link) in [
            ("b", "a/to_b"),
            ("../a", "a/b/up"),
            ("missing/deep", "a/dangling"),
            ("loop_2", "loop_1"),
            ("loop_1", "loop_2"),
            ("to_b/c", "a/twice"),
        ] {
            symlink(target, top.join(link)).unwrap();
        }
        symlink(top.join("a/to_b"), top.join("absolute")).unwrap();
        // With and without a listing of the folders.
        for homes in [vec![], vec![top.to_owned()]] {
            let together = RealPaths::default();
            for name in [
                "a/missing/x/y",
                "a/missing/x",
                "a/to_b/c",
                "a/to_b/up/to_b/missing",
                "a/b/up/file",
                "a/file/below",
                "a/dangling",
                "a/dangling/below/it",
                "loop_1/x",
                "a/twice/../c",
                "a/twice/d",
                "absolute/c/",
                "./absolute/./c",
                "",
            ] {
                let by_link = format!("/proc/self/root{}/{name}", top.display());
                for path in [top.join(name), PathBuf::from(by_link)] {
                    let alone = resolve(&path);
                    assert_eq!(together.resolve(&path, &homes), alone, "{name}");
                    assert_eq!(together.resolve(&path, &homes), alone, "{name}, again");
                }
            }
            for path in ["/", "relative/x", "/../tmp", "/proc/self/fd/0"] {
                assert_eq!(
                    together.resolve(Path::new(path), &homes),
                    resolve(Path::new(path)),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn names_of_a_listed_home_are_found_as_their_lookups_find_them() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for name in [".kept", ".upper", ".UPPER", ".Mixed"] {
            fs::create_dir(home.join(name)).unwrap();
        }
        symlink(".kept", home.join(".link")).unwrap();
        symlink("/nowhere", home.join(".dangling")).unwrap();
        symlink(".kept", home.join("ünder")).unwrap();
        let (homes, paths) = ([home.clone()], RealPaths::default());
        for round in ["first", "listed"] {
            for name in [
                ".kept",
                ".link/x",
                ".dangling",
                ".dangling/x",
                ".missing/x",
                ".upper",
                ".UPPER",
                ".mixed",
                ".Mixed/x",
                "ünder/x",
            ] {
                let path = home.join(name).join(round);
                assert_eq!(paths.resolve(&path, &homes), resolve(&path), "{name} {round}");
            }
        }
        assert!(matches!(paths.folders.borrow().get(&home), Some(KnownFolder::Listed(_))));
    }

    #[test]
    fn a_folder_that_is_too_large_or_outside_of_a_home_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for number in 0..=LISTED_ENTRIES_MAX {
            fs::write(home.join(number.to_string()), "").unwrap();
        }
        symlink("0", home.join("link")).unwrap();
        for homes in [vec![], vec![PathBuf::from("/")], vec![home.clone()]] {
            let paths = RealPaths::default();
            for name in ["a", "b", "c", "d", "e", "link", "0"] {
                let path = home.join(name);
                assert_eq!(paths.resolve(&path, &homes), resolve(&path), "{name}");
            }
            let folders = paths.folders.borrow();
            assert!(!folders.values().any(|known| matches!(known, KnownFolder::Listed(_))));
        }
    }
}
