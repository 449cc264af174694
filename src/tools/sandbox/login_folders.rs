//! The folders of the table of credentials on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::real_paths::LinkedPath;
use super::context::SandboxContext;
use super::login_entries::{FIRST_PARTS, LoginFolder, entries};

/// The folders of the table of credentials on this machine.
#[derive(Debug, Default)]
pub(super) struct LoginFolders {
    /// Each with the first part of its entries; links as written.
    folders: Vec<(&'static str, PathBuf)>,
    /// Those without links in their paths.
    pub(super) real: Vec<LoginFolder>,
    /// The paths of the entries that may exist, links as written.
    pub(super) existing: Vec<PathBuf>,
    /// The entries among them that are links, or behind links, with their real paths.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl LoginFolders {
    pub(super) fn find(context: &SandboxContext<'_>) -> Self {
        let mut found = Self::default();
        for first in FIRST_PARTS {
            let entries = entries(first);
            for folder in context.login_folders(first) {
                let path = folder.path().to_owned();
                found.folders.push((first, path.clone()));
                if folder.is_real() {
                    found.real.push(LoginFolder { path, entries });
                }
                let may_exist =
                    |entry: &&&str| !folder.is_real() || context.may_hold(folder, entry);
                for entry in entries.iter().filter(may_exist) {
                    found.add(context.login_path(folder, entry));
                }
            }
        }
        found
    }

    fn add(&mut self, path: LinkedPath) {
        self.existing.push(path.written.clone());
        if path.real() != path.written {
            self.links.insert(path.written.clone(), path.into_real());
        }
    }

    /// The entries that are links, or behind links.
    pub(super) fn linked(&self) -> impl Iterator<Item = LinkedPath> {
        self.links.iter().map(|(path, real)| LinkedPath::new(path.clone(), real.clone()))
    }

    pub(super) fn is_linked(&self, path: &Path) -> bool {
        self.links.contains_key(path)
    }

    /// The paths of an entry of the table, also without links.
    pub(super) fn paths_of(&self, place: &str) -> impl Iterator<Item = PathBuf> {
        let (first, rest) = place.split_once('/').unwrap_or((place, ""));
        let folders = self.folders.iter().filter(move |(of, _)| *of == first);
        folders.flat_map(move |(_, folder)| {
            let path = folder.join(rest);
            let real = self.links.get(&path).cloned();
            std::iter::once(path).chain(real)
        })
    }
}
