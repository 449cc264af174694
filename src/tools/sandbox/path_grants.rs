//! Path grants for the current file system: folders without the denied places in them, and devices.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry, FileType};
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::process::{PathAccess, PathRule};

use super::super::paths::resolve;
use super::known_paths::{DEVICE_FOLDER, DEVICE_PREFIX, DEVICES, STANDARD_DEVICES, TERMINALS};

/// The terminals that commands may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalAccess {
    #[default]
    Closed,
    /// The terminals that commands create, and those of the user.
    Open,
}

/// Grants reading a file, or a folder with everything below it.
pub(super) fn grant_reading(path: &Path) -> [PathRule; 2] {
    [PathAccess::List, PathAccess::Read].map(|access| PathRule::new(path, access))
}

/// Grants reading of all files and no writing, for a command that only reads while the sandbox is
/// off.
pub(super) fn grant_reading_all() -> Vec<PathRule> {
    let devices = FolderListings::default().device_grants(TerminalAccess::Closed);
    grant_reading(Path::new("/")).into_iter().chain(devices).collect()
}

/// Denied places, as a tree of the folders that lead to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeniedTree {
    is_denied: bool,
    below: BTreeMap<OsString, DeniedTree>,
}

impl<P: AsRef<Path>> FromIterator<P> for DeniedTree {
    fn from_iter<I: IntoIterator<Item = P>>(places: I) -> Self {
        let mut tree = Self::default();
        places.into_iter().for_each(|place| tree.insert(place.as_ref()));
        tree
    }
}

impl DeniedTree {
    pub(super) fn insert(&mut self, place: &Path) {
        let mut at = self;
        for name in names(place) {
            at = at.below.entry(name.to_owned()).or_default();
        }
        at.is_denied = true;
    }

    /// True if this place itself is denied, and not only one above it.
    pub(super) fn contains(&self, place: &Path) -> bool {
        self.at(place).is_some_and(|at| at.is_denied)
    }

    /// The denied places in a folder, if there are any.
    fn at(&self, folder: &Path) -> Option<&Self> {
        names(folder).try_fold(self, |at, name| at.below.get(name))
    }

    /// Lists all denied places in this tree, the root of which is `folder`.
    pub(super) fn places(&self, folder: &Path) -> Vec<PathBuf> {
        let own = self.is_denied.then(|| folder.to_owned());
        let below = self.below.iter().flat_map(|(name, tree)| tree.places(&folder.join(name)));
        own.into_iter().chain(below).collect()
    }
}

/// The names of an absolute path.
fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.iter().skip(1)
}

/// The minimum age of a folder's last change when it is listed, so that the next change has another
/// time: the resolution of file systems is up to a few hundredths of a second.
const SETTLED: Duration = Duration::from_secs(1);

/// The maximum number of entries of a listing that is kept for the next command.
const KEPT_ENTRIES_MAX: usize = 10_000;

/// The grants of the last command, which are reused for the next one if nothing changed that they
/// depend on.
#[derive(Debug, Default)]
pub(super) struct LastGrants {
    pub(super) listings: FolderListings,
    /// For each login, whether it was passed to the command. `None`: the grants must be computed
    /// again.
    pub(super) logins: Option<Vec<bool>>,
    pub(super) rules: Arc<[PathRule]>,
}

/// Folder listings for the grants of commands. For one command, each folder is read at most once;
/// for the next command, a folder that has not changed is not read again.
#[derive(Debug, Default)]
pub(super) struct FolderListings {
    known: HashMap<OsString, KnownListing>,
    /// The number of the current command.
    command: u64,
    /// The start of the current command.
    now: Option<SystemTime>,
}

#[derive(Debug)]
struct KnownListing {
    listing: Listing,
    /// The number of the last command that used it.
    command: u64,
    /// `None`: it must be read again for the next command.
    stamp: Option<FolderStamp>,
}

/// Device, inode, and the times of the last change of a folder's entries and of itself, in seconds
/// and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderStamp([i64; 4], [u64; 2]);

impl FolderStamp {
    /// Returns the stamp of a folder. `None`: its last change is too recent at `now`.
    fn settled(folder: &Path, now: SystemTime) -> Option<Self> {
        let found = fs::metadata(folder).ok()?;
        if !is_settled(found.mtime().max(found.ctime()), now) {
            return None;
        }
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Some(Self(times, [found.dev(), found.ino()]))
    }
}

/// True if a change at this time, in seconds since the epoch, is old enough at `now`. The commands
/// can set the time to any value.
fn is_settled(changed: i64, now: SystemTime) -> bool {
    let end = || {
        let seconds = u64::try_from(changed).ok()?.checked_add(1)?;
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?.checked_add(SETTLED)
    };
    end().is_some_and(|end| end <= now)
}

/// The entries of a folder. `None`: it cannot be listed, but paths below it may be accessible.
type Listing = Option<Arc<[Entry]>>;

#[derive(Debug)]
struct Entry {
    name: OsString,
    kind: FileType,
    inode: u64,
}

impl FolderListings {
    /// True if no folder that was read for the last command has changed.
    pub(super) fn are_current(&self, now: SystemTime) -> bool {
        let last = self.known.iter().filter(|(_, known)| known.command == self.command);
        self.command > 0
            && last.into_iter().all(|(folder, known)| {
                known.stamp.is_some() && FolderStamp::settled(Path::new(folder), now) == known.stamp
            })
    }

    pub(super) fn begin(&mut self, now: SystemTime) {
        self.command += 1;
        self.now = Some(now);
    }

    fn of(&mut self, folder: &Path) -> Listing {
        let command = self.command;
        let mut known = self.known.get_mut(folder.as_os_str());
        if let Some(known) = known.as_ref().filter(|known| known.command == command) {
            return known.listing.clone();
        }
        // Taken before the folder is read, so that a change meanwhile gives it another stamp.
        let stamp = self.now.and_then(|now| FolderStamp::settled(folder, now));
        if let Some(known) = known.as_mut().filter(|it| stamp.is_some() && it.stamp == stamp) {
            known.command = command;
            return known.listing.clone();
        }
        let entry = |found: DirEntry| {
            let (kind, inode) = (found.file_type().ok()?, found.ino());
            Some(Entry { name: found.file_name(), kind, inode })
        };
        let listing = fs::read_dir(folder).ok();
        let listing: Listing = listing.map(|all| all.flatten().filter_map(entry).collect());
        let stamp =
            stamp.filter(|_| listing.as_ref().is_some_and(|all| all.len() <= KEPT_ENTRIES_MAX));
        let known = KnownListing { listing: listing.clone(), command, stamp };
        self.known.insert(folder.into(), known);
        listing
    }

    /// Returns the entries of a folder that lead to denied places, with their types. Links are not
    /// followed.
    fn ways<'a>(
        &mut self,
        folder: &Path,
        denied: &'a DeniedTree,
    ) -> Vec<(PathBuf, FileType, &'a DeniedTree)> {
        if let Some(entries) = self.of(folder) {
            let way = |entry: &Entry| {
                let within = denied.below.get(&entry.name)?;
                Some((folder.join(&entry.name), entry.kind, within))
            };
            return entries.iter().filter_map(way).collect();
        }
        let ways = denied.below.iter().map(|(name, within)| (folder.join(name), within));
        ways.filter_map(|(path, within)| {
            let kind = fs::symlink_metadata(&path).ok()?.file_type();
            Some((path, kind, within))
        })
        .collect()
    }

    /// Returns the targets of denied places whose paths lead through links that were made since the
    /// policy.
    pub(super) fn behind_links(&mut self, folder: &Path, denied: &DeniedTree) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for (way, kind, within) in self.ways(folder, denied) {
            if kind.is_symlink() {
                found.extend(within.places(&way).iter().map(|place| resolve(place)));
            } else if kind.is_dir() && !within.below.is_empty() {
                found.extend(self.behind_links(&way, within));
            }
        }
        found
    }

    /// Grants the content of a cache without the denied places in it. In a folder that contains a
    /// denied place, folders may be added, but nothing may be removed, renamed or linked: a command
    /// could give the credential another name, which the next command may read.
    pub(super) fn grant_cache(
        &mut self,
        folder: &Path,
        denied: &DeniedTree,
        grants: &mut Vec<PathRule>,
    ) {
        let Some(within) = denied.at(folder) else {
            grants.push(PathRule::new(folder, PathAccess::Change));
            return;
        };
        self.grant_cache_folder(folder, within, grants);
    }

    fn grant_cache_folder(
        &mut self,
        folder: &Path,
        denied: &DeniedTree,
        grants: &mut Vec<PathRule>,
    ) {
        let holds_one = denied.below.values().any(|within| within.is_denied);
        if !holds_one && !self.ways(folder, denied).iter().any(|(_, kind, _)| kind.is_dir()) {
            grants.push(PathRule::new(folder, PathAccess::Change));
            return;
        }
        grants.push(PathRule::new(folder, PathAccess::AddFolders));
        for entry in self.of(folder).iter().flat_map(|entries| entries.iter()) {
            let path = folder.join(&entry.name);
            match denied.below.get(&entry.name) {
                None => grants.push(PathRule::listed(path, PathAccess::Change, entry.inode)),
                Some(within) if within.is_denied => {}
                Some(within) => self.grant_cache_folder(&path, within, grants),
            }
        }
    }

    /// Grants reading the content of `folder` without the denied places in it, by granting their
    /// siblings. Files that are created there later are not granted before the next command.
    pub(super) fn grant_siblings(
        &mut self,
        folder: &Path,
        denied: &DeniedTree,
        grants: &mut Vec<PathRule>,
    ) {
        match denied.at(folder) {
            Some(within) if !within.below.is_empty() => self.grant_beside(folder, within, grants),
            Some(_) | None => grants.push(PathRule::new(folder, PathAccess::Read)),
        }
    }

    /// Grants reading the content of `folder` that is not denied.
    fn grant_beside(&mut self, folder: &Path, denied: &DeniedTree, grants: &mut Vec<PathRule>) {
        for Entry { name, kind, inode } in self.of(folder).iter().flat_map(|all| all.iter()) {
            // The target of a link is granted at its own path, if at all. A disk contains every
            // file.
            let is_itself = !kind.is_symlink() && !kind.is_block_device();
            if is_itself && !denied.below.contains_key(name) {
                grants.push(PathRule::listed(folder.join(name), PathAccess::Read, *inode));
            }
        }
        for (way, kind, within) in self.ways(folder, denied) {
            if kind.is_dir() && !within.is_denied {
                self.grant_beside(&way, within, grants);
            }
        }
    }

    pub(super) fn device_grants(&mut self, terminals: TerminalAccess) -> Vec<PathRule> {
        let terminals = match terminals {
            TerminalAccess::Closed => &[][..],
            TerminalAccess::Open => TERMINALS,
        };
        let known = STANDARD_DEVICES.iter().chain(DEVICES).chain(terminals).map(PathBuf::from);
        let folder = Path::new(DEVICE_FOLDER);
        let is_further =
            |name: &OsStr| name.as_encoded_bytes().starts_with(DEVICE_PREFIX.as_bytes());
        let listing = self.of(folder);
        let further = listing.iter().flat_map(|entries| entries.iter().map(|entry| &entry.name));
        let further = further.filter(|name| is_further(name)).map(|name| folder.join(name));
        known.chain(further).map(|path| PathRule::new(path, PathAccess::Use)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_grants_exclude_denied_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["home/.ssh", "home/.cache", "beside"] {
            fs::create_dir_all(at(name)).expect("a folder");
        }
        fs::write(at("home/.netrc"), "x").expect("a file");
        let denied = ["home/.ssh", "home/.netrc", "home.x"].map(at);
        let granted = |name: &str| {
            let mut grants = Vec::new();
            let denied = denied.iter().collect();
            FolderListings::default().grant_siblings(&at(name), &denied, &mut grants);
            grants
        };
        assert_eq!(granted("home"), [PathRule::new(at("home/.cache"), PathAccess::Read)]);
        assert_eq!(granted("beside"), [PathRule::new(at("beside"), PathAccess::Read)]);
    }

    #[test]
    fn denied_paths_are_followed_through_new_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("it exists");
        fs::create_dir_all(top.join("home/.ssh")).expect("a folder");
        let denied: DeniedTree = [top.join("home/.ssh/id")].iter().collect();
        let behind = || FolderListings::default().behind_links(Path::new("/"), &denied);
        assert!(behind().is_empty());
        fs::remove_dir(top.join("home/.ssh")).expect("it is empty");
        std::os::unix::fs::symlink("../beside", top.join("home/.ssh")).expect("a link");
        assert_eq!(behind(), [top.join("beside/id")]);
    }

    #[test]
    fn an_implausible_time_of_a_change_is_not_settled() {
        let now = SystemTime::now();
        assert!(is_settled(0, now));
        for changed in [i64::MIN, -1, i64::MAX, i64::MAX - 1, i64::MAX - 2] {
            assert!(!is_settled(changed, now), "{changed}");
        }
    }

    #[test]
    fn a_folder_that_has_not_changed_is_not_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        // The time is old, so that a change has another time, however fast the test is.
        let long_ago = UNIX_EPOCH + Duration::from_hours(24);
        let set_old = || fs::File::open(at).and_then(|file| file.set_modified(long_ago));
        fs::write(at.join("one"), "").expect("a file");
        set_old().expect("it is ours");
        let (now, later) = (SystemTime::now(), SystemTime::now() + Duration::from_hours(1));
        let mut listings = FolderListings::default();
        let mut listed = |time| {
            let is_current = listings.are_current(time);
            listings.begin(time);
            let listing = listings.of(at).expect("it can be listed");
            assert!(Arc::ptr_eq(&listings.of(at).expect("listed"), &listing), "read twice");
            (listing, is_current)
        };
        assert!(!listed(now).1, "nothing was read before");
        // A folder that was changed just now could change once more with the same timestamp.
        let (fresh, _) = listed(now);
        let (again, is_current) = listed(now);
        assert!(!Arc::ptr_eq(&again, &fresh) && !is_current);
        let (settled, is_current) = listed(later);
        assert!(!is_current, "it was not settled when it was read");
        let (again, is_current) = listed(later);
        assert!(Arc::ptr_eq(&again, &settled) && is_current);
        fs::write(at.join("two"), "").expect("a file");
        let (changed, is_current) = listed(later);
        assert_eq!((settled.len(), changed.len(), is_current), (1, 2, false));
        // Another folder with the same name and times is read again.
        let other = tempfile::tempdir_in(at.parent().expect("a parent")).expect("a folder");
        fs::rename(at, other.path().join("away")).expect("renamed");
        fs::create_dir(at).expect("a folder");
        set_old().expect("it is ours");
        let (replaced, is_current) = listed(later);
        assert_eq!((replaced.len(), is_current), (0, false));
    }
}
