//! Real paths of many places at once, for one view of the file system.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

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
    folders: RefCell<HashMap<OsString, KnownFolder>>,
}

/// A folder in which many paths are looked up, and which need not exist.
#[derive(Clone, Debug)]
pub(super) struct BaseFolder {
    /// Absolute, without `.`, links as written.
    written: PathBuf,
    seen: SeenPath,
    is_in_home: bool,
    /// Its entries, once they are listed.
    listed: OnceCell<Rc<Listing>>,
}

impl BaseFolder {
    /// Absolute, without `.`, links as written.
    pub(super) fn path(&self) -> &Path {
        &self.written
    }

    /// True if the path has no links.
    pub(super) fn is_real(&self) -> bool {
        self.seen.real.as_os_str() == self.written.as_os_str()
    }
}

/// A path whose links are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkedPath {
    /// As written.
    pub(super) written: PathBuf,
    /// The path without links, if it is another one.
    target: Option<PathBuf>,
}

impl LinkedPath {
    pub(super) fn new(written: PathBuf, real: PathBuf) -> Self {
        let target = (written.as_os_str() != real.as_os_str()).then_some(real);
        Self { written, target }
    }

    /// The path without links.
    pub(super) fn real(&self) -> &Path {
        self.target.as_ref().unwrap_or(&self.written)
    }

    pub(super) fn into_real(self) -> PathBuf {
        self.target.unwrap_or(self.written)
    }

    /// The path as written, and without links if that is another one.
    pub(super) fn both(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.written).chain(&self.target)
    }
}

#[derive(Clone, Debug)]
struct SeenPath {
    real: PathBuf,
    /// True if something may exist below it.
    may_hold: bool,
}

/// The known entries of a folder.
#[derive(Debug)]
enum KnownFolder {
    /// The number of names that were looked up.
    LookedUp(u32),
    Listed(Rc<Listing>),
    /// It cannot be listed, or is too large.
    Unlisted,
}

/// The entries of a folder by name in lower case: a folder may ignore case.
#[derive(Debug)]
struct Listing(HashMap<Vec<u8>, ListedEntry>);

impl Listing {
    fn find(&self, name: &OsStr) -> Found {
        // Case folding beyond ASCII is not implemented here.
        if !name.is_ascii() {
            return Found::Unknown;
        }
        let mut name = Cow::Borrowed(name.as_bytes());
        if name.iter().any(u8::is_ascii_uppercase) {
            name.to_mut().make_ascii_lowercase();
        }
        match self.0.get(&*name) {
            None => Found::Missing,
            Some(ListedEntry::Plain) => Found::Plain,
            Some(ListedEntry::Unclear) => Found::Unknown,
        }
    }
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
        if is_plain(path) { self.look(path, homes).real } else { resolve(path) }
    }

    /// False if a path is known to be missing.
    pub(super) fn may_exist(&self, path: &Path, homes: &[PathBuf]) -> bool {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return true };
        if !is_plain(path) {
            return true;
        }
        // Nothing may exist below a path that was missing.
        if let Some(seen) = self.seen.borrow().get(path.as_os_str()) {
            return seen.may_hold;
        }
        let above = self.look(parent, homes);
        !matches!(self.find(&above, name, is_in_home(parent, homes)), Found::Missing)
    }

    /// Looks up an absolute path, in order to look up its entries.
    pub(super) fn base(&self, path: &Path, homes: &[PathBuf]) -> BaseFolder {
        let written: PathBuf = path.components().collect();
        let is_plain = is_plain(&written);
        let seen = if is_plain {
            self.look(&written, homes)
        } else {
            SeenPath { real: resolve(&written), may_hold: true }
        };
        let is_in_home = is_plain && is_in_home(&written, homes);
        BaseFolder { written, seen, is_in_home, listed: OnceCell::new() }
    }

    /// False if a relative path without `.` and `..` is known to be missing in a folder.
    pub(super) fn may_hold(&self, base: &BaseFolder, rest: &str) -> bool {
        !matches!(self.find_first(base, rest), Found::Missing)
    }

    /// Looks up a relative path without `.` and `..`, which may be empty.
    pub(super) fn resolve_in(
        &self,
        base: &BaseFolder,
        rest: &str,
        homes: &[PathBuf],
    ) -> LinkedPath {
        let joined =
            |folder: &Path| if rest.is_empty() { folder.to_owned() } else { folder.join(rest) };
        let path = joined(&base.written);
        let real = match self.find_first(base, rest) {
            Found::Missing if base.is_real() => return LinkedPath { written: path, target: None },
            Found::Missing => joined(&base.seen.real),
            Found::Plain | Found::Unknown => self.resolve(&path, homes),
        };
        LinkedPath::new(path, real)
    }

    /// Finds the first name of a relative path. Most of the paths that are looked up do not exist.
    fn find_first(&self, base: &BaseFolder, rest: &str) -> Found {
        let BaseFolder { seen, is_in_home, listed, .. } = base;
        if !seen.may_hold {
            return Found::Missing;
        }
        let first = rest.split('/').next().unwrap_or_default();
        let is_listed = *is_in_home && !first.is_empty();
        if let Some(entries) = listed.get().filter(|_| is_listed) {
            return entries.find(OsStr::new(first));
        }
        let found = self.find(seen, OsStr::new(first), is_listed);
        if let Some(KnownFolder::Listed(entries)) = self.folders.borrow().get(seen.real.as_os_str())
        {
            listed.get_or_init(|| Rc::clone(entries));
        }
        found
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
        let found = match self.find(&above, name, is_in_home(parent, homes)) {
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

    /// Finds a name in a folder, as far as its entries are known.
    fn find(&self, folder: &SeenPath, name: &OsStr, is_in_home: bool) -> Found {
        if !folder.may_hold {
            Found::Missing
        } else if is_in_home {
            self.find_listed(&folder.real, name)
        } else {
            Found::Unknown
        }
    }

    /// Finds a name in the listing of a real folder, which is made once enough of its names were
    /// looked up.
    fn find_listed(&self, folder: &Path, name: &OsStr) -> Found {
        let mut folders = self.folders.borrow_mut();
        let known = match folders.get_mut(folder.as_os_str()) {
            Some(known) => known,
            None => folders.entry(folder.into()).or_insert(KnownFolder::LookedUp(0)),
        };
        if let KnownFolder::LookedUp(count) = known {
            *count += 1;
            if *count > LOOKUPS_MAX {
                *known = list(folder)
                    .map_or(KnownFolder::Unlisted, |all| KnownFolder::Listed(Rc::new(all)));
            }
        }
        match known {
            KnownFolder::Listed(entries) => entries.find(name),
            KnownFolder::LookedUp(_) | KnownFolder::Unlisted => Found::Unknown,
        }
    }
}

/// True if a path can be looked up one name after the other.
fn is_plain(path: &Path) -> bool {
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    !goes_up && path.is_absolute() && path.as_os_str().len() <= PATH_BYTES_MAX
}

/// True if a folder is a home, or in one. Not for `/`: some entries of `/proc` are in no listing.
fn is_in_home(folder: &Path, homes: &[PathBuf]) -> bool {
    homes.iter().any(|home| home.parent().is_some() && folder.starts_with(home))
}

/// Lists a folder. `None` if it cannot be listed, or has too many entries.
fn list(folder: &Path) -> Option<Listing> {
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
    Some(Listing(entries))
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
                    let is_there = fs::symlink_metadata(&path).is_ok();
                    assert!(together.may_exist(&path, &homes) || !is_there, "{name}");
                }
                if !name.contains("..") && !name.starts_with('.') && !name.ends_with('/') {
                    for (base, rest) in bases(name) {
                        let base = together.base(&top.join(base), &homes);
                        let found = together.resolve_in(&base, rest, &homes);
                        assert_eq!(found.written, top.join(name), "{name}");
                        assert_eq!(found.real(), resolve(&top.join(name)), "{name}");
                    }
                }
            }
            assert!(!together.may_exist(&top.join("a/missing/x"), &homes));
            assert!(!together.may_exist(&top.join("a/missing"), &homes));
            // Not looked up before.
            let is_listed = !homes.is_empty();
            assert_eq!(together.may_exist(&top.join("a/other"), &homes), !is_listed);
            for path in ["/", "relative/x", "/../tmp", "/proc/self/fd/0"] {
                assert_eq!(
                    together.resolve(Path::new(path), &homes),
                    resolve(Path::new(path)),
                    "{path}"
                );
            }
        }
    }

    /// All ways to divide a path into a folder and a path in it.
    fn bases(name: &str) -> Vec<(&str, &str)> {
        let within = name.match_indices('/').map(|(at, _)| (&name[..at], &name[at + 1..]));
        within.chain([("", name), (name, "")]).collect()
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
        let base = paths.base(&home, &homes);
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
                let found = paths.resolve_in(&base, &format!("{name}/{round}"), &homes);
                assert_eq!(found.real(), resolve(&path), "{name} {round}");
            }
        }
        assert!(base.listed.get().is_some());
        assert!(matches!(
            paths.folders.borrow().get(home.as_os_str()),
            Some(KnownFolder::Listed(_))
        ));
    }

    #[test]
    fn a_folder_that_is_too_large_or_outside_of_a_home_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        fs::write(home.join("0"), "").unwrap();
        for number in 1..=LISTED_ENTRIES_MAX {
            fs::hard_link(home.join("0"), home.join(number.to_string())).unwrap();
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
