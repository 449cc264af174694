//! Copies of hooks and servers that earlier versions made, and left behind when they were killed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::settings::Settings;
use crate::config::environment;

/// The prefix of the names of folders of copies.
const PREFIX: &str = ".outlast-pinned-";

/// Returns the work that removes the copies of earlier versions: there may be many. The next run
/// continues an unfinished removal.
pub(super) fn remove_copies_of_programs(settings: &Settings) -> impl FnOnce() + use<> {
    let own = settings.state_dir.join("pinned");
    let runtime = settings.variables.get(OsStr::new("XDG_RUNTIME_DIR")).map(PathBuf::from);
    let home = environment::home(&settings.variables);
    let others = home.into_iter().chain(runtime).chain([PathBuf::from("/var/lib")]);
    let places: Vec<PathBuf> = [own.clone()].into_iter().chain(others).collect();
    move || {
        for place in &places {
            remove_copies_in(place);
        }
        // The folder exists only if an earlier version made it, and is empty now.
        let _ = fs::remove_dir(own);
    }
}

/// Removes copies from a folder of the user or of root.
fn remove_copies_in(place: &Path) {
    let is_foreign = |facts: fs::Metadata| ![0, geteuid().as_raw()].contains(&facts.uid());
    if fs::metadata(place).map_or(true, is_foreign) {
        return;
    }
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_named = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let is_own = |entry: &fs::DirEntry| {
            entry.metadata().is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw())
        };
        if is_named && is_own(&entry) {
            // Another run may be removing it.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_earlier_versions_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at(".outlast-pinned-a/0/bin")).expect("a folder");
        fs::create_dir(at("kept")).expect("a folder");
        fs::write(at("kept/file"), "x").expect("a file");
        std::os::unix::fs::symlink(at("kept"), at(".outlast-pinned-a/0/neighbour"))
            .expect("a link");
        std::os::unix::fs::symlink(at("kept"), at(".outlast-pinned-link")).expect("a link");
        remove_copies_in(folder.path());
        assert!(!at(".outlast-pinned-a").exists());
        assert!(at("kept/file").exists() && at(".outlast-pinned-link").exists());
    }
}
