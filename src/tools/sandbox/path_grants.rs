//! Grants for paths, as the file system is now: folders without the denied places in them, devices.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::process::{PathAccess, PathRule};

use super::super::paths::resolve;
use super::known_paths::{DEVICE_PREFIX, DEVICES, TERMINALS};

/// The terminals that commands may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalAccess {
    #[default]
    Closed,
    /// Those that they make, and those of the user.
    Open,
}

/// Everything may be read and nothing written, for a command that only reads where the sandbox is
/// off.
pub(super) fn grants_to_read_all() -> Vec<PathRule> {
    let all = [PathAccess::List, PathAccess::Read].map(|access| PathRule::new("/", access));
    all.into_iter().chain(device_grants(TerminalAccess::Closed)).collect()
}

/// Places that are denied, in order: what lies in a folder stands together behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeniedInOrder<'a>(&'a [PathBuf]);

impl<'a> DeniedInOrder<'a> {
    pub(super) fn sort(places: &'a mut [PathBuf]) -> Self {
        places.sort_unstable();
        Self(places)
    }

    /// Those that are this folder or lie in it.
    fn within(self, folder: &Path) -> Self {
        let from = &self.0[self.0.partition_point(|place| place.as_path() < folder)..];
        Self(&from[..from.partition_point(|place| place.starts_with(folder))])
    }

    /// Those that lie in this folder.
    pub(super) fn below(self, folder: &Path) -> Self {
        let Self(within) = self.within(folder);
        let itself = within.partition_point(|place| place == folder);
        Self(&within[itself..])
    }

    /// The names in `folder` through which the ways to those below it lead, in order, each with those
    /// that it leads to.
    fn ways(self, folder: &Path) -> Vec<(&'a OsStr, Self)> {
        let depth = folder.components().count();
        let is_same_way = |one: &PathBuf, other: &PathBuf| part(one, depth) == part(other, depth);
        let groups = self.below(folder).0.chunk_by(is_same_way);
        groups.map(|group| (part(&group[0], depth), Self(group))).collect()
    }
}

/// The part of a path with this number.
fn part(path: &Path, number: usize) -> &OsStr {
    path.iter().nth(number).unwrap_or_default()
}

/// Folders as they are listed for the grants of one command: each is read once, in order.
#[derive(Debug, Default)]
pub(super) struct FolderListings(HashMap<PathBuf, Listing>);

/// The entries of a folder by name. `None`: it cannot be listed, and may be open to those who know
/// the way.
type Listing = Option<Rc<BTreeMap<OsString, FileType>>>;

impl FolderListings {
    fn of(&mut self, folder: &Path) -> Listing {
        if let Some(known) = self.0.get(folder) {
            return known.clone();
        }
        let listing = fs::read_dir(folder).ok().map(|entries| {
            let kinds = entries
                .flatten()
                .filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?)));
            Rc::new(kinds.collect::<BTreeMap<_, _>>())
        });
        self.0.insert(folder.to_owned(), listing.clone());
        listing
    }

    /// The kind of an entry, links not followed.
    fn kind(&mut self, folder: &Path, name: &OsStr) -> Option<FileType> {
        match self.of(folder) {
            Some(entries) => entries.get(name).copied(),
            None => Some(fs::symlink_metadata(folder.join(name)).ok()?.file_type()),
        }
    }

    /// The denied places whose ways lead through links by now, where they lead to.
    pub(super) fn behind_links(
        &mut self,
        folder: &Path,
        denied: DeniedInOrder<'_>,
    ) -> Vec<PathBuf> {
        let ways = denied.ways(folder).into_iter();
        ways.flat_map(|(name, places)| match self.kind(folder, name) {
            Some(kind) if kind.is_symlink() => places.0.iter().map(|it| resolve(it)).collect(),
            Some(kind) if kind.is_dir() => self.behind_links(&folder.join(name), places),
            Some(_) | None => Vec::new(),
        })
        .collect()
    }

    /// Grants the content of a cache without the denied places in it. Where a folder holds one of
    /// them, folders may be added, and nothing removed, renamed or linked: the credential would get
    /// another name, which the next command may read.
    pub(super) fn grant_cache(
        &mut self,
        folder: &Path,
        denied: DeniedInOrder<'_>,
        grants: &mut Vec<PathRule>,
    ) {
        let ways = denied.ways(folder);
        let is_way = |(name, places): &(&OsStr, DeniedInOrder<'_>)| {
            let holds_one = places.0.iter().any(|place| place.parent() == Some(folder));
            holds_one || self.kind(folder, name).is_some_and(|kind| kind.is_dir())
        };
        if !ways.iter().any(is_way) {
            grants.push(PathRule::new(folder, PathAccess::Change));
            return;
        }
        grants.push(PathRule::new(folder, PathAccess::AddFolders));
        for name in self.of(folder).iter().flat_map(|entries| entries.keys()) {
            let path = folder.join(name);
            match denied.within(&path).0 {
                [] => grants.push(PathRule::new(path, PathAccess::Change)),
                [first, ..] if *first == path => {}
                _ => self.grant_cache(&path, denied, grants),
            }
        }
    }

    /// Grants reading the content of `folder` without the denied places in it, by granting what is
    /// beside them. What comes to be there later is not granted before the next command.
    pub(super) fn grant_siblings(
        &mut self,
        folder: &Path,
        denied: DeniedInOrder<'_>,
        grants: &mut Vec<PathRule>,
    ) {
        let within = denied.within(folder);
        match within.0 {
            [] => {
                grants.push(PathRule::new(folder, PathAccess::Read));
                return;
            }
            [first, ..] if first == folder => return,
            _ => {}
        }
        let ways = within.ways(folder);
        for (name, kind) in self.of(folder).iter().flat_map(|entries| entries.iter()) {
            let is_way = ways.binary_search_by(|(way, _)| (*way).cmp(name)).is_ok();
            // What a link leads to is granted where it is, if it is. A disk holds every file.
            if !kind.is_symlink() && !kind.is_block_device() && !is_way {
                grants.push(PathRule::new(folder.join(name), PathAccess::Read));
            }
        }
        for (name, _) in ways {
            if self.kind(folder, name).is_some_and(|kind| kind.is_dir()) {
                self.grant_siblings(&folder.join(name), within, grants);
            }
        }
    }
}

pub(super) fn device_grants(terminals: TerminalAccess) -> impl Iterator<Item = PathRule> {
    let further = fs::read_dir("/dev").into_iter().flatten().flatten();
    let further = further
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(DEVICE_PREFIX.as_bytes()))
        .map(|entry| entry.path());
    let terminals = match terminals {
        TerminalAccess::Closed => &[][..],
        TerminalAccess::Open => TERMINALS,
    };
    let known = DEVICES.iter().chain(terminals).map(PathBuf::from);
    known.chain(further).map(|path| PathRule::new(path, PathAccess::Use))
}
