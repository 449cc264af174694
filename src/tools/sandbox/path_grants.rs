//! Grants for paths, as the file system is now: folders without the denied places in them, devices.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::process::{PathAccess, PathRule};

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
}

/// The folder in `folder` through which the way to `place` leads, if it exists.
fn is_way(folder: &Path, place: &Path) -> Option<PathBuf> {
    let first = place.strip_prefix(folder).ok()?.iter().next()?;
    Some(folder.join(first)).filter(|way| way.is_dir())
}

/// Grants the content of a cache without the denied places in it. Where a folder holds one of them,
/// folders may be added, and nothing removed, renamed or linked: the credential would get another
/// name, which the next command may read.
pub(super) fn grant_cache(folder: &Path, denied: DeniedInOrder<'_>, grants: &mut Vec<PathRule>) {
    let denied = denied.within(folder);
    let ways: Vec<PathBuf> = denied.0.iter().filter_map(|place| is_way(folder, place)).collect();
    let holds_one = denied.0.iter().any(|place| place.parent() == Some(folder));
    if ways.is_empty() && !holds_one {
        grants.push(PathRule::new(folder, PathAccess::Change));
        return;
    }
    grants.push(PathRule::new(folder, PathAccess::AddFolders));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match denied.within(&path).0 {
            [] => grants.push(PathRule::new(path, PathAccess::Change)),
            [first, ..] if *first == path => {}
            _ => grant_cache(&path, denied, grants),
        }
    }
}

/// Grants the content of `folder` without the denied places in it, by granting what is beside
/// them. What comes to be there later is not granted before the next command.
pub(super) fn grant_siblings(folder: &Path, denied: DeniedInOrder<'_>, grants: &mut Vec<PathRule>) {
    let within = denied.within(folder);
    match within.0 {
        [] => {
            grants.push(PathRule::new(folder, PathAccess::Read));
            return;
        }
        [first, ..] if first == folder => return,
        _ => {}
    }
    // A folder may be closed to lists and yet open to those who know the way.
    let mut ways: Vec<PathBuf> = within
        .0
        .iter()
        .filter_map(|place| place.strip_prefix(folder).ok()?.iter().next())
        .map(|name| folder.join(name))
        .collect();
    ways.dedup();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // What a link leads to is granted where it is, if it is. A disk holds every file.
        let Ok(kind) = entry.file_type() else { continue };
        if !kind.is_symlink() && !kind.is_block_device() && !ways.contains(&path) {
            grants.push(PathRule::new(path, PathAccess::Read));
        }
    }
    for way in ways.iter().filter(|way| way.is_dir()) {
        grant_siblings(way, within, grants);
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
