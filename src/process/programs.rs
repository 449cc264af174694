//! Finds programs on `PATH`, but never in the working folder.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// The default `PATH`.
const USUAL: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the absolute folders of a `PATH`, or the default ones if there are none. Relative ones
/// (`.`, `bin`, an empty one) depend on the working folder, and so would run files of a repository.
pub fn absolute_path(path: Option<&OsStr>) -> OsString {
    let folders = path.map(env::split_paths).into_iter().flatten();
    let absolute = env::join_paths(folders.filter(|folder| folder.is_absolute()));
    let absolute = absolute.expect("what was split at colons holds none");
    if absolute.is_empty() { USUAL.into() } else { absolute }
}

/// Finds the first of these programs on a `PATH`, ignoring folders inside `tree`.
pub fn find_program(names: &[&str], path: &OsStr, tree: &Path) -> Option<PathBuf> {
    let tree = fs::canonicalize(tree).ok();
    let outside = |folder: &Path| {
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        tree.as_ref().is_none_or(|tree| !real.starts_with(tree))
    };
    let path = absolute_path(Some(path));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in env::split_paths(&path) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    // Only a folder with the program is resolved.
    names.iter().find_map(|name| {
        folders.iter().find_map(|folder| {
            let found = which::which_in(name, Some(folder), "/").ok()?;
            outside(folder).then_some(found)
        })
    })
}
